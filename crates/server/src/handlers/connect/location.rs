//! Resolves the address of a connection from stored objects.

use api::field::quote;
use api::labels::SERVICE_NAME;
use api::{GroupResource, Status};
use catalog::encode;
use catalog::keys;
use outbound::is_routable;
use storage::Store;
use value::Value;

/// Types of node addresses in order of preference.
const PREFERRED: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

const KUBELET_PORT: i64 = 10250;

/// Address of a connection.
#[derive(Debug, PartialEq)]
pub(super) enum ConnectTarget {
    /// The pod is not scheduled yet, so its log is empty.
    Nowhere,
    /// The kubelet of a node.
    Kubelet {
        /// Address with the kubelet's port.
        host: String,
        /// Path of the request to the kubelet.
        path: String,
    },
    /// A pod, a service endpoint or a proxied node.
    Backend {
        /// Address, with a port if one is known.
        host: String,
    },
}

/// Parses `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`; `what` is the resource in the error.
fn name_and_port<'i>(id: &'i str, what: &str) -> Result<(&'i str, &'i str), Status> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => ("", "", ""),
    };
    if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
        return Err(Status::bad_request(format!("invalid {what} request {}", quote(id))));
    }
    Ok((name, port))
}

fn get(store: &Store, resource: &str, key: &str, name: &str) -> Result<Value, Status> {
    let found = store.get(key);
    let entry = found.ok_or_else(|| Status::not_found(&GroupResource::new("", resource.to_owned()), name))?;
    encode::tree(&entry)
}

fn joined(host: &str, port: &str) -> String {
    match (host.contains(':'), port) {
        (true, "") => format!("[{host}]"),
        (true, port) => format!("[{host}]:{port}"),
        (false, "") => host.to_owned(),
        (false, port) => format!("{host}:{port}"),
    }
}

/// Resolves a pod to its IP; without a port, to the first port of its containers.
pub(super) fn pod(store: &Store, namespace: &str, id: &str) -> Result<ConnectTarget, Status> {
    let (name, port) = name_and_port(id, "pod")?;
    let pod = get(store, "pods", &keys::namespaced(keys::PODS, namespace, name), name)?;
    let containers = pod.list_at(&["spec", "containers"]);
    let first = containers.iter().find_map(|c| c.list_at(&["ports"]).first()?.int_at(&["containerPort"]));
    let port =
        if port.is_empty() { first.map(|port| port.to_string()).unwrap_or_default() } else { port.into() };
    let address =
        pod.list_at(&["status", "podIPs"]).first().and_then(|ip| ip.str_at(&["ip"])).unwrap_or_default();
    if !address.parse().is_ok_and(is_routable) {
        return Err(Status::bad_request("address not allowed"));
    }
    Ok(ConnectTarget::Backend { host: joined(address, &port) })
}

/// Resolves a service to a ready endpoint that is a pod of the same namespace.
pub(super) fn service(store: &Store, namespace: &str, id: &str) -> Result<ConnectTarget, Status> {
    let (name, port) = name_and_port(id, "service")?;
    let mut port_name = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let service = get(store, "services", &keys::namespaced(keys::SERVICES, namespace, name), name)?;
        let ports = service.list_at(&["spec", "ports"]);
        let Some(found) = ports.iter().find(|port| port.int_at(&["port"]) == Some(number)) else {
            let message = format!("no service port {number} found for service {}", quote(name));
            return Err(Status::unavailable(message));
        };
        found.str_at(&["name"]).unwrap_or_default().clone_into(&mut port_name);
    }
    let scope = keys::in_namespace(keys::ENDPOINT_SLICES, namespace);
    let slices = store.snapshot(&scope).entries;
    let slices = slices.iter().filter_map(|entry| encode::tree(entry).ok());
    for slice in slices.filter(|s| s.str_at(&["metadata", "labels", SERVICE_NAME]) == Some(name)) {
        let ports = slice.list_at(&["ports"]);
        let numbers = ports
            .iter()
            .filter(|port| port.str_at(&["name"]) == Some(&port_name))
            .filter_map(|port| port.int_at(&["port"]));
        for number in numbers {
            let ready = |endpoint: &&Value| endpoint.bool_at(&["conditions", "ready"]) != Some(false);
            let endpoints = slice.list_at(&["endpoints"]);
            let found = endpoints.iter().filter(ready).find_map(|e| pod_address(store, namespace, e));
            if let Some(address) = found {
                return Ok(ConnectTarget::Backend { host: joined(&address, &number.to_string()) });
            }
        }
    }
    Err(Status::unavailable(format!("no endpoints available for service {}", quote(name))))
}

/// The first address of an endpoint, if it belongs to the pod that the endpoint refers to.
fn pod_address(store: &Store, namespace: &str, endpoint: &Value) -> Option<String> {
    let target = endpoint.at(&["targetRef"])?;
    if target.str_at(&["namespace"]).unwrap_or_default() != namespace {
        return None;
    }
    let name = target.str_at(&["name"])?;
    let pod = get(store, "pods", &keys::namespaced(keys::PODS, namespace, name), name).ok()?;
    let address = endpoint.list_at(&["addresses"]).first()?.as_str()?;
    let own = pod.list_at(&["status", "podIPs"]);
    own.iter().any(|ip| ip.str_at(&["ip"]) == Some(address)).then(|| address.to_owned())
}

/// Resolves a node to its preferred address, by default with the port of its kubelet.
pub(super) fn node(store: &Store, id: &str) -> Result<ConnectTarget, Status> {
    let (name, port) = name_and_port(id, "node")?;
    let (host, kubelet) = kubelet(store, "nodes", name)?;
    if host.parse().is_ok_and(|ip| !is_routable(ip)) {
        return Err(Status::bad_request("address not allowed"));
    }
    let port = if port.is_empty() { kubelet } else { port.to_owned() };
    Ok(ConnectTarget::Backend { host: joined(&host, &port) })
}

/// Address and port of a node's kubelet. In the error for a missing node kube-apiserver names the requested resource, `asked`.
fn kubelet(store: &Store, asked: &str, name: &str) -> Result<(String, String), Status> {
    let node = get(store, asked, &keys::cluster_scoped(keys::NODES, name), name)?;
    let addresses = node.list_at(&["status", "addresses"]);
    let of = |kind: &str| addresses.iter().find(|a| a.str_at(&["type"]) == Some(kind));
    let Some(address) = PREFERRED.iter().find_map(|kind| of(kind)?.str_at(&["address"])) else {
        let known: Vec<String> = addresses
            .iter()
            .map(|a| {
                let field = |key| a.str_at(&[key]).unwrap_or_default();
                format!("{{{} {}}}", field("type"), field("address"))
            })
            .collect();
        let message = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
        return Err(Status::plain(message));
    };
    let port =
        node.int_at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).filter(|port| *port > 0);
    Ok((address.to_owned(), port.unwrap_or(KUBELET_PORT).to_string()))
}

/// Resolves a container to the kubelet of the pod's node.
pub(super) fn container(
    store: &Store,
    namespace: &str,
    name: &str,
    stream: &str,
    options: &Value,
) -> Result<ConnectTarget, Status> {
    let pod = get(store, "pods", &keys::namespaced(keys::PODS, namespace, name), name)?;
    let container = match stream {
        "portforward" => String::new(),
        _ => chosen(&pod, name, options.str_at(&["container"]).unwrap_or_default())?,
    };
    let on = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if on.is_empty() {
        return match stream {
            "log" => Ok(ConnectTarget::Nowhere),
            _ => Err(Status::bad_request(format!("pod {name} does not have a host assigned"))),
        };
    }
    let (host, port) = kubelet(store, "pods", on)?;
    let path = format!("/containerLogs/{namespace}/{name}/{container}");
    Ok(ConnectTarget::Kubelet { host: joined(&host, &port), path })
}

/// The requested container, or the only one if none is named.
fn chosen(pod: &Value, name: &str, asked: &str) -> Result<String, Status> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.list_at(&["spec", list]).iter();
        containers.filter_map(|c| c.str_at(&["name"]).map(str::to_owned)).collect()
    };
    let main = names("containers");
    let all = [names("initContainers"), main.clone(), names("ephemeralContainers")].concat();
    match (asked, main.as_slice()) {
        ("", [only]) => Ok(only.clone()),
        ("", []) => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        ("", _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
        (asked, _) if all.iter().any(|known| known == asked) => Ok(asked.to_owned()),
        (asked, _) => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
    }
}

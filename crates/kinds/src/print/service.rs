//! Columns of services and endpoints, and addresses of load balancers.

use value::Value;

use super::view::{View, cells, texts};

pub(super) fn service(v: &View<'_>) -> Vec<Value> {
    let ip = v.list(&["spec", "clusterIPs"]).first().and_then(Value::as_str);
    let ip = ip.or_else(|| v.get_text(&["spec", "clusterIP"]).filter(|ip| !ip.is_empty()));
    cells![
        v.name(),
        v.text(&["spec", "type"]),
        ip.unwrap_or("<none>"),
        external_ip(v),
        ports(v.list(&["spec", "ports"])),
        v.age(),
        v.labels(&["spec", "selector"]),
    ]
}

fn external_ip(v: &View<'_>) -> String {
    let own: Vec<&str> = texts(v.list(&["spec", "externalIPs"])).collect();
    match v.text(&["spec", "type"]) {
        "ClusterIP" | "NodePort" if own.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => own.join(","),
        "LoadBalancer" => {
            let balancer = load_balancer(v);
            let all = [balancer, own.join(",")].into_iter().filter(|part| !part.is_empty());
            let all = all.collect::<Vec<_>>().join(",");
            if all.is_empty() { "<pending>".to_owned() } else { all }
        }
        "ExternalName" => v.text(&["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses of `status.loadBalancer`, sorted.
pub(super) fn load_balancer(v: &View<'_>) -> String {
    let address = |point: &'_ Value| {
        let full = |field: &str| point.str_at(&[field]).filter(|text| !text.is_empty()).map(str::to_owned);
        full("ip").or_else(|| full("hostname"))
    };
    let mut addresses: Vec<String> =
        v.list(&["status", "loadBalancer", "ingress"]).iter().filter_map(address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

fn ports(ports: &[Value]) -> String {
    let port = |port: &Value| {
        let number = port.int_at(&["port"]).unwrap_or_default();
        let protocol = port.str_at(&["protocol"]).unwrap_or_default();
        match port.int_at(&["nodePort"]) {
            Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    let ports: Vec<String> = ports.iter().map(port).collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

/// First three addresses of an `Endpoints` object.
pub(super) fn endpoints(v: &View<'_>) -> String {
    let subsets = v.list(&["subsets"]);
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || subset.list_at(&["addresses"]).iter().filter_map(|a| a.str_at(&["ip"]));
        let ports = subset.list_at(&["ports"]);
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = port.int_at(&["port"]).unwrap_or_default();
            all.extend(
                ips().map(
                    |ip| {
                        if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                    },
                ),
            );
        }
    }
    let first = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    if all.len() > 3 { format!("{first} + {} more...", all.len() - 3) } else { first }
}

use std::collections::BTreeSet;
use std::net::IpAddr;

use value::Value;
use value::json::parse;

use super::{
    AddressError, AddressesAndPorts, Allocator, Family, PortError, begin_create, begin_update, claims_of,
    default_on_read,
};

/// An in-memory allocator with one or two address ranges.
#[derive(Default)]
struct Server {
    dual: bool,
    dry_run: bool,
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

impl Allocator for Server {
    fn families(&self) -> &[Family] {
        if self.dual { &[Family::V4, Family::V6] } else { &[Family::V4] }
    }

    fn allocate(&mut self, family: Family, address: IpAddr) -> Result<(), AddressError> {
        let prefix = if family == Family::V4 { "10.0.0." } else { "fd00::" };
        if !address.to_string().starts_with(prefix) {
            return Err(if self.dry_run {
                AddressError::NotInRange(address, format!("{prefix}0/24"))
            } else {
                AddressError::OtherNetwork
            });
        }
        if self.addresses.insert(address) { Ok(()) } else { Err(AddressError::Allocated) }
    }

    fn allocate_next(&mut self, family: Family) -> Result<IpAddr, AddressError> {
        for i in 1..5 {
            let text = if family == Family::V4 { format!("10.0.0.{i}") } else { format!("fd00::{i}") };
            let address: IpAddr = text.parse().unwrap();
            if self.addresses.insert(address) {
                return Ok(address);
            }
        }
        Err(AddressError::Full)
    }

    fn allocate_port(&mut self, port: i64) -> Result<(), PortError> {
        if !(30_000..=32_767).contains(&port) {
            return Err(PortError::NotInRange("30000-32767".to_owned()));
        }
        if self.ports.insert(port) { Ok(()) } else { Err(PortError::Allocated) }
    }

    fn allocate_next_port(&mut self) -> Result<i64, PortError> {
        let port = (30_000..30_005).find(|port| !self.ports.contains(port)).ok_or(PortError::Full)?;
        self.ports.insert(port);
        Ok(port)
    }

    fn release(&mut self, _: Family, address: IpAddr) {
        self.addresses.remove(&address);
    }

    fn release_port(&mut self, port: i64) {
        self.ports.remove(&port);
    }
}

fn service(spec: &str) -> Value {
    parse(format!(r#"{{"metadata":{{"name":"s"}},"spec":{spec}}}"#).as_bytes()).unwrap()
}

fn create(server: &mut Server, spec: &str) -> Result<Value, String> {
    let mut service = service(spec);
    match begin_create(&mut service, server) {
        Ok(_) => Ok(service),
        Err(status) => Err(status.message().to_owned()),
    }
}

fn spec_of(service: &Value) -> String {
    value::write::to_string(service.at(&["spec"]).unwrap())
}

#[test]
fn a_service_gets_an_address_and_a_family() {
    let made = create(&mut Server::default(), r#"{"type":"ClusterIP","ports":[{"port":80}]}"#).unwrap();
    assert_eq!(
        spec_of(&made),
        r#"{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":80}],"type":"ClusterIP"}"#
    );
}

#[test]
fn allocated_and_out_of_range_cluster_ips_are_refused() {
    let mut server = Server::default();
    create(&mut server, r#"{"type":"ClusterIP","clusterIP":"10.0.0.9"}"#).unwrap();
    let again = create(&mut server, r#"{"type":"ClusterIP","clusterIP":"10.0.0.9"}"#).unwrap_err();
    assert_eq!(
        again,
        r#"Service "s" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.9"]: failed to allocate IP 10.0.0.9: provided IP is already allocated"#
    );
    let foreign = create(&mut server, r#"{"type":"ClusterIP","clusterIP":"1.2.3.4"}"#).unwrap_err();
    assert!(
        foreign.ends_with(
            "failed to allocate IP 1.2.3.4: the provided network does not match the current range"
        ),
        "{foreign}"
    );
    server.dry_run = true;
    let foreign = create(&mut server, r#"{"type":"ClusterIP","clusterIP":"1.2.3.4"}"#).unwrap_err();
    assert!(foreign.contains("failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.0.0.0/24"), "{foreign}");
}

#[test]
fn a_full_service_ip_range_is_an_internal_error() {
    let mut server = Server::default();
    for _ in 0..4 {
        create(&mut server, r#"{"type":"ClusterIP"}"#).unwrap();
    }
    let full = create(&mut server, r#"{"type":"ClusterIP"}"#).unwrap_err();
    assert_eq!(
        full,
        r#"Internal error occurred: failed to allocate a serviceIP for Service "s": range is full"#
    );
}

#[test]
fn headless_and_external_services_take_no_address() {
    let mut server = Server::default();
    let headless =
        create(&mut server, r#"{"type":"ClusterIP","clusterIP":"None","selector":{"a":"b"}}"#).unwrap();
    assert_eq!(
        headless.at(&["spec", "clusterIPs"]).map(value::write::to_string).as_deref(),
        Some(r#"["None"]"#)
    );
    let without = create(&mut server, r#"{"type":"ClusterIP","clusterIP":"None"}"#).unwrap();
    assert_eq!(without.str_at(&["spec", "ipFamilyPolicy"]), Some("RequireDualStack"));
    assert_eq!(without.list_at(&["spec", "ipFamilies"]).len(), 2);
    let external = create(&mut server, r#"{"type":"ExternalName","externalName":"x.y"}"#).unwrap();
    assert!(external.at(&["spec", "clusterIP"]).is_none());
    assert!(server.addresses.is_empty());
}

#[test]
fn services_are_dual_stack_when_requested_and_supported() {
    let prefer = r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack"}"#;
    let one = create(&mut Server::default(), prefer).unwrap();
    assert_eq!(one.list_at(&["spec", "clusterIPs"]).len(), 1);
    let two = create(&mut Server { dual: true, ..Server::default() }, prefer).unwrap();
    assert_eq!(
        two.at(&["spec", "clusterIPs"]).map(value::write::to_string).as_deref(),
        Some(r#"["10.0.0.1","fd00::1"]"#)
    );
    let require =
        create(&mut Server::default(), r#"{"type":"ClusterIP","ipFamilyPolicy":"RequireDualStack"}"#)
            .unwrap_err();
    assert_eq!(
        require,
        r#"Service "s" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#
    );
    let family = create(&mut Server::default(), r#"{"type":"ClusterIP","ipFamilies":["IPv6"]}"#).unwrap_err();
    assert_eq!(
        family,
        r#"Service "s" is invalid: spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#
    );
}

#[test]
fn node_ports_are_handed_out_once_per_port_number() {
    let mut server = Server::default();
    let made = create(
        &mut server,
        r#"{"type":"NodePort","ports":[{"name":"t","port":53,"protocol":"TCP"},{"name":"u","port":53,"protocol":"UDP"},{"name":"x","port":80,"nodePort":30100}]}"#,
    )
    .unwrap();
    let ports: Vec<Option<i64>> =
        made.list_at(&["spec", "ports"]).iter().map(|port| port.int_at(&["nodePort"])).collect();
    assert_eq!(ports, [Some(30_000), Some(30_000), Some(30_100)]);
    let taken =
        create(&mut server, r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30100}]}"#).unwrap_err();
    assert_eq!(
        taken,
        r#"Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 30100: provided port is already allocated"#
    );
    let foreign =
        create(&mut server, r#"{"type":"NodePort","ports":[{"port":80,"nodePort":80}]}"#).unwrap_err();
    assert!(
        foreign.ends_with("provided port is not in the valid range. The range of valid ports is 30000-32767"),
        "{foreign}"
    );
    // The failed creates left nothing allocated.
    assert_eq!(server.addresses.len(), 1);
}

#[test]
fn load_balancers_may_do_without_node_ports_and_get_one_for_health_checks() {
    let made = create(
        &mut Server::default(),
        r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"externalTrafficPolicy":"Local","ports":[{"port":80}]}"#,
    )
    .unwrap();
    assert_eq!(made.list_at(&["spec", "ports"])[0].int_at(&["nodePort"]), None);
    assert_eq!(made.int_at(&["spec", "healthCheckNodePort"]), Some(30_000));
}

#[test]
fn a_service_update_preserves_omitted_cluster_ips_and_node_ports() {
    let mut server = Server::default();
    let old = create(&mut server, r#"{"type":"NodePort","ports":[{"name":"a","port":80}]}"#).unwrap();
    let mut new = service(r#"{"type":"NodePort","ports":[{"name":"a","port":81}]}"#);
    let allocation = begin_update(&mut new, &old, &mut server).unwrap();
    assert_eq!(allocation, super::ServiceAllocation::default());
    assert_eq!(new.str_at(&["spec", "clusterIP"]), old.str_at(&["spec", "clusterIP"]));
    assert_eq!(new.list_at(&["spec", "ports"])[0].int_at(&["nodePort"]), Some(30_000));
}

#[test]
fn changing_a_service_to_external_name_releases_its_addresses_and_ports() {
    let mut server = Server::default();
    let old = create(&mut server, r#"{"type":"NodePort","ports":[{"port":80}]}"#).unwrap();
    let mut new = service(r#"{"type":"ExternalName","externalName":"x.y"}"#);
    let allocation = begin_update(&mut new, &old, &mut server).unwrap();
    assert_eq!(
        allocation.to_release,
        AddressesAndPorts { addresses: vec![(Family::V4, "10.0.0.1".parse().unwrap())], ports: vec![30_000] }
    );
    assert_eq!(allocation.to_release, claims_of(&old));
    allocation.to_release.release(&mut server);
    assert!(server.addresses.is_empty() && server.ports.is_empty());
}

#[test]
fn changing_the_ip_family_policy_allocates_and_releases_the_second_address() {
    let mut server = Server { dual: true, ..Server::default() };
    let old = create(&mut server, r#"{"type":"ClusterIP"}"#).unwrap();
    let mut two = service(r#"{"type":"ClusterIP","ipFamilyPolicy":"RequireDualStack"}"#);
    let grown = begin_update(&mut two, &old, &mut server).unwrap();
    assert_eq!(grown.to_revert.addresses, [(Family::V6, "fd00::1".parse().unwrap())]);
    assert_eq!(two.list_at(&["spec", "clusterIPs"]).len(), 2);
    let mut one = two.clone();
    one.set_at(&["spec", "ipFamilyPolicy"], "SingleStack");
    let shrunk = begin_update(&mut one, &two, &mut server).unwrap();
    assert_eq!(shrunk.to_release.addresses, [(Family::V6, "fd00::1".parse().unwrap())]);
    assert_eq!(one.list_at(&["spec", "ipFamilies"]).len(), 1);
}

#[test]
fn services_of_old_servers_are_completed_when_read() {
    let mut old = service(r#"{"type":"ClusterIP","clusterIP":"10.0.0.3"}"#);
    default_on_read(&mut old, Family::V4);
    assert_eq!(
        spec_of(&old),
        r#"{"clusterIP":"10.0.0.3","clusterIPs":["10.0.0.3"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","type":"ClusterIP"}"#
    );
}

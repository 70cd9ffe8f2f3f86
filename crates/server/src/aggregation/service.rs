//! A stored `APIService`, read.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use documents::discovery::Registration;
use value::{Str, Value};

use crate::outbound::Forward;

/// The label that says how an APIService is kept at what it should be.
pub(super) const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// The condition that says whether an APIService can be used.
pub(super) const AVAILABLE: &str = "Available";

/// An APIService.
#[derive(Clone, Debug)]
pub(crate) struct ApiService {
    /// Its name.
    pub(crate) name: Str,
    /// Its uid.
    pub(super) uid: Str,
    /// What it registers.
    pub(crate) registration: Registration,
    /// Whether and how this server manages it.
    pub(super) managed: Managed,
    /// Whether its status says that it is local.
    pub(super) says_local: bool,
    /// The other server, if it is not this one.
    pub(crate) remote: Option<Remote>,
}

/// Whether and how this server manages an APIService.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Managed {
    /// Not at all.
    No,
    /// Once, when the server starts.
    OnStart,
    /// Always.
    Always,
}

impl Managed {
    /// From the value of the label.
    pub(super) fn parse(label: &str) -> Self {
        match label {
            "onstart" => Managed::OnStart,
            "true" => Managed::Always,
            _ => Managed::No,
        }
    }

    /// The value of the label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Managed::No => "",
            Managed::OnStart => "onstart",
            Managed::Always => "true",
        }
    }
}

/// The server behind an APIService.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    /// The namespace of its service.
    pub(super) namespace: Str,
    /// The name of its service.
    pub(super) service: Str,
    /// The port of its service.
    pub(super) port: u16,
    /// PEM of the authorities that vouch for it; those of the system if empty.
    pub(super) ca_bundle: Vec<u8>,
    /// Whether nobody needs to.
    pub(super) insecure: bool,
    /// Whether its status says that it can be used.
    pub(super) available: bool,
    /// How it is reached, or why it cannot be.
    pub(super) transport: Arc<Result<Forward, String>>,
}

impl Remote {
    /// The name it has to prove.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Whether another is reached in the same way.
    pub(super) fn is_at_the_place_of(&self, other: &Remote) -> bool {
        (&self.namespace, &self.service, self.port, &self.ca_bundle, self.insecure)
            == (&other.namespace, &other.service, other.port, &other.ca_bundle, other.insecure)
    }
}

impl ApiService {
    /// Reads one. How a remote one is reached is up to the caller.
    pub(super) fn read(object: &Value) -> Self {
        let text = |path: &[&str]| Str::from(object.str_at(path).unwrap_or_default());
        let number = |path: &[&str]| object.int_at(path).unwrap_or_default();
        let condition = object
            .list_at(&["status", "conditions"])
            .iter()
            .find(|condition| condition.str_at(&["type"]) == Some(AVAILABLE));
        let said = |field: &str| condition.and_then(|c| c.str_at(&[field])).unwrap_or_default();
        let reference = object.at(&["spec", "service"]).filter(|reference| reference.as_map().is_some());
        let remote = reference.map(|_| Remote {
            namespace: text(&["spec", "service", "namespace"]),
            service: text(&["spec", "service", "name"]),
            port: u16::try_from(number(&["spec", "service", "port"]))
                .ok()
                .filter(|port| *port > 0)
                .unwrap_or(443),
            // What cannot be read is no certificate either: with nothing there anybody's would do whom the system trusts.
            ca_bundle: STANDARD
                .decode(text(&["spec", "caBundle"]).as_bytes())
                .unwrap_or_else(|_| b"unreadable".to_vec()),
            insecure: object.bool_at(&["spec", "insecureSkipTLSVerify"]) == Some(true),
            available: said("status") == "True",
            transport: Arc::new(Err("no transport yet".to_owned())),
        });
        ApiService {
            name: api::meta::name(object).into(),
            uid: api::meta::uid(object).into(),
            registration: Registration {
                group: text(&["spec", "group"]),
                version: text(&["spec", "version"]),
                group_priority: number(&["spec", "groupPriorityMinimum"]),
                version_priority: number(&["spec", "versionPriority"]),
            },
            managed: Managed::parse(object.str_at(&["metadata", "labels", AUTOMANAGED]).unwrap_or_default()),
            says_local: said("status") == "True" && said("reason") == "Local",
            remote,
        }
    }
}

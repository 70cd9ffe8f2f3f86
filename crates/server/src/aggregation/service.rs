//! The parsed form of a stored `APIService`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use documents::discovery::Registration;
use outbound::Forward;
use value::{Str, Value};

/// The label that marks APIServices managed by the server.
pub(super) const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

pub(super) const AVAILABLE: &str = "Available";

#[derive(Clone, Debug)]
pub(crate) struct ApiService {
    pub(crate) name: Str,
    pub(super) uid: Str,
    pub(crate) registration: Registration,
    pub(super) managed: AutoManaged,
    /// Whether its `Available` condition is `True` with reason `Local`.
    pub(super) says_local: bool,
    /// The aggregated API server; `None` if this server serves the group itself.
    pub(crate) remote: Option<Remote>,
    /// Whether it names a Service that is ignored, because its group version is served by built-in resources.
    pub(super) ignores_service: bool,
}

/// How this server manages an APIService (value of the automanaged label).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoManaged {
    No,
    /// Reconciled once, when the server starts.
    OnStart,
    /// Reconciled on every change.
    Always,
}

impl AutoManaged {
    pub(super) fn parse(label: &str) -> Self {
        match label {
            "onstart" => AutoManaged::OnStart,
            "true" => AutoManaged::Always,
            _ => AutoManaged::No,
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            AutoManaged::No => "",
            AutoManaged::OnStart => "onstart",
            AutoManaged::Always => "true",
        }
    }
}

/// The aggregated API server behind an APIService.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(super) namespace: Str,
    pub(super) service: Str,
    pub(super) port: u16,
    /// PEM certificates of the CAs to verify the server with; the system's CAs if empty.
    pub(super) ca_bundle: Vec<u8>,
    /// Skips TLS verification of the aggregated server (`insecureSkipTLSVerify`).
    pub(super) insecure: bool,
    /// Whether its `Available` condition is `True`.
    pub(super) available: bool,
    /// The connection pool, or the error that prevented building it.
    pub(super) transport: Arc<Result<Forward, String>>,
}

impl Remote {
    /// The name the server's certificate must be valid for.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Whether both have the same Service, port and trust settings, so that a connection pool can be shared.
    pub(super) fn has_endpoint_of(&self, other: &Remote) -> bool {
        (&self.namespace, &self.service, self.port, &self.ca_bundle, self.insecure)
            == (&other.namespace, &other.service, other.port, &other.ca_bundle, other.insecure)
    }
}

impl ApiService {
    /// Parses an APIService. The transport of a remote one is a placeholder that the caller replaces.
    pub(super) fn read(object: &Value) -> Self {
        let text = |path: &[&str]| Str::from(object.str_at(path).unwrap_or_default());
        let number = |path: &[&str]| object.int_at(path).unwrap_or_default();
        let condition = object
            .list_at(&["status", "conditions"])
            .iter()
            .find(|condition| condition.str_at(&["type"]) == Some(AVAILABLE));
        let condition_field = |field: &str| condition.and_then(|c| c.str_at(&[field])).unwrap_or_default();
        let reference = object.at(&["spec", "service"]).filter(|reference| reference.as_map().is_some());
        let remote = reference.map(|_| Remote {
            namespace: text(&["spec", "service", "namespace"]),
            service: text(&["spec", "service", "name"]),
            port: u16::try_from(number(&["spec", "service", "port"]))
                .ok()
                .filter(|port| *port > 0)
                .unwrap_or(443),
            // An invalid bundle must not be treated as empty: an empty one trusts the system's CAs.
            ca_bundle: STANDARD
                .decode(text(&["spec", "caBundle"]).as_bytes())
                .unwrap_or_else(|_| b"unreadable".to_vec()),
            insecure: object.bool_at(&["spec", "insecureSkipTLSVerify"]) == Some(true),
            available: condition_field("status") == "True",
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
            managed: AutoManaged::parse(
                object.str_at(&["metadata", "labels", AUTOMANAGED]).unwrap_or_default(),
            ),
            says_local: condition_field("status") == "True" && condition_field("reason") == "Local",
            remote,
            ignores_service: false,
        }
    }

    /// Serves the group version locally, whatever Service the APIService names, if it is reserved.
    pub(super) fn ignore_service_if(&mut self, is_reserved: impl FnOnce(&Registration) -> bool) {
        if self.remote.is_some() && is_reserved(&self.registration) {
            self.remote = None;
            self.ignores_service = true;
        }
    }
}

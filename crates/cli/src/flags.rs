//! kube-apiserver flags that `serve` does not implement: it ignores those that have no effect here, with a warning, and rejects those
//! whose setting protects something.

#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsupportedFlag {
    /// Name without the leading dashes.
    pub(crate) name: &'static str,
    pub(crate) support: FlagSupport,
    /// A boolean flag: the value may be omitted, which means `true`.
    pub(crate) boolean: bool,
}

/// How `serve` treats a flag that it does not implement, with the reason that it prints.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlagSupport {
    /// The flag has no effect here; a warning says why.
    Ignored(&'static str),
    /// A start-up error: the flag decides about access, about the store or about protection of data, so ignoring it would be unsafe.
    Rejected(&'static str),
}

const fn ignored(name: &'static str, reason: &'static str) -> UnsupportedFlag {
    UnsupportedFlag { name, support: FlagSupport::Ignored(reason), boolean: false }
}

const fn rejected(name: &'static str, reason: &'static str) -> UnsupportedFlag {
    UnsupportedFlag { name, support: FlagSupport::Rejected(reason), boolean: false }
}

const fn boolean(flag: UnsupportedFlag) -> UnsupportedFlag {
    UnsupportedFlag { boolean: true, ..flag }
}

const AUDIT: &str = "the audit webhook backend is not implemented yet";
const OIDC: &str = "OpenID Connect authentication is not implemented yet";
const TOKEN_WEBHOOK: &str = "webhook token authentication is not implemented yet";
const NO_NODES: &str = "the server does not connect to nodes";
const NO_PEERS: &str = "requests are not forwarded to peer servers";
const LOGS: &str = "log lines are written immediately, to standard error";
const LEASES: &str = "coordinated leader election is not implemented";

/// Grouped by subject; `docs/reference/flags.md` lists them.
pub(crate) const UNSUPPORTED_FLAGS: &[UnsupportedFlag] = &[
    // Storage.
    rejected("encryption-provider-config", "encryption of stored objects is not implemented yet"),
    boolean(rejected(
        "encryption-provider-config-automatic-reload",
        "encryption of stored objects is not implemented yet",
    )),
    // Authentication.
    rejected("authentication-config", "AuthenticationConfiguration is not implemented yet"),
    rejected("authentication-token-webhook-cache-ttl", TOKEN_WEBHOOK),
    rejected("authentication-token-webhook-config-file", TOKEN_WEBHOOK),
    rejected("authentication-token-webhook-version", TOKEN_WEBHOOK),
    rejected("oidc-ca-file", OIDC),
    rejected("oidc-client-id", OIDC),
    rejected("oidc-groups-claim", OIDC),
    rejected("oidc-groups-prefix", OIDC),
    rejected("oidc-issuer-url", OIDC),
    rejected("oidc-required-claim", OIDC),
    rejected("oidc-signing-algs", OIDC),
    rejected("oidc-username-claim", OIDC),
    rejected("oidc-username-prefix", OIDC),
    rejected(
        "service-account-signing-endpoint",
        "external signing of service account tokens is not implemented yet",
    ),
    // Audit.
    rejected("audit-webhook-config-file", AUDIT),
    rejected("audit-webhook-mode", AUDIT),
    rejected("audit-webhook-version", AUDIT),
    rejected("audit-webhook-initial-backoff", AUDIT),
    rejected("audit-webhook-batch-initial-backoff", AUDIT),
    rejected("audit-webhook-batch-buffer-size", AUDIT),
    rejected("audit-webhook-batch-max-size", AUDIT),
    rejected("audit-webhook-batch-max-wait", AUDIT),
    rejected("audit-webhook-batch-throttle-burst", AUDIT),
    boolean(rejected("audit-webhook-batch-throttle-enable", AUDIT)),
    rejected("audit-webhook-batch-throttle-qps", AUDIT),
    boolean(rejected("audit-webhook-truncate-enabled", AUDIT)),
    rejected("audit-webhook-truncate-max-batch-size", AUDIT),
    rejected("audit-webhook-truncate-max-event-size", AUDIT),
    // Transport security.
    rejected("egress-selector-config-file", "egress proxies are not implemented yet"),
    rejected("tls-sni-cert-key", "additional serving certificates are not implemented yet"),
    rejected("tls-curve-preferences", "selecting key exchange groups is not implemented yet"),
    rejected("peer-ca-file", "forwarding requests to peer servers is not implemented yet"),
    rejected("debug-socket-path", "there are no profiling endpoints"),
    // Flags without effect.
    ignored("peer-advertise-ip", NO_PEERS),
    ignored("peer-advertise-port", NO_PEERS),
    ignored("coordinated-leadership-lease-duration", LEASES),
    ignored("coordinated-leadership-renew-deadline", LEASES),
    ignored("coordinated-leadership-retry-period", LEASES),
    ignored("kubelet-certificate-authority", NO_NODES),
    ignored("kubelet-client-certificate", NO_NODES),
    ignored("kubelet-client-key", NO_NODES),
    ignored("kubelet-preferred-address-types", NO_NODES),
    ignored("kubelet-timeout", NO_NODES),
    ignored("kubelet-port", NO_NODES),
    ignored("kubelet-read-only-port", NO_NODES),
    ignored("max-connection-bytes-per-sec", NO_NODES),
    ignored("kubernetes-service-node-port", "the Service default/kubernetes has a cluster IP only"),
    boolean(ignored("enable-logs-handler", "log files are not served")),
    boolean(ignored(
        "enable-garbage-collector",
        "the garbage collector is one of the built-in controllers (--enable-controllers)",
    )),
    ignored("delete-collection-workers", "deletecollection deletes objects sequentially"),
    ignored("external-hostname", "published URLs use --advertise-address"),
    ignored("livez-grace-period", "/livez succeeds as soon as the server listens"),
    boolean(ignored("permit-address-sharing", "the server does not share its address with other processes")),
    boolean(ignored("permit-port-sharing", "the server does not share its port with other processes")),
    boolean(ignored("contention-profiling", "there are no profiling endpoints")),
    ignored("allow-metric-labels", "metrics are not filtered"),
    ignored("allow-metric-labels-manifest", "metrics are not filtered"),
    ignored("disabled-metrics", "metrics are not filtered"),
    ignored("show-hidden-metrics-for-version", "metrics are not filtered"),
    ignored("tracing-config-file", "tracing is not implemented"),
    ignored("log-flush-frequency", LOGS),
    ignored("log-json-info-buffer-size", LOGS),
    boolean(ignored("log-json-split-stream", LOGS)),
    ignored("log-text-info-buffer-size", LOGS),
    boolean(ignored("log-text-split-stream", LOGS)),
    ignored("vmodule", LOGS),
    boolean(ignored("emulation-forward-compatible", "the served APIs are always those of 1.37")),
    ignored("min-compatibility-version", "the served APIs are always those of 1.37"),
    boolean(ignored(
        "runtime-config-emulation-forward-compatible",
        "the served APIs are always those of 1.37",
    )),
];

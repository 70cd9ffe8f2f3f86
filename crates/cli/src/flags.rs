//! kube-apiserver's flags that `serve` knows but does not act on: those that cannot matter here, and those that must not be
//! ignored.

/// A flag that is known by name alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The name, without dashes.
    pub(crate) name: &'static str,
    /// What becomes of it.
    pub(crate) fate: Fate,
    /// Whether it is a switch, which may stand without a value.
    pub(crate) switch: bool,
}

/// What becomes of a flag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// Accepted with a warning: it cannot matter here, for this reason.
    Ignored(&'static str),
    /// A start-up error: it decides who may do what, where data lives or how it is protected, and is not implemented yet.
    Refused(&'static str),
}

const fn ignored(name: &'static str, reason: &'static str) -> Known {
    Known { name, fate: Fate::Ignored(reason), switch: false }
}

const fn refused(name: &'static str, what: &'static str) -> Known {
    Known { name, fate: Fate::Refused(what), switch: false }
}

const fn switch(known: Known) -> Known {
    Known { switch: true, ..known }
}

const ETCD: &str = "objects are kept in --data-dir; etcd is not supported yet";
const NO_ETCD: &str = "it tunes the connection to etcd, and there is none";
const AUDIT: &str = "sending audit events to a webhook is not implemented yet";
const OIDC: &str = "OpenID Connect tokens are not implemented yet";
const TOKEN_WEBHOOK: &str = "asking a webhook about tokens is not implemented yet";
const NO_NODES: &str = "no node is contacted";
const ONE_SERVER: &str = "there is one server, so nothing is coordinated between several";
const LOGS: &str = "log lines are written at once and need no tuning";
const LEASES: &str = "leadership is not coordinated by this server";

/// Every flag that is known by name alone, by the part of the server it is about.
pub(crate) const KNOWN: &[Known] = &[
    // Where data lives.
    refused("etcd-servers", ETCD),
    refused("etcd-servers-overrides", ETCD),
    refused("etcd-cafile", ETCD),
    refused("etcd-certfile", ETCD),
    refused("etcd-keyfile", ETCD),
    refused("etcd-prefix", ETCD),
    refused("encryption-provider-config", "encryption of stored objects is not implemented yet"),
    switch(refused(
        "encryption-provider-config-automatic-reload",
        "encryption of stored objects is not implemented yet",
    )),
    ignored("etcd-compaction-interval", NO_ETCD),
    ignored("etcd-count-metric-poll-period", NO_ETCD),
    ignored("etcd-db-metric-poll-interval", NO_ETCD),
    ignored("etcd-healthcheck-timeout", NO_ETCD),
    ignored("etcd-readycheck-timeout", NO_ETCD),
    ignored("lease-reuse-duration-seconds", NO_ETCD),
    ignored("storage-backend", "the embedded store is the only one"),
    ignored("storage-media-type", "objects are stored as JSON"),
    ignored("storage-initialization-timeout", "the store opens before the server listens"),
    switch(ignored("watch-cache", "the working set is always in memory")),
    ignored("watch-cache-sizes", "the working set is always in memory"),
    ignored("default-watch-cache-size", "the working set is always in memory"),
    // Who is calling.
    refused("authentication-config", "structured authentication is not implemented yet"),
    refused("authentication-token-webhook-cache-ttl", TOKEN_WEBHOOK),
    refused("authentication-token-webhook-config-file", TOKEN_WEBHOOK),
    refused("authentication-token-webhook-version", TOKEN_WEBHOOK),
    refused("oidc-ca-file", OIDC),
    refused("oidc-client-id", OIDC),
    refused("oidc-groups-claim", OIDC),
    refused("oidc-groups-prefix", OIDC),
    refused("oidc-issuer-url", OIDC),
    refused("oidc-required-claim", OIDC),
    refused("oidc-signing-algs", OIDC),
    refused("oidc-username-claim", OIDC),
    refused("oidc-username-prefix", OIDC),
    switch(refused("enable-bootstrap-token-auth", "bootstrap tokens are not implemented yet")),
    refused("service-account-signing-endpoint", "an external signer is not implemented yet"),
    // What they may do.
    refused("admission-control", "use --enable-admission-plugins and --disable-admission-plugins"),
    // What is recorded.
    refused("audit-webhook-config-file", AUDIT),
    refused("audit-webhook-mode", AUDIT),
    refused("audit-webhook-version", AUDIT),
    refused("audit-webhook-initial-backoff", AUDIT),
    refused("audit-webhook-batch-buffer-size", AUDIT),
    refused("audit-webhook-batch-max-size", AUDIT),
    refused("audit-webhook-batch-max-wait", AUDIT),
    refused("audit-webhook-batch-throttle-burst", AUDIT),
    switch(refused("audit-webhook-batch-throttle-enable", AUDIT)),
    refused("audit-webhook-batch-throttle-qps", AUDIT),
    switch(refused("audit-webhook-truncate-enabled", AUDIT)),
    refused("audit-webhook-truncate-max-batch-size", AUDIT),
    refused("audit-webhook-truncate-max-event-size", AUDIT),
    // How traffic is protected.
    refused("egress-selector-config-file", "proxies for outbound traffic are not implemented yet"),
    refused("tls-sni-cert-key", "several serving certificates are not implemented yet"),
    refused("tls-curve-preferences", "the key exchange groups cannot be chosen yet"),
    refused("strict-transport-security-directives", "HSTS headers are not implemented yet"),
    refused("cors-allowed-origins", "cross-origin requests are never allowed"),
    refused("peer-ca-file", "forwarding between servers is not implemented yet"),
    switch(refused("disable-http2-serving", "HTTP/2 cannot be switched off yet")),
    refused("debug-socket-path", "the profiling socket is not implemented"),
    // What cannot matter here.
    ignored("endpoint-reconciler-type", ONE_SERVER),
    ignored("peer-advertise-ip", ONE_SERVER),
    ignored("peer-advertise-port", ONE_SERVER),
    ignored("goaway-chance", ONE_SERVER),
    ignored("coordinated-leadership-lease-duration", LEASES),
    ignored("coordinated-leadership-renew-deadline", LEASES),
    ignored("coordinated-leadership-retry-period", LEASES),
    ignored("kubelet-certificate-authority", NO_NODES),
    ignored("kubelet-client-certificate", NO_NODES),
    ignored("kubelet-client-key", NO_NODES),
    ignored("kubelet-preferred-address-types", NO_NODES),
    ignored("kubelet-timeout", NO_NODES),
    ignored("max-connection-bytes-per-sec", NO_NODES),
    ignored("kubernetes-service-node-port", "the kubernetes service has a cluster IP only"),
    switch(ignored("enable-logs-handler", "log files are not served")),
    switch(ignored("enable-garbage-collector", "garbage is always collected")),
    ignored("delete-collection-workers", "collections are deleted one object after the other"),
    ignored("external-hostname", "published documents name --advertise-address"),
    ignored("livez-grace-period", "the server answers as soon as it lives"),
    ignored("min-request-timeout", "watches last half an hour to an hour unless the client says otherwise"),
    ignored("shutdown-delay-duration", "the server stops at once and lets requests finish"),
    switch(ignored("shutdown-send-retry-after", "the server stops at once and lets requests finish")),
    ignored("shutdown-watch-termination-grace-period", "watches end when the server stops"),
    ignored("http2-max-streams-per-connection", "the number of streams is bounded at 250"),
    switch(ignored("permit-address-sharing", "the address is bound once")),
    switch(ignored("permit-port-sharing", "the port is bound once")),
    switch(ignored("contention-profiling", "there is no profiling page")),
    ignored("allow-metric-labels", "metrics are not filtered"),
    ignored("allow-metric-labels-manifest", "metrics are not filtered"),
    ignored("disabled-metrics", "metrics are not filtered"),
    ignored("show-hidden-metrics-for-version", "metrics are not filtered"),
    ignored("tracing-config-file", "traces are not recorded"),
    ignored("log-flush-frequency", LOGS),
    ignored("log-json-info-buffer-size", LOGS),
    switch(ignored("log-json-split-stream", LOGS)),
    ignored("log-text-info-buffer-size", LOGS),
    switch(ignored("log-text-split-stream", LOGS)),
    ignored("vmodule", LOGS),
    switch(ignored("emulation-forward-compatible", "APIs are always those of 1.37")),
    ignored("min-compatibility-version", "APIs are always those of 1.37"),
    switch(ignored("runtime-config-emulation-forward-compatible", "APIs are always those of 1.37")),
];

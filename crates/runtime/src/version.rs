//! The version the server reports: Kubernetes 1.37.

use value::Value;

/// Shown by `/version` and `kubectl version`.
pub const GIT_VERSION: &str = "v1.37.0+portcullis";

/// The version without suffix, as `/statusz` shows it.
pub const BINARY: &str = "1.37.0";

/// Operating system and architecture in Go's notation.
pub const PLATFORM: &str = if cfg!(target_arch = "aarch64") { "linux/arm64" } else { "linux/amd64" };

/// The `User-Agent` of a component that runs in this process but is a separate program in Kubernetes.
pub fn user_agent(component: &str) -> String {
    format!("{component}/{GIT_VERSION} ({PLATFORM}) kubernetes/portcullis")
}

/// The response of the `/version` endpoint.
pub fn document(emulated_minor: u32) -> Value {
    let (minor, compatible) = (emulated_minor.to_string(), emulated_minor.saturating_sub(1).to_string());
    Value::map([
        ("buildDate", ""),
        ("compiler", "rustc"),
        ("emulationMajor", "1"),
        ("emulationMinor", minor.as_str()),
        ("gitCommit", ""),
        ("gitTreeState", "clean"),
        ("gitVersion", GIT_VERSION),
        ("goVersion", ""),
        ("major", "1"),
        ("minCompatibilityMajor", "1"),
        ("minCompatibilityMinor", compatible.as_str()),
        ("minor", "37"),
        ("platform", PLATFORM),
    ])
}

//! The version the server reports: Kubernetes 1.37.

use std::sync::OnceLock;

use value::Value;
use value::go::quote;

/// The default version in `/version`, `kubectl version` and metrics.
pub const GIT_VERSION: &str = "v1.37.0+portcullis";

static REPORTED: OnceLock<String> = OnceLock::new();

/// The version in `/version`, `kubectl version` and metrics.
pub fn reported() -> &'static str {
    REPORTED.get().map_or(GIT_VERSION, String::as_str)
}

/// Sets the reported version (`--version=vX.Y.Z-suffix`), once and before the server starts. Fails if it is not a
/// semantic version or not of this server's release; the errors are kube-apiserver's.
pub fn set_reported(version: &str) -> Result<(), String> {
    if version == GIT_VERSION {
        return Ok(());
    }
    let numbers = version.strip_prefix('v').unwrap_or(version);
    let end = numbers.find(['-', '+']).unwrap_or(numbers.len());
    let (numbers, suffix) = numbers.split_at(end);
    let parts: Vec<&str> = numbers.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_suffix = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    if parts.len() != 3 || !parts.iter().all(is_number) || suffix.len() == 1 || !suffix.bytes().all(is_suffix)
    {
        return Err(format!("could not parse {} as version", quote(version)));
    }
    if let Some(part) = parts.iter().find(|part| part.len() > 1 && part.starts_with('0')) {
        let quoted = quote(version);
        return Err(format!("illegal zero-prefixed version component {} in {quoted}", quote(part)));
    }
    if numbers != BINARY {
        return Err(format!(
            "version {} must match major/minor/patch of default version {}",
            quote(version),
            quote(GIT_VERSION)
        ));
    }
    let _ = REPORTED.set(version.to_owned());
    Ok(())
}

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
        ("gitVersion", reported()),
        ("goVersion", ""),
        ("major", "1"),
        ("minCompatibilityMajor", "1"),
        ("minCompatibilityMinor", compatible.as_str()),
        ("minor", "37"),
        ("platform", PLATFORM),
    ])
}

//! The identity of this server among the servers of a cluster, and hashes for the labels of metrics.

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use sha2::{Digest as _, Sha256};

/// The host name as the kernel has it, the `os.Hostname` of Go.
pub fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.strip_suffix('\n').unwrap_or(&host).to_owned()
}

/// The identity of a server on `host`: `apiserver-` and a hash of the host name, as in kube-apiserver. The servers of one host share it.
pub fn id(host: &str) -> String {
    let mut hash = Sha256::new();
    // The length of each part precedes it, so that no two lists of parts have the same hash.
    for part in [host, COMPONENT] {
        hash.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let (short, _) = digest.split_at(16);
    format!("apiserver-{}", BASE32_NOPAD.encode(short).to_lowercase())
}

/// The component that the identity belongs to; also the value of the label that marks identity Leases.
pub const COMPONENT: &str = "kube-apiserver";

/// `sha256:` and the hex digest; empty for empty content.
pub fn hash(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_server_identity_is_the_one_that_kubernetes_computes_for_the_host() {
        assert_eq!(super::id("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
        assert_ne!(super::id("VM"), super::id("vm"), "kube-apiserver does not change the case");
        assert!(!super::host().ends_with('\n'));
    }
}

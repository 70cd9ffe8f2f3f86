//! The signers of certificate requests that Kubernetes defines. They are declared only here; tables of roles spell them out as data.

/// Signs client certificates of any user.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signs client certificates of kubelets.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signs serving certificates of kubelets.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer of requests that were created before requests named one; new requests may not name it.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

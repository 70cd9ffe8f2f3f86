//! Labels and annotations that several crates read or write. They are declared only here, and [`admin_access`](crate::admin_access) has
//! those of DRA.

/// Label of an EndpointSlice: the name of its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a Namespace: its name. Selectors of policies and webhooks depend on it, so clients cannot change it.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Annotation of a ServiceAccount: its pods may use only the Secrets that it lists.
pub const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// Label of an IPAddress: the component that maintains it.
pub const IP_ADDRESS_MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The value of [`IP_ADDRESS_MANAGED_BY`] for addresses of Services.
pub const IP_ALLOCATOR: &str = "ipallocator.k8s.io";
/// Annotation of a ResourceClaim that the scheduler created for extended resources of a pod.
pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
/// The annotation before the name of a container: the AppArmor profile of the container.
pub const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Annotation of a PriorityLevelConfiguration of v1beta3: zero concurrency shares are meant and not a missing value.
pub const PRESERVE_ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

//! The finalizers that Kubernetes itself gives a meaning. They are declared only here.

/// The dependents of the object must be orphaned before it is deleted.
pub const ORPHAN: &str = "orphan";
/// The dependents of the object must be deleted before it is.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The content of a namespace must be deleted before the namespace is.
pub const KUBERNETES: &str = "kubernetes";

/// The finalizers that are valid without a domain.
pub const STANDARD: [&str; 3] = [ORPHAN, FOREGROUND, KUBERNETES];

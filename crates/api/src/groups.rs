//! API groups that code compares with because their objects decide about access, admission, certificates or requests. They are declared
//! only here; tables of resources and of roles spell them out as data.

pub const ADMISSION_REGISTRATION: &str = "admissionregistration.k8s.io";
pub const CERTIFICATES: &str = "certificates.k8s.io";
pub const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
pub const RBAC: &str = "rbac.authorization.k8s.io";

//! stub
/// suffix
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

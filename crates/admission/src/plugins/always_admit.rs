//! AlwaysAdmit: admits every request. Off by default.

use crate::Plugin;

#[derive(Debug)]
pub struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {}

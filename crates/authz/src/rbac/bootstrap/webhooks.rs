//! The role of the account that tokens for webhooks are for (KEP-6060), and its binding.

use api::attestation::ACCOUNT_NAME;

use super::table::{Bind, Role, on, role, service_account};

const NAME: &str = "system:webhook-auth";

/// The role. `*` is a name here, not a pattern: it stands for tokens that are good for every API group.
pub(super) const ROLE: Role = role(NAME, &[
    on("attest", "authentication.k8s.io", "admissionReviewAPIGroups").only("*"),
    on("attest", "webhook-authentication.k8s.io", "apigroups").only("*"),
]);

/// Whose it is.
pub(super) const BINDING: Bind = Bind::same(NAME, &[service_account(ACCOUNT_NAME)]);

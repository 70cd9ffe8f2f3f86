//! The role and binding of the service account whose tokens the server sends to webhooks (KEP-6060).

use api::attestation::ACCOUNT_NAME;

use super::table::{BindingRow, Role, on, role, service_account};

const NAME: &str = "system:webhook-auth";

/// Here `*` is a literal resource name, not a pattern: the permission to attest tokens for all API groups.
pub(super) const ROLE: Role = role(NAME, &[
    on("attest", "authentication.k8s.io", "admissionReviewAPIGroups").only("*"),
    on("attest", "webhook-authentication.k8s.io", "apigroups").only("*"),
]);

/// Grants [`ROLE`] to the service account `kube-system/webhook-auth`.
pub(super) const BINDING: BindingRow = BindingRow::same(NAME, &[service_account(ACCOUNT_NAME)]);

//! Well-known names of users, groups and extra attributes. They are declared only here.

/// The group that is always allowed.
pub const MASTERS: &str = "system:masters";
pub const NODES: &str = "system:nodes";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
pub const API_SERVER: &str = "system:apiserver";
pub const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The API server when it calls aggregated API servers for itself.
pub const AGGREGATOR: &str = "system:kube-aggregator";
pub const SCHEDULER: &str = "system:kube-scheduler";
/// The prefix of user names of nodes.
pub const NODE_PREFIX: &str = "system:node:";
/// The prefix of user names of service accounts.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The prefix of the group of a namespace's service accounts.
pub const SERVICE_ACCOUNTS_PREFIX: &str = "system:serviceaccounts:";
/// Extra attribute: the credential that was used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Extra attribute: the pod that a token is bound to.
pub const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
pub const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// Extra attribute: the node that a token is bound to.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
pub const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
/// Extra attribute: the ValidatingWebhookConfiguration that a token is bound to.
pub const VALIDATING_NAME: &str = "authentication.kubernetes.io/validatingwebhookconfiguration-name";
pub const VALIDATING_UID: &str = "authentication.kubernetes.io/validatingwebhookconfiguration-uid";
/// Extra attribute: the MutatingWebhookConfiguration that a token is bound to.
pub const MUTATING_NAME: &str = "authentication.kubernetes.io/mutatingwebhookconfiguration-name";
pub const MUTATING_UID: &str = "authentication.kubernetes.io/mutatingwebhookconfiguration-uid";
/// Extra attribute: the API groups about which the bearer may call webhooks.
pub const ATTESTED_GROUPS: &str = "attestation.authentication.kubernetes.io/admissionReviewAPIGroups";

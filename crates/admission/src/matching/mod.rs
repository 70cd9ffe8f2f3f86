//! Matching requests with webhooks and policies: rules, selectors, equivalent versions, match conditions, and
//! exempt kinds.
//!
//! [`MatchCriteria`] and [`AdmissionRule`] are compiled when a configuration changes. [`RequestContext`] is the
//! request that is matched with them.

mod conditions;
mod criteria;
mod exemption;
mod request_context;
mod rules;

pub use conditions::{ConditionResult, MatchConditions};
pub use criteria::{MatchCriteria, MatchedResource};
pub use exemption::{Exemption, exemption};
pub use request_context::RequestContext;
pub use rules::{AdmissionRule, Operations, RuleTarget};

#[cfg(test)]
mod tests;

//! Which requests webhooks and policies are about: rules, selectors, equivalent versions, and match conditions, and which kinds nobody may
//! intercept.
//!
//! What is matched is read once, when a configuration changes ([`Criteria`], [`Rule`]); a request is put beside it as
//! [`Asked`], which looks a namespace or the equivalents of a resource up at most once.

mod asked;
mod conditions;
mod criteria;
mod exempt;
mod rules;

pub use asked::Asked;
pub use conditions::{Conditions, Matched};
pub use criteria::{Criteria, Match};
pub use exempt::{Exempt, exempt};
pub use rules::{Operations, Rule, Target};

#[cfg(test)]
mod tests;

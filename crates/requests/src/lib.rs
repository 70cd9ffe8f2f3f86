//! The attributes and options of a request, read from its method, path, query and headers alone. Nothing here knows which resources exist.
//!
//! - [`RequestInfo`](request_info::RequestInfo) is the verb, resource, namespace and name of a request, by Kubernetes' rules.
//! - [`negotiate`] chooses the form of the response from the `Accept` header.
//! - [`options`] reads the options of lists, writes and deletions.
//!
//! ```
//! use requests::request_info::{Query, RequestInfo};
//!
//! let info = RequestInfo::parse(&http::Method::GET, "/api/v1/namespaces/default/pods/web", &Query::parse(""));
//! assert_eq!((info.verb.as_str(), info.resource.as_str(), info.name.as_str()), ("get", "pods", "web"));
//! ```

pub mod negotiate;
pub mod options;
pub mod request_info;

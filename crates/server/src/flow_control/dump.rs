//! `/debug/api_priority_and_fairness/`: plain-text tables of levels, queues and requests.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use flowcontrol::ActiveLevel;
use flowcontrol::dump::{self, DescribeRequest};

use super::{FlowControl, Waiter};
use crate::body::Body;
use crate::call::{Call, HandlerResponse};

/// Renders the page `name`; 404 for unknown names.
pub(crate) fn page(control: &FlowControl, call: &Call, name: &str) -> Result<HandlerResponse, Status> {
    let levels: Vec<Arc<ActiveLevel<Waiter>>> =
        control.configured().controller.levels().map(|(level, _)| Arc::clone(level)).collect();
    let text = match name {
        "dump_priority_levels" => dump::priority_levels(&levels),
        "dump_queues" => dump::queues(&levels),
        "dump_requests" => {
            let details = call.query.get("includeRequestDetails").is_some_and(|said| !said.is_empty());
            dump::requests(&levels, control, details)
        }
        _ => return Err(Status::no_such_resource()),
    };
    Ok(HandlerResponse::Raw(200, "text/plain; charset=utf-8", Body::from(text)))
}

impl DescribeRequest<Waiter> for FlowControl {
    fn time(&self, at: Duration) -> String {
        self.epoch_time.checked_add(at).map(rfc3339_nanos).unwrap_or_default()
    }

    fn details(&self, ticket: &Waiter) -> [String; 8] {
        let info = &ticket.info;
        let version = match (info.group.as_str(), info.version.as_str()) {
            ("", version) => version.to_owned(),
            (group, version) => format!("{group}/{version}"),
        };
        [
            ticket.caller.name().to_string(),
            info.verb.to_string(),
            info.path.clone(),
            info.namespace.to_string(),
            info.name.to_string(),
            version,
            info.resource.to_string(),
            info.subresource.to_string(),
        ]
    }
}

fn rfc3339_nanos(at: std::time::SystemTime) -> String {
    let since = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    api::time::Timestamp { seconds, nanos: since.subsec_nanos() }.nano_time()
}

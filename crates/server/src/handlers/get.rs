//! Handler of GET for one object.

use api::Status;
use catalog::{ServedResource, Subresource};

use crate::call::{Call, HandlerResponse};
use crate::consistent_reads;
use crate::state::State;

/// Answers with the current object. With a `resourceVersion` in the query, the object may be older than the current one, but not older
/// than that.
pub async fn handle(
    state: &State,
    call: &Call,
    kind: &ServedResource,
    subresource: Subresource,
) -> Result<HandlerResponse, Status> {
    let sent = call.query.get("resourceVersion").unwrap_or_default();
    let wanted = requests::options::revision(sent).map_err(Status::plain)?;
    let key = kind.key(&call.info.namespace, &call.info.name);
    let store = state.storage.store.of(&key);
    let entry = match wanted {
        None if sent.is_empty() => consistent_reads::entry(store, &key).await?,
        Some(wanted) if !consistent_reads::reaches(store, wanted).await => {
            return Err(super::list::too_large(wanted, store.revision()));
        }
        // Revision 0 accepts any state.
        _ => store.get(&key),
    };
    let entry = entry.ok_or_else(|| Status::not_found(&kind.resource, &call.info.name))?;
    state.storage.unreadable.check_scope(&key)?;
    if subresource != Subresource::None || kind.must_convert(&entry) {
        call.effort.enter_lane(entry.body.len()).await;
    }
    state.converter(kind).answer(subresource, 200, entry).await
}

//! Handler of GET for one object.

use api::Status;

use crate::call::{Call, HandlerResponse};
use crate::catalog::{ServedResource, Subresource};
use crate::state::State;

/// Answers with the current object. A `resourceVersion` in the query is only checked not to be in the future.
pub async fn handle(
    state: &State,
    call: &Call,
    kind: &ServedResource,
    subresource: Subresource,
) -> Result<HandlerResponse, Status> {
    if let Some(wanted) = crate::options::revision(call.query.get("resourceVersion").unwrap_or_default())
        .map_err(Status::plain)?
        && wanted > state.storage.store.revision()
    {
        return Err(super::list::too_large(wanted, state.storage.store.revision()));
    }
    let key = kind.key(&call.info.namespace, &call.info.name);
    let entry =
        state.storage.store.get(&key).ok_or_else(|| Status::not_found(&kind.resource, &call.info.name))?;
    state.storage.unreadable.check_scope(&key)?;
    if subresource != Subresource::None || kind.must_convert(&entry) {
        call.effort.enter_lane(entry.body.len()).await;
    }
    kind.converter(state).answer(subresource, 200, entry).await
}

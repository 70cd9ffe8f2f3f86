//! `POST /portcullis/snapshot`: streams a snapshot of the whole store at one revision.
//!
//! A snapshot contains every object, Secrets included. So besides `post` on the path the caller needs `list` on all resources of all API
//! groups: roles that read all paths, which are common, are not enough. Only `cluster-admin` and members of `system:masters` have both by
//! default. Then the authorizers are asked about each stored resource by its name, because one of them may deny a resource, such as
//! Secrets, that a rule with `*` allows.
//!
//! Entries are encoded while they are sent, from references to the live entries: memory grows only by what is overwritten meanwhile.

use std::iter;
use std::sync::Arc;

use api::{GroupResource, Status};
use authz::AuthorizationAttributes;
use bytes::Bytes;
use catalog::Catalog;
use http_body::Frame;
use maintenance::snapshot::program;
use requests::request_info::{RequestInfo, SNAPSHOT_PATH};
use storage::embedded::FORMAT;
use storage::snapshot::{LiveSnapshot, SnapshotEncoder, SnapshotEntry, SnapshotHeader, SnapshotSummary};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use transport::unsent::Payer;
use value::Str;

use crate::body::{Body, ForwardedPart};
use crate::call::{Call, HandlerResponse};
use crate::state::State;

/// The `Content-Type` of a snapshot, in the format of [`storage::snapshot`].
pub const MEDIA_TYPE: &str = "application/vnd.portcullis.snapshot";

/// Bytes encoded at a time, between which other requests run.
const PIECE: usize = 64 * 1024;
/// Pieces that wait for the connection.
const PIECES_AHEAD: usize = 2;
/// Seconds after which a client should try again while another snapshot is saved.
const RETRY: u32 = 10;

/// The permissions that a snapshot needs besides that for its path: to list all resources of all API groups, and to list each stored
/// resource. Empty for other requests.
pub(crate) fn further_attributes(info: &RequestInfo, catalog: &Catalog) -> Vec<AuthorizationAttributes> {
    if info.verb != "post" || info.path != SNAPSHOT_PATH {
        return Vec::new();
    }
    let of_resource = |(stored, version): (GroupResource, Str)| AuthorizationAttributes {
        version,
        ..AuthorizationAttributes::resource("list", stored.group, stored.resource)
    };
    let all = AuthorizationAttributes::resource("list", "*", "*");
    iter::once(all).chain(catalog.stored_in_any_version().into_iter().map(of_resource)).collect()
}

/// Starts to send the snapshot. The stage `authorize` has checked all permissions.
pub async fn save(state: &Arc<State>, call: &mut Call) -> Result<HandlerResponse, Status> {
    let Ok(turn) = Arc::clone(&state.storage.saving).try_acquire_owned() else {
        return Err(Status::too_many_requests("another snapshot is being saved; try again later", RETRY));
    };
    let store = &state.storage.store;
    if store.clusters().count() > 1 {
        return Err(Status::bad_request(
            "some resources are in other clusters (--etcd-servers-overrides), and a snapshot has one revision; use `etcdctl snapshot save` for each cluster",
        ));
    }
    store.fresh().await.map_err(Status::internal)?;
    let live = store.live_snapshot();
    let header = SnapshotHeader {
        revision: live.revision,
        store_format: FORMAT,
        saved_at: u64::try_from(call.now).unwrap_or(0),
        program: program(),
    };
    let (parts, receiver) = mpsc::channel(PIECES_AHEAD);
    let (user, payer) = (call.user().name.clone(), call.payer.clone());
    let running = state.metrics.long_running(&call.info);
    let mut stop = state.stopping();
    tokio::spawn(async move {
        let sent = tokio::select! {
            sent = send(live, header, turn, &parts, payer.as_ref()) => sent,
            _ = stop.wait_for(|s| *s) => Err("the server is stopping".to_owned()),
        };
        match sent {
            Ok(SnapshotSummary { header, entries, bytes, .. }) => {
                let revision = header.revision;
                tracing::info!(%user, revision, entries, bytes, "sent a snapshot of the store");
            }
            Err(why) => {
                tracing::warn!(%user, error = why, "cannot send the whole snapshot; save again");
            }
        }
        drop(running);
    });
    Ok(HandlerResponse::Raw(200, MEDIA_TYPE, Body::produced(receiver)))
}

/// Sends all parts. If it ends early, the client sees a response that was cut short, and a file without its end. `turn` is released
/// before the last part is sent, so a client that has read the whole response can save again at once.
async fn send(
    live: LiveSnapshot,
    header: SnapshotHeader,
    turn: OwnedSemaphorePermit,
    parts: &mpsc::Sender<ForwardedPart>,
    payer: Option<&Payer>,
) -> Result<SnapshotSummary, String> {
    let mut piece = Vec::with_capacity(2 * PIECE);
    let mut encoder = SnapshotEncoder::new(header, &mut piece);
    for entry in live {
        encoder.entry(&SnapshotEntry::from(&*entry), &mut piece).map_err(|error| error.to_string())?;
        if piece.len() >= PIECE {
            let full = std::mem::replace(&mut piece, Vec::with_capacity(2 * PIECE));
            send_piece(full, parts, payer).await?;
        }
    }
    let summary = encoder.finish(&mut piece);
    drop(turn);
    send_piece(piece, parts, payer).await?;
    parts.send(ForwardedPart::End).await.map_err(|_| disconnected())?;
    Ok(summary)
}

async fn send_piece(
    piece: Vec<u8>,
    parts: &mpsc::Sender<ForwardedPart>,
    payer: Option<&Payer>,
) -> Result<(), String> {
    let mut piece = Bytes::from(piece);
    if let Some(payer) = payer {
        // A client that disconnects releases what it has not read.
        piece = tokio::select! {
            charged = payer.charge_when_possible(piece) => charged,
            () = parts.closed() => return Err(disconnected()),
        };
    }
    parts.send(ForwardedPart::Frame(Frame::data(piece))).await.map_err(|_| disconnected())
}

fn disconnected() -> String {
    "the client disconnected, or did not read".to_owned()
}

#[cfg(test)]
mod tests;

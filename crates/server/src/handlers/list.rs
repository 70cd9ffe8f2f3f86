//! LIST: a consistent snapshot of a collection, in pages if requested.

mod answer;

use std::sync::Arc;

use api::selector::{FEW_REQUIREMENTS, Selection};
use api::{Status, StatusCause, StatusDetails};
use catalog::ServedResource;
use heavy_lane::LARGE;
use requests::options::{self, ListOptions};
use runtime::LogLimit;
use storage::{ListAt, ListRequest, ReadError, Store, StoredEntry};
use value::{Value, go, json, write};

use crate::call::{Call, HandlerResponse};
use crate::consistent_reads;
use crate::state::State;

pub use answer::answer;

/// Number of entries that are processed together.
const CHUNK: usize = 500;

/// Stored bytes of the entries that are decoded together; a single larger object exceeds it.
const CHUNK_BYTES: usize = 512 * 1024;

/// Parses the selectors of a request; refuses fields that the kind does not support.
pub fn selection(call: &Call, kind: &ServedResource) -> Result<Selection, Status> {
    let labels = call.info.label_selector.parsed().clone().map_err(Status::bad_request)?;
    let fields = call.info.field_selector.parsed().clone().map_err(Status::bad_request)?;
    fields.requirements().iter().try_for_each(|requirement| kind.check_field(&requirement.field))?;
    Ok(Selection { labels, fields: kind.stored_fields_of(fields) })
}

/// The work to match an entry, as the number of bytes of a body that are decoded in the same time. Each of a few requirements searches the
/// labels or fields of the entry; for more, they are sorted once.
pub(super) fn matching_work(selection: &Selection, entry: &StoredEntry) -> usize {
    let requirements = selection.labels.requirements().len() + selection.fields.requirements().len();
    let searches = requirements.min(2 * FEW_REQUIREMENTS);
    (requirements.saturating_mul(128) + searches.saturating_mul(entry.facts.len())) / 256
}

/// Splits entries into chunks that can be decoded at once: at most [`CHUNK`] entries and about [`CHUNK_BYTES`].
pub fn chunks(mut rest: &[Arc<StoredEntry>]) -> impl Iterator<Item = &[Arc<StoredEntry>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = |entry: &&Arc<StoredEntry>| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(entry.body.len().max(1));
            is_first || bytes <= CHUNK_BYTES
        };
        let length = rest.iter().take(CHUNK).take_while(fits).count();
        let (chunk, later) = rest.split_at_checked(length)?;
        rest = later;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// The number of entries to match next, and their [`matching_work`]: up to the entry at which the work exceeds [`LARGE`], and at most
/// [`CHUNK`] entries.
fn next_chunk(selection: &Selection, entries: &[Arc<StoredEntry>]) -> (usize, usize) {
    let mut work = 0_usize;
    for (at, entry) in entries.iter().take(CHUNK).enumerate() {
        work = work.saturating_add(matching_work(selection, entry));
        if work > LARGE {
            return (at + 1, work);
        }
    }
    (entries.len().min(CHUNK), work)
}

#[derive(Debug)]
pub struct SelectedPage {
    /// Entries in key order.
    pub entries: Vec<Arc<StoredEntry>>,
    pub revision: u64,
    /// Continue token of the next page; empty on the last page.
    pub next: String,
    /// Number of objects after this page; `None` with selectors and on the last page.
    pub remaining: Option<u64>,
}

pub async fn handle(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let page = select(state, call, kind).await?;
    answer(state, call, kind, page).await
}

/// Reads the entries that match the request's options and selectors.
pub async fn select(state: &State, call: &Call, kind: &ServedResource) -> Result<SelectedPage, Status> {
    let mut options = ListOptions::parse(&call.query, false)?;
    if options.resource_version == "0" && options.continue_token.is_empty() {
        // kube-apiserver answers such a request from its watch cache, without pages.
        options.limit = 0;
    }
    let selection = selection(call, kind)?;
    let scope = kind.scope(&call.info.namespace);
    state.storage.unreadable.check_scope(&scope)?;
    let store = state.storage.store.of(&scope);
    let exact_lists = ExactLists::of(kind, &selection, &options);
    let from = start(store, &options, &scope, exact_lists).await?;
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let everything = selection.is_everything();
    // With selectors the limit counts matches, so read everything and count here.
    let asked = ListRequest {
        scope: &scope,
        at: from.at,
        after: from.after.as_deref(),
        limit: if everything { limit } else { 0 },
    };
    let page = store.list(asked).await.map_err(|e| read_status(&e, &from, &scope, store))?;
    let mut more = page.more.as_deref().map(str::to_owned);
    let mut remaining = page.more.as_ref().map(|_| page.remaining);
    let entries: Vec<Arc<StoredEntry>> = if everything {
        page.entries.iter().cloned().collect()
    } else {
        let mut matched = Vec::new();
        remaining = None;
        let entries: Vec<Arc<StoredEntry>> = page.entries.iter().cloned().collect();
        let decoded: usize = if kind.reads_objects(&selection) {
            entries.iter().map(|entry| entry.body.len()).sum()
        } else {
            0
        };
        let matched_work: usize = entries.iter().map(|entry| matching_work(&selection, entry)).sum();
        call.effort.enter_lane(decoded.saturating_add(matched_work)).await;
        let mut rest = entries.as_slice();
        'pages: while !rest.is_empty() {
            let (mut length, work) = next_chunk(&selection, rest);
            if decoded > 0 {
                length = length.min(chunks(rest).next().map_or(length, <[_]>::len));
            }
            let (some, later) = rest.split_at(length);
            rest = later;
            let selected = state.converter(kind).selected(&selection, some).await?;
            for (entry, selected) in some.iter().zip(selected) {
                // As in kube-apiserver, entries after a full page lead to another page, even if none of them matches.
                if limit > 0 && matched.len() == limit {
                    more = matched.last().map(|last: &Arc<StoredEntry>| last.key.to_string());
                    break 'pages;
                }
                if selected {
                    matched.push(Arc::clone(entry));
                }
            }
            // The deadline of the request applies between chunks.
            heavy_lane::yield_after(work).await;
        }
        matched
    };
    let revision = if from.latest_after_expiry { store.revision() } else { page.revision };
    let next = more.map(|key| continue_token(&key, &scope, revision)).unwrap_or_default();
    Ok(SelectedPage { entries, revision, next, remaining })
}

/// Start of a list: the snapshot, and the key to continue after.
struct Start {
    at: ListAt,
    after: Option<String>,
    /// Set if the request has a continue token.
    continued: bool,
    /// Set if the token continues at the latest revision, because its snapshot has expired.
    latest_after_expiry: bool,
}

/// The source of a list at an exact revision, or of a further page, as in kube-apiserver 1.37 on etcd 3.5.13 or newer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExactLists {
    /// Memory, when it has reached the revision. If it does not in time, the answer asks the client to try again.
    WaitForMemory,
    /// Memory or the backend, at once: Events, which kube-apiserver does not hold in memory, and a list of one object by its name.
    AskBackend,
}

impl ExactLists {
    fn of(kind: &ServedResource, selection: &Selection, options: &ListOptions) -> Self {
        let is_one = options.continue_token.is_empty()
            && selection.fields.requires_exact_match("metadata.name").is_some();
        let is_event = (kind.stored.group.as_str(), kind.stored.kind.as_str()) == ("", "Event");
        if is_one || is_event { ExactLists::AskBackend } else { ExactLists::WaitForMemory }
    }

    /// Fails if memory has to reach the revision and does not.
    async fn wait(self, store: &Store, revision: u64) -> Result<(), Status> {
        if self == ExactLists::AskBackend || consistent_reads::reaches(store, revision).await {
            return Ok(());
        }
        Err(too_large(revision, store.revision()))
    }
}

async fn start(
    store: &Store,
    options: &ListOptions,
    scope: &str,
    exact_lists: ExactLists,
) -> Result<Start, Status> {
    let latest = Start { at: ListAt::Latest, after: None, continued: false, latest_after_expiry: false };
    if !options.continue_token.is_empty() {
        let (after, revision) = read_token(&options.continue_token, scope)
            .map_err(|why| Status::bad_request(format!("invalid continue token: {why}")))?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let at = match u64::try_from(revision) {
            Ok(revision) => {
                // Another server may have written the token.
                exact_lists.wait(store, revision).await?;
                ListAt::Exact(revision)
            }
            Err(_) => consistent_reads::list_at(store).await?,
        };
        return Ok(Start { at, after: Some(after), continued: true, latest_after_expiry: revision < 0 });
    }
    let wanted = options::revision(&options.resource_version)
        .map_err(|e| Status::bad_request(format!("invalid resource version: {e}")))?;
    let Some(wanted) = wanted else {
        // Revision 0 accepts any state.
        let is_any = !options.resource_version.is_empty();
        let at = if is_any { ListAt::Latest } else { consistent_reads::list_at(store).await? };
        return Ok(Start { at, ..latest });
    };
    let exact = match options.resource_version_match.as_str() {
        "Exact" => true,
        "NotOlderThan" => false,
        _ => options.limit > 0,
    };
    if exact {
        exact_lists.wait(store, wanted).await?;
        return Ok(Start { at: ListAt::Exact(wanted), ..latest });
    }
    if !consistent_reads::reaches(store, wanted).await {
        return Err(too_large(wanted, store.revision()));
    }
    Ok(latest)
}

/// The 504 for a revision that does not exist yet.
pub fn too_large(wanted: u64, current: u64) -> Status {
    Status::timeout(format!("Too large resource version: {wanted}, current: {current}"), 1).with_details(
        StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".to_owned(),
                ..StatusCause::default()
            }],
            retry_after_seconds: 1,
            ..StatusDetails::default()
        },
    )
}

fn read_status(error: &ReadError, from: &Start, scope: &str, store: &Store) -> Status {
    match error {
        ReadError::Compacted { .. } if from.continued => {
            // Offer a token that continues at the latest revision, for clients that accept an inconsistent rest.
            let key = from.after.clone().unwrap_or_default();
            let token = continue_token_at(&key, scope, -1);
            let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
            Status::expired(message).with_continue(token)
        }
        ReadError::Compacted { .. } => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        ReadError::Future { current } => {
            let wanted = match from.at {
                ListAt::Exact(revision) => revision,
                ListAt::Latest => store.revision().max(*current),
            };
            // An error of the store itself suggests no retry, as the one of etcd in kube-apiserver.
            too_large(wanted, *current).without_retry()
        }
        ReadError::Unavailable(why) => {
            static LOG: LogLimit = LogLimit::new();
            if let Some(unlogged) = LOG.due() {
                tracing::error!(%error, unlogged, "cannot read a list from the store. Check the storage backend");
            }
            // kube-apiserver passes on the message of etcd.
            if store.is_shared() {
                Status::plain(why.clone())
            } else {
                Status::internal("the store cannot read")
            }
        }
    }
}

/// A continue token in Kubernetes' format: versioned JSON in base64.
fn continue_token(key: &str, scope: &str, revision: u64) -> String {
    continue_token_at(key, scope, i64::try_from(revision).unwrap_or(i64::MAX))
}

fn continue_token_at(key: &str, scope: &str, revision: i64) -> String {
    let start = format!("{}\0", key.strip_prefix(scope).unwrap_or(key));
    let mut token = Value::map([("v", Value::from("meta.k8s.io/v1")), ("start", Value::from(start))]);
    token.set_at(&["rv"], revision);
    go::base64::RAW_URL.encode(write::to_vec(&token))
}

/// Parses a continue token: the key to continue after, and the revision, negative for the latest.
fn read_token(token: &str, scope: &str) -> Result<(String, i64), String> {
    let invalid = |why: String| format!("continue key is not valid: {why}");
    let bytes = go::base64::RAW_URL.decode(token).map_err(|error| invalid(error.to_string()))?;
    let token = json::parse(&bytes).map_err(|e| invalid(e.to_string()))?;
    let version = token.str_at(&["v"]).unwrap_or_default();
    if version != "meta.k8s.io/v1" {
        return Err(format!(
            "continue key is not valid: server does not recognize this encoded version {version}"
        ));
    }
    let revision = token.int_at(&["rv"]).unwrap_or(0);
    if revision == 0 {
        return Err(
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
                .to_owned(),
        );
    }
    let start = token.str_at(&["start"]).unwrap_or_default();
    let after = start.trim_end_matches('\0').trim_start_matches('/');
    if after.is_empty() {
        return Err("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)".to_owned());
    }
    // The key must stay within the scope of the request, whatever the token contains.
    if after.split('/').any(|part| matches!(part, "" | "." | "..")) || after.chars().any(char::is_control) {
        return Err(invalid(start.to_owned()));
    }
    Ok((format!("{scope}{after}"), revision))
}

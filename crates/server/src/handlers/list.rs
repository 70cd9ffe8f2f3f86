//! LIST: a consistent snapshot of a collection, in pages if requested.

use std::sync::Arc;

use crate::table::{self, TableOptions, TableRequest, TableScope};
use api::selector::{FieldSelector, LabelSelector, Selection};
use api::{Status, StatusCause, StatusDetails, order};
use catalog::encode;
use catalog::splice::Splice;
use catalog::{Sent, ServedResource};
use crd::columns::TableAllowance;
use requests::negotiate::{self, Forms, Media, MetadataShape, ObjectForm};
use requests::options::{self, ListOptions};
use storage::{ListAt, ListRequest, ReadError, Store, StoredEntry};
use value::{Value, go, json, write};

use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::consistent_reads;
use crate::respond;
use crate::state::State;

/// Number of entries whose selectors are evaluated together.
const CHUNK: usize = 500;

/// Parses the selectors of a request; refuses fields that the kind does not support.
pub fn selection(call: &Call, kind: &ServedResource) -> Result<Selection, Status> {
    let labels = LabelSelector::parse(&call.info.label_selector).map_err(Status::bad_request)?;
    let fields = FieldSelector::parse(&call.info.field_selector).map_err(Status::bad_request)?;
    fields.requirements().iter().try_for_each(|requirement| kind.check_field(&requirement.field))?;
    Ok(Selection { labels, fields: kind.stored_fields_of(fields) })
}

#[derive(Debug)]
pub struct SelectedPage {
    /// Entries in key order.
    pub entries: Vec<Arc<StoredEntry>>,
    /// Revision of the snapshot.
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
    let from = start(store, &options, &scope).await?;
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
        if kind.reads_objects(&selection) {
            call.effort.enter_lane(entries.iter().map(|entry| entry.body.len()).sum()).await;
        }
        'pages: for some in entries.chunks(CHUNK) {
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

async fn start(store: &Store, options: &ListOptions, scope: &str) -> Result<Start, Status> {
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
                // Another server may have written the token. If memory does not reach the revision, the backend is asked.
                consistent_reads::reaches(store, revision).await;
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
    // The backend is asked for an exact revision that memory does not reach.
    if !consistent_reads::reaches(store, wanted).await && !exact {
        return Err(too_large(wanted, store.revision()));
    }
    Ok(if exact { Start { at: ListAt::Exact(wanted), ..latest } } else { latest })
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
            // kube-apiserver passes an exact read to etcd, whose error suggests no retry.
            let refusal = too_large(wanted, *current);
            if from.continued { refusal } else { refusal.without_retry() }
        }
        ReadError::Unavailable(why) => {
            tracing::error!(%error, "cannot read a list from the store. Check the storage backend");
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

/// Encodes a page in the form that the client accepts.
pub async fn answer(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    page: SelectedPage,
) -> Result<HandlerResponse, Status> {
    let accepted = negotiate::accept(&call.headers, &call.query, Forms::All)?;
    let plain =
        accepted.form == ObjectForm::Object && !page.entries.iter().any(|entry| kind.must_convert(entry));
    if plain && accepted.media == Media::Json && !accepted.pretty {
        return Ok(HandlerResponse::Raw(200, "application/json", Body::spliced(spliced(kind, page))));
    }
    // All other forms are built in memory.
    let size = page.entries.iter().map(|entry| entry.body.len()).sum();
    let is_table = matches!(accepted.form, ObjectForm::Table(_));
    call.effort.enter_lane(if is_table { table::work(kind, size) } else { size }).await;
    let metadata = list_metadata(kind, &page);
    let value = match accepted.form {
        ObjectForm::Object if plain => {
            let bytes = spliced(kind, page).whole();
            if accepted.media == Media::Json {
                return Ok(HandlerResponse::Raw(200, "application/json", Body::from(encode::indent(&bytes))));
            }
            json::parse_wrapped(&bytes).map_err(Status::internal)?
        }
        ObjectForm::Object => {
            let mut items = state.converter(kind).show_all(&page.entries).await?;
            if kind.row().is_some() {
                for item in &mut items {
                    item.remove_at(&["kind"]);
                    item.remove_at(&["apiVersion"]);
                }
            }
            list_object(&kind.list_kind(), &kind.gvk.api_version(), metadata, values(items))
        }
        ObjectForm::Metadata(_, MetadataShape::One) => return Err(respond::is_a_list(kind)),
        ObjectForm::Metadata(version, MetadataShape::Many) => {
            let mut metadata = metadata;
            drop_empty_continue(&mut metadata);
            let items: Vec<Value> = match kind.row() {
                // The metadata of a built-in resource is equal in all its versions.
                Some(_) => {
                    page.entries.iter().map(|entry| encode::tree(entry)).collect::<Result<_, Status>>()?
                }
                None => values(state.converter(kind).show_all(&page.entries).await?),
            };
            table::partial_list(&items, version, metadata)
        }
        ObjectForm::Table(version) => {
            let options = TableOptions { of: TableScope::List, ..TableOptions::parse(&call.query)? };
            let mut metadata = metadata;
            drop_empty_continue(&mut metadata);
            let rows = values(state.converter(kind).show_all(&page.entries).await?);
            let allowance = TableAllowance::new(&call.effort.budget);
            let request = TableRequest { version, options, now: state.now(), allowance: &allowance };
            let table = table::table(kind, &rows, metadata, request);
            call.effort.check()?;
            if allowance.is_used_up() {
                call.warn(table::INCOMPLETE);
            }
            table
        }
    };
    Ok(HandlerResponse::Object(200, value))
}

/// Removes an empty `continue`: tables and partial metadata omit it.
fn drop_empty_continue(metadata: &mut Value) {
    if metadata.str_at(&["continue"]) == Some("") {
        metadata.remove_at(&["continue"]);
    }
}

fn list_object(kind: &str, api_version: &str, metadata: Value, items: Vec<Value>) -> Value {
    Value::map([
        ("kind", Value::from(kind)),
        ("apiVersion", Value::from(api_version)),
        ("metadata", metadata),
        ("items", Value::List(items)),
    ])
}

fn list_metadata(kind: &ServedResource, page: &SelectedPage) -> Value {
    let mut metadata = Value::map([("resourceVersion", page.revision.to_string())]);
    if kind.row().is_none() && page.next.is_empty() {
        // Go writes the field of an unstructured list even when it is empty.
        metadata.set_at(&["continue"], "");
    }
    if !page.next.is_empty() {
        metadata.set_at(&["continue"], page.next.as_str());
        if let Some(remaining) = page.remaining {
            metadata.set_at(&["remainingItemCount"], i64::try_from(remaining).unwrap_or(i64::MAX));
        }
    }
    metadata
}

/// The list as JSON, built from stored bytes.
fn spliced(kind: &ServedResource, page: SelectedPage) -> Splice {
    let mut head = Vec::with_capacity(256);
    let mut foot = Vec::new();
    if kind.row().is_none() {
        // A list of custom resources has sorted keys, and its items include `kind` and `apiVersion`.
        head.extend_from_slice(b"{\"apiVersion\":");
        write::string(&mut head, &kind.gvk.api_version());
        head.extend_from_slice(b",\"items\":[");
        foot.extend_from_slice(b"],\"kind\":");
        write::string(&mut foot, &kind.list_kind());
        foot.extend_from_slice(b",\"metadata\":");
        write::write(&mut foot, &list_metadata(kind, &page));
        foot.extend_from_slice(b"}\n");
        return Splice::new(head, page.entries, (b"", 0), foot);
    }
    head.extend_from_slice(&encode::head(&kind.gvk.api_version(), &kind.list_kind()));
    head.extend_from_slice(b"\"metadata\":");
    order::LIST_META.write(&mut head, &list_metadata(kind, &page));
    head.extend_from_slice(b",\"items\":[");
    foot.extend_from_slice(b"]}\n");
    Splice::new(head, page.entries, (b"{", kind.stored_head_len()), foot)
}

fn values(objects: Vec<Sent>) -> Vec<Value> {
    objects.into_iter().map(Sent::into_value).collect()
}

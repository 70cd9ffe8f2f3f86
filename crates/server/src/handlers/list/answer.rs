//! Encodes a list in the form that the client accepts.
//!
//! A list as compact JSON is copied from stored bytes while it is sent ([`Splice`]). All other forms are built in memory, a chunk of objects
//! after the other. Their bytes, and the memory to compute a chunk, are charged to the client before they are used, so that many large
//! lists are refused with 429 instead of filling the memory.

use api::{Status, order};
use catalog::encode::{self, Indenter};
use catalog::splice::Splice;
use catalog::{Sent, ServedResource};
use crd::columns::TableAllowance;
use requests::negotiate::{self, Forms, Media, MetadataShape, NegotiatedResponse, ObjectForm};
use transport::unsent::{PIECE, UnsentPieces};
use value::{Value, write};

use super::{SelectedPage, chunks};
use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::conversion::ListConversion;
use crate::respond::{self, ListWriter};
use crate::state::State;
use crate::table::{self, TableColumns, TableOptions, TableRequest, TableScope};

/// Bytes that are charged while objects are decoded, converted and encoded, for each of their stored bytes.
const WORK: usize = 8;

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
    let size = page.entries.iter().map(|entry| entry.body.len()).sum();
    let is_table = matches!(accepted.form, ObjectForm::Table(_));
    call.effort.enter_lane(if is_table { table::work(kind, size) } else { size }).await;
    let media = accepted.media.content_type();
    let mut out = UnsentPieces::new(call.payer.clone());
    let built = if plain && accepted.media == Media::Json {
        indented(call, spliced(kind, page), &mut out).await
    } else {
        build(state, call, kind, page, accepted, &mut out).await
    };
    respond::finished(call, built, out).map(|body| HandlerResponse::Raw(200, media, body))
}

async fn indented(call: &Call, list: Splice, out: &mut UnsentPieces) -> Result<(), Status> {
    let mut indenter = Indenter::default();
    for piece in list {
        indenter.write(&piece, out).or_else(|_| out.check())?;
        call.effort.check()?;
        heavy_lane::yield_after(PIECE).await;
    }
    Ok(())
}

/// Builds a list chunk by chunk. A chunk is decoded, converted and encoded as a whole.
async fn build(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    page: SelectedPage,
    accepted: NegotiatedResponse,
    out: &mut UnsentPieces,
) -> Result<(), Status> {
    let allowance = TableAllowance::new(&call.effort.budget);
    let form = ListForm::of(call, kind, accepted.form, state.now())?;
    let frame = form.frame(kind, &page, &allowance);
    let mut writer = ListWriter::begin(kind, frame, form.items_key(), accepted);
    let mut conversion = ListConversion::new(&page.entries);
    let all = page.entries.as_slice();
    let parts: Box<dyn Iterator<Item = _> + Send> =
        if form.is_divisible() { Box::new(chunks(all)) } else { Box::new(std::iter::once(all)) };
    for part in parts {
        let stored = part.iter().map(|entry| entry.body.len()).sum::<usize>();
        let _work = out.charge_work(stored.saturating_mul(WORK) as u64)?;
        let objects: Vec<Value> = match form {
            // The metadata of a built-in resource is equal in all its versions.
            ListForm::Metadata(_) if kind.row().is_some() => {
                part.iter().map(|entry| encode::tree(entry)).collect::<Result<_, Status>>()?
            }
            _ => {
                let shown = state.converter(kind).show_part(part, &mut conversion).await?;
                shown.into_iter().map(Sent::into_value).collect()
            }
        };
        if !conversion.has_failed() {
            let items = form.items(kind, objects, &allowance);
            call.effort.check()?;
            items.into_iter().try_for_each(|item| writer.item(item, out))?;
        }
        heavy_lane::yield_after(stored).await;
    }
    conversion.finish(kind)?;
    writer.finish(out)?;
    if allowance.is_used_up() && matches!(form, ListForm::Table(..)) {
        call.warn(table::INCOMPLETE);
    }
    Ok(())
}

/// The items of a list, and what surrounds them.
enum ListForm<'a> {
    Objects,
    /// `PartialObjectMetadataList` in this version.
    Metadata(&'static str),
    Table(TableColumns<'a>, &'static str, TableOptions, i64),
}

impl<'a> ListForm<'a> {
    fn of(call: &Call, kind: &'a ServedResource, form: ObjectForm, now: i64) -> Result<Self, Status> {
        Ok(match form {
            ObjectForm::Object => ListForm::Objects,
            ObjectForm::Metadata(_, MetadataShape::One) => return Err(respond::is_a_list(kind)),
            ObjectForm::Metadata(version, MetadataShape::Many) => ListForm::Metadata(version),
            ObjectForm::Table(version) => {
                let options = TableOptions { of: TableScope::List, ..TableOptions::parse(&call.query)? };
                ListForm::Table(TableColumns::of(kind, None), version, options, now)
            }
        })
    }

    /// True if the items of each part of the list depend only on its objects.
    fn is_divisible(&self) -> bool {
        match self {
            ListForm::Objects | ListForm::Metadata(_) => true,
            ListForm::Table(columns, ..) => columns.has_independent_rows(),
        }
    }

    fn items_key(&self) -> &'static str {
        match self {
            ListForm::Objects | ListForm::Metadata(_) => "items",
            ListForm::Table(..) => "rows",
        }
    }

    /// The list without objects.
    fn frame(&self, kind: &ServedResource, page: &SelectedPage, allowance: &TableAllowance) -> Value {
        let mut metadata = list_metadata(kind, page);
        match self {
            ListForm::Objects => list_object(&kind.list_kind(), &kind.gvk.api_version(), metadata),
            ListForm::Metadata(version) => {
                drop_empty_continue(&mut metadata);
                table::partial_list(&[], version, metadata)
            }
            ListForm::Table(_, version, options, now) => {
                drop_empty_continue(&mut metadata);
                let (version, options, now) = (*version, *options, *now);
                table::table(kind, &[], metadata, TableRequest { version, options, now, allowance })
            }
        }
    }

    /// The items of these objects, in the version of the request.
    fn items(
        &self,
        kind: &ServedResource,
        mut objects: Vec<Value>,
        allowance: &TableAllowance,
    ) -> Vec<Value> {
        match self {
            ListForm::Objects => {
                if kind.row().is_some() {
                    for object in &mut objects {
                        object.remove_at(&["kind"]);
                        object.remove_at(&["apiVersion"]);
                    }
                }
                objects
            }
            ListForm::Metadata(version) => {
                objects.iter().map(|object| table::partial(object, version)).collect()
            }
            ListForm::Table(columns, version, options, now) => {
                let (version, options, now) = (*version, *options, *now);
                columns.rows(kind, &objects, TableRequest { version, options, now, allowance })
            }
        }
    }
}

/// Removes an empty `continue`: tables and partial metadata omit it.
fn drop_empty_continue(metadata: &mut Value) {
    if metadata.str_at(&["continue"]) == Some("") {
        metadata.remove_at(&["continue"]);
    }
}

fn list_object(kind: &str, api_version: &str, metadata: Value) -> Value {
    Value::map([
        ("kind", Value::from(kind)),
        ("apiVersion", Value::from(api_version)),
        ("metadata", metadata),
        ("items", Value::List(Vec::new())),
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

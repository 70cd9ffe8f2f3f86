//! Shortens events longer than `--audit-log-truncate-max-event-size`. Clients choose most of an event's
//! content, and none of it may prevent the event from being written.

use std::borrow::Cow;

use authn::User;
use value::Str;
use value::text::first_bytes;

use super::event::{AuditObjectRef, Event, Impersonated, ResponseStatus};
use super::policy::Level;

/// Annotation that marks a shortened event.
const TRUNCATED: &str = "audit.k8s.io/truncated";
/// Maximum bytes per string and entries per list, tried in this order.
const STEPS: [(usize, usize); 4] = [(8192, 64), (1024, 32), (256, 8), (64, 2)];

impl Event {
    /// Shortens the event until its `size` is at most `max`. As in kube-apiserver, the objects are removed
    /// first; then all strings and lists are cut. The shortest form is written even if it exceeds `max`.
    pub(super) fn shortened(&self, max: usize, size: impl Fn(&Event) -> usize) -> Cow<'_, Event> {
        if size(self) <= max {
            return Cow::Borrowed(self);
        }
        let mut event = self.clone();
        event.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        if event.level >= Level::Request {
            event.request_object = None;
            event.response_object = None;
        }
        for (text, entries) in STEPS {
            if size(&event) <= max {
                break;
            }
            event.cut(text, entries);
        }
        Cow::Owned(event)
    }

    /// Limits each string to `text` bytes and each list to `entries` entries.
    fn cut(&mut self, text: usize, entries: usize) {
        let Event {
            id,
            uri,
            verb,
            user,
            impersonated,
            source_ips,
            user_agent,
            object,
            status,
            annotations,
            ..
        } = self;
        for word in [id, verb] {
            shorten_word(word, text);
        }
        for text_of_client in [uri, user_agent] {
            shorten(text_of_client, text);
        }
        shorten_user(user, text, entries);
        if let Some(Impersonated { user, constraint }) = impersonated {
            shorten_user(user, text, entries);
            shorten_word(constraint, text);
        }
        // The last address is that of the connection; the others come from headers.
        let surplus = source_ips.len().saturating_sub(entries);
        source_ips.drain(..surplus);
        if let Some(AuditObjectRef {
            resource,
            namespace,
            name,
            uid,
            group,
            version,
            resource_version,
            subresource,
        }) = object
        {
            for word in [resource, namespace, name, uid, group, version, resource_version, subresource] {
                shorten_word(word, text);
            }
        }
        if let Some(ResponseStatus { status, message, reason, details, .. }) = status {
            shorten_word(status, text);
            shorten(message, text);
            shorten_word(reason, text);
            *details = None;
        }
        let mut left = entries;
        annotations.retain(|key, value| {
            shorten(value, text);
            let stays = key == TRUNCATED || (left > 0 && key.len() <= text);
            left = left.saturating_sub(1);
            stays
        });
    }
}

fn shorten_user(user: &mut User, text: usize, entries: usize) {
    let User { name, uid, groups, extra } = user;
    shorten_word(name, text);
    shorten_word(uid, text);
    groups.truncate(entries);
    for group in groups {
        shorten_word(group, text);
    }
    let mut left = entries;
    extra.retain(|key, values| {
        values.truncate(entries);
        for value in values {
            shorten_word(value, text);
        }
        let stays = left > 0 && key.len() <= text;
        left = left.saturating_sub(1);
        stays
    });
}

fn shorten_word(word: &mut Str, most: usize) {
    if word.len() > most {
        *word = first_bytes(word, most).into();
    }
}

fn shorten(text: &mut String, most: usize) {
    text.truncate(first_bytes(text, most).len());
}

//! Formats values in messages, as Go's `%v` prints cel-go's values.

use std::fmt;

use value::time::format_duration;

use super::{Val, number};

/// Upper bound of a value's text in bytes. Only values that share parts exceed it.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// Formats a value, truncated to [`MAX_SHOWN_BYTES`].
pub(crate) struct TruncatedVal<'v, 'a>(pub(crate) &'v Val<'a>);

impl fmt::Display for TruncatedVal<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = TruncatedText { text: String::new() };
        // Fails if the text was truncated, which is not an error here.
        let _ = fmt::write(&mut cut, format_args!("{}", self.0));
        f.write_str(&cut.text)
    }
}

/// A writer that stops after [`MAX_SHOWN_BYTES`].
struct TruncatedText {
    text: String,
}

impl fmt::Write for TruncatedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > MAX_SHOWN_BYTES {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

impl fmt::Display for Val<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Null => f.write_str("0"),
            Val::Bool(b) => write!(f, "{b}"),
            Val::Int(i) => write!(f, "{i}"),
            Val::Uint(u) => write!(f, "{u}"),
            Val::Double(d) => f.write_str(&number::shortest(*d)),
            Val::String(s) => f.write_str(s),
            Val::Bytes(bytes) => {
                f.write_str("[")?;
                for (i, byte) in bytes.iter().enumerate() {
                    write!(f, "{}{byte}", if i > 0 { " " } else { "" })?;
                }
                f.write_str("]")
            }
            Val::List(list) => {
                f.write_str("[")?;
                for (i, item) in list.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Val::Map(map) => {
                f.write_str("{")?;
                for (i, (key, val)) in map.iter().enumerate() {
                    write!(f, "{}{key}: {val}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Val::Duration(nanos) => f.write_str(&format_duration(*nanos)),
            Val::Timestamp(t) => f.write_str(&t.go_text()),
            Val::Type(name) => f.write_str(name),
            Val::Optional(None) => f.write_str("optional.none()"),
            Val::Optional(Some(inner)) => write!(f, "optional({inner})"),
            Val::Object(object) => write!(f, "{}{{}}", object.type_name),
            Val::Ext(ext) => write!(f, "{ext}"),
        }
    }
}

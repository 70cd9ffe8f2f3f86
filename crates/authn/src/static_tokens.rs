//! The static token file: lines of `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use value::Str;

use crate::caller::{AuthenticationMethod, Caller};
use crate::user::User;

/// The callers of static tokens. Tokens are stored as SHA-256 digests, which makes lookups safe against
/// timing attacks and keeps tokens out of memory and debug output.
#[derive(Clone, Default)]
pub struct StaticTokens {
    callers: HashMap<[u8; 32], Caller>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    #[error("{}parse error on line {line}, column {column}: {what}", start.map(|s| format!("record on line {s}; ")).unwrap_or_default())]
    Csv {
        /// The first line of the record, if the error is on a later one.
        start: Option<usize>,
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
        what: &'static str,
    },
    #[error("token file '{path}' must have at least 3 columns (token, user name, user uid), found {found}")]
    TooFewColumns { path: String, found: usize },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileWarning {
    /// A record with an empty token is ignored.
    #[error("empty token has been found in token file '{path}', record number '{record}'")]
    Empty {
        path: String,
        /// Record number, counted from 1.
        record: usize,
    },
    /// If a token occurs twice, the last record counts.
    #[error("duplicate token has been found in token file '{path}', record number '{record}'")]
    Duplicate {
        path: String,
        /// Record number, counted from 1.
        record: usize,
    },
}

impl StaticTokens {
    /// `path` is used in messages.
    pub fn parse(path: &str, text: &str) -> Result<(Self, Vec<TokenFileWarning>), TokenFileError> {
        let mut tokens = StaticTokens::default();
        let mut warnings = Vec::new();
        for (index, record) in csv(text)?.into_iter().enumerate() {
            let number = index + 1;
            let found = record.len();
            let mut fields = record.into_iter();
            let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
                return Err(TokenFileError::TooFewColumns { path: path.to_owned(), found });
            };
            if token.is_empty() {
                warnings.push(TokenFileWarning::Empty { path: path.to_owned(), record: number });
                continue;
            }
            let groups = fields.next().map(|g| g.split(',').map(Str::from).collect()).unwrap_or_default();
            let user = User { name: name.into(), uid: uid.into(), groups, ..User::default() };
            let caller = Caller::authenticated(user, AuthenticationMethod::StaticToken);
            if tokens.callers.insert(key(&token), caller).is_some() {
                warnings.push(TokenFileWarning::Duplicate { path: path.to_owned(), record: number });
            }
        }
        Ok((tokens, warnings))
    }

    /// Adds a token that `portcullis up` has generated.
    pub fn add(&mut self, token: &str, user: User) {
        self.callers.insert(key(token), Caller::authenticated(user, AuthenticationMethod::StaticToken));
    }

    pub(crate) fn caller(&self, token: &str) -> Option<Caller> {
        self.callers.get(&key(token)).cloned()
    }
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticTokens({} tokens)", self.callers.len())
    }
}

fn key(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    out
}

const BARE_QUOTE: &str = "bare \" in non-quoted field";
const BAD_QUOTE: &str = "extraneous or missing \" in quoted-field";

/// Parses CSV like Go's reader: empty lines are skipped, quoted fields may span lines, `""` inside them is a
/// quote, and lines end with `\n` or `\r\n`.
fn csv(text: &str) -> Result<Vec<Vec<String>>, TokenFileError> {
    let mut records = Vec::new();
    let mut lines = text.split_inclusive('\n').enumerate().map(|(i, line)| (i + 1, without_cr(line)));
    while let Some((start, mut line)) = lines.next() {
        if line.is_empty() || line == "\n" {
            continue;
        }
        let mut number = start;
        let mut record = Vec::new();
        let mut rest = line.as_str();
        // Columns are counted in bytes from the start of the physical line.
        'fields: loop {
            let column = |line: &str, rest: &str| line.len() - rest.len() + 1;
            let Some(mut quoted) = rest.strip_prefix('"') else {
                let end = rest.find(',');
                let field = end.and_then(|at| rest.get(..at)).unwrap_or(rest);
                let field = if end.is_none() { field.trim_end_matches('\n') } else { field };
                if let Some(at) = field.find('"') {
                    let column = column(&line, rest) + at;
                    return Err(TokenFileError::Csv {
                        start: (start != number).then_some(start),
                        line: number,
                        column,
                        what: BARE_QUOTE,
                    });
                }
                record.push(field.to_owned());
                match end.and_then(|at| rest.get(at + 1..)) {
                    Some(more) => rest = more,
                    None => break 'fields,
                }
                continue;
            };
            let mut field = String::new();
            loop {
                if let Some(at) = quoted.find('"') {
                    field.push_str(quoted.get(..at).unwrap_or_default());
                    let after = quoted.get(at + 1..).unwrap_or_default();
                    if let Some(more) = after.strip_prefix('"') {
                        field.push('"');
                        quoted = more;
                    } else if let Some(more) = after.strip_prefix(',') {
                        record.push(field);
                        rest = more;
                        continue 'fields;
                    } else if after.is_empty() || after == "\n" {
                        record.push(field);
                        break 'fields;
                    } else {
                        let column = column(&line, after) - 1;
                        return Err(TokenFileError::Csv {
                            start: (start != number).then_some(start),
                            line: number,
                            column,
                            what: BAD_QUOTE,
                        });
                    }
                } else {
                    field.push_str(quoted);
                    let column = line.len() + 1;
                    let Some((next, text)) = lines.next() else {
                        return Err(TokenFileError::Csv {
                            start: (start != number).then_some(start),
                            line: number,
                            column,
                            what: BAD_QUOTE,
                        });
                    };
                    number = next;
                    line = text;
                    quoted = line.as_str();
                }
            }
        }
        records.push(record);
    }
    Ok(records)
}

fn without_cr(line: &str) -> String {
    match line.strip_suffix("\r\n") {
        Some(text) => format!("{text}\n"),
        None => line.to_owned(),
    }
}

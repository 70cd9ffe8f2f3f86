//! Parses `--var` of `portcullis cel`.

use std::fs::File;
use std::io::Read;

use anyhow::{Result, bail};
use value::{Value, yaml};

/// Far larger than the objects that a server accepts.
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_VARIABLES: usize = 100;

/// Parses `NAME=VALUE` and reads the files of `NAME=@FILE`.
pub(super) fn read(flags: &[String]) -> Result<Vec<(String, Value)>> {
    if flags.len() > MAX_VARIABLES {
        bail!("--var is given {} times; at most {MAX_VARIABLES} are allowed", flags.len());
    }
    let mut vars: Vec<(String, Value)> = Vec::with_capacity(flags.len());
    for flag in flags {
        let Some((name, text)) = flag.split_once('=') else {
            bail!("--var {flag}: write NAME=VALUE, or NAME=@FILE to read a file");
        };
        if !is_name(name) {
            bail!("--var {name}: a name consists of letters, digits and `_` and does not begin with a digit");
        }
        if vars.iter().any(|(other, _)| other == name) {
            bail!("--var {name}: the variable is set twice; remove one of them");
        }
        let value = match text.strip_prefix('@') {
            Some(path) => file(name, path)?,
            None => parse(text.as_bytes()).map_err(|error| {
                let error = error.in_text();
                anyhow::anyhow!(
                    "--var {name}: `{text}` is not YAML: {error}; quote a string as \"'TEXT'\", or use {name}=@FILE"
                )
            })?,
        };
        vars.push((name.to_owned(), value));
    }
    Ok(vars)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn file(name: &str, path: &str) -> Result<Value> {
    if path.is_empty() {
        bail!("--var {name}: the file name after `@` is missing; write {name}=@FILE");
    }
    let bytes = if path == "-" {
        read_bounded(std::io::stdin().lock())
    } else {
        File::open(path).map_err(anyhow::Error::from).and_then(read_bounded)
    };
    let bytes = bytes.map_err(|error| {
        anyhow::anyhow!("--var {name}: cannot read `{path}`: {error}; give the path of a YAML or JSON file")
    })?;
    parse(&bytes).map_err(|error| anyhow::anyhow!("--var {name}: {path}:{}", error.in_file()))
}

fn read_bounded(reader: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("it is larger than {} MiB", MAX_FILE_BYTES >> 20);
    }
    Ok(bytes)
}

/// Why a text is not exactly one YAML document.
enum DocumentError {
    Syntax(yaml::Error),
    DuplicateKey(String, yaml::Position),
    SeveralDocuments(usize),
}

impl DocumentError {
    /// The message for a value on the command line.
    fn in_text(&self) -> String {
        match self {
            DocumentError::Syntax(error) => error.message.clone(),
            DocumentError::DuplicateKey(key, _) => format!("duplicate key `{key}`"),
            DocumentError::SeveralDocuments(count) => format!("it contains {count} documents"),
        }
    }

    /// The message for a file, beginning with line and column.
    fn in_file(&self) -> String {
        match self {
            DocumentError::Syntax(error) => format!("{}: not YAML: {}", error.position, error.message),
            DocumentError::DuplicateKey(key, position) => {
                format!("{position}: duplicate key `{key}`; remove one of them")
            }
            DocumentError::SeveralDocuments(count) => {
                format!("1:1: the file contains {count} documents; a variable must be one document")
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Value, DocumentError> {
    let mut documents = yaml::documents(bytes).map_err(DocumentError::Syntax)?;
    if documents.len() > 1 {
        documents.retain(|document| !document.value.is_null());
    }
    if documents.len() > 1 {
        return Err(DocumentError::SeveralDocuments(documents.len()));
    }
    let Some(document) = documents.pop() else { return Ok(Value::Null) };
    if let Some(key) = document.duplicates.first() {
        return Err(DocumentError::DuplicateKey(key.clone(), document.spans.nearest(key).key));
    }
    Ok(document.value)
}

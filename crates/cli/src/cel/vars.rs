//! The variables of an expression from the command line.

use std::fs::File;
use std::io::Read;

use anyhow::{Result, bail};
use value::{Value, yaml};

/// The largest file a variable is read from. A server takes far smaller objects.
const LARGEST: u64 = 16 << 20;
/// How many variables may be given.
const MOST: usize = 100;

/// Reads `NAME=VALUE` and `NAME=@FILE`.
pub(super) fn read(flags: &[String]) -> Result<Vec<(String, Value)>> {
    if flags.len() > MOST {
        bail!("--var is given {} times; {MOST} times are allowed", flags.len());
    }
    let mut vars: Vec<(String, Value)> = Vec::with_capacity(flags.len());
    for flag in flags {
        let Some((name, text)) = flag.split_once('=') else {
            bail!("--var {flag}: write NAME=VALUE, or NAME=@FILE to read a file");
        };
        if !is_name(name) {
            bail!("--var {name}: a name is made of letters, digits and `_`, and does not begin with a digit");
        }
        if vars.iter().any(|(other, _)| other == name) {
            bail!("--var {name}: it is given twice; leave one out");
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
        bail!("--var {name}: there is no file name after `@`; write {name}=@FILE");
    }
    let bytes = if path == "-" {
        bounded(std::io::stdin().lock())
    } else {
        File::open(path).map_err(anyhow::Error::from).and_then(bounded)
    };
    let bytes = bytes.map_err(|error| {
        anyhow::anyhow!("--var {name}: cannot read `{path}`: {error}; give the path of a YAML or JSON file")
    })?;
    parse(&bytes).map_err(|error| anyhow::anyhow!("--var {name}: {path}:{}", error.in_file()))
}

fn bounded(reader: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        bail!("it is larger than {} MiB", LARGEST >> 20);
    }
    Ok(bytes)
}

/// Why a text is not one value.
enum Bad {
    Yaml(yaml::Error),
    Repeated(String, yaml::Position),
    Several(usize),
}

impl Bad {
    fn in_text(&self) -> String {
        match self {
            Bad::Yaml(error) => error.message.clone(),
            Bad::Repeated(key, _) => format!("`{key}` is there twice"),
            Bad::Several(count) => format!("it holds {count} documents"),
        }
    }

    fn in_file(&self) -> String {
        match self {
            Bad::Yaml(error) => format!("{}: not YAML: {}; correct it", error.position, error.message),
            Bad::Repeated(key, position) => format!("{position}: `{key}` is there twice; leave one out"),
            Bad::Several(count) => format!("1:1: the file holds {count} documents; a variable is one"),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Value, Bad> {
    let mut documents = yaml::documents(bytes).map_err(Bad::Yaml)?;
    if documents.len() > 1 {
        documents.retain(|document| !document.value.is_null());
    }
    if documents.len() > 1 {
        return Err(Bad::Several(documents.len()));
    }
    let Some(document) = documents.pop() else { return Ok(Value::Null) };
    if let Some(key) = document.duplicates.first() {
        return Err(Bad::Repeated(key.clone(), document.spans.nearest(key).key));
    }
    Ok(document.value)
}

//! Request scripts: requests as data (`scripts/NAME.yaml`), and the answers recorded from a real kube-apiserver
//! (`scripts/NAME.expected.json`).
//!
//! `scripts/README.md` describes the format of both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Problem, Result};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The file name without `.yaml`.
    #[serde(skip)]
    pub name: String,
    /// One sentence for readers.
    pub about: String,
    #[serde(default)]
    pub admission: AdmissionSetup,
    /// Variable sets: the steps run once for each of them, or once if there is none.
    #[serde(default, rename = "for")]
    pub rounds: Vec<BTreeMap<String, Value>>,
    pub steps: Vec<Step>,
}

/// The admission plugins of the server that a script is recorded from and replayed against.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AdmissionSetup {
    /// NamespaceLifecycle is the only plugin.
    #[default]
    Bare,
    /// Every plugin that is enabled by default.
    Default,
}

/// One request, and the parts of its answer that are compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// A statement that makes sense alone in a failure report.
    pub name: String,
    /// Method and path; `WATCH` is a GET whose answer is a stream.
    #[serde(rename = "do")]
    pub request: String,
    /// A body that is sent as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// A body that is sent unchanged.
    #[serde(default)]
    pub text: Option<String>,
    /// The media type of the body, in full or as a short name.
    #[serde(default, rename = "type")]
    pub media_type: Option<String>,
    /// The `Accept` header, in full or as a short name.
    #[serde(default)]
    pub accept: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The bearer token, if not the administrator's; `none` sends no token.
    #[serde(default)]
    pub token: Option<String>,
    /// The number of events to read from a watch; without it, all until the stream ends.
    #[serde(default)]
    pub events: Option<usize>,
    /// Variables for later steps, by JSON pointer into the answer.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// JSON pointers: if there are any, only these parts of the body are compared.
    #[serde(default)]
    pub only: Vec<String>,
    /// JSON pointers to the parts of the body that are not compared.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The request is repeated until it is answered with this status code.
    #[serde(default)]
    pub until: Option<u16>,
}

impl Step {
    pub fn method_and_path(&self) -> (&str, &str) {
        self.request.split_once(' ').unwrap_or(("GET", self.request.as_str()))
    }
}

/// A server's answer to one step, after values that differ from run to run were replaced.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Observed {
    /// The step's name, with its variables filled in.
    pub step: String,
    pub code: u16,
    /// Only the headers that are compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// A JSON value; a string if the body is not JSON or YAML.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// All scripts, sorted by name.
pub fn all() -> Result<Vec<Script>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()).map_err(|e| Problem::at("cannot list the scripts", e))? {
        let path = entry.map_err(|e| Problem::at("cannot list the scripts", e))?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    names.iter().map(|name| load(name)).collect()
}

/// Reads and parses `scripts/NAME.yaml`.
pub fn load(name: &str) -> Result<Script> {
    let script: Script = serde_saphyr::from_str(&text(name)?).map_err(|e| Problem::at(name, e))?;
    Ok(Script { name: name.to_owned(), ..script })
}

/// The unparsed text of `scripts/NAME.yaml`.
pub fn text(name: &str) -> Result<String> {
    fs::read_to_string(folder().join(format!("{name}.yaml"))).map_err(|e| Problem::at(name, e))
}

impl Script {
    fn expected_file(&self) -> PathBuf {
        folder().join(format!("{}.expected.json", self.name))
    }

    /// The number of steps of all rounds together.
    pub fn step_count(&self) -> usize {
        self.steps.len() * self.rounds.len().max(1)
    }

    /// The answers that were recorded from a real kube-apiserver, in the order of the steps.
    pub fn expected(&self) -> Result<Vec<Observed>> {
        let text = fs::read_to_string(self.expected_file()).map_err(|e| Problem::at(&self.name, e))?;
        serde_json::from_str(&text).map_err(|e| Problem::at(&self.name, e))
    }

    /// Writes the answers of a real kube-apiserver to `NAME.expected.json`: one line per step, so that diffs are readable.
    pub fn record(&self, observed: &[Observed]) -> Result<()> {
        let lines: std::result::Result<Vec<_>, _> = observed.iter().map(serde_json::to_string).collect();
        let lines = lines.map_err(|e| Problem::at(&self.name, e))?;
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        fs::write(self.expected_file(), text).map_err(|e| Problem::at(&self.name, e))
    }
}

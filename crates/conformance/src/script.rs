//! Request scripts: what is asked, as data (`scripts/NAME.yaml`), and what a real kube-apiserver answered
//! (`scripts/NAME.expected.json`).
//!
//! The form of both is described in `scripts/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Problem, Result};

/// One script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Its name: the file's.
    #[serde(skip)]
    pub name: String,
    /// What it is about, for readers.
    pub about: String,
    /// Which admission plugins it is for.
    #[serde(default)]
    pub admission: Admission,
    /// The steps are run once for each of these, with the variables it sets.
    #[serde(default, rename = "for")]
    pub each: Vec<BTreeMap<String, Value>>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The admission plugins of the server that a script is for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Admission {
    /// The life of namespaces alone.
    #[default]
    Bare,
    /// Those that are on by default.
    Default,
}

/// One request and what of its answer matters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it shows.
    pub name: String,
    /// Method and path; `WATCH` is a GET whose answer is a stream.
    #[serde(rename = "do")]
    pub request: String,
    /// The body, sent as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// The body, sent as it is.
    #[serde(default)]
    pub text: Option<String>,
    /// The media type of the body, or a short name for it.
    #[serde(default, rename = "type")]
    pub media_type: Option<String>,
    /// What is accepted as an answer, or a short name for it.
    #[serde(default)]
    pub accept: Option<String>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Who asks, if not the administrator: a token, or `none`.
    #[serde(default)]
    pub token: Option<String>,
    /// How many events to read of a stream; without it, all until it ends.
    #[serde(default)]
    pub events: Option<usize>,
    /// Variables for later steps, by JSON pointer into the answer.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// What alone is compared, by JSON pointer.
    #[serde(default)]
    pub only: Vec<String>,
    /// What is not compared, by JSON pointer.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Asked again until this code comes, for what takes effect a moment later.
    #[serde(default)]
    pub until: Option<u16>,
}

impl Step {
    /// Method and path.
    pub fn method_and_path(&self) -> (&str, &str) {
        self.request.split_once(' ').unwrap_or(("GET", self.request.as_str()))
    }
}

/// What a server answered to one step, without what differs from run to run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Observed {
    /// The step.
    pub step: String,
    /// The code.
    pub code: u16,
    /// The headers that matter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// The body, as JSON or as text.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// Where the scripts are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// Every script, by name.
pub fn all() -> Result<Vec<Script>> {
    let folder = folder();
    let mut scripts = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| Problem::at("the scripts", e))? {
        let path = entry.map_err(|e| Problem::at("the scripts", e))?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let text = fs::read_to_string(&path).map_err(|e| Problem::at(&name, e))?;
            let script: Script = serde_saphyr::from_str(&text).map_err(|e| Problem::at(&name, e))?;
            scripts.push(Script { name, ..script });
        }
    }
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts)
}

impl Script {
    fn expected_file(&self) -> PathBuf {
        folder().join(format!("{}.expected.json", self.name))
    }

    /// What was recorded from a real kube-apiserver.
    pub fn expected(&self) -> Result<Vec<Observed>> {
        let text = fs::read_to_string(self.expected_file()).map_err(|e| Problem::at(&self.name, e))?;
        serde_json::from_str(&text).map_err(|e| Problem::at(&self.name, e))
    }

    /// Records what a real kube-apiserver answered: one line per step, so that a change shows which.
    pub fn record(&self, observed: &[Observed]) -> Result<()> {
        let lines: std::result::Result<Vec<_>, _> = observed.iter().map(serde_json::to_string).collect();
        let lines = lines.map_err(|e| Problem::at(&self.name, e))?;
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        fs::write(self.expected_file(), text).map_err(|e| Problem::at(&self.name, e))
    }
}

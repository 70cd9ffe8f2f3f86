//! Snapshots for the command line: saving from a running server or from the store of a stopped one, verifying, restoring.

mod file;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use outbound::{OutboundRequest, OutboundTarget};
use requests::request_info::SNAPSHOT_PATH;
use storage::embedded::{self, RestoreError, SaveError, StoppedStore};
use storage::snapshot::{SnapshotError, SnapshotReader};
use value::json;

pub use storage::embedded::RestoredStore;
pub use storage::snapshot::{SNAPSHOT_FORMAT, SnapshotSummary};

use crate::{OfflineError, store_directory};
use file::SnapshotFile;

/// Time limit for the beginning of the response.
const BEGIN: Duration = Duration::from_mins(1);
/// Longest time without a byte of the snapshot.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum bytes of an error response.
const MAX_REFUSAL: usize = 64 << 10;

/// The reason why a snapshot was not saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotCommandError {
    #[error("cannot use the kubeconfig `{}`: {why}", path.display())]
    Kubeconfig { path: PathBuf, why: String },
    #[error("cannot save a snapshot of the server: {0}")]
    Request(String),
    #[error("the server refused to save a snapshot ({code}): {message}")]
    Refused { code: u16, message: String },
    #[error("cannot write `{}`: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Offline(#[from] OfflineError),
    #[error("{0}; if a server is running, save from it with --kubeconfig")]
    Stopped(storage::OpenError),
    #[error(transparent)]
    Save(SaveError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// The program that is recorded in snapshots.
pub fn program() -> String {
    format!("portcullis {} ({})", env!("CARGO_PKG_VERSION"), runtime::version::GIT_VERSION)
}

/// Saves a snapshot of the running server that a kubeconfig names. An existing file is replaced when the new one is complete and verified.
pub async fn save_online(kubeconfig: &Path, path: &Path) -> Result<SnapshotSummary, SnapshotCommandError> {
    // Created first, so that an unwritable path is an error before the server works.
    let mut file = SnapshotFile::create(path)?;
    let response = request(kubeconfig).await?;
    let mut body = response.into_body();
    loop {
        let cut = |why: String| SnapshotCommandError::Request(format!("the response was cut short: {why}"));
        let frame = tokio::time::timeout(PAUSE, body.frame()).await;
        let frame = frame.map_err(|_| cut(format!("no data for {} seconds", PAUSE.as_secs())))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| cut(error.to_string()))?;
        if let Some(data) = frame.data_ref() {
            file.write_all(data).map_err(|source| file.failed(source))?;
        }
    }
    file.finish()
}

/// Saves a snapshot of the store in the data directory of a stopped server.
pub fn save_stopped(data: &Path, path: &Path) -> Result<SnapshotSummary, SnapshotCommandError> {
    let directory = store_directory(data)?;
    let mut file = SnapshotFile::create(path)?;
    let store = StoppedStore::open(&directory).map_err(SnapshotCommandError::Stopped)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    store.save(now.as_secs(), &program(), &mut file).map_err(|error| match error {
        SaveError::Write(source) => file.failed(source),
        error @ SaveError::Open(_) => SnapshotCommandError::Save(error),
    })?;
    file.finish()
}

/// Reads a whole snapshot and verifies it.
pub fn status(path: &Path) -> Result<SnapshotSummary, SnapshotCommandError> {
    Ok(SnapshotReader::verify(path)?)
}

/// Restores a snapshot into a new data directory; see [`embedded::restore`].
pub fn restore(path: &Path, data: &Path, bump_revision: u64) -> Result<RestoredStore, SnapshotCommandError> {
    Ok(embedded::restore(path, data, bump_revision)?)
}

/// Asks the server for a snapshot.
async fn request(kubeconfig: &Path) -> Result<Response<Incoming>, SnapshotCommandError> {
    let unusable = |why| SnapshotCommandError::Kubeconfig { path: kubeconfig.to_owned(), why };
    let endpoint = outbound::from_kubeconfig(kubeconfig, &mut Vec::new()).map_err(unusable)?;
    let prefix = endpoint.url.path().trim_end_matches('/').to_owned();
    let path = format!("{prefix}{SNAPSHOT_PATH}")
        .parse()
        .map_err(|_| unusable("its server is not a URL".to_owned()))?;
    let target = OutboundTarget::new(endpoint).map_err(|error| unusable(error.to_string()))?;
    if target.withholds_credentials() {
        let why = "it does not verify the server, so its token or password cannot be sent; set certificate-authority";
        return Err(unusable(why.to_owned()));
    }
    let request = OutboundRequest {
        method: Method::POST,
        path: Some(path),
        headers: HeaderMap::new(),
        bearer: None,
        body: Bytes::new(),
        timeout: BEGIN,
        max_answer: MAX_REFUSAL,
    };
    let opened = target.open(request).await;
    let response = opened.map_err(|failure| SnapshotCommandError::Request(failure.message))?;
    let code = response.status().as_u16();
    if code == 200 {
        return Ok(response);
    }
    let body = Limited::new(response.into_body(), MAX_REFUSAL).collect();
    let body = tokio::time::timeout(BEGIN, body).await.ok().and_then(Result::ok);
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let status = json::parse_wrapped(&body).ok();
    let message = match status.as_ref().and_then(|status| status.str_at(&["message"])) {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(&body).trim().to_owned(),
    };
    Err(SnapshotCommandError::Refused { code, message })
}

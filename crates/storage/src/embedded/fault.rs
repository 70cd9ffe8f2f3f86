//! Errors of the file.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::OpenError;

pub(super) fn damaged(detail: &str) -> Error {
    Error::Damaged(detail.to_owned())
}

/// Internal errors of reading or writing the file.
pub(super) enum Error {
    Redb(redb::Error),
    Damaged(String),
    Foreign(String),
}

impl<E: Into<redb::Error>> From<E> for Error {
    fn from(error: E) -> Error {
        Error::Redb(error.into())
    }
}

/// An error of the file, which must be reopened before it is used again.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    kind: StoreFaultKind,
}

#[derive(Debug)]
enum StoreFaultKind {
    Io(io::Error),
    Damaged,
    Foreign,
    Locked,
}

impl Fault {
    /// Converts the fault to an error of opening the store.
    pub(super) fn opening(self, path: &Path) -> OpenError {
        let path = path.to_owned();
        let detail = self.message;
        match self.kind {
            StoreFaultKind::Io(source) => OpenError::DataDirectory { path, source },
            StoreFaultKind::Damaged => OpenError::Damaged { path, detail },
            StoreFaultKind::Foreign => OpenError::NotAStore { path, detail },
            StoreFaultKind::Locked => OpenError::Locked(path),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let (message, kind) = match error {
            Error::Damaged(detail) => (detail, StoreFaultKind::Damaged),
            Error::Foreign(detail) => (detail, StoreFaultKind::Foreign),
            Error::Redb(error) => {
                let message = error.to_string();
                let kind = match error {
                    // redb reports `InvalidData` for a file without its magic; a truncated file is a damaged one.
                    redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                        StoreFaultKind::Foreign
                    }
                    redb::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        StoreFaultKind::Damaged
                    }
                    redb::Error::Io(error) => StoreFaultKind::Io(error),
                    redb::Error::DatabaseAlreadyOpen => StoreFaultKind::Locked,
                    _ => StoreFaultKind::Damaged,
                };
                (message, kind)
            }
        };
        Fault { message, kind }
    }
}

/// Runs `work` and converts a panic to a fault: redb trusts what it reads, so a damaged page can make it panic.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Fault::from),
        Err(_) => Err(damaged("its pages do not fit together").into()),
    }
}

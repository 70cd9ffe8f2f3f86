//! The error of a configuration that a server cannot start with.

/// Why the server does not start: one sentence that names the flag or file and how to fix it.
#[derive(Debug, thiserror::Error)]
#[error("{shown}")]
pub struct ConfigError {
    shown: String,
    kubernetes: Option<String>,
    file_problems: Option<FileProblems>,
}

#[derive(Debug)]
pub struct FileProblems {
    /// The message of kube-apiserver, which reports only the first problem.
    pub words: String,
    /// File and line of the first problem, then the other problems with theirs.
    pub locations: String,
}

impl ConfigError {
    /// The message begins with the flag.
    pub fn flag(flag: &str, why: impl std::fmt::Display) -> Self {
        Self::other(format!("--{flag}: {why}"))
    }

    /// The message begins with the path of the file.
    pub fn file(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self::other(format!("`{}`: {why}", path.display()))
    }

    /// The message must name the flag or file itself.
    pub fn other(why: impl std::fmt::Display) -> Self {
        ConfigError { shown: why.to_string(), kubernetes: None, file_problems: None }
    }

    pub fn in_files(problems: FileProblems) -> Self {
        let shown = format!("{}{}", problems.words, problems.locations);
        ConfigError { file_problems: Some(problems), ..Self::other(shown) }
    }

    /// The problems that [`ConfigError::in_files`] was called with.
    pub fn file_problems(&self) -> Option<&FileProblems> {
        self.file_problems.as_ref()
    }

    /// Adds the message that kube-apiserver prints for the same mistake.
    #[must_use]
    pub fn in_kubernetes_words(self, words: impl Into<String>) -> Self {
        ConfigError { kubernetes: Some(words.into()), ..self }
    }

    /// The message of kube-apiserver, where it is known.
    pub fn kubernetes_words(&self) -> Option<&str> {
        self.kubernetes.as_deref()
    }
}

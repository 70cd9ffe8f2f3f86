//! Checks of Rust sources. Code is looked at without comments, string literals and tests.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The only file that commits to the store, outside the store itself.
const WRITER: &str = "crates/server/src/write.rs";

/// Where private keys may be held: those that sign tokens, and those of certificates on their way into TLS.
const KEY_HOLDERS: [&str; 5] = [
    "crates/authn/src/tokens.rs",
    "crates/authn/src/tokens/",
    "crates/grpc/src/tls.rs",
    "crates/transport/src/pki.rs",
    "crates/transport/src/tls.rs",
];

/// Types that are a private key or hold one.
const KEYS: [&str; 5] = ["KeyPair", "PrivateKeyDer", "PrivatePkcs8KeyDer", "SigningKey", "EncodingKey"];

/// The only files that may spell out storage keys (`/registry/…`). A path that ends with `/` is a folder.
const STORAGE_KEYS: [&str; 2] = ["crates/catalog/src/keys.rs", "crates/catalog/src/keys/"];

/// Longest file outside of tests, in lines.
const MAX_LINES: usize = 500;

/// Paths to I/O and to the clock. Addresses are values and may be used.
const OUTSIDE: [&str; 14] = [
    "std::fs",
    "std::process",
    "std::env",
    "tokio::",
    "hyper::",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "ToSocketAddrs",
    "File::open",
    "SystemTime::now",
    "Instant::now",
    "::now()",
];

#[derive(Debug)]
pub(super) struct SourceFile {
    /// Relative to the workspace root, with forward slashes.
    pub(super) path: String,
    pub(super) lines: usize,
    text: String,
    /// The text without comments, string literals and test modules; line numbers are those of `text`.
    code: String,
}

impl SourceFile {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let code = without_test_modules(&code_only(text));
        SourceFile { path: path.to_owned(), lines: text.lines().count(), text: text.to_owned(), code }
    }

    /// The code without its test modules, comments and string literals; line numbers are kept.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// The code with its test modules, without comments and string literals; line numbers are kept.
    pub(super) fn all_code(&self) -> String {
        code_only(&self.text)
    }

    /// The comments alone; line numbers are kept.
    pub(super) fn comments(&self) -> String {
        only(&self.text, TextPart::Comment)
    }

    /// Whether the file contains only tests.
    pub(super) fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        self.path.ends_with("/tests.rs") || parts.any(|part| matches!(part, "tests" | "benches" | "examples"))
    }

    pub(super) fn within(&self, crates: &[&str]) -> bool {
        crates.iter().any(|name| self.path.starts_with(&format!("crates/{name}/")))
    }

    /// Complains of every line of code that contains one of `words`.
    fn lines_with(&self, words: &[&str], why: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        for (number, line) in self.code.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(*word)) {
                complaints.push(format!("{}:{}: `{word}`: {why}", self.path, number + 1));
            }
        }
        complaints
    }
}

/// Every Rust file below `crates/`, sorted by path.
pub(super) fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let files = read_below(root, &["crates"], &["rs"])?;
    Ok(files.into_iter().map(|(path, text)| SourceFile::new(&path, &text)).collect())
}

/// The paths and texts of all Go and Python files, sorted by path.
pub(super) fn read_other(root: &Path) -> Result<Vec<(String, String)>> {
    read_below(root, &["go", "python", "crates"], &["go", "py"])
}

/// The files below some folders with one of the extensions, sorted by path.
fn read_below(root: &Path, folders: &[&str], extensions: &[&str]) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
            let path = entry?.path();
            let extension = path.extension().and_then(OsStr::to_str);
            if path.is_dir() {
                waiting.push(path);
            } else if extension.is_some_and(|extension| extensions.contains(&extension)) {
                let text = fs::read_to_string(&path)?;
                files.push((path.strip_prefix(root)?.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Invariant 1: what decides opens nothing and reads no clock.
pub(super) fn no_io(source: &SourceFile, decisions: &[&str], files: &[&str]) -> Vec<String> {
    let decides = source.within(decisions)
        || files.iter().any(|start| source.path.starts_with(&format!("crates/{start}")));
    if !decides || source.is_test() {
        return Vec::new();
    }
    source.lines_with(&OUTSIDE, "a decision crate does no I/O and reads no clock")
}

/// Invariant 7: one file commits.
pub(super) fn one_writer(source: &SourceFile) -> Vec<String> {
    if source.within(&["storage", "xtask", "conformance"]) || source.is_test() || source.path == WRITER {
        return Vec::new();
    }
    source.lines_with(&[".commit("], "only the pipeline's write path commits to storage")
}

/// The file that invariant 7 names exists and commits: otherwise [`one_writer`] would check nothing.
pub(super) fn the_writer_exists(sources: &[SourceFile]) -> Option<String> {
    let writes = sources.iter().any(|source| source.path == WRITER && source.code.contains("store.commit("));
    (!writes).then(|| format!("{WRITER} does not commit to the store: has the write path moved?"))
}

/// Invariant 4: private keys stay where they belong.
pub(super) fn keys_at_home(source: &SourceFile) -> Vec<String> {
    let at_home = KEY_HOLDERS.iter().any(|home| source.path.starts_with(home));
    if at_home || source.is_test() || source.within(&["xtask", "conformance", "torture"]) {
        return Vec::new();
    }
    source.lines_with(&KEYS, "a private key is held in authn::tokens, or on its way into TLS")
}

/// Storage keys are made in one module; nothing else spells their prefix.
pub(super) fn storage_keys_at_home(source: &SourceFile) -> Vec<String> {
    let at_home = STORAGE_KEYS.iter().any(|home| source.path.starts_with(home));
    if at_home || source.is_test() || source.within(&["xtask", "conformance", "torture"]) {
        return Vec::new();
    }
    let lines = source.text.lines().zip(source.code.lines()).enumerate();
    // In `code`, comments and test modules are blank.
    let spells = |text: &str, code: &str| text.contains("\"/registry") && !code.trim().is_empty();
    lines
        .filter(|(_, (text, code))| spells(text, code))
        .map(|(number, _)| {
            format!("{}:{}: take the storage key from {}", source.path, number + 1, STORAGE_KEYS[0])
        })
        .collect()
}

/// A file outside of tests has at most [`MAX_LINES`] lines.
pub(super) fn not_too_long(source: &SourceFile) -> Option<String> {
    let is_long = source.lines > MAX_LINES && !source.is_test();
    is_long.then(|| format!("{}: {} lines, more than {MAX_LINES}: split it", source.path, source.lines))
}

/// No comment announces work that is left to do.
pub(super) fn nothing_left_to_do(source: &SourceFile) -> Vec<String> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    let mut complaints = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(*word)) {
            // Kubernetes' own data has such words in a few places; ours are in comments.
            if line.trim_start().starts_with("//") {
                complaints.push(format!("{}:{}: `{word}`: do it, or open an issue", source.path, number + 1));
            }
        }
    }
    complaints
}

/// The kinds of text that a Rust source is made of.
#[derive(Clone, Copy, PartialEq)]
enum TextPart {
    Code,
    Comment,
    Literal,
}

/// The code, with comments and the contents of string literals replaced by spaces.
pub(super) fn code_only(text: &str) -> String {
    only(text, TextPart::Code)
}

/// The text with everything but one kind of token replaced by spaces; line breaks stay.
fn only(text: &str, wanted: TextPart) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '/' if rest.starts_with("//") => (TextPart::Comment, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => {
                (TextPart::Comment, rest.find("*/").map_or(rest.len(), |end| end + 2))
            }
            'r' if starts_raw_text(rest) && !previous.is_alphanumeric() && previous != '_' => {
                let hashes = rest.chars().skip(1).take_while(|c| *c == '#').count();
                let end = format!("\"{}", "#".repeat(hashes));
                let start = hashes + 2;
                let length = rest
                    .get(start..)
                    .and_then(|r| r.find(&end))
                    .map_or(rest.len(), |at| start + at + end.len());
                (TextPart::Literal, length)
            }
            '"' => (TextPart::Literal, quoted(rest)),
            '\'' => match character(rest) {
                Some(length) => (TextPart::Literal, length),
                None => (TextPart::Code, 1),
            },
            _ => (TextPart::Code, first.len_utf8()),
        };
        let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        if token == wanted {
            out.push_str(part);
        } else {
            out.extend(part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        previous = part.chars().next_back().unwrap_or(' ');
        rest = after;
    }
    out
}

fn starts_raw_text(rest: &str) -> bool {
    rest.chars().skip(1).find(|c| *c != '#') == Some('"')
}

/// The length in bytes of a string literal, quotes included.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length in bytes of a character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return rest.get(3..)?.find('\'').map(|at| at + 4);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// The code with `#[cfg(test)] mod … { … }` replaced by empty lines.
fn without_test_modules(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let end = match (from.find('{'), from.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|semicolon| open < semicolon) => {
                block_end(from, open)
            }
            (_, Some(semicolon)) => semicolon + 1,
            _ => from.len(),
        };
        let (tests, after) = from.split_at(end);
        out.extend(tests.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The end of the block whose `{` is at `open`.
fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_u32;
    for (at, c) in code.char_indices().skip_while(|(at, _)| *at < open) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

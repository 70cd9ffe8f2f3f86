//! Checks of Rust sources. Code is looked at without comments, string literals and tests.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The only file that commits to the store, outside the store itself.
const WRITER: &str = "crates/server/src/write.rs";

/// Files that may hold private keys: the keys that sign tokens, and those of certificates on their way into TLS.
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

/// Lines of the crate `server` without test files. What depends on none of its types belongs in a crate of its own.
const MAX_SERVER_LINES: usize = 30_000;

/// Paths to I/O, the clock, threads and random values. Addresses are values and may be used.
const OUTSIDE: [&str; 19] = [
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
    ".elapsed()",
    "std::thread",
    "SystemRandom",
    "RandomState",
    "getrandom",
];

/// Files of decision crates that may use one of [`OUTSIDE`], and which. `ARCHITECTURE.md` has the reasons, with invariant 1.
const OUTSIDE_EXCEPTIONS: [(&str, &str); 4] = [
    ("crates/authn/src/impersonation/last_modes.rs", "RandomState"),
    ("crates/authn/src/tokens/keys.rs", "SystemRandom"),
    ("crates/cel/src/deep_stack.rs", "std::thread"),
    ("crates/value/src/steps.rs", "std::thread"),
];

/// Files whose string constants must not be spelled out elsewhere.
const SHARED_CONSTANTS: [&str; 7] = [
    "crates/api/src/admin_access.rs",
    "crates/api/src/finalizers.rs",
    "crates/api/src/groups.rs",
    "crates/api/src/identities.rs",
    "crates/api/src/labels.rs",
    "crates/api/src/namespaces.rs",
    "crates/api/src/signers.rs",
];

/// Values of [`SHARED_CONSTANTS`] that mean something else elsewhere: `default` and `kubernetes` are names of objects, and default roles
/// have the names of users.
const AMBIGUOUS_CONSTANTS: [&str; 5] = [
    "default",
    "kubernetes",
    "system:kube-aggregator",
    "system:kube-controller-manager",
    "system:kube-scheduler",
];

/// Files of [`SHARED_CONSTANTS`] whose values are also data of tables.
const TABULATED_CONSTANTS: [&str; 2] = ["crates/api/src/groups.rs", "crates/api/src/signers.rs"];

/// Tables of data, which may spell out [`TABULATED_CONSTANTS`]. A path that ends with `/` is a folder.
const TABLES: [&str; 4] = [
    "crates/api/src/validation/meta.rs",
    "crates/authz/src/rbac/bootstrap/",
    "crates/catalog/src/keys.rs",
    "crates/kinds/src/table/",
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

    /// The lines outside of test modules that have code, with their numbers, string literals and comments.
    fn text_of_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().zip(self.code.lines()).enumerate();
        // In `code`, comments and test modules are blank.
        lines.filter(|(_, (_, code))| !code.trim().is_empty()).map(|(number, (text, _))| (number + 1, text))
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

/// Invariant 1: what decides opens nothing, reads no clock, starts no thread and uses no random values.
pub(super) fn no_io(source: &SourceFile, decisions: &[&str], files: &[&str]) -> Vec<String> {
    let decides = source.within(decisions)
        || files.iter().any(|start| source.path.starts_with(&format!("crates/{start}")));
    if !decides || source.is_test() {
        return Vec::new();
    }
    let is_exception = |word: &str| OUTSIDE_EXCEPTIONS.contains(&(source.path.as_str(), word));
    let words: Vec<&str> = OUTSIDE.into_iter().filter(|word| !is_exception(word)).collect();
    source.lines_with(
        &words,
        "a decision crate does no I/O, reads no clock, starts no thread and uses no random values",
    )
}

/// Every exception of [`no_io`] is used: otherwise it would permit what nothing needs.
pub(super) fn exceptions_are_used(sources: &[SourceFile]) -> Vec<String> {
    let is_used = |path: &str, word: &str| {
        sources.iter().any(|source| source.path == path && source.code.contains(word))
    };
    let unused = OUTSIDE_EXCEPTIONS.iter().filter(|(path, word)| !is_used(path, word));
    unused.map(|(path, word)| format!("{path} no longer uses `{word}`: remove the exception")).collect()
}

/// Invariant 5: no code spells out a constant of [`SHARED_CONSTANTS`], except the file that declares it. `webhook-auth` and the tools
/// depend on no crate of the server.
pub(super) fn constants_declared_once(sources: &[SourceFile]) -> Vec<String> {
    let mut constants = Vec::new();
    let mut complaints = Vec::new();
    for path in SHARED_CONSTANTS {
        let declared = sources.iter().find(|source| source.path == path).map(string_constants);
        match declared {
            Some(declared) if !declared.is_empty() => {
                constants.extend(declared.into_iter().map(|literal| (literal, path)));
            }
            _ => complaints.push(format!("{path} declares no constant: have they moved?")),
        }
    }
    constants.retain(|(literal, _)| !AMBIGUOUS_CONSTANTS.contains(&literal.trim_matches('"')));
    let independent = ["webhook-auth", "conformance", "fuzz", "pages", "torture", "xtask"];
    let users = sources.iter().filter(|source| !source.is_test() && !source.within(&independent));
    for source in users.filter(|source| !SHARED_CONSTANTS.contains(&source.path.as_str())) {
        let is_table = TABLES.iter().any(|table| source.path.starts_with(table));
        let constants = constants.iter().filter(|(_, home)| !is_table || !TABULATED_CONSTANTS.contains(home));
        for (number, line) in source.text_of_code() {
            for (literal, home) in constants.clone().filter(|(literal, _)| line.contains(literal.as_str())) {
                complaints.push(format!("{}:{number}: {literal}: use the constant of {home}", source.path));
            }
        }
    }
    complaints
}

/// The string literals, with quotes, of the constants that a file declares.
fn string_constants(source: &SourceFile) -> Vec<String> {
    let literal = |line: &str| {
        let (_, value) = line.split_once(": &str = ")?;
        line.trim_start().starts_with("pub const ").then_some(())?;
        value.strip_suffix(';').filter(|value| value.starts_with('"')).map(str::to_owned)
    };
    source.text_of_code().filter_map(|(_, line)| literal(line)).collect()
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
    let spelled = source.text_of_code().filter(|(_, line)| line.contains("\"/registry"));
    spelled
        .map(|(number, _)| format!("{}:{number}: take the storage key from {}", source.path, STORAGE_KEYS[0]))
        .collect()
}

/// The layout of storage keys is known to one module; `server` and `catalog` take no key apart elsewhere.
pub(super) fn storage_keys_taken_apart_at_home(source: &SourceFile) -> Vec<String> {
    let at_home = STORAGE_KEYS.iter().any(|home| source.path.starts_with(home));
    if at_home || source.is_test() || !source.within(&["server", "catalog"]) {
        return Vec::new();
    }
    let cut = source.text_of_code().filter(|(_, line)| line.contains("key.rsplit('/')"));
    cut.map(|(number, _)| format!("{}:{number}: use `keys::name` or `keys::namespace`", source.path))
        .collect()
}

/// A file outside of tests has at most [`MAX_LINES`] lines.
pub(super) fn not_too_long(source: &SourceFile) -> Option<String> {
    let is_long = source.lines > MAX_LINES && !source.is_test();
    is_long.then(|| format!("{}: {} lines, more than {MAX_LINES}: split it", source.path, source.lines))
}

/// The files of the crate `server` that are no tests have at most [`MAX_SERVER_LINES`] lines.
pub(super) fn server_is_small(sources: &[SourceFile]) -> Option<String> {
    let is_counted =
        |source: &&SourceFile| source.path.starts_with("crates/server/src/") && !source.is_test();
    let lines: usize = sources.iter().filter(is_counted).map(|source| source.lines).sum();
    (lines > MAX_SERVER_LINES).then(|| {
        format!("crates/server/src: {lines} lines, more than {MAX_SERVER_LINES}: move a part into a crate of its own")
    })
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

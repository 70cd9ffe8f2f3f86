//! Parses image references to find out whether they mean the tag `latest`, which decides the default pull policy.

/// Returns true if a well-formed image reference has the tag `latest`, or neither tag nor digest.
pub(crate) fn is_latest(image: &str) -> bool {
    parse(image).is_some_and(|reference| {
        reference.tag == Some("latest") || (reference.tag, reference.digest) == (None, None)
    })
}

struct ImageReference<'a> {
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

const MAX_PATH: usize = 255;
const MAX_TAG: usize = 128;

fn parse(image: &str) -> Option<ImageReference<'_>> {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if image.len() == 64 && image.bytes().all(is_hex) {
        return None; // a bare image identifier
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    let path_start = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest.get(path_start..).and_then(|last| last.find(':')) {
        Some(colon) => (rest.get(..path_start + colon)?, rest.get(path_start + colon + 1..)),
        None => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return None;
    }
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if first == "localhost" || is_host_like(first) => (first, path),
        _ => ("", name),
    };
    let official = "library/".len();
    let on_hub = matches!(domain, "" | "docker.io" | "index.docker.io");
    let length = if on_hub && !path.contains('/') { official + path.len() } else { path.len() };
    let named = if domain.is_empty() || is_host(domain) { is_path(path) } else { is_path(name) };
    (named && length <= MAX_PATH).then_some(ImageReference { tag, digest })
}

fn is_host_like(first: &str) -> bool {
    first.contains(['.', ':']) || first.chars().any(char::is_uppercase)
}

fn is_host(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (domain, None),
    };
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit())) {
        return false;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
    }
    host.split('.').all(|part| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

fn is_path(path: &str) -> bool {
    path.split('/').all(is_path_component)
}

/// Accepts lowercase letters and digits, separated by one period, one or two underscores or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !component.starts_with(is_word) || !component.ends_with(is_word) {
        return false;
    }
    component
        .split(is_word)
        .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, encoded)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    encoded.len() == length && encoded.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

//! [`Headers`]: what this crate asks of a request's headers, so that it need not know HTTP.

/// A request's headers. Names are compared without case.
pub trait Headers: Sync {
    /// The first value of a header.
    fn first(&self, name: &str) -> Option<&str>;

    /// Every header line in order: name and value. Lines whose value is not text are left out.
    fn each(&self, visit: &mut dyn FnMut(&str, &str));
}

/// Headers as a list of lines.
pub struct HeaderLines<'a>(pub &'a [(&'a str, &'a str)]);

impl Headers for HeaderLines<'_> {
    fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| *v)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.0 {
            visit(name, value);
        }
    }
}

/// All values of one header.
pub(crate) fn all(headers: &dyn Headers, name: &str) -> Vec<String> {
    let mut values = Vec::new();
    headers.each(&mut |n, v| {
        if n.eq_ignore_ascii_case(name) {
            values.push(v.to_owned());
        }
    });
    values
}

/// A header's name after `prefix`, lower-cased and with its percent-escapes undone (left as it is if they are malformed).
pub(crate) fn extra_key(name: &str, prefix: &str) -> Option<String> {
    let head = name.get(..prefix.len())?;
    if !head.eq_ignore_ascii_case(prefix) {
        return None;
    }
    let rest = name.get(prefix.len()..)?.to_ascii_lowercase();
    Some(percent_decoded(&rest).unwrap_or(rest))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(b);
        }
    }
    // Kubernetes keeps bytes that are not UTF-8; here the escaped spelling stays instead.
    String::from_utf8(out).ok()
}

//! Removes credentials from texts with URLs before they are shown.

/// Replaces passwords in URLs by `xxxxx`, as Go's `URL.Redacted` does. The text may have several URLs, separated by commas.
pub fn without_passwords(text: &str) -> String {
    replace_user_info(text, |user_info| match user_info.split_once(':') {
        Some((user, _)) => format!("{user}:xxxxx@"),
        None => format!("{user_info}@"),
    })
}

/// Removes users and passwords from URLs.
pub fn without_user_info(text: &str) -> String {
    replace_user_info(text, |_| String::new())
}

/// Replaces what precedes the host of each URL: `shown` returns its replacement for the part before the `@`.
fn replace_user_info(text: &str, shown: impl Fn(&str) -> String) -> String {
    let mut parts = text.split("://").peekable();
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        let next_url = if parts.peek().is_some() { start_of_next_url(part) } else { None };
        let end = part.find(['/', '?', '#']).or(next_url).unwrap_or(part.len());
        let (authority, rest) = part.split_at_checked(end).unwrap_or((part, ""));
        out.push_str("://");
        match authority.rsplit_once('@') {
            Some((user_info, host)) => out.extend([shown(user_info).as_str(), host]),
            None => out.push_str(authority),
        }
        out.push_str(rest);
    }
    out
}

/// The position of the comma that separates a URL from the next one, whose scheme ends `part`. Other commas may belong to a password.
fn start_of_next_url(part: &str) -> Option<usize> {
    let (before, scheme) = part.rsplit_once(',')?;
    let mut letters = scheme.chars();
    let is_scheme = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|each| each.is_ascii_alphanumeric() || matches!(each, '+' | '-' | '.'));
    is_scheme.then_some(before.len())
}

#[cfg(test)]
mod tests {
    use super::{without_passwords, without_user_info};

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for (text, without_password, without_user) in [
            ("https://user:p@ss@host:2379/x", "https://user:xxxxx@host:2379/x", "https://host:2379/x"),
            ("https://a:b@c,http://d:e@f", "https://a:xxxxx@c,http://d:xxxxx@f", "https://c,http://f"),
            ("https://u:a,b@host/x", "https://u:xxxxx@host/x", "https://host/x"),
            ("https://u,v@host,x://h", "https://u,v@host,x://h", "https://host,x://h"),
            ("https://u:a,b@c,https://d:e,f@g", "https://u:xxxxx@c,https://d:xxxxx@g", "https://c,https://g"),
            ("https://u:a,1:b@c,https://g", "https://u:xxxxx@c,https://g", "https://c,https://g"),
            ("https://user@host/a:b@c", "https://user@host/a:b@c", "https://host/a:b@c"),
            ("https://host:1/", "https://host:1/", "https://host:1/"),
            ("https://host/a@b", "https://host/a@b", "https://host/a@b"),
            ("/etc/a:b@c", "/etc/a:b@c", "/etc/a:b@c"),
            ("", "", ""),
        ] {
            assert_eq!(without_passwords(text), without_password);
            assert_eq!(without_user_info(text), without_user);
        }
    }
}

//! Unquotes and unescapes string and bytes literals.

/// Unescapes a quoted literal, without its `b` prefix. The result of a string literal is valid UTF-8.
pub(crate) fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    const BAD: &str = "unable to unescape string";
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, text) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let inner = if text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\"")) {
        text.get(3..text.len() - 3).ok_or(BAD)?
    } else {
        text.get(1..text.len().saturating_sub(1)).ok_or(BAD)?
    };
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    let mut encoded = [0; 4];
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut encoded).as_bytes());
            continue;
        }
        let code = match chars.next().ok_or("unable to unescape string, found '\\' as last character")? {
            c @ ('\\' | '\'' | '"' | '`' | '?') => c as u32,
            'x' | 'X' => digits(&mut chars, 2, 16).ok_or(BAD)?,
            'u' if !is_bytes => digits(&mut chars, 4, 16).ok_or(BAD)?,
            'U' if !is_bytes => digits(&mut chars, 8, 16).ok_or(BAD)?,
            c @ '0'..='3' => {
                let rest = digits(&mut chars, 2, 8).ok_or("unable to unescape octal sequence in string")?;
                (c as u32 - '0' as u32) * 64 + rest
            }
            letter => value::go::escaped_control(letter).ok_or(BAD)? as u32,
        };
        if is_bytes {
            out.push(u8::try_from(code).map_err(|_| BAD)?);
        } else {
            let c = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut encoded).as_bytes());
        }
    }
    Ok(out)
}

fn digits(chars: &mut std::str::Chars<'_>, count: usize, radix: u32) -> Option<u32> {
    (0..count).try_fold(0u32, |code, _| {
        let digit = chars.next()?.to_digit(radix)?;
        code.checked_mul(radix)?.checked_add(digit)
    })
}

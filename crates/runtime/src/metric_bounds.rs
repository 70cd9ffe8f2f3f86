//! Formats bucket bounds as Go does: the text identifies a series, so `5e-07` must not become `0.0000005`.

/// Rewrites every `le="…"` of a metrics page.
pub fn format_bounds_as_go(page: Vec<u8>) -> Vec<u8> {
    const LABEL: &str = "le=\"";
    let Ok(text) = String::from_utf8(page) else { return Vec::new() };
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(LABEL) {
        out.push_str(before);
        out.push_str(LABEL);
        let Some((bound, after)) = after.split_once('"') else {
            rest = after;
            continue;
        };
        match bound.parse::<f64>() {
            Ok(number) if number.is_finite() => out.push_str(&shortest(number)),
            _ => out.push_str(bound),
        }
        out.push('"');
        rest = after;
    }
    out.push_str(rest);
    out.into_bytes()
}

/// Formats a number like Go's `%g`: with an exponent if that is below -4 or above 5.
fn shortest(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests;

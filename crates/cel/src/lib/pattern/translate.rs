//! Translates Go's regular expression syntax to the `regex` crate's, with Go's error messages.
//!
//! The two differ in the meaning of `\d`, `\s`, `\w` and `\b` (ASCII only in Go), in `\Q…\E`, in escapes, in
//! character classes, and in the repetitions they allow.

use std::fmt::Write as _;

use super::unicode;

/// Go's limit for a repetition count and for the product of nested counts.
const MAX_REPEATS: u64 = 1000;
/// Go's limit for nested groups.
const MAX_GROUP_NESTING: usize = 1000;

fn fail<T>(code: &str, expression: &str) -> Result<T, String> {
    Err(format!("error parsing regexp: {code}: `{expression}`"))
}

const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
const BAD_RANGE: &str = "invalid character class range";

/// Translates a pattern, or returns Go's error message.
pub(super) fn translate(whole: &str) -> Result<String, String> {
    let mut t = Translator {
        whole,
        rest: whole,
        out: String::with_capacity(whole.len() + 16),
        groups: Vec::new(),
        atom: None,
        weight: 1,
    };
    t.run()?;
    Ok(t.out)
}

struct Translator<'t> {
    whole: &'t str,
    rest: &'t str,
    out: String,
    /// For each open group, the largest repetition product before it.
    groups: Vec<u64>,
    /// Repetition product of the last atom; `None` if there is nothing to repeat.
    atom: Option<u64>,
    /// Largest repetition product in the current group.
    weight: u64,
}

impl<'t> Translator<'t> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// The text consumed since `before` was the remaining input.
    fn since(&self, before: &'t str) -> &'t str {
        before.get(..before.len() - self.rest.len()).unwrap_or_default()
    }

    fn run(&mut self) -> Result<(), String> {
        let mut last_repeat: Option<&'t str> = None;
        while let Some(c) = self.rest.chars().next() {
            let before = self.rest;
            let mut repeat = None;
            match c {
                '(' if before.starts_with("(?") => self.perl_group()?,
                '(' => {
                    self.skip(1);
                    self.open("(?:")?;
                }
                '|' => {
                    self.skip(1);
                    self.out.push('|');
                    self.atom = None;
                }
                ')' => {
                    let Some(outer) = self.groups.pop() else { return fail("unexpected )", self.whole) };
                    self.skip(1);
                    self.out.push(')');
                    self.atom = Some(self.weight);
                    self.weight = self.weight.max(outer);
                }
                '^' | '$' | '.' => {
                    self.skip(1);
                    self.out.push(c);
                    self.atom = Some(1);
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.skip(1);
                    self.repeat(before, last_repeat, None)?;
                    repeat = Some(before);
                }
                '{' => match counts(before) {
                    None => {
                        self.skip(1);
                        self.literal('{');
                    }
                    Some((least, most, length)) => {
                        self.skip(length);
                        let limit = i64::try_from(MAX_REPEATS).unwrap_or(i64::MAX);
                        if least < 0 || least > limit || most > limit || (most >= 0 && least > most) {
                            return fail("invalid repeat count", self.since(before));
                        }
                        self.repeat(before, last_repeat, Some((least, most)))?;
                        repeat = Some(before);
                    }
                },
                '\\' => self.escape()?,
                c => {
                    self.skip(c.len_utf8());
                    self.literal(c);
                }
            }
            last_repeat = repeat;
        }
        if self.groups.is_empty() { Ok(()) } else { fail("missing closing )", self.whole) }
    }

    fn open(&mut self, text: &str) -> Result<(), String> {
        if self.groups.len() >= MAX_GROUP_NESTING {
            return fail("expression nests too deeply", self.whole);
        }
        self.out.push_str(text);
        self.groups.push(self.weight);
        self.weight = 1;
        self.atom = None;
        Ok(())
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.atom = Some(1);
    }

    /// Applies a repetition operator that starts at `before` and has been consumed.
    fn repeat(
        &mut self,
        before: &'t str,
        last: Option<&'t str>,
        counted: Option<(i64, i64)>,
    ) -> Result<(), String> {
        if self.rest.starts_with('?') {
            self.skip(1);
        }
        if let Some(last) = last {
            return fail("invalid nested repetition operator", self.since(last));
        }
        let Some(inner) = self.atom else { return fail(MISSING_ARGUMENT, self.since(before)) };
        let written = self.since(before);
        if let Some((least, most)) = counted {
            let times = u64::try_from(least.max(most)).unwrap_or(0).max(1);
            let heavy = inner.saturating_mul(times);
            if (least >= 2 || most >= 2) && heavy > MAX_REPEATS {
                return fail("invalid repeat count", written);
            }
            self.weight = self.weight.max(heavy);
            self.atom = Some(heavy);
        }
        self.out.push_str(written);
        Ok(())
    }

    fn perl_group(&mut self) -> Result<(), String> {
        let before = self.rest;
        let named = before.strip_prefix("(?P<").or_else(|| before.strip_prefix("(?<"));
        if let Some(after) = named
            && !after.is_empty()
        {
            let Some(end) = before.find('>') else { return fail("invalid named capture", before) };
            let name = after.split('>').next().unwrap_or_default();
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            self.skip(end + 1);
            if name.is_empty() || !name.chars().all(word) {
                return fail("invalid named capture", self.since(before));
            }
            return self.open("(?:");
        }
        self.skip(2);
        let mut negated = false;
        let mut saw_flag = false;
        while let Some(c) = self.rest.chars().next() {
            self.skip(c.len_utf8());
            match c {
                'i' | 'm' | 's' | 'U' => saw_flag = true,
                '-' if !negated => {
                    negated = true;
                    saw_flag = false;
                }
                ':' | ')' if !negated || saw_flag => {
                    let written = self.since(before);
                    if c == ':' {
                        return self.open(written);
                    }
                    if written != "(?)" {
                        self.out.push_str(written);
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        fail("invalid or unsupported Perl syntax", self.since(before))
    }

    fn escape(&mut self) -> Result<(), String> {
        let before = self.rest;
        let second = before.chars().nth(1);
        let assertion = match second {
            Some('A') => Some(r"\A"),
            Some('z') => Some(r"\z"),
            Some('b') => Some(r"(?-u:\b)"),
            Some('B') => Some(r"(?-u:\B)"),
            _ => None,
        };
        if let Some(assertion) = assertion {
            self.skip(2);
            self.out.push_str(assertion);
            self.atom = Some(1);
            return Ok(());
        }
        match second {
            Some('C') => return fail("invalid escape sequence", r"\C"),
            Some('Q') => {
                let quoted = before.get(2..).unwrap_or_default();
                let (quoted, length) = match quoted.split_once(r"\E") {
                    Some((quoted, _)) => (quoted, quoted.len() + 4),
                    None => (quoted, quoted.len() + 2),
                };
                self.skip(length);
                for c in quoted.chars() {
                    self.literal(c);
                }
                return Ok(());
            }
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                self.out.push_str(&class);
                self.atom = Some(1);
                return Ok(());
            }
            Some(c) if perl_class(c).is_some() => {
                self.skip(2);
                let (negated, items) = perl_class(c).unwrap_or((false, ""));
                self.out.push_str(if negated { "[^" } else { "[" });
                self.out.push_str(items);
                self.out.push(']');
                self.atom = Some(1);
                return Ok(());
            }
            _ => {}
        }
        let c = self.escaped()?;
        self.literal(c);
        Ok(())
    }

    /// Reads the character of an escape sequence.
    fn escaped(&mut self) -> Result<char, String> {
        let before = self.rest;
        self.skip(1);
        let Some(c) = self.rest.chars().next() else {
            return fail("trailing backslash at end of expression", "");
        };
        self.skip(c.len_utf8());
        let octal = |rest: &str| rest.starts_with(|c: char| ('0'..='7').contains(&c));
        let code = match c {
            '1'..='7' if !octal(self.rest) => None,
            '0'..='7' => {
                let mut code = c.to_digit(8);
                for _ in 0..2 {
                    if octal(self.rest) {
                        let digit = self.rest.chars().next().and_then(|c| c.to_digit(8));
                        code = code.and_then(|code| Some(code * 8 + digit?));
                        self.skip(1);
                    }
                }
                code
            }
            'x' => self.hexadecimal(),
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c as u32),
            _ => None,
        };
        match code.and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => fail("invalid escape sequence", self.since(before)),
        }
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.next()?;
        if first != '{' {
            let second = self.next();
            return Some(first.to_digit(16)? * 16 + second?.to_digit(16)?);
        }
        let mut code = None;
        loop {
            match self.next()? {
                '}' => return code,
                c => {
                    code = Some(code.unwrap_or(0) * 16 + c.to_digit(16)?).filter(|code| *code <= 0x0010_ffff);
                }
            }
            code?;
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.skip(c.len_utf8());
        Some(c)
    }

    /// Reads `\pN` or `\p{Name}`.
    fn unicode_class(&mut self) -> Result<String, String> {
        let before = self.rest;
        let negated = before.starts_with(r"\P");
        self.skip(2);
        let name = if let Some(after) = self.rest.strip_prefix('{') {
            match after.split_once('}') {
                Some((name, _)) => {
                    self.skip(name.len() + 2);
                    name
                }
                None => return fail(BAD_RANGE, before),
            }
        } else {
            let Some(c) = self.rest.chars().next() else { return fail(BAD_RANGE, before) };
            let name = self.rest.get(..c.len_utf8()).unwrap_or_default();
            self.skip(c.len_utf8());
            name
        };
        let (negated, name) = match name.strip_prefix('^') {
            Some(name) => (!negated, name),
            None => (negated, name),
        };
        match unicode::class(name, negated) {
            Some(class) => Ok(class.into_owned()),
            None => fail(BAD_RANGE, self.since(before)),
        }
    }

    fn class(&mut self) -> Result<(), String> {
        let before = self.rest;
        let mut items = String::new();
        self.skip(1);
        let negated = self.rest.starts_with('^');
        if negated {
            self.skip(1);
        }
        let mut first = true;
        while self.rest.is_empty() || !self.rest.starts_with(']') || first {
            first = false;
            let here = self.rest;
            if here.starts_with("[:")
                && let Some(end) = here.find(":]")
            {
                let name = here.get(..end + 2).unwrap_or_default();
                if !POSIX
                    .contains(&name.trim_start_matches("[:").trim_start_matches('^').trim_end_matches(":]"))
                {
                    return fail(BAD_RANGE, name);
                }
                items.push_str(name);
                self.skip(end + 2);
                continue;
            }
            if here.starts_with(r"\p") || here.starts_with(r"\P") {
                items.push_str(&self.unicode_class()?);
                continue;
            }
            if let Some(c) = here.strip_prefix('\\').and_then(|after| after.chars().next())
                && let Some((negated, class)) = perl_class(c)
            {
                if negated {
                    items.push_str("[^");
                    items.push_str(class);
                    items.push(']');
                } else {
                    items.push_str(class);
                }
                self.skip(2);
                continue;
            }
            let low = self.class_char(before)?;
            push_class_char(&mut items, low);
            if let Some(after) = self.rest.strip_prefix('-')
                && !after.starts_with(']')
                && !after.is_empty()
            {
                self.skip(1);
                let high = self.class_char(before)?;
                if high < low {
                    return fail(BAD_RANGE, self.since(here));
                }
                items.push('-');
                push_class_char(&mut items, high);
            }
        }
        self.skip(1);
        self.out.push_str(if negated { "[^" } else { "[" });
        self.out.push_str(&items);
        self.out.push(']');
        self.atom = Some(1);
        Ok(())
    }

    fn class_char(&mut self, class: &str) -> Result<char, String> {
        match self.rest.chars().next() {
            None => fail("missing closing ]", class),
            Some('\\') => self.escaped(),
            Some(c) => {
                self.skip(c.len_utf8());
                Ok(c)
            }
        }
    }
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The ranges of `\d`, `\s` and `\w`, and whether the class is negated.
fn perl_class(c: char) -> Option<(bool, &'static str)> {
    let items = match c.to_ascii_lowercase() {
        'd' => "0-9",
        's' => r"\t\n\x0C\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    Some((c.is_ascii_uppercase(), items))
}

fn push_literal(out: &mut String, c: char) {
    if c.is_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        let _ = write!(out, r"\x{{{:X}}}", c as u32);
    }
}

fn push_class_char(out: &mut String, c: char) {
    push_literal(out, c);
}

/// Parses `{n}`, `{n,}` or `{n,m}`: both counts (-1 if unbounded) and the length.
fn counts(text: &str) -> Option<(i64, i64, usize)> {
    let inner = text.strip_prefix('{')?.split('}').next()?;
    text.as_bytes().get(inner.len() + 1).filter(|b| **b == b'}')?;
    let number = |digits: &str| {
        let fine = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && !(digits.len() > 1 && digits.starts_with('0'));
        // Values over the limit only have to stay over it.
        fine.then(|| digits.parse().unwrap_or(i64::MAX).min(1 << 40))
    };
    let (least, most) = match inner.split_once(',') {
        None => {
            let count = number(inner)?;
            (count, count)
        }
        Some((least, "")) => (number(least)?, -1),
        Some((least, most)) => (number(least)?, number(most)?),
    };
    Some((least, most, inner.len() + 2))
}

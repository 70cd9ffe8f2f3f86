//! Scans anchors, aliases, tags and directives.

use super::{Scanner, YamlTokenKind};
use crate::json;
use crate::text::hex_digit;
use crate::yaml::Error;

impl<'a> Scanner<'a> {
    fn skip_name(&mut self) -> &'a str {
        let start = self.at;
        while matches!(self.peek_byte(), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-') {
            self.skip();
        }
        self.since(start)
    }

    /// An anchor `&name` or an alias `*name`.
    pub(super) fn anchor(&mut self) -> Result<YamlTokenKind<'a>, Error> {
        let alias = self.peek_byte() == b'*';
        self.skip();
        let name = self.skip_name();
        let ended = self.is_blank_or_end(0)
            || matches!(self.peek_byte(), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ended {
            return Err(self.problem("did not find expected alphabetic or numeric character"));
        }
        Ok(if alias { YamlTokenKind::Alias(name) } else { YamlTokenKind::Anchor(name) })
    }

    /// A tag: `!<uri>`, `!handle!suffix`, `!suffix` or `!`.
    pub(super) fn tag(&mut self) -> Result<YamlTokenKind<'a>, Error> {
        let sign = if self.ahead(1) == b'<' {
            self.skip();
            self.skip();
            let suffix = self.uri("", false)?;
            if self.peek_byte() != b'>' {
                return Err(self.problem("did not find the expected '>'"));
            }
            self.skip();
            YamlTokenKind::Tag { handle: String::new(), suffix }
        } else {
            let handle = self.tag_handle(false)?;
            if handle.len() > 1 && handle.ends_with('!') {
                YamlTokenKind::Tag { handle: handle.to_owned(), suffix: self.uri("", false)? }
            } else {
                let suffix = self.uri(handle.strip_prefix('!').unwrap_or_default(), true)?;
                if suffix.is_empty() {
                    YamlTokenKind::Tag { handle: String::new(), suffix: "!".to_owned() }
                } else {
                    YamlTokenKind::Tag { handle: "!".to_owned(), suffix }
                }
            }
        };
        if !self.is_blank_or_end(0) {
            return Err(self.problem("did not find expected whitespace or line break"));
        }
        Ok(sign)
    }

    fn tag_handle(&mut self, directive: bool) -> Result<&'a str, Error> {
        let start = self.at;
        if self.peek_byte() != b'!' {
            return Err(self.problem("did not find expected '!'"));
        }
        self.skip();
        self.skip_name();
        if self.peek_byte() == b'!' {
            self.skip();
        } else if directive && self.since(start) != "!" {
            return Err(self.problem("did not find expected '!'"));
        }
        Ok(self.since(start))
    }

    /// Reads the characters of a URI and appends them to `head`.
    fn uri(&mut self, head: &str, may_be_empty: bool) -> Result<String, Error> {
        let mut uri = head.as_bytes().to_vec();
        let start = self.at;
        loop {
            match self.peek_byte() {
                b'%' => self.uri_escape(&mut uri)?,
                b if b.is_ascii_alphanumeric() || b"_-;/?:@&=+$,.!~*'()[]".contains(&b) => {
                    uri.push(b);
                    self.skip();
                }
                _ => break,
            }
        }
        if self.at == start && !may_be_empty {
            return Err(self.problem("did not find expected tag URI"));
        }
        Ok(json::lossy(&uri).into_owned())
    }

    /// Decodes one character written as `%XX` bytes.
    fn uri_escape(&mut self, uri: &mut Vec<u8>) -> Result<(), Error> {
        let mut left = None;
        while left != Some(0) {
            let (b'%', Some(high), Some(low)) =
                (self.peek_byte(), hex_digit(self.ahead(1)), hex_digit(self.ahead(2)))
            else {
                return Err(self.problem("did not find URI escaped octet"));
            };
            let octet = high << 4 | low;
            left = Some(match (left, octet) {
                (None, 0..=0x7f) => 0,
                (None, 0xc0..=0xdf) => 1,
                (None, 0xe0..=0xef) => 2,
                (None, 0xf0..=0xf7) => 3,
                (None, _) => return Err(self.problem("found an incorrect leading UTF-8 octet")),
                (Some(left), 0x80..=0xbf) => left - 1,
                (Some(_), _) => return Err(self.problem("found an incorrect trailing UTF-8 octet")),
            });
            uri.push(octet);
            for _ in 0..3 {
                self.skip();
            }
        }
        Ok(())
    }

    /// A directive, `%YAML 1.1` or `%TAG !handle! prefix`, up to the end of its line.
    pub(super) fn directive(&mut self) -> Result<YamlTokenKind<'a>, Error> {
        self.skip();
        let name = self.skip_name();
        if name.is_empty() {
            return Err(self.problem("could not find expected directive name"));
        }
        if !self.is_blank_or_end(0) {
            return Err(self.problem("found unexpected non-alphabetical character"));
        }
        let sign = match name {
            "YAML" => {
                self.skip_blanks();
                let major = self.version_number()?;
                if self.peek_byte() != b'.' {
                    return Err(self.problem("did not find expected digit or '.' character"));
                }
                self.skip();
                YamlTokenKind::Version(major, self.version_number()?)
            }
            "TAG" => {
                self.skip_blanks();
                let handle = self.tag_handle(true)?.to_owned();
                if !self.is_blank() {
                    return Err(self.problem("did not find expected whitespace"));
                }
                self.skip_blanks();
                let prefix = self.uri("", false)?;
                if !self.is_blank_or_end(0) {
                    return Err(self.problem("did not find expected whitespace or line break"));
                }
                YamlTokenKind::TagDirective { handle, prefix }
            }
            _ => return Err(self.problem("found unknown directive name")),
        };
        self.skip_line_end()?;
        Ok(sign)
    }

    fn version_number(&mut self) -> Result<u32, Error> {
        let start = self.at;
        while self.peek_byte().is_ascii_digit() {
            if self.at - start == 2 {
                return Err(self.problem("found extremely long version number"));
            }
            self.skip();
        }
        self.since(start).parse().map_err(|_| self.problem("did not find expected version number"))
    }
}

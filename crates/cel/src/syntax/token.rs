//! Tokens, with the names and numbers ANTLR gives them in CEL's grammar: its messages list and sort tokens by these.

/// Words that may not name variables or functions, though the grammar has no other use for them.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// Whether CEL keeps a word for itself: a reserved one, or one of its literals and operators.
pub fn is_reserved(word: &str) -> bool {
    matches!(word, "true" | "false" | "null" | "in") || RESERVED.contains(&word)
}

/// The kind of a token. The order is the grammar's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
}

impl Kind {
    /// How ANTLR shows the kind in a list of expected tokens.
    pub(crate) fn display(self) -> &'static str {
        match self {
            Kind::Eof => "<EOF>",
            Kind::Equals => "'=='",
            Kind::NotEquals => "'!='",
            Kind::In => "'in'",
            Kind::Less => "'<'",
            Kind::LessEquals => "'<='",
            Kind::GreaterEquals => "'>='",
            Kind::Greater => "'>'",
            Kind::And => "'&&'",
            Kind::Or => "'||'",
            Kind::LeftBracket => "'['",
            Kind::RightBracket => "']'",
            Kind::LeftBrace => "'{'",
            Kind::RightBrace => "'}'",
            Kind::LeftParen => "'('",
            Kind::RightParen => "')'",
            Kind::Dot => "'.'",
            Kind::Comma => "','",
            Kind::Minus => "'-'",
            Kind::Not => "'!'",
            Kind::Question => "'?'",
            Kind::Colon => "':'",
            Kind::Plus => "'+'",
            Kind::Star => "'*'",
            Kind::Slash => "'/'",
            Kind::Percent => "'%'",
            Kind::True => "'true'",
            Kind::False => "'false'",
            Kind::Null => "'null'",
            Kind::Float => "NUM_FLOAT",
            Kind::Int => "NUM_INT",
            Kind::Uint => "NUM_UINT",
            Kind::String => "STRING",
            Kind::Bytes => "BYTES",
            Kind::Identifier => "IDENTIFIER",
            Kind::EscapedIdentifier => "ESC_IDENTIFIER",
        }
    }
}

/// A token: its kind and where it is, in bytes and in code points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Byte range in the source.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Code-point offset of the start.
    pub(crate) offset: u32,
}

impl Token {
    /// The token's text.
    pub(crate) fn text<'s>(&self, source: &'s str) -> &'s str {
        source.get(self.start..self.end).unwrap_or_default()
    }
}

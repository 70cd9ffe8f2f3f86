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
pub(crate) enum TokenKind {
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

impl TokenKind {
    /// How ANTLR shows the kind in a list of expected tokens.
    pub(crate) fn display(self) -> &'static str {
        match self {
            TokenKind::Eof => "<EOF>",
            TokenKind::Equals => "'=='",
            TokenKind::NotEquals => "'!='",
            TokenKind::In => "'in'",
            TokenKind::Less => "'<'",
            TokenKind::LessEquals => "'<='",
            TokenKind::GreaterEquals => "'>='",
            TokenKind::Greater => "'>'",
            TokenKind::And => "'&&'",
            TokenKind::Or => "'||'",
            TokenKind::LeftBracket => "'['",
            TokenKind::RightBracket => "']'",
            TokenKind::LeftBrace => "'{'",
            TokenKind::RightBrace => "'}'",
            TokenKind::LeftParen => "'('",
            TokenKind::RightParen => "')'",
            TokenKind::Dot => "'.'",
            TokenKind::Comma => "','",
            TokenKind::Minus => "'-'",
            TokenKind::Not => "'!'",
            TokenKind::Question => "'?'",
            TokenKind::Colon => "':'",
            TokenKind::Plus => "'+'",
            TokenKind::Star => "'*'",
            TokenKind::Slash => "'/'",
            TokenKind::Percent => "'%'",
            TokenKind::True => "'true'",
            TokenKind::False => "'false'",
            TokenKind::Null => "'null'",
            TokenKind::Float => "NUM_FLOAT",
            TokenKind::Int => "NUM_INT",
            TokenKind::Uint => "NUM_UINT",
            TokenKind::String => "STRING",
            TokenKind::Bytes => "BYTES",
            TokenKind::Identifier => "IDENTIFIER",
            TokenKind::EscapedIdentifier => "ESC_IDENTIFIER",
        }
    }
}

/// A token: its kind and where it is, in bytes and in code points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
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

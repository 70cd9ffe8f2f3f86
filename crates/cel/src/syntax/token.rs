//! Tokens, ordered and named as in ANTLR's grammar, because error messages list them.

/// Reserved words: no variable or function may have these names.
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

/// True for reserved words, and for the words of literals and operators (`true`, `null`, `in`).
pub fn is_reserved(word: &str) -> bool {
    matches!(word, "true" | "false" | "null" | "in") || RESERVED.contains(&word)
}

/// Token kinds, in the grammar's order.
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
    /// Formats the kind as ANTLR does in lists of expected tokens.
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

/// A token with its source position, in bytes and in code points.
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
    /// The source text of the token.
    pub(crate) fn text<'s>(&self, source: &'s str) -> &'s str {
        source.get(self.start..self.end).unwrap_or_default()
    }
}

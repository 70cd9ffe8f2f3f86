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

/// Declares the token kinds in the grammar's order, each with its name in ANTLR's lists of expected tokens.
macro_rules! token_kinds {
    ($($kind:ident => $name:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub(crate) enum TokenKind {
            $($kind,)+
        }

        impl TokenKind {
            /// All kinds, in the grammar's order.
            pub(crate) const ALL: &[TokenKind] = &[$(TokenKind::$kind,)+];

            /// Formats the kind as ANTLR does in lists of expected tokens.
            pub(crate) fn display(self) -> &'static str {
                match self {
                    $(TokenKind::$kind => $name,)+
                }
            }
        }
    };
}

token_kinds! {
    Eof => "<EOF>",
    Equals => "'=='",
    NotEquals => "'!='",
    In => "'in'",
    Less => "'<'",
    LessEquals => "'<='",
    GreaterEquals => "'>='",
    Greater => "'>'",
    And => "'&&'",
    Or => "'||'",
    LeftBracket => "'['",
    RightBracket => "']'",
    LeftBrace => "'{'",
    RightBrace => "'}'",
    LeftParen => "'('",
    RightParen => "')'",
    Dot => "'.'",
    Comma => "','",
    Minus => "'-'",
    Not => "'!'",
    Question => "'?'",
    Colon => "':'",
    Plus => "'+'",
    Star => "'*'",
    Slash => "'/'",
    Percent => "'%'",
    True => "'true'",
    False => "'false'",
    Null => "'null'",
    Float => "NUM_FLOAT",
    Int => "NUM_INT",
    Uint => "NUM_UINT",
    String => "STRING",
    Bytes => "BYTES",
    Identifier => "IDENTIFIER",
    EscapedIdentifier => "ESC_IDENTIFIER",
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
    pub(crate) fn text<'s>(&self, source: &'s str) -> &'s str {
        source.get(self.start..self.end).unwrap_or_default()
    }
}

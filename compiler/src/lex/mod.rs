//! The scanner: bytes to tokens.
//!
//! Lossless: every byte belongs to exactly one token, blanks and comments included. It cannot fail: bytes
//! that start no token become an error token, which [`report`] turns into a diagnostic. The values of
//! literals are in `literal`.

mod characters;
pub mod literal;

use crate::diag::{Diagnostic, Diagnostics};
use crate::source::{FileId, Span};

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Spaces and tabs; also a byte order mark at the start of the file.
    Blank,
    /// LF, CR or CRLF.
    LineEnd,
    /// From `//` to before the line end; a first line that begins with `#!`.
    Comment,
    /// A name that is not reserved.
    Ident,
    /// A word that is reserved.
    Keyword(Keyword),
    /// An integer literal, without sign.
    Int,
    /// A string literal with its quotes.
    Str,
    /// A character literal with its quotes.
    Char,
    /// An operator or punctuation mark.
    Punct(Punct),
    /// Bytes that are not a valid token.
    Error(LexError),
    /// The end of the file; empty.
    End,
}

/// The reason why bytes are not a valid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LexError {
    /// A byte that starts no token.
    Stray,
    /// A string without its closing quote.
    OpenString,
    /// The empty character literal `''`.
    EmptyChar,
    /// A character literal that is not one byte or one known escape.
    BadChar,
}

/// A token with its source range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The kind of the token.
    pub kind: TokenKind,
    /// The bytes of the token.
    pub span: Span,
}

macro_rules! spellings {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the spelling says it")]
        pub enum $name { $($variant,)+ }

        impl $name {
            /// All values, in order of declaration.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// Returns the token as spelled in the source.
            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// Returns the value with this spelling; none if there is none.
            fn of(text: &[u8]) -> Option<$name> {
                match std::str::from_utf8(text).ok()? {
                    $($text => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

spellings! {
    /// The 45 reserved words of the language.
    Keyword {
        Fn "fn", Extern "extern", Include "include", Import "import", From "from", Pin "pin", Local "local",
        Config "config", Type "type", Struct "struct", Enum "enum", Impl "impl", Var "var", Const "const",
        If "if", Else "else", For "for", While "while", Return "return", Break "break", Continue "continue",
        In "in", New "new", Delete "delete", Try "try", Catch "catch", Throw "throw", Defer "defer",
        Match "match", Default "default", U8 "u8", U16 "u16", U32 "u32", U64 "u64", I8 "i8", I16 "i16",
        I32 "i32", I64 "i64", Bool "bool", Char "char", Void "void", Str "str", True "true", False "false",
        Null "null",
    }
}

impl Keyword {
    /// Keywords that are types by themselves.
    pub const SCALARS: &[Keyword] = &[
        Keyword::U8,
        Keyword::U16,
        Keyword::U32,
        Keyword::U64,
        Keyword::I8,
        Keyword::I16,
        Keyword::I32,
        Keyword::I64,
        Keyword::Bool,
        Keyword::Char,
        Keyword::Void,
    ];
}

spellings! {
    /// Operators and punctuation; those of two characters first.
    Punct {
        Arrow "->", EqEq "==", NotEq "!=", LessEq "<=", GreaterEq ">=", AndAnd "&&", OrOr "||", PlusEq "+=",
        MinusEq "-=", StarEq "*=", SlashEq "/=", PercentEq "%=",
        Eq "=", Plus "+", Minus "-", Star "*", Slash "/", Percent "%", Less "<", Greater ">", Not "!",
        And "&", At "@", Or "|", Caret "^", Tilde "~", OpenBrace "{", CloseBrace "}", OpenParen "(",
        CloseParen ")", OpenBracket "[", CloseBracket "]", Comma ",", Dot ".", Colon ":", Semicolon ";",
    }
}

/// The UTF-8 byte order mark, which some editors write at the start of a file.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The extent of a string that is not closed on its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strings {
    /// Up to the next quote, across line ends.
    Whole,
    /// To the end of its line: one of these strings has no closing quote, and it is unknown which.
    OneLine,
}

/// Splits a text into tokens. The last one is [`TokenKind::End`].
pub fn scan(file: FileId, text: &[u8]) -> Vec<Token> {
    let tokens = scan_as(file, text, Strings::Whole);
    if tokens.iter().any(|token| runs_on(token, text)) {
        scan_as(file, text, Strings::OneLine)
    } else {
        tokens
    }
}

/// Whether a string was not meant to continue on the next line: nothing closes it, or it is closed by a quote
/// that begins another string, as the text after it shows.
fn runs_on(token: &Token, text: &[u8]) -> bool {
    match token.kind {
        TokenKind::Error(LexError::OpenString) => true,
        TokenKind::Str => {
            let next_byte = text.get(token.span.end as usize).copied().unwrap_or(b' ');
            let is_text = next_byte.is_ascii_alphanumeric()
                || !next_byte.is_ascii()
                || b"_\"'%\\{<#$@".contains(&next_byte);
            is_text && text[token.span.range()].iter().any(|byte| matches!(byte, b'\r' | b'\n'))
        }
        _ => false,
    }
}

fn scan_as(file: FileId, text: &[u8], strings: Strings) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut push = |kind, len: usize, at: &mut usize| {
        debug_assert!(len > 0, "every token has bytes");
        tokens.push(Token { kind, span: Span { file, start: *at as u32, end: (*at + len) as u32 } });
        *at += len;
    };
    if text.starts_with(MARK) {
        push(TokenKind::Blank, MARK.len(), &mut at);
    }
    if text[at..].starts_with(b"#!") {
        push(TokenKind::Comment, line(&text[at..]), &mut at);
    }
    while at < text.len() {
        let (kind, len) = token(&text[at..], strings);
        push(kind, len, &mut at);
    }
    tokens.push(Token { kind: TokenKind::End, span: Span { file, start: at as u32, end: at as u32 } });
    tokens
}

/// Reports the error tokens, and text that is displayed in another order than its bytes.
pub fn report(tokens: &[Token], text: &[u8], diagnostics: &mut Diagnostics) {
    for token in tokens {
        let bytes = &text[token.span.range()];
        match token.kind {
            TokenKind::Error(error) => diagnostics.report(describe(error, token.span, bytes)),
            TokenKind::Str | TokenKind::Comment | TokenKind::Char => {
                characters::report_order(token, bytes, diagnostics);
            }
            _ => {}
        }
    }
}

/// Returns the first token of `rest`, which is not empty, and its length in bytes.
fn token(rest: &[u8], strings: Strings) -> (TokenKind, usize) {
    match rest[0] {
        b' ' | b'\t' => (TokenKind::Blank, run(rest, |byte| matches!(byte, b' ' | b'\t'))),
        b'\r' if rest.get(1) == Some(&b'\n') => (TokenKind::LineEnd, 2),
        b'\r' | b'\n' => (TokenKind::LineEnd, 1),
        b'/' if rest.get(1) == Some(&b'/') => (TokenKind::Comment, line(rest)),
        b'A'..=b'Z' | b'a'..=b'z' | b'_' => ident_or_keyword(rest),
        b'0'..=b'9' => (TokenKind::Int, number(rest)),
        b'"' => string(rest, strings),
        b'\'' => character(rest),
        _ => punct(rest),
    }
}

/// Returns the number of bytes up to the end of the line.
fn line(rest: &[u8]) -> usize {
    run(rest, |byte| !matches!(byte, b'\r' | b'\n'))
}

fn run(rest: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    rest.iter().position(|byte| !belongs(*byte)).unwrap_or(rest.len())
}

fn ident_or_keyword(rest: &[u8]) -> (TokenKind, usize) {
    let len = run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let text = &rest[..len];
    // Reserved words have at most eight letters and no capitals, so most names need no search.
    let candidate = len <= 8 && text[0].is_ascii_lowercase();
    let keyword = candidate.then(|| Keyword::of(text)).flatten();
    (keyword.map_or(TokenKind::Ident, TokenKind::Keyword), len)
}

fn number(rest: &[u8]) -> usize {
    let digits = |prefix: usize, is_digit: fn(u8) -> bool| prefix + run(&rest[prefix..], is_digit);
    let with_prefix = match rest.get(1) {
        Some(b'x' | b'X') if rest[0] == b'0' => digits(2, |byte| byte.is_ascii_hexdigit()),
        Some(b'b' | b'B') if rest[0] == b'0' => digits(2, |byte| matches!(byte, b'0' | b'1')),
        _ => 0,
    };
    if with_prefix > 2 { with_prefix } else { digits(0, |byte| byte.is_ascii_digit()) }
}

fn string(rest: &[u8], strings: Strings) -> (TokenKind, usize) {
    let end = if strings == Strings::OneLine { line(rest) } else { rest.len() };
    let mut at = 1;
    while at < end {
        match rest[at] {
            b'"' => return (TokenKind::Str, at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    (TokenKind::Error(LexError::OpenString), end)
}

fn character(rest: &[u8]) -> (TokenKind, usize) {
    let line = line(rest);
    let mut at = 1;
    while at < line && rest[at] != b'\'' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    if at >= line {
        return (TokenKind::Error(LexError::BadChar), 1);
    }
    let body = &rest[1..at];
    let kind = match literal::unescape(body) {
        _ if body.is_empty() => TokenKind::Error(LexError::EmptyChar),
        literal::Unescaped { bytes, unknown: None } if bytes.len() == 1 => TokenKind::Char,
        _ => TokenKind::Error(LexError::BadChar),
    };
    (kind, at + 1)
}

fn punct(rest: &[u8]) -> (TokenKind, usize) {
    let of_length = |len: usize| Some((TokenKind::Punct(Punct::of(rest.get(..len)?)?), len));
    let found = of_length(2).or_else(|| of_length(1));
    found.unwrap_or_else(|| (TokenKind::Error(LexError::Stray), stray(rest)))
}

/// Returns the length of a stray character in bytes, so that a multi-byte one is reported once.
fn stray(rest: &[u8]) -> usize {
    if rest[0] < 0x80 { 1 } else { 1 + run(&rest[1..], |byte| byte & 0xc0 == 0x80) }
}

fn describe(error: LexError, span: Span, bytes: &[u8]) -> Diagnostic {
    match error {
        LexError::Stray => characters::stray(span, bytes),
        LexError::OpenString => Diagnostic::error(105, span, "string is not closed")
            .label("its line has no closing quote")
            .help("add a closing `\"`"),
        LexError::EmptyChar => Diagnostic::error(103, span, "empty character literal")
            .help("write `'\\0'` for the zero byte, or `\"\"` for an empty string"),
        LexError::BadChar => {
            Diagnostic::error(104, span, "a character literal holds one byte or one known escape")
                .note(r"escapes are \\ \' \n \t \r \0 \xHH and \x with two hexadecimal digits")
                .help("use a string for more than one byte")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceMap;

    fn kinds(text: &str) -> Vec<(TokenKind, String)> {
        let file = SourceMap::default().add("t", text).expect("short");
        let tokens = scan(file, text.as_bytes());
        let spelled: String = tokens.iter().map(|token| &text[token.span.range()]).collect();
        assert_eq!(spelled, text, "every byte belongs to one token");
        tokens
            .iter()
            .filter(|token| !matches!(token.kind, TokenKind::Blank | TokenKind::End))
            .map(|token| (token.kind, text[token.span.range()].to_owned()))
            .collect()
    }

    #[test]
    fn numbers_end_where_their_digits_end() {
        let texts = |text| kinds(text).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts("0x1F 0X1f 0b101 007"), ["0x1F", "0X1f", "0b101", "007"]);
        assert_eq!(texts("0o17 1_000 1.5 0x"), ["0", "o17", "1", "_000", "1", ".", "5", "0", "x"]);
    }

    #[test]
    fn ranges_are_dots_and_arrows_are_one() {
        let texts: Vec<_> = kinds("0..9 a->b a- >b").into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["0", ".", ".", "9", "a", "->", "b", "a", "-", ">", "b"]);
    }

    #[test]
    fn there_are_45_keywords() {
        assert_eq!(Keyword::ALL.len(), 45);
        assert_eq!(kinds("loop")[0].0, TokenKind::Ident);
        assert_eq!(kinds("local")[0].0, TokenKind::Keyword(Keyword::Local));
    }

    #[test]
    fn broken_literals_are_error_tokens() {
        let kind = |text| kinds(text)[0].0;
        assert_eq!(kind("''"), TokenKind::Error(LexError::EmptyChar));
        assert_eq!(kind("'ab'"), TokenKind::Error(LexError::BadChar));
        assert_eq!(kind("'\u{e9}'"), TokenKind::Error(LexError::BadChar));
        assert_eq!(kind(r"'\q'"), TokenKind::Error(LexError::BadChar));
        assert_eq!(kind(r"'\x41'"), TokenKind::Char);
        assert_eq!(kind("\"open"), TokenKind::Error(LexError::OpenString));
        assert_eq!(kind("\"line\nend\""), TokenKind::Str);
        assert_eq!(kinds("\u{e9};").len(), 2, "a stray character is one token");
    }

    #[test]
    fn an_unclosed_string_ends_at_its_line() {
        let all = kinds("f(\"one)\nvar x = \"two\"\r\ng()");
        let texts: Vec<_> = all.iter().map(|(_, text)| text.as_str()).collect();
        let wanted = ["f", "(", "\"one)", "\n", "var", "x", "=", "\"two\"", "\r\n", "g", "(", ")"];
        assert_eq!(texts, wanted);
        assert_eq!(all[2].0, TokenKind::Error(LexError::OpenString));
        let two = kinds("f(\"one)\ng(\"two)\n");
        assert_eq!(two.iter().filter(|(kind, _)| *kind == TokenKind::Error(LexError::OpenString)).count(), 2);
        assert_eq!(kinds("f(\"one\ntwo\")").len(), 4, "a string may have several lines");
        assert_eq!(kinds("\"back\\")[0].1, "\"back\\", "a backslash at the end escapes nothing");
        assert_eq!(kinds("\"back\\\nx")[0].1, "\"back\\");
    }

    #[test]
    fn a_byte_order_mark_and_a_first_line_for_the_shell_say_nothing() {
        assert_eq!(kinds("\u{feff}x"), [(TokenKind::Ident, "x".to_owned())]);
        for text in ["#!/usr/bin/env ks-host\nx", "\u{feff}#!/usr/bin/env ks-host\nx"] {
            let found = kinds(text);
            assert_eq!(found[0], (TokenKind::Comment, "#!/usr/bin/env ks-host".to_owned()));
            assert_eq!(found.len(), 3);
        }
        for text in ["x\u{feff}", " #!x", "x\n#!x"] {
            assert!(kinds(text).iter().any(|(kind, _)| matches!(kind, TokenKind::Error(_))), "{text:?}");
        }
    }
}

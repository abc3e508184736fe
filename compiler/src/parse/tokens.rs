//! Tokens without blanks and comments, each with the layout around it.

use super::Options;
use crate::lex::{LexError, Punct, Token, TokenKind};
use crate::source::Span;

/// A token other than a blank or comment, and its layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub kind: TokenKind,
    pub span: Span,
    /// Whether it is the first token of its line.
    pub starts_line: bool,
    /// Whether it directly follows the token before it.
    pub joined: bool,
    /// Whether it stands in the first column.
    pub flush: bool,
    /// Whether the scanner reported an error before it on its line.
    pub suspect: bool,
    /// Whether it is an unclosed string, which includes the rest of its line.
    pub open: bool,
}

/// The input of the parser.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    pub items: Vec<Item>,
    /// The `///` lines directly above a token, with its index, in order.
    pub docs: Vec<(usize, String)>,
    /// Whether a string is not closed.
    pub open_string: bool,
}

/// Removes blanks, comments and stray characters (which the scanner reports). For KernelScript 0.1.1 a `;` is
/// a stray character.
pub(super) fn meaningful(tokens: &[Token], text: &[u8], options: Options) -> Tokens {
    let mut found = Tokens { items: Vec::with_capacity(tokens.len() / 2 + 1), ..Tokens::default() };
    let (mut starts_line, mut joined, mut flush, mut suspect) = (true, false, true, false);
    let mut docs = DocLines::default();
    for token in tokens {
        match token.kind {
            TokenKind::LineEnd => {
                (starts_line, joined, flush, suspect) = (true, false, true, false);
                docs.line_end();
            }
            TokenKind::Comment => {
                docs.comment(&text[token.span.range()], starts_line);
                (joined, flush) = (false, false);
            }
            // A byte order mark is not a blank: the first token stays in the first column.
            TokenKind::Blank if token.span.start == 0 && text[0] == 0xef => {}
            TokenKind::Blank => (joined, flush) = (false, false),
            TokenKind::Error(LexError::Stray) => (joined, flush, suspect) = (false, false, true),
            TokenKind::Punct(Punct::Semicolon) if options.strict_011 => {
                (joined, flush, suspect) = (false, false, true);
            }
            kind => {
                if let Some(lines) = docs.take() {
                    found.docs.push((found.items.len(), lines));
                }
                let broken = matches!(kind, TokenKind::Error(_));
                let open = kind == TokenKind::Error(LexError::OpenString);
                found.open_string |= open;
                let kind = intended(kind);
                found.items.push(Item { kind, span: token.span, starts_line, joined, flush, suspect, open });
                suspect |= broken;
                (starts_line, joined, flush) = (false, true, false);
            }
        }
    }
    found
}

/// Returns the kind of literal that a broken one, which the scanner reports, was meant to be.
fn intended(kind: TokenKind) -> TokenKind {
    match kind {
        TokenKind::Error(LexError::OpenString) => TokenKind::Str,
        TokenKind::Error(LexError::EmptyChar | LexError::BadChar) => TokenKind::Char,
        kind => kind,
    }
}

/// Doc comments that may belong to the next token.
#[derive(Debug, Default)]
struct DocLines {
    lines: Vec<String>,
    /// Whether the current line has a token or comment on it.
    filled: bool,
}

impl DocLines {
    fn line_end(&mut self) {
        if !std::mem::take(&mut self.filled) {
            self.lines.clear();
        }
    }

    fn comment(&mut self, text: &[u8], starts_line: bool) {
        self.filled = true;
        match text.strip_prefix(b"///") {
            Some(line) if starts_line && line.first() != Some(&b'/') => {
                let line = line.strip_prefix(b" ").unwrap_or(line).trim_ascii_end();
                self.lines.push(String::from_utf8_lossy(line).into_owned());
            }
            _ => self.lines.clear(),
        }
    }

    /// Returns and clears the lines directly above the current token.
    fn take(&mut self) -> Option<String> {
        self.filled = true;
        let lines = std::mem::take(&mut self.lines);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

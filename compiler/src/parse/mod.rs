//! The parser: tokens to a syntax tree. Recursive descent, one file per area of the grammar.
//!
//! It always gives a tree, plus diagnostics. A declaration or statement that cannot be read is left out, and reading
//! goes on at the next one, so that several independent errors are found in one run. Line ends have no meaning, but
//! where a line continues the one above in a surprising way a warning says so.

mod expressions;
mod items;
mod statements;
mod types;

use crate::ast::{File, Ident, IntLit, StrLit};
use crate::diag::{Diagnostic, Diagnostics};
use crate::lex::{Keyword, LexError, Punct, Token, TokenKind, literal};
use crate::source::Span;

/// Blocks, parentheses and types may nest this deep. Guards the parser's own stack and that of every later stage.
const MAX_DEPTH: u32 = 128;

/// A declaration, statement or expression that could not be read; the reason is reported.
#[derive(Debug)]
struct Unreadable;

type Parsed<T> = Result<T, Unreadable>;

/// A token that means something, and how it stands.
#[derive(Debug, Clone, Copy)]
struct Item {
    kind: TokenKind,
    span: Span,
    /// The first token of its line.
    starts_line: bool,
    /// Nothing stands between it and the token before.
    joined: bool,
}

struct Parser<'a> {
    text: &'a [u8],
    tokens: Vec<Item>,
    at: usize,
    depth: u32,
    /// Inside parentheses or brackets, where a line end is no surprise.
    enclosed: u32,
    /// That the file ends too early was reported.
    ended: bool,
    diagnostics: Diagnostics,
}

/// Parses the tokens of a file.
pub fn parse(tokens: &[Token], text: &[u8], diagnostics: &mut Diagnostics) -> File {
    let mut parser = Parser {
        text,
        tokens: meaningful(tokens),
        at: 0,
        depth: 0,
        enclosed: 0,
        ended: false,
        diagnostics: std::mem::take(diagnostics),
    };
    let file = parser.file();
    *diagnostics = parser.diagnostics;
    file
}

/// The tokens without blanks, comments and stray characters (which the scanner reports).
fn meaningful(tokens: &[Token]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::with_capacity(tokens.len());
    let (mut starts_line, mut joined) = (true, false);
    for token in tokens {
        match token.kind {
            TokenKind::LineEnd => (starts_line, joined) = (true, false),
            TokenKind::Blank | TokenKind::Comment | TokenKind::Error(LexError::Stray) => joined = false,
            kind => {
                items.push(Item { kind: intended(kind), span: token.span, starts_line, joined });
                (starts_line, joined) = (false, true);
            }
        }
    }
    items
}

/// A broken literal, which the scanner reports, still stands where a literal was meant.
fn intended(kind: TokenKind) -> TokenKind {
    match kind {
        TokenKind::Error(LexError::OpenString) => TokenKind::Str,
        TokenKind::Error(LexError::EmptyChar | LexError::BadChar) => TokenKind::Char,
        kind => kind,
    }
}

impl Parser<'_> {
    fn item(&self) -> Item {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Item {
        self.tokens[(self.at + count).min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.item().kind
    }

    fn span(&self) -> Span {
        self.item().span
    }

    /// The span of the token before this one.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn advance(&mut self) -> Item {
        let item = self.item();
        if item.kind != TokenKind::End {
            self.at += 1;
        }
        item
    }

    fn at_end(&self) -> bool {
        self.kind() == TokenKind::End
    }

    fn at_punct(&self, punct: Punct) -> bool {
        self.kind() == TokenKind::Punct(punct)
    }

    fn at_keyword(&self, keyword: Keyword) -> bool {
        self.kind() == TokenKind::Keyword(keyword)
    }

    fn eat_punct(&mut self, punct: Punct) -> bool {
        let found = self.at_punct(punct);
        if found {
            self.advance();
        }
        found
    }

    fn eat_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.at_keyword(keyword);
        if found {
            self.advance();
        }
        found
    }

    fn expect_punct(&mut self, punct: Punct) -> Parsed<Span> {
        if self.at_punct(punct) {
            return Ok(self.advance().span);
        }
        self.unexpected(&format!("`{}`", punct.text()))
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Parsed<Span> {
        if self.at_keyword(keyword) {
            return Ok(self.advance().span);
        }
        self.unexpected(&format!("`{}`", keyword.text()))
    }

    fn ident(&mut self, what: &str) -> Parsed<Ident> {
        if self.kind() == TokenKind::Ident {
            let span = self.advance().span;
            return Ok(Ident { name: self.spelling(span), span });
        }
        if let TokenKind::Keyword(keyword) = self.kind() {
            let text = format!("expected {what}, found `{}`", keyword.text());
            self.report(
                Diagnostic::error(201, self.span(), text)
                    .label("this word is reserved")
                    .help("choose another name"),
            );
            return Err(Unreadable);
        }
        self.unexpected(what)
    }

    /// A field's name: an identifier, or the word `type`.
    fn field_name(&mut self) -> Parsed<Ident> {
        if self.at_keyword(Keyword::Type) {
            return Ok(Ident { name: "type".into(), span: self.advance().span });
        }
        self.ident("a field name")
    }

    fn string(&mut self, what: &str) -> Parsed<StrLit> {
        if self.kind() != TokenKind::Str {
            return self.unexpected(what);
        }
        let span = self.advance().span;
        Ok(StrLit { bytes: self.string_bytes(span), span })
    }

    fn string_bytes(&self, span: Span) -> Vec<u8> {
        let quoted = &self.text[span.range()];
        // A literal that is not closed has no second quote.
        literal::unescape(quoted.get(1..quoted.len() - 1).unwrap_or_default()).bytes
    }

    /// An integer literal, with a sign if `signed`.
    fn int(&mut self, what: &str, signed: bool) -> Parsed<IntLit> {
        let first = self.span();
        let negative = signed && self.eat_punct(Punct::Minus);
        if self.kind() != TokenKind::Int {
            return self.unexpected(what);
        }
        let span = self.advance().span;
        Ok(IntLit { value: self.int_value(span), negative, span: first.to(span) })
    }

    fn int_value(&mut self, span: Span) -> u64 {
        literal::integer(&self.text[span.range()]).unwrap_or_else(|| {
            let digits = self.spelling(span);
            self.report(
                Diagnostic::error(102, span, "integer literal does not fit 64 bits")
                    .label(format!("`{digits}` is above {}", u64::MAX)),
            );
            0
        })
    }

    fn spelling(&self, span: Span) -> String {
        String::from_utf8_lossy(&self.text[span.range()]).into_owned()
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.report(diagnostic);
    }

    /// Reports, once, that the file ends inside what began at `open`.
    fn ends_inside<T>(&mut self, open: Span, what: &str) -> Parsed<T> {
        if !std::mem::replace(&mut self.ended, true) {
            let text = "expected `}`, found the end of the file";
            self.report(Diagnostic::error(201, self.span(), text).also(open, what));
        }
        Err(Unreadable)
    }

    /// Reports that something else stands here.
    fn unexpected<T>(&mut self, expected: &str) -> Parsed<T> {
        let item = self.item();
        if item.kind == TokenKind::End && std::mem::replace(&mut self.ended, true) {
            return Err(Unreadable);
        }
        let found = match item.kind {
            TokenKind::End => "the end of the file".to_owned(),
            _ => format!("`{}`", self.spelling(item.span)),
        };
        let mut diagnostic = Diagnostic::error(201, item.span, format!("expected {expected}, found {found}"));
        if item.starts_line && self.at > 0 {
            diagnostic = diagnostic.also(self.last_span(), "after this");
        }
        self.report(diagnostic);
        Err(Unreadable)
    }

    /// Runs `inner` one level deeper, or reports that the text nests too deep.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            let text = format!("blocks and parentheses nest more than {MAX_DEPTH} deep");
            self.report(Diagnostic::error(201, self.span(), text));
            self.skip_to_end();
            self.ended = true;
            return Err(Unreadable);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Runs `inner` between parentheses or brackets.
    fn enclosed<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let outside = std::mem::replace(&mut self.enclosed, 1);
        let result = self.deeper(inner);
        self.enclosed = outside;
        result
    }

    /// Items separated by commas, up to `close`, which is taken. One comma may trail.
    fn list<T>(
        &mut self,
        close: Punct,
        mut element: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<(Vec<T>, Span)> {
        let mut elements = Vec::new();
        loop {
            if self.at_punct(close) {
                return Ok((elements, self.advance().span));
            }
            elements.push(element(self)?);
            if !self.eat_punct(Punct::Comma) && !self.at_punct(close) {
                return self.unexpected(&format!("`,` or `{}`", close.text()));
            }
        }
    }

    fn skip_to_end(&mut self) {
        self.at = self.tokens.len() - 1;
    }

    /// Goes to the next token at which `stops` holds, passing over whole `{ }` pairs. Never beyond the `}` that closes
    /// the block in which it began.
    fn skip_until(&mut self, stops: impl Fn(&Self) -> bool) {
        let mut open = 0u32;
        while !self.at_end() {
            match self.kind() {
                _ if open == 0 && stops(self) => return,
                TokenKind::Punct(Punct::OpenBrace) => open += 1,
                TokenKind::Punct(Punct::CloseBrace) if open == 0 => return,
                TokenKind::Punct(Punct::CloseBrace) => open -= 1,
                _ => {}
            }
            self.advance();
        }
    }
}

//! The parser: tokens to a syntax tree. Recursive descent, one file per area of the grammar.
//!
//! It always returns a tree, plus diagnostics. A declaration or statement with a syntax error is left out,
//! and parsing continues at the next one, so that one run reports several independent errors. Line ends have
//! no meaning, but a warning reports a line that continues the one above in a surprising form.

mod atoms;
mod expressions;
mod globals;
mod items;
mod recovery;
mod statements;
mod strict;
mod tokens;
mod types;

use crate::ast::{File, Ident, IntLit, StrLit};
use crate::diag::{Diagnostic, Diagnostics};
use crate::lex::{Keyword, Punct, Token, TokenKind, literal};
use crate::source::Span;
use tokens::Item;

/// Maximum nesting depth of blocks, parentheses and types. Guards the stack of the parser and of every later
/// stage.
const MAX_DEPTH: u32 = 64;

/// Maximum number of operators in a row in one expression, and of `else if` in a row: `a + b + c` is as deep
/// a tree as `((a))`.
const MAX_CHAIN: u32 = 256;

/// Error value for a declaration, statement or expression that cannot be parsed; the reason is already
/// reported.
#[derive(Debug)]
struct Unreadable;

type Parsed<T> = Result<T, Unreadable>;

/// Options of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Rejects whatever KernelScript 0.1.1 cannot parse.
    pub strict_011: bool,
}

struct Parser<'a> {
    text: &'a [u8],
    options: Options,
    tokens: tokens::Tokens,
    at: usize,
    depth: u32,
    /// The operator depth of the expression parsed last, beyond the levels that `depth` counts.
    chain: u32,
    /// Nonzero inside parentheses or brackets, where a line end is no surprise.
    enclosed: u32,
    /// Set inside a type after `as`.
    in_cast: bool,
    /// Set inside the type of a `local` variable or map.
    in_local: bool,
    /// Set inside the value of a map.
    in_map: bool,
    /// Set when the premature end of the file was reported, or follows from an error already reported.
    ended: bool,
    /// The index of the token before which an unclosed block was reported; none before that.
    unclosed_at: Option<usize>,
    diagnostics: Diagnostics,
}

/// Parses the tokens of a file.
pub fn parse(tokens: &[Token], text: &[u8], diagnostics: &mut Diagnostics) -> File {
    parse_with(tokens, text, Options::default(), diagnostics)
}

/// Parses the tokens of a file with options.
pub fn parse_with(tokens: &[Token], text: &[u8], options: Options, diagnostics: &mut Diagnostics) -> File {
    if options.strict_011 {
        strict::report_semicolons(tokens, diagnostics);
    }
    let tokens = tokens::meaningful(tokens, text, options);
    let mut parser = Parser {
        text,
        options,
        ended: tokens.open_string,
        tokens,
        at: 0,
        depth: 0,
        chain: 0,
        enclosed: 0,
        in_cast: false,
        in_local: false,
        in_map: false,
        unclosed_at: None,
        diagnostics: std::mem::take(diagnostics),
    };
    let file = parser.file();
    *diagnostics = parser.diagnostics;
    file
}

impl Parser<'_> {
    fn item(&self) -> Item {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Item {
        self.tokens.items[(self.at + count).min(self.tokens.items.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.item().kind
    }

    fn span(&self) -> Span {
        self.item().span
    }

    /// Returns the span of the token before this one.
    fn last_span(&self) -> Span {
        self.tokens.items[self.at.saturating_sub(1)].span
    }

    fn advance(&mut self) -> Item {
        let item = self.item();
        if item.kind != TokenKind::End {
            self.at += 1;
        }
        item
    }

    fn skip(&mut self, tokens: usize) {
        for _ in 0..tokens {
            self.advance();
        }
    }

    fn at_end(&self) -> bool {
        self.kind() == TokenKind::End
    }

    fn at_punct(&self, punct: Punct) -> bool {
        self.kind() == TokenKind::Punct(punct)
    }

    fn punct_ahead(&self, count: usize, punct: Punct) -> bool {
        self.ahead(count).kind == TokenKind::Punct(punct)
    }

    /// Whether `punct` stands `count` tokens ahead and touches the token before it.
    fn joined_ahead(&self, count: usize, punct: Punct) -> bool {
        self.punct_ahead(count, punct) && self.ahead(count).joined
    }

    fn at_keyword(&self, keyword: Keyword) -> bool {
        self.kind() == TokenKind::Keyword(keyword)
    }

    /// Whether a name with this spelling stands `count` tokens ahead. For words that are not reserved.
    fn ident_ahead(&self, count: usize, name: &str) -> bool {
        let item = self.ahead(count);
        item.kind == TokenKind::Ident && &self.text[item.span.range()] == name.as_bytes()
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

    /// Parses a field's name: an identifier, or the word `type`.
    fn field_name(&mut self) -> Parsed<Ident> {
        if self.at_keyword(Keyword::Type) {
            return Ok(Ident { name: "type".into(), span: self.advance().span });
        }
        self.ident("a field name")
    }

    /// Parses the name of a member behind `.` or `->`: kernel structs have members named like words of the
    /// language (`attr.config`). On the next line such a word starts a statement.
    fn member_name(&mut self) -> Parsed<Ident> {
        let TokenKind::Keyword(keyword) = self.kind() else { return self.ident("a field name") };
        if self.item().starts_line {
            return self.field_name();
        }
        if keyword != Keyword::Type {
            self.since_011(self.span(), "reserved words as names of members");
        }
        Ok(Ident { name: keyword.text().into(), span: self.advance().span })
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
        let text = quoted.get(1..).unwrap_or_default();
        // An unclosed literal has no second quote.
        literal::unescape(text.strip_suffix(b"\"").unwrap_or(text)).bytes
    }

    /// Parses an integer literal that may have a minus.
    fn signed_int(&mut self, what: &str) -> Parsed<IntLit> {
        let first = self.span();
        let negative = self.eat_punct(Punct::Minus);
        let digits = self.int(what)?;
        Ok(IntLit { negative, span: first.to(digits.span), ..digits })
    }

    /// Parses an integer literal without a sign.
    fn int(&mut self, what: &str) -> Parsed<IntLit> {
        if self.kind() != TokenKind::Int {
            return self.unexpected(what);
        }
        self.check_number_ends()?;
        let span = self.advance().span;
        Ok(IntLit { value: self.int_value(span), negative: false, span })
    }

    /// Reports digits that run into a name: they are one wrong number, not a number and a name.
    fn check_number_ends(&mut self) -> Parsed<()> {
        let (number, next) = (self.item(), self.ahead(1));
        if !next.joined || !matches!(next.kind, TokenKind::Ident | TokenKind::Keyword(_)) {
            return Ok(());
        }
        let whole = number.span.to(next.span);
        let text = format!("expected an integer, found `{}`", self.spelling(whole));
        self.report(
            Diagnostic::error(201, whole, text).help(
                "integers are decimal, `0x` hexadecimal or `0b` binary, without separators or suffixes",
            ),
        );
        Err(Unreadable)
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

    /// Returns the doc comment above this token.
    fn docs(&self) -> Option<String> {
        let docs = &self.tokens.docs;
        let found = docs.binary_search_by_key(&self.at, |(at, _)| *at).ok()?;
        Some(docs[found].1.clone())
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.report(diagnostic);
    }

    /// Reports a token other than the expected one.
    fn unexpected<T>(&mut self, expected: &str) -> Parsed<T> {
        self.unexpected_because(expected, None)
    }

    /// Reports a token other than the expected one, with a help text. Reports nothing if that follows from an
    /// earlier error.
    fn unexpected_because<T>(&mut self, expected: &str, help: Option<&str>) -> Parsed<T> {
        let item = self.item();
        let taken = self.at > 0 && self.tokens.items[self.at - 1].open;
        if item.suspect || taken || (item.kind == TokenKind::End && std::mem::replace(&mut self.ended, true))
        {
            return Err(Unreadable);
        }
        let found = match item.kind {
            TokenKind::End => "the end of the file".to_owned(),
            _ => format!("`{}`", self.spelling(item.span)),
        };
        let mut diagnostic = Diagnostic::error(201, item.span, format!("expected {expected}, found {found}"));
        if matches!(item.kind, TokenKind::Keyword(_)) && !item.starts_line {
            diagnostic = diagnostic.label("this word is reserved");
        }
        if item.starts_line && self.at > 0 {
            diagnostic = diagnostic.also(self.last_span(), "after this");
        }
        let help = help.or_else(|| self.habit());
        self.report(diagnostic.maybe_help(help.map(str::to_owned)));
        Err(Unreadable)
    }

    /// Returns a hint for a token that is a habit from another language.
    fn habit(&self) -> Option<&'static str> {
        let TokenKind::Punct(punct) = self.kind() else { return None };
        let next = self.ahead(1);
        let joined = |wanted| next.joined && next.kind == TokenKind::Punct(wanted);
        let doubled = self.item().joined
            && self.at > 0
            && self.tokens.items[self.at - 1].kind == TokenKind::Punct(punct);
        match punct {
            Punct::Slash if joined(Punct::Star) || self.item().joined => {
                Some("a comment runs from `//` to the end of the line; there are no block comments")
            }
            Punct::Plus if doubled || joined(Punct::Plus) => Some("there is no `++`: write `x += 1`"),
            Punct::Dot if joined(Punct::Dot) => Some("a range stands only in `for (i in a..b)`"),
            Punct::Eq if self.at > 1 && self.after_range() => {
                Some("the end of a range is not part of it: write `0..n + 1`")
            }
            Punct::Eq if joined(Punct::Greater) => Some("an arm is `pattern: value`"),
            Punct::Colon if joined(Punct::Eq) => Some("`var x = value` declares, `x = value` assigns"),
            Punct::Semicolon => Some("a `;` ends a statement; elements and fields are separated by `,`"),
            _ => None,
        }
    }

    /// Whether the two tokens before this one are the dots of a range.
    fn after_range(&self) -> bool {
        self.tokens.items[self.at - 2..self.at].iter().all(|item| item.kind == TokenKind::Punct(Punct::Dot))
    }

    /// Skips any `;` between statements or declarations.
    fn eat_semicolons(&mut self) {
        while self.eat_punct(Punct::Semicolon) {}
    }

    /// Runs `inner` one level deeper, or reports that the text nests too deep.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            let text = format!("blocks and parentheses nest more than {MAX_DEPTH} deep");
            return self.too_deep(self.span(), text);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Abandons the rest of the file: it lies inside the text that nests too deep.
    fn too_deep<T>(&mut self, span: Span, text: String) -> Parsed<T> {
        self.report(Diagnostic::error(201, span, text));
        self.at = self.tokens.items.len() - 1;
        self.ended = true;
        Err(Unreadable)
    }

    /// Counts one more operator around the current expression, and reports an error above [`MAX_CHAIN`].
    fn link(&mut self) -> Parsed<()> {
        self.chain += 1;
        if self.chain > MAX_CHAIN {
            let text = format!("more than {MAX_CHAIN} of these in a row");
            return self.too_deep(self.span(), text);
        }
        Ok(())
    }

    /// Runs `inner` between parentheses or brackets.
    fn enclosed<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let outside = std::mem::replace(&mut self.enclosed, 1);
        let result = inner(self);
        self.enclosed = outside;
        result
    }

    /// Parses items separated by commas up to and including `close`. One trailing comma is allowed.
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
}

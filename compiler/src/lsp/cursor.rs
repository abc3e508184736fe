//! The tokens around the cursor. Uses tokens alone, so it works in any text with errors.

use crate::facts::syntactic::Unit;
use crate::facts::{DefId, DefKind, Facts, Ty};
use crate::lex::{Keyword, LexError, Punct, Token, TokenKind};
use crate::source::Span;

/// The tokens before the cursor, and the brackets around it.
pub struct Cursor<'a> {
    unit: &'a Unit,
    /// Byte offset of the cursor.
    pub offset: u32,
    /// Byte offset of the word that is being written; the cursor, if there is none.
    pub ident_start: u32,
    /// The tokens other than blanks and comments before that word.
    pub before: Vec<Token>,
    /// Indices in `before` of the open brackets, outermost first.
    pub open: Vec<usize>,
    /// The comment or literal that contains the cursor.
    pub inside: Option<Token>,
}

impl<'a> Cursor<'a> {
    /// Creates the cursor at a byte.
    pub fn new(unit: &'a Unit, offset: u32) -> Cursor<'a> {
        let end = unit.tokens.partition_point(|token| token.span.start < offset);
        let mut tokens = &unit.tokens[..end];
        let (mut ident_start, mut inside) = (offset, None);
        if let Some((last, rest)) = tokens.split_last() {
            match last.kind {
                TokenKind::Ident | TokenKind::Keyword(_) if last.span.end >= offset => {
                    (ident_start, tokens) = (last.span.start, rest);
                }
                TokenKind::Comment | TokenKind::Error(LexError::OpenString) if last.span.end >= offset => {
                    (inside, tokens) = (Some(*last), rest);
                }
                TokenKind::Str | TokenKind::Char if last.span.end > offset => {
                    (inside, tokens) = (Some(*last), rest);
                }
                _ => {}
            }
        }
        let meaning = |token: &&Token| {
            !matches!(token.kind, TokenKind::Blank | TokenKind::LineEnd | TokenKind::Comment | TokenKind::End)
        };
        let before: Vec<Token> = tokens.iter().filter(meaning).copied().collect();
        let open = open_brackets(unit, &before);
        Cursor { unit, offset, ident_start, before, open, inside }
    }

    /// Returns the text of a token.
    pub fn text(&self, token: &Token) -> &'a str {
        spelling(self.unit, token)
    }

    /// Returns the kind of the token `count` tokens before the word; 0 is the nearest.
    pub fn back(&self, count: usize) -> Option<TokenKind> {
        let at = self.before.len().checked_sub(count + 1)?;
        self.before.get(at).map(|token| token.kind)
    }

    /// Whether the word is the first on its line.
    pub fn starts_line(&self) -> bool {
        self.begins_line(self.ident_start)
    }

    /// Whether only blanks stand before a byte on its line.
    pub fn begins_line(&self, byte: u32) -> bool {
        let before = self.unit.tokens.partition_point(|token| token.span.start < byte);
        let last = self.unit.tokens[..before].iter().rev().find(|token| token.kind != TokenKind::Blank);
        last.is_none_or(|token| token.kind == TokenKind::LineEnd)
    }

    /// Returns the token at an index in `before`.
    pub fn token(&self, at: Option<usize>) -> Option<&Token> {
        self.before.get(at?)
    }

    /// Returns the index where the chain `a.b[i].c` that ends before `end` begins; `end` if there is none.
    pub fn chain_start(&self, end: usize) -> usize {
        let mut at = end;
        loop {
            let Some(last) = at.checked_sub(1) else { return at };
            match self.before[last].kind {
                TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket) => {
                    let Some(open) = self.matching(last) else { return at };
                    at = open;
                    if !self.follows_value(at) {
                        return at;
                    }
                }
                TokenKind::Ident | TokenKind::Keyword(Keyword::Type) => {
                    at = last;
                    match at.checked_sub(1).map(|dot| self.before[dot].kind) {
                        Some(TokenKind::Punct(Punct::Dot | Punct::Arrow)) => at -= 1,
                        _ => return at,
                    }
                }
                _ => return at,
            }
        }
    }

    /// Whether a value ends before `at`, so that a bracket at `at` belongs to it.
    fn follows_value(&self, at: usize) -> bool {
        let Some(last) = at.checked_sub(1) else { return false };
        matches!(
            self.before[last].kind,
            TokenKind::Ident | TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket)
        )
    }

    /// Returns the index of the bracket that the one at `close` closes.
    pub fn matching(&self, close: usize) -> Option<usize> {
        let mut depth = 0u32;
        for at in (0..=close).rev() {
            match self.before[at].kind {
                TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket | Punct::CloseBrace) => depth += 1,
                TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket | Punct::OpenBrace) => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the definition (if it is a name) and the type of the chain between two tokens.
    pub fn value(&self, facts: &Facts, start: usize, end: usize) -> (Option<DefId>, Ty) {
        let Some(first) = self.before.get(start).filter(|_| start < end) else { return (None, Ty::Unknown) };
        let (mut known, mut at) = match first.kind {
            TokenKind::Ident => (self.name(facts, first), start + 1),
            TokenKind::Punct(Punct::OpenParen) => {
                let close = (start..end).find(|close| self.matching(*close) == Some(start) && *close > start);
                let Some(close) = close else { return (None, Ty::Unknown) };
                (self.group(facts, start + 1, close), close + 1)
            }
            _ => return (None, Ty::Unknown),
        };
        while at < end {
            let token = self.before[at];
            match token.kind {
                TokenKind::Punct(Punct::Dot | Punct::Arrow) => {
                    let Some(name) = self.before.get(at + 1) else { return (None, Ty::Unknown) };
                    known = member(facts, &known, self.text(name));
                    at += 2;
                }
                TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket) => {
                    let close = (at + 1..end).find(|close| self.matching(*close) == Some(at));
                    let Some(close) = close else { return (None, Ty::Unknown) };
                    known = match token.kind {
                        TokenKind::Punct(Punct::OpenParen) => (None, called(facts, &known)),
                        _ => (None, facts.unalias(&known.1).element()),
                    };
                    at = close + 1;
                }
                _ => return (None, Ty::Unknown),
            }
        }
        known
    }

    /// Returns the definition and the type of an expression in parentheses: a chain, possibly after `*` or
    /// `&`.
    fn group(&self, facts: &Facts, start: usize, end: usize) -> (Option<DefId>, Ty) {
        match self.before.get(start).map(|token| token.kind) {
            Some(TokenKind::Punct(Punct::Star)) => {
                let (_, ty) = self.value(facts, start + 1, end);
                (None, facts.unalias(&ty).pointee())
            }
            _ => self.value(facts, start, end),
        }
    }

    fn name(&self, facts: &Facts, token: &Token) -> (Option<DefId>, Ty) {
        let found = facts.resolve(token.span.file, self.offset, self.text(token));
        (found, value_type(facts, found))
    }

    /// Returns the text that closes an open bracket; after a condition including its block.
    fn closing(&self, at: usize) -> &'static str {
        let head = at.checked_sub(1).map(|head| self.before[head].kind);
        match (self.before[at].kind, head) {
            (TokenKind::Punct(Punct::OpenBracket), _) => "]",
            (TokenKind::Punct(Punct::OpenBrace), _) => "}",
            (_, Some(TokenKind::Keyword(Keyword::If | Keyword::While | Keyword::For))) => ") {}",
            (_, Some(TokenKind::Keyword(Keyword::Match))) => ") { default: 0 }",
            _ => ")",
        }
    }

    /// Returns the text without the word that is being written, with all open brackets closed, followed by
    /// the next declaration. Names before the cursor have the same meaning in it.
    pub fn repaired(&self, cut: u32) -> Vec<u8> {
        let text = &self.unit.text;
        let mut repaired = text[..cut as usize].to_vec();
        repaired.resize(self.offset as usize, b' ');
        for at in self.open.iter().rev().filter(|at| self.before[**at].span.start < cut) {
            repaired.extend_from_slice(self.closing(*at).as_bytes());
        }
        repaired.push(b'\n');
        repaired.extend_from_slice(&text[next_declaration(self.unit, self.offset)..]);
        repaired
    }
}

/// Returns the type of a named value; the name of a function is not the value that it returns.
fn value_type(facts: &Facts, id: Option<DefId>) -> Ty {
    match id.and_then(|id| facts.definition(id)) {
        Some(one) if !one.kind.is_function() => one.ty.clone(),
        _ => Ty::Unknown,
    }
}

fn member(facts: &Facts, base: &(Option<DefId>, Ty), name: &str) -> (Option<DefId>, Ty) {
    let found =
        members(facts, base).iter().find(|id| facts.definition(**id).is_some_and(|one| one.name == name));
    (found.copied(), value_type(facts, found.copied()))
}

/// Returns the names that may follow the dot or arrow after a value.
pub fn members<'f>(facts: &'f Facts, base: &(Option<DefId>, Ty)) -> &'f [DefId] {
    match base.0.and_then(|id| Some((id, facts.definition(id)?.kind))) {
        Some((id, DefKind::Module | DefKind::Config)) => facts.children(id),
        _ => facts.fields(&base.1),
    }
}

fn called(facts: &Facts, known: &(Option<DefId>, Ty)) -> Ty {
    match known.0.and_then(|id| facts.definition(id)) {
        Some(one) if one.kind.is_function() => one.ty.clone(),
        _ => facts.unalias(&known.1).result(),
    }
}

fn spelling<'a>(unit: &'a Unit, token: &Token) -> &'a str {
    std::str::from_utf8(unit.text.get(token.span.range()).unwrap_or_default()).unwrap_or_default()
}

/// Returns the indices of the brackets that are open after the tokens. A declaration at the start of a line
/// closes all: a missing bracket in one function does not affect the next.
fn open_brackets(unit: &Unit, tokens: &[Token]) -> Vec<usize> {
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket | Punct::OpenBrace) => open.push(at),
            TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket) => {
                open.pop();
            }
            TokenKind::Punct(Punct::CloseBrace) => {
                // A missing parenthesis inside a block ends with the block.
                while let Some(last) = open.pop() {
                    if tokens[last].kind == TokenKind::Punct(Punct::OpenBrace) {
                        break;
                    }
                }
            }
            kind if begins_declaration(kind) && first_column(unit, token.span) => open.clear(),
            _ => {}
        }
    }
    open
}

/// Whether a token can only begin a declaration.
fn begins_declaration(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Punct(Punct::At)
            | TokenKind::Keyword(
                Keyword::Fn
                    | Keyword::Struct
                    | Keyword::Enum
                    | Keyword::Impl
                    | Keyword::Config
                    | Keyword::Include
                    | Keyword::Import
                    | Keyword::Type
                    | Keyword::Extern
                    | Keyword::Pin
                    | Keyword::Local
            )
    )
}

fn first_column(unit: &Unit, span: Span) -> bool {
    let before = (span.start as usize).checked_sub(1).and_then(|at| unit.text.get(at));
    before.is_none_or(|byte| matches!(byte, b'\n' | b'\r'))
}

/// Returns the byte offset of the first declaration after a byte.
fn next_declaration(unit: &Unit, offset: u32) -> usize {
    let from = unit.tokens.partition_point(|token| token.span.start < offset);
    let begins = |token: &&Token| {
        let declares = begins_declaration(token.kind) || token.kind == TokenKind::Keyword(Keyword::Var);
        declares && first_column(unit, token.span)
    };
    unit.tokens[from..].iter().find(begins).map_or(unit.text.len(), |token| token.span.start as usize)
}

//! Finds the kind of text that may be written at the cursor.

use crate::lex::{Keyword, Punct, TokenKind};
use crate::lsp::cursor::Cursor;

/// The kind of text that may be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// Nothing to suggest: a new name, a comment, a string.
    Nothing,
    /// After the dot or arrow of the chain that begins and ends at these tokens.
    Member { start: usize, end: usize },
    /// The name of an attribute, after `@`.
    Attribute,
    /// The argument of an attribute.
    Argument { attribute: String },
    /// A flag of a map.
    Flag,
    /// A type; at top level also a kind of map.
    Type { top: bool },
    /// The name of a field in a literal.
    Field { of: String, given: Vec<String> },
    /// The value of a field in a literal.
    FieldValue { of: String, field: String },
    /// An event, after `counter name :`.
    Event,
    /// A declaration at top level.
    Declaration,
    /// A statement or an expression; only an expression, if the cursor is not at the start of a statement.
    Body { begins: bool },
}

impl Context {
    /// Returns the context of a cursor.
    pub(super) fn at(cursor: &Cursor<'_>) -> Context {
        if let Some(inside) = cursor.inside {
            return inside_text(cursor, inside.kind);
        }
        let last = cursor.back(0);
        match last {
            Some(TokenKind::Punct(Punct::Dot)) if cursor.back(1) == Some(TokenKind::Punct(Punct::Dot)) => {
                return Context::Body { begins: false };
            }
            Some(TokenKind::Punct(Punct::Arrow)) if ends_head(cursor, cursor.before.len() - 1) => {
                return Context::Type { top: false };
            }
            Some(TokenKind::Punct(Punct::Dot | Punct::Arrow)) => {
                let end = cursor.before.len() - 1;
                return Context::Member { start: cursor.chain_start(end), end };
            }
            Some(TokenKind::Punct(Punct::At)) => return Context::Attribute,
            Some(TokenKind::Keyword(keyword)) if names_something(keyword) => return Context::Nothing,
            Some(TokenKind::Keyword(Keyword::New)) => return Context::Type { top: false },
            Some(TokenKind::Ident) if is_cast(cursor) => return Context::Type { top: false },
            _ => {}
        }
        if is_type(cursor) {
            return Context::Type { top: cursor.open.is_empty() };
        }
        match cursor.open.last() {
            Some(open) => inside_bracket(cursor, *open),
            None => top(cursor),
        }
    }
}

fn inside_text(cursor: &Cursor<'_>, kind: TokenKind) -> Context {
    let is_text = !matches!(kind, TokenKind::Comment);
    let last_kinds = [cursor.back(0), cursor.back(1), cursor.back(2)];
    match last_kinds {
        [
            Some(TokenKind::Punct(Punct::OpenParen)),
            Some(TokenKind::Ident),
            Some(TokenKind::Punct(Punct::At)),
        ] if is_text => {
            let name = cursor.token(cursor.before.len().checked_sub(2));
            Context::Argument { attribute: name.map_or("", |name| cursor.text(name)).to_owned() }
        }
        _ => Context::Nothing,
    }
}

/// Whether a new name or a path follows the keyword.
fn names_something(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Fn
            | Keyword::Var
            | Keyword::Const
            | Keyword::Struct
            | Keyword::Enum
            | Keyword::Impl
            | Keyword::Config
            | Keyword::Import
            | Keyword::From
            | Keyword::Include
            | Keyword::Extern
            | Keyword::Type
    )
}

fn is_cast(cursor: &Cursor<'_>) -> bool {
    let last = cursor.before.len() - 1;
    let value = matches!(
        cursor.back(1),
        Some(TokenKind::Ident | TokenKind::Int | TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket))
    );
    value && cursor.token(Some(last)).is_some_and(|token| cursor.text(token) == "as")
}

/// Whether the arrow at `at` stands after the parameters of a function or of a function type.
fn ends_head(cursor: &Cursor<'_>, at: usize) -> bool {
    let Some(open) = at.checked_sub(1).and_then(|close| cursor.matching(close)) else { return false };
    let before = |count: usize| cursor.token(open.checked_sub(count)).map(|token| token.kind);
    let fn_type = before(1) == Some(TokenKind::Keyword(Keyword::Fn));
    let head = matches!(before(2), Some(TokenKind::Keyword(Keyword::Fn | Keyword::Extern)));
    fn_type || (before(1) == Some(TokenKind::Ident) && head)
}

/// Whether a type is being written: after the colon of a declaration, also after `*` or inside `<`.
fn is_type(cursor: &Cursor<'_>) -> bool {
    let part = |kind: TokenKind| match kind {
        TokenKind::Punct(Punct::Star | Punct::Less | Punct::Comma | Punct::Greater) => true,
        TokenKind::Ident | TokenKind::Int => true,
        TokenKind::Keyword(keyword) => is_scalar(keyword),
        _ => false,
    };
    let mut at = cursor.before.len();
    let mut angle = false;
    while let Some(last) = at.checked_sub(1).filter(|last| part(cursor.before[*last].kind)) {
        let kind = cursor.before[last].kind;
        angle |= kind == TokenKind::Punct(Punct::Less);
        // Only a star or an angle bracket continues a type after another token.
        let name = matches!(kind, TokenKind::Ident | TokenKind::Int | TokenKind::Keyword(_));
        if !angle && (name || kind == TokenKind::Punct(Punct::Comma)) && !inside_angle(cursor, last) {
            return false;
        }
        at = last;
    }
    let Some(colon) = at.checked_sub(1) else { return false };
    match cursor.before[colon].kind {
        TokenKind::Punct(Punct::Colon) => declares_at(cursor, colon),
        TokenKind::Punct(Punct::Arrow) => ends_head(cursor, colon),
        TokenKind::Punct(Punct::Eq) => {
            let before = |count: usize| cursor.token(colon.checked_sub(count)).map(|token| token.kind);
            before(2) == Some(TokenKind::Keyword(Keyword::Type))
        }
        _ => false,
    }
}

/// Whether `<` stands between the colon of a declaration and the token at `at`.
fn inside_angle(cursor: &Cursor<'_>, at: usize) -> bool {
    let line = cursor.before[..at].iter().rev().take_while(|token| {
        !matches!(
            token.kind,
            TokenKind::Punct(
                Punct::Colon | Punct::OpenBrace | Punct::CloseBrace | Punct::OpenParen | Punct::Eq
            )
        )
    });
    let depth: i32 = line
        .map(|token| match token.kind {
            TokenKind::Punct(Punct::Less) => 1,
            TokenKind::Punct(Punct::Greater) => -1,
            _ => 0,
        })
        .sum();
    depth > 0
}

fn is_scalar(keyword: Keyword) -> bool {
    use Keyword::{Bool, Char, I8, I16, I32, I64, Str, U8, U16, U32, U64, Void};
    matches!(keyword, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 | Bool | Char | Void | Str)
}

/// Whether a type follows the colon at `colon`: after the name of a variable, parameter, field or result.
fn declares_at(cursor: &Cursor<'_>, colon: usize) -> bool {
    let before = |count: usize| cursor.token(colon.checked_sub(count)).map(|token| token.kind);
    if matches!(before(2), Some(TokenKind::Keyword(Keyword::Var | Keyword::Const))) {
        return true;
    }
    if before(2) == Some(TokenKind::Punct(Punct::Arrow)) {
        return true;
    }
    match cursor.open.last() {
        Some(open) => {
            let head = |count: usize| cursor.token(open.checked_sub(count)).map(|token| token.kind);
            match cursor.before[*open].kind {
                TokenKind::Punct(Punct::OpenParen) => {
                    matches!(head(2), Some(TokenKind::Keyword(Keyword::Fn | Keyword::Extern)))
                        || head(1) == Some(TokenKind::Keyword(Keyword::Fn))
                }
                _ => matches!(head(2), Some(TokenKind::Keyword(Keyword::Struct | Keyword::Config))),
            }
        }
        None => false,
    }
}

fn inside_bracket(cursor: &Cursor<'_>, open: usize) -> Context {
    let head = |count: usize| cursor.token(open.checked_sub(count));
    let kind = |count: usize| head(count).map(|token| token.kind);
    match cursor.before[open].kind {
        TokenKind::Punct(Punct::OpenParen) => match (kind(1), kind(2)) {
            (Some(TokenKind::Ident), Some(TokenKind::Punct(Punct::At))) => match head(1) {
                Some(name) if cursor.text(name) == "flags" => Context::Flag,
                _ => Context::Nothing,
            },
            (Some(TokenKind::Ident), Some(TokenKind::Keyword(Keyword::Fn | Keyword::Extern))) => {
                Context::Nothing
            }
            (Some(TokenKind::Keyword(Keyword::For)), _) if open + 1 == cursor.before.len() => {
                Context::Nothing
            }
            _ => Context::Body { begins: false },
        },
        TokenKind::Punct(Punct::OpenBrace) => match (kind(1), kind(2)) {
            (Some(TokenKind::Ident), Some(TokenKind::Keyword(Keyword::Struct | Keyword::Config))) => {
                default_value(cursor)
            }
            (Some(TokenKind::Ident), Some(TokenKind::Keyword(Keyword::Enum))) => Context::Nothing,
            (Some(TokenKind::Ident), Some(TokenKind::Keyword(Keyword::Impl))) => in_impl(cursor),
            (Some(TokenKind::Ident), before) if !is_result(cursor, open, before) => literal(cursor, open),
            _ => body(cursor),
        },
        _ => Context::Body { begins: false },
    }
}

fn default_value(cursor: &Cursor<'_>) -> Context {
    match cursor.back(0) {
        Some(TokenKind::Punct(Punct::Eq)) => Context::Body { begins: false },
        _ => Context::Nothing,
    }
}

/// Returns the context between the methods of an impl block.
fn in_impl(cursor: &Cursor<'_>) -> Context {
    match cursor.back(0) {
        Some(TokenKind::Punct(Punct::Colon)) => Context::Body { begins: false },
        _ => Context::Nothing,
    }
}

/// Whether the name before `{` is the result of a function or a caught code, so that a body begins.
fn is_result(cursor: &Cursor<'_>, open: usize, before: Option<TokenKind>) -> bool {
    match before {
        Some(TokenKind::Punct(Punct::Arrow)) => {
            open.checked_sub(2).is_some_and(|arrow| ends_head(cursor, arrow))
        }
        Some(TokenKind::Punct(Punct::Colon)) => {
            let arrow = open.checked_sub(4);
            cursor.token(arrow).is_some_and(|token| token.kind == TokenKind::Punct(Punct::Arrow))
        }
        Some(TokenKind::Punct(Punct::Star) | TokenKind::Keyword(Keyword::Catch)) => true,
        _ => false,
    }
}

/// Returns the context inside `Name { .. }`.
fn literal(cursor: &Cursor<'_>, open: usize) -> Context {
    let end = open;
    let start = cursor.chain_start(end);
    let of: String = cursor.before[start..end].iter().map(|token| cursor.text(token)).collect();
    let mut given = Vec::new();
    let (mut depth, mut at) = (0u32, open + 1);
    while let Some(token) = cursor.token(Some(at)) {
        match token.kind {
            TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket | Punct::OpenBrace) => depth += 1,
            TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket | Punct::CloseBrace) => {
                depth = depth.saturating_sub(1);
            }
            TokenKind::Punct(Punct::Colon) if depth == 0 => {
                given.extend(cursor.token(at.checked_sub(1)).map(|name| cursor.text(name).to_owned()));
            }
            _ => {}
        }
        at += 1;
    }
    match cursor.back(0) {
        Some(TokenKind::Punct(Punct::OpenBrace | Punct::Comma)) => Context::Field { of, given },
        Some(TokenKind::Punct(Punct::Colon)) => {
            Context::FieldValue { of, field: given.pop().unwrap_or_default() }
        }
        _ => Context::Body { begins: false },
    }
}

fn body(cursor: &Cursor<'_>) -> Context {
    let begins = cursor.starts_line()
        || matches!(cursor.back(0), Some(TokenKind::Punct(Punct::OpenBrace | Punct::CloseBrace)));
    Context::Body { begins }
}

fn top(cursor: &Cursor<'_>) -> Context {
    let last_kinds = [cursor.back(0), cursor.back(1), cursor.back(2)];
    let counter = |count: usize| {
        let at = cursor.before.len().checked_sub(count);
        cursor.token(at).is_some_and(|token| cursor.text(token) == "counter")
    };
    match last_kinds {
        [Some(TokenKind::Punct(Punct::Eq)), ..] => Context::Body { begins: false },
        [Some(TokenKind::Punct(Punct::Colon)), Some(TokenKind::Ident), Some(TokenKind::Ident)]
            if counter(3) =>
        {
            Context::Event
        }
        _ if cursor.starts_line() => Context::Declaration,
        _ => Context::Nothing,
    }
}

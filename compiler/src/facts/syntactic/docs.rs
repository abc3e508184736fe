//! Comments that document a declaration.

use super::Unit;
use crate::lex::{Punct, Token, TokenKind};

/// Returns the comment lines directly above a byte, without their slashes and without a blank line between.
pub(super) fn above(unit: &Unit, start: u32) -> String {
    let mut lines = Vec::new();
    let before = unit.tokens.partition_point(|token| token.span.start < start);
    let mut rest = &unit.tokens[..before];
    while let Some((comment, earlier)) = comment_line(rest) {
        lines.push(text(unit, comment));
        rest = earlier;
    }
    lines.reverse();
    lines.join("\n").trim().to_owned()
}

/// Returns the comment after a byte on the same line, if only a comma or a brace stands between.
pub(super) fn trailing(unit: &Unit, end: u32) -> String {
    let from = unit.tokens.partition_point(|token| token.span.start < end);
    let passed = |token: &&Token| {
        matches!(token.kind, TokenKind::Blank | TokenKind::Punct(Punct::Comma | Punct::OpenBrace))
    };
    match unit.tokens[from..].iter().find(|token| !passed(token)) {
        Some(token) if token.kind == TokenKind::Comment => text(unit, token).trim().to_owned(),
        _ => String::new(),
    }
}

/// Returns the comment that fills the line above the next token, and the tokens before that line.
fn comment_line(tokens: &[Token]) -> Option<(&Token, &[Token])> {
    let rest = without_blank(tokens);
    let rest = rest.split_last().filter(|(last, _)| last.kind == TokenKind::LineEnd)?.1;
    let (comment, rest) = rest.split_last().filter(|(last, _)| last.kind == TokenKind::Comment)?;
    let alone = without_blank(rest).last().is_none_or(|token| token.kind == TokenKind::LineEnd);
    alone.then_some((comment, rest))
}

fn without_blank(tokens: &[Token]) -> &[Token] {
    match tokens.split_last() {
        Some((last, rest)) if last.kind == TokenKind::Blank => rest,
        _ => tokens,
    }
}

fn text(unit: &Unit, comment: &Token) -> String {
    let text = String::from_utf8_lossy(&unit.text[comment.span.range()]);
    let text = text.trim_start_matches('/');
    text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned()
}

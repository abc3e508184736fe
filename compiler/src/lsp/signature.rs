//! The parameters of the call that is being written.

use lsp_types::{
    Documentation, MarkupContent, MarkupKind, ParameterInformation, ParameterLabel, SignatureHelp,
    SignatureInformation,
};

use super::Server;
use super::answer::TextPosition;
use super::cursor::Cursor;
use crate::facts::{DefKind, Definition};
use crate::lex::{Punct, TokenKind};

/// Returns the call around a position: each form of it, and the argument that is being written.
pub(super) fn help(server: &mut Server, position: &TextPosition) -> Option<SignatureHelp> {
    let source = server.workspace.source(&position.path)?;
    let cursor = Cursor::new(&source.unit, position.offset);
    let is_paren = |at: &&usize| cursor.before[**at].kind == TokenKind::Punct(Punct::OpenParen);
    let open = *cursor.open.iter().rev().find(is_paren)?;
    let start = cursor.chain_start(open);
    if start == open || cursor.token(start.checked_sub(1)).is_some_and(declares) {
        return None;
    }
    let analysis = if source.unit.broken {
        let cut = cursor.before[start].span.start;
        let text = cursor.repaired(cut);
        server.workspace.analysis_of(&position.path, text)?.into()
    } else {
        server.workspace.analysis(&position.path)?
    };
    let (id, _) = cursor.value(&analysis.facts, start, open);
    let one = analysis.facts.definition(id?).filter(|one| one.kind.is_function())?;
    let argument = commas(&cursor, open);
    let signatures: Vec<_> = one.detail.lines().map(|line| signature(one, line)).collect();
    let fits = |one: &SignatureInformation| {
        one.parameters.as_ref().is_some_and(|params| params.len() > argument || variadic(&one.label))
    };
    let active = signatures.iter().position(fits).unwrap_or(0);
    Some(SignatureHelp {
        signatures,
        active_signature: Some(active as u32),
        active_parameter: Some(argument as u32),
    })
}

/// Whether a token precedes the name of a declaration, whose parentheses contain no arguments.
fn declares(token: &crate::lex::Token) -> bool {
    use crate::lex::Keyword::{Extern, Fn};
    matches!(token.kind, TokenKind::Keyword(Fn | Extern))
}

/// Returns the number of the call's own commas before the word.
fn commas(cursor: &Cursor<'_>, open: usize) -> usize {
    let (mut depth, mut count) = (0u32, 0);
    for token in &cursor.before[open + 1..] {
        match token.kind {
            TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket | Punct::OpenBrace) => depth += 1,
            TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket | Punct::CloseBrace) => {
                depth = depth.saturating_sub(1);
            }
            TokenKind::Punct(Punct::Comma) if depth == 0 => count += 1,
            _ => {}
        }
    }
    count
}

fn variadic(label: &str) -> bool {
    label.contains("..")
}

fn signature(one: &Definition, line: &str) -> SignatureInformation {
    // The keywords before a declaration's name are not part of the call.
    let line = if one.kind == DefKind::Builtin {
        line
    } else {
        line.split_once("fn ").map_or(line, |(_, rest)| rest)
    };
    let parameters = parameters(line).into_iter().map(|(start, end)| ParameterInformation {
        label: ParameterLabel::LabelOffsets([start as u32, end as u32]),
        documentation: None,
    });
    let docs = MarkupContent { kind: MarkupKind::Markdown, value: one.docs.clone() };
    SignatureInformation {
        label: line.to_owned(),
        documentation: (!one.docs.is_empty()).then_some(Documentation::MarkupContent(docs)),
        parameters: Some(parameters.collect()),
        active_parameter: None,
    }
}

/// Returns the byte ranges of the parameters in a signature's outermost parentheses. Signatures are ASCII, so
/// bytes are also the protocol's units.
fn parameters(line: &str) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let (mut depth, mut start) = (0u32, 0);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'<' => {
                depth += 1;
                if depth == 1 {
                    start = at + 1;
                }
            }
            b',' if depth == 1 => {
                pieces.push((start, at));
                start = at + 2;
            }
            b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    if at > start {
                        pieces.push((start, at));
                    }
                    return pieces;
                }
            }
            // The `>` of an arrow closes nothing.
            b'>' if at > 0 && line.as_bytes()[at - 1] != b'-' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::parameters;

    #[test]
    fn parameters_are_split_at_their_own_commas() {
        let line = "f(a: u32, b: fn(u8, u8) -> u8, c: hash<u32, u64>(4)) -> str(16)";
        let pieces: Vec<_> = parameters(line).into_iter().map(|(start, end)| &line[start..end]).collect();
        assert_eq!(pieces, ["a: u32", "b: fn(u8, u8) -> u8", "c: hash<u32, u64>(4)"]);
        assert!(parameters("f() -> u32").is_empty());
    }
}

//! Formatting requests: the edits that format a text.

use lsp_types::TextEdit;

use super::workspace::Source;
use crate::fmt;
use crate::source::Span;

/// Returns the edits that format a text; none if it has errors, so that nothing is lost.
pub(super) fn edits(source: &Source) -> Option<Vec<TextEdit>> {
    let unit = &source.unit;
    if unit.broken {
        return None;
    }
    let formatted = fmt::format(&unit.tokens, &unit.text, &unit.ast).ok()?;
    let Some((start, end, replacement)) = difference(&unit.text, &formatted) else { return Some(Vec::new()) };
    let span = Span { file: unit.file, start: start as u32, end: end as u32 };
    Some(vec![TextEdit::new(source.range(span), String::from_utf8_lossy(replacement).into_owned())])
}

/// Returns the lines from the first to the last difference: their start and end in the old text, and the new
/// ones. Equal lines around them stay, and the cursor with them.
fn difference<'n>(old: &[u8], new: &'n [u8]) -> Option<(usize, usize, &'n [u8])> {
    if old == new {
        return None;
    }
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let start = old[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let same = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = &old_rest[old_rest.len() - same..];
    // The tail begins after a line end, so that whole lines are replaced.
    let kept = tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| tail.len() - at - 1);
    Some((start, old.len() - kept, &new_rest[..new_rest.len() - kept]))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn only_the_lines_that_differ_are_replaced() {
        let cases: [(&str, &str); 7] = [
            ("a\nb\nc\n", "a\nX\nc\n"),
            ("a\nb\nc\n", "a\nc\n"),
            ("a\nc\n", "a\nb\nb\nc\n"),
            ("a", "a\n"),
            ("", "x\n"),
            ("a\n\n\n", "a\n"),
            ("fn f(){}\nb\n", "fn f() {}\nb\n"),
        ];
        for (old, new) in cases {
            let (start, end, text) = difference(old.as_bytes(), new.as_bytes()).expect("they differ");
            let changed = [&old.as_bytes()[..start], text, &old.as_bytes()[end..]].concat();
            assert_eq!(String::from_utf8_lossy(&changed), new);
        }
        let (start, end, text) = difference(b"a\nb\nc\n", b"a\nX\nc\n").expect("they differ");
        assert_eq!((start, end, text), (2, 4, &b"X\n"[..]));
        assert_eq!(difference(b"a\n", b"a\n"), None);
    }
}

//! The three forms of output, on texts that no editor writes.

use proptest::prelude::*;

use super::{Style, concise, json, render};
use crate::diag::Diagnostic;
use crate::source::{FileId, SourceMap, Span};

fn source(text: &[u8]) -> (SourceMap, FileId) {
    let mut sources = SourceMap::default();
    let file = sources.add("t.ks", text).expect("short");
    (sources, file)
}

fn rendered(text: &[u8], start: u32, end: u32) -> String {
    let (sources, file) = source(text);
    render(&Diagnostic::error(301, Span { file, start, end }, "headline"), &sources, Style::Plain)
}

#[test]
fn suggestions_are_help() {
    let (sources, file) = source(b"prnt()\n");
    let span = Span { file, start: 0, end: 4 };
    let diagnostic = Diagnostic::error(305, span, "no function `prnt`")
        .suggest_near(span, "function", "prnt", ["print"])
        .suggest(span, "", "take the call out")
        .suggest(span, "var", "write `var`");
    let text = render(&diagnostic, &sources, Style::Plain);
    assert!(text.contains("help: a similar function exists: `print`\n"), "{text}");
    assert!(text.contains("help: take the call out\n"), "{text}");
    assert!(text.ends_with("help: write `var`"), "{text}");
    let object = json(&diagnostic, &sources);
    assert_eq!(
        object["suggestions"][0],
        serde_json::json!({
            "file": "t.ks", "start": 0, "end": 4, "replacement": "print", "message": "a similar function \
                 exists",
        })
    );
}

#[test]
fn json_has_every_documented_member() {
    let (mut sources, file) = source(b"one\ntwo\n");
    let header = sources.add("lib/h.kh", "three").expect("short");
    let diagnostic = Diagnostic::warning(312, Span { file, start: 4, end: 7 }, "unused `two`")
        .label("never read")
        .also(Span { file: header, start: 0, end: 5 }, "declared here")
        .note("a rule")
        .help("do it");
    assert_eq!(
        json(&diagnostic, &sources),
        serde_json::json!({
            "code": "KS0312", "severity": "warning", "message": "unused `two`",
            "file": "t.ks", "start": 4, "end": 7, "line": 2, "column": 1, "end_line": 2, "end_column": 4,
            "label": "never read",
            "labels": [{
                "file": "lib/h.kh", "start": 0, "end": 5, "line": 1, "column": 1, "end_line": 1, "end_column": 6,
                "label": "declared here",
            }],
            "notes": ["a rule"], "help": ["do it"], "suggestions": [],
        })
    );
    assert_eq!(concise(&diagnostic, &sources), "t.ks:2:1: warning[KS0312]: unused `two`");
    let text = render(&diagnostic, &sources, Style::Plain);
    assert!(text.contains("t.ks:2:1") && text.contains("lib/h.kh:1:1"), "{text}");
}

#[test]
fn lines_and_columns_survive_odd_texts() {
    assert!(rendered(b"", 0, 0).contains("t.ks:1:1"));
    assert!(rendered(b"a\rb\rcde", 4, 7).contains("t.ks:3:1"), "a lone CR ends a line");
    assert!(rendered(b"a\r\nb", 3, 4).contains("2 | b"));
    assert!(rendered(b"\xff\xfe\nx\xffy", 5, 6).contains("t.ks:2:3"));
    assert!(rendered(b"x", 90, 99).contains("t.ks:1:2"), "a place behind the end is the end");
    assert!(rendered("\"\u{e9}\" x".as_bytes(), 2, 3).contains("t.ks:1:2"), "within a character");
}

#[test]
fn the_end_of_the_file_is_the_end_of_its_last_line() {
    for text in [b"ab\ncde" as &[u8], b"ab\ncde\n", b"ab\r\ncde\r\n"] {
        let (sources, file) = source(text);
        let end = Span { file, start: text.len() as u32, end: text.len() as u32 };
        let diagnostic = Diagnostic::error(201, end, "expected `}`").suggest(end, "}", "close it");
        assert!(render(&diagnostic, &sources, Style::Plain).contains("t.ks:2:4\n"));
        assert!(concise(&diagnostic, &sources).starts_with("t.ks:2:4: "));
        let object = json(&diagnostic, &sources);
        assert_eq!((object["line"].as_u64(), object["column"].as_u64()), (Some(2), Some(4)));
        assert_eq!(object["suggestions"][0]["start"], text.len(), "a change is made where it is");
    }
}

#[test]
fn terminals_get_no_escapes_from_a_script() {
    let text = rendered(b"var \x1b[31mx\x07", 4, 5);
    assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
}

#[test]
fn a_very_long_line_is_cut() {
    let line = b"x ".repeat(500_000);
    let (sources, file) = source(&line);
    let diagnostic = Diagnostic::error(301, Span { file, start: 400_000, end: 900_000 }, "headline")
        .also(Span { file, start: 0, end: 1 }, "declared here");
    let text = render(&diagnostic, &sources, Style::Plain);
    assert!(text.len() < 2000, "{} bytes", text.len());
    assert!(text.contains("t.ks:1:400001") && text.contains("t.ks:1:1: declared here"), "{text}");
}

proptest! {
    #[test]
    fn no_text_and_no_span_makes_it_panic(
        one in prop::collection::vec(any::<u8>(), 0..60),
        other in "[a-z\t\r\n\u{e9}\u{4e16}]{0,40}",
        ranges in prop::collection::vec((any::<bool>(), 0u32..70, 0u32..70), 1..5),
    ) {
        let (mut sources, first) = source(&one);
        let second = sources.add("other.kh", other.as_bytes()).expect("short");
        let mut spans = ranges.into_iter().map(|(which, start, end)| {
            Span { file: if which { first } else { second }, start, end: end.max(start) }
        });
        let primary = spans.next().expect("at least one");
        let mut diagnostic = Diagnostic::error(1, primary, "headline").label("here");
        for span in spans {
            diagnostic = diagnostic.also(span, "there").suggest(span, "x", "write x");
        }
        prop_assert!(!render(&diagnostic, &sources, Style::Plain).is_empty());
        prop_assert!(!render(&diagnostic, &sources, Style::Coloured).is_empty());
        prop_assert!(json(&diagnostic, &sources)["line"].as_u64().is_some_and(|line| line > 0));
        prop_assert!(concise(&diagnostic, &sources).contains("error[KS0001]"));
    }
}

#[test]
fn texts_and_sources_neither_control_a_terminal_nor_forge_a_line() {
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\u{200b}b";
    let mut sources = SourceMap::default();
    let name = format!("t{hostile}\nks: forged.ks");
    let file =
        sources.add(&name, format!("// {hostile}\u{85}\nx = {hostile} y\n").as_bytes()).expect("short");
    let at = |start, end| Span { file, start, end };
    let diagnostic = Diagnostic::error(301, at(0, 2), format!("no `{hostile}`\nks: forged"))
        .label(format!("the `{hostile}`"))
        .also(at(8, 9), format!("not `{hostile}`"))
        .note(hostile)
        .help(hostile)
        .suggest_near(at(0, 1), "function", hostile, ["print"]);
    for text in [render(&diagnostic, &sources, Style::Plain), concise(&diagnostic, &sources)] {
        let acts = |letter: char| letter != '\n' && ks_wit::text::acts(letter);
        assert!(!text.contains(acts), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("ks: forged")), "{text}");
    }
    assert_eq!(concise(&diagnostic, &sources).lines().count(), 1);
}

#[test]
fn a_mark_stands_below_its_word_after_characters_that_were_replaced() {
    let text = rendered("x\u{85}\u{2028} y".as_bytes(), 7, 8);
    let line = text.lines().find(|line| line.contains('y')).expect("the line");
    let mark = text.lines().find(|line| line.contains('^')).expect("the mark");
    let column = |line: &str, wanted| line.chars().position(|letter| letter == wanted).expect("it is there");
    assert_eq!(column(line, 'y'), column(mark, '^'), "{text}");
}

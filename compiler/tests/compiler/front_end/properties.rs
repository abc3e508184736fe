//! Properties of every tree and every text.

use std::sync::LazyLock;

use ks_compiler::ast::without_spans;
use ks_compiler::diag::Diagnostics;
use ks_compiler::lex::{self, Punct, TokenKind};
use ks_compiler::source::SourceMap;
use ks_compiler::{ast, fmt, parse, pipeline};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::front_end::trees;

/// Parses a text without errors.
fn tree(text: &[u8]) -> Option<ast::File> {
    let file = SourceMap::default().add("t.ks", text)?;
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text);
    lex::report(&tokens, text, &mut diagnostics);
    let tree = parse::parse(&tokens, text, &mut diagnostics);
    (!diagnostics.has_errors()).then_some(tree)
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Formats a text without errors like `ks fmt`.
fn formatted(text: &[u8]) -> Vec<u8> {
    let file = SourceMap::default().add("t.ks", text).expect("short");
    let tokens = lex::scan(file, text);
    let tree = tree(text).expect("no errors");
    fmt::format(&tokens, text, &tree).unwrap_or_else(|_| panic!("changed:\n{}", lossy(text)))
}

/// Returns the comments of a text, sorted: if two would end up on one line, one moves.
fn comments(text: &[u8]) -> Vec<Vec<u8>> {
    let file = SourceMap::default().add("t.ks", text).expect("short");
    let mut found: Vec<_> = lex::scan(file, text)
        .iter()
        .filter(|token| token.kind == TokenKind::Comment)
        .map(|token| text[token.span.range()].trim_ascii_end().to_vec())
        .collect();
    found.sort();
    found
}

/// Returns the text with other blanks, line ends and comments between its tokens, as the choices say.
fn perturbed(text: &[u8], choices: &[u8]) -> Vec<u8> {
    let file = SourceMap::default().add("t.ks", text).expect("short");
    let mut choices = choices.iter().copied().chain(std::iter::repeat(0));
    let (mut new, mut last) = (Vec::new(), TokenKind::End);
    for token in lex::scan(file, text) {
        let whole = matches!((last, token.kind), (TokenKind::Punct(_), TokenKind::Punct(_)))
            || token.kind == TokenKind::Punct(Punct::OpenBracket);
        last = token.kind;
        let gap: &[u8] = match choices.next().unwrap_or(0) {
            // Two symbols may form one operator, and the suffix of a type must be on its line.
            _ if whole => b"",
            0..160 => b"",
            160..170 => b" ",
            170..180 => b"\n",
            180..190 => b" // one\n",
            190..200 => b"\n// two\n",
            200..210 => b"\n\n\n",
            210..220 => b" //three\r\n\t",
            220..230 => b"\n\n// four\n\n// five  \n\n",
            230..240 => b"\n/// six\n",
            240..248 => b"\t///seven\r",
            _ => b"\n///eight\n\n",
        };
        new.extend_from_slice(gap);
        match token.kind {
            TokenKind::LineEnd if choices.next().is_some_and(|choice| choice % 4 == 1) => new.push(b' '),
            _ => new.extend_from_slice(&text[token.span.range()]),
        }
    }
    new
}

fn is_stable(text: &[u8]) -> Result<(), TestCaseError> {
    let once = formatted(text);
    let (before, after) = (tree(text), tree(&once));
    let same = before.zip(after).is_some_and(|(before, after)| without_spans::same(&before, &after));
    prop_assert!(same, "from\n{}\nto\n{}", lossy(text), lossy(&once));
    prop_assert_eq!(comments(text), comments(&once), "from\n{}\nto\n{}", lossy(text), lossy(&once));
    let twice = formatted(&once);
    prop_assert_eq!(lossy(&once), lossy(&twice), "from\n{}", lossy(text));
    Ok(())
}

/// Runs the front end like `ks check`. The only requirement is that it ends.
fn check(text: &[u8]) {
    let checked = pipeline::parse("t.ks", text, pipeline::Options::new("t")).expect("short").check();
    let found = checked.diagnostics.has_errors();
    assert_eq!(checked.hir.is_none(), found, "{}", lossy(text));
}

/// Scripts of other authors.
static SCRIPTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut found = Vec::new();
    let mut folders = vec![format!("{folder}/examples"), format!("{folder}/compiler/tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path.display().to_string());
            } else if path.extension().is_some_and(|ending| ending == "ks") {
                found.push(path);
            }
        }
    }
    found.sort();
    found.iter().map(|path| std::fs::read(path).expect("readable")).collect()
});

/// Tokens of generated texts.
const TOKENS: &[&str] = &[
    "fn", "var", "if", "(", ")", "{", "}", "[", "]", "<", ">", ",", ":", "=", ".", "..", "->", "@", "*", "&",
    "-", "|", "a", "b", "S", "1", "0x", "\"s\"", "'c'", "'", "\"", "//", "\n", "\n", "\n}\n", "match",
    "default", "try", "catch", "struct", "enum", "impl", "config", "const", "counter", "group", "hash",
    "u32", "str", "return", "for", "in", "as", "new", "type", "pin", "import", "from", "include", "extern",
    "throw", "sizeof", "+=", "<<=", ";", "\u{e9}",
];

#[test]
fn every_script_keeps_its_tree() {
    assert!(SCRIPTS.len() > 500, "the examples, the cases and the corpus are found");
    let whole: Vec<_> = SCRIPTS.iter().filter(|text| tree(text).is_some()).collect();
    assert!(whole.len() > 250, "most of them can be read");
    for text in whole {
        is_stable(text).expect("stable");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_global_rejects: 1_000_000,
        ..ProptestConfig::with_cases(400) })]

    #[test]
    fn printed_trees_read_as_themselves(choices in vec(any::<u8>(), 0..600)) {
        let file = trees::file(&choices);
        let text = fmt::print(&file);
        let again = tree(&text);
        prop_assert!(again.is_some(), "{}", lossy(&text));
        let is_same = |again| without_spans::same(&file, &again) && docs(&file) == docs(&again);
        let same = again.is_some_and(is_same);
        prop_assert!(same, "{}", lossy(&text));
        prop_assert_eq!(lossy(&formatted(&text)), lossy(&text));
    }

    #[test]
    fn formatting_is_stable(choices in vec(any::<u8>(), 0..600), gaps in vec(any::<u8>(), 0..900)) {
        let text = perturbed(&fmt::print(&trees::file(&choices)), &gaps);
        prop_assume!(tree(&text).is_some());
        is_stable(&text)?;
    }

    #[test]
    fn any_bytes_end_in_diagnostics(text in vec(any::<u8>(), 0..400)) {
        check(&text);
    }

    #[test]
    fn any_tokens_end_in_diagnostics(choices in vec(0..TOKENS.len(), 0..200), close in any::<bool>()) {
        let gap = if close { "" } else { " " };
        let text = choices.iter().map(|token| TOKENS[*token]).collect::<Vec<_>>().join(gap);
        check(text.as_bytes());
        check(format!("fn f() -> u32 {{\n{text}").as_bytes());
    }

    #[test]
    fn changed_scripts_end_in_diagnostics(
        script in any::<prop::sample::Index>(),
        changes in vec(any::<[prop::sample::Index; 3]>(), 1..6),
    ) {
        let mut text = script.get(&SCRIPTS).clone();
        for [at, token, other] in changes {
            let file = SourceMap::default().add("t.ks", text.as_slice()).expect("short");
            let tokens = lex::scan(file, &text);
            let (old, new) = (at.get(&tokens).span, token.get(TOKENS));
            let new = match other.index(2) {
                0 => new.as_bytes().to_vec(),
                _ => text[other.get(&tokens).span.range()].to_vec(),
            };
            text.splice(old.range(), new);
        }
        check(&text);
        if tree(&text).is_some() {
            is_stable(&text)?;
        }
    }
}

fn docs(file: &ast::File) -> Vec<Option<String>> {
    let of_item = |item: &ast::Item| {
        let mut found = vec![item.docs.clone()];
        match &item.kind {
            ast::ItemKind::Function(function) => found.push(function.docs.clone()),
            ast::ItemKind::Impl { methods, .. } => {
                found.extend(methods.iter().map(|method| method.docs.clone()))
            }
            ast::ItemKind::Struct { fields, .. } | ast::ItemKind::Config { fields, .. } => {
                found.extend(fields.iter().map(|field| field.docs.clone()));
            }
            _ => {}
        }
        found
    };
    file.items.iter().flat_map(of_item).collect()
}

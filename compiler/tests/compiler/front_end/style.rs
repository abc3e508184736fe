//! The scripts that people read are in the one style.

use ks_compiler::diag::Diagnostics;
use ks_compiler::source::SourceMap;
use ks_compiler::{fmt, lex, parse};

#[test]
fn every_example_is_formatted() {
    let mut wrong = Vec::new();
    for path in examples() {
        let name = path.display().to_string();
        let text = std::fs::read(&path).expect("readable");
        let file = SourceMap::default().add(name.clone(), text.clone()).expect("short");
        let mut diagnostics = Diagnostics::default();
        let tokens = lex::scan(file, &text);
        let ast = parse::parse(&tokens, &text, &mut diagnostics);
        assert!(!diagnostics.has_errors(), "{name}: {:?}", diagnostics.sorted());
        if fmt::format(&tokens, &text, &ast).expect("it has no errors") != text {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "run `ks fmt` on {wrong:?}");
}

fn examples() -> Vec<std::path::PathBuf> {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"));
    let mut open = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "ks") {
                found.push(path);
            }
        }
    }
    assert!(found.len() >= 3, "the examples are there");
    found
}

//! What `ks check` says: every file below `cases/` beside the text it leads to. Adding a case is adding a file.

use ks_compiler::diag::render::{Style, render};
use ks_compiler::pipeline;

fn diagnostics(name: &str, text: &[u8]) -> String {
    let mut checked = pipeline::parse(name, text).expect("cases are short").check("case");
    // A script without errors goes through both back ends, which may have more to say.
    let outcome = if checked.build(pipeline::Target::default()).is_ok() { "accepted" } else { "refused" };
    let mut shown: Vec<String> = checked
        .diagnostics
        .sorted()
        .into_iter()
        .map(|diagnostic| render(diagnostic, &checked.sources, Style::Plain))
        .collect();
    shown.push(outcome.to_owned());
    shown.join("\n\n")
}

/// The front end alone, with every diagnostic as text.
fn read(text: &[u8]) {
    let checked = pipeline::parse("broken.ks", text).expect("examples are short").check("broken");
    for diagnostic in checked.diagnostics.sorted() {
        assert!(!render(diagnostic, &checked.sources, Style::Plain).is_empty());
    }
}

#[test]
fn every_case_says_what_is_written_beside_it() {
    insta::glob!("cases/**/*.ks", |path| {
        let text = std::fs::read(path).expect("a case is readable");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a case has a plain name");
        insta::with_settings!({
            snapshot_path => path.parent().expect("a case lies in a folder"),
            snapshot_suffix => "",
            prepend_module_to_snapshot => false,
            description => String::from_utf8_lossy(&text).into_owned(),
            omit_expression => true,
        }, {
            insta::assert_snapshot!(name, diagnostics(name, &text));
        });
    });
}

/// Real scripts, cut short and with a byte missing: always a tree and diagnostics, never a panic.
#[test]
fn no_text_makes_it_panic() {
    let pieces: Vec<Vec<u8>> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/perf"))
        .expect("the examples are there")
        .map(|entry| std::fs::read(entry.expect("readable").path()).expect("readable"))
        .collect();
    for text in &pieces {
        for cut in 0..text.len() {
            read(&text[..cut]);
        }
        for hole in 0..text.len() {
            let mut holed = text.clone();
            holed.remove(hole);
            read(&holed);
        }
    }
}

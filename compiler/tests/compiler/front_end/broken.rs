//! Damaged texts.

use ks_compiler::diag::render::{Style, render};
use ks_compiler::pipeline::{self, Options};

/// Runs the front end alone, and formats every diagnostic.
fn read(text: &[u8]) {
    let checked =
        pipeline::parse("broken.ks", text, Options::new("broken")).expect("examples are short").check();
    for diagnostic in checked.diagnostics.sorted() {
        assert!(!render(diagnostic, &checked.sources, Style::Plain).is_empty());
    }
}

/// Real scripts, truncated and with a byte missing, produce a tree and diagnostics, never a panic.
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

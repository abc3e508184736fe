//! Formats every parsable text: the tree stays the same, and formatting is idempotent.

#![no_main]

use ks_compiler::diag::Diagnostics;
use ks_compiler::source::SourceMap;
use ks_compiler::{fmt, lex, parse};

/// Returns the formatted text; none if it cannot be parsed.
fn formatted(text: &[u8]) -> Option<Vec<u8>> {
    let file = SourceMap::default().add("fuzz.ks", text)?;
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text);
    lex::report(&tokens, text, &mut diagnostics);
    let tree = parse::parse(&tokens, text, &mut diagnostics);
    // `format` compares the trees itself.
    (!diagnostics.has_errors()).then(|| fmt::format(&tokens, text, &tree).expect("the same tree"))
}

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Some(once) = formatted(text) {
        let twice = formatted(&once).expect("what was formatted can be read");
        assert_eq!(once, twice);
    }
});

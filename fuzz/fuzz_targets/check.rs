//! Runs the front end on arbitrary bytes: it reports diagnostics, never panics, never hangs.

#![no_main]

use ks_compiler::pipeline;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(parsed) = pipeline::parse("fuzz.ks", text, pipeline::Options::new("fuzz")) {
        let checked = parsed.check();
        assert_eq!(checked.hir.is_none(), checked.diagnostics.has_errors());
    }
});

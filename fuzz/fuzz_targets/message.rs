#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ks_tests::fuzzed::message(bytes));

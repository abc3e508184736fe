#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ks_tests::fuzzed::model(bytes));
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    ks_fuzz::mutate_object(data, size, max_size, seed)
});

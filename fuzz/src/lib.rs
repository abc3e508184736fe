//! Helpers shared by the fuzz targets.

use ks_compiler::object::testing::Mutator;

/// Mutates a BPF object in place and returns its new length. Every other mutation knows the format: bytes
/// changed at random rarely leave a valid object.
pub fn mutate_object(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed % 2 == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let mutant = Mutator::new(seed.into()).mutate(&data[..size]).bytes;
    let kept = mutant.len().min(max_size);
    data[..kept].copy_from_slice(&mutant[..kept]);
    kept
}

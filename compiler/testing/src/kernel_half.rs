//! Compiles scripts by the kernel back end.

use ks_compiler::diag::Diagnostic;
use ks_compiler::hir::Hir;
use ks_compiler::kernel::{Cpu, Machine, Object, compile};
use ks_compiler::pipeline;
use ks_compiler::split::split;
use ks_wit::section::Arch;

/// Builds the kernel half of a script; some global variables get other initial bytes than it declares.
pub fn build(
    script: &str,
    inits: &[(&str, Vec<u8>)],
    machine: impl Into<Machine>,
) -> Result<Object, Vec<Diagnostic>> {
    let checked = pipeline::parse("folder/case.ks", script.as_bytes(), pipeline::Options::new("case"))
        .expect("cases are short")
        .check();
    let errors: Vec<_> = checked.diagnostics.iter().map(|one| one.message.clone()).collect();
    let mut hir = checked.hir.unwrap_or_else(|| panic!("{errors:?} in\n{script}"));
    for global in hir.globals.iter_mut() {
        if let Some((_, bytes)) = inits.iter().find(|(name, _)| *name == global.name) {
            assert_eq!(hir.types.size(global.ty), bytes.len() as u64, "{}", global.name);
            global.init = bytes.clone();
        }
    }
    compile(&hir, &split(&hir), &checked.sources, machine)
}

/// Builds the kernel half of a script without errors.
pub fn object(script: &str) -> Object {
    object_with(script, &[])
}

/// Builds the kernel half for an instruction set.
pub fn object_for(script: &str, cpu: Cpu) -> Object {
    let machine = Machine { cpu, ..Arch::X86_64.into() };
    build(script, &[], machine).unwrap_or_else(|errors| panic!("{errors:#?}\n{script}"))
}

/// Returns the map of each config block, with its default values.
pub fn configs_of(hir: &Hir) -> Vec<(String, Vec<u8>)> {
    hir.configs.iter().map(|config| (format!("{}_config_map", config.name), config.init.clone())).collect()
}

/// Returns the map of each config block of a script, with its default values.
pub fn configs(script: &str) -> Vec<(String, Vec<u8>)> {
    let checked = pipeline::parse("folder/case.ks", script.as_bytes(), pipeline::Options::new("case"))
        .expect("cases are short")
        .check();
    configs_of(&checked.hir.expect("cases are correct"))
}

pub fn object_with(script: &str, inits: &[(&str, Vec<u8>)]) -> Object {
    build(script, inits, Arch::X86_64).unwrap_or_else(|errors| panic!("{errors:#?}\n{script}"))
}

/// Formats a script with one perf program.
pub fn perf_program(items: &str, body: &str) -> String {
    format!("{items}\n@perf_event\nfn watch(ctx: *bpf_perf_event_data) -> i32 {{\n{body}\n}}\n")
}

/// Whether the disassembly of an instruction uses a 32-bit subregister.
fn has_32_bits(line: &str) -> bool {
    line.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|token| {
        token.strip_prefix('w').is_some_and(|number| number.parse::<u8>().is_ok_and(|number| number <= 10))
    })
}

/// Panics if an object uses an instruction that the instruction set lacks.
pub fn expect_only(cpu: Cpu, object: &Object) {
    for line in object.disassembly().lines() {
        // Atomic additions are as old as the instruction set.
        let wide = !has_32_bits(line) || line.contains("lock ");
        assert!(wide || cpu >= Cpu::V3, "{cpu:?}: {line}");
        let below = line.contains("if ") && line.contains(" < ") | line.contains(" <= ")
            || line.contains(" s< ") | line.contains(" s<= ");
        assert!(!below || cpu >= Cpu::V2, "{cpu:?}: {line}");
        let newest = [" s/= ", " s%= ", "(s8)", "(s16)", "(s32)"];
        assert!(!newest.iter().any(|text| line.contains(text)) || cpu >= Cpu::V4, "{cpu:?}: {line}");
    }
}

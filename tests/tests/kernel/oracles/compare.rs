//! Runs one script in all three executors and reports their differences.

use std::collections::BTreeMap;
use std::fmt::Write;

use ks_compiler::diag::Severity;
use ks_compiler::hir::{Config, Global, Hir};
use ks_compiler::kernel::{self, Cpu, Inlining};
use ks_compiler::split::split;
use ks_compiler::types::TypeKind;
use ks_compiler::{pipeline, refused};
use ks_wit::section::Arch;

use crate::oracles::image::{Image, VariableLocation};
use crate::oracles::inputs;
use crate::oracles::kernel::Loaded;
use crate::oracles::machine::Machine;
use crate::oracles::maps::MapEntries;
use crate::oracles::mir::{Oracle, Outcome};
use crate::oracles::state::{Facts, Input, State};
use ks_compiler_testing::script::rng::Rng;

/// A script to run, and its only program.
pub struct Script {
    pub text: String,
    pub program: &'static str,
}

/// Returns the instruction set of a seed.
fn level(seed: u64) -> Cpu {
    [Cpu::V1, Cpu::V2, Cpu::V3, Cpu::V4][(seed % 4) as usize]
}

/// Runs a script on random inputs and returns the number of compared ones. Inputs on which it runs for too
/// long do not count.
pub fn run(script: &Script, seed: u64, inputs: usize, facts: &Facts) -> Result<usize, String> {
    let cpu = level(seed);
    let error_report = |what: String| format!("--cpu {cpu:?}: {what}\n{}", script.text);
    let checked = pipeline::parse("oracles.ks", script.text.as_bytes(), pipeline::Options::new("oracles"))
        .expect("scripts are short")
        .check();
    let errors: Vec<_> = checked.diagnostics.iter().filter(|one| one.severity == Severity::Error).collect();
    let Some(hir) = checked.hir else { return Err(error_report(format!("{errors:?}"))) };
    let halves = split(&hir);
    let hidden = refused::hidden_pointers(&hir, &halves);
    if !hidden.is_empty() {
        return Err(error_report(format!("{hidden:?}")));
    }
    let inlining = if seed % 8 < 4 { Inlining::ByCost } else { Inlining::Once };
    let machine = kernel::Machine { cpu, inlining, ..Arch::X86_64.into() };
    let object = kernel::compile(&hir, &halves, &checked.sources, machine)
        .map_err(|errors| error_report(format!("{errors:?}")))?;
    let image = Image::new(object.elf(), script.program);
    let loaded = Loaded::new(object.elf(), facts.cpu as usize).map_err(error_report)?;
    let bpf = Machine::new(&image, &loaded.shapes(), facts);
    let mut oracle = Oracle::new(&hir, machine, facts);
    let locations: Vec<_> = hir.globals.iter().map(|global| image.location(&global.name)).collect();
    let mut rng = Rng::new(seed);
    let mut compared = 0;
    for _ in 0..inputs {
        let input = input(&hir, &image, &locations, &mut rng);
        let mir =
            oracle.run(&input).map_err(|fault| error_report(format!("the MIR's interpreter: {fault}")))?;
        let Some(mir) = mir else { continue };
        let kernel = loaded.run(&input).map_err(|error| error_report(format!("the kernel: {error}")))?;
        let bpf = bpf.run(&input).map_err(|fault| error_report(format!("the BPF interpreter: {fault}")))?;
        let differences = ComparedRuns { hir: &hir, locations: &locations, mir, bpf, kernel }.differences();
        if !differences.is_empty() {
            return Err(error_report(format!("{}\non {}", differences.join("\n"), input_text(&hir, &input))));
        }
        compared += 1;
    }
    Ok(compared)
}

/// Returns whether a variable gets random content.
fn is_input(global: &Global) -> bool {
    global.name.starts_with('g')
}

fn input(hir: &Hir, image: &Image<'_>, locations: &[Option<VariableLocation>], rng: &mut Rng) -> Input {
    let mut sections = image.data();
    let mut globals = Vec::new();
    for (global, location) in hir.globals.iter().zip(locations) {
        let mut content = global.init.clone();
        content.resize(hir.types.size(global.ty) as usize, 0);
        if let Some(location) = location.as_ref().filter(|location| !location.section.starts_with(".rodata"))
        {
            if is_input(global) {
                content = inputs::value(hir, global.ty, rng);
            }
            let section = sections.get_mut(&location.section).expect("variables lie in data sections");
            section[location.offset..][..content.len()].copy_from_slice(&content);
        }
        globals.push(content);
    }
    let key = || vec![0; 4];
    let config = |config: &Config| {
        (format!("{}_config_map", config.name), MapEntries::from([(key(), config.init.clone())]))
    };
    Input { globals, sections, entries: hir.configs.iter().map(config).collect() }
}

/// Formats the inputs as the variables that were set.
fn input_text(hir: &Hir, input: &Input) -> String {
    let mut text = String::new();
    for (global, content) in hir.globals.iter().zip(&input.globals).filter(|(global, _)| is_input(global)) {
        let _ = write!(text, "{} = {}, ", global.name, bytes(content));
    }
    text
}

/// Formats bytes, as a number if they can be one.
fn bytes(content: &[u8]) -> String {
    if content.len() > 8 {
        return format!("{content:02x?}");
    }
    format!("{:#x}", content.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The final states of the three executors.
struct ComparedRuns<'a> {
    hir: &'a Hir,
    locations: &'a [Option<VariableLocation>],
    mir: Outcome,
    bpf: State,
    kernel: State,
}

impl ComparedRuns<'_> {
    fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut check = |what: &str, mir: &dyn std::fmt::Display, bpf: String, kernel: String| {
            let mir = mir.to_string();
            if mir != bpf || bpf != kernel {
                differences.push(format!("{what}: MIR {mir}, BPF interpreter {bpf}, kernel {kernel}"));
            }
        };
        let [bpf, kernel] = [&self.bpf, &self.kernel].map(|state| state.result.to_string());
        check("the result", &self.mir.result, bpf, kernel);
        for ((global, location), mir) in self.hir.globals.iter().zip(self.locations).zip(&self.mir.globals) {
            let Some(location) = location else { continue };
            let size = self.element(global);
            for at in (0..mir.len()).step_by(size) {
                let part =
                    |state: &State| bytes(&state.sections[&location.section][location.offset + at..][..size]);
                let name = if size == mir.len() {
                    global.name.clone()
                } else {
                    format!("{}[{}]", global.name, at / size)
                };
                check(&name, &bytes(&mir[at..at + size]), part(&self.bpf), part(&self.kernel));
            }
        }
        for (section, content) in &self.kernel.sections {
            // Variables that the compiler adds, above all fault counters, are in no variable of the script.
            if self.bpf.sections[section] != *content {
                differences.push(format!(
                    "{section}: BPF interpreter {:02x?}, kernel {content:02x?}",
                    self.bpf.sections[section]
                ));
            }
        }
        for map in self.hir.maps.iter() {
            let entries = |maps: &BTreeMap<String, MapEntries>| {
                let entries = maps.get(&map.name).cloned().unwrap_or_default();
                let is_there = |value: &[u8]| !map.kind.is_array() || value.iter().any(|byte| *byte != 0);
                entries.into_iter().filter(|(_, value)| is_there(value)).collect::<MapEntries>()
            };
            let [mir, bpf, kernel] = [&self.mir.maps, &self.bpf.maps, &self.kernel.maps].map(entries);
            if mir != bpf || bpf != kernel {
                differences.push(format!(
                    "{}: MIR {mir:02x?}\nBPF interpreter {bpf:02x?}\nkernel {kernel:02x?}",
                    map.name
                ));
            }
        }
        differences
    }

    /// Returns the size of a variable's printed unit in bytes: an element, if it is an array.
    fn element(&self, global: &Global) -> usize {
        let types = &self.hir.types;
        match types.kind(global.ty) {
            TypeKind::Array(element, _) => types.size(*element) as usize,
            _ => types.size(global.ty) as usize,
        }
    }
}

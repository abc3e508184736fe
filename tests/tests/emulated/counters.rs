//! Hardware counters, on an emulated arm64 machine: its PMU counts instructions exactly, and runs out of
//! counters early.

use std::fmt::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, finish_within, repository, try_compile_for};
use ks_wit::section::Arch;
use libbpf_rs::{MapCore as _, MapType};

/// Runs the selected tests of the crate `ks-pmu-tests` there, with the programs of a script as [`flat`]
/// returns them. After the first time, building it takes seconds.
fn run_on(kernel: Kernel, selection: &[&str], script: &str) {
    let built = finish_within(
        Command::new(repository().join("scripts/arm64-build")).arg("pmu"),
        Duration::from_secs(600),
    );
    assert_eq!(built.code, 0, "the tests cannot be built for arm64: {}", built.stderr);
    let test = Path::new(built.stdout.trim());
    let folder = Folder::new();
    let script = folder.write("script", script);
    let machine = Machine::new(kernel).file_as(test, "/test").file_as(script, "/script").seconds(240);
    let outcome = machine.run(&[&["/test", "--test-threads=1", "--nocapture"], selection].concat());
    let passed = outcome.code == 0 && outcome.stdout.contains(" passed; 0 failed");
    assert!(passed && !outcome.stdout.contains("running 0 tests"), "{}{}", outcome.stdout, outcome.stderr);
    println!("{}", outcome.stdout);
}

/// A program that reads the counters of its CPU in a system call.
const READS: &str = include_str!("scripts/counters_reads.ks");

/// `BPF_LD | BPF_IMM | BPF_DW`, and its source registers for a map (include/uapi/linux/bpf.h).
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// Returns the only program of a script, compiled for arm64, as text that can be loaded without libbpf. Each
/// map has a line: `map`, name, kind, sizes of key and value, entries, flags, and its first value as
/// hexadecimal digits or `-`. Then each instruction has one: `code` and its word, or `from`, a map's number
/// and the word if it holds that map's descriptor.
fn flat(script: &str) -> String {
    let built =
        try_compile_for("counted", script, Arch::Aarch64.into()).unwrap_or_else(|errors| panic!("{errors}"));
    let open = libbpf_rs::ObjectBuilder::default().open_memory(built.objects[0].1.elf());
    let object = open.expect("libbpf opens it").load().expect("the verifier accepts it");
    let mut text = String::new();
    let mut descriptors = Vec::new();
    for map in object.maps() {
        // The kernel's description, because libbpf replaces sizes that depend on the number of CPUs.
        let kind = map.map_type();
        let first = match kind {
            MapType::Array if map.name().to_string_lossy().contains('.') => {
                let bytes = map.lookup(&0_u32.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
                let bytes = bytes.expect("it is readable").expect("it has one value");
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            _ => "-".to_owned(),
        };
        let info = map.info().expect("it is ours").info;
        writeln!(
            text,
            "map {} {} {} {} {} {} {first}",
            map.name().to_string_lossy(),
            info.type_,
            info.key_size,
            info.value_size,
            info.max_entries,
            info.map_flags
        )
        .expect("text has room");
        descriptors.push(map.as_fd().as_raw_fd());
    }
    let program = object.progs().next().expect("it has one program");
    for one in program.insns() {
        let field = |value: u8, shift: u32| u64::from(value) << shift;
        let registers = field(one.dst_reg(), 8) | field(one.src_reg(), 12);
        let rest = u64::from(one.off.cast_unsigned()) << 16;
        let insn_word = field(one.code, 0) | registers | rest;
        // Only descriptors of maps, or of their values, are in two-word loads with one of these sources.
        let map = descriptors.iter().position(|descriptor| *descriptor == one.imm);
        let holds_map = one.code == LOAD_WIDE && [PSEUDO_MAP_FD, PSEUDO_MAP_VALUE].contains(&one.src_reg());
        match map.filter(|_| holds_map) {
            Some(map) => writeln!(text, "from {map} {insn_word}"),
            None => {
                assert!(!holds_map, "the map of {one:?} is known");
                writeln!(text, "code {}", insn_word | u64::from(one.imm.cast_unsigned()) << 32)
            }
        }
        .expect("text has room");
    }
    text
}

#[test]
fn arm64_kernel_6_12() {
    run_on(Kernel::V6_12Arm64, &["--skip", "hybrid::"], &flat(READS));
}

#[test]
fn arm64_kernel_6_12_with_two_kinds_of_core() {
    run_on(Kernel::V6_12Arm64Hybrid, &["hybrid::"], "");
}

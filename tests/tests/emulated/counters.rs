//! Hardware counters, on an emulated arm64 machine: its PMU counts instructions exactly, and has too few counters soon.

use std::fmt::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, finish_within, repository, try_compile_for};
use ks_wit::section::Arch;
use libbpf_rs::{MapCore as _, MapType};

/// Runs those of the tests of the crate `ks-pmu-tests` that these words select there, with the programs of a script as [`flat`] gives them. Building
/// it takes seconds, after the first time.
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

/// `BPF_LD | BPF_IMM | BPF_DW`, and the sources of it that mean a map (include/uapi/linux/bpf.h).
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// The only program of a script, compiled for arm64, as text that needs no libbpf to be loaded. A line for each map: `map`,
/// name, kind, sizes of key and value, entries, flags, and its first value as hexadecimal digits or `-`. Then one for each
/// instruction: `code` and its word; `from` and a map's number stand before the word if it holds that map's descriptor.
fn flat(script: &str) -> String {
    let built =
        try_compile_for("counted", script, Arch::Aarch64.into()).unwrap_or_else(|errors| panic!("{errors}"));
    let open = libbpf_rs::ObjectBuilder::default().open_memory(built.objects[0].1.elf());
    let object = open.expect("libbpf opens it").load().expect("the verifier accepts it");
    let mut text = String::new();
    let mut descriptors = Vec::new();
    for map in object.maps() {
        // What the kernel holds: libbpf has put the number of CPUs where the object has none.
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
        // Only a map's descriptor, or that of its value, stands in two words with one of these sources.
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

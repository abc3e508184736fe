//! Scripts whose programs the kernel runs on a test's own packets (BPF_PROG_TEST_RUN). Needs root.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore as _, MapFlags, Object, Program, ProgramInput};

use ks_compiler::pipeline::Target;

use crate::try_compile_for;

/// The loaded object of a script.
pub struct Loaded(Object);

/// Returns the instructions that the verifier followed in all programs of a loaded object, `verified_insns` of `struct
/// bpf_prog_info` (include/uapi/linux/bpf.h).
///
/// # Errors
/// If a program is not loaded.
pub fn verified(object: &Object) -> libbpf_rs::Result<u32> {
    let ids = object.progs().map(|program| Program::id_from_fd(program.as_fd()));
    let ids = ids.collect::<libbpf_rs::Result<BTreeSet<u32>>>()?;
    let own = ProgInfoIter::default().filter(|program| ids.contains(&program.id));
    Ok(own.map(|program| program.verified_insns).sum())
}

/// The outcome of a test run.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// The program's return value.
    pub result: i32,
    /// The packet as the program left it.
    pub packet: Vec<u8>,
}

impl Loaded {
    /// Compiles and loads a script.
    pub fn new(script: &str) -> Loaded {
        Loaded::with_target(script, Target::default())
    }

    /// Compiles a script for a target and loads it.
    pub fn with_target(script: &str, target: Target) -> Loaded {
        let built = try_compile_for("packets", script, target).unwrap_or_else(|errors| panic!("{errors}"));
        let open = libbpf_rs::ObjectBuilder::default().open_memory(built.objects[0].1.elf());
        Loaded(open.expect("libbpf opens it").load().expect("the verifier accepts it"))
    }

    /// The instructions that the verifier followed.
    pub fn verified(&self) -> u32 {
        verified(&self.0).expect("its programs are loaded")
    }

    /// Runs a program on a packet.
    pub fn run(&self, program: &str, packet: &[u8]) -> Run {
        self.run_in(program, packet, &mut []).expect("the kernel runs it")
    }

    /// Runs a program on a packet with a context, which the program may change. Returns none if the kernel
    /// does not run it.
    pub fn run_in(&self, program: &str, packet: &[u8], context: &mut [u8]) -> Option<Run> {
        let program = self.0.progs_mut().find(|one| one.name() == program).expect("the object has it");
        let mut out = vec![0; packet.len() + 512];
        let mut given = context.to_vec();
        let mut input =
            ProgramInput { data_in: Some(packet), data_out: Some(&mut out), ..ProgramInput::default() };
        if !context.is_empty() {
            input.context_in = Some(&mut given);
            input.context_out = Some(context);
        }
        let output = program.test_run(input).ok()?;
        let packet = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Some(Run { result: output.return_value.cast_signed(), packet })
    }

    /// Returns an element of an array map of numbers.
    pub fn entry(&self, map: &str, key: u32) -> u64 {
        let map = self.0.maps().find(|one| one.name() == map).expect("the object has it");
        let value = map.lookup(&key.to_ne_bytes(), MapFlags::ANY).expect("readable").expect("present");
        value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Sets an element of an array map of numbers.
    pub fn set(&self, map: &str, key: u32, value: u64) {
        self.write(map, key, &value.to_ne_bytes());
    }

    /// Sets an element of an array map.
    pub fn write(&self, map: &str, key: u32, value: &[u8]) {
        let map = self.0.maps().find(|one| one.name() == map).expect("the object has it");
        map.update(&key.to_ne_bytes(), value, MapFlags::ANY).expect("writable");
    }

    /// Returns all elements of an array map of numbers.
    pub fn entries(&self, map: &str, len: u32) -> Vec<u64> {
        (0..len).map(|key| self.entry(map, key)).collect()
    }
}

//! The interpreter of the MIR as lowering emits it, before any pass.

use std::collections::BTreeMap;

use ks_compiler::hir::{FuncId, Hir};
use ks_compiler::kernel::mir::{Helper, Program};
use ks_compiler::kernel::{Inlining, Machine, lower_watched};
use ks_compiler::split::split;
use ks_compiler_testing::interp::{Answers, Environment, InterpError, run};

use crate::oracles::maps::MapEntries;
use crate::oracles::state::{Facts, Input};

/// Limit of an iterator's iterations, as in the kernel (BPF_MAX_LOOPS), and of the steps of a run.
const MAX_ITERATIONS: i32 = 8 << 20;
const FUEL: u64 = 200_000;

/// The final state of a run.
pub struct Outcome {
    pub result: u32,
    /// Contents of the global variables, in the order of the script.
    pub globals: Vec<Vec<u8>>,
    pub maps: BTreeMap<String, MapEntries>,
}

/// A program's MIR before any pass, with helpers that take pointers at every call.
pub struct Oracle<'a> {
    hir: &'a Hir,
    program: Program,
    watch: FuncId,
    environment: Environment,
    facts: Facts,
}

impl<'a> Oracle<'a> {
    pub fn new(hir: &'a Hir, machine: Machine, facts: &Facts) -> Oracle<'a> {
        let mut first: Option<Program> = None;
        let keep = &mut |_: &'static str, stage: &Program| {
            first.get_or_insert_with(|| stage.clone());
        };
        let machine = Machine { inlining: Inlining::Always, ..machine };
        lower_watched(hir, &split(hir), machine, keep).expect("the same script has become an object");
        let program = first.expect("there is MIR before the first pass");
        let watch = program.functions.iter().find(|one| one.is_program).expect("scripts have a program").id;
        Oracle {
            hir,
            program,
            watch,
            environment: Environment::of(hir, MAX_ITERATIONS),
            facts: facts.clone(),
        }
    }

    /// Runs the program once; returns none if it exceeds the limit of steps.
    pub fn run(&mut self, input: &Input) -> Result<Option<Outcome>, String> {
        self.environment.globals.clone_from(&input.globals);
        let outcome = match run(&self.program, self.watch, &[None], &self.environment, &mut self.facts, FUEL)
        {
            Err(InterpError::Fuel) => return Ok(None),
            Err(fault) => return Err(fault.to_string()),
            Ok(outcome) => outcome,
        };
        let mut maps: BTreeMap<String, MapEntries> = BTreeMap::new();
        for ((map, key), value) in outcome.entries {
            let map = &self.hir.maps[map];
            maps.entry(map.name.clone()).or_default().insert(key, value);
        }
        Ok(Some(Outcome { result: outcome.result as u32, globals: outcome.globals, maps }))
    }
}

impl Answers for Facts {
    fn number(&mut self, helper: Helper) -> u64 {
        match helper {
            Helper::GetSmpProcessorId => self.cpu,
            Helper::GetCurrentPidTgid => self.process,
            Helper::GetCurrentUidGid => self.user,
            Helper::GetPrandom => 0x1234_5678,
            other => panic!("{} says something else at each call", other.name()),
        }
    }

    fn bytes(&mut self, _helper: Helper, len: usize) -> Vec<u8> {
        let mut bytes = self.comm.clone();
        bytes.resize(len, 0);
        bytes
    }
}

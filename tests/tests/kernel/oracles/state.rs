//! The initial and final states of runs, common to all three executors.

use std::collections::BTreeMap;

use crate::oracles::maps::MapEntries;

/// The initial state of a run.
pub struct Input {
    /// Contents of the global variables, in the order of the script.
    pub globals: Vec<Vec<u8>>,
    /// The same contents as data sections, including variables that the compiler adds.
    pub sections: BTreeMap<String, Vec<u8>>,
    /// Map entries that exist before the run: those of config blocks.
    pub entries: BTreeMap<String, MapEntries>,
}

/// The final state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub result: u32,
    pub sections: BTreeMap<String, Vec<u8>>,
    /// Map entries; for arrays at least the non-zero ones.
    pub maps: BTreeMap<String, MapEntries>,
}

/// Results of the kernel's helpers about the thread that runs the test.
#[derive(Debug, Clone)]
pub struct Facts {
    pub cpu: u64,
    /// Process id in the upper half, thread id in the lower.
    pub process: u64,
    /// Group id in the upper half, user id in the lower.
    pub user: u64,
    pub comm: Vec<u8>,
}

//! What a run starts from and what it leaves behind, the same for all three who run programs.

use std::collections::BTreeMap;

use crate::oracles::maps::MapEntries;

/// What a run starts from.
pub struct Input {
    /// Global variables, in the order of the script.
    pub globals: Vec<Vec<u8>>,
    /// The same as data sections, with what the compiler adds.
    pub sections: BTreeMap<String, Vec<u8>>,
    /// Entries of maps that are there before the run: those of config blocks.
    pub entries: BTreeMap<String, MapEntries>,
}

/// What a run left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub result: u32,
    pub sections: BTreeMap<String, Vec<u8>>,
    /// Entries of maps; of arrays at least those that are not zero.
    pub maps: BTreeMap<String, MapEntries>,
}

/// What the kernel's helpers say of the thread that runs the test.
#[derive(Debug, Clone)]
pub struct Facts {
    pub cpu: u64,
    /// Process and thread.
    pub process: u64,
    /// Group and user.
    pub user: u64,
    pub comm: Vec<u8>,
}

//! State of a test's host, one for each thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::readings::Scripted;
use crate::bindings::kernelscript::host::layouts::Layout;
use crate::bindings::kernelscript::host::types::{Error, ErrorKind as RawKind};
use crate::error::ErrorKind;

std::thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Panic payload that unwinds a plugin that ends itself.
pub(super) struct Exit(pub(super) u8);

/// Installs a host on this thread.
pub(super) fn install(state: State) {
    STATE.with_borrow_mut(|own| {
        assert!(own.is_none(), "this thread has a test host: drop it before another is made");
        *own = Some(state);
    });
}

/// Removes the thread's host, with everything that the plugin left open.
pub(super) fn remove() {
    STATE.with_borrow_mut(|own| *own = None);
}

/// Calls `act` with the host of this thread.
pub(super) fn with<T>(act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|own| {
        let state = own.as_mut();
        act(state.expect("no host here: begin the test with `let host = ks_guest::testing::Host::new();`"))
    })
}

/// Calls `act` with the host, if there still is one: values may be dropped after it.
pub(super) fn if_there(act: impl FnOnce(&mut State)) {
    STATE.with_borrow_mut(|own| own.as_mut().map(act));
}

/// Normalises the two spellings of an event.
pub(super) fn spelling(name: &str) -> String {
    name.replace('-', "_")
}

/// Why opening something fails.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

/// An event that the plugin has opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) event: String,
    pub(super) leader: Option<u64>,
    pub(super) program: Option<String>,
    pub(super) since: u64,
    pub(super) reads: usize,
}

/// A program that the plugin has attached, or a struct that it has registered.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) program: String,
    pub(super) target: String,
}

/// The whole state of a host.
#[derive(Debug)]
pub(super) struct State {
    pub(super) now: u64,
    pub(super) stop: u64,
    pub(super) cpus: u32,
    pub(super) arguments: Vec<String>,
    pub(super) output: String,
    pub(super) errors: String,
    pub(super) warned: BTreeSet<(u64, String)>,
    pub(super) processes: BTreeMap<i32, String>,
    pub(super) symbols: BTreeMap<u64, String>,
    pub(super) events: BTreeMap<String, Vec<Scripted>>,
    pub(super) refused: BTreeMap<String, Refusal>,
    pub(super) programs: BTreeSet<String>,
    pub(super) maps: BTreeMap<String, FakeMap>,
    pub(super) rings: BTreeMap<String, FakeRing>,
    pub(super) globals: BTreeMap<String, FakeGlobal>,
    pub(super) opened: BTreeMap<u64, Opened>,
    pub(super) links: BTreeMap<u64, Linked>,
    last_id: u64,
}

impl State {
    pub(super) fn new() -> State {
        State {
            now: 0,
            stop: 60_000_000_000,
            cpus: 4,
            arguments: Vec::new(),
            output: String::new(),
            errors: String::new(),
            warned: BTreeSet::new(),
            processes: BTreeMap::new(),
            symbols: BTreeMap::new(),
            events: BTreeMap::new(),
            refused: BTreeMap::new(),
            programs: BTreeSet::new(),
            maps: BTreeMap::new(),
            rings: BTreeMap::new(),
            globals: BTreeMap::new(),
            opened: BTreeMap::new(),
            links: BTreeMap::new(),
            last_id: 0,
        }
    }

    /// Returns an id that was not used before.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Checks whether something of this name may be opened.
    pub(super) fn permit(&self, name: &str) -> Result<(), Error> {
        match self.refused.get(&spelling(name)) {
            Some(refusal) => Err(error(refusal.kind, refusal.message.clone())),
            None => Ok(()),
        }
    }

    /// Advances the clock, at most to the time to stop.
    pub(super) fn wait(&mut self, until: u64) -> Result<(), Error> {
        if until >= self.stop {
            self.now = self.stop.max(self.now);
            return Err(error(ErrorKind::Interrupted, "the host asks the plugin to stop".to_string()));
        }
        self.now = until.max(self.now);
        Ok(())
    }

    pub(super) fn ring(&mut self, name: &str) -> Option<&mut FakeRing> {
        self.rings.get_mut(name)
    }

    pub(super) fn attached(&self) -> Vec<(String, String)> {
        let links = self.links.iter().map(|(id, link)| (*id, link.program.clone(), link.target.clone()));
        let events = self
            .opened
            .iter()
            .filter_map(|(id, opened)| Some((*id, opened.program.clone()?, opened.event.clone())));
        let mut all: Vec<_> = links.chain(events).collect();
        all.sort();
        all.into_iter().map(|(_, program, target)| (program, target)).collect()
    }

    /// Closes an event, and its members if it leads a group.
    pub(super) fn close(&mut self, id: u64) {
        self.opened.remove(&id);
        self.opened.retain(|_, opened| opened.leader != Some(id));
    }
}

/// Converts a failure to the contract's type.
pub(super) fn error(kind: ErrorKind, message: String) -> Error {
    let kind = match kind {
        ErrorKind::NotPermitted => RawKind::NotPermitted,
        ErrorKind::NotFound => RawKind::NotFound,
        ErrorKind::Invalid => RawKind::Invalid,
        ErrorKind::Busy => RawKind::Busy,
        ErrorKind::Limit => RawKind::Limit,
        ErrorKind::Stale => RawKind::Stale,
        ErrorKind::Unsupported => RawKind::Unsupported,
        ErrorKind::Interrupted => RawKind::Interrupted,
        ErrorKind::DeniedByPolicy => RawKind::DeniedByPolicy,
        ErrorKind::Kernel => RawKind::Kernel,
        ErrorKind::Other(number) => RawKind::Other(number),
    };
    let (errno, errno_name, because, advice) = (None, None, None, None);
    let tried = message.lines().next().unwrap_or_default().into();
    Error { kind, errno, message, errno_name, tried, because, advice }
}

/// Error for something that the test did not declare.
pub(super) fn missing(what: &str, name: &str, call: &str) -> Error {
    let message = format!("no {what} named `{name}` on the test's host\n  do: `host.{call}`");
    error(ErrorKind::NotFound, message)
}

/// How a map stores its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MapKind {
    Hash,
    Array,
    Queue,
    Stack,
    Bloom,
}

/// An emulated map.
#[derive(Debug)]
pub(super) struct FakeMap {
    pub(super) kind: MapKind,
    /// Layout of keys; none if it has no keys.
    pub(super) key: Option<Layout>,
    /// Layout of values.
    pub(super) value: Layout,
    pub(super) max_entries: u32,
    /// Number of values at each key; none if one value serves all CPUs.
    pub(super) per_cpu: Option<u32>,
    /// Entries of a map with keys.
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Values of a map without keys.
    pub(super) values: VecDeque<Vec<u8>>,
    /// Of a map of maps: where its inner maps are.
    pub(super) inner: Option<InnerMaps>,
}

/// The keys at which a map of maps has inner maps.
#[derive(Debug)]
pub(super) struct InnerMaps {
    /// Bytes of such a key.
    pub(super) key_size: usize,
    pub(super) keys: BTreeSet<Vec<u8>>,
}

impl InnerMaps {
    /// Returns the key of the inner map of the entry with this key.
    pub(super) fn key<'k>(&self, entry: &'k [u8]) -> &'k [u8] {
        &entry[..self.key_size]
    }
}

impl FakeMap {
    pub(super) fn new(kind: MapKind, key: Option<Layout>, value: Layout, max_entries: u32) -> FakeMap {
        let (entries, values) = (BTreeMap::new(), VecDeque::new());
        let map = FakeMap { kind, key, value, max_entries, per_cpu: None, entries, values, inner: None };
        map.filled()
    }

    pub(super) fn on_cpus(self, cpus: u32) -> FakeMap {
        FakeMap { per_cpu: Some(cpus), ..self }.filled()
    }

    pub(super) fn of_maps(self, key_size: usize) -> FakeMap {
        FakeMap { inner: Some(InnerMaps { key_size, keys: BTreeSet::new() }), ..self }
    }

    /// Fills an array with all of its elements.
    fn filled(mut self) -> FakeMap {
        if self.kind == MapKind::Array {
            let value = vec![0; self.slot_bytes()];
            self.entries =
                (0..self.max_entries).map(|at| (at.to_le_bytes().to_vec(), value.clone())).collect();
        }
        self
    }

    /// Bytes of all values at one key.
    pub(super) fn slot_bytes(&self) -> usize {
        (self.value.size * self.per_cpu.unwrap_or(1)) as usize
    }
}

/// An emulated variable.
#[derive(Debug)]
pub(super) struct FakeGlobal {
    pub(super) layout: Layout,
    pub(super) bytes: Vec<u8>,
}

/// An emulated ring buffer.
#[derive(Debug)]
pub(super) struct FakeRing {
    pub(super) bytes: u32,
    pub(super) lost: u64,
    /// Arrival time and contents of records, in order of arrival.
    pub(super) records: VecDeque<(u64, Vec<u8>)>,
}

impl FakeRing {
    pub(super) fn new(bytes: u32) -> FakeRing {
        FakeRing { bytes, lost: 0, records: VecDeque::new() }
    }

    pub(super) fn push(&mut self, due: u64, record: Vec<u8>) {
        let taken: u64 = self.records.iter().map(|(_, record)| room(record)).sum();
        if taken + room(&record) > u64::from(self.bytes) {
            self.lost += 1;
            return;
        }
        let at = self.records.partition_point(|(time, _)| *time <= due);
        self.records.insert(at, (due, record));
    }

    /// Bytes of the records that have arrived at a time.
    pub(super) fn waiting(&self, now: u64) -> u64 {
        self.records.iter().take_while(|(due, _)| *due <= now).map(|(_, record)| room(record)).sum()
    }
}

/// Bytes that a record takes, with its header. Source: kernel/bpf/ringbuf.c, v6.12.
fn room(record: &[u8]) -> u64 {
    (record.len().next_multiple_of(8) + 8) as u64
}

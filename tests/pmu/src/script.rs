//! Loads a program of a compiled script from the text that `tests/tests/emulated/counters.rs` generates. That
//! test has resolved the maps of its instructions, so neither libbpf nor the plugin's engine is needed here.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ks_host::perf::EventArray;
use nix::errno::Errno;

use crate::bpf::{self, PROG_TYPE_TRACEPOINT};

/// The program of a script and its maps.
pub struct Script {
    maps: BTreeMap<String, Arc<OwnedFd>>,
    program: OwnedFd,
}

/// An array of events of a script, which implements a `counter` in the kernel half.
pub struct Counter {
    name: String,
    events: Arc<OwnedFd>,
}

impl Script {
    /// Loads the text as a program for a tracepoint. Needs root; panics if the text is malformed.
    pub fn load(text: &str) -> std::io::Result<Script> {
        let (mut order, mut maps, mut code) = (Vec::new(), BTreeMap::new(), Vec::new());
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields[..] {
                ["map", name, ref shape @ .., first] => {
                    let map = Arc::new(create(shape, first)?);
                    order.push(Arc::clone(&map));
                    maps.insert(name.to_owned(), map);
                }
                ["code", field] => code.push(number(field)),
                ["from", map, field] => {
                    let map = &order[number(map) as usize];
                    code.push(number(field) | bpf::as_immediate(map));
                }
                _ => panic!("a line of a script is {line}"),
            }
        }
        Ok(Script { maps, program: bpf::program(PROG_TYPE_TRACEPOINT, &code)? })
    }

    /// Links the program to the event of a tracepoint.
    pub fn link(&self, event: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        bpf::link(&self.program, event)
    }

    /// Returns the array of events of a counter.
    pub fn counter(&self, name: &str) -> Arc<dyn EventArray> {
        Arc::new(Counter { name: name.to_owned(), events: Arc::clone(&self.maps[name]) })
    }

    /// Returns an element of an array of numbers.
    pub fn entry(&self, map: &str, key: u32) -> std::io::Result<i64> {
        bpf::entry(&self.maps[map], key).map(u64::cast_signed)
    }
}

impl EventArray for Counter {
    fn name(&self) -> &str {
        &self.name
    }

    fn put(&self, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        bpf::put(&self.events, cpu, event)
    }

    fn remove(&self, cpu: i32) {
        bpf::remove(&self.events, cpu);
    }
}

/// Creates a map of this type, sizes, capacity and flags, and sets its first value if there is one.
fn create(shape: &[&str], first: &str) -> std::io::Result<OwnedFd> {
    let fields: Vec<(usize, u32)> =
        (0..).step_by(4).zip(shape.iter().map(|field| number(field) as u32)).collect();
    let map = bpf::map(&fields)?;
    if first != "-" {
        let byte = |at: usize| u8::from_str_radix(&first[at..at + 2], 16).expect("hexadecimal digits");
        let value: Vec<u8> = (0..first.len()).step_by(2).map(byte).collect();
        bpf::set(&map, 0, &value)?;
    }
    Ok(map)
}

fn number(field: &str) -> u64 {
    field.parse().unwrap_or_else(|error| panic!("{field}: {error}"))
}

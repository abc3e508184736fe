//! Maps of programs in the BPF interpreter.

use std::collections::BTreeMap;

use libbpf_rs::MapType;
use nix::errno::Errno;

use crate::oracles::arena::Arena;

/// The shape of a map, as the kernel's loader reports it.
#[derive(Debug, Clone)]
pub struct Shape {
    pub name: String,
    pub kind: MapType,
    pub key: usize,
    pub value: usize,
    pub entries: usize,
}

impl Shape {
    /// Returns whether every index exists.
    pub fn is_array(&self) -> bool {
        matches!(self.kind, MapType::Array | MapType::PercpuArray)
    }
}

/// The values of a map by their keys.
pub type MapEntries = BTreeMap<Vec<u8>, Vec<u8>>;

pub struct Map {
    pub shape: Shape,
    /// Addresses of the values, by key.
    values: BTreeMap<Vec<u8>, u64>,
}

/// BPF_NOEXIST and BPF_EXIST. Source: include/uapi/linux/bpf.h, v6.12.
const NO_EXIST: u64 = 1;
const EXIST: u64 = 2;
/// BPF_F_LOCK.
const UNDER_LOCK: u64 = 4;

fn failed(errno: Errno) -> u64 {
    -i64::from(errno as i32) as u64
}

impl Map {
    pub fn new(shape: Shape) -> Map {
        Map { shape, values: BTreeMap::new() }
    }

    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// Returns the entries, for arrays those that were accessed.
    pub fn entries(&self, arena: &Arena) -> MapEntries {
        let value = |address: &u64| arena.read(*address, self.shape.value);
        self.values.iter().map(|(key, address)| (key.clone(), value(address))).collect()
    }

    /// Returns the address of an entry's value, or null. Elements of arrays start as zeros.
    pub fn lookup(&mut self, arena: &mut Arena, key: &[u8]) -> u64 {
        if let Some(address) = self.values.get(key) {
            return *address;
        }
        if !self.shape.is_array() || number(key) >= self.shape.entries {
            return 0;
        }
        let address = arena.alloc_with(&vec![0; self.shape.value]);
        self.values.insert(key.to_vec(), address);
        address
    }

    /// Source: kernel/bpf/hashtab.c and arraymap.c, v6.12.
    pub fn update(&mut self, arena: &mut Arena, key: &[u8], value: &[u8], flags: u64) -> u64 {
        if self.shape.is_array() {
            if number(key) >= self.shape.entries {
                return failed(Errno::E2BIG);
            }
            if flags == NO_EXIST {
                return failed(Errno::EEXIST);
            }
            let address = self.lookup(arena, key);
            arena.write(address, value);
            return 0;
        }
        let exists = self.values.contains_key(key);
        match flags {
            NO_EXIST if exists => return failed(Errno::EEXIST),
            EXIST if !exists => return failed(Errno::ENOENT),
            _ => {}
        }
        if !exists && self.values.len() == self.shape.entries {
            return failed(Errno::E2BIG);
        }
        match self.values.get(key) {
            // The kernel writes these values in place.
            Some(address) if self.shape.kind == MapType::PercpuHash || flags & UNDER_LOCK != 0 => {
                arena.write(*address, value)
            }
            _ => drop(self.values.insert(key.to_vec(), arena.alloc_with(value))),
        }
        0
    }

    pub fn delete(&mut self, key: &[u8]) -> u64 {
        match self.values.remove(key) {
            _ if self.shape.is_array() => failed(Errno::EINVAL),
            Some(_) => 0,
            None => failed(Errno::ENOENT),
        }
    }
}

fn number(key: &[u8]) -> usize {
    key.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

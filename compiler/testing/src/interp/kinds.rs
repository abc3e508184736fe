//! Maps without keys, and the longest-prefix-match map.

use super::kernel::{ABSENT, TOO_MANY};
use super::memory::Pointer;
use super::{InterpError, Machine, MapShape, fault};
use ks_compiler::hir::{MapId, MapKind};
use ks_compiler::index::Id;

/// BPF_EXIST. Source: include/uapi/linux/bpf.h, v6.12.
const REPLACE_OLDEST: u64 = 2;

impl Machine<'_> {
    fn shape(&self, map: MapId) -> Result<MapShape, InterpError> {
        match self.environment.maps.get(map.index()) {
            Some(shape) => Ok(*shape),
            None => fault("no such map"),
        }
    }

    /// Returns the keys of a map's entries, in order.
    fn names(&self, map: MapId) -> impl DoubleEndedIterator<Item = &(MapId, Vec<u8>)> {
        self.entries.keys().filter(move |(one, _)| *one == map)
    }

    /// Adds a value. Values of queues and stacks are stored by a sequence number, those of a bloom filter by
    /// themselves: it has no false positives.
    pub(super) fn push(&mut self, map: MapId, value: Pointer, flags: u64) -> Result<i64, InterpError> {
        let shape = self.shape(map)?;
        let value = self.memory.read(value, shape.value)?;
        if shape.kind == MapKind::Bloom {
            let entry = self.memory.alloc_with(&value);
            self.entries.insert((map, value), entry);
            return Ok(0);
        }
        if self.names(map).count() as u64 >= shape.entries {
            let oldest = self.names(map).next().cloned();
            match oldest {
                Some(oldest) if flags == REPLACE_OLDEST => drop(self.entries.remove(&oldest)),
                _ => return Ok(TOO_MANY),
            }
        }
        let newest = self.names(map).next_back().and_then(|(_, number)| number.as_slice().try_into().ok());
        let number = newest.map_or(0, u64::from_be_bytes) + 1;
        let entry = self.memory.alloc_with(&value);
        self.entries.insert((map, number.to_be_bytes().to_vec()), entry);
        Ok(0)
    }

    /// Reads the next value of a queue or stack; for a bloom filter, returns whether it contains the value.
    pub(super) fn peek(&mut self, map: MapId, value: Pointer) -> Result<i64, InterpError> {
        let shape = self.shape(map)?;
        if shape.kind == MapKind::Bloom {
            let value = self.memory.read(value, shape.value)?;
            return Ok(if self.entries.contains_key(&(map, value)) { 0 } else { ABSENT });
        }
        let Some(next) = self.next_value(map, shape.kind) else { return Ok(ABSENT) };
        let content = self.memory.read(self.entries[&next], shape.value)?;
        self.memory.write(value, &content)?;
        Ok(0)
    }

    /// As [`Machine::peek`], and removes the value from a queue or stack.
    pub(super) fn pop(&mut self, map: MapId, value: Pointer) -> Result<i64, InterpError> {
        let result = self.peek(map, value)?;
        let kind = self.shape(map)?.kind;
        if kind != MapKind::Bloom
            && let Some(next) = self.next_value(map, kind)
        {
            self.entries.remove(&next);
        }
        Ok(result)
    }

    /// Returns the key of the next value of a queue or stack.
    fn next_value(&self, map: MapId, kind: MapKind) -> Option<(MapId, Vec<u8>)> {
        let mut names = self.names(map);
        let next = if kind == MapKind::Stack { names.next_back() } else { names.next() };
        next.cloned()
    }

    /// Returns the entry with the longest prefix of a key. A key's first four bytes are the number of prefix
    /// bits.
    pub(super) fn longest_prefix(&self, map: MapId, key: &[u8]) -> Option<Pointer> {
        let fitting = self.names(map).filter(|(_, entry)| {
            let bits = prefix_bits(entry);
            bits <= prefix_bits(key) && (0..bits).all(|bit| bit_of(entry, bit) == bit_of(key, bit))
        });
        fitting.max_by_key(|(_, entry)| prefix_bits(entry)).map(|name| self.entries[name])
    }
}

fn prefix_bits(key: &[u8]) -> u32 {
    key.iter().take(4).rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte))
}

/// Returns a bit of the data after the prefix length, most significant bit of the first byte first.
fn bit_of(key: &[u8], bit: u32) -> Option<bool> {
    key.get(4 + bit as usize / 8).map(|byte| byte >> (7 - bit % 8) & 1 == 1)
}

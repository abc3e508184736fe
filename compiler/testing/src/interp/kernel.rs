//! The interpreter's kernel: maps, iterators and helpers.

use super::memory::{Datum, Pointer};
use super::{InterpError, Machine, fault};
use ks_compiler::hir::{FuncId, MapId, MapKind};
use ks_compiler::index::Id;
use ks_compiler::kernel::mir::{Helper, Kfunc, MapSymbol};

/// Size of the context in bytes.
pub(super) const CONTEXT_BYTES: usize = 256;

/// `-EEXIST`, `-EFAULT`, `-ENOENT` and `-E2BIG`. Source: include/uapi/asm-generic/errno-base.h.
const EXISTS: i64 = -17;
const UNREADABLE: i64 = -14;
pub(super) const ABSENT: i64 = -2;
pub(super) const TOO_MANY: i64 = -7;

/// BPF_F_LOCK: one thread runs, so that nothing is locked.
const UNDER_LOCK: u64 = 4;

/// Results of helpers that depend on the environment. A helper returns the same result throughout a run.
pub trait Answers {
    /// The number that a helper returns.
    fn number(&mut self, helper: Helper) -> u64;
    /// The `len` bytes that a helper writes.
    fn bytes(&mut self, helper: Helper, len: usize) -> Vec<u8>;
}

/// Results that differ only between helpers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Answers for Plain {
    fn number(&mut self, helper: Helper) -> u64 {
        u64::from(helper.number()).wrapping_mul(0x0100_0001_0003_0005)
    }

    fn bytes(&mut self, helper: Helper, len: usize) -> Vec<u8> {
        let letters = (b'a'..=b'z').cycle().skip(helper.number() as usize);
        let mut bytes: Vec<u8> = letters.take(len).collect();
        if let Some(last) = bytes.last_mut() {
            *last = 0;
        }
        bytes
    }
}

impl Machine<'_> {
    pub(super) fn helper(&mut self, helper: Helper, args: &[Datum]) -> Result<Datum, InterpError> {
        match (helper, args) {
            (Helper::MapLookup, [Datum::Map(MapSymbol::Config(config)), Datum::Pointer(_)]) => {
                self.config(*config)
            }
            (Helper::MapLookup, [Datum::Map(MapSymbol::Scratch), Datum::Pointer(key)]) => self.scratch(*key),
            (Helper::MapLookup, [Datum::Map(MapSymbol::Map(map)), Datum::Pointer(key)]) => {
                self.lookup(*map, *key)
            }
            (
                Helper::MapUpdate,
                [
                    Datum::Map(MapSymbol::Map(map)),
                    Datum::Pointer(key),
                    Datum::Pointer(value),
                    Datum::Bits(flags),
                ],
            ) => Ok(Datum::Bits(self.update(*map, *key, *value, *flags)? as u64)),
            // One thread runs: nobody else holds a lock.
            (Helper::SpinLock | Helper::SpinUnlock, [Datum::Pointer(_)]) => Ok(Datum::Bits(0)),
            (Helper::GetCurrentComm, [Datum::Pointer(buffer), Datum::Bits(len)]) => {
                let bytes = self.answers.bytes(helper, *len as usize);
                self.memory.write(*buffer, &bytes)?;
                Ok(Datum::Bits(0))
            }
            (Helper::ProbeReadKernel, [Datum::Pointer(to), Datum::Bits(len), from]) => {
                let (bytes, result) = match from {
                    Datum::Pointer(from) => (self.memory.read(*from, *len as usize)?, 0),
                    _ => (vec![0; *len as usize], UNREADABLE),
                };
                self.memory.write(*to, &bytes)?;
                Ok(Datum::Bits(result as u64))
            }
            (Helper::MapDelete, [Datum::Map(MapSymbol::Map(map)), Datum::Pointer(key)]) => {
                Ok(Datum::Bits(self.remove(*map, *key)? as u64))
            }
            (
                Helper::MapPush,
                [Datum::Map(MapSymbol::Map(map)), Datum::Pointer(value), Datum::Bits(flags)],
            ) => Ok(Datum::Bits(self.push(*map, *value, *flags)? as u64)),
            (Helper::MapPop, [Datum::Map(MapSymbol::Map(map)), Datum::Pointer(value)]) => {
                Ok(Datum::Bits(self.pop(*map, *value)? as u64))
            }
            (Helper::MapPeek, [Datum::Map(MapSymbol::Map(map)), Datum::Pointer(value)]) => {
                Ok(Datum::Bits(self.peek(*map, *value)? as u64))
            }
            (
                Helper::RingReserve,
                [Datum::Map(MapSymbol::Ring(_) | MapSymbol::Prints), Datum::Bits(len), Datum::Bits(0)],
            ) => {
                let record = self.memory.reserve(*len as usize);
                self.records.insert(record);
                Ok(Datum::Pointer(record))
            }
            (Helper::RingSubmit | Helper::RingDiscard, [Datum::Pointer(record), Datum::Bits(0)]) => {
                if !self.records.remove(record) {
                    return fault("no record is given back");
                }
                self.memory.release(*record);
                Ok(Datum::Bits(0))
            }
            (
                Helper::Loop,
                [
                    Datum::Bits(iterations),
                    Datum::FuncPtr(function),
                    captured @ Datum::Pointer(_),
                    Datum::Bits(0),
                ],
            ) => self.bpf_loop(*iterations as u32, *function, *captured),
            (
                Helper::ForEachMapElem,
                [
                    Datum::Map(MapSymbol::Map(map)),
                    Datum::FuncPtr(function),
                    captured @ Datum::Pointer(_),
                    Datum::Bits(0),
                ],
            ) => self.visit(*map, *function, *captured),
            (
                Helper::ReadEvent,
                [Datum::Map(MapSymbol::Counter(_)), Datum::Bits(_), Datum::Pointer(buffer), Datum::Bits(len)],
            ) => {
                let bytes = self.answers.bytes(helper, *len as usize);
                self.memory.write(*buffer, &bytes)?;
                Ok(Datum::Bits(0))
            }
            (Helper::GetStackId, [_, Datum::Map(_), Datum::Bits(_)])
            | (Helper::GetAttachCookie, [_])
            | (_, []) => {
                let number = self.answers.number(helper);
                // The kernel's helper returns 32 bits.
                let is_narrow = helper == Helper::GetPrandom;
                Ok(Datum::Bits(if is_narrow { number & u64::from(u32::MAX) } else { number }))
            }
            _ => fault(format!("{} with {args:?}", helper.name())),
        }
    }

    /// Returns the key of the entry, if the map can have such an entry.
    fn name(&self, map: MapId, key: Pointer) -> Result<Option<(MapId, Vec<u8>)>, InterpError> {
        let Some(shape) = self.environment.maps.get(map.index()) else { return fault("no such map") };
        let key = self.memory.read(key, shape.key)?;
        let index = key.iter().rev().fold(0u64, |index, byte| index << 8 | u64::from(*byte));
        let exists = !shape.kind.is_array() || index < shape.entries;
        Ok(exists.then_some((map, key)))
    }

    fn lookup(&mut self, map: MapId, key: Pointer) -> Result<Datum, InterpError> {
        let shape = self.environment.maps.get(map.index()).copied();
        let (Some(name), Some(shape)) = (self.name(map, key)?, shape) else { return Ok(Datum::Bits(0)) };
        if shape.kind == MapKind::LpmTrie {
            return Ok(self.longest_prefix(map, &name.1).map_or(Datum::Bits(0), Datum::Pointer));
        }
        let memory = &mut self.memory;
        let entry = match self.entries.get(&name) {
            Some(entry) => *entry,
            None if shape.kind.is_array() => {
                *self.entries.entry(name).or_insert(memory.alloc_with(&vec![0; shape.value]))
            }
            None => return Ok(Datum::Bits(0)),
        };
        Ok(Datum::Pointer(entry))
    }

    fn update(&mut self, map: MapId, key: Pointer, value: Pointer, flags: u64) -> Result<i64, InterpError> {
        let Some(name) = self.name(map, key)? else { return Ok(TOO_MANY) };
        let shape = self.environment.maps[map.index()];
        let value = self.memory.read(value, shape.value)?;
        let exists = shape.kind.is_array() || self.entries.contains_key(&name);
        match flags & !UNDER_LOCK {
            1 if exists => return Ok(EXISTS),
            2 if !exists => return Ok(ABSENT),
            0..=2 => {}
            other => return fault(format!("a map update with flags {other}")),
        }
        if !exists && self.entries.keys().filter(|(one, _)| *one == map).count() as u64 >= shape.entries {
            return Ok(TOO_MANY);
        }
        if (shape.kind.is_array() || flags & UNDER_LOCK != 0)
            && let Some(entry) = self.entries.get(&name)
        {
            self.memory.write(*entry, &value)?;
        } else {
            // Replacing an entry of a hash map keeps the old value alive: old pointers still point to it.
            let entry = self.memory.alloc_with(&value);
            self.entries.insert(name, entry);
        }
        Ok(0)
    }

    fn remove(&mut self, map: MapId, key: Pointer) -> Result<i64, InterpError> {
        let Some(name) = self.name(map, key)? else { return Ok(ABSENT) };
        // Holders of a pointer to the entry may still use it.
        Ok(if self.entries.remove(&name).is_some() { 0 } else { ABSENT })
    }

    /// Calls a function until it returns 1.
    fn bpf_loop(&mut self, iterations: u32, function: FuncId, captured: Datum) -> Result<Datum, InterpError> {
        let iterations = u64::from(iterations).min(self.environment.max_iterations as u64);
        for index in 0..iterations {
            match self.function(function, vec![Datum::Bits(index), captured])? {
                Datum::Bits(0) => {}
                Datum::Bits(1) => return Ok(Datum::Bits(index + 1)),
                other => return fault(format!("a callback gives {other:?}")),
            }
        }
        Ok(Datum::Bits(iterations))
    }

    pub(super) fn kfunc(&mut self, kfunc: Kfunc, args: &[Datum]) -> Result<Option<Datum>, InterpError> {
        let Some(Datum::Pointer(iterator)) = args.first() else { return fault("no iterator") };
        match (kfunc, &args[1..]) {
            (Kfunc::IterNumNew, [Datum::Bits(start), Datum::Bits(end)]) => {
                self.memory.write(*iterator, &[0; 8])?;
                let (start, end) = (*start as i32, *end as i32);
                let end = end.min(start.saturating_add(self.environment.max_iterations));
                self.num_iters.insert(*iterator, (start, end));
                Ok(Some(Datum::Bits(0)))
            }
            (Kfunc::IterNumNext, []) => match self.num_iters.get_mut(iterator) {
                Some((next, end)) if *next < *end => {
                    let number = self.memory.alloc_with(&next.to_le_bytes());
                    *next += 1;
                    Ok(Some(Datum::Pointer(number)))
                }
                Some(_) => Ok(Some(Datum::Bits(0))),
                None => fault("an iterator that was not started"),
            },
            (Kfunc::IterNumDestroy, []) => match self.num_iters.remove(iterator) {
                Some(_) => Ok(None),
                None => fault("an iterator that was not started is ended"),
            },
            _ => fault(format!("{} with {args:?}", kfunc.name())),
        }
    }
}

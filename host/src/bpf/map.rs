//! Maps: lookup, update, delete, with the sizes checked.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{MapCore, MapType};
use nix::errno::Errno;

use super::cursor::Cursor;
use super::error::BpfError;
use super::sys::{RawMap, map_type};
use crate::host_bytes::HostBytes;

/// The shape of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapShape {
    /// `enum bpf_map_type`.
    pub ty: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value; in per-CPU kinds, of one CPU's value.
    pub value_size: u32,
    /// Most entries.
    pub max_entries: u32,
    /// One value per possible CPU.
    pub per_cpu: bool,
}

impl MapShape {
    pub(super) fn of(map: &libbpf_rs::Map<'_>) -> MapShape {
        MapShape {
            ty: map_type(map),
            key_size: map.key_size(),
            value_size: map.value_size(),
            max_entries: map.max_entries(),
            per_cpu: map.map_type().is_percpu(),
        }
    }
}

/// Pages of a map that can be mapped.
#[derive(Debug)]
pub struct Pages {
    /// The map's name in the object.
    pub name: String,
    /// How many bytes they hold.
    pub bytes: usize,
    /// The map.
    pub descriptor: OwnedFd,
}

impl Pages {
    /// The pages of an array; none for another kind of map.
    ///
    /// Source: `array_map_mmap` of kernel/bpf/arraymap.c, v6.12: values lie at multiples of 8.
    pub(super) fn of(name: &str, shape: MapShape, map: BorrowedFd<'_>) -> Option<Pages> {
        if shape.ty != u32::from(MapType::Array) {
            return None;
        }
        let stride = (shape.value_size as usize).next_multiple_of(8);
        let bytes = stride.checked_mul(shape.max_entries as usize)?;
        Some(Pages { name: name.to_owned(), bytes, descriptor: map.try_clone_to_owned().ok()? })
    }
}

/// Kinds whose values or keys are descriptors where user space writes and reads them: BPF_MAP_TYPE_PROG_ARRAY,
/// PERF_EVENT_ARRAY, CGROUP_ARRAY, ARRAY_OF_MAPS, HASH_OF_MAPS, DEVMAP, SOCKMAP, CPUMAP, XSKMAP, SOCKHASH,
/// REUSEPORT_SOCKARRAY, SK_STORAGE, DEVMAP_HASH, INODE_STORAGE, TASK_STORAGE, CGRP_STORAGE.
/// Source: include/uapi/linux/bpf.h, `enum bpf_map_type`, v6.12.
const OF_DESCRIPTORS: [u32; 16] = [3, 4, 8, 12, 13, 14, 15, 16, 17, 18, 20, 24, 25, 28, 29, 32];

/// Keys that are looked at together.
const COUNTED_AT_ONCE: usize = 1024;

/// When an update may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Create or replace.
    #[doc(alias = "BPF_ANY")]
    Any,
    /// Create only.
    #[doc(alias = "BPF_NOEXIST")]
    NoExist,
    /// Replace only.
    #[doc(alias = "BPF_EXIST")]
    Exist,
}

impl UpdateMode {
    fn flags(self) -> u64 {
        u64::from(match self {
            UpdateMode::Any => libbpf_sys::BPF_ANY,
            UpdateMode::NoExist => libbpf_sys::BPF_NOEXIST,
            UpdateMode::Exist => libbpf_sys::BPF_EXIST,
        })
    }
}

/// The number of possible CPUs: per-CPU maps have so many values in each slot.
///
/// # Errors
/// If `/sys/devices/system/cpu/possible` cannot be read.
pub fn possible_cpus() -> Result<usize, BpfError> {
    libbpf_rs::num_possible_cpus().map_err(|_| BpfError::Kernel {
        tried: "count the possible CPUs".into(),
        call: "libbpf_num_possible_cpus",
        errno: Errno::last(),
    })
}

/// A created map, with a descriptor of its own.
#[derive(Debug)]
pub struct Map {
    name: String,
    raw: RawMap,
    shape: MapShape,
    /// Values in one slot: 1, or the number of possible CPUs.
    slots: usize,
}

impl Map {
    /// A handle to a map of a loaded object.
    pub(super) fn of(map: &libbpf_rs::Map<'_>) -> Result<Map, BpfError> {
        let name = map.name().to_string_lossy().into_owned();
        let per_cpu = map.map_type().is_percpu();
        let refused = |call, errno| BpfError::Kernel { tried: format!("open the map `{name}`"), call, errno };
        let slots = if per_cpu { possible_cpus()? } else { 1 };
        let raw = RawMap::of(map, slots).map_err(|error| {
            refused("fcntl(F_DUPFD_CLOEXEC)", Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        })?;
        Ok(Map { name, raw, shape: MapShape::of(map), slots })
    }

    /// Its pages, if the kernel maps maps of this kind.
    pub fn pages(&self) -> Option<Pages> {
        Pages::of(&self.name, self.shape, self.raw.descriptor())
    }

    /// The shape.
    pub fn shape(&self) -> MapShape {
        self.shape
    }

    /// Values in one entry: 1, or in per-CPU kinds the number of possible CPUs.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The value at a key. In per-CPU kinds all CPUs' values, in order, without the kernel's padding.
    ///
    /// # Errors
    /// [`BpfError::Size`] for a key of another size; [`BpfError::Kernel`].
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        match self.raw.lookup(key) {
            Ok(value) => Ok(Some(self.without_padding(value))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.kernel("look up a key in", "bpf(BPF_MAP_LOOKUP_ELEM)", errno)),
        }
    }

    /// Writes a value. In per-CPU kinds one value, for CPU 0 with zeros elsewhere, or one for each possible CPU.
    ///
    /// # Errors
    /// [`BpfError::Size`]; [`BpfError::Kernel`] with E2BIG or ENOMEM if the map is full (E2BIG also for an array's
    /// index beyond the end), EEXIST and ENOENT by the mode.
    pub fn update(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        let value = self.with_padding(value)?;
        self.raw
            .update(key, &value, mode.flags())
            .map_err(|errno| self.kernel("update", "bpf(BPF_MAP_UPDATE_ELEM)", errno))
    }

    /// Removes an entry. False if there was none.
    ///
    /// # Errors
    /// [`BpfError::Size`]; [`BpfError::Kernel`] with EINVAL for array kinds.
    pub fn delete(&self, key: &[u8]) -> Result<bool, BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        match self.raw.delete(key) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self.kernel("delete from", "bpf(BPF_MAP_DELETE_ELEM)", errno)),
        }
    }

    /// Puts a perf event into an array of events.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn put_event(&self, index: u32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        let descriptor = event.as_raw_fd().to_ne_bytes();
        self.raw.update(&index.to_ne_bytes(), &descriptor, UpdateMode::Any.flags())
    }

    /// Takes a perf event out of an array of events. No effect if there is none.
    pub fn remove_event(&self, index: u32) {
        // There is nothing else that it could answer.
        let _ = self.raw.delete(&index.to_ne_bytes());
    }

    /// Its name in the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the next value out of a queue or stack; none if it is empty.
    ///
    /// # Errors
    /// [`BpfError::Kernel`]: EINVAL or EOPNOTSUPP for other kinds.
    pub fn take(&self) -> Result<Option<Vec<u8>>, BpfError> {
        match self.raw.take() {
            Ok(value) => Ok(Some(value)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.kernel("take from", "bpf(BPF_MAP_LOOKUP_AND_DELETE_ELEM)", errno)),
        }
    }

    /// Whether a bloom filter may have a value.
    ///
    /// # Errors
    /// [`BpfError::Size`]; [`BpfError::Kernel`].
    pub fn contains(&self, value: &[u8]) -> Result<bool, BpfError> {
        let expected = self.shape.value_size as usize;
        if value.len() != expected {
            return Err(self.size("a value", expected, value.len()));
        }
        self.raw.contains(value).map_err(|errno| self.kernel("ask", "bpf(BPF_MAP_LOOKUP_ELEM)", errno))
    }

    /// The number of entries.
    ///
    /// # Errors
    /// As [`Cursor::new`] and [`Cursor::next`].
    pub fn count(self: &Arc<Map>, host_bytes: &HostBytes) -> Result<usize, BpfError> {
        let key_size = self.shape.key_size as usize;
        let mut cursor = Cursor::new(Arc::clone(self), false, host_bytes)?;
        let mut count = 0;
        loop {
            let keys = cursor.next(key_size * COUNTED_AT_ONCE)?;
            if keys.is_empty() {
                return Ok(count);
            }
            count += keys.len() / key_size;
        }
    }

    /// Removes every entry that it gets to.
    ///
    /// # Errors
    /// As [`Map::count`] and [`Map::delete`].
    pub fn clear(self: &Arc<Map>, host_bytes: &HostBytes) -> Result<(), BpfError> {
        let key_size = self.shape.key_size as usize;
        let mut cursor = Cursor::new(Arc::clone(self), false, host_bytes)?;
        let mut charge = host_bytes.start();
        let mut keys = Vec::new();
        loop {
            let more = cursor.next(key_size * COUNTED_AT_ONCE)?;
            if more.is_empty() {
                break;
            }
            // A vector that grows may have twice the room.
            charge.grow(2 * more.len() as u64)?;
            keys.extend(more);
        }
        keys.chunks_exact(key_size).try_for_each(|key| self.delete(key).map(drop))
    }

    /// How many entries may be asked for at once: this many, but no more than it can have. Guards the host's memory, where
    /// a place is kept for each, against values of megabytes.
    pub(super) fn at_once(&self, most: u32) -> u32 {
        most.min(self.shape.max_entries).max(1)
    }

    /// Appends up to so many entries from a position on, each its key and, if they are wanted, its value as [`Map::lookup`]
    /// gives it. The position behind them; none at the end.
    pub(super) fn batch(
        &self,
        from: Option<&[u8]>,
        most: u32,
        values: bool,
        entries: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Errno> {
        let raw = self.raw.batch(from, most)?;
        let (key_size, value_len) = (self.shape.key_size as usize, self.raw.value_len());
        let (size, stride) = (self.shape.value_size as usize, self.stride());
        entries.reserve(raw.keys.len() + raw.values.len());
        for (key, value) in raw.keys.chunks_exact(key_size).zip(raw.values.chunks_exact(value_len)) {
            append(entries, key);
            if values {
                value.chunks_exact(stride).for_each(|slot| append(entries, &slot[..size]));
            }
        }
        Ok(raw.next)
    }

    /// Bytes that the kernel copies for so many entries.
    pub(super) fn batch_bytes(&self, entries: u32) -> u64 {
        let entry = self.shape.key_size as usize + self.raw.value_len();
        u64::from(entries).saturating_mul(entry as u64)
    }

    /// Bytes that the kernel copies for one value: in per-CPU kinds those of all CPUs.
    pub fn value_bytes(&self) -> u64 {
        self.raw.value_len() as u64
    }

    /// Bytes of a value as [`Map::lookup`] gives it.
    pub(super) fn looked_up_len(&self) -> usize {
        self.shape.value_size as usize * self.slots
    }

    /// The key behind one, or the first.
    pub(super) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        self.raw.next_key(key)
    }

    /// A refusal of the kernel.
    pub(super) fn refused(&self, verb: &str, call: &'static str, errno: Errno) -> BpfError {
        self.kernel(verb, call, errno)
    }

    /// Bytes from one value to the next in the kernel's buffer.
    fn stride(&self) -> usize {
        self.raw.value_len() / self.slots
    }

    fn without_padding(&self, value: Vec<u8>) -> Vec<u8> {
        let size = self.shape.value_size as usize;
        if self.stride() == size {
            return value;
        }
        value.chunks_exact(self.stride()).flat_map(|slot| &slot[..size]).copied().collect()
    }

    /// The kernel's buffer for one value or, in per-CPU kinds, one value or all.
    fn with_padding(&self, value: &[u8]) -> Result<Vec<u8>, BpfError> {
        let size = self.shape.value_size as usize;
        if value.len() != size && value.len() != size * self.slots {
            return Err(self.size("a value", size, value.len()));
        }
        let mut buffer = vec![0; self.raw.value_len()];
        if size > 0 {
            for (to, from) in buffer.chunks_exact_mut(self.stride()).zip(value.chunks_exact(size)) {
                to[..size].copy_from_slice(from);
            }
        }
        Ok(buffer)
    }

    /// A descriptor in a plugin's bytes would be one of the host's.
    fn check_numbers(&self) -> Result<(), BpfError> {
        if !OF_DESCRIPTORS.contains(&self.shape.ty) {
            return Ok(());
        }
        Err(BpfError::OfDescriptors { name: self.name.clone() })
    }

    fn check_key(&self, key: &[u8]) -> Result<(), BpfError> {
        let expected = self.shape.key_size as usize;
        if key.len() == expected { Ok(()) } else { Err(self.size("a key", expected, key.len())) }
    }

    fn size(&self, what: &'static str, expected: usize, given: usize) -> BpfError {
        BpfError::Size { what, name: self.name.clone(), expected, given }
    }

    fn kernel(&self, verb: &str, call: &'static str, errno: Errno) -> BpfError {
        BpfError::Kernel { tried: format!("{verb} the map `{}`", self.name), call, errno }
    }
}

/// Appends a key or a value. The commonest sizes have a copy of their own: to call a function for each of so few bytes takes
/// longer than to copy them.
fn append(entries: &mut Vec<u8>, bytes: &[u8]) {
    if let Ok(word) = <&[u8; 8]>::try_from(bytes) {
        entries.extend_from_slice(word);
    } else if let Ok(half) = <&[u8; 4]>::try_from(bytes) {
        entries.extend_from_slice(half);
    } else {
        entries.extend_from_slice(bytes);
    }
}

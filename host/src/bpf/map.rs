//! BPF maps: lookup, update and delete with checked sizes.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::MapType;
use nix::errno::Errno;

use super::cursor::{Cursor, CursorContent, is_unsupported};
use super::delivered::LoadedMap;
use super::error::{BpfError, UPDATE_ENTRY};
use super::inner_maps::InnerMaps;
use super::sys::RawMap;
use crate::host_bytes::HostBytes;

/// Type, sizes and capacity of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ks_host_macros::Wire)]
pub struct MapShape {
    /// Type, a number of `enum bpf_map_type`.
    pub ty: u32,
    /// Size of a key in bytes; 0 for kinds without keys.
    pub key_size: u32,
    /// Size of a value in bytes; in per-CPU kinds, of one CPU's value.
    pub value_size: u32,
    /// Capacity in entries, as declared; for ring buffers in bytes.
    pub max_entries: u32,
    /// Whether an entry has one value per possible CPU.
    pub per_cpu: bool,
}

impl From<&libbpf_sys::bpf_map_info> for MapShape {
    fn from(info: &libbpf_sys::bpf_map_info) -> MapShape {
        MapShape {
            ty: info.type_,
            key_size: info.key_size,
            value_size: info.value_size,
            max_entries: info.max_entries,
            per_cpu: MapType::from(info.type_).is_percpu(),
        }
    }
}

/// The pages of a map that can be mapped into memory.
#[derive(Debug)]
pub struct Pages {
    /// Name of the map in the object.
    pub name: String,
    /// Size of the pages in bytes.
    pub bytes: usize,
    /// Descriptor of the map, to be mapped.
    pub descriptor: OwnedFd,
}

impl Pages {
    /// Returns the pages of an array; none for another kind of map.
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

/// Kinds whose values or keys are file descriptors in the user-space API: BPF_MAP_TYPE_PROG_ARRAY,
/// PERF_EVENT_ARRAY, CGROUP_ARRAY, ARRAY_OF_MAPS, HASH_OF_MAPS, DEVMAP, SOCKMAP, CPUMAP, XSKMAP, SOCKHASH,
/// REUSEPORT_SOCKARRAY, SK_STORAGE, DEVMAP_HASH, INODE_STORAGE, TASK_STORAGE, CGRP_STORAGE. Source:
/// include/uapi/linux/bpf.h, `enum bpf_map_type`, v6.12.
const OF_DESCRIPTORS: [u32; 16] = [3, 4, 8, 12, 13, 14, 15, 16, 17, 18, 20, 24, 25, 28, 29, 32];

/// Kinds that hold nothing but data, whose descriptor therefore reaches nothing else: BPF_MAP_TYPE_HASH, ARRAY,
/// PERCPU_HASH, PERCPU_ARRAY, LRU_HASH, LRU_PERCPU_HASH, LPM_TRIE, QUEUE, STACK, BLOOM_FILTER. Source: as above.
const OF_DATA: [u32; 10] = [1, 2, 5, 6, 9, 10, 11, 22, 23, 30];

/// Keys per read while counting or clearing.
const COUNTED_AT_ONCE: usize = 1024;

/// Condition of an update (`BPF_ANY`, `BPF_NOEXIST`, `BPF_EXIST`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Create the entry or replace its value.
    #[doc(alias = "BPF_ANY")]
    Any,
    /// Create the entry; fail with EEXIST if it exists.
    #[doc(alias = "BPF_NOEXIST")]
    NoExist,
    /// Replace the value; fail with ENOENT if there is no entry.
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

/// Returns the number of possible CPUs, which is the number of values in an entry of a per-CPU map.
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

/// A created map, with its own descriptor. It outlives the object.
#[derive(Debug)]
pub struct Map {
    name: String,
    raw: RawMap,
    /// The inner maps of a map of maps, whose entries are those of this map then.
    inner: Option<InnerMaps>,
    shape: MapShape,
    /// Values in one entry: 1, or the number of possible CPUs.
    slots: usize,
    /// Whether this host has frozen it.
    is_frozen: AtomicBool,
}

impl Map {
    /// Returns a map that the loader delivered.
    pub(super) fn of(map: LoadedMap) -> Result<Map, BpfError> {
        let LoadedMap { name, shape, descriptor, .. } = map;
        let slots = if shape.per_cpu { possible_cpus()? } else { 1 };
        Ok(Map::passed_on(name, shape, slots, descriptor))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.raw.descriptor()
    }

    /// Returns a map whose descriptor another process of this host has duplicated.
    pub(crate) fn passed_on(name: String, shape: MapShape, slots: usize, descriptor: OwnedFd) -> Map {
        let raw = RawMap::new(descriptor, shape, slots);
        Map { name, raw, inner: None, shape, slots, is_frozen: AtomicBool::new(false) }
    }

    /// Returns the map of maps that the loader delivered, with these inner maps.
    pub(super) fn of_maps(map: LoadedMap, inner: InnerMaps) -> Result<Map, BpfError> {
        let of_descriptors = Map::of(map)?;
        let shape = inner.shape(of_descriptors.shape);
        Ok(Map { inner: Some(inner), shape, ..of_descriptors })
    }

    fn inner(&self) -> Result<&InnerMaps, BpfError> {
        self.inner.as_ref().ok_or_else(|| BpfError::NotOfMaps { name: self.name.clone() })
    }

    /// Returns the number of inner maps that exist.
    pub fn inner_maps(&self) -> usize {
        self.inner.as_ref().map_or(0, InnerMaps::count)
    }

    /// Returns the keys of the inner maps that [`Map::create_inner`] would create.
    ///
    /// # Errors
    /// [`BpfError::NotOfMaps`]; [`BpfError::NotWhole`]; [`BpfError::OverLimits`].
    pub fn missing_inner(&self, keys: &[u8]) -> Result<Vec<Vec<u8>>, BpfError> {
        self.inner()?.missing(keys)
    }

    /// Returns the key of the inner map that a write to an entry has to create first.
    pub fn inner_to_create(&self, key: &[u8]) -> Option<Vec<u8>> {
        let inner = self.inner.as_ref()?;
        let outer = self.check_key(key).ok().and_then(|()| inner.outer_key(key))?;
        (!inner.has(outer)).then(|| outer.to_vec())
    }

    /// Creates inner maps at these keys.
    ///
    /// # Errors
    /// [`BpfError::NotOfMaps`]; [`BpfError::OverLimits`]; [`BpfError::Kernel`].
    pub fn create_inner(&self, keys: Vec<Vec<u8>>) -> Result<(), BpfError> {
        self.inner()?.create(keys, &self.raw)
    }

    /// Returns whether there is an inner map at a key.
    ///
    /// # Errors
    /// [`BpfError::NotOfMaps`]; [`BpfError::Size`].
    pub fn has_inner(&self, key: &[u8]) -> Result<bool, BpfError> {
        Ok(self.inner_key(key)?.has(key))
    }

    /// Removes the inner map at a key. False if there was none.
    ///
    /// # Errors
    /// [`BpfError::NotOfMaps`]; [`BpfError::Size`]; [`BpfError::Kernel`] with EINVAL for arrays of maps.
    pub fn delete_inner(&self, key: &[u8]) -> Result<bool, BpfError> {
        self.inner_key(key)?.remove(key, &self.raw)
    }

    fn inner_key(&self, key: &[u8]) -> Result<&InnerMaps, BpfError> {
        let inner = self.inner()?;
        let expected = inner.outer_key_len();
        if key.len() == expected { Ok(inner) } else { Err(self.size("a key", expected, key.len())) }
    }

    /// Calls `call` with the map that has an entry, and the entry's key there.
    fn entry<T>(
        &self,
        key: &[u8],
        call: impl FnOnce(&RawMap, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match &self.inner {
            Some(inner) => inner.entry(key, call),
            None => call(&self.raw, key),
        }
    }

    /// Returns the number of bytes that the kernel reads or writes for a value.
    fn value_len(&self) -> usize {
        self.inner.as_ref().map_or(self.raw.value_len(), InnerMaps::value_len)
    }

    /// Returns a descriptor for another process of this host; none for a kind through which it would reach more than
    /// the data in the map.
    pub(crate) fn to_pass_on(&self) -> Option<OwnedFd> {
        let is_data = OF_DATA.contains(&self.shape.ty) && !self.is_frozen.load(Ordering::Relaxed);
        is_data.then(|| self.raw.descriptor().try_clone_to_owned().ok())?
    }

    /// Whether the kernel lets this process use the map: before 5.19 it wanted a capability for that.
    ///
    /// Source: `__sys_bpf` in kernel/bpf/syscall.c; commit c8644cd0efe7.
    pub(crate) fn is_reachable(&self) -> bool {
        !matches!(self.raw.lookup(&vec![0; self.shape.key_size as usize]), Err(Errno::EPERM | Errno::ENOSYS))
    }

    /// Records that another process of this host has frozen the map.
    pub(crate) fn note_frozen(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
    }

    /// Returns the pages; none if the kernel cannot map this kind.
    pub fn pages(&self) -> Option<Pages> {
        Pages::of(&self.name, self.shape, self.raw.descriptor())
    }

    /// Returns the type, sizes and capacity.
    pub fn shape(&self) -> MapShape {
        self.shape
    }

    /// Returns the number of values in one entry: 1, or in per-CPU kinds the number of possible CPUs.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the value at a key, none if there is no entry. In per-CPU kinds: the values of all CPUs in
    /// order, without the kernel's padding.
    ///
    /// # Errors
    /// [`BpfError::Size`] for a key of another size; [`BpfError::Kernel`].
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        match self.entry(key, RawMap::lookup) {
            Ok(value) => Ok(Some(self.without_padding(value))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.kernel("look up a key in", "bpf(BPF_MAP_LOOKUP_ELEM)", errno)),
        }
    }

    /// As [`Map::lookup`], under the lock of the value.
    ///
    /// # Errors
    /// As [`Map::lookup`]; EINVAL for values without a lock.
    pub fn lookup_locked(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        match self.entry(key, RawMap::lookup_locked) {
            Ok(value) => Ok(Some(self.without_padding(value))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.kernel("look up a key in", "bpf(BPF_MAP_LOOKUP_ELEM)", errno)),
        }
    }

    /// Writes a value; in per-CPU kinds one value for each possible CPU.
    ///
    /// # Errors
    /// [`BpfError::Size`]; [`BpfError::Frozen`]; [`BpfError::Kernel`] with E2BIG or ENOMEM if the map is full
    /// (E2BIG also for an array's index beyond the end), EEXIST and ENOENT by the mode.
    pub fn update(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), BpfError> {
        self.write(key, &self.with_padding(value)?, mode.flags())
    }

    /// As [`Map::update`] under the lock of the value, for an entry that exists.
    ///
    /// # Errors
    /// As [`Map::update`]; EINVAL for values without a lock.
    pub fn update_locked(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), BpfError> {
        self.write(key, &self.with_padding(value)?, mode.flags() | u64::from(libbpf_sys::BPF_F_LOCK))
    }

    /// Writes the value of CPU 0, and zeros for the others.
    ///
    /// # Errors
    /// As [`Map::update`]; [`BpfError::NotPerCpu`].
    pub fn update_sum(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), BpfError> {
        if !self.shape.per_cpu {
            return Err(BpfError::NotPerCpu { name: self.name.clone() });
        }
        let size = self.shape.value_size as usize;
        if value.len() != size {
            return Err(self.size("a value", size, value.len()));
        }
        let mut values = vec![0; self.value_len()];
        values[..size].copy_from_slice(value);
        self.write(key, &values, mode.flags())
    }

    /// Writes a value in the kernel's form.
    fn write(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        let written = self.entry(key, |raw, key| raw.update(key, value, flags));
        written.map_err(|errno| self.not_written(errno))
    }

    fn not_written(&self, errno: Errno) -> BpfError {
        self.frozen(errno).unwrap_or_else(|| self.kernel("update", UPDATE_ENTRY, errno))
    }

    /// Returns the error if the kernel refused a change because the map is frozen.
    fn frozen(&self, errno: Errno) -> Option<BpfError> {
        let is_frozen = errno == Errno::EPERM && self.is_frozen.load(Ordering::Relaxed);
        is_frozen.then(|| BpfError::Frozen { name: self.name.clone() })
    }

    /// Writes several entries, each a key and then a value in the form of [`Map::update`], in batches if the
    /// kind has them. Returns their number.
    ///
    /// # Errors
    /// As [`Map::update`]; [`BpfError::NotWhole`]. Some entries may be written.
    pub fn update_batch(&self, entries: &[u8], mode: UpdateMode) -> Result<u32, BpfError> {
        self.check_numbers()?;
        let key_size = self.shape.key_size as usize;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for entry in self.parts("entries", entries, key_size + self.looked_up_len())? {
            let (key, value) = entry.split_at(key_size);
            keys.extend_from_slice(key);
            values.extend(self.with_padding(value)?);
        }
        let number = u32::try_from(values.len() / self.value_len().max(1)).unwrap_or(u32::MAX);
        let batch = match &self.inner {
            Some(_) => Err(Errno::EINVAL),
            None => self.raw.update_batch(&keys, &values, number, mode.flags()),
        };
        match batch {
            Ok(()) => return Ok(number),
            // Without batches, or not with this mode; each call says what else is wrong.
            Err(errno) if errno == Errno::EINVAL || is_unsupported(errno) => {}
            Err(errno) => return Err(self.not_written(errno)),
        }
        // Queues and stacks have no keys.
        for (index, value) in values.chunks_exact(self.value_len()).enumerate() {
            self.write(&keys[index * key_size..][..key_size], value, mode.flags())?;
        }
        Ok(number)
    }

    /// Removes the entries with these keys. Returns the number of those that existed.
    ///
    /// # Errors
    /// As [`Map::delete`]; [`BpfError::NotWhole`].
    pub fn delete_batch(&self, keys: &[u8]) -> Result<u32, BpfError> {
        let mut keys = self.parts("keys", keys, self.shape.key_size as usize)?;
        keys.try_fold(0, |count, key| Ok(count + u32::from(self.delete(key)?)))
    }

    /// Splits a list of entries or keys.
    fn parts<'a>(
        &self,
        what: &'static str,
        list: &'a [u8],
        size: usize,
    ) -> Result<std::slice::ChunksExact<'a, u8>, BpfError> {
        if size == 0 || !list.len().is_multiple_of(size) {
            let what = format!("{what} of `{}`", self.name);
            return Err(BpfError::NotWhole { what, expected: size, given: list.len() });
        }
        Ok(list.chunks_exact(size))
    }

    /// Forbids later updates and deletions from user space. Idempotent.
    ///
    /// # Errors
    /// [`BpfError::Kernel`]: EBUSY for a map that is mapped, EOPNOTSUPP for kinds that cannot be frozen.
    pub fn freeze(&self) -> Result<(), BpfError> {
        if self.is_frozen.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.raw.freeze() {
            Ok(()) => {}
            Err(errno) if is_unsupported(errno) => return Err(self.no_operation("freeze")),
            Err(errno) => return Err(self.kernel("freeze", "bpf(BPF_MAP_FREEZE)", errno)),
        }
        self.is_frozen.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn no_operation(&self, operation: &'static str) -> BpfError {
        BpfError::NoOperation { operation, name: self.name.clone(), ty: self.shape.ty }
    }

    /// Removes an entry. False if there was none.
    ///
    /// # Errors
    /// [`BpfError::Size`]; [`BpfError::Kernel`] with EINVAL for array kinds.
    pub fn delete(&self, key: &[u8]) -> Result<bool, BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        match self.entry(key, RawMap::delete) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self
                .frozen(errno)
                .unwrap_or_else(|| self.kernel("delete from", "bpf(BPF_MAP_DELETE_ELEM)", errno))),
        }
    }

    /// Stores a perf event in a perf event array.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn put_event(&self, index: u32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        let descriptor = event.as_raw_fd().to_ne_bytes();
        self.raw.update(&index.to_ne_bytes(), &descriptor, UpdateMode::Any.flags())
    }

    /// Removes a perf event from a perf event array. No effect if there is none at the index.
    pub fn remove_event(&self, index: u32) {
        // The only possible error is that there is no event.
        let _ = self.raw.delete(&index.to_ne_bytes());
    }

    /// Returns the name in the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes an entry and returns its value, in the form of [`Map::lookup`]; none if there is none. The key
    /// of queues and stacks is empty.
    ///
    /// # Errors
    /// [`BpfError::Size`]; [`BpfError::NoOperation`]; [`BpfError::Frozen`]; [`BpfError::Kernel`].
    pub fn lookup_and_delete(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        self.check_numbers()?;
        self.check_key(key)?;
        match self.entry(key, RawMap::lookup_and_delete) {
            Ok(value) => Ok(Some(self.without_padding(value))),
            Err(Errno::ENOENT) => Ok(None),
            // EINVAL before 5.14.
            Err(errno) if errno == Errno::EINVAL || is_unsupported(errno) => {
                Err(self.no_operation("take entries out of"))
            }
            Err(errno) => Err(self
                .frozen(errno)
                .unwrap_or_else(|| self.kernel("take from", "bpf(BPF_MAP_LOOKUP_AND_DELETE_ELEM)", errno))),
        }
    }

    /// Returns whether a bloom filter may contain a value.
    ///
    /// # Errors
    /// [`BpfError::NotBloom`]; [`BpfError::Size`]; [`BpfError::Kernel`].
    pub fn contains(&self, value: &[u8]) -> Result<bool, BpfError> {
        // The same call looks at the next value of a queue.
        if self.shape.ty != u32::from(MapType::BloomFilter) {
            return Err(BpfError::NotBloom { name: self.name.clone() });
        }
        let expected = self.shape.value_size as usize;
        if value.len() != expected {
            return Err(self.size("a value", expected, value.len()));
        }
        self.raw.contains(value).map_err(|errno| self.kernel("ask", "bpf(BPF_MAP_LOOKUP_ELEM)", errno))
    }

    /// Counts the entries by iterating over them.
    ///
    /// # Errors
    /// As [`Cursor::new`] and [`Cursor::next`].
    pub fn count(self: &Arc<Map>, host_bytes: &HostBytes) -> Result<usize, BpfError> {
        let key_size = self.shape.key_size as usize;
        let mut cursor = Cursor::new(Arc::clone(self), CursorContent::Keys, host_bytes)?;
        let mut count = 0;
        loop {
            let keys = cursor.next(key_size * COUNTED_AT_ONCE)?;
            if keys.is_empty() {
                return Ok(count);
            }
            count += keys.len() / key_size;
        }
    }

    /// Removes all entries that an iteration finds.
    ///
    /// # Errors
    /// As [`Map::count`] and [`Map::delete`].
    pub fn clear(self: &Arc<Map>, host_bytes: &HostBytes) -> Result<(), BpfError> {
        let key_size = self.shape.key_size as usize;
        let mut cursor = Cursor::new(Arc::clone(self), CursorContent::Keys, host_bytes)?;
        let mut charge = host_bytes.start();
        let mut keys = Vec::new();
        loop {
            let more = cursor.next(key_size * COUNTED_AT_ONCE)?;
            if more.is_empty() {
                break;
            }
            // A growing vector may have twice the capacity it needs.
            charge.grow(2 * more.len() as u64)?;
            keys.extend(more);
        }
        keys.chunks_exact(key_size).try_for_each(|key| self.delete(key).map(drop))
    }

    /// Limits the size of a batch to the capacity of the map, at least 1. Guards the host's memory, which is
    /// allocated for the whole batch, against values of megabytes.
    pub(super) fn at_once(&self, most: u32) -> u32 {
        most.min(self.shape.max_entries).max(1)
    }

    /// Appends the content of up to `most` entries starting at a position. Returns the next position; none at
    /// the end.
    pub(super) fn batch(
        &self,
        from: Option<&[u8]>,
        most: u32,
        content: CursorContent,
        entries: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Errno> {
        let raw = match &self.inner {
            Some(inner) => inner.batch(from, most)?,
            None => self.raw.batch(from, most)?,
        };
        let (key_size, value_len) = (self.shape.key_size as usize, self.value_len());
        let (size, stride) = (self.shape.value_size as usize, self.stride());
        entries.reserve(raw.keys.len() + raw.values.len());
        for (key, value) in raw.keys.chunks_exact(key_size).zip(raw.values.chunks_exact(value_len)) {
            append(entries, key);
            if content == CursorContent::KeysAndValues {
                value.chunks_exact(stride).for_each(|slot| append(entries, &slot[..size]));
            }
        }
        Ok(raw.next)
    }

    /// Returns the size of a list of entries with the kernel's padding in bytes, given its size without.
    pub fn padded_bytes(&self, entries: usize) -> u64 {
        let entry = self.shape.key_size as usize + self.looked_up_len();
        self.batch_bytes(u32::try_from(entries / entry.max(1)).unwrap_or(u32::MAX))
    }

    /// Returns the number of bytes that the kernel copies for a batch of entries.
    pub(super) fn batch_bytes(&self, entries: u32) -> u64 {
        let entry = self.shape.key_size as usize + self.value_len();
        u64::from(entries).saturating_mul(entry as u64)
    }

    /// Returns the number of bytes that the kernel copies for one lookup: in per-CPU kinds the values of all
    /// CPUs.
    pub fn value_bytes(&self) -> u64 {
        self.value_len() as u64
    }

    /// Returns the size of a value in the form of [`Map::lookup`], in bytes.
    pub(super) fn looked_up_len(&self) -> usize {
        self.shape.value_size as usize * self.slots
    }

    /// Returns the key after this one, or the first.
    pub(super) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        match &self.inner {
            Some(inner) => inner.next_key(key),
            None => self.raw.next_key(key),
        }
    }

    /// Builds the error of a failed system call on this map.
    pub(super) fn refused(&self, verb: &str, call: &'static str, errno: Errno) -> BpfError {
        self.kernel(verb, call, errno)
    }

    /// Returns the distance of values in the kernel's buffer in bytes.
    fn stride(&self) -> usize {
        self.value_len() / self.slots
    }

    fn without_padding(&self, value: Vec<u8>) -> Vec<u8> {
        let size = self.shape.value_size as usize;
        if self.stride() == size {
            return value;
        }
        value.chunks_exact(self.stride()).flat_map(|slot| &slot[..size]).copied().collect()
    }

    /// Builds the kernel's buffer from the values of an entry.
    fn with_padding(&self, value: &[u8]) -> Result<Vec<u8>, BpfError> {
        let size = self.shape.value_size as usize;
        if value.len() != size * self.slots {
            return Err(self.size("a value", size * self.slots, value.len()));
        }
        let mut buffer = vec![0; self.value_len()];
        if size > 0 {
            for (to, from) in buffer.chunks_exact_mut(self.stride()).zip(value.chunks_exact(size)) {
                to[..size].copy_from_slice(from);
            }
        }
        Ok(buffer)
    }

    /// Rejects maps of descriptors: a number chosen by the plugin would denote a descriptor of the host.
    fn check_numbers(&self) -> Result<(), BpfError> {
        if self.inner.is_some() || !OF_DESCRIPTORS.contains(&self.shape.ty) {
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

/// Appends a key or a value. The most common sizes have their own fixed-size copy: calling memcpy for each of
/// so few bytes costs more than copying them.
fn append(entries: &mut Vec<u8>, bytes: &[u8]) {
    if let Ok(word) = <&[u8; 8]>::try_from(bytes) {
        entries.extend_from_slice(word);
    } else if let Ok(half) = <&[u8; 4]>::try_from(bytes) {
        entries.extend_from_slice(half);
    } else {
        entries.extend_from_slice(bytes);
    }
}

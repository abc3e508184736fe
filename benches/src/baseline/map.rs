//! Loads from the mapped pages of an array map, and lookups by system call: no host, no handles.
#![expect(unsafe_code, reason = "the standard library maps no pages")]

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use nix::sys::mman::{self, ProtFlags};

use crate::answer::Answer;

/// Number of elements, a power of two.
const ENTRIES: usize = 16;
/// Content of each element.
const VALUE: u64 = 7;
/// The flag BPF_F_MMAPABLE of include/uapi/linux/bpf.h.
const MMAPABLE: u32 = 1 << 10;

/// An array map whose pages are mapped into this process.
pub struct Array {
    map: MapHandle,
    pages: NonNull<AtomicU64>,
    bytes: NonZeroUsize,
}

impl Array {
    /// Creates a map, maps its pages, and fills it.
    ///
    /// # Errors
    /// If the kernel refuses the map (CAP_BPF) or its pages.
    pub fn new() -> Result<Array> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: MMAPABLE,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some("bench"), 4, 8, ENTRIES as u32, &options)
            .context("cannot make an array map: this bench needs root")?;
        let bytes = NonZeroUsize::new(ENTRIES * size_of::<u64>()).context("there are entries")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: without an address the kernel takes one where nothing is.
        let pages = unsafe { mman::mmap(None, bytes, access, mman::MapFlags::MAP_SHARED, map.as_fd(), 0) }?;
        let array = Array { map, pages: pages.cast(), bytes };
        array.values().iter().for_each(|value| value.store(VALUE, Ordering::Relaxed));
        Ok(array)
    }

    fn values(&self) -> &[AtomicU64] {
        // SAFETY: the pages hold `ENTRIES` values, and are mapped until this is dropped.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), ENTRIES) }
    }

    /// Loads an element this many times.
    pub fn read(&self, iterations: u64) -> Answer {
        let values = self.values();
        let mut right = 0;
        let start = Instant::now();
        for iteration in 0..iterations {
            if values[iteration as usize % ENTRIES].load(Ordering::Relaxed) == VALUE {
                right += 1;
            }
        }
        Answer { elapsed: start.elapsed(), right, members: 0, time_enabled: 0 }
    }

    /// Looks up an element by system call this many times.
    ///
    /// # Errors
    /// If the kernel refuses a lookup.
    pub fn look_up(&self, iterations: u64) -> Result<Answer> {
        let mut right = 0;
        let start = Instant::now();
        for iteration in 0..iterations {
            let key = (iteration as u32 % ENTRIES as u32).to_ne_bytes();
            let value = self.map.lookup(&key, MapFlags::ANY)?;
            if value.as_deref() == Some(&VALUE.to_ne_bytes()[..]) {
                right += 1;
            }
        }
        Ok(Answer { elapsed: start.elapsed(), right, members: 0, time_enabled: 0 })
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no reference into it outlives this. It cannot fail.
        let _ = unsafe { mman::munmap(self.pages.cast(), self.bytes.get()) };
    }
}

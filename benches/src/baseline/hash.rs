//! Batch lookups of all entries of a hash map, one system call per map iteration.
#![expect(unsafe_code, reason = "libbpf-rs allocates for each entry of a batch")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::answer::Answer;

/// Number of entries, as in `map_iteration.ks`.
const ENTRIES: usize = 1024;

/// A hash map of u64 to u64, and a buffer for all of its entries.
pub struct Hash {
    map: MapHandle,
    keys: Vec<u64>,
    values: Vec<u64>,
}

impl Hash {
    /// Creates a map of twice the capacity, with the entries 0 to 1023, whose values equal their keys.
    ///
    /// # Errors
    /// If the kernel refuses the map (CAP_BPF) or an entry.
    pub fn new() -> Result<Hash> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Hash, Some("bench"), 8, 8, 2 * ENTRIES as u32, &options)
            .context("cannot make a hash map: this bench needs root")?;
        for key in 0..ENTRIES as u64 {
            map.update(&key.to_ne_bytes(), &key.to_ne_bytes(), MapFlags::ANY)?;
        }
        Ok(Hash { map, keys: vec![0; ENTRIES], values: vec![0; ENTRIES] })
    }

    /// Looks up all entries this many times, and sums keys and values.
    ///
    /// # Errors
    /// If a lookup fails or finds fewer.
    pub fn iterate(&mut self, iterations: u64) -> Result<Answer> {
        let all = (ENTRIES * (ENTRIES - 1)) as u64;
        let mut right = 0;
        let start = Instant::now();
        for _ in 0..iterations {
            self.look_up()?;
            let sum = self.keys.iter().zip(&self.values).fold(0, |sum: u64, (key, value)| sum + key + value);
            right += u64::from(sum == all);
        }
        Ok(Answer { elapsed: start.elapsed(), right, members: 0, time_enabled: 0 })
    }

    fn look_up(&mut self) -> Result<()> {
        let (mut position, mut count) = (0_u64, ENTRIES as u32);
        // SAFETY: `position` has the size of a key, and keys and values have room for `count` entries of 8
        // bytes each.
        let answer = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                self.map.as_fd().as_raw_fd(),
                ptr::null_mut(),
                (&raw mut position).cast(),
                self.keys.as_mut_ptr().cast(),
                self.values.as_mut_ptr().cast(),
                &raw mut count,
                ptr::null(),
            )
        };
        // ENOENT means that no entries follow these.
        ensure!(answer == 0 || answer == -nix::libc::ENOENT, "the batch lookup ended with {answer}");
        ensure!(count as usize == ENTRIES, "{count} of {ENTRIES} entries were looked up");
        Ok(())
    }
}

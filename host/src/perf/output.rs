//! Records that programs write by `bpf_perf_event_output`: an event of this process on each online CPU, in an
//! array of events, with a ring of its own.
//!
//! ```text
//! program on CPU n -> array[n] -> event -> its ring -> OutputRings::take, one record after the other
//! ```
//!
//! When a CPU goes offline, the kernel ends its event; the ring is read to its end. A CPU that comes online
//! gets a new event.
//!
//! Source: perf_event_open(2); kernel/trace/bpf_trace.c, `bpf_perf_event_output`; kernel/events/ring_buffer.c,
//! `__perf_output_begin`, v6.18.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::event_array::{EventArray, EventArrayEntry};
use super::locations::Surroundings;
use super::online::Online;
use super::records::Buffer;
use super::sys::{self, Observed};
use crate::host_bytes::{Charge, Full, HostBytes};

/// The rings of an array of events.
pub struct OutputRings {
    array: Arc<dyn EventArray>,
    /// Pages for records in each ring.
    pages: usize,
    host_bytes: HostBytes,
    surroundings: Surroundings,
    online: Option<Online>,
    rings: BTreeMap<i32, OutputRing>,
    /// What CPUs that went offline left, until it is taken.
    ended: VecDeque<ChargedBuffer>,
    losses: Arc<OutputLosses>,
    /// The CPU from which the next batch starts, so that a busy one does not starve others.
    first: i32,
}

struct OutputRing {
    /// Before the event, so that the array does not keep the event.
    _entry: EventArrayEntry,
    kept: ChargedBuffer,
    event: Arc<OwnedFd>,
    /// As [`Surroundings`] of the CPU when the event was opened.
    incarnation: Option<u64>,
}

/// The pages of a ring, which outlive its event.
struct ChargedBuffer {
    buffer: Buffer,
    _charge: Charge,
}

/// Failure to create the ring of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// A number of bytes that no ring has.
    #[error(
        "a ring of {bytes} bytes is impossible: it has a power of 2 of them, and at least a page ({page})"
    )]
    Size {
        /// The number of bytes.
        bytes: u32,
        /// The size of a page in bytes.
        page: usize,
    },
    /// The rings take more memory than the plugin may cause.
    #[error(transparent)]
    Full(Full),
    /// The rings take more locked memory than this user may have.
    ///
    /// Source: kernel/events/core.c, `perf_mmap`, v6.18.
    #[error(
        "CPU {cpu}: mmap: EPERM: more locked memory than kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK give"
    )]
    LockedMemory {
        /// The CPU of the ring.
        cpu: i32,
    },
    /// A system call failed.
    #[error("CPU {cpu}: {call}: {errno}")]
    Kernel {
        /// The CPU of the ring.
        cpu: i32,
        /// The name of the system call.
        call: &'static str,
        /// The errno that it returned.
        errno: Errno,
    },
}

impl OutputRings {
    /// Creates a ring on every online CPU, each with so many bytes for records.
    ///
    /// # Errors
    /// [`OutputError`].
    pub(super) fn open(
        array: Arc<dyn EventArray>,
        bytes: u32,
        host_bytes: &HostBytes,
        surroundings: &Surroundings,
    ) -> Result<OutputRings, OutputError> {
        let page = Buffer::bytes(0).unwrap_or(usize::MAX);
        if !bytes.is_power_of_two() || (bytes as usize) < page {
            return Err(OutputError::Size { bytes, page });
        }
        let pages = bytes as usize / page;
        let mut rings = OutputRings {
            array,
            pages,
            host_bytes: host_bytes.clone(),
            surroundings: surroundings.clone(),
            online: Online::of(surroundings),
            rings: BTreeMap::new(),
            ended: VecDeque::new(),
            losses: Arc::default(),
            first: 0,
        };
        for cpu in rings.surroundings.sysfs.online_cpus() {
            rings.add(cpu)?;
        }
        Ok(rings)
    }

    /// Returns the number of records that programs lost, shared with this value.
    pub fn losses(&self) -> Arc<OutputLosses> {
        Arc::clone(&self.losses)
    }

    /// Returns the size of all rings in bytes.
    pub fn size(&self) -> u32 {
        let bytes: usize = self.rings.values().map(|ring| ring.kept.buffer.size()).sum();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Returns the bytes of records that were not taken yet, with their headers.
    pub fn waiting(&self) -> u64 {
        let kept = self.rings.values().map(|ring| &ring.kept).chain(&self.ended);
        kept.map(|kept| kept.buffer.waiting() as u64).sum()
    }

    /// Returns the descriptors that become readable when there are records.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.values().map(|ring| ring.event.as_fd())
    }

    /// Takes records until there are none, or `accept` rejects one, which stays. Records of one CPU are in
    /// order.
    pub fn take(&mut self, accept: &mut dyn FnMut(&[u8]) -> bool) {
        let OutputRings { rings, ended, losses, first, .. } = self;
        while let Some(kept) = ended.front_mut() {
            if !take_all(&mut kept.buffer, losses, accept) {
                return;
            }
            ended.pop_front();
        }
        let (before, after): (Vec<i32>, Vec<i32>) = rings.keys().partition(|cpu| **cpu < *first);
        for cpu in after.into_iter().chain(before) {
            let Some(ring) = rings.get_mut(&cpu) else { continue };
            if !take_all(&mut ring.kept.buffer, losses, accept) {
                *first = cpu + 1;
                return;
            }
        }
    }

    /// Handles CPUs that went offline or came online since the last call. Returns the failures to create
    /// rings; those CPUs are tried again at the next change.
    pub fn follow_cpus(&mut self) -> Vec<OutputError> {
        if !self.online.as_mut().is_some_and(Online::has_changed) {
            return Vec::new();
        }
        let online = self.online.as_ref().map(Online::cpus).unwrap_or_default();
        let sysfs = &self.surroundings.sysfs;
        let is_gone = |cpu: &i32, ring: &mut OutputRing| {
            !online.contains(cpu) || ring.incarnation != sysfs.incarnation(*cpu)
        };
        let gone: Vec<(i32, OutputRing)> = self.rings.extract_if(.., is_gone).collect();
        for (cpu, ring) in gone {
            self.losses.end(cpu);
            // The entry goes now: later it would take the event of the CPU that is back out of the array.
            self.ended.push_back(ring.kept);
        }
        let new = online.into_iter().filter(|cpu| !self.rings.contains_key(cpu)).collect::<Vec<_>>();
        new.into_iter().filter_map(|cpu| self.add(cpu).err()).collect()
    }

    /// Creates the ring of a CPU. No effect if the CPU has just gone offline.
    fn add(&mut self, cpu: i32) -> Result<(), OutputError> {
        let failed = |call| move |errno| OutputError::Kernel { cpu, call, errno };
        let (event, counts_lost) = match open_event(cpu) {
            Err(Errno::ENODEV) => return Ok(()),
            opened => opened.map_err(failed("perf_event_open"))?,
        };
        let bytes = Buffer::bytes(self.pages).map_err(failed("sysconf"))?;
        let charge = self.host_bytes.charge(bytes as u64).map_err(OutputError::Full)?;
        let buffer = Buffer::new(event.as_fd(), self.pages).map_err(|errno| match errno {
            Errno::EPERM => OutputError::LockedMemory { cpu },
            errno => OutputError::Kernel { cpu, call: "mmap", errno },
        })?;
        let event = Arc::new(event);
        let entry = EventArrayEntry::put(&self.array, cpu, event.as_fd())
            .map_err(failed("bpf(BPF_MAP_UPDATE_ELEM)"))?;
        if counts_lost {
            self.losses.begin(cpu, Arc::clone(&event));
        }
        let incarnation = self.surroundings.sysfs.incarnation(cpu);
        let kept = ChargedBuffer { buffer, _charge: charge };
        let ring = OutputRing { _entry: entry, kept, event, incarnation };
        self.rings.insert(cpu, ring);
        Ok(())
    }
}

/// Opens an event that programs on a CPU write to, and returns whether the kernel counts its lost records.
fn open_event(cpu: i32) -> Result<(OwnedFd, bool), Errno> {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.type_ = bindings::PERF_TYPE_SOFTWARE;
    attr.config = u64::from(bindings::PERF_COUNT_SW_BPF_OUTPUT);
    attr.sample_type = u64::from(bindings::PERF_SAMPLE_RAW);
    attr.sample_period = 1;
    attr.wakeup_events = 1;
    let observed = Observed { pid: -1, cpu, is_cgroup: false };
    attr.read_format = u64::from(bindings::PERF_FORMAT_LOST);
    match sys::open(&attr, None, observed, None) {
        // Before Linux 6.0.
        Err(Errno::EINVAL) => {
            attr.read_format = 0;
            Ok((sys::open(&attr, None, observed, None)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// Takes the records of a ring; false if `accept` rejected one.
fn take_all(buffer: &mut Buffer, losses: &OutputLosses, accept: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut accepted = true;
    buffer.take_each(|ty, body| {
        match ty {
            bindings::PERF_RECORD_SAMPLE => accepted = raw(body).is_none_or(&mut *accept),
            bindings::PERF_RECORD_LOST => losses.note(body),
            _ => {}
        }
        accepted
    });
    accepted
}

/// Returns the data of a sample of type PERF_SAMPLE_RAW: its length in 4 bytes, then as many bytes.
fn raw(body: &[u8]) -> Option<&[u8]> {
    let (len, data) = body.split_first_chunk::<4>()?;
    data.get(..u32::from_ne_bytes(*len) as usize)
}

/// Number of records that programs lost because the rings of an array were full.
#[derive(Debug, Default)]
pub struct OutputLosses {
    /// Of events that were closed.
    ended: AtomicU64,
    /// Of records in the rings, which kernels before 6.0 write when there is room again.
    noted: AtomicU64,
    /// The events whose losses the kernel counts.
    counting: Mutex<BTreeMap<i32, Arc<OwnedFd>>>,
}

impl OutputLosses {
    /// Returns the number of lost records so far.
    pub fn count(&self) -> u64 {
        let counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let running: u64 = counting.values().map(|event| lost_of(event)).sum();
        running + self.ended.load(Ordering::Relaxed) + self.noted.load(Ordering::Relaxed)
    }

    fn begin(&self, cpu: i32, event: Arc<OwnedFd>) {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner).insert(cpu, event);
    }

    fn end(&self, cpu: i32) {
        let mut counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = counting.remove(&cpu) {
            self.ended.fetch_add(lost_of(&event), Ordering::Relaxed);
        }
    }

    /// Adds the number in a PERF_RECORD_LOST, unless the kernel counts the event's losses itself.
    fn note(&self, body: &[u8]) {
        let counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(lost)) = (counting.is_empty(), body.get(8..).and_then(<[u8]>::first_chunk)) {
            self.noted.fetch_add(u64::from_ne_bytes(*lost), Ordering::Relaxed);
        }
    }
}

/// Reads the number of lost records of an event with PERF_FORMAT_LOST: the second word.
fn lost_of(event: &OwnedFd) -> u64 {
    let mut words = [0; 2];
    match sys::read(event.as_fd(), &mut words) {
        Ok(bytes) if bytes == size_of_val(&words) => words[1],
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_length_before_its_data() {
        assert_eq!(raw(&[3, 0, 0, 0, 7, 8, 9, 0]), Some(&[7, 8, 9][..]));
        assert_eq!(raw(&[9, 0, 0, 0, 7]), None);
        assert_eq!(raw(&[1, 0]), None);
    }
}

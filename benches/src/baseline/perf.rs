//! `read(2)` of a perf group and nothing else: no handles, no restart, no scaling.
#![expect(unsafe_code, reason = "no safe wrapper of the standard library opens a perf event")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use perf_event_open_sys::bindings::{self, perf_event_attr};

use crate::answer::Answer;

/// Equals the host's format, so that the kernel does the same work.
const READ_FORMAT: u32 = bindings::PERF_FORMAT_GROUP
    | bindings::PERF_FORMAT_ID
    | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;

const WORD: usize = size_of::<u64>();
/// Positions of 8-byte words in a group's read buffer: number of entries, time enabled, time running, then
/// count and id of each entry.
const NUMBER: usize = 0;
const TIME_ENABLED: usize = 1;
const LEADER: usize = 3;
const ENTRY: usize = 2;

/// The task or CPU that a group observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// The calling thread on any CPU.
    OwnTask,
    /// Every task on this CPU.
    Cpu(i32),
}

impl Observed {
    /// Returns `pid` and `cpu` of perf_event_open(2).
    fn numbers(self) -> (i32, i32) {
        match self {
            Observed::OwnTask => (0, -1),
            Observed::Cpu(cpu) => (-1, cpu),
        }
    }
}

/// A group of running software events: `task_clock`, the leader, and `page_faults`.
pub struct Group {
    leader: File,
    // Owns the members; they are closed with the group.
    _members: Vec<OwnedFd>,
    buffer: Vec<u8>,
}

impl Group {
    /// Opens a group of this many events, including the leader.
    ///
    /// # Errors
    /// If the kernel refuses an event.
    pub fn open(members: u32, observed: Observed) -> Result<Group> {
        let clock = (bindings::PERF_TYPE_SOFTWARE, bindings::PERF_COUNT_SW_TASK_CLOCK);
        let faults = (bindings::PERF_TYPE_SOFTWARE, bindings::PERF_COUNT_SW_PAGE_FAULTS);
        let leader = open(clock, observed, None).context(ADVICE)?;
        let rest: io::Result<Vec<_>> = (1..members).map(|_| open(faults, observed, Some(&leader))).collect();
        let buffer = vec![0; (LEADER + ENTRY * members as usize) * WORD];
        Ok(Group { leader: File::from(leader), _members: rest.context(ADVICE)?, buffer })
    }

    /// Reads the group this many times.
    ///
    /// # Errors
    /// If a read fails or is short.
    pub fn measure(&mut self, iterations: u64) -> Result<Answer> {
        self.read()?;
        let mut last = self.leader_count();
        let mut right = 0;
        let start = Instant::now();
        for _ in 0..iterations {
            self.read()?;
            let count = self.leader_count();
            right += u64::from(count > last);
            last = count;
        }
        let elapsed = start.elapsed();
        let members = u32::try_from(self.word(NUMBER)).unwrap_or(u32::MAX);
        Ok(Answer { elapsed, right, members, time_enabled: self.word(TIME_ENABLED) })
    }

    /// Returns the leader's count from the last read.
    fn leader_count(&self) -> u64 {
        self.word(LEADER)
    }

    fn read(&mut self) -> Result<()> {
        let length = self.leader.read(&mut self.buffer).context("cannot read the group")?;
        ensure!(length == self.buffer.len(), "the kernel answered {length} bytes");
        Ok(())
    }

    fn word(&self, index: usize) -> u64 {
        let (words, _) = self.buffer.as_chunks::<WORD>();
        words.get(index).copied().map_or(0, u64::from_ne_bytes)
    }
}

/// Opens a running counter of the calling thread's page faults.
///
/// # Errors
/// If the kernel refuses it.
pub fn page_faults() -> Result<OwnedFd> {
    let faults = (bindings::PERF_TYPE_SOFTWARE, bindings::PERF_COUNT_SW_PAGE_FAULTS);
    open(faults, Observed::OwnTask, None).context(ADVICE)
}

/// Reads all groups, one after the other, this many times. The members of the answer are the groups.
///
/// # Errors
/// If a read fails or is short.
pub fn measure_all(groups: &mut [Group], iterations: u64) -> Result<Answer> {
    let mut read = || -> Result<u64> {
        let mut sum = 0;
        for group in &mut *groups {
            group.read()?;
            sum += group.leader_count();
        }
        Ok(sum)
    };
    let mut last = read()?;
    let mut right = 0;
    let start = Instant::now();
    for _ in 0..iterations {
        let sum = read()?;
        right += u64::from(sum > last);
        last = sum;
    }
    let elapsed = start.elapsed();
    let time_enabled = groups.first().map_or(0, |group| group.word(TIME_ENABLED));
    Ok(Answer { elapsed, right, members: u32::try_from(groups.len())?, time_enabled })
}

/// Error text for an event that the kernel refuses.
pub(super) const ADVICE: &str = "cannot open a software perf event: this bench needs a kernel with perf \
                                 events, and root or CAP_PERFMON (or kernel.perf_event_paranoid at most 1)";

/// Returns whether this machine counts CPU cycles, that is, has a hardware PMU that this process may use.
///
/// # Errors
/// If the kernel refuses for a reason that is not the hardware.
pub fn has_hardware_counters() -> Result<bool> {
    let cycles = (bindings::PERF_TYPE_HARDWARE, bindings::PERF_COUNT_HW_CPU_CYCLES);
    match open(cycles, Observed::OwnTask, None) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(error) => bail!("cannot tell whether this machine has a PMU: {error}"),
    }
}

/// Opens a running event (type and config), close-on-exec.
fn open((type_, config): (u32, u32), observed: Observed, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let (pid, cpu) = observed.numbers();
    let mut attr = perf_event_attr::default();
    attr.type_ = type_;
    attr.config = u64::from(config);
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.read_format = u64::from(READ_FORMAT);
    let leader = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live structure of the size it states, and the only memory that the kernel reads.
    // The leader's descriptor is open as long as its borrow.
    let number = unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, pid, cpu, leader, flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

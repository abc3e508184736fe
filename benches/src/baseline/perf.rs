//! `read(2)` of a perf group and nothing else: no handles, no restart, no scaling.
#![expect(unsafe_code, reason = "no safe wrapper of the standard library opens a perf event")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use perf_event_open_sys::bindings::{self, perf_event_attr};

use crate::answer::Answer;

/// The same as the host's, so that the kernel does the same work.
const READ_FORMAT: u32 = bindings::PERF_FORMAT_GROUP
    | bindings::PERF_FORMAT_ID
    | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;

const WORD: usize = size_of::<u64>();
/// Words of a group's answer: number of entries, time enabled, time running, then count and id of each entry.
const NUMBER: usize = 0;
const TIME_ENABLED: usize = 1;
const LEADER: usize = 3;
const ENTRY: usize = 2;

/// Running software events of the calling thread: `task_clock`, which leads, and `page_faults`.
pub struct Group {
    leader: File,
    // Closed with the group.
    _members: Vec<OwnedFd>,
    buffer: Vec<u8>,
}

impl Group {
    /// Opens a group of so many events, the leader included.
    ///
    /// # Errors
    /// If the kernel refuses an event.
    pub fn open(members: u32) -> Result<Group> {
        let clock = (bindings::PERF_TYPE_SOFTWARE, bindings::PERF_COUNT_SW_TASK_CLOCK);
        let faults = (bindings::PERF_TYPE_SOFTWARE, bindings::PERF_COUNT_SW_PAGE_FAULTS);
        let leader = open(clock, None).context(ADVICE)?;
        let rest: io::Result<Vec<_>> = (1..members).map(|_| open(faults, Some(&leader))).collect();
        let buffer = vec![0; (LEADER + ENTRY * members as usize) * WORD];
        Ok(Group { leader: File::from(leader), _members: rest.context(ADVICE)?, buffer })
    }

    /// Reads the group so many times.
    ///
    /// # Errors
    /// If a read fails or is short.
    pub fn measure(&mut self, turns: u64) -> Result<Answer> {
        self.read()?;
        let mut last = self.word(LEADER);
        let mut right = 0;
        let start = Instant::now();
        for _ in 0..turns {
            self.read()?;
            let count = self.word(LEADER);
            right += u64::from(count > last);
            last = count;
        }
        let elapsed = start.elapsed();
        let members = u32::try_from(self.word(NUMBER)).unwrap_or(u32::MAX);
        Ok(Answer { elapsed, right, members, time_enabled: self.word(TIME_ENABLED) })
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

const ADVICE: &str = "cannot open a software perf event: this bench needs a kernel with perf events, and root or \
                      CAP_PERFMON (or kernel.perf_event_paranoid at most 1)";

/// Whether this machine counts CPU cycles, that is, has a hardware PMU that we may use.
///
/// # Errors
/// If the kernel's refusal says nothing about the hardware.
pub fn has_hardware_counters() -> Result<bool> {
    match open((bindings::PERF_TYPE_HARDWARE, bindings::PERF_COUNT_HW_CPU_CYCLES), None) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(error) => bail!("cannot tell whether this machine has a PMU: {error}"),
    }
}

/// Opens an event (type and config) of the calling thread, running, close-on-exec.
fn open((type_, config): (u32, u32), leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let mut attr = perf_event_attr::default();
    attr.type_ = type_;
    attr.config = u64::from(config);
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.read_format = u64::from(READ_FORMAT);
    let leader = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live structure of the size it states, and the only memory that the kernel looks at. The
    // leader's descriptor is open as long as its borrow.
    let number = unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, 0, -1, leader, flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor; nothing else knows it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

//! Reading a counter without a system call, from the page that the kernel shares for an event and the
//! counter's register.
//!
//! The kernel allows this for hardware events of the own task. If it does not, or the event is not on a
//! counter now, the result is None and the caller uses read(2).
//!
//! Source: `struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h`, v6.18; `perf_mmap__read_self`
//! in `tools/lib/perf/mmap.c`; `perf_event_update_userpage` in `kernel/events/core.c`.

mod sys;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::{self, ThreadId};

use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::attr::Options;
use super::event::{Event, EventKind};
use super::scale::Times;

/// Limit of retries: a task that is interrupted this often during a read should use the kernel.
const MAX_ATTEMPTS: u32 = 32;

/// Bits of [`Header::capabilities`].
const CAP_USER_RDPMC: u64 = 1 << 2;
const CAP_USER_TIME: u64 = 1 << 3;
const CAP_USER_TIME_SHORT: u64 = 1 << 5;

#[derive(Debug, Default)]
#[repr(C)]
#[doc(alias = "perf_event_mmap_page")]
struct Header {
    version: AtomicU32,
    compat_version: AtomicU32,
    /// Sequence lock: changes whenever the kernel writes the fields below, and is odd meanwhile.
    lock: AtomicU32,
    /// The counter's number plus 1; 0 if the event is on no counter now, or may not be read from user space.
    index: AtomicU32,
    /// Added to the counter's value to get the count.
    offset: AtomicU64,
    time_enabled: AtomicU64,
    time_running: AtomicU64,
    capabilities: AtomicU64,
    /// Width of the counter, in bits.
    pmc_width: AtomicU16,
    time_shift: AtomicU16,
    time_mult: AtomicU32,
    time_offset: AtomicU64,
    time_zero: AtomicU64,
    size: AtomicU32,
    reserved: AtomicU32,
    time_cycles: AtomicU64,
    time_mask: AtomicU64,
}

/// Access to the CPU's registers.
trait Registers {
    /// Returns the counter with this number, from 0. None if it cannot be read by number on this CPU.
    fn counter(&self, number: u32) -> Option<u64>;
    /// Returns the clock on which the page's times are based.
    fn clock(&self) -> u64;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    count: u64,
    times: Times,
}

impl Header {
    /// Returns the current count and times. None if the event cannot be read from user space now.
    fn fields(&self, registers: &impl Registers) -> Option<Fields> {
        let capabilities = self.capabilities.load(Ordering::Relaxed);
        let index = self.index.load(Ordering::Relaxed);
        if capabilities & CAP_USER_RDPMC == 0 || capabilities & CAP_USER_TIME == 0 {
            return None;
        }
        let counter = registers.counter(index.checked_sub(1)?)?;
        let width = u32::from(self.pmc_width.load(Ordering::Relaxed));
        let unused = u64::BITS.checked_sub(width).filter(|unused| *unused < u64::BITS)?;
        // The counter is a signed number of `width` bits.
        let counter = ((counter << unused) as i64 >> unused) as u64;
        let passed = self.passed(registers.clock(), capabilities);
        Some(Fields {
            count: self.offset.load(Ordering::Relaxed).wrapping_add(counter),
            times: Times {
                enabled: self.time_enabled.load(Ordering::Relaxed).wrapping_add(passed),
                running: self.time_running.load(Ordering::Relaxed).wrapping_add(passed),
            },
        })
    }

    /// Returns nanoseconds since the kernel wrote the times.
    fn passed(&self, clock: u64, capabilities: u64) -> u64 {
        let mut cycles = clock;
        if capabilities & CAP_USER_TIME_SHORT != 0 {
            let start = self.time_cycles.load(Ordering::Relaxed);
            let mask = self.time_mask.load(Ordering::Relaxed);
            cycles = start.wrapping_add(cycles.wrapping_sub(start) & mask);
        }
        let shift = u32::from(self.time_shift.load(Ordering::Relaxed));
        let product = u128::from(cycles) * u128::from(self.time_mult.load(Ordering::Relaxed));
        let scaled = product.checked_shr(shift).unwrap_or(0) as u64;
        self.time_offset.load(Ordering::Relaxed).wrapping_add(scaled)
    }
}

/// Returns the count of an event and the times of its group's leader, at one moment. None if the kernel must
/// be asked.
fn read(own: &Header, leader: &Header, registers: &impl Registers) -> Option<(u64, Times)> {
    for _ in 0..MAX_ATTEMPTS {
        // ORDERING: the kernel writes on this CPU, between two changes of `lock`; the loads between the two
        // of ours stay between them.
        let before = [own, leader].map(|page| page.lock.load(Ordering::Acquire));
        // If the event cannot be read now, the kernel is asked, even if it is updating the page at this
        // moment.
        let (count, times) = (own.fields(registers)?.count, leader.fields(registers)?.times);
        fence(Ordering::Acquire);
        let after = [own, leader].map(|page| page.lock.load(Ordering::Relaxed));
        if before == after && before.iter().all(|lock| lock % 2 == 0) {
            return Some((count, times));
        }
    }
    None
}

/// The page of an event, unmapped on drop. Only the thread that mapped it may use it: the counters are those
/// of the CPU that this thread runs on.
#[derive(Debug)]
pub(super) struct Page {
    mapping: sys::Mapping,
    thread: ThreadId,
}

impl Page {
    /// Maps the page of an event of the calling thread. None if the kernel refuses.
    pub(super) fn map(event: BorrowedFd<'_>) -> Option<Page> {
        Some(Page { mapping: sys::Mapping::new(event)?, thread: thread::current().id() })
    }

    /// Returns the current count of this event and the times of its leader. None if the kernel must be asked.
    pub(super) fn read(&self, leader: &Page) -> Option<(u64, Times)> {
        let here = thread::current().id();
        if self.thread != here || leader.thread != here {
            return None;
        }
        read(self.mapping.header(), leader.mapping.header(), &sys::Cpu)
    }
}

/// Whether an event may be read from user space: the CPU counts it, and for the task that reads it only, the calling
/// thread or `own_task`.
pub(super) fn is_for(event: &Event, options: &Options, own_task: Option<i32>) -> bool {
    let Options { pid, cpu, every_cpu, inherit, follow, .. } = *options;
    let is_own = pid == 0 || own_task == Some(pid);
    is_own && cpu == -1 && !every_cpu && !inherit && !follow && event.is_counted_by_hardware()
}

/// Requests a counter that user code may read, where a request is needed: on arm64, whose core PMU takes it
/// as bit 1 of `config1`. A kernel that does not allow user-space reads ignores it.
///
/// Source: `armv8pmu_event_want_user_access` in `drivers/perf/arm_pmuv3.c`; since Linux 5.17.
pub(super) fn ask(kind: &EventKind, attr: &mut perf_event_attr) {
    const WANT_USER_ACCESS: u64 = 1 << 1;
    let of_core = [bindings::PERF_TYPE_HARDWARE, bindings::PERF_TYPE_HW_CACHE, bindings::PERF_TYPE_RAW];
    if let EventKind::Counter { type_, config: [_, 0, _] } = kind
        && of_core.contains(type_)
        && cfg!(target_arch = "aarch64")
    {
        attr.config1 = WANT_USER_ACCESS;
    }
}

#[cfg(test)]
mod tests;

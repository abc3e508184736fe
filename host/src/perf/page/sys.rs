//! The mapping of the page, and access to the CPU's registers.
#![expect(unsafe_code, reason = "a mapping that the kernel writes, and instructions that read registers")]

use std::arch::asm;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};

use super::{Header, Registers};

/// The first page of an event's buffer, without the buffer.
#[derive(Debug)]
pub(super) struct Mapping {
    header: NonNull<Header>,
    length: NonZeroUsize,
}

// SAFETY: the mapping is memory that any thread may read; all of its fields are atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the page for reading. None if the kernel refuses, for example at the user's limit of locked
    /// memory.
    pub(super) fn new(event: BorrowedFd<'_>) -> Option<Mapping> {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten()?;
        let length = NonZeroUsize::new(usize::try_from(page).ok()?)?;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no existing memory.
        let mapped = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, event, 0) };
        Some(Mapping { header: mapped.ok()?.cast(), length })
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping lives as long as `self`, is aligned to a page and longer than a header. Any bit
        // pattern is valid for its fields, which the kernel may change at any time: they are atomic. This
        // process never writes them.
        unsafe { self.header.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, to which no reference is left.
        let _ = unsafe { munmap(self.header.cast(), self.length.get()) };
    }
}

/// The registers of the CPU that the calling thread runs on.
pub(super) struct Cpu;

#[cfg(target_arch = "x86_64")]
impl Registers for Cpu {
    fn counter(&self, number: u32) -> Option<u64> {
        let (low, high): (u32, u32);
        // SAFETY: the caller has seen in the event's page that the kernel allows this instruction and that
        // the event is on this counter. If the counter was reassigned meanwhile, the value is discarded
        // because the page's lock changed. Every CPU has the counter: events of a PMU that only some CPUs
        // have get no page (`Plan::open`).
        unsafe {
            asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high, options(nomem, nostack));
        }
        Some(u64::from(high) << 32 | u64::from(low))
    }

    fn clock(&self) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: it reads the time stamp counter, which the page declares to be the clock of its times.
        unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
        u64::from(high) << 32 | u64::from(low)
    }
}

/// Reads the register whose number is known at run time: each register has an instruction of its own.
#[cfg(target_arch = "aarch64")]
macro_rules! event_counter {
    ($number:expr, $($n:literal)*) => {
        match $number {
            $($n => {
                let count: u64;
                // SAFETY: the caller has seen in the event's page that the kernel allows this register to be
                // read, and every CPU has it: events of a PMU that only some CPUs have get no page
                // (`Plan::open`).
                unsafe {
                    asm!(concat!("mrs {}, pmevcntr", $n, "_el0"), out(reg) count, options(nomem, nostack));
                }
                Some(count)
            })*
            31 => {
                let count: u64;
                // SAFETY: as above; this is the counter of cycles.
                unsafe { asm!("mrs {}, pmccntr_el0", out(reg) count, options(nomem, nostack)) };
                Some(count)
            }
            _ => None,
        }
    };
}

#[cfg(target_arch = "aarch64")]
impl Registers for Cpu {
    fn counter(&self, number: u32) -> Option<u64> {
        event_counter!(
            number,
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
        )
    }

    fn clock(&self) -> u64 {
        let cycles: u64;
        // SAFETY: it reads the virtual counter, which the kernel lets every task read.
        unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) cycles, options(nomem, nostack)) };
        cycles
    }
}

/// Other architectures: always ask the kernel.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Registers for Cpu {
    fn counter(&self, _: u32) -> Option<u64> {
        None
    }

    fn clock(&self) -> u64 {
        0
    }
}

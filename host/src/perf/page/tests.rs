use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use super::super::attr::{Purpose, attr};
use super::super::sys::{self as perf_sys, Observed};
use super::*;

/// A CPU with chosen register values.
struct FakeRegisters {
    counter: u64,
    clock: u64,
}

impl Registers for FakeRegisters {
    fn counter(&self, number: u32) -> Option<u64> {
        (number == 4).then_some(self.counter)
    }

    fn clock(&self) -> u64 {
        self.clock
    }
}

fn header() -> Header {
    let page = Header::default();
    page.index.store(5, Ordering::Relaxed);
    page.capabilities.store(CAP_USER_RDPMC | CAP_USER_TIME, Ordering::Relaxed);
    page.pmc_width.store(48, Ordering::Relaxed);
    page.time_mult.store(3, Ordering::Relaxed);
    page.time_shift.store(1, Ordering::Relaxed);
    page
}

#[test]
fn the_fields_lie_where_the_kernel_has_them() {
    use std::mem::offset_of;
    type Kernel = bindings::perf_event_mmap_page;
    assert_eq!(offset_of!(Header, lock), offset_of!(Kernel, lock));
    assert_eq!(offset_of!(Header, index), offset_of!(Kernel, index));
    assert_eq!(offset_of!(Header, offset), offset_of!(Kernel, offset));
    assert_eq!(offset_of!(Header, time_running), offset_of!(Kernel, time_running));
    assert_eq!(offset_of!(Header, pmc_width), offset_of!(Kernel, pmc_width));
    assert_eq!(offset_of!(Header, time_mult), offset_of!(Kernel, time_mult));
    assert_eq!(offset_of!(Header, time_offset), offset_of!(Kernel, time_offset));
    assert_eq!(offset_of!(Header, time_cycles), offset_of!(Kernel, time_cycles));
    assert_eq!(offset_of!(Header, time_mask), offset_of!(Kernel, time_mask));
}

#[test]
fn count_and_times_are_worked_out_as_the_kernel_says() {
    let page = header();
    page.offset.store(1000, Ordering::Relaxed);
    page.time_enabled.store(70, Ordering::Relaxed);
    page.time_running.store(50, Ordering::Relaxed);
    page.time_offset.store(10_u64.wrapping_sub(300), Ordering::Relaxed);
    let registers = FakeRegisters { counter: 24, clock: 200 };
    // 200 * 3 >> 1 is 300.
    assert_eq!(read(&page, &page, &registers), Some((1024, Times { enabled: 80, running: 60 })));
    // The counter is signed, in its own width.
    let below = FakeRegisters { counter: (1 << 48) - 24, clock: 200 };
    assert_eq!(read(&page, &page, &below).map(|(count, _)| count), Some(976));
    // The clock has wrapped since the kernel read it.
    page.capabilities.store(CAP_USER_RDPMC | CAP_USER_TIME | CAP_USER_TIME_SHORT, Ordering::Relaxed);
    page.time_cycles.store(0xfff0, Ordering::Relaxed);
    page.time_mask.store(0xffff, Ordering::Relaxed);
    page.time_offset.store(((0xfff0_u64 * 3) >> 1).wrapping_neg(), Ordering::Relaxed);
    let wrapped = FakeRegisters { counter: 0, clock: 0x10 };
    assert_eq!(read(&page, &page, &wrapped), Some((1000, Times { enabled: 118, running: 98 })));
}

#[test]
fn events_of_other_cpus_are_read_by_the_kernel() {
    let registers = FakeRegisters { counter: 24, clock: 200 };
    assert!(read(&header(), &header(), &registers).is_some());
    let without = |change: fn(&Header)| {
        let page = header();
        change(&page);
        assert_eq!(read(&page, &header(), &registers), None);
        assert_eq!(read(&header(), &page, &registers), None);
    };
    without(|page| page.index.store(0, Ordering::Relaxed));
    without(|page| page.index.store(7, Ordering::Relaxed));
    without(|page| page.capabilities.store(CAP_USER_TIME, Ordering::Relaxed));
    without(|page| page.capabilities.store(CAP_USER_RDPMC, Ordering::Relaxed));
    without(|page| page.pmc_width.store(0, Ordering::Relaxed));
    without(|page| page.pmc_width.store(65, Ordering::Relaxed));
    without(|page| page.lock.store(1, Ordering::Relaxed));
}

/// A writer updates both under the lock while they are read.
#[test]
fn a_count_and_its_times_are_of_one_moment() {
    const WRITES: u64 = 20_000;
    let (page, done) = (header(), AtomicBool::new(false));
    let registers = FakeRegisters { counter: 0, clock: 0 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=WRITES {
                page.lock.fetch_add(1, Ordering::Relaxed);
                fence(Ordering::Release);
                page.offset.store(3 * n, Ordering::Relaxed);
                page.time_enabled.store(5 * n, Ordering::Relaxed);
                page.time_running.store(2 * n, Ordering::Relaxed);
                page.lock.fetch_add(1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        let mut last = 0;
        loop {
            let ended = done.load(Ordering::Acquire);
            if let Some((count, times)) = read(&page, &page, &registers) {
                let n = count / 3;
                assert_eq!((count, times), (3 * n, Times { enabled: 5 * n, running: 2 * n }));
                assert!(n >= last);
                last = n;
            }
            if ended {
                assert_eq!(last, WRITES);
                return;
            }
        }
    });
}

/// The page of a software event contains numbers that must not be used.
#[test]
fn root_the_page_of_a_software_event_falls_back() {
    let event = Event::named("page_faults").unwrap();
    let options = Options { pid: 0, cpu: -1, ..Options::default() };
    assert!(!is_for(&event, &options, None));
    let attr = attr(event.kind(), &options, Purpose::Counting);
    let own = Observed { pid: 0, cpu: -1, is_cgroup: false };
    let opened = perf_sys::open(&attr, None, own, None).unwrap();
    perf_sys::enable(opened.as_fd()).unwrap();
    let page = Page::map(opened.as_fd()).expect("every event has a page");
    assert_ne!(page.mapping.header().capabilities.load(Ordering::Relaxed), 0, "the kernel has written it");
    assert_eq!(page.read(&page), None);
}

#[test]
fn only_what_the_cpu_counts_for_this_thread_is_read_here() {
    let own = Options { pid: 0, cpu: -1, ..Options::default() };
    let cycles = Event::named("cpu_cycles").unwrap();
    assert!(is_for(&cycles, &own, None));
    for options in [
        Options { pid: 1, ..own.clone() },
        Options { cpu: 0, ..own.clone() },
        Options { every_cpu: true, ..own.clone() },
        Options { inherit: true, ..own.clone() },
        Options { follow: true, ..own },
    ] {
        assert!(!is_for(&cycles, &options, None), "{options:?}");
    }
}

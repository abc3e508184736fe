//! Workloads whose size the kernel counts, and threads to run them.

use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ks_host::perf::{Access, AttachmentId, Event, LinkProgram, Options};
use ks_tests::wait_until;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

const PAGE: usize = 4096;

/// Returns options for the calling thread on any CPU.
pub fn own_thread() -> Options {
    Options { pid: 0, cpu: -1, ..Options::default() }
}

pub fn named(name: &str) -> Event {
    Event::named(name).unwrap()
}

/// Returns an event that counts stores to a word of this process exactly.
pub fn stores_to(word: &AtomicU64) -> Event {
    let stores = Access { write: true, ..Access::default() };
    Event::breakpoint(word.as_ptr() as u64, 8, stores).unwrap()
}

pub fn store(word: &AtomicU64, times: u64) {
    for n in 0..times {
        word.store(n, Ordering::SeqCst);
    }
}

/// Touches this many fresh pages, each a page fault.
pub fn fault(pages: usize) {
    let length = NonZeroUsize::new(pages * PAGE).unwrap();
    // SAFETY: a new private mapping, used only here and within its length, and unmapped at the end.
    unsafe {
        let map =
            mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
                .unwrap();
        madvise(map, length.get(), MmapAdvise::MADV_NOHUGEPAGE).unwrap();
        for page in 0..pages {
            map.cast::<u8>().add(page * PAGE).write_volatile(1);
        }
        munmap(map, length.get()).unwrap();
    }
}

/// Keeps the CPU busy for this long.
pub fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Returns a descriptor that stands in for a link.
pub fn some_descriptor() -> Result<OwnedFd, Errno> {
    Ok(std::fs::File::open("/dev/null").unwrap().into())
}

/// Returns a program that a function links.
pub fn program(
    link: impl Fn(BorrowedFd<'_>) -> Result<OwnedFd, Errno> + Send + Sync + 'static,
) -> Option<LinkProgram> {
    Some(Arc::new(move |event: BorrowedFd<'_>, _: AttachmentId| link(event)))
}

/// A thread that sleeps until this is dropped.
pub struct Sleeper {
    pub tid: i32,
    wake: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sleeper {
    pub fn new() -> Sleeper {
        let (tid_sender, tid) = mpsc::channel();
        let (wake, sleep) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            tid_sender.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = sleep.recv();
        });
        let tid = tid.recv().unwrap();
        wait_until_asleep(tid);
        Sleeper { tid, wake: Some(wake), thread: Some(thread) }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Waits until a thread of this process sleeps.
pub fn wait_until_asleep(tid: i32) {
    let state = |stat: &str| stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    let stat = || std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    wait_until(Duration::from_secs(10), "the thread sleeps", || state(&stat()) == Some('S'));
}

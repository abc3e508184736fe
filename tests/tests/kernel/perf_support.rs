//! Loads whose size the kernel counts, and threads to put them on.

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

/// The calling thread, wherever it runs.
pub fn own_thread() -> Options {
    Options { pid: 0, cpu: -1, ..Options::default() }
}

pub fn named(name: &str) -> Event {
    Event::named(name).unwrap()
}

/// Counts stores to a word of this process: as many as are made, exactly.
pub fn stores_to(word: &AtomicU64) -> Event {
    let stores = Access { write: true, ..Access::default() };
    Event::breakpoint(word.as_ptr() as u64, 8, stores).unwrap()
}

pub fn store(word: &AtomicU64, times: u64) {
    for n in 0..times {
        word.store(n, Ordering::SeqCst);
    }
}

/// Touches fresh pages: a page fault for each.
pub fn fault(pages: usize) {
    let length = NonZeroUsize::new(pages * PAGE).unwrap();
    // SAFETY: a new private mapping; it is used here only, inside its length, and unmapped before the end.
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

/// Keeps the CPU busy.
pub fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Stands in for a program: any descriptor that can be owned.
pub fn some_descriptor() -> Result<OwnedFd, Errno> {
    Ok(std::fs::File::open("/dev/null").unwrap().into())
}

/// A program that is linked by a function.
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

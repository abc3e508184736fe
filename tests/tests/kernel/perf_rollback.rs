//! A member that can be opened on only some of its group's CPUs. The tests run alone in their process,
//! because they count its descriptors and use them up.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::perf_support::{named, own_thread, some_descriptor, store, stores_to};
use ks_host::perf::{AttachmentId, Attachments, LinkProgram, Options, PerfError};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

static WORD: AtomicU64 = AtomicU64::new(0);

fn everywhere() -> Options {
    Options { every_cpu: true, ..own_thread() }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns a program that links this many times and then fails.
fn links(times: u32) -> Option<LinkProgram> {
    let linked = AtomicU32::new(0);
    Some(Arc::new(move |_, _| match linked.fetch_add(1, Ordering::SeqCst) {
        before if before < times => some_descriptor(),
        _ => Err(Errno::EEXIST),
    }))
}

/// Runs a function while the process may open only this many more descriptors.
fn with_descriptors_left<T>(left: u64, what: impl FnOnce() -> T) -> T {
    let numbers = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let highest = numbers.max().unwrap();
    // The kernel assigns the lowest free number first, so afterwards no number below the highest is free.
    let mut files: Vec<File> = Vec::new();
    while files.last().is_none_or(|file| file.as_raw_fd() <= highest) {
        files.push(File::open("/dev/null").unwrap());
    }
    let most = files.last().map_or(0, |file| file.as_raw_fd() as u64) + 1 + left;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, hard).unwrap();
    let answer = what();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    answer
}

/// Checks that the group has counted since its start, and returns its count.
fn check(attachments: &mut Attachments, leader: AttachmentId, stores: u64, before: u64) -> u64 {
    let reading = attachments.read(leader).unwrap();
    assert_eq!(reading.raw, stores);
    // When the task moves to another CPU, the old CPU's event stops before the new one starts.
    assert!(reading.time_running > reading.time_enabled / 2, "{reading:?}");
    assert!(reading.time_enabled > before, "{reading:?}, and {before} before");
    assert_eq!(attachments.snapshot(leader).unwrap().entries.len(), 2);
    reading.time_enabled
}

#[test]
fn root_a_join_that_fails_at_one_cpu_is_undone_at_all() {
    ks_tests::alone!();
    let at_first = descriptors();
    let mut attachments = Attachments::new();
    let leader = attachments.open(&stores_to(&WORD), &everywhere(), None, None).unwrap();
    let locations = attachments.live()[0].locations;
    if locations < 2 {
        assert!(std::env::var_os("CI").is_none(), "this machine has one CPU only");
        eprintln!("not run: this machine has one CPU only");
        return;
    }
    attachments.open(&named("page_faults"), &everywhere(), Some(leader), None).unwrap();
    store(&WORD, 70);
    let time = check(&mut attachments, leader, 70, 0);

    let join = |attachments: &mut Attachments, link| {
        attachments.open(&named("task_clock"), &everywhere(), Some(leader), link).unwrap_err()
    };
    let before = descriptors();
    let error = join(&mut attachments, links(locations as u32 - 1));
    assert_eq!(error.errno(), Some(Errno::EEXIST), "{error}");
    assert_eq!(descriptors(), before, "what was opened at the other places is closed");
    store(&WORD, 30);
    let time = check(&mut attachments, leader, 100, time);

    let error = with_descriptors_left(1, || join(&mut attachments, None));
    assert_eq!(error.errno(), Some(Errno::EMFILE), "{error}");
    assert_eq!(descriptors(), before);
    store(&WORD, 11);
    let time = check(&mut attachments, leader, 111, time);

    // A stopped group stays stopped.
    attachments.disable(leader).unwrap();
    let stopped = attachments.read(leader).unwrap();
    assert!(stopped.time_enabled > time);
    let error = join(&mut attachments, links(1));
    assert_eq!(error.errno(), Some(Errno::EEXIST), "{error}");
    store(&WORD, 5);
    assert_eq!(attachments.read(leader), Ok(stopped));
    attachments.enable(leader).unwrap();
    store(&WORD, 9);
    check(&mut attachments, leader, 120, stopped.time_enabled);

    // The id of the failed attachment may be reused for the next one.
    let member = attachments.open(&named("task_clock"), &everywhere(), Some(leader), None).unwrap();
    assert_eq!(attachments.snapshot(member).unwrap().entries.len(), 3);
    attachments.detach(leader);
    assert_eq!(attachments.read(member), Err(PerfError::Stale(member)));
    assert_eq!(descriptors(), at_first, "nothing is left open");
}

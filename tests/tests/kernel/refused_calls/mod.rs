//! Fault injection: each system call by which the host reaches the kernel is refused once, in runs of plugins
//! that together use all of them. Every run ends with a report, never with a panic, a signal, or a wrong
//! number. These tests need root.
//!
//! `make test` injects a part of all calls and errors; `make refused-calls` injects all of them.

mod scenarios;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ks_tests::cgroup::Group;
use ks_tests::refused::{Call, Refusal, run};
use ks_tests::{Folder, Outcome, compile, wait_until, wait_until_gone};
use nix::errno::Errno::{self, *};
use nix::libc;
use scenarios::{SCENARIOS, Scenario};

/// Concurrent runs. Each has its own names, because there is only one list of congestion controls.
const WORKERS: usize = 3;

/// The call by which the C library creates folders.
#[cfg(target_arch = "x86_64")]
const MKDIR: libc::c_long = libc::SYS_mkdir;
#[cfg(not(target_arch = "x86_64"))]
const MKDIR: libc::c_long = libc::SYS_mkdirat;

/// Kinds of calls, and the errors that each is refused with.
const CALLS: [(Call, &[Errno]); 34] = [
    (Call { name: "bpf", number: libc::SYS_bpf }, &[EPERM, ENOMEM, EINVAL, EMFILE, EBUSY, ENOENT]),
    (
        Call { name: "perf_event_open", number: libc::SYS_perf_event_open },
        &[EACCES, EMFILE, ENOSPC, EOPNOTSUPP, EINTR, EINVAL, ESRCH],
    ),
    (Call { name: "ioctl", number: libc::SYS_ioctl }, &[EINVAL, ENOTTY, ENOMEM]),
    (Call { name: "mmap", number: libc::SYS_mmap }, &[ENOMEM, EPERM]),
    (Call { name: "mprotect", number: libc::SYS_mprotect }, &[ENOMEM]),
    (Call { name: "openat", number: libc::SYS_openat }, &[EMFILE, ENOENT, EACCES, EINTR]),
    (Call { name: "read", number: libc::SYS_read }, &[EIO, EINTR]),
    (Call { name: "pread64", number: libc::SYS_pread64 }, &[EIO]),
    (Call { name: "write", number: libc::SYS_write }, &[EPIPE, ENOSPC, EIO]),
    (Call { name: "fcntl", number: libc::SYS_fcntl }, &[EMFILE, EINVAL]),
    (Call { name: "clone3", number: libc::SYS_clone3 }, &[EAGAIN, ENOMEM]),
    (Call { name: "socket", number: libc::SYS_socket }, &[EMFILE, EPERM, EAFNOSUPPORT]),
    (Call { name: "bind", number: libc::SYS_bind }, &[EPERM, ENODEV]),
    (Call { name: "setsockopt", number: libc::SYS_setsockopt }, &[EPERM, ENOMEM]),
    (Call { name: "eventfd2", number: libc::SYS_eventfd2 }, &[EMFILE, ENOMEM]),
    (Call { name: "ppoll", number: libc::SYS_ppoll }, &[ENOMEM, EINTR]),
    (Call { name: "statx", number: libc::SYS_statx }, &[ENOENT, EACCES]),
    (Call { name: "newfstatat", number: libc::SYS_newfstatat }, &[ENOENT, EACCES]),
    (Call { name: "getdents64", number: libc::SYS_getdents64 }, &[EIO]),
    (Call { name: "prlimit64", number: libc::SYS_prlimit64 }, &[EPERM]),
    (Call { name: "sched_getaffinity", number: libc::SYS_sched_getaffinity }, &[EINVAL]),
    (Call { name: "clock_gettime", number: libc::SYS_clock_gettime }, &[EINVAL]),
    (Call { name: "mremap", number: libc::SYS_mremap }, &[ENOMEM]),
    (Call { name: "memfd_create", number: libc::SYS_memfd_create }, &[EMFILE, ENOMEM]),
    (Call { name: "dup3", number: libc::SYS_dup3 }, &[EBUSY, EMFILE]),
    (Call { name: "mkdir", number: MKDIR }, &[EACCES, ENOSPC]),
    (Call { name: "fsopen", number: libc::SYS_fsopen }, &[EPERM, ENODEV]),
    (Call { name: "fsmount", number: libc::SYS_fsmount }, &[EPERM]),
    (Call { name: "faccessat2", number: libc::SYS_faccessat2 }, &[EACCES]),
    (Call { name: "capset", number: libc::SYS_capset }, &[EPERM]),
    (Call { name: "seccomp", number: libc::SYS_seccomp }, &[ENOMEM]),
    (Call { name: "pipe2", number: libc::SYS_pipe2 }, &[EMFILE, ENFILE]),
    (Call { name: "waitid", number: libc::SYS_waitid }, &[EINTR, ECHILD]),
    (Call { name: "kill", number: libc::SYS_kill }, &[EPERM, ESRCH]),
];

/// Messages of the standard library and of the engine where a thread gets no memory for its signal stack.
/// Both end the process or the plugin there, before any code of the host runs on the thread.
const SIGNAL_STACKS: [&str; 3] =
    ["failed to allocate an alternative stack", "alternative stack guard page", "sigaltstack"];

/// Checks the outcome of a refused call: it must equal the clean run, or end with a reason.
fn judge(refusal: Refusal, clean: &Outcome, outcome: &Outcome) -> Result<(), String> {
    let Refusal { call, nth, errno } = refusal;
    let wrong = |what: &str| Err(format!("{what}: {} number {nth} with {errno}: {outcome:?}", call.name));
    if SIGNAL_STACKS.iter().any(|text| outcome.stderr.contains(text)) {
        return Ok(());
    }
    if outcome.code >= 128 || outcome.code == 101 || outcome.stderr.contains("panicked") {
        return wrong("a panic or a signal");
    }
    if outcome.stderr.contains("has a defect") {
        return wrong("a defect");
    }
    match outcome.code {
        // A map with this error has no such entry; an output with this error has no reader, which ends the
        // run.
        0 if matches!((call.name, errno), ("bpf", ENOENT) | ("write", EPIPE)) => Ok(()),
        0 if outcome.stdout != clean.stdout && outcome.stderr.is_empty() => {
            wrong("another answer without a word")
        }
        0 => Ok(()),
        _ if outcome.stderr.is_empty() => wrong("no reason"),
        // 1 is a failure that the script did not catch; 11 to 16 are the script's own exit codes for
        // failures.
        1 | 11..=16 | 125..=127 => Ok(()),
        _ => wrong("an exit code that is not documented"),
    }
}

/// Returns every call with every error, or `some` of them, spread over all.
fn refusals(counts: &[usize], some: usize) -> Vec<Refusal> {
    let mut all = Vec::new();
    for ((call, errors), count) in CALLS.iter().zip(counts) {
        for nth in 0..*count {
            all.extend(errors.iter().map(|errno| Refusal { call: *call, nth, errno: *errno }));
        }
    }
    if std::env::var("KS_REFUSED").as_deref() == Ok("all") {
        return all;
    }
    // Calls for events and programs and one call of each kind come first, then the others, evenly.
    let (mut own, other): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| {
        let first = one.errno == first_error(one.call);
        first && (one.nth == 0 || ["bpf", "perf_event_open", "ioctl"].contains(&one.call.name))
    });
    let step = other.len().div_ceil(some.saturating_sub(own.len()).max(1)).max(1);
    own.extend(other.into_iter().step_by(step));
    own
}

fn first_error(call: Call) -> Errno {
    let known = CALLS.iter().find(|(one, _)| *one == call);
    known.map_or(EPERM, |(_, errors)| errors[0])
}

/// Refuses the calls of a scenario, each in a run of its own; returns the failures.
fn refuse(scenario: &Scenario) -> Vec<String> {
    let folder = Folder::new();
    let name = |worker: usize| format!("f{}x{worker}", std::process::id() % 100_000);
    let group = Group::new();
    let plugins: [_; WORKERS] = std::array::from_fn(|worker| {
        let name = name(worker);
        folder.write(&format!("{name}.wasm"), compile(&name, &scenario.script(&name, &group)).plugin)
    });
    let watched: Vec<Call> = CALLS.iter().map(|(call, _)| *call).collect();
    let clean_run =
        || run(&mut scenario.host(&plugins[0]), &watched, None).expect("the kernel has notifications");
    let (mut clean, mut counts) = clean_run();
    // A host found by its name may belong to another test and be about to end, without any functions left.
    wait_until(Duration::from_secs(10), "only our own host is found", || {
        let is_clean = !clean.stderr.contains("cannot name functions");
        if !is_clean {
            (clean, counts) = clean_run();
        }
        is_clean
    });
    assert_eq!((clean.code, clean.stderr.as_str()), (0, ""), "{}: {clean:#?}", scenario.name);
    assert_eq!(clean.stdout, scenario.expected, "{}", scenario.name);
    let refusals = refusals(&counts, scenario.some);
    let call_counts: BTreeMap<&str, usize> = watched.iter().map(|call| call.name).zip(counts).collect();
    eprintln!("{}: calls of a run: {call_counts:?}; runs: {}", scenario.name, refusals.len());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for plugin in &plugins {
            let (refusals, watched, next, wrong, clean) = (&refusals, &watched, &next, &wrong, &clean);
            scope.spawn(move || {
                while let Some(refusal) = refusals.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (outcome, _) =
                        run(&mut scenario.host(plugin), watched, Some(*refusal)).expect("as before");
                    if let Err(reason) = judge(*refusal, clean, &outcome) {
                        wrong.lock().expect("nobody panics").push(format!("{}: {reason}", scenario.name));
                    }
                }
            });
        }
    });
    (0..WORKERS).for_each(|worker| wait_until_gone(&name(worker)));
    wrong.into_inner().expect("nobody panics")
}

#[test]
fn root_every_refused_call_ends_with_a_reason() {
    let wrong: Vec<String> = SCENARIOS.iter().flat_map(refuse).collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

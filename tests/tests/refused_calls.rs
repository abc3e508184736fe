//! Each system call by which the host reaches the kernel is refused once, in a run of a plugin that uses all of it: there
//! is always an end that is told, never a panic, a signal, or a number that is wrong. These tests need root.
//!
//! `make test` has a part of all calls and errors; `make refused-calls` has all of them.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ks_tests::refused::{Call, Refusal, run};
use ks_tests::{Folder, Outcome, allowed, compile, wait_until_gone};
use nix::errno::Errno::{self, *};
use nix::libc;
use nix::sched::{CloneFlags, unshare};

/// Runs without KS_REFUSED=all.
const SOME: usize = 400;

/// Kinds of calls, and errors that they may have.
const CALLS: [(Call, &[Errno]); 22] = [
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
];

/// Loads, attaches, counts, reads, waits, detaches: what it prints is the same in every run. NAME is filled in.
const SCRIPT: &str = r#"
struct Seen { number: u64 }
var NAMEhits : u64 = 0
var NAMEmap : hash<u32, u64>(16)
var NAMEring : ringbuf<Seen>(4096)
var memory : u8[1048576]

@perf_event
fn NAMEprog(ctx: *bpf_perf_event_data) -> i32 {
    NAMEhits += 1
    NAMEmap[1] = 7
    var record = NAMEring.reserve()
    if (record != null) {
        record->number = NAMEhits
        NAMEring.submit(record)
    }
    return 0
}

@raw_tracepoint("sched_switch")
fn NAMEraw(preempt: bool) -> i32 { return 0 }

@xdp
fn NAMExdp(ctx: *xdp_md) -> xdp_action { return XDP_PASS }

@socket_filter
fn NAMEsock(ctx: *__sk_buff) -> i32 { return 0 }

fn taken(record: *Seen) {
}

fn main() -> i32 {
    var program = load(NAMEprog)
    var faults = attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    var clock = attach(perf_options { event: task_clock, pid: 0, cpu: -1, group: faults })
    if (faults == null || clock == null) { return 11 }
    var raw = load(NAMEraw)
    if (attach(raw, "sched_switch", 0) != 0) { return 12 }
    var packets = load(NAMExdp)
    if (attach(packets, "lo", 2) != 0) { return 13 }
    var sock = load(NAMEsock)
    if (attach(sock, "lo", 0) != 0) { return 14 }
    for (page in 0..32) {
        memory[page * 4096] = 1
    }
    sleep(1)
    var own = read(faults)
    detach(packets)
    detach(sock)
    detach(raw)
    detach(program)
    print("faults %u, hits %u, entry %lu, positive %u", own.raw >= 32, NAMEhits >= 32, NAMEmap[1], own.time_running > 0)
    return 0
}
"#;

/// The plugin in a network of its own, so that `lo` is its own.
fn host(plugin: &std::path::Path) -> Command {
    let mut host = allowed();
    host.arg("--no-cache").arg(plugin);
    // SAFETY: unshare(2) is one system call.
    #[expect(unsafe_code, reason = "between fork and exec")]
    unsafe {
        host.pre_exec(|| Ok(unshare(CloneFlags::CLONE_NEWNET)?))
    };
    host
}

/// What the standard library and the engine say where a thread gets no memory for its signal stack. Both end the process or
/// the plugin there, before any code of the host's own runs on the thread.
const SIGNAL_STACKS: [&str; 3] =
    ["failed to allocate an alternative stack", "alternative stack guard page", "sigaltstack"];

/// What may come of a refused call: the same as without, or an end and a reason.
fn judge(refusal: Refusal, clean: &Outcome, outcome: &Outcome) -> Result<(), String> {
    let Refusal { call, nth, errno } = refusal;
    let wrong = |what: &str| Err(format!("{what}: {} number {nth} with {errno}: {outcome:?}", call.name));
    if SIGNAL_STACKS.iter().any(|words| outcome.stderr.contains(words)) {
        return Ok(());
    }
    if outcome.code >= 128 || outcome.code == 101 || outcome.stderr.contains("panicked") {
        return wrong("a panic or a signal");
    }
    if outcome.stderr.contains("has a defect") {
        return wrong("a defect");
    }
    match outcome.code {
        // A map that answers so has no such entry; an output that answers so has no reader, which ends the run.
        0 if matches!((call.name, errno), ("bpf", ENOENT) | ("write", EPIPE)) => Ok(()),
        0 if outcome.stdout != clean.stdout && outcome.stderr.is_empty() => {
            wrong("another answer without a word")
        }
        0 => Ok(()),
        _ if outcome.stderr.is_empty() => wrong("no reason"),
        // 1 is a failure that the script did not catch, 11 to 14 are its own words for one.
        1 | 11..=14 | 125..=127 => Ok(()),
        _ => wrong("an exit code that is not documented"),
    }
}

/// Every call with every error, or as many as there is time for, spread over all.
fn refusals(counts: &[usize]) -> Vec<Refusal> {
    let mut all = Vec::new();
    for ((call, errors), count) in CALLS.iter().zip(counts) {
        for nth in 0..*count {
            all.extend(errors.iter().map(|errno| Refusal { call: *call, nth, errno: *errno }));
        }
    }
    if std::env::var("KS_REFUSED").as_deref() == Ok("all") {
        return all;
    }
    // Those that reach events and programs first, then the others, evenly.
    let (mut own, other): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| {
        ["bpf", "perf_event_open", "ioctl"].contains(&one.call.name) && one.errno == first_error(one.call)
    });
    let step = other.len().div_ceil(SOME.saturating_sub(own.len()).max(1)).max(1);
    own.extend(other.into_iter().step_by(step));
    own
}

fn first_error(call: Call) -> Errno {
    let known = CALLS.iter().find(|(one, _)| *one == call);
    known.map_or(EPERM, |(_, errors)| errors[0])
}

#[test]
fn root_every_refused_call_has_an_end_that_is_told() {
    let (folder, name) = (Folder::new(), format!("f{}x", std::process::id()));
    let plugin = folder.write("refused.wasm", compile("refused", &SCRIPT.replace("NAME", &name)).plugin);
    let watched: Vec<Call> = CALLS.iter().map(|(call, _)| *call).collect();
    let (clean, counts) = run(&mut host(&plugin), &watched, None).expect("the kernel has notifications");
    assert_eq!((clean.code, clean.stderr.as_str()), (0, ""), "{clean:#?}");
    assert_eq!(clean.stdout, "faults 1, hits 1, entry 7, positive 1\n");
    let refusals = refusals(&counts);
    let made: BTreeMap<&str, usize> = watched.iter().map(|call| call.name).zip(counts).collect();
    eprintln!("calls of a run: {made:?}; runs: {}", refusals.len());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(refusal) = refusals.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (outcome, _) = run(&mut host(&plugin), &watched, Some(*refusal)).expect("as before");
                    if let Err(reason) = judge(*refusal, &clean, &outcome) {
                        wrong.lock().expect("nobody panics").push(reason);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("nobody panics");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), refusals.len(), wrong.join("\n"));
    wait_until_gone(&name);
}

//! A process of ks-host that was taken over: it makes attempts of its own, with all that it has. In a worker the name of the
//! test says which, in a loader that of the object.
#![expect(unsafe_code, reason = "it is hostile")]

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::time::Instant;

use ks_host::confine::ReaderFiles;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{MsgFlags, sendmsg};

fn main() {
    ks_host::worker::serve_taken_over_if_asked(in_worker, in_loader);
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|argument| argument.to_str()) {
        Some("as-compiler") => {
            let served = ks_host::apart::serve(&arguments[1..], 1 << 10, ReaderFiles::Nothing, |_| {
                Ok(system_calls(&OF_READERS, &TO_ATTACH).into_bytes())
            });
            return served.expect("it may answer");
        }
        Some("as-resolver") => {
            ks_host::naming::confine_like_the_naming_process().expect("the kernel has what it takes");
            let said = system_calls(&[&OF_READERS[..], &["statx", "sendmsg"]].concat(), &TO_ATTACH);
            let parts = [IoSlice::new(said.as_bytes())];
            sendmsg::<()>(0, &parts, &[], MsgFlags::empty(), None).expect("it may answer");
            return;
        }
        _ => {}
    }
    panic!("a broker starts this");
}

fn in_worker(broker: &File, attempt: &str) -> String {
    match attempt {
        "" => "the plugin has ended".into(),
        "calls" => system_calls(&[], &[]),
        "descriptors" => descriptors(broker),
        "memory" => memory(),
        "limit" => {
            let limit = getrlimit(Resource::RLIMIT_NOFILE).expect("it may ask");
            format!("{} descriptors", limit.1)
        }
        "computes" => loop {
            std::hint::black_box(Instant::now());
        },
        "dies" => std::process::abort(),
        "leaves" => std::process::exit(0),
        message => {
            send(broker, message);
            "it was answered".into()
        }
    }
}

/// What a loader may do that a worker may not: create maps and programs, which reach nothing while nobody attaches them, answer,
/// and look whether there is a file.
const OF_LOADERS: [&str; 6] =
    ["sendmsg", "statx", "bpf: a map", "bpf: a program", "prlimit64", "memfd_create"];

/// What a process that reads may do to itself.
const OF_READERS: [&str; 2] = ["mprotect: own code", "munmap: own code"];

/// Commands of bpf(2) besides those that a worker tries: pin, get a pin, attach, detach, open a raw tracepoint, query,
/// tasks, links by id, link, statistics, iterator. Source: include/uapi/linux/bpf.h, `enum bpf_cmd`, v6.18.
const TO_ATTACH: [i64; 11] = [6, 7, 8, 9, 17, 16, 20, 30, 28, 32, 33];

fn in_loader(object: &str) -> Option<String> {
    match object {
        "ldr_calls" => Some(system_calls(&OF_LOADERS, &TO_ATTACH)),
        "ldr_dies" => std::process::abort(),
        "ldr_random" => {
            let random: Vec<u8> =
                (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            // SAFETY: the standard input is its socket, which stays open.
            let mut broker = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(0) });
            broker.write_all(&random).expect("the broker listens");
            Some("it was answered".into())
        }
        _ => None,
    }
}

/// Makes each system call that would reach something but those that are `allowed`, and these commands of bpf(2). Returns
/// the names of those that were not refused.
fn system_calls(allowed: &[&str], bpf: &[i64]) -> String {
    let (parent, zero) = (i64::from(std::os::unix::process::parent_id()), 0_i64);
    let path = c"/proc/version".as_ptr() as i64;
    let buffer = [0_u64; 32];
    let at = buffer.as_ptr() as i64;
    let exec = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let anonymous = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let own_code = in_worker as *const () as i64 & !0xfff;
    let calls: &[(&str, i64, [i64; 6])] = &[
        ("openat", libc::SYS_openat, [libc::AT_FDCWD.into(), path, zero, 0, 0, 0]),
        ("openat2", libc::SYS_openat2, [libc::AT_FDCWD.into(), path, at, 24, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [0, at, 0, 0, 0, 0]),
        ("readlinkat", libc::SYS_readlinkat, [libc::AT_FDCWD.into(), path, at, 64, 0, 0]),
        ("statx", libc::SYS_statx, [libc::AT_FDCWD.into(), path, 0, 0x7ff, at, 0]),
        ("getdents64", libc::SYS_getdents64, [0, at, 256, 0, 0, 0]),
        ("mkdirat", libc::SYS_mkdirat, [libc::AT_FDCWD.into(), path, 0, 0, 0, 0]),
        ("unlinkat", libc::SYS_unlinkat, [libc::AT_FDCWD.into(), path, 0, 0, 0, 0]),
        ("socket", libc::SYS_socket, [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0, 0, 0, 0]),
        ("socketpair", libc::SYS_socketpair, [libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0, at, 0, 0]),
        ("connect", libc::SYS_connect, [0, at, 16, 0, 0, 0]),
        ("sendmsg", libc::SYS_sendmsg, [0, at, 0, 0, 0, 0]),
        ("kill", libc::SYS_kill, [parent, libc::SIGKILL.into(), 0, 0, 0, 0]),
        ("tgkill", libc::SYS_tgkill, [parent, parent, libc::SIGKILL.into(), 0, 0, 0]),
        ("tkill", libc::SYS_tkill, [parent, libc::SIGKILL.into(), 0, 0, 0, 0]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, [parent, libc::SIGKILL.into(), at, 0, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, [0, libc::SIGKILL.into(), 0, 0, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [0, 0, 0, 0, 0, 0]),
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), parent, 0, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [parent, at, 1, at, 1, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, [parent, at, 1, at, 1, 0]),
        ("process_madvise", libc::SYS_process_madvise, [0, at, 1, 0, 0, 0]),
        ("kcmp", libc::SYS_kcmp, [parent, parent, 0, 0, 0, 0]),
        ("bpf: a map", libc::SYS_bpf, [0, at, 128, 0, 0, 0]),
        ("bpf: a program", libc::SYS_bpf, [5, at, 128, 0, 0, 0]),
        ("bpf: a map by its id", libc::SYS_bpf, [14, at, 128, 0, 0, 0]),
        ("bpf: a program by its id", libc::SYS_bpf, [13, at, 128, 0, 0, 0]),
        ("bpf: a test run", libc::SYS_bpf, [10, at, 128, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [at, 0, -1, -1, 0, 0]),
        ("ioctl: MODIFY_ATTRIBUTES", libc::SYS_ioctl, [0, 0x4008_240b, at, 0, 0, 0]),
        ("ioctl: SET_BPF", libc::SYS_ioctl, [0, 0x4004_2408, at, 0, 0, 0]),
        ("mount", libc::SYS_mount, [path, path, path, 0, 0, 0]),
        ("umount2", libc::SYS_umount2, [path, 0, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [path, 0, 0, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [path, 0, 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [0, 0, 0, 0, 0, 0]),
        ("execve", libc::SYS_execve, [path, 0, 0, 0, 0, 0]),
        ("execveat", libc::SYS_execveat, [0, path, 0, 0, 0, 0]),
        ("clone", libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0, 0]),
        ("setresuid", libc::SYS_setresuid, [0, 0, 0, 0, 0, 0]),
        ("setresgid", libc::SYS_setresgid, [0, 0, 0, 0, 0, 0]),
        ("capset", libc::SYS_capset, [at, at, 0, 0, 0, 0]),
        ("prctl: dumpable", libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 1, 0, 0, 0, 0]),
        ("prctl: the end of the broker", libc::SYS_prctl, [libc::PR_SET_PDEATHSIG.into(), 0, 0, 0, 0, 0]),
        ("prlimit64", libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE.into(), at, 0, 0, 0]),
        ("mmap: code", libc::SYS_mmap, [0, 4096, exec, anonymous, -1, 0]),
        ("mprotect: own code", libc::SYS_mprotect, [own_code, 4096, i64::from(libc::PROT_WRITE), 0, 0, 0]),
        ("mprotect: data to code", libc::SYS_mprotect, [at & !0xfff, 4096, exec, 0, 0, 0]),
        ("munmap: own code", libc::SYS_munmap, [own_code, 4096, 0, 0, 0, 0]),
        ("memfd_create", libc::SYS_memfd_create, [path, 0, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [8, at, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0, -3, 0, 0, 0, 0]),
        ("shmget", libc::SYS_shmget, [0, 4096, i64::from(libc::IPC_CREAT), 0, 0, 0]),
        ("dup2 over the socket", libc::SYS_dup3, [1, 0, 0, 0, 0, 0]),
        ("timer_create", libc::SYS_timer_create, [0, 0, at, 0, 0, 0]),
        ("inotify_init1", libc::SYS_inotify_init1, [0, 0, 0, 0, 0, 0]),
        ("quotactl", libc::SYS_quotactl, [0, path, 0, at, 0, 0]),
        ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
        ("init_module", libc::SYS_init_module, [at, 8, path, 0, 0, 0]),
        ("syslog", libc::SYS_syslog, [3, at, 64, 0, 0, 0]),
        ("sched_setaffinity", libc::SYS_sched_setaffinity, [parent, 8, at, 0, 0, 0]),
        ("setpriority", libc::SYS_setpriority, [0, parent, -20, 0, 0, 0]),
    ];
    let mut open = Vec::new();
    let bpf = bpf.iter().map(|command| ("bpf", libc::SYS_bpf, [*command, at, 128, 0, 0, 0]));
    let tried = calls.iter().copied().filter(|(name, ..)| !allowed.contains(name)).chain(bpf);
    for (name, number, arguments @ [a, b, c, d, e, f]) in tried {
        // SAFETY: all of them are refused before they do anything; what is not is the finding.
        let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        let errno = std::io::Error::last_os_error().raw_os_error();
        // What the filter lets pass, Landlock refuses.
        let refused = [libc::EPERM, libc::ENOSYS, libc::EACCES];
        if answer != -1 || !errno.is_some_and(|errno| refused.contains(&errno)) {
            open.push(format!("{name} {arguments:?}: {answer} {errno:?}"));
        }
    }
    if open.is_empty() { "all are refused".to_owned() } else { open.join("; ") }
}

/// A descriptor, by what it is good for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DescriptorKind {
    Event,
    Map,
    Ring,
    File,
    Other,
}

/// Uses each descriptor that it has for everything that one of an event, a map, a ring buffer or a file is good for. Returns
/// what it can do.
fn descriptors(broker: &File) -> String {
    let (mut found, mut open) = (Vec::new(), Vec::new());
    let mut mapped = 0;
    for fd in 0..256_i64 {
        // The others are its socket, its code and nothing.
        let is_given = fd > 2 && fd != i64::from(broker.as_raw_fd());
        let kind = if is_given { kind(fd) } else { DescriptorKind::Other };
        found.push(kind);
        operations(fd, &mut open);
        if is_given {
            mapped += mappings(fd, kind, &mut open);
        }
    }
    // Memory that it locks through events, beside what each user may (kernel.perf_event_mlock_kb).
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).expect("it may ask").0;
    if mapped > limit + (8 << 20) {
        open.push(format!("{mapped} bytes of rings of events"));
    }
    let number = |kind: DescriptorKind| found.iter().filter(|one| **one == kind).count();
    let [events, maps, rings, files] =
        [DescriptorKind::Event, DescriptorKind::Map, DescriptorKind::Ring, DescriptorKind::File].map(number);
    match &open[..] {
        [] => format!("{events} events, {maps} map, {rings} ring, {files} file; all others are refused"),
        open => open.join("; "),
    }
}

fn call(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> (i64, Option<i32>) {
    // SAFETY: reads into memory of the caller, maps memory where there is none, and what the kernel refuses; what it does
    // not is the finding.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    (answer, std::io::Error::last_os_error().raw_os_error())
}

/// Maps pages of a descriptor.
fn map(fd: i64, access: i32, pages: i64, offset: i64) -> (i64, Option<i32>) {
    let shared = i64::from(libc::MAP_SHARED);
    call(libc::SYS_mmap, [0, pages * 4096, access.into(), shared, fd, offset * 4096])
}

fn kind(fd: i64) -> DescriptorKind {
    let mut words = [0_u64; 32];
    let at = words.as_mut_ptr() as i64;
    let read = || call(libc::SYS_read, [fd, at, 256, 0, 0, 0]).0 > 0;
    // A file is at its end after the first time.
    match [read(), read()] {
        [true, true] => return DescriptorKind::Event,
        [true, false] => return DescriptorKind::File,
        [false, _] => {}
    }
    // `map_fd`, `key`, `value`, `flags` of `union bpf_attr`: the entry 1, which the plugin has written.
    let (key, value) = (1_u32, 7_u64);
    let update = [fd.cast_unsigned(), &raw const key as u64, &raw const value as u64, 0];
    if call(libc::SYS_bpf, [2, update.as_ptr() as i64, 32, 0, 0, 0]).0 == 0 {
        return DescriptorKind::Map;
    }
    let consumer = map(fd, libc::PROT_READ | libc::PROT_WRITE, 1, 0).0;
    if consumer == -1 { DescriptorKind::Other } else { DescriptorKind::Ring }
}

/// Tries what would change what a descriptor denotes, or reach more than that.
fn operations(fd: i64, open: &mut Vec<String>) {
    /// Requests of ioctl(2) of events: all but that to stop (0x2401). Source: include/uapi/linux/perf_event.h, v6.18.
    const REQUESTS: [u64; 11] = [
        0x2400,
        0x2402,
        0x2403,
        0x4008_2404,
        0x2405,
        0x4008_2406,
        0x8008_2407,
        0x4004_2408,
        0x4004_2409,
        0xc008_240a,
        0x4008_240b,
    ];
    /// Commands of bpf(2) that take a descriptor: pin, attach, detach, test run, information, read only for good,
    /// links, iterators, tokens. Source: include/uapi/linux/bpf.h, `enum bpf_cmd`, v6.18.
    const COMMANDS: [i64; 14] = [6, 8, 9, 10, 15, 16, 17, 20, 22, 28, 29, 33, 35, 36];
    let refused = (-1, Some(libc::EPERM));
    let mut words = [fd.cast_unsigned(), 0, 0, 0, 0, 0, 0, 0];
    let at = words.as_mut_ptr() as i64;
    for request in REQUESTS {
        if call(libc::SYS_ioctl, [fd, request.cast_signed(), at, 0, 0, 0]) != refused {
            open.push(format!("ioctl {request:#x} of {fd}"));
        }
    }
    for command in COMMANDS {
        if call(libc::SYS_bpf, [command, at, 64, 0, 0, 0]) != refused {
            open.push(format!("bpf {command} of {fd}"));
        }
    }
    for (name, number) in
        [("pwrite64", libc::SYS_pwrite64), ("lseek", libc::SYS_lseek), ("dup", libc::SYS_dup)]
    {
        if call(number, [fd, at, 8, 0, 0, 0]) != refused {
            open.push(format!("{name} of {fd}"));
        }
    }
}

/// Maps what can be mapped of a descriptor. Returns the bytes of rings of events.
fn mappings(fd: i64, kind: DescriptorKind, open: &mut Vec<String>) -> u64 {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let mut at = [0_u64; 2];
    if call(libc::SYS_write, [fd, at.as_mut_ptr() as i64, 8, 0, 0, 0]) != (-1, Some(libc::EPERM)) {
        open.push(format!("write to {fd}"));
    }
    for offset in [0, 1, 2] {
        if map(fd, libc::PROT_READ | libc::PROT_EXEC, 1, offset).0 != -1 {
            open.push(format!("code of {fd}"));
        }
    }
    match kind {
        // Of a ring buffer, nobody writes anything but the page with the consumer's position.
        DescriptorKind::Ring => {
            for (pages, offset) in [(2, 0), (1, 1), (1, 2), (2, 1)] {
                if map(fd, both, pages, offset).0 != -1 {
                    open.push(format!("{pages} pages of ring {fd} from {offset}"));
                }
            }
            let producer = map(fd, libc::PROT_READ, 2, 1).0;
            if producer == -1 || call(libc::SYS_mprotect, [producer, 8192, both.into(), 0, 0, 0]).0 != -1 {
                open.push(format!("records of ring {fd}"));
            }
            0
        }
        // It gets rings without records, which lock memory.
        DescriptorKind::Event => {
            let largest = (0..12).rev().map(|power| 1 + (1 << power));
            let pages = largest.filter(|pages| map(fd, both, *pages, 0).0 != -1).max();
            pages.unwrap_or(0).cast_unsigned() * 4096
        }
        DescriptorKind::Map | DescriptorKind::File | DescriptorKind::Other => {
            if map(fd, both, 1, 0).0 != -1 {
                open.push(format!("pages of {fd}"));
            }
            0
        }
    }
}

/// Takes memory until there is none.
fn memory() -> String {
    let mut blocks = Vec::new();
    for megabytes in (0..8192_u64).step_by(16) {
        let mut block = Vec::new();
        if block.try_reserve_exact(16 << 20).is_err() {
            return format!("{} MB", megabytes.div_ceil(64) * 64);
        }
        block.resize(16 << 20, 1_u8);
        blocks.push(block);
    }
    "no end of memory".into()
}

/// Sends bytes that are no message of a worker, or a message that a worker must not send, and waits for an answer.
fn send(broker: &File, message: &str) {
    let call = |number: u32, arguments: &[u8]| {
        let body = [&number.to_le_bytes(), arguments].concat();
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("few").to_le_bytes();
        // A message of the kind `Call`.
        let message = [&[2], &len(&body)[..], &body].concat();
        [&len(&message)[..], &message].concat()
    };
    let mut random = 0x9e37_79b9_u32;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random.to_le_bytes()[0]
    };
    let bytes = match message {
        // As a call, but of the kind `Tell`.
        "tells" => (0..400)
            .flat_map(|number| {
                let mut message = call(number, &[0; 8]);
                message[4] = 3;
                message
            })
            .collect(),
        "random" => (0..4096).map(|_| next()).collect(),
        "long" => [&u32::MAX.to_le_bytes()[..], &[0; 64]].concat(),
        "empty" => vec![0; 64],
        "half" => call(0, &[])[..6].to_vec(),
        "unknown" => call(1_000_000, &[0; 8]),
        "short" => call(0, &[]),
        "wide" => call(0, &[0xff; 100]),
        number => call(number.parse().expect("the number of a function"), &[1, 0, 0, 0, 0, 0, 0, 0]),
    };
    let mut broker = broker;
    // The broker may have hung up.
    let _ = broker.write_all(&bytes).and_then(|()| broker.read(&mut [0; 64]));
}

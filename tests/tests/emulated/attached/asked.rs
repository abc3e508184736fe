//! What the kernel is asked for, read from the arguments of a system call.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use ks_tests::refused::PendingCall;
use nix::libc;

/// Types of links, in `enum bpf_attach_type`.
pub(super) const TCX_INGRESS: u32 = 46;
pub(super) const TCX_EGRESS: u32 = 47;

/// What the kernel is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    /// A program on the interface of this index.
    Xdp(u32),
    /// A socket filter that is bound to the interface of this index.
    Bound(u32),
    /// A program on one side of the interface of this index.
    Tcx(u32, u32),
    /// A program on the group whose folder has this inode number.
    Group(u64),
    /// A program on the raw tracepoint.
    Raw(String),
    /// An event: type, config, and whether it counts every task.
    Event(u32, u64, bool),
    /// A breakpoint at this address.
    Breakpoint(u64),
    /// A probe in a file, at this offset, and its `config`, which is 0 for one without a counter and not of returns.
    Uprobe(PathBuf, u64, u64),
    /// A probe in the kernel: function, offset, and its `config`, which is 1 for one of returns.
    Kprobe(String, u64, u64),
}

/// Returns the type of a PMU's events; none if the machine has no such PMU.
pub(super) fn type_of(pmu: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{pmu}/type")).ok()?;
    Some(text.trim().parse().expect("a number"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four bytes")))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Source: include/uapi/linux/perf_event.h, `struct perf_event_attr`; kernel/events/core.c,
/// `perf_kprobe_event_init` and `perf_uprobe_event_init`; v6.18.
fn look_at_event(pending: &PendingCall) -> Asked {
    const BREAKPOINT: u32 = 5;
    let attr = pending.memory(pending.args[0], 72).unwrap_or_default();
    let (ty, config) = (u32_at(&attr, 0), u64_at(&attr, 8));
    let (config1, config2) = (u64_at(&attr, 56), u64_at(&attr, 64));
    let text = || {
        let bytes = pending.memory(config1, 64).expect("a text of the host");
        String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().expect("one part")).into_owned()
    };
    match ty {
        BREAKPOINT => Asked::Breakpoint(config1),
        _ if type_of("kprobe") == Some(ty) => Asked::Kprobe(text(), config2, config),
        _ if type_of("uprobe") == Some(ty) => {
            let text = text();
            let file = text.replace("/proc/self/", &format!("/proc/{}/", pending.thread()));
            Asked::Uprobe(fs::canonicalize(file).expect("an open file"), config2, config)
        }
        _ => Asked::Event(ty, config, (pending.args[1] as u32).cast_signed() == -1),
    }
}

/// Source: include/uapi/linux/bpf.h, `union bpf_attr` and `enum bpf_attach_type`; perf_event.h, `struct
/// perf_event_attr`; linux/if_packet.h, `struct sockaddr_ll`; v6.18.
pub(super) fn look(pending: &PendingCall, seen: &mut Vec<Asked>) {
    const LINK_CREATE: u64 = 28;
    const RAW_TRACEPOINT_OPEN: u64 = 17;
    const XDP: u32 = 37;
    const CONNECT4: u32 = 10;
    const PERF_EVENT: u32 = 41;
    let memory = |address: u64, len: usize| pending.memory(address, len).unwrap_or_default();
    match (pending.kind, pending.args[0]) {
        (0, LINK_CREATE) => {
            let attr = memory(pending.args[1], 16);
            let (target, attach_type) = (u32_at(&attr, 4), u32_at(&attr, 8));
            match attach_type {
                XDP => seen.push(Asked::Xdp(target)),
                CONNECT4 => {
                    let folder = fs::metadata(format!("/proc/{}/fd/{target}", pending.thread()));
                    seen.push(Asked::Group(folder.expect("the caller waits").ino()));
                }
                TCX_INGRESS | TCX_EGRESS => seen.push(Asked::Tcx(target, attach_type)),
                // The event was seen when it was opened. libbpf probes what the kernel has with no target.
                PERF_EVENT => {}
                _ => assert!(target.cast_signed() <= 0, "a link of type {attach_type} to {target}"),
            }
        }
        (0, RAW_TRACEPOINT_OPEN) => {
            let address = u64_at(&memory(pending.args[1], 16), 0);
            let text = memory(address, 16);
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            let text = String::from_utf8_lossy(&text[..end]).into_owned();
            // Without a name it is a probe of what the kernel has.
            if address != 0 && !text.is_empty() {
                seen.push(Asked::Raw(text));
            }
        }
        (1, _) => {
            seen.push(look_at_event(pending));
        }
        (2, _) => {
            let address = memory(pending.args[1], 8);
            if address.first() == Some(&(libc::AF_PACKET as u8)) {
                seen.push(Asked::Bound(u32_at(&address, 4)));
            }
        }
        _ => {}
    }
}

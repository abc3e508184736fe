//! The errors of `ring`.

use nix::errno::Errno;

use super::case::{BPF, Case, Of, PERF_EVENT_OPEN, PPOLL, case};
use super::maps::{EMPTY_BPFFS, MAP_CREATE, NO_BPFFS, OTHER_PIN};

const OPEN: &[&str] = &["ring.ring.open"];
const OPEN_ARRAY: &[&str] = &["ring.ring.open-perf-event-array"];
const POLL: &[&str] = &["ring.poll"];
const PUT_BACK: &[&str] = &["ring.batch.put-back"];

pub fn cases() -> Vec<Case> {
    [opening(OPEN, ""), opening(OPEN_ARRAY, " 4096"), kinds(), arrays(), polling()].concat()
}

/// How the load of the object fails; `rest` are arguments after the name.
fn opening(functions: &'static [&'static str], rest: &str) -> Vec<Case> {
    let named = |kind, reason, name: &str| case(kind, reason).of(functions).with(&format!("{name}{rest}"));
    let name = if functions == OPEN { "records" } else { "events" };
    let open = |kind, reason| named(kind, reason, name);
    let refused = |kind, reason, errno: Errno, errno_name| {
        let case = open(kind, reason).refused(BPF, Of::First(MAP_CREATE), errno);
        case.errno(errno_name).says("cannot load the BPF object")
    };
    let many = |reason| case("limit", reason).of(functions).with(&format!("{name}{rest} many"));
    vec![
        named("not-found", "no such map", "absent").says("`absent`"),
        open("not-found", "bpffs is not mounted")
            .pinned()
            .within(NO_BPFFS)
            .says("the BPF file system is not mounted"),
        open("not-permitted", "CAP_BPF").by_nobody("-all,+perfmon").errno("EPERM").says("CAP_BPF"),
        open("invalid", "a pin of another shape")
            .pinned()
            .within(&format!("{EMPTY_BPFFS}\n{OTHER_PIN}"))
            .says("has another shape (entries 9\u{2192}2)"),
        named("invalid", "a name of more than 4096 bytes", "LONG").says("a name of 4097 bytes"),
        refused("invalid", "a size that the kernel refuses", Errno::EINVAL, "EINVAL"),
        refused(
            "unsupported",
            "the kernel lacks something that the object needs",
            Errno::EOPNOTSUPP,
            "EOPNOTSUPP",
        ),
        refused("limit", "memory of the kernel", Errno::ENOMEM, "ENOMEM"),
        many("`handles`").host(&["--limit", "handles=9"]).says("too many handles"),
        many("`host_bytes`").host(&["--limit", "host_bytes=9000"]).says("`host_bytes` of the plugin is 9000"),
        refused("kernel", "", Errno::EIO, "EIO"),
    ]
}

/// Maps of another kind.
fn kinds() -> Vec<Case> {
    vec![
        case("not-found", "a map that is no ring buffer")
            .of(OPEN)
            .with("bare")
            .says("has no ring buffer `bare`"),
        case("invalid", "a map of another kind")
            .of(OPEN_ARRAY)
            .with("bare 4096")
            .says("`bare` is not an array of events"),
    ]
}

/// Rings of all CPUs.
fn arrays() -> Vec<Case> {
    let open = |kind, reason| case(kind, reason).of(OPEN_ARRAY).with("events 4096");
    vec![
        open("invalid", "no power of 2, or less than a page").with("events 12288").says("a power of 2"),
        open("busy", "an attachment is published in the array")
            .with("events 4096 published")
            .says("`events` is in use"),
        open("not-permitted", "CAP_PERFMON").by_nobody("-all,+bpf").errno("EACCES").says("CAP_PERFMON"),
        open("not-permitted", "more locked memory than `kernel.perf_event_mlock_kb`")
            .with("events 33554432")
            .within("ulimit -l 0")
            .by_nobody("-all,+bpf,+perfmon")
            .errno("EPERM")
            .says("kernel.perf_event_mlock_kb"),
        open("limit", "descriptors")
            .refused(PERF_EVENT_OPEN, Of::Any, Errno::EMFILE)
            .errno("EMFILE")
            .says("as many descriptors open"),
    ]
}

fn polling() -> Vec<Case> {
    let poll = |kind, reason| case(kind, reason).of(POLL);
    let put_back = |kind, reason| case(kind, reason).of(PUT_BACK);
    vec![
        poll("interrupted", "the host asks the plugin to stop")
            .host(&["--timeout", "200ms"])
            .says("the plugin was asked to stop"),
        poll("invalid", "the next record does not fit `most`")
            .with("small-room")
            .says("the next record of `records`"),
        poll("invalid", "more than 1024 rings").with("many-rings").says("1025 rings are too many"),
        poll("limit", "`handles`").with("many").host(&["--limit", "handles=9"]).says("too many handles"),
        poll("limit", "`host_bytes`")
            .with("many")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
        poll("kernel", "")
            .refused(PPOLL, Of::Any, Errno::EIO)
            .errno("EIO")
            .says("cannot wait for records of a ring"),
        put_back("invalid", "no entries of this batch").with("half").says("not records of this batch"),
        put_back("invalid", "they were put back already").with("twice").says("not records of this batch"),
        put_back("limit", "`host_bytes`")
            .with("all")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
    ]
}

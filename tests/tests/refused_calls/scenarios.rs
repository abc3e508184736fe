//! Plugins that between them reach the kernel in every way, and the worlds that they run in.

use std::ffi::CStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::{io, ptr};

use ks_tests::allowed;
use ks_tests::cgroup::Group;
use nix::libc;
use nix::sched::{CloneFlags, unshare};

/// A script and what it prints if nothing is refused. `NAME` is filled in, and `GROUP` with a control group of its own.
pub struct Scenario {
    /// For messages.
    pub name: &'static str,
    pub script: &'static str,
    pub expected: &'static str,
    /// The command that it observes.
    pub exec: &'static [&'static str],
    /// Runs without KS_REFUSED=all.
    pub some: usize,
}

pub const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "events",
        script: EVENTS,
        expected: "faults 1, hits 1, entry 7, positive 1\n",
        exec: &[],
        some: 350,
    },
    Scenario {
        name: "places",
        script: PLACES,
        expected: "sum 40, kept 6, pins 1, taken 1, hits 1, entry 7\n",
        exec: &[],
        some: 350,
    },
    Scenario { name: "symbols", script: SYMBOLS, expected: "named 1, other 0x1000\n", exec: &[], some: 100 },
    Scenario { name: "command", script: COMMAND, expected: "ran 1\n", exec: &["/bin/true"], some: 100 },
];

/// Loads, attaches, counts, reads, waits, detaches: what it prints is the same in every run. A page or two of those
/// that it touches may be there already.
const EVENTS: &str = r#"
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
    print("faults %u, hits %u, entry %lu, positive %u", own.raw > 20, NAMEhits > 20, NAMEmap[1], own.time_running > 0)
    return 0
}
"#;

/// Pins, pages of maps, batches, records, counters that programs read, a timer, and the places that steer: uprobe,
/// tcx, control group, struct_ops.
const PLACES: &str = r#"
struct Seen { number: u64 }
pin var NAMEkept : u64 = 5
pin var NAMEpins : hash<u32, u64>(8)
var NAMEring : ringbuf<Seen>(4096)
var NAMEwalk : hash<u32, u64>(64)
var NAMEvalues : array<u32, u64>(16)
var NAMEhits : u64 = 0
counter NAMEcount : page_faults
var memory : u8[1048576]
var taken : u64 = 0

@perf_event
fn NAMEprog(ctx: *bpf_perf_event_data) -> i32 {
    NAMEhits += 1
    NAMEvalues[1] = 7
    var record = NAMEring.reserve()
    if (record != null) {
        record->number = NAMEhits
        NAMEring.submit(record)
    }
    return 0
}

@uprobe("/bin/true:+0x40")
fn NAMEuser(word: i32) -> i32 {
    NAMEhits += read(NAMEcount).raw as u64
    return 0
}

@tc("ingress")
fn NAMEtc(ctx: *__sk_buff) -> i32 { return TC_ACT_OK }

@cgroup("connect4")
fn NAMEask(ctx: *bpf_sock_addr) -> i32 { return 1 }

@timer("1ms")
fn NAMEtick() -> void { }

@struct_ops("tcp_congestion_ops")
impl NAMEcc {
    fn ssthresh(sk: *u8) -> u32 { return 2 }
    fn undo_cwnd(sk: *u8) -> u32 { return 2 }
    fn cong_avoid(sk: *u8, ack: u32, acked: u32) -> void { }
}

fn NAMEring_callback(seen: *Seen) -> i32 {
    taken += 1
    return 0
}

fn main() -> i32 {
    var program = load(NAMEprog)
    var faults = attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    if (faults == null) { return 11 }
    for (page in 0..32) {
        memory[page * 4096] = 1
    }
    disable(faults)
    enable(faults)
    detach(program)
    var probe = load(NAMEuser)
    if (attach(probe, "", 0) != 0) { return 12 }
    var packets = load(NAMEtc)
    if (attach(packets, "lo", 0) != 0) { return 13 }
    var ask = load(NAMEask)
    if (attach(ask, "GROUP", 0) != 0) { return 14 }
    var tick = load(NAMEtick)
    if (tick == null) { return 16 }
    if (register(NAMEcc) != 0) { return 15 }
    for (i in 0..40) { NAMEwalk[i] = 1 }
    var sum : u64 = 0
    for (key, value in NAMEwalk) { sum += value }
    NAMEkept += 1
    NAMEpins[1] += 1
    dispatch(NAMEring, 0)
    print("sum %u, kept %u, pins %u, taken %u, hits %u, entry %u", sum, NAMEkept, NAMEpins[1], taken > 20, NAMEhits > 20,
        NAMEvalues[1])
    detach(packets)
    detach(tick)
    detach(ask)
    detach(probe)
    // What is registered would be waited for.
    exit(0)
    return 0
}
"#;

/// Names of the kernel's functions, and of a process.
const SYMBOLS: &str = r#"
fn main() -> i32 {
    var own = pid_of("ks-host")
    print("named %u, other %s", symbol(0xffffffff81000100) != "0xffffffff81000100", symbol(own, 0x1000))
    return 0
}
"#;

/// A command, counted from its exec to its end.
const COMMAND: &str = r#"
fn main() -> i32 {
    var clock = attach(perf_options { event: task_clock, command: true, inherit: true })
    if (clock == null) { return 11 }
    while (!stopping()) { sleep(1000) }
    print("ran %u", read(clock).raw > 0)
    return 0
}
"#;

impl Scenario {
    /// The script for names and a control group of its own.
    pub fn script(&self, name: &str, group: &Group) -> String {
        let group = group.path().to_str().expect("its path is text");
        self.script.replace("NAME", name).replace("GROUP", group)
    }

    /// The host with a plugin of it, in a network and with a BPF file system of its own: `lo` and the pins are its own.
    pub fn host(&self, plugin: &Path) -> Command {
        let mut host = allowed();
        host.arg("--no-cache").arg(plugin);
        if !self.exec.is_empty() {
            host.arg("--exec").args(self.exec);
        }
        // SAFETY: the closure makes system calls only, on words that the program holds.
        #[expect(unsafe_code, reason = "between fork and exec")]
        unsafe {
            host.pre_exec(own_world)
        };
        host
    }
}

/// A network and mounts of its own, with a BPF file system.
#[expect(unsafe_code, reason = "mount(2)")]
fn own_world() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    let mount = |source: &CStr, place: &CStr, kind: &CStr, flags| {
        // SAFETY: three texts that end in a zero, and no data.
        let answer =
            unsafe { libc::mount(source.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, ptr::null()) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"bpf", c"/sys/fs/bpf", c"bpf", 0)
}

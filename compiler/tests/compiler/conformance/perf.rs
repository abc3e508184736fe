//! Chapter 10 and sections 11.1 to 11.4: performance events.

use crate::conformance::scripts::{
    accepts, accepts_without, has_type, in_main, other_value, refuses, refuses_saying, same_value, warns,
};

const SAMPLE: &str = "@perf_event\nfn sample(ctx: *bpf_perf_event_data) -> i32 { return 0 }";

/// Every enumerator of `perf_event` with its value (10.2).
const EVENTS: [(&str, u64); 22] = [
    ("cpu_cycles", 0x0),
    ("instructions", 0x1),
    ("cache_references", 0x2),
    ("cache_misses", 0x3),
    ("branch_instructions", 0x4),
    ("branch_misses", 0x5),
    ("bus_cycles", 0x6),
    ("stalled_cycles_frontend", 0x7),
    ("stalled_cycles_backend", 0x8),
    ("ref_cpu_cycles", 0x9),
    ("cpu_clock", 0x1_0000_0000),
    ("task_clock", 0x1_0000_0001),
    ("page_faults", 0x1_0000_0002),
    ("context_switches", 0x1_0000_0003),
    ("cpu_migrations", 0x1_0000_0004),
    ("page_faults_min", 0x1_0000_0005),
    ("page_faults_maj", 0x1_0000_0006),
    ("alignment_faults", 0x1_0000_0007),
    ("emulation_faults", 0x1_0000_0008),
    ("dummy", 0x1_0000_0009),
    ("bpf_output", 0x1_0000_000a),
    ("cgroup_switches", 0x1_0000_000b),
];

/// Formats a script that calls `attach` with these options in `main`.
fn attached(options: &str, after: &str) -> String {
    in_main(
        SAMPLE,
        &format!("var h = load(sample)\nvar a = attach(h, perf_options {{ {options} }}, 0)\n{after}"),
    )
}

#[test]
fn lf_127_values_of_events() {
    for (name, value) in EVENTS {
        same_value("", name, &value.to_string());
        other_value("", name, &(value ^ 0x40).to_string());
        has_type("", "", name, "perf_event");
    }
}

#[test]
fn lf_128_options() {
    accepts(attached(
        "event: cache_misses, pid: 0, cpu: -1, period: 5, wakeup: 1, inherit: true, exclude_kernel: \
         false, exclude_user: true",
        "",
    ));
    refuses(attached("pid: 0, cpu: -1", ""), "KS0408");
    refuses(attached("event: 3", ""), "KS0903");
    refuses(attached("event: TC_ACT_OK", ""), "KS0903");
    refuses_saying(attached("event: cache_miss", ""), "KS0417", "cache_misses");
    refuses_saying(attached("event: page_faults, perod: 3", ""), "KS0304", "period");
    refuses(attached("event: page_faults, group: 3", ""), "KS0904");
    refuses(attached("event: page_faults, group: h", ""), "KS0904");
    accepts(in_main(
        SAMPLE,
        "var o = perf_options { event: page_faults, pid: 0, cpu: -1 }\nvar a = attach(load(sample), o, 0)",
    ));
}

#[test]
fn lf_130_exclusive_options() {
    refuses(attached("event: page_faults, pid: -1, cpu: -1", ""), "KS0905");
    refuses(attached("event: page_faults, cpu: -1", ""), "KS0905");
    accepts(attached("event: page_faults", ""));
    refuses(attached("event: page_faults, period: 3, freq: 99", ""), "KS0905");
    refuses(
        in_main(SAMPLE, "var h = load(sample)\nvar a = attach(h, perf_options { event: page_faults }, 1)"),
        "KS0907",
    );
    accepts(in_main(
        SAMPLE,
        "var h = load(sample)\nvar f: u32 = 1\nvar a = attach(h, perf_options { event: page_faults }, f)",
    ));
    let xdp = "@xdp\nfn watch(ctx: *xdp_md) -> xdp_action { return XDP_PASS }";
    refuses(
        in_main(xdp, "var h = load(watch)\nvar a = attach(h, perf_options { event: page_faults }, 0)"),
        "KS0906",
    );
}

#[test]
fn lf_138_read() {
    accepts(attached(
        "event: page_faults",
        "var r = read(a)\nvar n: i64 = r.raw + r.scaled\nvar t: u64 = r.time_enabled + r.time_running\n\
         var c: u32 = r.count\nfor (i in 0..c) { var v: i64 = r.values[i]\nvar id: u64 = r.ids[i] }",
    ));
    refuses_saying(attached("event: page_faults", "var n: i64 = read(a)"), "KS0401", ".scaled");
    for wrong in ["read(h)", "read(5)", "read(\"x\")"] {
        refuses(attached("event: page_faults", &format!("var r = {wrong}")), "KS0908");
    }
    refuses(in_main("var m : hash<u32, u64>(8)", "var r = read(m)"), "KS0608|KS0908");
    refuses(attached("event: page_faults", "a.perf_fd = 3"), "KS0412");
    accepts(attached(
        "event: page_faults",
        "if (a == null) { return 1 }\nvar fd: i32 = a.perf_fd\nvar g: u64 = a.generation\ndetach(a)",
    ));
}

#[test]
fn lf_139_old_spellings() {
    refuses_saying(
        attached("perf_type: perf_type_hardware, perf_config: cache_misses", ""),
        "KS0304|KS0408|KS0902",
        "event",
    );
    refuses_saying(in_main(SAMPLE, "var a: PerfAttachment"), "KS0303|KS0902", "perf_attachment");
    refuses_saying(in_main(SAMPLE, "var a: PerfRead"), "KS0303|KS0902", "perf_read");
    refuses_saying(attached("event: page_faults", "var n = read_raw(a)"), "KS0305|KS0902", ".raw");
    refuses_saying(attached("event: page_faults", "var n = read_details(a)"), "KS0305|KS0902", "read(");
    refuses_saying(attached("event: page_faults", "var n = read_group(a)"), "KS0305|KS0902", ".values");
    refuses_saying(attached("event: page_faults, group_fd: 3", ""), "KS0304|KS0902", "group");
}

#[test]
fn lf_141_constructors() {
    for event in [
        "raw_event(1, 2)",
        "raw_event(4, 0x1c2, 1, 2)",
        "hw_cache(\"ll\", \"read\", \"miss\")",
        "breakpoint(\"jiffies\", 8, \"w\")",
        "pmu(\"msr/tsc/\")",
    ] {
        accepts(attached(&format!("event: {event}, pid: 0, cpu: -1"), ""));
    }
    for event in ["tracepoint(\"sched/sched_switch\")", "syscall_event(\"openat\")"] {
        let options = format!("event: {event}, pid: 0, cpu: -1");
        accepts(in_main("", &format!("var a = attach(perf_options {{ {options} }})\nvar n = read(a).raw")));
        refuses(attached(&options, ""), "KS0906");
    }
    let named = "var name: str(64) = \"page-faults\"\nvar a = attach(perf_options { event: pmu(name), pid: 0, cpu: -1 \
                 })\nvar n = read(a).raw";
    accepts(in_main("", named));
    // With the tracepoint's prefix of 19 bytes, 236 bytes fit the text that describes an event.
    let call = |bytes: usize| format!("syscall_event(\"{}\")", "a".repeat(bytes));
    let longest = format!("var a = attach(perf_options {{ event: {}, pid: 0, cpu: -1 }})", call(236));
    warns(in_main("", &longest), "KS0806");
    accepts(in_main(SAMPLE, "if (raw_event(1, 2) == page_faults) { print(\"same\") }"));
    for wrong in [
        "hw_cache(\"l9\", \"read\", \"miss\")",
        "hw_cache(\"ll\", \"look\", \"miss\")",
        "breakpoint(\"jiffies\", 3, \"w\")",
        "syscall_event(\"\")",
        "syscall_event(\"open at\")",
        call(237).as_str(),
    ] {
        refuses(attached(&format!("event: {wrong}, pid: 0, cpu: -1"), ""), "KS0401|KS0417");
    }
    accepts(in_main(
        "",
        "var c = attach(perf_options { event: instructions, pid: 0, cpu: -1 })\nvar n = read(c).raw",
    ));
    accepts(attached("event: cpu_clock, cpu: all, freq: 99", ""));
    let prealloc = |flags: &str| {
        let sample = "@perf_event\nfn sample(ctx: *bpf_perf_event_data) -> i32 { m[1] += 1\nreturn 0 }";
        in_main(&format!("{flags} var m : hash<u32, u64>(8)\n{sample}"), "")
    };
    warns(prealloc("@flags(no_prealloc)"), "KS0909");
    accepts_without(prealloc(""), "KS0909");
}

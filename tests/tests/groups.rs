//! Groups through scripts, on the running kernel: every member reads its own count, the leader's snapshot has them all,
//! and a join starts the group anew. These tests need root.

use ks_tests::run_script;

/// Five events; the counts are stopped before they are read, so that both ways must give the same number.
const OWN_AND_SNAPSHOT: &str = r#"
var memory : u8[1048576]

fn main() -> i32 {
    var faults = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })
    var switches = attach(perf_options { event: context_switches, pid: 0, cpu: -1, group: faults })
    var clock = attach(perf_options { event: task_clock, pid: 0, cpu: -1, group: faults })
    for (page in 0..256) {
        memory[page * 4096] = 1
    }
    for (turn in 0..3) {
        sleep(1)
    }
    disable(faults)
    var all = read(faults)
    print("faults %lld %lld %lld", read(faults).raw, all.values[0], read(faults).scaled)
    print("switches %lld %lld %lld", read(switches).raw, all.values[1], read(switches).scaled)
    print("clock %lld %lld %lld", read(clock).raw, all.values[2], read(clock).scaled)
    var member = read(clock)
    print("members %u %u", all.count, member.count)
    print("inside %lld %lld", member.raw, member.values[2])
    return 0
}
"#;

#[test]
fn root_lf_131_a_member_reads_its_own_count() {
    let outcome = run_script("own", OWN_AND_SNAPSHOT, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    for event in ["faults", "switches", "clock"] {
        let numbers = outcome.numbers(event);
        assert_eq!(numbers.len(), 3, "{outcome:#?}");
        assert!(numbers.iter().all(|number| *number == numbers[0]), "own, snapshot and scaled: {outcome:#?}");
    }
    assert_eq!(outcome.numbers("members"), [3, 3]);
    let inside = outcome.numbers("inside");
    assert_eq!(inside[0], inside[1], "within one read, raw is the member's own entry");
    let (faults, switches) = (outcome.numbers("faults")[0], outcome.numbers("switches")[0]);
    // The array need not begin at a page of its own.
    assert!(faults >= 255, "every page was touched for the first time: {outcome:#?}");
    assert!((3..256).contains(&switches), "three sleeps are three switches and few more: {outcome:#?}");
}

/// The group runs alone for a second; then a member joins, and after a short while both are read.
const JOIN: &str = r#"
var memory : u8[1048576]

fn main() -> i32 {
    var clock = attach(perf_options { event: cpu_clock, pid: -1, cpu: 0 })
    sleep(1000)
    var before = read(clock)
    var start = time_ns()
    var faults = attach(perf_options { event: page_faults, pid: -1, cpu: 0, group: clock })
    var joined = time_ns()
    sleep(20)
    var first = time_ns()
    var after = read(clock)
    var member = read(faults)
    var last = time_ns()
    print("before %llu", before.time_enabled)
    print("after %llu %llu", after.time_enabled, member.time_enabled)
    print("shortest %llu", first - joined)
    print("longest %llu", last - start)
    print("raw %lld", after.raw)
    return 0
}
"#;

#[test]
fn root_lf_132_a_join_starts_counts_and_times_anew() {
    let outcome = run_script("join", JOIN, &[] as &[&str]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let number = |name: &str| outcome.numbers(name)[0];
    assert!(number("before") >= 1_000_000_000, "{outcome:#?}");
    let since_join = number("shortest")..=number("longest");
    for time in outcome.numbers("after") {
        assert!(since_join.contains(&time), "{time} is not the time since the join: {outcome:#?}");
    }
    assert!(since_join.contains(&number("raw")), "cpu_clock counts nanoseconds since the join: {outcome:#?}");
}

/// A leader and 19 members: more than the language's arrays hold. Each counts the same faults.
const TWENTY: &str = r#"
var memory : u8[262144]

fn main() -> i32 {
    var leader = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })
    var last = leader
    for (member in 0..19) {
        last = attach(perf_options { event: page_faults, pid: 0, cpu: -1, group: leader })
        if (last == null) {
            return 1
        }
    }
    for (page in 0..64) {
        memory[page * 4096] = 1
    }
    disable(leader)
    var all = read(leader)
    var again = read(last)
    print("count %u %u", all.count, again.count)
    print("raw %lld %lld %lld", all.raw, again.raw, all.values[15])
    return 0
}
"#;

#[test]
fn root_lf_137_more_than_16_members_are_counted_and_cut_with_one_warning() {
    let outcome = run_script("twenty", TWENTY, &[] as &[&str]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.numbers("count"), [16, 16]);
    let raw = outcome.numbers("raw");
    assert!(raw[0] >= 63 && raw.iter().all(|count| *count == raw[0]), "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "one warning for a group and a run: {outcome:#?}");
    assert!(outcome.stderr.contains("20") && outcome.stderr.contains("16"), "{outcome:#?}");
}

const STALE: &str = r#"
fn main() -> i32 {
    var leader = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })
    var member = attach(perf_options { event: task_clock, pid: 0, cpu: -1, group: leader })
    var wrong = attach(perf_options { event: task_clock, pid: 0, cpu: -1, group: member })
    var other = attach(perf_options { event: task_clock, pid: 0, cpu: 0, group: leader })
    print("wrong %u other %u", wrong == null, other == null)
    print("counting %u", read(member).raw > 0)
    detach(leader)
    var gone = read(member)
    print("gone %lld %lld %u", gone.raw, gone.scaled, gone.count)
    var late = attach(perf_options { event: task_clock, pid: 0, cpu: -1, group: leader })
    print("late %u", late == null)
    var fresh = attach(perf_options { event: task_clock, pid: 0, cpu: -1 })
    print("revived %lld", read(member).raw)
    detach(member)
    detach(fresh)
    detach(fresh)
    return 0
}
"#;

#[test]
fn root_lf_135_lf_136_stale_and_wrong_leaders_are_refused_and_nothing_is_revived() {
    let outcome = run_script("stale", STALE, &[] as &[&str]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.row("wrong"), ["wrong", "1", "other", "1"], "{outcome:#?}");
    assert_eq!(outcome.numbers("counting"), [1], "a refused member leaves the group running");
    assert_eq!(outcome.numbers("gone"), [-1, -1, 0]);
    assert_eq!(outcome.numbers("late"), [1]);
    assert_eq!(outcome.numbers("revived"), [-1]);
    assert!(outcome.stderr.contains("that attachment is a member; use its leader"), "{outcome:#?}");
    assert!(outcome.stderr.contains("stale"), "{outcome:#?}");
}

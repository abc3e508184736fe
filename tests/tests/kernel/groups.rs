//! Groups through scripts, on the running kernel: every member reads its own count, the leader's snapshot has
//! all of them, and a join restarts the group. These tests need root.

use ks_tests::run_script;

/// Five events. The counts are stopped before they are read, so that both kinds of read must return the same
/// numbers.
const OWN_AND_SNAPSHOT: &str = include_str!("scripts/groups_own_and_snapshot.ks");

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
    // The array may start inside a page.
    assert!(faults >= 255, "every page was touched for the first time: {outcome:#?}");
    assert!((3..256).contains(&switches), "three sleeps are three switches and few more: {outcome:#?}");
}

/// The group runs alone for a second; then a member joins, and after a short time both are read.
const JOIN: &str = include_str!("scripts/groups_join.ks");

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

/// A leader and 19 members, which is more than the language's arrays hold. Each counts the same faults.
const TWENTY: &str = include_str!("scripts/groups_twenty.ks");

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

const STALE: &str = include_str!("scripts/groups_stale.ks");

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

/// Errors that follow from one failure are not reported separately.
#[test]
fn root_a_leader_that_fails_is_reported_once() {
    let script = include_str!("scripts/groups_failed_leader.ks");
    let outcome = run_script("failed", script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.numbers("read")), (0, vec![-1, -1, -1]), "{outcome:#?}");
    assert!(outcome.stderr.contains("cannot open `page_faults`"), "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
    // A leader that was never attached is a mistake of the script.
    let unset = "fn main() -> i32 {\n \
                 var wrong = attach(perf_options { event: page_faults, pid: 0, cpu: -1, group: null })\n \
                 return 0\n}";
    let outcome = run_script("unset", unset, &[] as &[&str]);
    assert!(outcome.stderr.contains("stale or invalid leader"), "{outcome:#?}");
}

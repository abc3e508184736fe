//! Every row of the table is a test, here or where programs run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// How many rows the table has.
const ROWS: u32 = 144;

/// Rows of which something needs more than the front end, with what it needs.
const OPEN_ROWS: &[(u32, &str)] = &[
    (76, "needs running, kernel half: sample members"),
    (78, "needs running, both halves: registering"),
    (103, "needs running, both halves: maps of objects"),
    (122, "needs running, kernel half: loading deep frames"),
    (126, "needs the command `ks init`"),
    (129, "needs running, userspace half: defaults of options"),
    (130, "needs running, userspace half: refusals at run time"),
    (131, "needs running, userspace half: members and leaders"),
    (132, "needs running, userspace half: restarts of groups"),
    (133, "needs running, userspace half: scaling"),
    (134, "needs running, userspace half: events never scheduled"),
    (135, "needs running, userspace half: stale attachments"),
    (136, "needs running, userspace half: refused members"),
    (137, "needs running, userspace half: large groups"),
    (140, "needs running, userspace half: inherited counters"),
    (141, "needs running, userspace half: opened constructors"),
];

#[test]
fn every_row_is_tested_here_or_open() {
    let tested = tested_rows();
    let open: BTreeSet<u32> = OPEN_ROWS.iter().map(|(row, _)| *row).collect();
    let missing: Vec<_> = (1..=ROWS).filter(|row| !tested.contains(row) && !open.contains(row)).collect();
    assert!(missing.is_empty(), "no test and not open: {missing:?}");
    let unknown: Vec<_> = tested.union(&open).filter(|row| !(1..=ROWS).contains(*row)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
    assert_eq!(open.len(), OPEN_ROWS.len(), "a row is open once");
}

/// The numbers of the tests named `lf_NNN_...` beside this file, and of those where whole programs run.
fn tested_rows() -> BTreeSet<u32> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rows = BTreeSet::new();
    for number in numbers(&package.join("tests/conformance")) {
        assert!(rows.insert(number), "two tests of row {number}");
    }
    rows.extend(numbers(&package.join("../tests/tests")));
    rows
}

/// The numbers of the rows that the tests in a folder name. A test that needs root says so before the number.
fn numbers(folder: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the tests are in their folder") {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(path).expect("a test is UTF-8");
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")) {
            let Some(name) = line.strip_prefix("root_").unwrap_or(line).strip_prefix("lf_") else { continue };
            let number = name.split('_').next().and_then(|digits| digits.parse().ok());
            found.push(number.expect("a number follows lf_"));
        }
    }
    found
}

#[test]
fn the_small_kernel_has_what_the_rows_name() {
    let kernel = crate::support::kernel::types();
    let parameters = |name: &str| kernel.function(name).map(|found| found.proto.params.len()).ok();
    assert_eq!(["vfs_read", "do_exit", "sys_openat"].map(parameters), [Some(4), Some(1), Some(4)]);
    assert_eq!(parameters("vfs_raed"), None);
    assert!(kernel.tracepoint("sched", "sched_switch").is_ok());
    assert!(kernel.tracepoint("syscalls", "sys_enter_openat").is_ok());
    assert!(kernel.tracepoint("sched", "sched_swich").is_err());
    assert_eq!(kernel.member("trace_event_raw_sched_switch", "next_pid").map(|pid| pid.offset), Some(56));
    assert!(kernel.struct_ops("tcp_congestion_ops").is_some_and(|ops| ops.members.len() == 9));
}

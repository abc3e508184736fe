//! Checks that every row of the table has a test, here or where programs run.
//!
//! Rows after those of the reference, in its notation (✓ accepted, ✗ refused, B in both halves):
//!
//! | row | rule |
//! |---|---|
//! | LF-145 | B `m[a, b]` is the entry whose key is a struct with these fields; ✗ other numbers or types of parts |
//! | LF-146 | B `if (var v = m.take(k))` and `var v = m.take(k)` read and remove an entry; ✗ elsewhere, ✗ of other kinds |
//! | LF-147 | B `stats` counts integers: `count`, `sum`, `min`, `max`, `mean`, `overflow`; ✗ in per-CPU maps |
//! | LF-148 | ✓ `lock (v) { .. }` of an entry of a `hash` or `array`; ✗ calls in it (KS0720), ✗ other maps (KS0625), ✗ in userspace |
//! | LF-149 | ✓ `extern name: type` reads a variable of the kernel; ✗ writing it (KS0612), ✗ in userspace |
//! | LF-150 | B `m[a][b]` is an entry of an inner map of `hash<K, hash<L, V>(N)>(M)`; ✗ three levels, other kinds (KS0602), ✗ creating and deleting inner maps in programs (KS0608) |
//! | LF-151 | ✓ `@column("heading", "unit")` before a field, a map or a variable; ✗ before structs (KS0626), ✗ units of texts |
//! | LF-152 | ✓ `if (var s = str(p))`, `s == null` and `str(p) != null` ask whether text can be read, so for `buf`; ✗ in userspace |
//! | LF-153 | ✓ `percpu extern name: type` reads the value of the running CPU, `per_cpu_ptr(name, n)` points to that of another; ✗ variables without one (KS0525), ✗ in userspace |
//! | LF-154 | ✓ `optional: true` in an attribute leaves a program out at targets that the kernel lacks (KS0526); ✗ other values, ✗ twice, ✗ of events (KS0501), ✗ with `main` (KS0523) |

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Number of rows of the table.
const ROWS: u32 = 154;

/// Rows that are not tested completely, with the missing feature.
const OPEN_ROWS: &[(u32, &str)] = &[];

#[test]
fn every_row_is_tested_here_or_open() {
    let tested = tested_rows();
    let open: BTreeSet<u32> = OPEN_ROWS.iter().map(|(row, _)| *row).collect();
    let missing: Vec<_> = (1..=ROWS).filter(|row| !tested.contains(row) && !open.contains(row)).collect();
    assert!(missing.is_empty(), "no test and not open: {missing:?}");
    let unknown: Vec<_> = tested.union(&open).filter(|row| !(1..=ROWS).contains(*row)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
    assert_eq!(open.len(), OPEN_ROWS.len(), "a row is open once");
    let done: Vec<_> = open.intersection(&running_rows()).copied().collect();
    assert!(done.is_empty(), "open, and yet run: {done:?}");
}

/// Returns the numbers in the names of tests `lf_NNN_...` next to this file, and of tests that run whole
/// programs.
fn tested_rows() -> BTreeSet<u32> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rows = BTreeSet::new();
    for number in numbers(&package.join("tests/compiler/conformance")) {
        assert!(rows.insert(number), "two tests of row {number}");
    }
    rows.extend(running_rows());
    rows
}

/// Returns the numbers in the names of tests that run compiled programs.
fn running_rows() -> BTreeSet<u32> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/compiler/user", "../tests/tests"];
    folders.into_iter().flat_map(|folder| numbers(&package.join(folder))).collect()
}

/// Returns the numbers of rows in the names of tests below a folder. A test that needs root has a prefix
/// before the number.
fn numbers(folder: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the tests are in their folder") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(numbers(&path));
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(path).expect("a test is UTF-8");
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")) {
            let name = line.split('(').next().unwrap_or(line);
            // A test of two rows has both numbers.
            for row in format!("_{name}").split("_lf_").skip(1) {
                let number = row.split('_').next().and_then(|digits| digits.parse().ok());
                found.push(number.expect("a number follows lf_"));
            }
        }
    }
    found
}

#[test]
fn the_small_kernel_has_what_the_rows_name() {
    let kernel = ks_compiler_testing::checked::kernel::types();
    let parameters = |name: &str| kernel.function(name).map(|found| found.proto.params.len()).ok();
    assert_eq!(["vfs_read", "do_exit", "sys_openat"].map(parameters), [Some(4), Some(1), Some(4)]);
    assert_eq!(parameters("vfs_raed"), None);
    assert!(kernel.tracepoint("sched", "sched_switch").is_ok());
    assert!(kernel.tracepoint("syscalls", "sys_enter_openat").is_ok());
    assert!(kernel.tracepoint("sched", "sched_swich").is_err());
    assert_eq!(kernel.member("trace_event_raw_sched_switch", "next_pid").map(|pid| pid.offset), Some(56));
    assert!(kernel.struct_ops("tcp_congestion_ops").is_some_and(|ops| ops.members.len() == 9));
}

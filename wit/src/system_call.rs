//! Numbers of system calls, by architecture.
//!
//! Source: arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl, v6.18. Names are those of the tables, as in
//! syscalls(2): the kernel's tracepoint of `stat` is `newstat`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::section::Arch;

/// Lines of a name, its number on x86-64 and its number on AArch64; `-` where the architecture lacks the call.
const TABLE: &str = include_str!("system_calls.txt");

/// The names by number, of x86-64 and of AArch64.
static NAMES: LazyLock<[HashMap<i64, &str>; 2]> = LazyLock::new(|| [of_column(0), of_column(1)]);

/// Returns the name of a system call; none for an unknown number. [`Arch::Any`] has no numbers.
pub fn name(arch: Arch, number: i64) -> Option<&'static str> {
    let column = match arch {
        Arch::Any => return None,
        Arch::X86_64 => 0,
        Arch::Aarch64 => 1,
    };
    NAMES[column].get(&number).copied()
}

/// Returns the names by the numbers in one column of the table.
fn of_column(column: usize) -> HashMap<i64, &'static str> {
    let entry = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        Some((words.nth(column)?.parse().ok()?, name))
    };
    TABLE.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_names_of_their_architecture() {
        assert_eq!(name(Arch::X86_64, 0), Some("read"));
        assert_eq!(name(Arch::X86_64, 257), Some("openat"));
        assert_eq!(name(Arch::Aarch64, 56), Some("openat"));
        assert_eq!((name(Arch::X86_64, 2), name(Arch::Aarch64, 1024)), (Some("open"), None));
        assert_eq!([-1, 9999, i64::MIN].map(|number| name(Arch::X86_64, number)), [None; 3]);
        assert_eq!(name(Arch::Any, 0), None);
    }

    #[test]
    fn every_line_has_a_name_and_a_number_of_each_architecture() {
        let mut before = "";
        for line in TABLE.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, numbers @ ..] = &words[..] else { panic!("{line}") };
            assert!(*name > before, "{name}: in order, once");
            assert!(numbers.len() == 2 && numbers != ["-", "-"], "{line}");
            assert!(numbers.iter().all(|one| *one == "-" || one.parse::<u16>().is_ok()), "{line}");
            before = name;
        }
    }
}

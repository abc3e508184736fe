//! Stacks as keys without a declaration: of programs whose functions are known.

use std::process::Command;

use ks_tests::{Folder, Outcome, command, finish};
use serde_json::Value;

use super::Dd;

/// `main` calls `often` 30 times and `seldom` 7 times, and both call `twice`.
const CALLS: &str = r#"
__attribute__((noinline)) int twice(int n) { __asm__ volatile(""); return 2 * n; }
__attribute__((noinline)) int often(int n) { int r = twice(n); __asm__ volatile(""); return r + 1; }
__attribute__((noinline)) int seldom(int n) { int r = twice(n); __asm__ volatile(""); return r + 2; }
int main(void) {
    int all = 0;
    for (int i = 0; i < 30; i++) all += often(i);
    for (int i = 0; i < 7; i++) all += seldom(i);
    return all == 0;
}
"#;

/// Compiles the program with frame pointers, and returns its path.
fn calls(folder: &Folder) -> String {
    let source = folder.write("calls.c", CALLS);
    let program = folder.path("calls");
    let flags =
        ["-O1", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-optimize-sibling-calls"];
    let built =
        Command::new("cc").args(flags).arg("-o").arg(&program).arg(source).status().expect("cc starts");
    assert!(built.success());
    program.display().to_string()
}

/// The rows of a table in JSON.
fn rows(outcome: &Outcome, table: &str) -> Vec<Value> {
    let lines = outcome.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["table"] == table).map(|line| line["row"].clone()).collect()
}

/// The functions of a stack and their count.
fn stacks(outcome: &Outcome, table: &str, column: &str) -> Vec<(Vec<String>, u64)> {
    let found = rows(outcome, table).into_iter().map(|row| {
        let functions = row[column].as_array().unwrap_or_else(|| panic!("{row}")).iter();
        let functions = functions.map(|one| one.as_str().expect("text").to_owned()).collect();
        (functions, row["value"].as_u64().expect("a count"))
    });
    found.collect()
}

fn observed(script: &str, options: &[&str], exec: &[&str]) -> Outcome {
    let outcome = finish(command("ks-host").args(options).args(["-e", script, "--exec"]).args(exec));
    assert_eq!(outcome.code, 0, "{script}: {outcome:#?}");
    outcome
}

#[test]
fn root_the_stack_of_a_process_has_its_functions() {
    let folder = Folder::new();
    let program = calls(&folder);
    let script = format!("@uprobe(\"{program}:twice\") {{ n[ustack(2)] += 1; deep[comm(), ustack()] += 1 }}");
    let outcome = observed(&script, &["--json"], &[&program]);
    // The probe is at the first instruction of `twice`, before its frame: the caller of the caller follows.
    let of = |functions: &[&str]| functions.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    assert_eq!(stacks(&outcome, "n", "key"), [(of(&["twice", "main"]), 37)], "{outcome:#?}");
    let deep = stacks(&outcome, "deep", "ustack");
    assert!(deep.iter().all(|(stack, _)| stack.starts_with(&of(&["twice", "main"]))), "{outcome:#?}");
    assert_eq!(deep.iter().map(|(_, count)| count).sum::<u64>(), 37, "{outcome:#?}");
}

#[test]
fn root_a_stack_is_lines_of_a_table() {
    let folder = Folder::new();
    let program = calls(&folder);
    let script = format!("@uprobe(\"{program}:twice\") {{ n[comm(), ustack(2)] += 1 }}");
    let outcome = observed(&script, &[], &[&program]);
    let expected = "n\ncomm   value  ustack\ncalls     37  twice\n              main\n";
    assert_eq!(outcome.stdout, expected, "{outcome:#?}");
}

/// The process has ended when its functions are named.
#[test]
fn root_stacks_of_system_calls_begin_in_the_kernel() {
    let dd = Dd::new();
    let script = r#"
        @syscall_enter("write") { if (comm() == "NAME") { enters[kstack(2)] += 1; none[ustack()] += 1 } }
        @raw_tracepoint("sys_exit") { if (comm() == "NAME") { exits[kstack()] += 1 } }"#;
    let script = script.replace("NAME", &dd.name);
    let outcome = finish(command("ks-host").args(["--json", "-e", &script, "--exec"]).args(dd.command(25)));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let enters = stacks(&outcome, "enters", "key");
    assert_eq!(enters.iter().map(|(_, count)| count).sum::<u64>(), 25, "{outcome:#?}");
    assert!(enters.iter().all(|(stack, _)| (1..=2).contains(&stack.len())), "{outcome:#?}");
    let is_syscall = |(stack, _): &(Vec<String>, u64)| stack.iter().any(|one| one.contains("do_syscall_64"));
    assert!(stacks(&outcome, "exits", "key").iter().any(is_syscall), "{outcome:#?}");
    let users = stacks(&outcome, "none", "key");
    assert!(users.iter().all(|(stack, _)| stack != &["[no stack]"]), "{outcome:#?}");
    assert_eq!(users.iter().map(|(_, count)| count).sum::<u64>(), 25, "{outcome:#?}");
}

#[test]
fn root_samples_have_the_stacks_that_the_tree_shows() {
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=4M", "count=4000", "status=none"];
    let script = r#"@profile(999) if (comm() == "dd") { n[kstack()] += 1 }"#;
    let folder = Folder::new();
    let folded = folder.path("folded");
    let stacks_option = format!("folded={}", folded.display());
    let outcome = observed(script, &["--json", "--stacks", &stacks_option], &dd);
    let folded = std::fs::read_to_string(folded).expect("it was written");
    let mut from_host: Vec<(Vec<String>, u64)> = folded
        .lines()
        .map(|line| {
            let (stack, count) = line.rsplit_once(' ').expect("a count");
            let functions = stack.split(';').rev().map(|one| one.trim_end_matches("_[k]").to_owned());
            (functions.collect(), count.parse().expect("a count"))
        })
        .collect();
    let mut shown = stacks(&outcome, "n", "key");
    from_host.sort();
    shown.sort();
    // Two stacks of other addresses may have the same functions.
    let merged = |all: Vec<(Vec<String>, u64)>| {
        let mut sums = std::collections::BTreeMap::<Vec<String>, u64>::new();
        all.into_iter().for_each(|(stack, count)| *sums.entry(stack).or_default() += count);
        sums
    };
    assert_eq!(merged(from_host), merged(shown), "{outcome:#?}");
    assert!(outcome.stdout.contains("read_zero"), "{outcome:#?}");
}

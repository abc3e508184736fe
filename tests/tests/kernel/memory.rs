//! Chapter 5 of the language reference at run time: globals, elements and bindings, in both halves. These
//! tests need root.

use std::process::Command;
use std::sync::{Arc, Weak};

use ks_tests::{Outcome, at_switches, run_script};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const NO_ARGUMENTS: &[&str] = &[];

/// Runs a script and asserts its exact output.
fn prints(project: &str, script: &str, expected: &str) {
    let outcome = run_script(project, script, NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

/// Runs the statements once as a program, at a page fault, and once as a plain function; `print` lists the
/// values that are printed after each.
fn in_both(project: &str, items: &str, body: &str, print: &str) -> Outcome {
    let script = format!(
        "{items}\nvar done : u32 = 0\nvar memory : u8[131072]\n\n@perf_event\n\
         fn watch(ctx: *bpf_perf_event_data) -> i32 {{\nif (done == 0) {{\ndone = 1\n{body}\n}}\nreturn \
         0\n}}\n\n\
         fn same() {{\n{body}\n}}\n\nfn main() -> i32 {{\nvar program = load(watch)\n\
         attach(program, perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 1 }}, 0)\n\
         memory[8192] = 1\nmemory[81920] = \
         1\ndetach(program)\n{print}\nclear_all()\nsame()\n{print}\nreturn 0\n}}\n"
    );
    run_script(project, &script, NO_ARGUMENTS)
}

/// Asserts that the output is the expected lines twice, once for each half.
fn same_in_both(project: &str, items: &str, body: &str, print: &str, expected: &str) {
    let outcome = in_both(project, items, body, print);
    let both = format!("{expected}\n{expected}\n");
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, both.as_str(), ""));
}

#[test]
fn root_lf_084_globals_are_one_copy() {
    let script = include_str!("scripts/memory_lf_084_globals_are_one_copy.ks");
    let outcome = run_script("globals", script, NO_ARGUMENTS);
    let expected = "10 -5 false y 7 kernel 42 6 abc\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_088_compound_assignment_creates_elements_and_their_parts() {
    let items = "struct S { n: u64, k: u8 }\nvar m : hash<u32, u64>(8)\nvar s : hash<u32, S>(8)\n\
                 fn clear_all() {\nclear(m)\nclear(s)\n}";
    let body = "m[1] += 2\nm[1] += 3\nm[2] -= 1\ns[1].n += 5\ns[3].n = 5\ns[2] = S { n: 1, k: 2 }\n\
         s[2].n += 5\ns[2].k = 9";
    let print = "print(\"%u %d %u %u {} %u %u\", m[1], m[2], s[1].n, s[1].k, s[3] == null, s[2].n, s[2].k)";
    same_in_both("compound", items, body, print, "5 -1 5 0 true 6 9");
}

#[test]
fn root_lf_091_lf_093_scalar_bindings_are_copies_and_others_the_entry() {
    let script =
        include_str!("scripts/memory_lf_091_lf_093_scalar_bindings_are_copies_and_others_the_entry.ks");
    prints("bindings", script, "7 8 true 4\n");
}

#[test]
fn root_lf_092_parts_are_written_back_while_the_entry_exists() {
    let script = include_str!("scripts/memory_lf_092_parts_are_written_back_while_the_entry_exists.ks");
    prints("back", script, "10 2 true 40\n");
}

#[test]
fn root_lf_094_keys_with_padding_find_their_entry_from_both_halves() {
    let script = include_str!("scripts/memory_lf_094_keys_with_padding_find_their_entry_from_both_halves.ks");
    prints("keys", script, "15 1 2 7\n");
}

/// Starts short processes one after the other on one CPU while the script runs: each has some hundred page
/// faults.
fn fault_on(cpu: usize, script: &Weak<()>) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("a CPU of a small number");
    sched_setaffinity(Pid::from_raw(0), &cpus).expect("the CPU is online");
    while script.strong_count() > 0 {
        Command::new("true").status().expect("coreutils are there");
    }
}

/// Two CPUs add to one global, one element and one bound field at every page fault. Nothing is lost if the
/// sums equal the per-CPU counts.
#[test]
fn root_lf_097_additions_of_several_cpus_lose_nothing() {
    let script = include_str!("scripts/memory_lf_097_additions_of_several_cpus_lose_nothing.ks");
    let running = Arc::new(());
    let faults = [0, 1].map(|cpu| {
        let script = Arc::downgrade(&running);
        std::thread::spawn(move || fault_on(cpu, &script))
    });
    let outcome = run_script("faults", script, NO_ARGUMENTS);
    drop(running);
    for thread in faults {
        thread.join().expect("both CPUs are online");
    }
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "0 0 0\n", ""));
}

#[test]
fn root_lf_044_presence_is_not_the_value() {
    let items = "struct S { n: u64, t: str(4) }\nvar m : hash<u32, u64>(8)\nvar s : hash<u32, S>(8)\n\
                 var t : hash<u32, str(8)>(8)\nvar seen : u32 = 0\nvar sum : u64 = 9\nvar text : str(8) \
                 = \"old\"\n\
                 fn clear_all() {\nclear(m)\nseen = 0\nsum = 9\ntext = \"old\"\n}";
    let body = "m[1] = 0\nif (m[1]) {\nseen += 1\n}\nif (m[2]) {\nseen += 10\n}\nif (m[1] != null) {\n\
                seen += 100\n}\n\
                if (var v = m[3]) {\nseen += v\n} else {\nseen += 1000\n}\nsum = m[7] + s[7].n\ntext = t[7]";
    same_in_both("presence", items, body, "print(\"%u %u [%s]\", seen, sum, text)", "1101 0 []");
}

#[test]
fn root_lf_045_absent_structs_are_zero() {
    let items = "struct S { n: u64, t: str(4) }\nvar s : hash<u32, S>(8)\nvar n : u64 = 5\n\
                 fn clear_all() {\nclear(s)\nn = 5\n}";
    let body = "var v = s[1]\nn = v.n + len(v.t)\nif (v == null) {\nn += 40\n}";
    same_in_both("absent", items, body, "print(\"%u {}\", n, s[1] == null)", "40 true");
}

#[test]
fn root_lf_102_objects_of_new_start_as_zeros() {
    let items = "struct S { n: u64, k: u32 }\nvar n : u64 = 5\nvar k : u32 = 5\nvar w : u32 = 5\n\
                 fn clear_all() {\nn = 5\nk = 5\nw = 5\n}";
    let body = "var p = new S()\nk = p->k\np->n = 7\nn = p->n\ndelete p\nvar q = new u32()\n*q += 3\nw = \
                *q\ndelete q";
    same_in_both("objects", items, body, "print(\"%u %u %u\", n, k, w)", "7 0 3");
}

#[test]
fn root_lf_103_an_object_in_a_map_is_read_and_written_by_both_halves() {
    let script =
        include_str!("scripts/memory_lf_103_an_object_in_a_map_is_read_and_written_by_both_halves.ks");
    prints("maps_of_pointers", script, "6 true 16 3\n20 4\n37 17 23\n23 true true\n");
}

#[test]
fn root_lf_106_surplus_values_are_printed_at_the_end_in_the_kernel_half() {
    let script =
        include_str!("scripts/memory_lf_106_surplus_values_are_printed_at_the_end_in_the_kernel_half.ks");
    let outcome = run_script("surplus", script, NO_ARGUMENTS);
    let expected = "a 1 true\n2 and c\n1 text\n\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_106_enumerators_are_printed_by_name_in_the_kernel_half() {
    let declared = "
        enum Level { DEBT = -1, NONE, SOME = 7 }
        enum Wide { LOW = 1, HIGH = 0x8000000000000001 }";
    let body = "
        if (a == -1) {
            a = 1
            var level: Level = DEBT
            var wide: Wide = HIGH
            print(\"{} {} {} %d %u\", level, wide, LOW, level, SOME, NONE)
            level = 5
            print(\"{}\", level)
        }";
    prints("enumerators", &at_switches(declared, body), "DEBT HIGH LOW -1 7 NONE\n5\n1 -1 -1\n");
}

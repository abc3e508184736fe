//! Kernel helpers and functions that a script declares: calls, with their arguments and results. These tests
//! need root.

use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::{Folder, allowed, at_switches, command, compile, finish, run_script, try_compile};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_helpers", "root_missing"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_helpers", "root_kfuncs"]);
}

#[test]
fn root_helpers_take_numbers_memory_and_null() {
    let script = at_switches(
        "extern bpf_strtol(text: *u8, bytes: u64, base: u64, result: *i64) -> i64
         extern bpf_get_current_comm(name: *u8, bytes: u32) -> i32
         extern bpf_trace_printk(format: *u8, bytes: u32) -> i32",
        "var text: str(8) = \"-42\"
         var number: i64 = 7
         a = bpf_strtol(text, 8, 10, &number)
         b = number
         var name: u8[16] = []
         var refused = bpf_get_current_comm(name, 16)
         c = refused
         if (name[0] == 0) { c = 100 }
         var printed = bpf_trace_printk(null, 0)
         if (printed > 1) { c = 101 }",
    );
    let ran = run_script::<&str>("externs", &script, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "3 -42 0\n"), "{ran:#?}");
}

#[test]
fn root_helpers_take_text_as_it_is_written() {
    let script = at_switches(
        "extern bpf_strtol(text: *u8, bytes: u64, base: u64, result: *i64) -> i64",
        "a = bpf_strtol(\"-42\", 4, 10, &b)
         if (bpf_strtol(\"7\", 2, 10, &c) < 0) { c = 0 }
         var nothing = null as *u8
         if (nothing != null) { c = 1 }",
    );
    let outcome = run_script("texts", &script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "3 -42 7\n"), "{}", outcome.stderr);
}

#[test]
fn root_kfuncs_are_found_in_the_kernels_types() {
    if inside().is_some_and(|kernel| kernel == "6.1") {
        return;
    }
    let script = at_switches(
        "extern bpf_rcu_read_lock()
         extern bpf_rcu_read_unlock()",
        "bpf_rcu_read_lock()
         a = 1
         bpf_rcu_read_unlock()
         b = 2",
    );
    let ran = run_script::<&str>("externs", &script, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 2 -1\n"), "{ran:#?}");
}

#[test]
fn root_missing_functions_are_named() {
    let script = at_switches("extern ks_is_nowhere(value: u32) -> u32", "a = ks_is_nowhere(1)");
    let folder = Folder::new();
    let file = folder.write("externs.wasm", compile("externs", &script).plugin);
    let checked = finish(command("ks-host").arg("check").arg(&file));
    assert_eq!(checked.code, 1, "{checked:#?}");
    let line = checked.stdout.lines().find(|line| line.starts_with("missing")).expect("one is missing");
    assert!(line.contains("kfunc") && line.contains("ks_is_nowhere"), "{checked:#?}");
    let ran = finish(allowed().arg(&file));
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("ks_is_nowhere"), "{ran:#?}");
}

#[test]
fn root_sizes_beyond_memory_are_refused_where_they_stand() {
    let script = at_switches(
        "extern bpf_get_current_comm(name: *u8, bytes: u32) -> i32",
        "var name: u8[16] = []
         a = bpf_get_current_comm(name, 17)",
    );
    let refused = try_compile("externs", &script).expect_err("one byte too many");
    assert!(refused.contains("a size of 17, where 16 bytes are"), "{refused}");
}

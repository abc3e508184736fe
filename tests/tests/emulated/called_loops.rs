//! Loops for kernels that have `bpf_loop` and no iterators (`--target-kernel 6.1`): their results on the
//! running kernel, and on an emulated 6.1, whose verifier checks one iteration only and removes code that it
//! believes to be unreachable. Needs root.

use ks_compiler::kernel::KernelVersion;
use ks_compiler::pipeline::Target;
use ks_tests::emulated::{Kernel, Machine};
use ks_tests::runs::Loaded;
use ks_tests::{Folder, allowed, finish, run_script};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_a_plugin"]);
}

#[test]
fn root_a_plugin_built_without_flags_runs_on_every_kernel() {
    let script = include_str!("scripts/called_loops_by_default.ks");
    let ran = run_script::<&str>("loops", script, &[]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "1538 1\n", ""), "{ran:#?}");
    // `ks-host` runs the script itself with the same result.
    let folder = Folder::new();
    let ran = finish(allowed().arg(folder.write("loops.ks", script)));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "1538 1\n", ""), "{ran:#?}");
}

/// Returns the array that a program fills in, if `arg` starts with `bound`.
fn results(items: &str, body: &str, bound: u64) -> Vec<u64> {
    let script = format!(
        "var arg: array<u32, u64>(1)\nvar out: array<u32, u64>(8)\n{items}\n\
         @xdp fn run(ctx: *xdp_md) -> xdp_action {{\nvar n = arg[0]\n{body}\nreturn XDP_PASS\n}}\n\
         fn main() -> i32 {{\nvar program = load(run)\nreturn 0\n}}\n"
    );
    let target = Target { kernel: Some(KernelVersion::new(6, 1)), ..Target::default() };
    let loaded = Loaded::with_target(&script, target);
    loaded.set("arg", 0, bound);
    loaded.run("run", &[0; 64]);
    loaded.entries("out", 8)
}

#[test]
fn root_a_number_that_iterations_change_is_compared_after_the_loop() {
    let body = "var count: u32 = 0\nvar state: u32 = 0\n\
                for (i in 0..n) {\n  count += 1\n  if (state == 0) { state = 1 } else { state = 2 }\n}\n\
                if (count == 5) { out[0] = 1 }\nif (count == 0) { out[1] = 1 }\n\
                if (state == 2) { out[2] = 1 }\nif (state == 0) { out[3] = 1 }\nout[4] = count";
    assert_eq!(results("", body, 5), [1, 0, 1, 0, 5, 0, 0, 0]);
    assert_eq!(results("", body, 1), [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(results("", body, 0), [0, 1, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn root_memory_that_iterations_change_is_compared_after_the_loop() {
    let items = "struct Pair { a: u64, b: u64 }";
    let body = "var p = Pair { a: 0, b: 7 }\nvar list: u32[4] = [0, 0, 0, 0]\n\
                for (i in 0..n) {\n  p.a += 1\n  list[i & 3] = 9\n  if (p.a == 3) { p.b = 8 }\n}\n\
                if (p.a == 3) { out[0] = 1 }\nif (p.b == 8) { out[1] = 1 }\nif (p.b == 7) { out[2] = 1 }\n\
                if (list[0] == 0) { out[3] = 1 }\nif (list[2] == 9) { out[4] = 1 }\nout[5] = p.a";
    assert_eq!(results(items, body, 3), [1, 1, 0, 0, 1, 3, 0, 0]);
    assert_eq!(results(items, body, 0), [0, 0, 1, 1, 0, 0, 0, 0]);
    assert_eq!(results(items, body, 9), [0, 1, 0, 0, 1, 9, 0, 0]);
}

#[test]
fn root_loops_have_every_kind_of_exit() {
    let items = "@helper fn find(n: u64, wanted: u64) -> u64 {\n  for (i in 0..n) {\n    \
                 if (i * i == wanted) { return i }\n  }\n\
                 return 100\n}\n\
                 @helper fn fails(n: u64) -> u64 {\n  for (i in 0..n) {\n    if (i == 4) { throw 42 }\n  \
                 }\n  return 1\n}";
    let body = "var odd: u64 = 0\nvar last: u64 = 0\n\
                for (i in 0..n) {\n  if (i % 2 == 0) { continue }\n  if (i > 6) { break }\n  odd += i\n  \
                last = i\n}\n\
                out[0] = odd\nout[1] = last\nout[2] = find(n, 16)\n\
                try { out[3] = fails(n) } catch 42 { out[3] = 2 }\n\
                var pairs: u64 = 0\n\
                for (i in 0..n) {\n  for (j in 0..n) {\n    if (j > i) { break }\n    pairs += 1\n  }\n}\n\
                out[4] = pairs\nvar left: u64 = n\nvar rounds: u64 = 0\n\
                while (left > 0) { left = left / 2\n rounds += 1 }\nout[5] = rounds";
    assert_eq!(results(items, body, 10), [9, 5, 4, 2, 55, 4, 0, 0]);
    assert_eq!(results(items, body, 3), [1, 1, 100, 1, 6, 2, 0, 0]);
    assert_eq!(results(items, body, 0), [0, 0, 100, 1, 0, 0, 0, 0]);
}

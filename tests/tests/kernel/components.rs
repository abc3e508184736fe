//! Calls that only a hand-written component can make: the contract without the language. These tests need
//! root.

use ks_tests::{compile, component, run_plugin, wait_until_gone};

/// Imports, memory and a bump allocator. `$fail` prints the message of the error at 1028 and ends with its
/// errno.
///
/// Every call that may fail writes its result to 1024: a byte that is 0 for success, then from 1028 the
/// handle, or the error as kind (8 bytes), errno (tag, value) and message (address, length).
const PRELUDE: &str = r#"
  (import "kernelscript:host/perf@0.2.0" "[static]event.numbered" (func $numbered (param i32 i64 i32)))
  (import "kernelscript:host/perf@0.2.0" "[static]event.breakpoint" (func $breakpoint (param i64 i32 i32 i32)))
  (import "kernelscript:host/perf@0.2.0" "[constructor]options" (func $options (result i32)))
  (import "kernelscript:host/perf@0.2.0" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
  (import "kernelscript:host/perf@0.2.0" "[method]attachment.snapshot" (func $snapshot (param i32 i32)))
  (import "kernelscript:host/console@0.2.0" "warn" (func $warn (param i32 i32)))
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 65536))
  (func (export "cabi_realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
    (global.set $free (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.get $free)
    (global.set $free (i32.add (global.get $free) (local.get $new))))
  (func $fail (result i32)
    (call $warn (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))
    (i32.load (i32.const 1040)))
  ;; The options of the plugin's own thread on any CPU.
  (func $own (result i32) (call $options))
"#;

fn plugin(project: &str, run: &str) -> Vec<u8> {
    component(project, &format!("(module {PRELUDE} {run}"), &[]).expect("the module fits the world")
}

/// A leader and 19 members, all page faults; the exit code is the number of entries in the snapshot.
#[test]
fn root_a_snapshot_has_every_member() {
    let run = r#"
      (func (export "run") (result i32) (local $event i32) (local $leader i32) (local $count i32)
        (call $numbered (i32.const 1) (i64.const 2) (i32.const 1024))
        (if (i32.load8_u (i32.const 1024)) (then (return (call $fail))))
        (local.set $event (i32.load (i32.const 1028)))
        (loop $more
          (call $open (local.get $event) (call $own)
            (i32.ne (local.get $count) (i32.const 0)) (local.get $leader) (i32.const 0) (i32.const 0) (i32.const 1024))
          (if (i32.load8_u (i32.const 1024)) (then (return (call $fail))))
          (if (i32.eqz (local.get $count)) (then (local.set $leader (i32.load (i32.const 1028)))))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $count) (i32.const 20))))
        (call $snapshot (local.get $leader) (i32.const 1024))
        (if (i32.load8_u (i32.const 1024)) (then (return (i32.const 99))))
        ;; ok is aligned to 8: times at 1032 and 1040, state 1048, partial 1056, own 1060, entries 1064 and 1068.
        (i32.load (i32.const 1068))))
    "#;
    let outcome = run_plugin("members", &plugin("members", run), &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (20, ""), "{outcome:#?}");
}

/// The CPU has four breakpoint registers: the fifth member of a group cannot be opened. The exit code is the
/// errno.
#[test]
fn root_breakpoints_that_do_not_fit_fail_at_open_with_enospc() {
    let run = r#"
      (func (export "run") (result i32) (local $leader i32) (local $count i32)
        (loop $more
          ;; Four bytes at an address nobody writes; stores.
          (call $breakpoint (i64.add (i64.const 0x10000) (i64.extend_i32_u (i32.mul (local.get $count) (i32.const 8))))
            (i32.const 4) (i32.const 2) (i32.const 1024))
          (if (i32.load8_u (i32.const 1024)) (then (return (call $fail))))
          (call $open (i32.load (i32.const 1028)) (call $own)
            (i32.ne (local.get $count) (i32.const 0)) (local.get $leader) (i32.const 0) (i32.const 0) (i32.const 1024))
          (if (i32.load8_u (i32.const 1024)) (then (return (call $fail))))
          (if (i32.eqz (local.get $count)) (then (local.set $leader (i32.load (i32.const 1028)))))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $count) (i32.const 6))))
        (i32.const 0)))
    "#;
    let outcome = run_plugin("breakpoints", &plugin("breakpoints", run), &[] as &[&str]);
    assert_eq!(outcome.code, nix::errno::Errno::ENOSPC as i32, "{outcome:#?}");
    assert!(outcome.stderr.contains("ENOSPC") && outcome.stderr.contains("breakpoint"), "{outcome:#?}");
    assert!(outcome.stderr.contains("4"), "how many the CPU has is said: {outcome:#?}");
}

/// Opens an event with a program, then traps: no kernel object remains.
#[test]
fn root_a_trap_in_the_middle_leaks_nothing() {
    let script = r#"
        var trapcount : u64 = 0
        var trapmap : hash<u32, u64>(4)

        @perf_event
        fn trapprog(ctx: *bpf_perf_event_data) -> i32 {
            trapcount += 1
            trapmap[1] = trapcount
            return 0
        }
    "#;
    let run = r#"
      (import "kernelscript:host/bpf@0.2.0" "[static]program.load" (func $load (param i32 i32 i32)))
      (data (i32.const 2048) "trapprog")
      (func (export "run") (result i32) (local $program i32) (local $event i32)
        (call $load (i32.const 2048) (i32.const 8) (i32.const 1024))
        (if (i32.load8_u (i32.const 1024)) (then (return (call $fail))))
        (local.set $program (i32.load (i32.const 1028)))
        (call $numbered (i32.const 1) (i64.const 2) (i32.const 1024))
        (local.set $event (i32.load (i32.const 1028)))
        (call $open (local.get $event) (call $own) (i32.const 0) (i32.const 0) (i32.const 1) (local.get $program)
          (i32.const 1024))
        (if (i32.load8_u (i32.const 1024)) (then (return (call $fail))))
        (unreachable)))
    "#;
    let built = compile("trapped", script);
    // Imports come before everything else in a module.
    let (import, rest) = run.split_once("(data").expect("the import comes first");
    let text = format!("(module {import} {PRELUDE} (data{rest}");
    let plugin = component("trapped", &text, &built.records()).expect("the module fits the world");
    let outcome = run_plugin("trapped", &plugin, &[] as &[&str]);
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("unreachable"), "the trap is shown: {outcome:#?}");
    wait_until_gone("trap");
}

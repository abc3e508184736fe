//! Loops, recursion, floods of calls, endless waits, and requests for more than the host keeps.

use ks_tests::guest::data;

use super::{ended, function, run, run_module, run_with};

/// A time limit of 0.2 seconds.
const SHORT: [&str; 2] = ["--timeout", "0.2"];

#[test]
fn whoever_never_comes_back_is_ended_at_the_time_limit() {
    let forever = "(i64.const -1)";
    for (what, body) in [
        ("a loop", "(loop $again (br $again)) (unreachable)".to_owned()),
        ("a loop of calls", "(loop $again (drop (call $clock.now)) (br $again)) (unreachable)".to_owned()),
        (
            "an endless sleep, again and again",
            format!("(loop $again (call $clock.sleep {forever} (i32.const 1024)) (br $again)) (unreachable)"),
        ),
        (
            "an endless poll of nothing",
            format!(
                "(loop $again (call $ring.poll (i32.const 2048) (i32.const 0) (i32.const 0) {forever} \
                 (i32.const 64) (i32.const 1024)) (br $again)) (unreachable)"
            ),
        ),
    ] {
        let outcome = run_with(&function(&body), &SHORT);
        assert_eq!(outcome.code, 124, "{what}: {outcome:#?}");
    }
}

#[test]
fn a_wait_without_end_ends_when_it_is_asked_to() {
    // Returns 7 if the sleep was interrupted, with kind `interrupted` (7).
    let body = "(call $clock.sleep (i64.const -1) (i32.const 1024))
        (i32.load8_u (i32.const 1028))";
    let outcome = run_with(&function(body), &SHORT);
    assert_eq!(outcome.code, 124, "{outcome:#?}");
    assert!(!outcome.stderr.contains("trap"), "{outcome:#?}");
}

#[test]
fn recursion_ends_at_the_stack_wherever_it_goes() {
    let direct = format!(
        "(func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))\n{}",
        function("(call $deeper (i32.const 0))")
    );
    let indirect = format!(
        "(type $t (func (param i32) (result i32))) (table 1 funcref) (elem (i32.const 0) $deeper)
         (func $deeper (param i32) (result i32)
           (i32.add (call_indirect (type $t) (local.get 0) (i32.const 0)) (i32.const 1)))\n{}",
        function("(call $deeper (i32.const 0))")
    );
    for body in [direct, indirect] {
        ended(&run(&body), &["stack"]);
    }
}

/// The host calls the guest's allocator while it writes a result; the allocator may do anything.
#[test]
fn an_allocator_may_do_anything() {
    let module = |realloc: &str| {
        format!(
            "(module (import \"kernelscript:host/args@0.2.0\" \"words\" (func $words (param i32)))
             (import \"kernelscript:host/clock@0.2.0\" \"now\" (func $now (result i64)))
             (memory (export \"memory\") 1)
             (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) {realloc})
             (func (export \"run\") (result i32) (call $words (i32.const 1024)) (i32.const 0)))"
        )
    };
    let run_realloc = |realloc: &str, options: &[&str]| {
        let all = [options, &["--"][..], &["a", "word", "of", "the", "plugin"]].concat();
        let folder = ks_tests::Folder::new();
        let file = ks_tests::component("hostile", &module(realloc), &[]).expect("it fits the world");
        let path = folder.write("hostile.wasm", file);
        let (before, after) = all.split_at(options.len());
        let outcome = ks_tests::finish(
            ks_tests::command("ks-host").arg("--no-cache").args(before).arg(path).args(after),
        );
        super::contained(&outcome);
        outcome
    };
    for (what, realloc, reason) in [
        ("behind the memory", "(i32.const 65536)", "realloc"),
        ("the last byte", "(i32.const 65535)", "realloc"),
        ("an odd place", "(i32.const 4097)", "realloc"),
        ("minus one", "(i32.const -1)", "realloc"),
        ("a trap", "(unreachable)", "unreachable"),
        ("a call of the host", "(drop (call $now)) (i32.const 4096)", "leave"),
        ("a call of itself", "(call 2 (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))", "stack"),
    ] {
        let outcome = run_realloc(realloc, &[]);
        assert_eq!(outcome.code, 125, "{what}: {outcome:#?}");
        assert!(outcome.stderr.contains(reason), "{what}: {outcome:#?}");
    }
    let looping = run_realloc("(loop $again (br $again)) (unreachable)", &SHORT);
    assert_eq!(looping.code, 124, "{looping:#?}");
    // Every text gets the address of the result: only the guest's own data is lost.
    let same = run_realloc("(i32.const 1024)", &[]);
    assert_eq!(same.code, 0, "{same:#?}");
}

#[test]
fn memories_and_tables_grow_to_their_limits() {
    // `memory.grow` returns -1 above the limit; the plugin continues.
    let outcome = run(&function("(drop (memory.grow (i32.const 65000))) (memory.grow (i32.const 2047))"));
    assert_eq!(outcome.code, 255, "{outcome:#?}");
    let table = format!(
        "(table $t 1 funcref)\n{}",
        function("(drop (table.grow $t (ref.null func) (i32.const 0x7fffffff))) (table.size $t)")
    );
    assert_eq!(run(&table).code, 1);
    // A memory that is too large initially is refused at the start.
    let large =
        "(module (memory (export \"memory\") 2049) (func (export \"run\") (result i32) (i32.const 0)))";
    ended(&run_module(large, &[]), &["memory"]);
    let large = "(module (memory (export \"memory\") 1) (table 0x7fffffff funcref)
        (func (export \"run\") (result i32) (i32.const 0)))";
    ended(&run_module(large, &[]), &["table"]);
    let memories: String = (0..99).map(|_| "(memory 1024)\n").collect();
    let many = format!(
        "(module (memory (export \"memory\") 1) {memories} (func (export \"run\") (result i32) (i32.const \
         0)))"
    );
    let outcome = run_module(&many, &[]);
    assert!(matches!(outcome.code, 125 | 127) && outcome.stderr.contains("memor"), "{outcome:#?}");
}

/// Handles of every kind that needs no object: a call that can fail reports `limit`, any other ends the
/// plugin.
#[test]
fn floods_of_handles_end_at_their_limit() {
    let options = "(loop $more (drop (call $perf.options.new)) (br $more)) (unreachable)";
    ended(&run(&function(options)), &["--limit handles="]);
    // The plugin returns the error's kind; `limit` is 4.
    let events = "(loop $more
          (call $perf.event.numbered (i32.const 1) (i64.const 2) (i32.const 1024))
          (br_if $more (i32.eqz (i32.load8_u (i32.const 1024)))))
        (i32.load8_u (i32.const 1028))";
    assert_eq!(run(&function(events)).code, 4);
}

/// A text that the guest stores once and passes a thousand times.
#[test]
fn floods_of_texts_are_not_kept() {
    let megabyte = 1 << 20;
    let grow = "(drop (memory.grow (i32.const 64)))
        (memory.fill (i32.const 4096) (i32.const 97) (i32.const 3145728))";
    for (what, call) in [
        (
            "names of processes",
            format!(
                "(call $perf.options.observe-process (call $perf.options.new) (i32.const 4096) (i32.const \
                 {megabyte}))"
            ),
        ),
        (
            "paths of groups",
            format!(
                "(call $perf.options.observe-cgroup (call $perf.options.new) (i32.const 4096) (i32.const \
                 {megabyte}))"
            ),
        ),
        (
            "names of events",
            format!("(call $perf.event.named (i32.const 4096) (i32.const {megabyte}) (i32.const 1024))"),
        ),
        (
            "names of programs",
            format!("(call $bpf.program.load (i32.const 4096) (i32.const {megabyte}) (i32.const 1024))"),
        ),
        (
            "places of probes",
            format!("(call $perf.event.uprobe (i32.const 4096) (i32.const {megabyte}) (i32.const 1024))"),
        ),
    ] {
        let body = format!(
            "{grow} (loop $more {call} (local.set $l (i64.add (local.get $l) (i64.const 1)))
             (global.set $heap (i32.const 3500000))
             (br_if $more (i64.lt_u (local.get $l) (i64.const 3000)))) (i32.const 3)"
        );
        let outcome = run_with(&function(&body), &["--timeout", "120"]);
        assert!(matches!(outcome.code, 3 | 125), "{what}: {} {}", outcome.code, outcome.stderr.len());
    }
}

/// Arguments above the limit of a call, and lists whose elements are all the same large text.
#[test]
fn oversized_calls_are_refused() {
    let grow = "(drop (memory.grow (i32.const 900)))";
    for (what, call) in [
        ("a text of 50 MiB", "(call $console.warn (i32.const 4096) (i32.const 52428800))"),
        (
            "a million rings",
            "(call $ring.poll (i32.const 4096) (i32.const 10000000) (i32.const 1) (i64.const 0) (i32.const \
             64) (i32.const 1024))",
        ),
        (
            "a million values",
            "(call $console.print (i32.const 4096) (i32.const 2) (i32.const 4096) (i32.const 3000000))",
        ),
    ] {
        let outcome = run(&function(&format!("{grow} {call} (i32.const 0)")));
        assert!(outcome.code == 125 && !outcome.stderr.is_empty(), "{what}: {outcome:#?}");
    }
    // A hundred thousand values, each the same text of 1 MiB at 65536: 16 bytes each, discriminant 10.
    let many = format!(
        "{grow} (loop $more
          (i32.store8 (local.get $a) (i32.const 10))
          (i32.store offset=8 (local.get $a) (i32.const 65536))
          (i32.store offset=12 (local.get $a) (i32.const 1048576))
          (local.set $a (i32.add (local.get $a) (i32.const 16)))
          (br_if $more (i32.lt_u (local.get $a) (i32.const 1600000))))
         (call $console.print (i32.const 2048) (i32.const 2) (i32.const 0) (i32.const 100000)) (i32.const 0)"
    );
    ended(&run(&function(&many)), &[]);
}

#[test]
fn a_line_has_an_end_however_wide_its_fields_are() {
    // 2,000 fields, each wider than any limit.
    let format = "%99999999999d".repeat(2000);
    let body = format!(
        "{}{}",
        data(4096, format.as_bytes()),
        function(&format!(
            "(call $console.print (i32.const 4096) (i32.const {}) (i32.const 0) (i32.const 0)) (i32.const 0)",
            format.len()
        ))
    );
    let outcome = run(&body);
    assert!(outcome.code == 0 && outcome.stdout.len() <= 1 << 20, "{}", outcome.stdout.len());
}

/// The wait instruction of Wasm threads blocks where epochs cannot interrupt it, so it must be unavailable.
#[test]
fn a_guest_cannot_wait_where_nobody_ends_it() {
    let body = "(memory.atomic.wait32 $s (i32.const 0) (i32.const 0) (i64.const -1))";
    let module = format!("(module (memory (export \"memory\") 1) (memory $s 1 1 shared) {})", function(body));
    let outcome = run_module(&module, &["--timeout", "0.5"]);
    assert!(matches!(outcome.code, 125 | 127) && !outcome.stderr.is_empty(), "{outcome:#?}");
    let plain = function("(memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1))");
    ended(&run_with(&plain, &["--timeout", "0.5"]), &["atomic"]);
}

/// Code that runs before and after `run` is subject to the same limits as `run` itself.
#[test]
fn a_start_function_is_subject_to_the_same_limits() {
    let start = |body: &str| format!("(func $first {body}) (start $first)\n{}", function("(i32.const 0)"));
    ended(&run(&start("(unreachable)")), &["unreachable"]);
    assert_eq!(run_with(&start("(loop $again (br $again))"), &SHORT).code, 124);
    assert_eq!(run(&start("(call $args.exit (i32.const 9))")).code, 9);
    ended(&run(&start("(loop $more (drop (call $perf.options.new)) (br $more))")), &["--limit handles="]);
}

/// Each component is refused or compiled within the time of a test: slow code is limited by its size.
#[test]
fn code_that_is_slow_to_compile_is_compiled_or_refused() {
    let adds = "(i64.mul (i64.add (local.get $l) (i64.const 3)) (i64.const 5)) (local.set $l)".repeat(20_000);
    let nested = format!("{}{}", "(block ".repeat(3_000), ")".repeat(3_000));
    let table = format!("(block $x (br_table {} (i32.const 0)))", "$x ".repeat(50_000));
    for (what, code) in [("a long one", adds), ("a deep one", nested), ("a wide one", table)] {
        let outcome = run(&function(&format!("{code} (i32.const 0)")));
        assert!(matches!(outcome.code, 0 | 127), "{what}: {outcome:#?}");
    }
}

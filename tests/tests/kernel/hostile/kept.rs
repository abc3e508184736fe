//! Data that plugins make the host keep: records that they return, cursors, copies of variables, texts of
//! handles. One limit covers their sum. The tests named `root_` need root.

use ks_tests::guest::{core_module, data};
use ks_tests::plugins::elf::{self, MapDef};
use ks_tests::{Folder, Outcome, allowed, compile, component, finish};
use ks_wit::section::{Arch, BpfRecord};

use super::{contained, ended, function, run_with};

/// Numbers of `enum bpf_map_type`.
const ARRAY: u32 = 2;

/// Kinds of errors, by their numbers in the contract.
const INVALID: i32 = 2;
const LIMIT: i32 = 4;

/// Every page fault of the plugin's own thread emits a record of 8 bytes.
const PRODUCER: &str = "
struct Event { n: u64 }
var events : ringbuf<Event>(1048576)
var attempts : u64 = 0

@perf_event
fn fault(ctx: *bpf_perf_event_data) -> i32 {
    attempts += 1
    var r = events.reserve()
    r->n = attempts
    events.submit(r)
    return 0
}

fn main() -> i32 {
    var program = load(fault)
    return 0
}
";

/// Runs a guest of this function with an object; its memory holds these names at these addresses.
fn run_object(elf: Vec<u8>, names: &[(u32, &str)], run: &str, options: &[&str]) -> Outcome {
    let record = BpfRecord { name: "hostile".into(), arch: Arch::Any, elf };
    let names: String = names.iter().map(|(address, name)| data(*address, name.as_bytes())).collect();
    let text = core_module(128, &format!("{names}{}", function(run)));
    let folder = Folder::new();
    let path =
        folder.write("hostile.wasm", component("hostile", &text, &[record]).expect("it fits the world"));
    let outcome = finish(allowed().arg("--no-cache").args(options).arg(path));
    contained(&outcome);
    outcome
}

/// Returns the object of a script's kernel half.
fn object(script: &str) -> Vec<u8> {
    compile("hostile", script).objects[0].1.elf().to_vec()
}

/// Ends with the kind of the error at 1024, if there is one; otherwise the handle is in `$a` or `$b`.
const CHECK: &str = "(if (i32.load8_u (i32.const 1024)) (then (return (i32.load8_u (i32.const 1028)))))";

/// Receives records of the own thread's page faults: the ring is the handle at 3000 and at each following
/// word, the
/// handle of the batch is at 2996, its records are at `$a` and have `$n` bytes.
fn records() -> String {
    format!(
        "(call $bpf.program.load (i32.const 2048) (i32.const 5) (i32.const 1024)) {CHECK}
         (local.set $n (i32.load (i32.const 1028)))
         (call $ring.ring.open (i32.const 2064) (i32.const 6) (i32.const 1024)) {CHECK}
         (i32.store (i32.const 3000) (i32.load (i32.const 1028)))
         (call $perf.event.numbered (i32.const 1) (i64.const 2) (i32.const 1024)) {CHECK}
         (local.set $a (i32.load (i32.const 1028)))
         (local.set $b (call $perf.options.new))
         (call $perf.options.set-period (local.get $b) (i64.const 1))
         (call $perf.open (local.get $a) (local.get $b) (i32.const 0) (i32.const 0)
           (i32.const 1) (local.get $n) (i32.const 1024)) {CHECK}
         (local.set $b (i32.load (i32.const 1028)))
         (local.set $n (i32.const 0x400000))
         (loop $next
           (i32.store (local.get $n) (i32.const 1))
           (local.set $n (i32.add (local.get $n) (i32.const 4096)))
           (br_if $next (i32.lt_u (local.get $n) (i32.const 0x7f0000))))
         (call $perf.attachment.detach (local.get $b))
         (call $ring.poll (i32.const 3000) (i32.const 1) (i32.const 1) (i64.const 0) (i32.const 1048576)
           (i32.const 1024)) {CHECK}
         (i32.store (i32.const 2996) (i32.load (i32.const 1028)))
         (local.set $a (i32.load (i32.const 1032)))
         (local.set $n (i32.load (i32.const 1036)))
         (if (i32.lt_u (local.get $n) (i32.const 1600)) (then (return (i32.const 90))))
         (local.set $b (i32.const 1))
         (loop $alias
           (i32.store (i32.add (i32.const 3000) (i32.mul (local.get $b) (i32.const 4))) (i32.load \
         (i32.const 3000)))
           (br_if $alias (i32.lt_u (local.tee $b (i32.add (local.get $b) (i32.const 1))) (i32.const 64))))"
    )
}

const NAMES: [(u32, &str); 2] = [(2048, "fault"), (2064, "events")];

/// Puts the records of the batch back.
const BACK: &str =
    "(call $ring.batch.put-back (i32.load (i32.const 2996)) (local.get $a) (local.get $n) (i32.const 1024))";

/// A batch takes each of its records back once, and none of another ring.
#[test]
fn root_records_come_back_once_and_to_their_own_ring() {
    let twice = format!("{} {BACK} {CHECK} {BACK} {CHECK} (i32.const 99)", records());
    let copied = format!(
        "{}
         (memory.copy (i32.add (local.get $a) (local.get $n)) (local.get $a) (local.get $n))
         (local.set $n (i32.mul (local.get $n) (i32.const 2))) {BACK} {CHECK} (i32.const 99)",
        records()
    );
    // The second ring of the list was not polled.
    let elsewhere =
        format!("{} (i32.store (local.get $a) (i32.const 1)) {BACK} {CHECK} (i32.const 99)", records());
    for (what, body) in [("twice", twice), ("copied", copied), ("elsewhere", elsewhere)] {
        let outcome = run_object(object(PRODUCER), &NAMES, &body, &[]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (INVALID, ""), "{what}: {outcome:#?}");
    }
    // What came back is given again, however often its ring is named, and may come back again.
    let again = format!(
        "{} {BACK} {CHECK}
         (call $ring.poll (i32.const 3000) (i32.const 64) (i32.const 1) (i64.const 0) (i32.const 1048576)
           (i32.const 1024)) {CHECK}
         (if (i32.ne (i32.load (i32.const 1036)) (local.get $n)) (then (return (i32.const 91))))
         (call $ring.batch.put-back (i32.load (i32.const 1028)) (i32.load (i32.const 1032))
           (i32.load (i32.const 1036)) (i32.const 1024)) {CHECK}
         (call $ring.batch.drop (i32.load (i32.const 2996)))
         (i32.const 99)",
        records()
    );
    let outcome = run_object(object(PRODUCER), &NAMES, &again, &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (99, ""), "{outcome:#?}");
}

/// A record of 8 bytes costs the host more than 8 bytes.
#[test]
fn root_records_that_come_back_are_of_the_hosts_bytes() {
    let back = format!(
        "{}
         (call $ring.batch.put-back (i32.load (i32.const 2996)) (local.get $a) (local.get $n) (i32.const 1024))
         (if (i32.load8_u (i32.const 1024)) (then
           (call $console.warn (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))
           (return (i32.load8_u (i32.const 1028)))))
         (i32.const 99)",
        records()
    );
    assert_eq!(run_object(object(PRODUCER), &NAMES, &back, &[]).code, 99);
    let outcome = run_object(object(PRODUCER), &NAMES, &back, &["--limit", "host_bytes=6000"]);
    assert_eq!(outcome.code, LIMIT, "{outcome:#?}");
    assert!(outcome.stderr.contains("the limit `host_bytes` of the plugin is 6000"), "{outcome:#?}");
    assert!(outcome.stderr.contains("--limit host_bytes=.. allows more"), "{outcome:#?}");
}

/// Opens the map at 2048 and creates this many cursors, each of which reads this many bytes and stays open.
/// Returns the kind of the first error, or 99 if there is none.
fn cursors(number: u32, bytes: u32) -> String {
    format!(
        "(call $maps.bpf-map.open (i32.const 2048) (i32.const 1) (i32.const 1024)) {CHECK}
         (local.set $a (i32.load (i32.const 1028)))
         (loop $next
           (global.set $heap (i32.const 65536))
           (call $maps.bpf-map.iterate (local.get $a) (i32.const 1) (i32.const 1024)) {CHECK}
           (call $maps.cursor.next (i32.load (i32.const 1028)) (i32.const {bytes}) (i32.const 1024)) {CHECK}
           (if (i32.ne (i32.load (i32.const 1032)) (i32.const {bytes})) (then (return (i32.const 90))))
           (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const \
         {number}))))
         (i32.const 99)"
    )
}

/// Otherwise each cursor would keep all 64 MiB of the map.
#[test]
fn root_cursors_read_what_is_asked_for() {
    let large = || elf::with_map(MapDef { ty: ARRAY, entries: 64, value_words: 1 << 18, ..MapDef::SMALL });
    let outcome = run_object(large(), &[(2048, "m")], &cursors(30, (1 << 20) + 4), &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (99, ""), "{outcome:#?}");
    let most = outcome.most_memory_kib.expect("it was measured");
    assert!(most < 300 << 10, "the host took {most} KiB");
    // The host does not read a value that is too large to copy.
    let limit = ["--limit", "host_bytes=1000000"];
    let outcome = run_object(large(), &[(2048, "m")], &cursors(1, (1 << 20) + 4), &limit);
    assert_eq!(outcome.code, LIMIT, "{outcome:#?}");
    let lookup = format!(
        "(call $maps.bpf-map.open (i32.const 2048) (i32.const 1) (i32.const 1024)) {CHECK}
         (call $maps.bpf-map.lookup (i32.load (i32.const 1028)) (i32.const 2048) (i32.const 4) (i32.const \
         1024)) {CHECK}
         (i32.const 99)"
    );
    let outcome = run_object(large(), &[(2048, "m\0\0\0")], &lookup, &limit);
    assert_eq!(outcome.code, LIMIT, "{outcome:#?}");
}

/// Small entries that are read ahead are kept, and count.
#[test]
fn root_memory_of_cursors_counts_as_host_bytes() {
    let small = || elf::with_map(MapDef { ty: ARRAY, entries: 100_000, value_words: 1, ..MapDef::SMALL });
    let outcome = run_object(small(), &[(2048, "m")], &cursors(100, 8), &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (99, ""), "{outcome:#?}");
    let outcome = run_object(small(), &[(2048, "m")], &cursors(100, 8), &["--limit", "host_bytes=1000000"]);
    assert_eq!(outcome.code, LIMIT, "{outcome:#?}");
}

/// Returns an object with 256 MiB of variables, in a file of some KiB.
fn large() -> Vec<u8> {
    let variables: String = (0..16).map(|at| format!("var huge{at} : u8[16777216]\n")).collect();
    let used: String = (0..16).map(|at| format!("    huge{at}[5] = 1\n")).collect();
    object(&format!(
        "{variables}
@perf_event
fn tick(ctx: *bpf_perf_event_data) -> i32 {{
{used}    return 0
}}

fn main() -> i32 {{
    var program = load(tick)
    return 0
}}
"
    ))
}

/// Writes some bytes of a variable, loads the object, reads, and returns the number of bytes read.
#[test]
fn root_large_variables_are_not_copied() {
    let run = |read: &str, limit: &str| {
        let body = format!(
            "(call $globals.variable.open (i32.const 2048) (i32.const 5) (i32.const 1024)) {CHECK}
             (local.set $a (i32.load (i32.const 1028)))
             (call $globals.variable.write (local.get $a) (i32.const 16000000) (i32.const 2048) (i32.const 4)
               (i32.const 1024)) {CHECK}
             (call $bpf.program.load (i32.const 2064) (i32.const 4) (i32.const 1024)) {CHECK}
             {read}
             (i32.const 99)"
        );
        let outcome = run_object(large(), &[(2048, "huge3"), (2064, "tick")], &body, &["--limit", limit]);
        let most = outcome.most_memory_kib.expect("it was measured");
        // The maps' own pages are mapped.
        assert!(most < (256 + 128) << 10, "the host took {most} KiB");
        outcome
    };
    let outcome = run("", "host_bytes=1000000");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (99, ""), "{outcome:#?}");
    // A read after the load returns the bytes written before it.
    let read = "(global.set $heap (i32.const 0x400000))
        (memory.grow (i32.const 200)) drop
        (call $globals.variable.read (local.get $a) (i32.const 1024))
        (if (i32.ne (i32.load (i32.const 1028)) (i32.const 16777216)) (then (return (i32.const 90))))
        (if (i32.ne (i32.load (i32.add (i32.load (i32.const 1024)) (i32.const 16000000))) (i32.load \
                (i32.const 2048)))
          (then (return (i32.const 91))))";
    let outcome = run(read, "host_bytes=20000000");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (99, ""), "{outcome:#?}");
    ended(&run(read, "host_bytes=10000000"), &["the limit `host_bytes` of the plugin is 10000000"]);
}

/// A handle keeps its texts; replacing a text releases the memory of the previous one.
#[test]
fn texts_of_handles_are_of_the_hosts_bytes() {
    let options = |handles: u32, texts: u32| {
        function(&format!(
            "(loop $next
               (local.set $a (call $perf.options.new))
               (local.set $b (i32.const 0))
               (loop $again
                 (call $perf.options.observe-process (local.get $a) (i32.const 4096) (i32.const 4096))
                 (call $perf.options.observe-cgroup (local.get $a) (i32.const 4096) (i32.const 4096))
                 (br_if $again (i32.lt_u (local.tee $b (i32.add (local.get $b) (i32.const 1))) (i32.const \
             {texts}))))
               (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const \
             {handles}))))
             (i32.const 99)"
        ))
    };
    let limit = ["--limit", "host_bytes=100000"];
    assert_eq!(run_with(&options(5, 1000), &limit).code, 99);
    ended(&run_with(&options(20, 1), &limit), &["the limit `host_bytes` of the plugin is 100000"]);
}

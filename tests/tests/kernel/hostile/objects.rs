//! BPF objects that are too large, misnamed, or act at run time against their policy class. These tests need
//! root.

use ks_tests::guest::{core_module, data};
use ks_tests::{Folder, Outcome, allowed, command, component, finish, wait_until_gone};
use ks_wit::section::{Arch, BpfRecord};

use super::{contained, function};

use ks_tests::plugins::elf::{self, MapDef};

/// Numbers of `enum bpf_map_type`.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const DEVMAP: u32 = 14;

/// Returns a guest with the object; its memory holds this name at 2048.
fn plugin(object: Vec<u8>, name: &str, run: &str) -> Vec<u8> {
    plugin_of("hostile", object, name, run)
}

/// Returns a guest like [`plugin`]; the kernel's names of the object's maps begin with `record`.
fn plugin_of(record: &str, object: Vec<u8>, name: &str, run: &str) -> Vec<u8> {
    let record = BpfRecord { name: record.into(), arch: Arch::Any, elf: object };
    let body = format!("{}{}", data(2048, name.as_bytes()), function(run));
    component("hostile", &core_module(64, &body), &[record]).expect("it fits the world")
}

fn run(object: Vec<u8>, name: &str, run: &str, options: &[&str]) -> Outcome {
    run_plugin(plugin(object, name, run), options)
}

fn run_plugin(plugin: Vec<u8>, options: &[&str]) -> Outcome {
    let folder = Folder::new();
    let path = folder.write("hostile.wasm", plugin);
    let outcome = finish(allowed().arg("--no-cache").args(options).arg(path));
    contained(&outcome);
    outcome
}

/// Opens the map at 2048, iterates over it with values, and returns the kind of the first error, 99 if there
/// is none.
fn iterate_map(len: usize) -> String {
    format!(
        "(call $maps.bpf-map.open (i32.const 2048) (i32.const {len}) (i32.const 1024))
         (if (i32.load8_u (i32.const 1024)) (then (return (i32.load8_u (i32.const 1028)))))
         (local.set $a (i32.load (i32.const 1028)))
         (call $maps.bpf-map.iterate (local.get $a) (i32.const 1) (i32.const 1024))
         (if (i32.load8_u (i32.const 1024)) (then (return (i32.load8_u (i32.const 1028)))))
         (call $maps.cursor.next (i32.load (i32.const 1028)) (i32.const 1000000) (i32.const 1024))
         (if (i32.load8_u (i32.const 1024)) (then (return (i32.load8_u (i32.const 1028)))))
         (i32.const 99)"
    )
}

/// A batch of 256 such values would be 128 GB.
#[test]
fn root_values_of_half_a_gigabyte_are_not_asked_for_by_the_hundred() {
    let large = MapDef { ty: ARRAY, entries: 1, value_words: 125_000_000, ..MapDef::SMALL };
    let outcome = run(elf::with_map(large), "m", &iterate_map(1), &[]);
    // `invalid`: the value does not fit the guest's buffer.
    assert_eq!((outcome.code, outcome.stderr.as_str()), (2, ""), "{outcome:#?}");
}

/// A map kind without batch lookups, whose keys are all numbers below its size: a list of them would be a
/// gigabyte.
#[test]
fn root_ten_million_keys_are_not_listed_at_once() {
    let large = MapDef { ty: DEVMAP, entries: 10_000_000, value_words: 1, ..MapDef::SMALL };
    let outcome = run(elf::with_map(large), "m", &iterate_map(1), &[]);
    // `limit`; or `not-permitted` where the host has dropped CAP_NET_ADMIN, which creating this map needs.
    assert!(matches!((outcome.code, outcome.stderr.as_str()), (4 | 0, "")), "{outcome:#?}");
}

/// Handles store names: sixty thousand names of a megabyte would be 60 GB.
#[test]
fn names_of_a_megabyte_are_refused() {
    let name = "n".repeat(1 << 20);
    let object = elf::with_map(MapDef { name: &name, ty: HASH, ..MapDef::SMALL });
    // The kind of the error `invalid` is 2.
    let body = "(call $maps.bpf-map.open (i32.const 2048) (i32.const 1048576) (i32.const 1024))
        (if (i32.load8_u (i32.const 1024)) (then
          (call $console.warn (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))
          (return (i32.load8_u (i32.const 1032)))))
        (i32.const 99)";
    let outcome = run(object, &name, body, &[]);
    assert!(
        outcome.code != 99 && outcome.stderr.contains("name"),
        "{} {:.300}",
        outcome.code,
        outcome.stderr
    );
}

/// libbpf's messages contain the names of an object, and the host prints these messages: bytes that are
/// not UTF-8 do no harm.
#[test]
fn names_that_are_not_utf_8_are_contained() {
    let mut object = elf::with_map(MapDef { name: "mapname", ..MapDef::SMALL });
    let offsets: Vec<usize> = (0..object.len()).filter(|at| object[*at..].starts_with(b"mapname")).collect();
    assert!(offsets.len() >= 2, "its symbol and its type");
    offsets.into_iter().for_each(|at| object[at + 3] = 0xff);
    for options in [&[][..], &["-vv"]] {
        let outcome = run(object.clone(), "mapname", &iterate_map(7), options);
        assert!(matches!(outcome.code, 0..=99 | 125..=127), "{outcome:#?}");
    }
}

/// A probe of a kernel function's return is written `kretprobe`. With a file as its target it must not become
/// a probe in other users' programs.
#[test]
fn root_a_probe_of_the_kernel_is_none_of_a_file() {
    for section in ["kretprobe//bin/sh:4096", "kprobe//bin/sh:4096"] {
        let body = "(call $bpf.program.load (i32.const 2048) (i32.const 5) (i32.const 1024))
            (if (i32.load8_u (i32.const 1024)) (then (return (i32.const 50))))
            (call $bpf.program.attach (i32.load (i32.const 1028)) (i64.const 0) (i32.const 1024))
            (if (i32.load8_u (i32.const 1024)) (then (return (i32.const 51))))
            (i32.const 99)";
        let folder = Folder::new();
        let path = folder.write("hostile.wasm", plugin(elf::counting(section), "count", body));
        let policy = folder.write("policy.toml", "[allow]\nimport = [\"*\"]\nkprobe = [\"*\"]\n");
        let outcome = finish(command("ks-host").arg("--no-cache").arg("--policy").arg(policy).arg(path));
        contained(&outcome);
        assert!(matches!(outcome.code, 50 | 51 | 126 | 127), "{section}: {outcome:#?}");
    }
}

/// Any corruption of an object is accepted or reported, and leaves nothing in the kernel.
#[test]
fn root_objects_with_changed_bytes_are_contained() {
    // A unique name, because concurrent tests have objects too.
    let record = "spoilt";
    let load = "(call $bpf.program.load (i32.const 2048) (i32.const 5) (i32.const 1024)) (i32.const 0)";
    let whole = elf::counting("perf_event");
    let step = whole.len() / 40 + 1;
    for at in (0..whole.len()).step_by(step) {
        let mut object = whole.clone();
        object[at] ^= 0xff;
        let outcome = run_plugin(plugin_of(record, object, "count", load), &[]);
        assert!(matches!(outcome.code, 0 | 125 | 126 | 127), "byte {at}: {outcome:#?}");
        let object = whole[..at].to_vec();
        let outcome = run_plugin(plugin_of(record, object, "count", load), &[]);
        assert!(matches!(outcome.code, 0 | 125 | 126 | 127), "{at} bytes: {outcome:#?}");
    }
    wait_until_gone(record);
}

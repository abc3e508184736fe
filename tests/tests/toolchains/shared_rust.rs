//! Variables and arrays of the kernel half in the memory of a plugin in Rust: the results equal those of host
//! calls. These tests need root.

use std::fs;
use std::sync::LazyLock;

use ks_host::plugin::Plugin;
use ks_tests::{Folder, Outcome, allowed, command, finish, guests, repository};

/// The plugin as cargo builds it, and the plugin with a shared memory.
struct Built {
    folder: Folder,
}

/// Returns the plugins, which are built once for all tests.
fn built() -> &'static Built {
    static BUILT: LazyLock<Built> = LazyLock::new(|| {
        let folder = Folder::new();
        let plugin = guests::rust(&repository().join("tests/guests/shared"), "guest_shared.wasm", None);
        let file = folder.write("plain.wasm", plugin);
        let shared = share(&["-o"], &[&folder.path("shared.wasm"), &file]);
        assert_eq!((shared.code, shared.stderr.as_str()), (0, ""), "{shared:#?}");
        Built { folder }
    });
    &BUILT
}

fn share(arguments: &[&str], files: &[&std::path::Path]) -> Outcome {
    finish(command("ks").arg("share").args(arguments).args(files))
}

fn run(file: &str, arguments: &[&str], mode: &str) -> Outcome {
    finish(allowed().args(arguments).arg(built().folder.path(file)).args(["--", mode]))
}

/// Runs with a shared memory, with one that the host does not use, and without one. All print the same.
fn run_each_variant(mode: &str) -> Outcome {
    let says = |outcome: &Outcome| (outcome.code, outcome.stdout.clone(), outcome.stderr.clone());
    let shared = run("shared.wasm", &[], mode);
    let called = run("shared.wasm", &["--no-shared-memory"], mode);
    let plain = run("plain.wasm", &[], mode);
    assert_eq!(says(&shared), says(&called), "{mode}");
    // The file's name precedes the error.
    assert_eq!((shared.code, &shared.stdout), (plain.code, &plain.stdout), "{mode}");
    assert_eq!((shared.code, shared.stderr.as_str()), (0, ""), "{shared:#?}");
    shared
}

#[test]
fn root_shared_memory_behaves_like_host_calls() {
    let outcome = run_each_variant("everything");
    for line in [
        "early 15000000000000000005",
        "early 15000000000000000006",
        "pace { step: 3, marks: [1, 2, 3], low: -4 }",
        "pace { step: 1099511627776, marks: [9, 9, 9], low: -100 }",
        "paced 1009",
        "loaded 250 -100 65000 -30000",
        "changed 251 -99 65001 -29999",
        "4000000001 -1999999999 15000000000000000006 -1999999999",
        "Some(0) Some(0) None",
        "Some(-2) Some(0) None",
        "Some(Limits { small: 200, wide: -5 })",
        "written 3 -128 65535 -1",
        "77 -77 7 -9223372036854775808",
        "Some(-2) Some(-300) None",
        "[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 19]",
        "Some(Limits { small: 1, wide: -2 })",
    ] {
        let found = outcome
            .stdout
            .lines()
            .any(|other| other.trim_start_matches("Some(").contains(line.trim_start_matches("Some(")));
        assert!(found, "{line}: {outcome:#?}");
    }
    let tail = "Err(Limit)\nErr(Busy)\nErr(Limit)\nErr(Invalid)\nSome(1)\n5\n";
    assert!(outcome.stdout.ends_with(tail), "{outcome:#?}");
}

#[test]
fn root_a_loop_sees_what_the_kernel_half_writes() {
    assert_eq!(run_each_variant("wait").stdout, "true\n");
}

#[test]
fn root_reopened_objects_keep_their_contents() {
    assert_eq!(run_each_variant("dropped").stdout, "done\n");
}

/// Each host call restarts the compute time limit. A plugin with shared memory makes no calls, so the limit
/// ends it.
#[test]
fn root_shared_objects_need_no_host_calls() {
    let limited = ["--limit", "compute_ms=300", "--timeout", "3"];
    let shared = run("shared.wasm", &limited, "spin");
    assert!(shared.code == 125 && shared.stderr.contains("compute_ms"), "{shared:#?}");
    let called = run("shared.wasm", &[&limited[..], &["--no-shared-memory"]].concat(), "spin");
    assert_eq!(called.code, 124, "{called:#?}");
}

/// A record contains every value that a plugin read.
#[test]
fn root_a_record_of_a_run_has_what_was_read() {
    let record = built().folder.path("record");
    let recorded = finish(
        allowed()
            .arg("--record")
            .arg(&record)
            .arg(built().folder.path("shared.wasm"))
            .args(["--", "everything"]),
    );
    assert_eq!(recorded.code, 0, "{recorded:#?}");
    let replayed =
        finish(command("ks-host").arg("replay").arg(built().folder.path("shared.wasm")).arg(&record));
    assert_eq!((replayed.code, &replayed.stdout), (0, &recorded.stdout), "{replayed:#?}");
    assert!(fs::read_to_string(&record).expect("a record").contains("[method]variable.get"));
}

/// The host accepts the output, sharing twice changes nothing, and a plugin that cannot be shared is
/// reported.
#[test]
fn ks_share_makes_a_plugin_that_the_host_checks() {
    let read = |name: &str| fs::read(built().folder.path(name)).expect("it was written");
    let bytes = |name: &str| Plugin::from_bytes(read(name)).expect("a plugin").shared_bytes();
    assert_eq!((bytes("plain.wasm"), bytes("shared.wasm")), (None, Some((16 << 20) + 65536)));
    let folder = Folder::new();
    let file = folder.write("small.wasm", read("plain.wasm"));
    let twice = [share(&["--mib", "1"], &[&file]), share(&[], &[&file])];
    assert!(twice.iter().all(|outcome| outcome.code == 0), "{twice:#?}");
    let small = Plugin::from_bytes(fs::read(&file).expect("it is there")).expect("a plugin");
    assert_eq!(small.shared_bytes(), Some((1 << 20) + 65536));
    let empty = folder.write("empty.wasm", b"\0asm\x0d\0\x01\0");
    let refused = share(&[], &[&empty]);
    assert!(refused.code == 1 && refused.stderr.contains("no core module of it exports"), "{refused:#?}");
}

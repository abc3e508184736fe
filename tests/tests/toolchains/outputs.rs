//! Records that programs write into an array of perf events (`bpf_perf_event_output`): opensnoop of Debian's
//! `libbpf-tools`, on a process whose calls are counted here. These tests need root.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use ks_tests::plugins::with_object;
use ks_tests::tools::{embedded, programs};
use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, allowed, guests, repository};

/// Number of files that the observed process opens.
const OPENED: i64 = 400;

/// A process that waits for a line and then opens a file many times.
fn opener(folder: &Folder) -> Child {
    let file = folder.write("marker", Vec::new());
    let script =
        format!("read line; i=0; while [ $i -lt {OPENED} ]; do : < {}; i=$((i+1)); done", file.display());
    Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().expect("there is a shell")
}

/// Runs the plugin on a process that opens files, with rings of so many bytes that are read after so many
/// milliseconds.
fn count(bytes: u32, wait: u32) -> Outcome {
    let folder = Folder::new();
    let guest = guests::rust(&repository().join("tests/guests/output"), "guest_output.wasm", None);
    let tool = programs().into_iter().find(|path| path.ends_with("opensnoop")).expect("it is a tool");
    let elf = embedded(&fs::read(tool).expect("readable")).expect("it has an object").to_vec();
    let plugin = folder.write("opened.wasm", with_object(guest, elf));
    let mut opener = opener(&folder);
    let arguments = [opener.id(), bytes, wait].map(|number| number.to_string());
    let mut host = allowed();
    let host = host.args(["--no-cache", "--timeout", "60"]).arg(plugin).arg("--").args(arguments);
    let running = Running::of(host, "ready");
    let mut start = opener.stdin.take().expect("piped");
    start.write_all(b"\n").expect("it waits");
    opener.wait().expect("it is ours");
    // The host waits 100 ms at a time: what was opened is taken before the end.
    std::thread::sleep(std::time::Duration::from_millis(u64::from(wait) + 500));
    running.stop()
}

#[test]
fn root_every_record_is_taken_if_the_rings_have_room() {
    let outcome = count(1 << 20, 0);
    assert_eq!((outcome.code, outcome.stderr.contains("lost")), (0, false), "{outcome:#?}");
    let cpus = std::thread::available_parallelism().expect("known").get() as i64;
    assert_eq!(outcome.numbers("ready"), [cpus << 20, 0], "{outcome:#?}");
    assert_eq!(outcome.numbers("taken"), [OPENED, OPENED], "{outcome:#?}");
    assert_eq!(outcome.numbers("lost"), [0], "{outcome:#?}");
    assert!(outcome.stdout.contains("loss RingFull 0\n"), "{outcome:#?}");
}

#[test]
fn root_records_without_room_are_counted_and_reported() {
    let outcome = count(4096, 1500);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let ([taken, marked], [lost]) = (&outcome.numbers("taken")[..], &outcome.numbers("lost")[..]) else {
        panic!("three numbers: {outcome:#?}")
    };
    assert!(taken == marked && *lost > 0, "{outcome:#?}");
    assert_eq!(taken + lost, OPENED, "{outcome:#?}");
    assert!(outcome.numbers("waiting")[0] > 0, "{outcome:#?}");
    assert!(outcome.stdout.contains(&format!("loss RingFull {lost}\n")), "{outcome:#?}");
    let said = format!("array of events `events`: {lost} records were lost");
    assert!(outcome.stderr.contains(&said), "{outcome:#?}");
}

#[test]
fn root_rings_of_impossible_sizes_are_refused() {
    for bytes in [0, 4095, 3 * 4096] {
        let outcome = refused(bytes);
        assert_eq!(outcome.code, 1, "{outcome:#?}");
        assert!(outcome.stderr.contains(&format!("a ring of {bytes} bytes is impossible")), "{outcome:#?}");
    }
    let outcome = refused(1 << 30);
    assert!(outcome.code == 1 && outcome.stderr.contains("host_bytes"), "{outcome:#?}");
}

fn refused(bytes: u32) -> Outcome {
    let folder = Folder::new();
    let guest = guests::rust(&repository().join("tests/guests/output"), "guest_output.wasm", None);
    let tool = programs().into_iter().find(|path| path.ends_with("opensnoop")).expect("it is a tool");
    let elf = embedded(&fs::read(tool).expect("readable")).expect("it has an object").to_vec();
    let plugin = folder.write("opened.wasm", with_object(guest, elf));
    let bytes = bytes.to_string();
    ks_tests::finish(allowed().arg("--no-cache").arg(plugin).args(["--", "1", &bytes, "0"]))
}

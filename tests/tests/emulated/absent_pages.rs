//! Text in pages of a program that are not in memory: a probe that may sleep brings them in. The tests run on the running
//! kernel and on the emulated ones. They need root.
#![cfg(target_arch = "x86_64")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, Outcome, allowed, finish, repository};

/// Where the program is in a machine.
const INSIDE: &str = "/tmp/absent_pages";

fn inside(kernel: Kernel) {
    let folder = Folder::new();
    let machine = Machine::new(kernel).file_as(build(&folder), INSIDE);
    machine.seconds(400).run_tests(module_path!(), &["probes_"]);
}

#[test]
fn kernel_6_1() {
    inside(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    inside(Kernel::V6_12);
}

fn build(folder: &Folder) -> PathBuf {
    let built = folder.path("absent_pages");
    let source = repository().join("tests/tests/emulated/absent_pages.c");
    let flags = ["-O1", "-nostdlib", "-static", "-fcf-protection=none", "-o"];
    let outcome = finish(Command::new("cc").args(flags).arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    built
}

fn shown(program: &Path, also: &str) -> Outcome {
    let probe = format!("@uprobe(\"{}:take\") fn takes(text: *u8) -> i32", program.display());
    let body =
        r#"var bytes: u8[3] = buf(text, 3) print("[%s] [%s] %c", str(text), str(text, 4), bytes[2] as char)"#;
    finish(allowed().args(["-e", &format!("{probe} {{ {also} {body} return 0 }}"), "--exec"]).arg(program))
}

#[test]
fn probes_bring_the_pages_of_their_texts_in() {
    let folder = Folder::new();
    let is_inside = ks_tests::emulated::inside().is_some();
    let program = if is_inside { PathBuf::from(INSIDE) } else { build(&folder) };
    let ran = shown(&program, "seen[comm()] += 1");
    assert!(ran.stdout.starts_with("[hello] [hel] l\n[abcdef] [abc] c\n[] [] \\u{0}\n"), "{ran:#?}");
    assert_eq!(ran.number_before(" texts could not be read"), 3, "the texts at 8: {ran:#?}");
    // The kernel lets no program sleep that uses such a map.
    let ran = shown(&program, "stacks[ustack()] += 1");
    assert!(ran.stdout.starts_with("[] [] \\u{0}\n"), "{ran:#?}");
    assert_eq!(ran.number_before(" texts could not be read"), 9, "{ran:#?}");
}

//! Arguments of functions in Go, which are in other registers than those of C.

use std::path::Path;
use std::process::Command;

use ks_tests::Folder;
use ks_tests::watched::Running;

use super::{build, program, run, run_script};

const FLAGS: &[&str] = &["-nostdlib", "-static", "-no-pie"];

#[test]
fn root_arguments_of_go_are_read_from_its_registers() {
    const SCRIPT: &str = include_str!("scripts/go_arguments.ks");
    let folder = Folder::new();
    let plain = build(&folder, "plain", FLAGS, &["go_arguments.s"]);
    // Go's linker compresses its debug information.
    let packed = folder.path("packed");
    run(Command::new("objcopy").arg("--compress-debug-sections=zlib").args([&plain, &packed]));
    for program in [&plain, &packed] {
        let script = SCRIPT.replace("PROGRAM", &program.display().to_string());
        let running = Running::start("go", &script, &[] as &[&str]);
        run(&mut Command::new(program));
        let outcome = running.stop();
        assert_eq!(outcome.stdout, "ready\ngo 1 2 3 4 5 6 7 8 -9, 2\nc 11 12\nold\n", "{outcome:#?}");
    }
}

/// Returns the error of an attach, empty if there is none.
fn refusal(program: &Path, function_and_abi: &str, params: &str) -> String {
    let (function, abi) = function_and_abi.split_once(' ').unwrap_or((function_and_abi, ""));
    let script = format!(
        "@uprobe(\"{}:{function}\"{abi})\nfn hit({params}) -> i32 {{ return 0 }}\n\
         fn main() -> i32 {{ if (attach(load(hit), \"\", 0) != 0) {{ return 1 }}\n return 0 }}",
        program.display()
    );
    let outcome = run_script("refusal", &script, &[]);
    assert_eq!(outcome.code == 0, outcome.stderr.is_empty(), "{outcome:#?}");
    outcome.stderr
}

#[test]
fn root_arguments_of_another_convention_are_refused() {
    let folder = Folder::new();
    let known = build(&folder, "known", FLAGS, &["go_arguments.s"]);
    let stripped = folder.path("stripped");
    run(Command::new("strip").args(["--strip-debug", "-o"]).args([&stripped, &known]));
    let plain = program(&folder, "program", &[]);
    const GO: &str = ", abi: \"go\"";
    for (program, function, abi, reason) in [
        (&known, "go_add", "", "the function is in Go"),
        (&known, "c_add", GO, "the function is not in Go"),
        (&known, "go_old", "", "older than 1.17"),
        (&known, "go_old", GO, "older than 1.17"),
        (&stripped, "go_add", "", "no debug information"),
        (&stripped, "c_add", "", "no debug information"),
        (&stripped, "go_add", GO, "no debug information"),
        (&plain, "limit", GO, "has no code in Go"),
    ] {
        let function_and_abi = format!("{function} {abi}");
        let said = refusal(program, &function_and_abi, "first: u64");
        assert!(said.contains(reason), "{function_and_abi}: {said}");
        // Nothing is read by a convention.
        assert_eq!(refusal(program, function, ""), "", "{function_and_abi}");
        assert_eq!(refusal(program, function, "regs: *pt_regs"), "", "{function_and_abi}");
    }
}

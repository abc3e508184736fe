//! Compiling a plugin, and inspecting one, happens in a process without rights and with resource limits.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use ks_tests::plugins::with_section;
use ks_tests::{Folder, command, finish, is_within, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Returns a component with this many functions, which is not a plugin; it occupies the compiler for a
/// second.
pub fn large(functions: usize) -> Vec<u8> {
    let function = |number| {
        format!(
            "(func (param i32) (result i32) local.get 0 i32.const {number} i32.add local.get 0 i32.mul \
             local.get 0 i32.div_u)"
        )
    };
    let functions: String = (0..functions).map(function).collect();
    wat::parse_str(format!("(component (core module {functions}))")).expect("a component")
}

#[test]
fn memory_that_it_takes_has_an_end() {
    let folder = Folder::new();
    let file = folder.write("large.wasm", large(30_000));
    let ran =
        finish(command("ks-host").args(["--no-cache", "--limit", "compile_bytes=150000000"]).arg(&file));
    assert_eq!(ran.code, 127, "{ran:#?}");
    assert!(ran.stderr.contains("the limit `compile_bytes` of the plugin is 150000000"), "{ran:#?}");
    assert!(ran.stderr.contains("do: --limit compile_bytes=.. allows more"), "{ran:#?}");
}

/// Returns a line of a process's status in /proc, or none if the process is gone.
fn status(pid: u32, line: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|found| found.strip_prefix(line)).map(|rest| rest.trim().to_owned())
}

/// Asserts that a process can do nothing but compute.
fn assert_no_rights(pid: u32) {
    for (line, expected) in [
        ("CapEff:", "0000000000000000"),
        ("CapPrm:", "0000000000000000"),
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
        ("Uid:", "65534\t65534\t65534\t65534"),
    ] {
        assert_eq!(status(pid, line).as_deref(), Some(expected), "{line}");
    }
}

/// Returns the child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    listed
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn root_the_process_has_no_rights_and_ends_with_the_host() {
    let folder = Folder::new();
    let file = folder.write("large.wasm", large(60_000));
    let mut host = command("ks-host")
        .args(["--no-cache", "--limit", "compile_ms=60000"])
        .arg(&file)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("ks-host starts");
    let mut compiler = None;
    // The process installs its system call filter last. Another one may wait to run the plugin, without a filter.
    let confined = || {
        let is_confined = |pid: &u32| status(*pid, "Seccomp:").is_some_and(|mode| mode == "2");
        compiler = children(host.id()).into_iter().find(is_confined);
        compiler.is_some()
    };
    wait_until(Duration::from_secs(20), "a confined process compiles", confined);
    let compiler = compiler.expect("it was found");
    assert_no_rights(compiler);
    kill(Pid::from_raw(host.id() as i32), Signal::SIGKILL).expect("it is ours");
    host.wait().expect("it is ours");
    let gone = || status(compiler, "State:").is_none_or(|state| state.starts_with('Z'));
    assert!(is_within(Duration::from_secs(5), gone), "it outlives the host");
}

#[test]
fn root_inspect_has_no_rights_when_it_reads() {
    // Larger than a pipe's buffer, and not cut in JSON: the process waits for a reader.
    let text = "m".repeat(1 << 20);
    let manifest =
        format!(r#"{{"format":1,"compiler":"x","project":"{text}","source":{{"file":"x","sha256":""}}}}"#);
    let mut record = (manifest.len() as u32).to_le_bytes().to_vec();
    record.extend_from_slice(manifest.as_bytes());
    let empty = wat::parse_str("(component)").expect("a component");
    let folder = Folder::new();
    let file = folder.write("told.wasm", with_section(empty, ks_wit::section::MANIFEST, &record));
    let shown = finish(command("ks-host").args(["inspect", "--json"]).arg(&file));
    assert!(shown.code == 0 && shown.stdout.contains(&text[..1000]), "{:.300}", shown.stdout);
    // The process that reads, as `inspect` starts it; here nobody reads its answer until it was looked at.
    let mut reader = command("ks-host")
        .args(["show-for-host", "4294967296", "60"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ks-host starts");
    let mut input = reader.stdin.take().expect("piped");
    input.write_all(&fs::read(&file).expect("it was just written")).expect("it reads");
    // The form of JSON.
    input.write_all(&[1]).expect("it reads");
    drop(input);
    let writes = || {
        status(reader.id(), "State:").is_some_and(|state| state.starts_with('S'))
            && status(reader.id(), "Seccomp:").is_some_and(|mode| mode == "2")
    };
    wait_until(Duration::from_secs(20), "it has read and writes", writes);
    assert_no_rights(reader.id());
    let limits = fs::read_to_string(format!("/proc/{}/limits", reader.id())).expect("it lives");
    let files = limits.lines().find(|line| line.starts_with("Max file size")).expect("a limit");
    assert_eq!(files.split_whitespace().nth(3), Some("0"), "{files}");
    let mut answer = Vec::new();
    reader.stdout.take().expect("piped").read_to_end(&mut answer).expect("bytes");
    assert!(reader.wait().expect("it is ours").success());
    assert_eq!(answer.get(2..), Some(shown.stdout.as_bytes()), "the same, after two bytes of how it went");
}

/// Runs `ks-host` with a script in both forms: compiled here, and in a process without rights. Returns what both say.
fn run_script_isolated(folder: &Folder, name: &str) -> ks_tests::Outcome {
    let [here, apart] = ["thread", "process"].map(|isolation| {
        finish(command("ks-host").current_dir(folder.path("")).args(["--isolation", isolation, name]))
    });
    assert_eq!((here.code, &here.stdout, &here.stderr), (apart.code, &apart.stdout, &apart.stderr), "{name}");
    apart
}

#[test]
fn a_script_is_compiled_apart_as_it_is_here() {
    let folder = Folder::new();
    folder.write("inner.ks", "fn seven() -> u64 {\n    return 7\n}\n");
    folder.write(
        "outer.ks",
        "import inner from \"inner.ks\"\nfn eight() -> u64 {\n    return inner.seven() + 1\n}\n",
    );
    folder.write(
        "sums.ks",
        "import outer from \"outer.ks\"\nimport inner from \"inner.ks\"\n\
         fn main() -> i32 {\n    print(\"{} {}\", outer.eight(), inner.seven())\n    return 3\n}\n",
    );
    let sums = run_script_isolated(&folder, "sums.ks");
    assert_eq!((sums.code, sums.stdout.as_str(), sums.stderr.as_str()), (3, "8 7\n", ""));
    folder.write("wrong.ks", "fn main() -> i32 {\n    var x: u32 = \"a\"\n    return y\n}\n");
    let wrong = run_script_isolated(&folder, "wrong.ks");
    assert!(
        wrong.code == 127 && wrong.stderr.contains("KS0401") && wrong.stderr.contains("KS0301"),
        "{wrong:#?}"
    );
    assert!(wrong.stderr.ends_with("ks-host: wrong.ks has errors\n"), "{wrong:#?}");
    folder.write("absent.ks", "import gone from \"gone.ks\"\nfn main() -> i32 {\n    return 0\n}\n");
    let absent = run_script_isolated(&folder, "absent.ks");
    assert!(absent.code == 127 && absent.stderr.contains("gone.ks"), "{absent:#?}");
    folder.write("text.ks", [0xff, 0xfe, 0, 1]);
    assert_eq!(run_script_isolated(&folder, "text.ks").code, 127);
    // Types of the kernel, which the process has opened before.
    folder.write(
        "kernel.ks",
        "@tracepoint(\"sched/sched_switch\")\nfn switched(ctx: *trace_event_raw_sched_switch) -> i32 {\n    \
         return ctx->prev_pid\n}\nfn main() -> i32 {\n    return 0\n}\n",
    );
    assert_eq!(run_script_isolated(&folder, "kernel.ks").code, 0);
}

#[test]
fn root_a_process_that_compiles_a_script_has_no_rights() {
    // Its answer, the plugin, is larger than a pipe's buffer: the process waits for a reader.
    let prints: String = (0..3000).map(|number| format!("    print(\"line {number} of many\")\n")).collect();
    let text = format!("fn main() -> i32 {{\n{prints}    return 0\n}}\n");
    let header = format!(
        r#"{{"request":{{"name":"x.ks","project":"x","tests":false,"coloured":false}},"text":{},"files":{{}}}}"#,
        text.len()
    );
    let mut compiler = command("ks-host")
        .args(["compile-script-for-host", "4294967296", "60"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ks-host starts");
    let mut input = compiler.stdin.take().expect("piped");
    let len = u32::try_from(header.len()).expect("short").to_le_bytes();
    input.write_all(&[&len[..], header.as_bytes(), text.as_bytes()].concat()).expect("it reads");
    drop(input);
    let writes = || {
        status(compiler.id(), "State:").is_some_and(|state| state.starts_with('S'))
            && status(compiler.id(), "Seccomp:").is_some_and(|mode| mode == "2")
    };
    wait_until(Duration::from_secs(20), "it has compiled and writes", writes);
    assert_no_rights(compiler.id());
    let mut answer = Vec::new();
    compiler.stdout.take().expect("piped").read_to_end(&mut answer).expect("bytes");
    assert!(compiler.wait().expect("it is ours").success());
    assert!(answer.windows(8).any(|bytes| bytes == b"\0asm\x0d\0\x01\0"), "it has made a component");
}

/// A parent that ignores SIGCHLD passes that on.
#[test]
fn children_are_waited_for_whatever_the_parent_ignores() {
    let folder = Folder::new();
    folder.write("one.ks", "fn main() -> i32 {\n    return 3\n}\n");
    for isolation in ["thread", "process"] {
        let line = format!(
            "trap '' CHLD; exec {} --no-cache --isolation {isolation} one.ks",
            ks_tests::binary("ks-host").display()
        );
        let outcome =
            finish(std::process::Command::new("sh").current_dir(folder.path("")).args(["-c", &line]));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (3, ""), "{isolation}");
    }
}

//! Positions of uprobes. A breakpoint anywhere but at the start of an instruction changes the behaviour of a
//! program, and so does one in another file than the inspected one.
#![cfg(target_arch = "x86_64")]

mod arguments;
mod files;
mod functions;
mod go_arguments;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ks_host::perf::{Attachments, Catalog, ErrorKind, Options, ProbeMoment, ProbePoint};
use ks_tests::{Folder, Outcome, allowed, command, compile, finish};

const LIMIT: Duration = Duration::from_secs(10);

fn run(command: &mut Command) -> Outcome {
    let outcome = finish(command);
    assert_eq!(outcome.code, 0, "{command:?}: {outcome:#?}");
    outcome
}

/// Builds the program of these tests with some flags.
fn program(folder: &Folder, name: &str, flags: &[&str]) -> PathBuf {
    build(folder, name, flags, &["program.c"])
}

fn build(folder: &Folder, name: &str, flags: &[&str], sources: &[&str]) -> PathBuf {
    let built = folder.path(name);
    let own = ks_tests::repository().join("tests/tests/kernel/uprobes");
    let sources = sources.iter().map(|source| own.join(source));
    run(Command::new("cc").args(["-O1", "-o"]).arg(&built).args(flags).args(sources));
    built
}

/// Returns the addresses of a program's symbols.
fn addresses(program: &Path) -> BTreeMap<String, u64> {
    let listed = run(Command::new("nm").arg(program)).stdout;
    let row = |line: &str| {
        let mut fields = line.split(' ');
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some((fields.nth(1)?.to_owned(), address))
    };
    listed.lines().filter_map(row).collect()
}

/// Returns the error for an attach point in a file, or none if a probe is allowed there.
fn refusal(path: &Path, attach_point: &str) -> Option<(ErrorKind, String)> {
    let answer = Catalog::default().uprobe(&format!("{}:{attach_point}", path.display()));
    answer.err().map(|error| (error.kind(), error.to_string()))
}

fn is_probed(path: &Path, attach_point: &str) {
    assert_eq!(refusal(path, attach_point), None, "{attach_point}");
}

fn is_refused(path: &Path, attach_point: &str, kind: ErrorKind, because: &str) {
    let (found, said) = refusal(path, attach_point).unwrap_or_else(|| panic!("`{attach_point}` is probed"));
    assert!(found == kind && said.contains(because), "{attach_point}: {found:?}: {said}");
}

/// A running program that repeatedly prints the bytes of its code.
struct Victim {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Victim {
    fn start(path: &Path) -> Victim {
        let mut child = Command::new(path).stdout(Stdio::piped()).spawn().expect("it was built");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Victim { child, lines }
    }

    /// Asserts that its code equals its file, now and at all times before.
    fn assert_untouched(mut self) {
        // Its output is complete only after it was killed.
        self.child.kill().expect("it runs");
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("it writes text");
        self.child.wait().expect("it is ours");
        let whole: Vec<&str> = text.lines().collect();
        let (_cut, whole) = whole.split_last().expect("it ran");
        assert!(!whole.is_empty() && whole.iter().all(|line| *line == "0x909090 0x909090"), "{text}");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn root_a_uprobe_lies_where_an_instruction_is_proven_to_begin() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let mut victim = Victim::start(&program);
    let mut line = String::new();
    victim.lines.read_line(&mut line).expect("it runs");
    // Starts of functions, the instructions after them, and the target of a jump.
    for attach_point in ["limit", "limit+5", "main", "_start", "jumper", "jumper+0x3", "landing"] {
        is_probed(&program, attach_point);
    }
    let inside = "lies inside an instruction";
    for attach_point in ["immediate", "limit+1", "limit+4", "inner", "outer+2"] {
        is_refused(&program, attach_point, ErrorKind::DeniedByPolicy, inside);
    }
    let unproven = "nothing proves that an instruction begins";
    for attach_point in ["hidden", "jumper+2", "case_one"] {
        is_refused(&program, attach_point, ErrorKind::DeniedByPolicy, unproven);
    }
    is_probed(&program, "case_two");
    is_refused(&program, "table", ErrorKind::NotFound, "no function `table`");
    is_refused(&program, "chosen", ErrorKind::Invalid, "chooses one of several functions");
    is_refused(&program, "usleep", ErrorKind::NotFound, "only imported");
    is_refused(&program, "+0", ErrorKind::DeniedByPolicy, "is not code");
    let table = addresses(&program)["table"];
    for attach_point in [table, table + 1] {
        is_refused(&program, &format!("+{attach_point:#x}"), ErrorKind::DeniedByPolicy, "is not code");
    }
    // A target that the lookup refuses cannot be opened; a probe changes nothing.
    let mut attachments = Attachments::new();
    for attach_point in ["limit", "limit+5", "landing"] {
        let event = Catalog::default().uprobe(&format!("{}:{attach_point}", program.display())).unwrap();
        attachments.open(&event, &Options::default(), None, None).unwrap_or_else(|error| panic!("{error}"));
    }
    drop(attachments);
    victim.assert_untouched();
}

#[test]
fn root_every_byte_of_a_function_is_a_boundary_or_refused() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let letters = |function: &str, bytes: u64| -> String {
        let start = addresses(&program)[function];
        let known = |byte| refusal(&program, &format!("+{:#x}", start + byte)).is_none();
        (0..bytes).map(|byte| if known(byte) { 'b' } else { '.' }).collect()
    };
    // jmp over a byte; push; pop; nop; nop; ret
    assert_eq!(letters("jumper", 8), "b..bbbbb");
    // mov $0x909090, %eax; ret. Another symbol claims that a function starts in the middle, and a decoding
    // from there would cover the return.
    assert_eq!(letters("outer", 6), "b.....");
}

#[test]
fn root_stripped_programs_have_starts_of_functions_yet() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let limit = addresses(&program)["limit"];
    run(Command::new("strip").arg(&program));
    is_refused(&program, "limit", ErrorKind::NotFound, "no function `limit` is known in it: it is stripped");
    is_probed(&program, &format!("+{limit:#x}"));
    is_probed(&program, &format!("+{:#x}", limit + 5));
    is_refused(&program, &format!("+{:#x}", limit + 1), ErrorKind::DeniedByPolicy, "inside an instruction");
    // The same without the sections.
    let mut bytes = fs::read(&program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = folder.write("bare", bytes);
    is_probed(&bare, &format!("+{limit:#x}"));
    is_refused(&bare, &format!("+{:#x}", limit + 1), ErrorKind::DeniedByPolicy, "inside an instruction");
}

#[test]
fn root_without_an_index_frames_are_read_one_by_one() {
    let folder = Folder::new();
    let program = program(&folder, "program", &["-Wl,--no-eh-frame-hdr"]);
    let limit = addresses(&program)["limit"];
    run(Command::new("strip").arg(&program));
    is_probed(&program, &format!("+{limit:#x}"));
    is_refused(&program, &format!("+{:#x}", limit + 1), ErrorKind::DeniedByPolicy, "inside an instruction");
}

#[test]
fn root_functions_of_go_are_known_by_the_table_of_its_runtime() {
    let folder = Folder::new();
    let program = build(&folder, "go", &["-nostdlib", "-static", "-no-pie"], &["go.s"]);
    let (first, second) = (addresses(&program)["go_first"], addresses(&program)["go_second"]);
    run(Command::new("strip").arg(&program));
    let attach_point = |address: u64| format!("+{:#x}", address - 0x40_0000);
    is_probed(&program, &attach_point(first));
    is_probed(&program, &attach_point(first + 1));
    is_probed(&program, &attach_point(second));
    is_refused(&program, &attach_point(second + 1), ErrorKind::DeniedByPolicy, "inside an instruction");
}

#[test]
fn root_names_that_were_packed_into_a_stripped_program_are_found() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let (small, packed) = (folder.path("small"), folder.path("small.xz"));
    run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &small]));
    run(Command::new("xz").arg(&small));
    run(Command::new("strip").arg(&program));
    let section = format!(".gnu_debugdata={}", packed.display());
    run(Command::new("objcopy").args(["--add-section", &section]).arg(&program));
    is_probed(&program, "limit");
    is_refused(&program, "immediate", ErrorKind::DeniedByPolicy, "inside an instruction");
    is_refused(&program, "limit+1", ErrorKind::DeniedByPolicy, "inside an instruction");
}

/// A policy that names functions names no others that lie behind them.
#[test]
fn root_an_offset_lies_in_the_function_that_is_named() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let addresses = addresses(&program);
    let mut functions = ["limit", "jumper"].map(|name| (addresses[name], name));
    functions.sort_unstable();
    let [(first, name), (second, other)] = functions;
    is_probed(&program, name);
    is_probed(&program, other);
    let behind = format!("{name}+{:#x}", second - first);
    is_refused(
        &program,
        &behind,
        ErrorKind::DeniedByPolicy,
        &format!("behind the end of the function `{name}`"),
    );
}

/// Go's runtime ends a program whose return addresses are not its own. The check must detect Go code from any
/// sign in the file.
#[test]
fn root_returns_in_a_file_with_code_in_go_are_probed_for_its_own_path_only() {
    let folder = Folder::new();
    let plain = program(&folder, "program", &[]);
    let note = folder.write("note", b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
    let bytes = folder.write("bytes", [0xff; 64]);
    let with = |name: &str, section: &str, file: &Path| {
        let built = folder.path(name);
        let added = format!("{section}={}", file.display());
        run(Command::new("objcopy").args(["--add-section", &added]).args([&plain, &built]));
        built
    };
    let attached = |program: &Path, kind: &str, arguments: &[&str]| {
        // Nothing tells where the arguments of its functions are.
        let params = if kind == "uprobe" { "" } else { "value: u64" };
        let script = format!(
            "@{kind}(\"{}:limit\")\nfn hit({params}) -> i32 {{ return 0 }}\n\
             fn main() -> i32 {{ if (attach(load(hit), \"\", 0) != 0) {{ return 1 }}\n \
             print(\"attached\")\n return 0 }}",
            program.display()
        );
        let file = folder.write("returns.wasm", compile("returns", &script).plugin);
        (finish(allowed().args(arguments).arg(&file)), file)
    };
    let (fine, _) = attached(&plain, "uretprobe", &[]);
    assert_eq!((fine.code, fine.stdout.as_str()), (0, "attached\n"), "{fine:#?}");
    for (name, section, file) in [
        ("by_note", ".note.go.buildid", &note),
        ("by_table", ".gopclntab", &bytes),
        ("by_pie_table", ".data.rel.ro.gopclntab", &bytes),
        ("by_info", ".go.buildinfo", &bytes),
    ] {
        let go = with(name, section, file);
        let (refused, plugin) = attached(&go, "uretprobe", &[]);
        assert_eq!(refused.code, 1, "{name}: {refused:#?}");
        let reasons =
            ["code in Go", "unexpected return pc", &format!("--allow go-uretprobe={}", go.display())];
        assert!(reasons.iter().all(|reason| refused.stderr.contains(reason)), "{name}: {refused:#?}");
        let inspected = run(command("ks-host").arg("inspect").arg(plugin));
        assert!(inspected.stdout.contains("no probe: it has code in Go"), "{name}: {inspected:#?}");
        // A probe at the start of the function does no harm.
        let (entry, _) = attached(&go, "uprobe", &[]);
        assert_eq!(entry.code, 0, "{name}: {entry:#?}");
        let allow = format!("go-uretprobe={}", go.display());
        let (risked, _) = attached(&go, "uretprobe", &["--allow", &allow]);
        assert_eq!((risked.code, risked.stdout.as_str()), (0, "attached\n"), "{name}: {risked:#?}");
        let (other, _) = attached(&go, "uretprobe", &["--allow", "go-uretprobe=/bin/true"]);
        assert_eq!(other.code, 1, "{name}: {other:#?}");
    }
    // A rule that names no file would allow too many.
    for rule in ["go-uretprobe", "go-uretprobe=*", "go-uretprobe=/tmp/*", "go-uretprobe=program"] {
        let outcome = finish(command("ks-host").args(["--allow", rule, "/bin/true"]));
        assert!(
            outcome.code != 0 && outcome.stderr.contains("absolute path of one file"),
            "{rule}: {outcome:#?}"
        );
    }
    // A stripped program still has its notes.
    let source = folder.write(
        "noted.s",
        ".section .note.go.buildid, \"a\", @note\n.long 4, 4, 4\n.asciz \"Go\"\n.byte 0\n.ascii \"abcd\"\n\
         .text\n.globl _start, work\n.type work, @function\n_start: call work\nwork: ret\n.size work, \
         .-work\n",
    );
    let noted = folder.path("noted");
    run(Command::new("cc").args(["-nostdlib", "-static", "-no-pie", "-o"]).arg(&noted).arg(source));
    let start = addresses(&noted)["work"] - 0x40_0000;
    let mut bytes = fs::read(&noted).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = folder.write("bare", bytes);
    let attach_point = format!("{}:+{start}", bare.display());
    let said = ProbePoint::named(&attach_point, ProbeMoment::Return).expect_err("it is Go");
    assert!(said.contains("build id of Go"), "{said}");
}

/// A return probe overwrites the word at the top of the stack.
#[test]
fn root_returns_are_probed_from_the_start_of_a_function_that_is_called() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let attached = |name: &str, attach_point: &str| {
        let script = format!(
            "@uretprobe(\"{}:{attach_point}\")\nfn hit(value: u64) -> i32 {{ return 0 }}\n\
             fn main() -> i32 {{ if (attach(load(hit), \"\", 0) != 0) {{ return 1 }}\n \
             print(\"attached\")\n return 0 }}",
            program.display()
        );
        let file = folder.write(&format!("{name}.wasm"), compile(name, &script).plugin);
        finish(allowed().arg(file))
    };
    let start = attached("at_start", "limit");
    assert_eq!((start.code, start.stdout.as_str()), (0, "attached\n"), "{start:#?}");
    let inside = attached("inside", "limit+5");
    assert!(inside.code != 0 && !inside.stdout.contains("attached"), "{inside:#?}");
    assert!(inside.stderr.contains("not the start of a function that is called"), "{inside:#?}");
}

/// The object itself has the target of a program of the kernel half.
#[test]
fn root_no_program_is_attached_inside_an_instruction() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let victim = Victim::start(&program);
    for attach_point in ["immediate", "limit+1", "inner", "case_one"] {
        let script = format!(
            "@uprobe(\"{}:{attach_point}\")\nfn hit(first: u64) -> i32 {{ return 0 }}\n\
             fn main() -> i32 {{ if (attach(load(hit), \"\", 0) == 0) {{ print(\"attached\") }}\n \
             return 0 }}",
            program.display()
        );
        let file = folder.write("inside.wasm", compile("inside", &script).plugin);
        let outcome = finish(allowed().arg(file));
        assert!(!outcome.stdout.contains("attached"), "{attach_point}: {outcome:#?}");
        assert!(outcome.stderr.contains("cannot put a probe at"), "{attach_point}: {outcome:#?}");
    }
    victim.assert_untouched();
}

/// Runs a script with everything allowed and with these flags.
fn run_script(name: &str, script: &str, flags: &[&str]) -> Outcome {
    let folder = Folder::new();
    let file = folder.write(&format!("{name}.wasm"), compile(name, script).plugin);
    finish(allowed().args(flags).arg(file))
}

/// Removing thousands of probes blocks a process for minutes, uninterruptibly.
#[test]
fn root_probes_are_limited() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]).display().to_string();
    let events = |cpus: &str| {
        format!(
            "fn main() -> i32 {{\n for (i in 0..4) {{\n\
             var one = attach(perf_options {{ event: uprobe_event(\"{program}:limit\"), {cpus} }})\n\
             if (one == null) {{ return 7 }}\n print(\"one more\") }}\n return 0 }}"
        )
    };
    let counted = |outcome: &Outcome| outcome.stdout.lines().count();
    let expected = "the limit `probes` of the plugin is 3";
    let few = run_script("few", &events("pid: -1, cpu: 0"), &["--limit", "probes=3"]);
    assert_eq!((few.code != 0, counted(&few)), (true, 3), "{few:#?}");
    assert!(few.stderr.contains(expected), "{few:#?}");
    let enough = run_script("enough", &events("pid: -1, cpu: 0"), &["--limit", "probes=4"]);
    assert_eq!((enough.code, counted(&enough)), (0, 4), "{enough:#?}");
    // One probe for each CPU.
    let all = run_script("all", &events("cpu: all"), &["--limit", "probes=0"]);
    assert_eq!((all.code != 0, counted(&all)), (true, 0), "{all:#?}");
    let programs = format!(
        "@uprobe(\"{program}:limit\")\nfn hit(first: u64) -> i32 {{ return 0 }}\n\
         fn main() -> i32 {{ if (attach(load(hit), \"\", 0) != 0) {{ return 7 }}\n return 0 }}"
    );
    let none = run_script("none", &programs, &["--limit", "probes=0"]);
    assert!(none.code == 7 && none.stderr.contains("the limit `probes` of the plugin is 0"), "{none:#?}");
    assert_eq!(run_script("one", &programs, &["--limit", "probes=1"]).code, 0);
}

/// Raw events of the probes' PMU would interpret one number of the plugin as the address of a path in the
/// host, and another as the offset of a counter that the kernel writes in other processes.
#[test]
fn root_numbers_of_the_probes_pmu_reach_no_memory() {
    let type_of = |pmu: &str| {
        let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{pmu}/type")).unwrap();
        text.trim().parse::<u32>().unwrap()
    };
    let uprobe = type_of("uprobe");
    for event in [
        format!("raw_event({uprobe}, 12884901888, 4096, 4096)"),
        format!("raw_event({uprobe}, 0)"),
        // As constants these two are a compile error: KS0417.
        "raw_event(two, 1)".to_owned(),
        "raw_event(five, 0, 4096, 8)".to_owned(),
        "raw_event(1, 2, 4096, 0)".to_owned(),
        format!("raw_event({}, 1, 4096, 0)", type_of("msr")),
        "pmu(\"uprobe/ref_ctr_offset=3,config1=0x1000,config2=0x1000/\")".to_owned(),
        "pmu(\"uprobe/config=0/\")".to_owned(),
        "pmu(\"tracepoint/config=1/\")".to_owned(),
        "pmu(\"breakpoint/config1=4096/\")".to_owned(),
    ] {
        let script = format!(
            "var two : u32 = 2\nvar five : u32 = 5\n\
             fn main() -> i32 {{ var one = attach(perf_options {{ event: {event}, pid: -1, cpu: 0 }})\n\
             if (one == null) {{ return 7 }}\n print(\"opened\")\n return 0 }}"
        );
        let outcome = run_script("numbers", &script, &[]);
        assert!(outcome.code != 0 && outcome.stdout.is_empty(), "{event}: {outcome:#?}");
        assert!(outcome.stderr.contains("not an event"), "{event}: {outcome:#?}");
    }
}

#[test]
fn root_a_policy_names_kinds_of_pmus_and_single_events() {
    let folder = Folder::new();
    let script = "fn main() -> i32 { var clock = attach(perf_options { event: pmu(\"msr/event=0/\"), pid: \
                  -1, cpu: 0 })\n\
                  if (clock == null) { return 7 }\n print(\"opened\")\n return 0 }";
    let file = folder.write("clock.wasm", compile("clock", script).plugin);
    let opened = |events: &str| {
        let policy = format!("[allow]\nimport = [\"*\"]\nscope = [\"*\"]\nevent = {events}\n");
        let policy = folder.write("policy.toml", policy);
        finish(ks_tests::command("ks-host").arg("--policy").arg(policy).arg(&file))
    };
    for events in ["[\"msr\"]", "[\"msr/tsc/\"]", "[\"msr/*\"]", "[\"*\"]"] {
        let outcome = opened(events);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "opened\n"), "{events}: {outcome:#?}");
    }
    for events in ["[\"pmu\", \"raw\", \"aux\"]", "[\"msr/aperf/\"]", "[\"msr/event=0/\"]", "[]"] {
        let outcome = opened(events);
        assert!(outcome.code != 0 && outcome.stderr.contains("--allow event=msr"), "{events}: {outcome:#?}");
    }
}

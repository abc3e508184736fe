//! Positions of uprobes. A breakpoint anywhere but at the start of an instruction changes the behaviour of a
//! program, and so does one in another file than the inspected one.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ks_host::perf::{Attachments, Catalog, ErrorKind, Options, ProbeMoment, ProbePoint};
use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, allowed, command, compile, finish, wait_until};
use nix::libc;
use nix::sys::stat::Mode;

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
        is_refused(&program, attach_point, ErrorKind::Invalid, inside);
    }
    let unproven = "nothing proves that an instruction begins";
    for attach_point in ["hidden", "jumper+2", "case_one"] {
        is_refused(&program, attach_point, ErrorKind::Invalid, unproven);
    }
    is_probed(&program, "case_two");
    is_refused(&program, "table", ErrorKind::NotFound, "no function `table`");
    is_refused(&program, "chosen", ErrorKind::Invalid, "chooses one of several functions");
    is_refused(&program, "usleep", ErrorKind::NotFound, "only imported");
    is_refused(&program, "+0", ErrorKind::Invalid, "is not code");
    let table = addresses(&program)["table"];
    for attach_point in [table, table + 1] {
        is_refused(&program, &format!("+{attach_point:#x}"), ErrorKind::Invalid, "is not code");
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

/// Builds three files with a static function `worker` each; one is called 100 times, one 7 times and one
/// never.
fn duplicates(folder: &Folder) -> PathBuf {
    let file = |name: &str, caller: &str| {
        let text = format!(
            "__attribute__((noinline)) static int worker(int x) {{ asm volatile(\"\"); return x + 1; }}\n\
             int {caller}(int n) {{ int s = 0; for (int i = 0; i < n; i++) s += worker(i); return s; }}\n"
        );
        folder.write(name, text)
    };
    let (a, b, c) = (file("dup_a.c", "run_a"), file("dup_b.c", "run_b"), file("dup_c.c", "run_c"));
    let main = folder.write(
        "dup.c",
        "int run_a(int), run_b(int), run_c(int);\n\
         int main(void) { return (run_a(100) + run_b(7) + run_c(0)) & 0; }\n",
    );
    let built = folder.path("dup");
    run(Command::new("cc").args(["-O1", "-o"]).arg(&built).args([main, a, b, c]));
    built
}

/// A program at an attach point and a counter of it see the same calls.
#[test]
fn root_functions_of_one_name_are_probed_together_or_by_their_source_file() {
    const SCRIPT: &str = include_str!("scripts/functions_of_one_name.ks");
    let folder = Folder::new();
    let program = duplicates(&folder);
    for (attach_point, calls) in [
        ("worker", 107),
        ("worker@dup_a.c", 100),
        ("worker@some/folder/dup_b.c", 7),
        ("worker@dup_c.c", 0),
        ("worker+0", 107),
    ] {
        let script = SCRIPT.replace("PLACE", &format!("{}:{attach_point}", program.display()));
        let file = folder.write("dup.wasm", compile("dup", &script).plugin);
        let running = Running::of(allowed().arg(&file), "ready");
        run(&mut Command::new(&program));
        let outcome = running.stop();
        assert_eq!(outcome.numbers("program"), [calls, calls], "{attach_point}: {outcome:#?}");
        // `inspect` lists the offsets, and the run does too if there are several.
        let inspected = run(command("ks-host").arg("inspect").arg(&file)).stdout;
        let listed = inspected.lines().find(|line| line.contains("uprobe/")).expect("it has a program");
        assert_eq!(
            listed.matches("dup_").count() - attach_point.matches("dup_").count(),
            match calls {
                107 => 3,
                _ => 1,
            },
            "{inspected}"
        );
        let expected = "program `hit` runs at 3 functions: +0x";
        assert_eq!(outcome.stderr.contains(expected), calls == 107, "{outcome:#?}");
    }
    let refused = |attach_point: &str| {
        refusal(&program, attach_point).unwrap_or_else(|| panic!("`{attach_point}` is probed")).1
    };
    let other = refused("worker@dup_d.c");
    assert!(other.contains("it has it of `dup_a.c`, `dup_b.c`, `dup_c.c`"), "{other}");
    assert!(refused("nobody").contains("no function `nobody`"));
    assert!(refused("nobody@dup_a.c").contains("no function `nobody`"));
    assert!(refused("worker+1").contains("inside an instruction"));
}

/// Calls of a clone for one caller are not calls of the function, and a warning says so.
#[test]
fn root_clones_of_a_function_are_named() {
    let folder = Folder::new();
    let source = folder.write(
        "copies.s",
        ".text\n.globl _start\n_start: call work\n.type work, @function\nwork: ret\n.size work, .-work\n\
         .type work.constprop.0, @function\nwork.constprop.0: ret\n.size work.constprop.0, \
         .-work.constprop.0\n\
         .type work.lto_priv.0, @function\nwork.lto_priv.0: ret\n.size work.lto_priv.0, .-work.lto_priv.0\n\
         .type gone.isra.0, @function\ngone.isra.0: ret\n.size gone.isra.0, .-gone.isra.0\n\
         .type work.cold, @function\nwork.cold: ret\n.size work.cold, .-work.cold\n",
    );
    let built = folder.path("copies");
    run(Command::new("cc").args(["-nostdlib", "-static", "-no-pie", "-o"]).arg(&built).arg(source));
    let points = ProbePoint::named(&format!("{}:work", built.display()), ProbeMoment::Instruction).unwrap();
    assert_eq!(points.len(), 2, "the function, and one of another file");
    assert_eq!(ProbePoint::copies(&points).as_deref(), Some("`work.constprop.0`"));
    let (_, said) = refusal(&built, "gone").expect("only a copy is there");
    assert!(
        said.contains("no function `gone`, only copies that the compiler made of it: `gone.isra.0`"),
        "{said}"
    );
    is_probed(&built, "gone.isra.0");
}

/// An event that consists of several kernel events would count the other members of a group twice.
#[test]
fn root_an_event_of_several_functions_is_in_no_group() {
    let folder = Folder::new();
    let program = duplicates(&folder);
    let event = |attach_point: &str| {
        Catalog::default().uprobe(&format!("{}:{attach_point}", program.display())).unwrap()
    };
    let everywhere = Options { pid: -1, cpu: -1, every_cpu: true, ..Options::default() };
    let clock = ks_host::perf::Event::named("cpu-clock").unwrap();
    let mut attachments = Attachments::new();
    let leader = attachments.open(&clock, &everywhere, None, None).unwrap();
    let refused = attachments.open(&event("worker"), &everywhere, Some(leader), None).unwrap_err();
    assert!(refused.to_string().contains("cannot be in a group"), "{refused}");
    let several = attachments.open(&event("worker"), &everywhere, None, None).unwrap();
    let refused = attachments.open(&clock, &everywhere, Some(several), None).unwrap_err();
    assert!(refused.to_string().contains("cannot be in a group"), "{refused}");
    attachments.open(&event("worker@dup_a.c"), &everywhere, Some(leader), None).unwrap();
    // The enabled time is that of one kernel event.
    let alone = attachments.open(&event("worker@dup_a.c"), &everywhere, None, None).unwrap();
    run(&mut Command::new(&program));
    let [all, one] = [several, alone].map(|id| attachments.read(id).unwrap());
    assert_eq!((all.raw, one.raw), (107, 100));
    assert!(all.time_enabled < one.time_enabled * 3 / 2, "{all:?} {one:?}");
}

/// A library whose function has two versions: the default for linking, and one for old programs.
#[test]
fn root_a_version_of_a_function_is_probed_by_its_name() {
    let folder = Folder::new();
    let source = folder.write(
        "versions.c",
        "int old_f(int x) { return x + 1; }\nint new_f(int x) { return x + 2; }\n\
         int plain(int x) { return x; }\n\
         __asm__(\".symver old_f,f@OLD_1\");\n__asm__(\".symver new_f,f@@NEW_2\");\n",
    );
    let script = folder.write("versions.map", "OLD_1 { global: f; plain; local: *; };\nNEW_2 { } OLD_1;\n");
    let library = folder.path("libversions.so");
    let map = format!("-Wl,--version-script={}", script.display());
    run(Command::new("cc").args(["-shared", "-fPIC", "-O1", &map, "-o"]).arg(&library).arg(source));
    let offset = |attach_point: &str| {
        let attach_point = format!("{}:{attach_point}", library.display());
        let points = ProbePoint::named(&attach_point, ProbeMoment::Instruction);
        let points = points.unwrap_or_else(|error| panic!("{attach_point}: {error}"));
        assert_eq!(points.len(), 1, "{attach_point}");
        points[0].offset()
    };
    let (old, new) = (offset("f@OLD_1"), offset("f@NEW_2"));
    assert_ne!(old, new);
    assert_eq!([offset("f"), offset("f@@NEW_2")], [new, new]);
    let (_, said) = refusal(&library, "f@OTHER_3").expect("there is none");
    assert!(
        said.contains("none of version or source file `OTHER_3`: it has it of `NEW_2`, `OLD_1`"),
        "{said}"
    );
    let (_, said) = refusal(&library, "plain@NEW_2").expect("it is of the other version");
    assert!(said.contains("it has it of `OLD_1`"), "{said}");
}

/// Three different reasons have three different messages.
#[test]
fn root_missing_ifunc_and_versioned_symbols_are_reported() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let said = |attach_point: &str| {
        refusal(&program, attach_point).unwrap_or_else(|| panic!("`{attach_point}` is probed")).1
    };
    let three = [said("missing"), said("chosen"), said("limit@GLIBC_2.2.5")];
    for (one, reason) in three.iter().zip(["it has no function", "(IFUNC)", "none of version or source file"])
    {
        assert!(one.contains(reason), "{one}");
    }
}

/// A source line is not taken for a function.
#[test]
fn root_a_source_line_is_refused_by_name() {
    let (kind, said) = refusal(Path::new("/bin/true@true.c"), "12").expect("no line is probed");
    assert!(kind == ErrorKind::Unsupported && said.contains("source line"), "{kind:?}: {said}");
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
    is_refused(&program, "limit", ErrorKind::NotFound, "no function `limit`");
    is_probed(&program, &format!("+{limit:#x}"));
    is_probed(&program, &format!("+{:#x}", limit + 5));
    is_refused(&program, &format!("+{:#x}", limit + 1), ErrorKind::Invalid, "inside an instruction");
    // The same without the sections.
    let mut bytes = fs::read(&program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = folder.write("bare", bytes);
    is_probed(&bare, &format!("+{limit:#x}"));
    is_refused(&bare, &format!("+{:#x}", limit + 1), ErrorKind::Invalid, "inside an instruction");
}

#[test]
fn root_without_an_index_frames_are_read_one_by_one() {
    let folder = Folder::new();
    let program = program(&folder, "program", &["-Wl,--no-eh-frame-hdr"]);
    let limit = addresses(&program)["limit"];
    run(Command::new("strip").arg(&program));
    is_probed(&program, &format!("+{limit:#x}"));
    is_refused(&program, &format!("+{:#x}", limit + 1), ErrorKind::Invalid, "inside an instruction");
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
    is_refused(&program, &attach_point(second + 1), ErrorKind::Invalid, "inside an instruction");
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
    is_refused(&program, "immediate", ErrorKind::Invalid, "inside an instruction");
    is_refused(&program, "limit+1", ErrorKind::Invalid, "inside an instruction");
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
        let script = format!(
            "@{kind}(\"{}:limit\")\nfn hit(value: u64) -> i32 {{ return 0 }}\n\
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

#[test]
fn root_a_file_that_replaces_the_one_that_was_read_is_not_probed() {
    let folder = Folder::new();
    let victim_file = program(&folder, "victim", &[]);
    // Its `main` begins at an offset inside an instruction of the victim.
    let inside = addresses(&victim_file)["immediate"];
    let decoy = folder.path("decoy");
    decoy_with_start_at(&folder, &decoy, inside);
    let path = folder.path("program");
    fs::copy(&decoy, &path).unwrap();
    let event = Catalog::default().uprobe(&format!("{}:work", path.display())).unwrap();
    let mut victim = Victim::start(&victim_file);
    victim.lines.read_line(&mut String::new()).expect("it runs");
    let other = folder.path("other");
    symlink(&victim_file, &other).unwrap();
    fs::rename(&other, &path).unwrap();
    let mut attachments = Attachments::new();
    let refused = attachments.open(&event, &Options::default(), None, None).unwrap_err();
    assert!(refused.to_string().contains("it was changed meanwhile"), "{refused}");
    assert_eq!(attachments.count(), 0);
    thread::sleep(Duration::from_millis(50));
    victim.assert_untouched();
}

/// Builds a program whose function `work` starts at an offset of the file.
fn decoy_with_start_at(folder: &Folder, built: &Path, offset: u64) {
    let source = format!(
        ".text\n.globl _start, work\n.type work, @function\n_start: .org {:#x}\nwork: ret\n.size work, \
         .-work\n",
        offset - 0x1000
    );
    let source = folder.write("decoy.s", source);
    run(Command::new("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-o"])
        .arg(built)
        .arg(source));
    assert_eq!(addresses(built)["work"] - 0x40_0000, offset, "the linker puts code there");
    // Reading a large file completely would leave time to replace it.
    fs::OpenOptions::new().write(true).open(built).unwrap().set_len(16 << 20).unwrap();
}

/// Files are replaced while one host call attaches a program repeatedly.
#[test]
fn root_an_attach_looks_at_the_file_that_it_probes() {
    let folder = Folder::new();
    let victim_file = program(&folder, "victim", &[]);
    let decoy = folder.path("decoy");
    decoy_with_start_at(&folder, &decoy, addresses(&victim_file)["immediate"]);
    let path = folder.path("program");
    symlink(&decoy, &path).unwrap();
    let script = format!(
        "@uprobe(\"{}:work\")\nfn hit(first: u64) -> i32 {{ return 0 }}\n\
         fn main() -> i32 {{\n var program = load(hit)\n var done: u64 = 0\n\
         for (i in 0..20) {{ if (attach(program, \"\", 0) == 0) {{ done = done + 1\n sleep(20)\n \
         detach(program) }} }}\n\
         print(\"{{}} times\", done)\n return 0 }}",
        path.display()
    );
    let file = folder.write("swapped.wasm", compile("swapped", &script).plugin);
    let victim = Victim::start(&victim_file);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut targets, other) = ([&victim_file, &decoy].into_iter().cycle(), folder.path("other"));
            while !is_over.load(Ordering::Relaxed) {
                symlink(targets.next().expect("it goes on"), &other).unwrap();
                fs::rename(&other, &path).unwrap();
                thread::sleep(Duration::from_micros(300));
            }
        });
        let outcome = finish(allowed().arg(file));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(outcome.code, 0, "{outcome:#?}");
    });
    victim.assert_untouched();
}

/// Opening a FIFO would unblock a process that waits for a reader.
#[test]
fn root_a_fifo_is_not_opened() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let writer = {
        let fifo = fifo.clone();
        thread::spawn(move || fs::write(fifo, "line\n"))
    };
    thread::sleep(Duration::from_millis(50));
    is_refused(&fifo, "main", ErrorKind::Invalid, "it is a FIFO, not a regular file");
    let mut reader =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).expect("it is there");
    let mut text = Vec::new();
    wait_until(LIMIT, "the writer meets its reader", || {
        // EAGAIN as long as nothing is there.
        let _ = reader.read_to_end(&mut text);
        text == b"line\n"
    });
    writer.join().unwrap().expect("its line was read");
}

/// Reading such files has effects on hardware, or on data for another reader.
#[test]
fn root_files_of_the_kernel_itself_are_not_opened() {
    for file in ["/proc/self/maps", "/sys/devices/system/cpu/online", "/sys/kernel/btf/vmlinux"] {
        let file = Path::new(file);
        for attach_point in ["main", "+0x1000"] {
            is_refused(file, attach_point, ErrorKind::Invalid, "it is a file of the kernel itself");
        }
    }
    // A link there may point to a program.
    is_probed(Path::new("/proc/self/exe"), "main");
}

/// The kernel executes the bytes of the file at a probe, not the bytes that the loader relocated.
#[test]
fn root_code_that_the_loader_changes_is_not_probed() {
    let folder = Folder::new();
    let source = folder.write(
        "moved.s",
        ".text\n.globl moved\n.type moved, @function\nmoved: movabs $moved, %rax\n ret\n.size moved, \
         .-moved\n\
         .section .note.GNU-stack, \"\", @progbits\n",
    );
    let built = folder.path("moved.so");
    run(Command::new("cc").args(["-shared", "-nostdlib", "-Wl,-z,notext", "-o"]).arg(&built).arg(source));
    is_refused(&built, "moved", ErrorKind::Unsupported, "the loader changes its code");
}

/// Only pieces of a file are read: the memory for it does not grow with the file.
#[test]
fn root_a_large_file_takes_little_memory() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let large = fs::OpenOptions::new().write(true).open(&program).unwrap();
    large.set_len((1 << 30) - 4096).unwrap();
    let script = format!(
        "fn main() -> i32 {{ var counter = attach(perf_options {{ event: uprobe_event(\"{}:limit\"), cpu: \
         all }})\n\
         print(\"calls {{}}\", read(counter).raw)\n return 0 }}",
        program.display()
    );
    let file = folder.write("large.wasm", compile("large", &script).plugin);
    let outcome = finish(allowed().arg(file));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "calls 0\n"), "{outcome:#?}");
    let most = outcome.most_memory_kib.expect("measured");
    // The measurement includes memory of this process, of which the command was a copy before its exec.
    assert!(most < 512 << 10, "{most} KiB: {outcome:#?}");
}

/// For any file contents there is an answer, and never an offset inside an instruction of an unchanged
/// function.
#[test]
fn root_changed_files_get_answers() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let good = fs::read(&program).unwrap();
    let limit = addresses(&program)["limit"];
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut rng = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let changed = folder.path("changed");
    for iteration in 0..ks_tests::number("KS_MUTANTS", 1500) {
        let mut bytes = good.clone();
        // Headers at the start, tables anywhere, section headers at the end.
        let (from, many) = [(0, 1024), (0, good.len()), (good.len() - 2048, 2048)][rng(3)];
        for _ in 0..=rng(8) {
            let at = from + rng(many);
            bytes[at] = [0, 0xff, 0x7f, 0x80, bytes[at] ^ 1 << rng(8)][rng(5)];
        }
        if rng(8) == 0 {
            bytes.truncate(rng(good.len()));
        }
        fs::write(&changed, bytes).unwrap();
        for attach_point in
            ["limit".to_owned(), "chosen".to_owned(), format!("+{limit:#x}"), "case_two".to_owned()]
        {
            if let Some((_, said)) = refusal(&changed, &attach_point) {
                assert!(said.contains("because: "), "{iteration}: {said}");
            }
        }
    }
}

/// The sizes and offsets that a file claims are not trusted.
#[test]
fn root_malformed_tables_are_refused_at_once() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let good = fs::read(&program).unwrap();
    let sections = u64::from_le_bytes(good[0x28..0x30].try_into().unwrap()) as usize;
    let rows = usize::from(u16::from_le_bytes(good[0x3c..0x3e].try_into().unwrap()));
    let is_symbols = |row: &usize| good[row + 4] == 2 || good[row + 4] == 11;
    let symbols: Vec<usize> = (0..rows).map(|row| sections + row * 64).filter(is_symbols).collect();
    let limit = addresses(&program)["limit"];
    for (bytes, kind, because) in [
        (1_u64 << 40, ErrorKind::Limit, "is larger than any"),
        (1 << 28, ErrorKind::Invalid, "behind its end"),
    ] {
        let mut changed = good.clone();
        for row in &symbols {
            changed[row + 0x20..row + 0x28].copy_from_slice(&bytes.to_le_bytes());
        }
        let file = folder.write("changed", changed);
        for attach_point in ["limit".to_owned(), format!("+{limit:#x}")] {
            is_refused(&file, &attach_point, kind, because);
        }
    }
    for (name, bytes) in [("text", &b"#!/bin/sh\n"[..]), ("short", &good[..40]), ("header", &good[..64])] {
        let file = folder.write(name, bytes);
        assert!(refusal(&file, "main").is_some() && refusal(&file, "+0x1000").is_some(), "{name}");
    }
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

//! The functions that a name stands for: copies, clones, versions, resolvers.

use std::path::{Path, PathBuf};
use std::process::Command;

use ks_host::perf::{Attachments, Catalog, ErrorKind, Options, ProbeMoment, ProbePoint};
use ks_tests::watched::Running;
use ks_tests::{Folder, allowed, command, compile};

use super::{is_probed, program, refusal, run};

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
    let start = std::time::Instant::now();
    let several = attachments.open(&event("worker"), &everywhere, None, None).unwrap();
    let refused = attachments.open(&clock, &everywhere, Some(several), None).unwrap_err();
    assert!(refused.to_string().contains("cannot be in a group"), "{refused}");
    attachments.open(&event("worker@dup_a.c"), &everywhere, Some(leader), None).unwrap();
    let alone = attachments.open(&event("worker@dup_a.c"), &everywhere, None, None).unwrap();
    run(&mut Command::new(&program));
    let [all, one] = [several, alone].map(|id| attachments.read(id).unwrap());
    assert_eq!((all.raw, one.raw), (107, 100));
    // The enabled time is that of one kernel event on each CPU, not of one for each function.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u128;
    assert!(u128::from(all.time_enabled) <= start.elapsed().as_nanos() * cpus, "{all:?}");
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

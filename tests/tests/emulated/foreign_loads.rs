//! Objects of Debian's `libbpf-tools`: the kernel gets the same instructions, and attributes, from the original
//! and from the canonical object. Objects of rustc for Aya: the kernel accepts the programs of the canonical
//! object; libbpf does not read the original. These tests need root.

use std::fs;
use std::path::PathBuf;

use ks_compiler::object::{read, write};
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::loads::{ObjectLoads, load_if_asked, loads};
use ks_tests::{Folder, aya, tools};

/// Set inside: the folder with the objects.
const FOLDER: &str = "KS_OBJECTS";

/// Tools with kinds of programs that only the emulated kernels have: kprobes, and trampolines at functions.
const INSIDE: [&str; 3] = ["vfsstat", "filelife", "tcprtt"];

#[test]
fn kernel_6_12() {
    if inside().is_some() {
        return;
    }
    let folder = Folder::new();
    for (name, object) in tools::objects() {
        if INSIDE.contains(&name.as_str()) {
            folder.write(&name, object);
        }
    }
    Machine::new(Kernel::V6_12)
        .file_as(folder.path(""), "/ks-objects")
        .env(FOLDER, "/ks-objects")
        .run_tests(module_path!(), &["root_loads"]);
}

/// Returns the objects of this kernel's run.
fn objects() -> Vec<(String, Vec<u8>)> {
    let Ok(folder) = std::env::var(FOLDER) else { return tools::objects() };
    let paths =
        fs::read_dir(folder).expect("the files are there").map(|entry| entry.expect("readable").path());
    let object = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("readable"))
    };
    paths.map(object).collect()
}

#[test]
fn child_of_root_loads() {
    load_if_asked();
}

#[test]
fn root_loads_of_libbpf_tools_are_the_same_after_the_writer() {
    let (mut all, mut given, mut accepted) = (0, 0, 0);
    let objects = objects();
    for (name, original) in &objects {
        let canonical = write(&read(original).unwrap_or_else(|error| panic!("{name}: {error}")));
        let canonical = canonical.unwrap_or_else(|error| panic!("{name}: {error}"));
        let (before, after) = (load(original), load(&canonical));
        assert_eq!(before.results, after.results, "{name}");
        let programs: Vec<_> = before.programs.keys().collect();
        assert_eq!(programs, after.programs.keys().collect::<Vec<_>>(), "{name}");
        for (program, attributes) in &before.programs {
            assert_eq!(Some(attributes), after.programs.get(program), "{name}, {program}");
        }
        let loaded: Vec<_> = before.results.iter().filter(|(_, result)| **result == 0).collect();
        assert!(
            loaded.iter().all(|(program, _)| before.programs.contains_key(*program)),
            "{name}: {loaded:?}"
        );
        all += before.results.len();
        given += before.programs.len();
        accepted += loaded.len();
    }
    println!(
        "{} objects, {all} programs: {given} reached BPF_PROG_LOAD, which accepted {accepted}",
        objects.len()
    );
    match inside() {
        Some(_) => assert!(accepted == all && objects.len() == INSIDE.len(), "{accepted} of {all}"),
        // This kernel has no trampolines, and not all functions of file systems.
        None => assert!(objects.len() >= 61 && given * 2 > all && accepted * 2 > all, "{accepted} of {all}"),
    }
}

#[test]
fn root_loads_of_a_changed_instruction_differ() {
    let (name, original) = objects().swap_remove(0);
    // `r0 = 0`, which becomes `r0 = 1`.
    let at = original.windows(8).position(|slot| slot == [0xb7, 0, 0, 0, 0, 0, 0, 0]);
    let mut changed = original.clone();
    changed[at.unwrap_or_else(|| panic!("{name} returns 0")) + 4] = 1;
    assert_ne!(load(&original).programs, load(&changed).programs, "{name}");
}

#[test]
fn root_loads_for_aya_are_accepted() {
    for (name, original) in aya::OBJECTS {
        let canonical = write(&read(original).unwrap_or_else(|error| panic!("{name}: {error}")));
        let loads = load(&canonical.unwrap_or_else(|error| panic!("{name}: {error}")));
        let mut refused = loads.results.iter().filter(|(_, result)| **result != 0);
        let needs_trampoline = |name: &str| matches!(name, "keep_nice" | "unlinked");
        let refused = refused.find(|(program, _)| inside().is_some() || !needs_trampoline(program));
        assert_eq!(refused, None, "{name}");
    }
}

fn load(elf: &[u8]) -> ObjectLoads {
    loads("foreign_loads::child_of_root_loads", elf).unwrap_or_else(|error| panic!("{error}"))
}

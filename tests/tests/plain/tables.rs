//! One source for each fact: no file but the tables lists helpers, events, builtins or program kinds. And what
//! the recipes for contributors promise: adding one of them changes few files.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ks_compiler::facts::tables::builtins::BUILTINS;
use ks_tests::repository;
use ks_wit::event::EVENTS;
use ks_wit::helper::HELPERS;
use ks_wit::program_kind::PROGRAM_KINDS;

/// The crates whose facts stand in tables.
const CRATES: [&str; 4] = ["compiler/src", "host/src", "guest-sdk/src", "wit/src"];

/// The most files that a made-up builtin, helper or program kind may change.
const MOST_FILES: usize = 3;

/// The patches that add one.
const PATCHES: [&str; 3] = ["made-up-builtin", "made-up-helper", "made-up-program-kind"];

/// A table: its file, its names, and the files that may mention more of them than others, with the reason.
struct Table {
    file: &'static str,
    names: BTreeSet<&'static str>,
    users: &'static [(&'static str, &'static str)],
}

/// The most names of a table that any other file may mention.
const MOST_MENTIONED: usize = 5;

fn tables() -> [Table; 4] {
    [
        Table {
            file: "wit/src/helper.rs",
            names: HELPERS.iter().map(|helper| helper.name).collect(),
            users: &[
                ("compiler/src/kernel/mir/callee.rs", "the helpers that the compiler calls, as MIR"),
                ("compiler/src/hir/builtin.rs", "the helper that implements each builtin"),
                (
                    "compiler/src/kernel/lower/external/memory.rs",
                    "how much each writes through its arguments",
                ),
                ("compiler/src/object/look.rs", "the pairs that libbpf replaces by each other"),
            ],
        },
        Table {
            file: "wit/src/event.rs",
            names: EVENTS.iter().map(|event| event.name).collect(),
            users: &[],
        },
        Table {
            file: "compiler/src/check/builtin_table.rs",
            names: BUILTINS.iter().map(|builtin| builtin.name).filter(|name| name.len() > 4).collect(),
            users: &[
                ("compiler/src/hir/builtin.rs", "the nodes of the typed tree"),
                ("compiler/src/check/events.rs", "the arguments of each event constructor"),
                ("compiler/src/user/runtime.rs", "names of routines, which are others by accident"),
            ],
        },
        Table {
            file: "wit/src/program_kind.rs",
            names: PROGRAM_KINDS.iter().map(|row| row.name).collect(),
            users: &[
                ("compiler/src/init/kind.rs", "the places that `ks init` takes"),
                ("compiler/src/init/kfuncs.rs", "the names of the headers that `ks init` writes"),
                ("compiler/src/object/table/program_kind.rs", "the sections of libbpf"),
                ("host/src/policy/class.rs", "the classes of policies"),
            ],
        },
    ]
}

/// Collects the Rust files below a folder.
fn rust_files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the string literals of a file, without those of its tests.
fn literals(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.split('"').skip(1).step_by(2).collect()
}

#[test]
fn no_file_but_its_table_lists_a_fact() {
    let root = repository();
    let mut files = Vec::new();
    CRATES.iter().for_each(|one| rust_files(&root.join(one), &mut files));
    files.retain(|file| file.file_name().is_some_and(|name| name != "tests.rs"));
    assert!(files.len() > 500, "{}", files.len());
    for Table { file: table, names, users } in tables() {
        for (user, reason) in users {
            assert!(root.join(user).exists(), "{user} ({reason}) is not there any more");
        }
        for path in &files {
            let file = path.strip_prefix(root).expect("below the root").to_str().expect("UTF-8");
            if file == table || users.iter().any(|(user, _)| *user == file) {
                continue;
            }
            let text = std::fs::read_to_string(path).expect("readable");
            let literals = literals(&text);
            let mentioned: Vec<_> = names.iter().filter(|name| literals.contains(**name)).collect();
            assert!(
                mentioned.len() <= MOST_MENTIONED,
                "{file} lists what stands in {table}: {mentioned:?}; make it from the table"
            );
        }
    }
}

#[test]
fn adding_one_changes_few_files() {
    let root = repository();
    for name in PATCHES {
        let patch = root.join("tests/patches").join(name).with_extension("patch");
        let git = |arguments: &[&str]| {
            let output =
                Command::new("git").current_dir(root).arg("apply").args(arguments).arg(&patch).output();
            let output = output.expect("git runs");
            assert!(
                output.status.success(),
                "{name} does not apply any more; make it again, then run `make tables`:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).expect("paths are UTF-8")
        };
        git(&["--check", "-C1"]);
        let files = git(&["--numstat", "-C1"]);
        let changed = files.lines().count();
        assert!((1..=MOST_FILES).contains(&changed), "{name} changes {changed} files:\n{files}");
    }
}

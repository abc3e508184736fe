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
                ("compiler/src/implicit_main/main_function.rs", "the calls of a main that is written"),
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

/// Runs `git apply` for a patch on the tree in a folder, which need not be a repository.
fn apply(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let patch = repository().join("tests/patches").join(name).with_extension("patch");
    let patch = patch.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", patch.display()));
    let mut git = Command::new("git");
    git.current_dir(folder).args(["apply", "-C1"]).args(arguments).arg(patch);
    let output = git.env("GIT_CEILING_DIRECTORIES", folder.parent().expect("not the root")).output();
    let output = output.expect("git runs");
    assert!(
        output.status.success(),
        "{name} does not apply any more; make it again, then run `make tables`:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("paths are UTF-8")
}

#[test]
fn adding_one_changes_few_files() {
    for name in PATCHES {
        apply(repository(), name, &["--check"]);
        let files = apply(repository(), name, &["--numstat"]);
        let changed = files.lines().count();
        assert!((1..=MOST_FILES).contains(&changed), "{name} changes {changed} files:\n{files}");
    }
}

/// A script that uses what the patches add. The made-up builtin is another name of `cpu_count`.
const MADE_UP: &str = r#"
@made_up
fn dissect(ctx: *__sk_buff) -> i32 {
    return 0
}

@xdp
fn look(ctx: *xdp_md) -> xdp_action {
    var _done = bpf_made_up(1)
    return XDP_PASS
}

fn main() -> i32 {
    print("made up %u %u", made_up(), cpu_count())
    return 0
}
"#;

/// Copies the tree, except what git ignores, where a file is not the same already.
fn copy_tree(to: &Path) {
    let root = repository();
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = git.output().expect("git runs").stdout;
    for file in String::from_utf8(listed).expect("paths are UTF-8").split_terminator('\0') {
        let (from, to) = (root.join(file), to.join(file));
        // A file that was removed and not committed is listed, too.
        let Ok(content) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        std::fs::create_dir_all(to.parent().expect("a file of the tree")).expect("a folder below `target`");
        std::fs::copy(&from, &to).expect("a file below `target`");
    }
}

/// The large run, `make tables`: the patched tree is built, and what the patches add works.
#[test]
fn what_the_patches_add_works() {
    if std::env::var_os("KS_TABLES").is_none() {
        return;
    }
    let folder = repository().canonicalize().expect("it exists").join("target/tables");
    let tree = folder.join("tree");
    copy_tree(&tree);
    PATCHES.iter().for_each(|name| _ = apply(&tree, name, &[]));
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&tree).env("CARGO_TARGET_DIR", folder.join("target"));
    cargo.args(["build", "--release", "--workspace", "--bin", "ks", "--bin", "ks-host"]);
    assert!(cargo.status().expect("cargo runs").success());
    let [script, plugin] = ["made_up.ks", "made_up.wasm"].map(|name| folder.join(name));
    std::fs::write(&script, MADE_UP).expect("a file below `target`");
    let [script, plugin] = [&script, &plugin].map(|path| path.to_str().expect("UTF-8"));
    let run = |command: &str, arguments: &[&str]| {
        let program = folder.join("target/release").join(command);
        let output = Command::new(program).args(arguments).output().expect("it was built");
        let [out, error] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{command} {arguments:?}: {error}");
        out
    };
    run("ks", &["build", script, "-o", plugin]);
    let inspected = run("ks-host", &["inspect", plugin]);
    for wanted in ["flow_dissector", "bpf_made_up"] {
        assert!(inspected.contains(wanted), "{wanted} is not in:\n{inspected}");
    }
    let printed = run("ks-host", &[plugin, "--allow", "all"]);
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert!(matches!(words[..], ["made", "up", one, other] if one == other), "{printed}");
}

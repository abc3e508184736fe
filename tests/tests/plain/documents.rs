//! Checks of the documents: the map shows the folders, the commands work, the dependencies match the drawing.

use std::collections::BTreeSet;
use std::process::Command;

use ks_host::policy::{Limit, Policy};
use ks_host::quantity;
use ks_tests::{blocks, finish, repository};

/// Returns the folders that git tracks, to the depth of the map.
fn folders() -> BTreeSet<String> {
    let listed = finish(Command::new("git").current_dir(repository()).args(["ls-files"]));
    assert_eq!(listed.code, 0, "{listed:#?}");
    let mut found = BTreeSet::new();
    for file in listed.stdout.lines() {
        let parts: Vec<&str> = file.split('/').collect();
        let folder = &parts[..parts.len() - 1];
        let hidden = folder.first().is_none_or(|top| top.starts_with('.'));
        if hidden {
            continue;
        }
        let crates = ["compiler", "host"];
        found.insert(folder[0].to_owned());
        if crates.contains(&folder[0]) && folder.len() > 1 {
            let inside = if folder[1] == "src" { folder.len().min(3) } else { 2 };
            if inside == 3 || folder[1] != "src" {
                found.insert(folder[..inside].join("/"));
            }
        }
    }
    found
}

#[test]
fn the_map_shows_the_folders() {
    let text = std::fs::read_to_string(repository().join("docs/architecture.md")).expect("readable");
    let (_, map) = text.split_once("## The map\n").expect("the page has a map");
    let (map, _) = map.split_once("\n## ").expect("the page goes on");
    let mapped: BTreeSet<String> = map
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(folder, _)| folder.to_owned())
        .collect();
    assert_eq!(mapped, folders(), "left: docs/architecture.md, right: the repository");
}

/// Returns the pages for users, with their texts.
fn pages() -> Vec<(String, String)> {
    let names = [
        "README",
        "docs/running",
        "docs/language",
        "docs/performance",
        "docs/recording",
        "docs/rust",
        "docs/system-calls",
        "docs/tools",
        "docs/tutorial",
        "docs/from-bpftrace",
        "docs/from-bcc",
        "SECURITY",
    ];
    let page = |name: &str| {
        let name = format!("{name}.md");
        let text = std::fs::read_to_string(repository().join(&name)).expect("readable");
        (name, text)
    };
    names.map(page).into()
}

/// Returns the pages for contributors, with their texts.
fn contributor_pages() -> Vec<(String, String)> {
    let recipes = std::fs::read_dir(repository().join("docs/contributing")).expect("readable");
    let recipes = recipes.map(|entry| entry.expect("readable").path());
    let names = ["CONTRIBUTING.md", "docs/testing.md"].map(|name| repository().join(name));
    let page = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("readable");
        (path.strip_prefix(repository()).expect("it lies below").display().to_string(), text)
    };
    names.into_iter().chain(recipes).map(page).collect()
}

#[test]
fn scripts_of_the_pages_compile_and_are_in_the_one_style() {
    let folder = ks_tests::Folder::new();
    let mut scripts = 0;
    for (name, text) in pages() {
        for block in blocks(&text, "kernelscript") {
            let file = folder.write("page.ks", block);
            let built = finish(ks_tests::command("ks").current_dir(folder.path("")).arg("build").arg(&file));
            assert_eq!((built.code, built.stderr.as_str()), (0, ""), "{name}: {block}{built:#?}");
            let styled = finish(ks_tests::command("ks").args(["fmt", "--check"]).arg(&file));
            assert_eq!(styled.code, 0, "{name}: {block}{styled:#?}");
            scripts += 1;
        }
    }
    assert!(scripts >= 7, "{scripts}");
}

/// Each block of TOML is a complete policy.
#[test]
fn policies_of_the_pages_are_read() {
    let folder = ks_tests::Folder::new();
    let script = folder.write("nothing.ks", "fn main() -> i32 {\n    return 0\n}\n");
    let mut policies = 0;
    for (name, text) in pages() {
        for block in blocks(&text, "toml") {
            let file = folder.write("policy.toml", block);
            let outcome = finish(ks_tests::command("ks-host").arg("--policy").args([&file, &script]));
            assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{name}: {outcome:#?}");
            policies += 1;
        }
    }
    assert!(policies >= 1, "{policies}");
}

/// Each limit stands in the policy of the page, with its default after "else".
#[test]
fn limits_of_the_page_have_the_defaults_of_the_host() {
    let page = std::fs::read_to_string(repository().join("docs/running.md")).expect("readable");
    let (_, limits) = page.split_once("\n[limits]\n").expect("a policy with limits");
    let default = |limit: Limit| {
        let name = limit.name();
        let line = limits.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
        let (_, text) = line.rsplit_once("else ").expect(name);
        match text.split_once(' ') {
            _ if text == "no limit" => u64::MAX,
            None => text.parse().expect(text),
            Some((number, unit)) => quantity::bytes(&format!("{number}{unit}")).expect(text),
        }
    };
    for limit in Limit::ALL {
        assert_eq!(Policy::nothing().limit(limit), default(limit), "{}", limit.name());
    }
}

/// `INSTA_UPDATE=always` writes the table.
#[test]
fn the_page_of_system_calls_is_made_from_the_filter() {
    let path = repository().join("docs/system-calls.md");
    let text = std::fs::read_to_string(&path).expect("readable");
    let (before, table) = text.split_once("| system calls |").expect("it has a table");
    let made = format!("{before}{}", ks_host::confine::system_calls());
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(path, made).expect("writable");
    } else if cfg!(target_arch = "x86_64") {
        assert_eq!(text, made, "INSTA_UPDATE=always writes the table: | system calls |{table}");
    }
}

/// The options of a script: the fields of `struct Args`, with their lines of documentation.
fn options(script: &str) -> Vec<String> {
    let Some((_, after)) = script.split_once("\nstruct Args {\n") else { return Vec::new() };
    let (fields, _) = after.split_once("\n}").expect("`ks fmt` wrote it");
    let mut help = String::new();
    let mut options = Vec::new();
    for line in fields.lines().map(str::trim) {
        match (line.strip_prefix("///"), line.split_once(':')) {
            (Some(text), _) => help.push_str(text.trim_end_matches('.')),
            (None, Some((name, _))) => options.push(format!("`--{name}`:{}", std::mem::take(&mut help))),
            (None, None) => {}
        }
    }
    options
}

/// `INSTA_UPDATE=always` writes the table.
#[test]
fn the_page_of_tools_is_made_from_them() {
    let path = repository().join("docs/tools.md");
    let text = std::fs::read_to_string(&path).expect("readable");
    let heading = "|---|---|---|---|\n";
    let (before, table) = text.split_once(heading).expect("it has a table");
    let listed = finish(ks_tests::command("ks-host").args(["tools", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let rows = listed.as_array().expect("a list").iter().map(|tool| {
        let text = |member: &str| tool[member].as_str().expect("text").to_owned();
        let script = finish(ks_tests::command("ks-host").args(["tools", &text("name"), "--source"]));
        let attached = tool["attached"].as_array().expect("a list").iter();
        let attached: Vec<String> =
            attached.map(|one| format!("`{}`", one.as_str().expect("text"))).collect();
        format!(
            "| `{}` | {} | {} | {} |\n",
            text("name"),
            text("shows"),
            options(&script.stdout).join("; "),
            attached.join(", ")
        )
    });
    let made = format!("{before}{heading}{}", rows.collect::<String>());
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(path, made).expect("writable");
    } else {
        assert_eq!(text, made, "INSTA_UPDATE=always writes the table: {table}");
    }
}

#[test]
fn links_of_the_pages_lead_somewhere() {
    let mut links = 0;
    for (name, text) in pages().into_iter().chain(contributor_pages()) {
        let folder = repository().join(&name);
        let folder = folder.parent().expect("a file lies in a folder");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(folder.join(target).exists(), "{name} links to {target}");
            links += 1;
        }
    }
    assert!(links >= 5, "{links}");
}

/// Returns every indented command of a page that begins with `target/release/` or `make`.
fn commands(text: &str) -> Vec<String> {
    let command = |line: &str| {
        let line = line.trim_start_matches("$ ").trim();
        let line = line.split("  #").next().unwrap_or(line).trim();
        (line.starts_with("target/release/") || line.starts_with("make ")).then(|| line.to_owned())
    };
    text.lines()
        .filter(|line| line.starts_with("    ") || line.starts_with("$ "))
        .filter_map(|line| command(line.trim()))
        .collect()
}

/// Creates a folder that looks like the repository after a build, with the binaries of this build.
fn built_repository() -> ks_tests::Folder {
    let folder = ks_tests::Folder::new();
    let examples = repository().canonicalize().expect("it exists").join("examples");
    std::os::unix::fs::symlink(examples, folder.path("examples")).expect("the temporary folder is writable");
    std::fs::create_dir(folder.path("target")).expect("the temporary folder is writable");
    let release = ks_tests::binary("ks");
    let release = release.parent().expect("a binary lies in a folder");
    std::os::unix::fs::symlink(release, folder.path("target/release"))
        .expect("the temporary folder is writable");
    folder.write("hello.wasm", ks_tests::component("hello", HELLO, &[]).expect("it fits the world"));
    folder
}

/// A minimal stand-in for a plugin that cargo builds.
const HELLO: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "kernelscript:shared/load-64") (param i32) (result i64) unreachable)
    (func (export "run") (result i32) i32.const 0))"#;

/// Returns the help of a command and of each of its subcommands, by the command line.
fn helps(command: &str) -> Vec<(String, String)> {
    let help = |arguments: &[&str]| {
        let outcome = finish(ks_tests::command(command).args(arguments).arg("--help"));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
        outcome.stdout
    };
    let own = help(&[]);
    let (_, listed) = own.split_once("Commands:\n").expect("it has subcommands");
    let names = listed.lines().map_while(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() >= 5, "{names:?}");
    let mut helps: Vec<_> = names.iter().map(|name| (format!("{command} {name}"), help(&[name]))).collect();
    helps.insert(0, (command.to_owned(), own));
    helps
}

/// Runs every line below `Examples:` in the help of the commands, one after the other.
#[test]
fn root_every_example_of_the_help_works() {
    let folder = built_repository();
    for (name, help) in ["ks", "ks-host"].iter().flat_map(|name| helps(name)) {
        let Some((_, listed)) = help.split_once("Examples:\n") else {
            // Editors start it and speak its protocol; nobody types its command line.
            assert_eq!(name, "ks lsp", "has no examples");
            continue;
        };
        let mut examples = 0;
        for example in listed.lines().map_while(|line| line.strip_prefix("  ")) {
            assert!(example.starts_with(&name), "{name}: {example}");
            let line = format!("PATH=$PWD/target/release:$PATH; {example}");
            let outcome = finish(Command::new("sh").current_dir(folder.path("")).args(["-c", &line]));
            assert_eq!(outcome.code, 0, "{example}: {outcome:#?}");
            examples += 1;
        }
        assert!(examples > 0, "{name}");
    }
}

/// Runs the commands of each page one after the other in the repository, with the binaries of this build.
#[test]
fn root_every_command_of_the_pages_works() {
    let mut ran = 0;
    for (name, text) in pages() {
        let commands = commands(&text);
        ran += commands.len();
        run(&name, commands);
    }
    assert!(ran >= 20, "{ran}");
}

fn run(page: &str, commands: Vec<String>) {
    let folder = built_repository();
    for command in commands {
        if command.starts_with("make ") {
            // These make targets run the tests themselves, so the test only checks that they exist.
            let target = command.split_whitespace().nth(1).expect("a target follows make");
            let listed = finish(Command::new("make").current_dir(repository()).args(["-n", target]));
            assert_eq!(listed.code, 0, "{page}: {command}: {listed:#?}");
            continue;
        }
        let outcome = finish(Command::new("sh").current_dir(folder.path("")).args(["-c", &command]));
        assert_eq!(outcome.code, 0, "{page}: {command}: {outcome:#?}");
    }
}

/// The compiler is independent: it depends neither on wasmtime nor on libbpf. The host depends on the
/// compiler only for `ks-host SCRIPT.ks`, which can be disabled.
#[test]
fn crates_depend_only_downwards() {
    let tree = |package: &str, features: &str| {
        let outcome = finish(Command::new(env!("CARGO")).current_dir(repository()).args([
            "tree",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--no-default-features",
            "--features",
            features,
            "-p",
            package,
        ]));
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        let names = outcome.stdout.lines().filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let compiler = tree("ks-compiler", "language");
    assert!(compiler.contains("regalloc2"), "{compiler:?}");
    for forbidden in ["wasmtime", "libbpf-rs", "libbpf-sys", "libc", "ks-host"] {
        assert!(!compiler.contains(forbidden), "the compiler reaches {forbidden}");
    }
    let host = tree("ks-host", "plugins");
    assert!(host.contains("wasmtime") && host.contains("ks-compiler"), "{host:?}");
    let front_end = "annotate-snippets";
    assert!(compiler.contains(front_end), "{compiler:?}");
    assert!(!host.contains(front_end), "without scripts the host reaches the front end");
    let perf = tree("ks-host", "");
    assert!(perf.contains("nix") && !perf.contains("wasmtime") && !perf.contains("libbpf-rs"), "{perf:?}");
}

/// A recipe names every file to touch: a file that moved must be renamed there, too.
#[test]
fn files_and_targets_of_the_contributor_pages_exist() {
    let makefile = std::fs::read_to_string(repository().join("Makefile")).expect("readable");
    let pages = contributor_pages();
    assert!(pages.len() >= 10, "{} pages", pages.len());
    let mut paths = 0;
    for (name, text) in pages {
        let quoted = text.split('`').skip(1).step_by(2);
        let is_path = |token: &&str| {
            token.contains('/')
                && !token.starts_with(['/', '-', '.'])
                && token.chars().all(|char| char.is_ascii_alphanumeric() || "/._-".contains(char))
        };
        for path in quoted.filter(is_path) {
            assert!(repository().join(path).exists(), "{name} names {path}");
            paths += 1;
        }
        for line in blocks(&text, "sh").into_iter().flat_map(str::lines) {
            let Some(target) = line.strip_prefix("make ").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let is_rule = |line: &str| line.strip_prefix(target).is_some_and(|rest| rest.starts_with(':'));
            assert!(makefile.lines().any(is_rule), "{name} calls make {target}");
        }
    }
    assert!(paths > 100, "{paths} paths");
}

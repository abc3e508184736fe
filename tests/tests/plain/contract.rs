//! The contract from outside: a package for other tools, and a promise to plugins that are already built.

use std::path::{Path, PathBuf};

use ks_tests::{Folder, Outcome, command, finish, repository};
use wit_parser::Resolve;

/// `wasm-tools component wit` and `wkg wit build` read the folder in the same way.
#[test]
fn the_folder_is_a_package() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(repository().join("wit")).unwrap_or_else(|error| panic!("{error:#}"));
    let name = &resolve.packages[package].name;
    assert_eq!((name.namespace.as_str(), name.name.as_str()), ("kernelscript", "host"));
    let version = name.version.as_ref().expect("it has a version").to_string();
    assert_eq!(name.to_string(), ks_wit::CONTRACT);
    let text = std::fs::read_to_string(repository().join("wit/README.md")).expect("readable");
    assert!(text.contains(&format!("\n### {version}\n")), "wit/README.md says what changed in {version}");
    let binary = wit_component::encode(&resolve, package).unwrap_or_else(|error| panic!("{error:#}"));
    let decoded = wit_component::decode(&binary).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(decoded.resolve().worlds.iter().any(|(_, world)| world.name == "plugin"));
}

/// What later work stands on is drafted as part of the package, behind features: it fits the contract, and no host
/// has it.
#[test]
fn drafts_fit_the_contract_and_are_part_of_none() {
    let folder = Folder::new();
    let mut drafts = 0;
    for from in ["wit", "wit/drafts"] {
        for entry in std::fs::read_dir(repository().join(from)).expect("the folder is there") {
            let path = entry.expect("readable").path();
            if path.extension().is_some_and(|extension| extension == "wit") {
                let text = std::fs::read(&path).expect("readable");
                folder.write(&path.file_name().expect("a file").to_string_lossy(), text);
                drafts += usize::from(from == "wit/drafts");
            }
        }
    }
    let read = |path: &Path| {
        let mut resolve = Resolve { all_features: true, ..Resolve::default() };
        let (package, _) = resolve.push_dir(path).unwrap_or_else(|error| panic!("{error:#}"));
        wit_component::encode(&resolve, package).unwrap_or_else(|error| panic!("{error:#}"));
        resolve
    };
    let (with_drafts, served) = (read(&folder.path("")), read(&repository().join("wit")));
    assert_eq!(with_drafts.interfaces.len(), served.interfaces.len() + drafts);
    for (_, interface) in &with_drafts.interfaces {
        let is_draft = matches!(interface.stability, wit_parser::Stability::Unstable { .. });
        let name = interface.name.as_deref().expect("a name");
        let is_served = served.interfaces.iter().any(|(_, one)| one.name.as_deref() == Some(name));
        assert_ne!(is_draft, is_served, "{name}");
    }
    assert!(drafts >= 4, "{drafts}");
}

/// An item without a version, or with an unreleased version, would be a change that nobody can refer to.
#[test]
fn every_item_says_since_when_it_is_there() {
    let folder = std::fs::read_dir(repository().join("wit")).expect("the folder is there");
    let mut found = 0;
    for file in folder.map(|entry| entry.expect("readable").path()) {
        if file.extension().is_none_or(|extension| extension != "wit") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("readable");
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let items = ["interface ", "world ", "record ", "variant ", "enum ", "flags ", "resource "];
        for (index, line) in lines.iter().enumerate().skip(1) {
            let is_item = items.iter().any(|item| line.starts_with(item)) || line.contains(": func(");
            if is_item && !line.starts_with("export ") && !line.starts_with("//") {
                assert!(lines[index - 1].starts_with("@since("), "{}:{}: {line}", file.display(), index + 1);
                found += 1;
            }
        }
    }
    assert!(found > 100, "{found}");
}

/// Returns the stored plugins in a language, `LANGUAGE-VERSION.wasm`. Those in Rust are `tests/guests/rust` of their
/// time, with the object of `tests/tests/toolchains/guest_rust.rs` in it, the others `examples/guests`.
fn stored(language: &str) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(repository().join("tests/plugins")).expect("the folder is there");
    let files = folder.map(|entry| entry.expect("readable").path());
    let is_of = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{language}-")))
    };
    let files: Vec<_> = files.filter(is_of).collect();
    assert!(!files.is_empty(), "there are no stored plugins of {language}");
    files
}

#[test]
fn root_plugins_that_are_built_keep_working() {
    for file in stored("rust") {
        let run = |argument: &str| {
            let outcome = finish(command("ks-host").arg("--no-cache").arg(&file).arg("--").arg(argument));
            assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{}: {outcome:#?}", file.display());
            outcome
        };
        let counted = run("count");
        assert!(counted.numbers("faults")[0] >= 64 && counted.numbers("group") == [2, 0, 1], "{counted:#?}");
        let ran = run("kernel");
        let [faults, seen] = ran.numbers("faults")[..] else { panic!("two numbers: {ran:#?}") };
        assert!(faults >= 64 && seen == faults + 100, "{}: {faults} {seen}", file.display());
    }
    for file in [stored("c"), stored("script")].concat() {
        let mut host = command("ks-host");
        let ran = finish(host.args(["--no-cache", "--timeout", "1.3", "--allow", "all"]).arg(&file));
        assert_eq!(ran.code, 124, "{}: {ran:#?}", file.display());
        let counts = ran.numbers("1");
        assert!(counts.len() == 6 && counts[1] > 0, "{}: {ran:#?}", file.display());
    }
}

/// Runs a plugin that was built against this version of the contract, and only reads the clock.
fn run_built_against(version: &str) -> Outcome {
    let text = format!(
        r#"(component
            (import "kernelscript:host/clock@{version}" (instance $clock (export "now" (func (result u64)))))
            (core func $now (canon lower (func $clock "now")))
            (core module $module
                (import "clock" "now" (func $now (result i64)))
                (memory (export "memory") 1)
                (func (export "run") (result i32)
                    (i32.store8 (i32.const 0) (i64.eqz (call $now)))
                    (i32.const 0)))
            (core instance $instance
                (instantiate $module (with "clock" (instance (export "now" (func $now))))))
            (func $run (result (result (error u8)))
                (canon lift (core func $instance "run") (memory $instance "memory")))
            (export "run" (func $run)))"#
    );
    let folder = Folder::new();
    let plugin = folder.write("plugin.wasm", wat::parse_str(text).expect("it is a component"));
    finish(command("ks-host").arg("--no-cache").arg(plugin))
}

/// Within a minor version the contract only grows: a plugin that uses nothing newer also runs on an older
/// host.
#[test]
fn other_versions_of_a_minor_version_are_served() {
    for version in ["0.2.0", "0.2.7"] {
        let outcome = run_built_against(version);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{version}: {outcome:#?}");
    }
}

#[test]
fn a_version_that_is_not_supported_is_reported() {
    for version in ["0.1.0", "0.3.0", "1.0.0"] {
        let outcome = run_built_against(version);
        assert_eq!(outcome.code, 127, "{outcome:#?}");
        let expected = format!(
            "was built against kernelscript:host@{version}; this host serves {}\n  do: ",
            ks_wit::CONTRACT
        );
        assert!(outcome.stderr.contains(&expected), "{outcome:#?}");
    }
}

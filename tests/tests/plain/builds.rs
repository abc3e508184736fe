//! Shared compilation of the builds: `make run`, `make test` and `make bench` compile each dependency once.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use ks_tests::{finish, repository};

/// Returns the features with which a build compiles each package, by its name and version. A package that
/// build scripts also use may have others there.
fn resolved(edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let outcome = finish(Command::new(env!("CARGO")).current_dir(repository()).args([
        "tree",
        "--locked",
        "--offline",
        "--workspace",
        "--edges",
        edges,
        "--prefix",
        "none",
        "--no-dedupe",
        "--format",
        "{p}|{f}",
    ]));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let mut packages = BTreeMap::<_, BTreeSet<_>>::new();
    // Empty lines separate the packages of the workspace.
    for line in outcome.stdout.lines().filter(|line| !line.is_empty()) {
        // Cargo marks a package that it has listed before with `(*)`.
        let (package, features) = line.trim_end_matches(" (*)").split_once('|').expect("as the format says");
        packages.entry(package.to_owned()).or_default().insert(features.to_owned());
    }
    packages
}

/// `make run` builds two commands of the workspace, `make test` everything with its tests; cargo unifies the
/// features that all packages of a build ask for. A dependency that got one more feature from test-only code
/// would be compiled twice.
#[test]
fn tests_and_runs_compile_dependencies_with_the_same_features() {
    let (run, test) = (resolved("normal,build"), resolved("normal,build,dev"));
    assert!(run.len() >= 200 && test.len() >= run.len(), "{} and {} packages", run.len(), test.len());
    let parted: Vec<String> = run
        .iter()
        .filter(|(package, features)| test.get(*package) != Some(features))
        .map(|(package, features)| format!("{package}: {features:?}, in tests {:?}", test.get(package)))
        .collect();
    assert!(
        parted.is_empty(),
        "give these a normal dependency with the features of the tests in tests/Cargo.toml:\n{}",
        parted.join("\n")
    );
}

//! `examples/guests`: the same plugin in every language, built and run by the commands of its README, and run
//! on one record. These tests need root, and the tools of the languages (`make test-packages`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use ks_host::Host;
use ks_host::plugin::{Cache, Outcome as End};
use ks_tests::growth::run_on_larger_host;
use ks_tests::{Folder, Outcome, binary, command, finish, finish_within, guests, repository};

/// Replaces `ks-host` in the command lines of a README, so that a run ends.
const LIMITED: &str = "ks-host --cache cache --timeout 2.3 ";

/// A recorded run of the script, and its output.
static RECORD: LazyLock<(Vec<u8>, String)> = LazyLock::new(|| {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut host = command("ks-host");
    host.args(["--no-cache", "--timeout", "3.3", "--record"]).arg(&record);
    let real = finish(host.arg(repository().join("examples/guests/ks/switches.ks")));
    assert_eq!(real.code, 124, "{real:#?}");
    assert_eq!(real.stdout.lines().count(), 4, "{real:#?}");
    (std::fs::read(record).expect("it was written"), real.stdout)
});

/// A copy of `examples/guests` next to the contract, as in the repository.
struct Guests(Folder);

impl Guests {
    fn copy() -> Guests {
        let folder = Folder::new();
        let root = repository().canonicalize().expect("it exists");
        std::os::unix::fs::symlink(root.join("wit"), folder.path("wit")).expect("writable");
        std::fs::create_dir(folder.path("examples")).expect("writable");
        let mut copy = Command::new("cp");
        let copied = finish(copy.arg("-r").arg(root.join("examples/guests")).arg(folder.path("examples")));
        assert_eq!(copied.code, 0, "{copied:#?}");
        Guests(folder)
    }

    fn path(&self, language: &str) -> PathBuf {
        self.0.path("examples/guests").join(language)
    }

    /// Runs the three commands of a language's README, with these folders first in the search path, and then
    /// the plugin that they built, on the record.
    fn build_run_and_replay(&self, language: &str, tools: &[PathBuf]) {
        let readme = std::fs::read_to_string(self.path(language).join("README.md")).expect("it has a README");
        let commands: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        let [make, build, run] = commands[..] else { panic!("{language}: three commands: {commands:?}") };
        for command in [make, build] {
            let outcome = self.shell(language, command, tools);
            assert_eq!(outcome.code, 0, "{language}: {command}: {outcome:#?}");
        }
        let run = run.replace("ks-host ", LIMITED);
        // A CPU that one process computes on for seconds switches to nothing: this one wakes up on it.
        let mut wakes = Command::new("taskset");
        let wakes = wakes.args(["-c", "0", "sh", "-c", "for i in $(seq 1000); do sleep 0.01; done"]).spawn();
        let mut wakes = wakes.expect("taskset and sh are there");
        let real = self.shell(language, &run, tools);
        let _ = wakes.kill().and_then(|()| wakes.wait());
        assert_eq!(real.code, 124, "{language}: {real:#?}");
        let counts = real.numbers("1");
        assert!(counts.len() == 6 && counts[1] > 0 && counts[2] >= 0, "{language}: {real:#?}");

        let (record, table) = &*RECORD;
        std::fs::write(self.path(language).join("record.jsonl"), record).expect("writable");
        let replay = "ks-host replay --cache cache --any-order switches.wasm record.jsonl";
        let again = self.shell(language, replay, tools);
        assert_eq!((again.code, &again.stdout, again.stderr.as_str()), (124, table, ""), "{language}");
        self.run_on_larger_host(language);
    }

    /// Runs the plugin on a host that offers more than the contract had when the plugin was built.
    fn run_on_larger_host(&self, language: &str) {
        let folder = self.path(language);
        let cache = Cache::open(&folder.join("cache")).expect("the runs before made it");
        let host = Host::new().expect("an engine").with_cache(cache);
        let file = std::fs::read(folder.join("switches.wasm")).expect("it was built");
        let ran =
            run_on_larger_host(host, file, |options| options.timeout = Some(Duration::from_millis(1300)));
        assert_eq!(ran.outcome, End::TimedOut, "{language}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.lines().any(|line| line.trim().starts_with("1 ")), "{language}: {}", ran.stdout);
    }

    fn shell(&self, language: &str, line: &str, tools: &[PathBuf]) -> Outcome {
        let commands = binary("ks").parent().expect("a binary lies in a folder").to_owned();
        let own: Vec<PathBuf> = tools.iter().cloned().chain([commands]).collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)));
        let mut shell = Command::new("sh");
        shell
            .current_dir(self.path(language))
            .env("PATH", path.expect("no folder has a colon"))
            .args(["-c", line]);
        finish_within(&mut shell, Duration::from_secs(900))
    }
}

/// Returns the folder of a language's tools, or none where they are unavailable, which CI does not accept.
fn tools(language: &str) -> Option<PathBuf> {
    let script = repository().join("scripts/guest-tools");
    let found = finish_within(Command::new(script).arg(language), Duration::from_secs(600));
    if found.code == 0 {
        return Some(PathBuf::from(found.stdout.trim()));
    }
    assert!(std::env::var_os("CI").is_none(), "the tools of {language} cannot be had: {found:#?}");
    eprintln!("NOT TESTED: plugins in {language}: {}", found.stderr);
    None
}

#[test]
fn root_the_plugin_is_a_script() {
    Guests::copy().build_run_and_replay("ks", &[]);
}

#[test]
fn root_the_plugin_is_written_in_rust() {
    let guests = Guests::copy();
    let rust = guests.path("rust");
    let root = repository().canonicalize().expect("it exists");
    let manifest = std::fs::read_to_string(rust.join("Cargo.toml")).expect("readable");
    let sdk = root.join("guest-sdk").display().to_string();
    std::fs::write(rust.join("Cargo.toml"), manifest.replace("../../../guest-sdk", &sdk)).expect("writable");
    // Cargo's output is kept for the next run.
    std::os::unix::fs::symlink(guests::target_folder(), rust.join("target")).expect("writable");
    let cargo = root.join("scripts/guest-cargo").display().to_string();
    script(
        &rust.join("tools/cargo"),
        &format!("unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS\nexec '{cargo}' \"$@\" --locked"),
    );
    guests.build_run_and_replay("rust", &[rust.join("tools")]);
}

#[test]
fn root_the_plugin_is_written_in_c() {
    let have = finish(Command::new("sh").args(["-c", "command -v clang && command -v wasm-ld"]));
    if have.code != 0 {
        assert!(
            std::env::var_os("CI").is_none(),
            "clang is missing, which `scripts/packages clang-wasm` installs"
        );
        eprintln!("NOT TESTED: plugins in C: `scripts/packages clang-wasm` installs what they need");
        return;
    }
    Guests::copy().build_run_and_replay("c", &[]);
}

#[test]
fn root_the_plugin_is_written_in_python() {
    let Some(tools) = tools("python") else { return };
    Guests::copy().build_run_and_replay("python", &[tools]);
}

#[test]
fn root_the_plugin_is_written_in_javascript() {
    let Some(modules) = tools("javascript") else { return };
    let guests = Guests::copy();
    std::os::unix::fs::symlink(modules, guests.path("javascript").join("node_modules")).expect("writable");
    guests.build_run_and_replay("javascript", &[]);
}

/// The generated files equal those of `wit-bindgen c wit --world plugin`. `INSTA_UPDATE=always` makes them again.
#[test]
fn the_bindings_for_c_are_those_of_the_contract() {
    use wit_bindgen_core::{Files, wit_parser::Resolve};
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(repository().join("wit")).unwrap_or_else(|error| panic!("{error:#}"));
    let world = resolve.select_world(&[package], Some("plugin")).expect("the package has it");
    let mut files = Files::default();
    let mut generator = wit_bindgen_c::Opts::default().build();
    generator.generate(&mut resolve, world, &mut files).unwrap_or_else(|error| panic!("{error:#}"));
    let folder = repository().join("examples/guests/c");
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        for (name, bytes) in files.iter() {
            std::fs::write(folder.join(name), bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        return;
    }
    let mut built = 0;
    // The object has the same types in a form that changes with patch versions of the tool; linking compares
    // it with the others.
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with(".o")) {
        let stored = std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            stored == bytes,
            "{name} is not what wit-bindgen makes of the contract: see the README beside it"
        );
        built += 1;
    }
    assert_eq!(built, 2);
}

/// Writes an executable with one line of shell.
fn script(file: &Path, line: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(file.parent().expect("a file lies in a folder")).expect("writable");
    std::fs::write(file, format!("#!/bin/sh\n{line}\n")).expect("writable");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

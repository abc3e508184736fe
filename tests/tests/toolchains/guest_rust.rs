//! A plugin written in Rust with `ks-guest`, built by the installed tools, on the running kernel. These tests
//! need root.

use std::sync::LazyLock;

use ks_tests::{Folder, Outcome, allowed, command, compile, finish, guests, repository, run_plugin};

/// The kernel half that the plugin expects.
const SCRIPT: &str = include_str!("scripts/guest_rust.ks");

/// Returns the plugin with the object that `ks` compiles from the script; built once for all tests.
fn plugin() -> &'static [u8] {
    static PLUGIN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let built = compile("guest", SCRIPT);
        let object = guests::target_folder().join("guest.bpf.o");
        // An unchanged object must not cause a rebuild of the plugin.
        let elf = built.records().swap_remove(0).elf;
        if std::fs::read(&object).ok().as_ref() != Some(&elf) {
            std::fs::write(&object, elf).expect("the target folder is writable");
        }
        let folder = repository().join("tests/guests/rust");
        guests::rust(&folder, "guest.wasm", Some(("KS_GUEST_OBJECT", &object)))
    });
    &PLUGIN
}

fn run(argument: &str) -> Outcome {
    run_plugin("guest", plugin(), &[argument])
}

#[test]
fn root_a_group_counts_what_the_plugin_does() {
    let outcome = run("count");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert!(outcome.stdout.starts_with("event page_faults 100%\n"), "{outcome:#?}");
    assert_eq!(outcome.numbers("group"), [2, 0, 1], "{outcome:#?}");
    assert!((64..100_000).contains(&outcome.numbers("faults")[0]), "{outcome:#?}");
    assert_eq!(outcome.row("faults")[2..], ["true", "Counted"], "{outcome:#?}");
    assert_eq!(outcome.row("many")[1..], ["true"; 3], "{outcome:#?}");
    assert!(outcome.numbers("time")[0] > 0, "{outcome:#?}");
    assert_eq!((outcome.numbers("left"), outcome.row("slept")[1]), (vec![1], "true"), "{outcome:#?}");
    assert!(outcome.numbers("cpus")[0] > 0, "{outcome:#?}");
}

#[test]
fn root_programs_maps_rings_and_variables_are_typed() {
    let outcome = run("kernel");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let Outcome { stdout, .. } = &outcome;
    let [faults, counted] = outcome.numbers("faults")[..] else { panic!("{outcome:#?}") };
    assert!(faults >= 64 && counted == faults + 100, "the program ran at each fault: {outcome:#?}");
    assert_eq!(outcome.numbers("seen"), [counted], "{outcome:#?}");
    assert!(
        stdout.contains("triple [1, 2, 3]\ntriple [7, 8, 9]\nprogram guest_fault true\n"),
        "{outcome:#?}"
    );
    let row =
        "marked true [(Nested { outer: 4, inner: 1 }, 40)]\ninner true true false\nflat Some(Invalid)\n";
    assert!(stdout.contains(row), "{outcome:#?}");
    assert_eq!(outcome.numbers("entries"), [491, 491, 491], "{outcome:#?}");
    assert!(
        stdout.contains(
            "again Err(Busy)\nremoved true false\nabsent Err(NotFound)\ntaken Some(33) true\n\
             written 200 of 699\nremoved 200 then 0\ncleared 0\nfrozen true Err(NotPermitted)\n"
        ),
        "{outcome:#?}"
    );
    assert_eq!(outcome.row("cells"), ["cells", "true", &faults.to_string()], "{outcome:#?}");
    assert!(stdout.contains("sum 7 7\none of all Err(Invalid)\n"), "{outcome:#?}");
    assert!(stdout.contains("queue Some(5) Some(5) Some(6) None\n"), "{outcome:#?}");
    let row = format!("records Some(101) Some(102) {}\nin order true\nnone 0 lost Some(0)\n", faults - 1);
    assert!(stdout.contains(&row), "{row} {outcome:#?}");
}

#[test]
fn root_options_say_who_is_observed_and_when_it_starts() {
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later").as_secs();
    let before = now();
    let outcome = run("options");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("waits"), [0], "{outcome:#?}");
    assert!((64..100_000).contains(&outcome.numbers("runs")[0]), "{outcome:#?}");
    let event = r#"ListedEvent { name: "page_faults", perf_name: "page-faults", countable: true }"#;
    for line in [
        "ids true",
        "kernel ids true",
        "no program Err(Invalid)",
        "quarter true",
        "no period Err(Invalid)",
        &format!("listed Some({event})"),
        "slept until true",
    ] {
        assert!(outcome.stdout.lines().any(|one| one == line), "{line}: {outcome:#?}");
    }
    let wall_clock =
        outcome.stdout.lines().find_map(|line| line.strip_prefix("wall clock ")).expect("a line");
    assert!((before..=now()).contains(&wall_clock.parse().expect("a number")), "{outcome:#?}");
}

#[test]
fn root_losses_have_causes_names_and_numbers() {
    let outcome = run("losses");
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let lost = outcome.stdout.lines().find_map(|line| line.strip_prefix("ring ")).expect("a line");
    assert!(lost.starts_with("Some(") && lost != "Some(0)", "{outcome:#?}");
    for line in [
        format!("RingFull records false {lost}"),
        "MapFull seen false Some(0)".to_owned(),
        "Throttled page_faults true Some(0)".to_owned(),
    ] {
        assert!(outcome.stdout.lines().any(|one| one == line), "{line}: {outcome:#?}");
    }
    assert!(outcome.stderr.contains("ring buffer `records`"), "{outcome:#?}");
}

#[test]
fn root_types_that_do_not_match_the_object_are_refused() {
    let outcome = run("misfits");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let refused = |what: &str, differs: &str, object: &str, todo: &str| {
        format!("Invalid: {what}: {differs}\n  object: {object}\n  do: {todo}")
    };
    let members = "way: u32, open: bool, name: [u8; 16], ends.x: u16 (2 times, every 4 bytes), ends.y: i16 \
                   (2 times, every 4 bytes), bytes: u64";
    let flow = |differs: &str| {
        let todo = format!("give its struct these members, in this order: {members}");
        refused("a value of map `flows`", differs, "struct Flow, 40 bytes", &todo)
    };
    let seen = "give its struct these members, in this order: cpu: u32, number: u64";
    let expected = [
        refused("a key of map `seen`", "the object has `u32`, not `u64`", "u32, 4 bytes", "take it for u32"),
        refused("a key of map `seen`", "the object has `u32`, not `i32`", "u32, 4 bytes", "take it for u32"),
        refused(
            "a value of map `seen`",
            "the object has `struct Seen`, not `u32`",
            "struct Seen, 16 bytes",
            seen,
        ),
        "Invalid: map `cells` has a value for each CPU\n  do: open it as `PerCpuMap`".to_owned(),
        "Invalid: map `seen` has one value for all CPUs\n  do: open it as `Map`".to_owned(),
        refused("variable `counted`", "the object has `u64`, not `u32`", "u64, 8 bytes", "take it for u64"),
        refused(
            "variable `triple`",
            "the object has `[u32; 3]`, not `[u16; 6]`",
            "a type without a name, 12 bytes",
            "take it for [u32; 3]",
        ),
        "Invalid: map `line`: a value has 4 bytes in the plugin's object, its type here has 8\n  \
         do: open it with a type of 4 bytes"
            .to_owned(),
        flow("the object has `way: u32` at byte 0 where `Renamed` has `kind: u32` at byte 0"),
        flow("the object has `open: bool` at byte 4 where `NoTruth` has `open: u8` at byte 4"),
        flow("the object has `name: [u8; 16]` at byte 5 where `Short` has `name: [u8; 15]` at byte 5"),
        flow(
            "the object has `ends.y: i16 (2 times, every 4 bytes)` at byte 24 where `NoSign` has \
              `ends.y: u16 (2 times, every 4 bytes)` at byte 24",
        ),
        flow("the object has `bytes: u64` at byte 32, which `Missing` has not"),
        flow("`Added` has `more: u32` at byte 40, which the object has not"),
        refused(
            "a record of ring buffer `records`",
            "the object has `number: u64` at byte 8 where `Other` has `number: u32` at byte 4",
            "struct Seen, 16 bytes",
            seen,
        ),
        "Invalid: a record of ring buffer `records`: the plugin's object has no type `unseen`, which \
         `Unseen` is here\n  \
         do: name the struct as the programs do, and let BTF show it: \
         `struct unseen *unused __attribute__((unused));` in C"
            .to_owned(),
        "flow true".to_owned(),
        "ring true".to_owned(),
        "kept true".to_owned(),
    ];
    assert_eq!(outcome.stdout, expected.join("\n") + "\n", "{outcome:#?}");
}

#[test]
fn root_the_end_of_main_is_the_end_of_the_plugin() {
    let failed = run("fail");
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{failed:#?}");
    assert!(
        failed.stderr.starts_with("guest.wasm: ") && failed.stderr.contains("page_faults"),
        "{failed:#?}"
    );
    assert_eq!(run("code").code, 7);
    assert_eq!(run("nothing").code, 1);
}

/// The crate needs no `std`.
#[test]
fn root_a_plugin_without_std_counts() {
    let folder = Folder::new();
    let built = guests::rust(&repository().join("tests/guests/core"), "guest_core.wasm", None);
    let outcome = finish(command("ks-host").arg(folder.write("core.wasm", built)));
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    assert!(outcome.numbers("faults")[0] >= 16, "{outcome:#?}");
    assert!(outcome.stderr.contains("no event named `page_fault`"), "{outcome:#?}");
}

/// A kernel half in KernelScript is compiled with the plugin, which uses the script's types.
#[test]
fn root_a_kernel_half_goes_with_the_plugin() {
    let built = guests::rust(&repository().join("tests/guests/kernel"), "guest_kernel.wasm", None);
    let outcome = run_plugin::<&str>("kernel", &built, &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let faults = outcome.numbers("faults")[0];
    assert!(faults >= 64, "{outcome:#?}");
    assert_eq!(outcome.numbers("counted"), [2 * faults], "each was counted twice: {outcome:#?}");
    let rest = "last Some((3, Kind(2)))\nrecord Fault { cpu: 3, number: 2, kind: Kind(1) }\n\
                record Fault { cpu: 3, number: 4, kind: Kind(2) }\nfirst 1\n";
    assert!(outcome.stdout.ends_with(rest), "{outcome:#?}");

    // Config blocks have their defaults, or the values of the command line, until the plugin sets them.
    let paced = |outcome: &Outcome| outcome.numbers("paced")[0] / outcome.numbers("faults")[0];
    assert!(outcome.stdout.contains("pace 5 [1, 2] false\n"), "{outcome:#?}");
    assert_eq!(paced(&outcome), 2 * 5 + 2, "{outcome:#?}");
    let folder = Folder::new();
    let file = folder.write("kernel.wasm", &built);
    let said = ["--config", "pace.step=8", "--config", "pace.marks[1]=4"];
    let outcome = finish(allowed().args(said).arg(&file));
    assert!(outcome.code == 0 && outcome.stdout.contains("pace 8 [1, 4] false\n"), "{outcome:#?}");
    assert_eq!(paced(&outcome), 2 * 8 + 4, "{outcome:#?}");
    let outcome = finish(allowed().args(["--config", "pace.quiet=yes"]).arg(&file));
    assert_eq!((outcome.code, outcome.numbers("paced")), (0, vec![0]), "{outcome:#?}");
    let outcome = finish(allowed().args(["--config", "pace.steps=8"]).arg(&file));
    assert!(outcome.code != 0 && outcome.stderr.contains("did you mean `step`?"), "{outcome:#?}");
    let inspected = finish(command("ks-host").arg("inspect").arg(&file));
    assert!(
        inspected.stdout.contains("pace") && inspected.stdout.contains("What a fault counts for."),
        "{inspected:#?}"
    );
}

/// The project of `ks init rust` passes its tests, builds unchanged, and counts until it is stopped.
#[test]
fn root_the_template_of_ks_init_counts() {
    let folder = Folder::new();
    let started = guests::started(&folder.path(""), "ks-hello");
    let readme = std::fs::read_to_string(started.join("README.md")).expect("it is among the files");
    assert!(readme.contains("ks-host target/wasm32-unknown-unknown/release/ks_hello.wasm\n"), "{readme}");

    guests::rust_tests(&started);
    let file = folder.write("ks_hello.wasm", guests::rust(&started, "ks_hello.wasm", None));
    let outcome = finish(command("ks-host").args(["--timeout", "5"]).arg(file));
    assert_eq!(outcome.code, 124, "{outcome:#?}");
    let Some(line) = outcome.stdout.lines().next() else { panic!("a second has passed: {outcome:#?}") };
    let [faults, time] = line.split(" page faults in ").collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert!(faults.parse::<u64>().is_ok(), "{line}");
    assert!(
        time.strip_suffix(" ns").is_some_and(|time| time.parse::<u64>().is_ok_and(|time| time > 0)),
        "{line}"
    );
}

/// Obstacles are reported before anything is written.
#[test]
fn ks_init_rust_refuses_what_cannot_be_built() {
    let folder = Folder::new();
    let init = |arguments: &[&str]| {
        let outcome = finish(command("ks").current_dir(folder.path("")).arg("init").args(arguments));
        assert_eq!(outcome.code, 1, "{outcome:#?}");
        outcome.stderr
    };
    assert!(init(&["rust", "std"]).contains("cargo reserves it"));
    assert!(init(&["rust", "two words"]).contains("letters, digits"));
    assert!(init(&["rust", "hello", "--sdk", "nowhere"]).contains("the crate ks-guest is not in nowhere"));
    assert!(init(&["xdp", "hello", "--sdk", "nowhere"]).contains("ks init rust NAME"));
    assert!(!folder.path("hello").exists() && !folder.path("std").exists());
}

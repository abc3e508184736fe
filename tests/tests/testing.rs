//! `ks test` and `ks-host test`: every `@test` function in an instance of its own, reported by name.

use ks_tests::{Folder, Outcome, command, finish};

const TESTS: &str = r#"
var seen : hash<u32, u64>(8)
var runs : u64 = 0

fn double(n: u64) -> u64 {
    return n + n
}

@test
fn writes_the_map() -> i32 {
    seen[1] = double(4)
    runs += 1
    if (seen[1] != 8) {
        return 1
    }
    return 0
}

@test
fn sees_nothing_of_another_test() -> i32 {
    runs += 1
    if (seen[1]) {
        return 1
    }
    if (runs != 1) {
        return 2
    }
    return 0
}

@test
fn returns_three() -> u32 {
    print("what it printed")
    return 3
}

@test
fn throws_nine() -> i32 {
    throw 9
}

@test
fn traps() -> i32 {
    var a: u32[4] = [7]
    var i: u32 = 9
    if (time_ns() == 0) {
        i = 1
    }
    return a[i]
}

fn main() -> i32 {
    return 5
}
"#;

fn test(args: &[&str], name: &str, script: &str) -> Outcome {
    let folder = Folder::new();
    let file = folder.write(name, script);
    finish(command("ks").arg("test").arg(file).args(args))
}

#[test]
fn root_every_test_runs_in_an_instance_of_its_own() {
    let ran = test(&[], "several.ks", TESTS);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "running 5 tests of several");
    assert!(lines[1].starts_with("test writes_the_map ... ok ("), "{ran:#?}");
    assert!(lines[2].starts_with("test sees_nothing_of_another_test ... ok ("), "{ran:#?}");
    assert!(lines[3].starts_with("test returns_three ... FAILED at line "), "{ran:#?}");
    assert_eq!(lines[4..6], ["    it returned 3", "    what it printed"], "{ran:#?}");
    assert!(lines[6].starts_with("test throws_nine ... FAILED"), "{ran:#?}");
    assert!(ran.stdout.contains("uncaught error 9 at several.ks:"), "{ran:#?}");
    assert!(ran.stdout.contains("test traps ... FAILED"), "{ran:#?}");
    assert!(lines.last().is_some_and(|line| line.starts_with("2 passed, 3 failed, in ")), "{ran:#?}");
}

#[test]
fn root_a_filter_chooses_and_json_is_for_tools() {
    let ran = test(&["--json", "map"], "chosen.ks", TESTS);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:#?}");
    let [line] = ran.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{ran:#?}") };
    let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&object["test"], &object["passed"]), (&"writes_the_map".into(), &true.into()), "{object}");
    assert!(object["time_ns"].as_u64().is_some_and(|time| time > 0), "{object}");
}

#[test]
fn a_script_without_tests_and_a_plugin_without_tests_are_refused() {
    let none = test(&[], "none.ks", "fn main() -> i32 {\n    return 0\n}\n");
    assert_eq!(none.code, 1, "{none:#?}");
    assert!(none.stderr.contains("KS0522"), "{none:#?}");
    let folder = Folder::new();
    let script = folder.write("plain.ks", "fn main() -> i32 {\n    return 0\n}\n");
    let plugin = folder.path("plain.wasm");
    assert_eq!(finish(command("ks").arg("build").arg(script).arg("-o").arg(&plugin)).code, 0);
    let ran = finish(command("ks-host").arg("test").arg(&plugin));
    assert_eq!(ran.code, 127, "{ran:#?}");
    assert!(ran.stderr.contains("holds no tests"), "{ran:#?}");
}

#[test]
fn a_plugin_of_tests_is_not_run_by_mistake() {
    let folder = Folder::new();
    let script = folder.write("tests.ks", "@test\nfn passes() -> i32 {\n    return 0\n}\n");
    let plugin = folder.path("tests.wasm");
    let built = finish(command("ks").args(["build", "--test"]).arg(script).arg("-o").arg(&plugin));
    assert_eq!((built.code, built.stderr.as_str()), (0, ""), "{built:#?}");
    let ran = finish(command("ks-host").arg(&plugin));
    assert_eq!(ran.code, 125, "{ran:#?}");
    assert!(ran.stderr.contains("holds tests, which `ks-host test` runs"), "{ran:#?}");
    let passed = finish(command("ks-host").arg("test").arg(&plugin));
    assert_eq!(passed.code, 0, "{passed:#?}");
}

#[test]
fn a_test_that_does_not_end_fails() {
    let folder = Folder::new();
    let script = folder.write("slow.ks", "@test\nfn waits() -> i32 {\n    sleep(600000)\n    return 0\n}\n");
    let ran = finish(command("ks-host").args(["test", "--timeout", "0.2"]).arg(script));
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(ran.stdout.contains("it ran longer than 0.2 s"), "{ran:#?}");
}

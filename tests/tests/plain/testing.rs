//! `ks test` and `ks-host test`: every `@test` function in an instance of its own, reported by name.

use ks_tests::{Folder, Outcome, command, finish};

const TESTS: &str = include_str!("scripts/testing_tests.ks");

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
fn root_ks_test_passes_permissions_to_the_tests() {
    let script =
        "pin var m : hash<u32, u64>(8)\n@test\nfn writes_a_pin() -> i32 {\n    m[1] = 2\n    return 0\n}\n";
    let denied = test(&[], "pinning.ks", script);
    assert!(denied.code != 0, "{denied:#?}");
    let said = format!("{}{}", denied.stdout, denied.stderr);
    assert!(said.contains("--allow pin=pinning/maps/m"), "{denied:#?}");
    let allowed = test(&["--allow", "pin=pinning/maps/*"], "pinning.ks", script);
    let said = format!("{}{}", allowed.stdout, allowed.stderr);
    assert!(!said.contains("the policy does not allow"), "{allowed:#?}");
    let slow = test(&["--timeout", "1"], "slow.ks", "@test\nfn waits() -> i32 {\n    while (true) { }\n}\n");
    assert!(slow.code == 1 && slow.stdout.contains("test waits ... FAILED"), "{slow:#?}");
    let refused = test(&["--limit", "nothing=1"], "one.ks", "@test\nfn one() -> i32 {\n    return 0\n}\n");
    assert!(refused.code != 0 && refused.stderr.contains("nothing"), "{refused:#?}");
}

/// The globals hold the bytes of the packet that the program of [`PACKETS`] read.
const PACKETS: &str = r#"
struct Sized { packet_size: u32 }
struct Named { ingress_ifindex: u32, data: u8[16] }

var length : u64 = 0
var first : u64 = 0
var origin : u64 = 0

@xdp
fn looks(ctx: *xdp_md) -> xdp_action {
    length = ctx->data_end - ctx->data
    origin = ctx->ingress_ifindex
    first = *ctx->data
    if (length < 100) {
        return XDP_DROP
    }
    return XDP_PASS
}

@test
fn the_packet_has_the_size_that_is_said() -> i32 {
    var action = test(looks, Sized { packet_size: 500 })
    if (length != 500 || action != XDP_PASS) {
        return 1
    }
    action = test(looks, Sized { packet_size: 60 })
    if (length != 60 || action != XDP_DROP) {
        return 2
    }
    return 0
}

@test
fn bytes_and_interface_are_those_that_are_said() -> i32 {
    if (test(looks, Named { ingress_ifindex: 1, data: [69] }) != XDP_PASS) {
        return 1
    }
    if (length != 1500 || first != 69 || origin != 1) {
        return 2
    }
    return 0
}

@test
fn a_string_is_a_packet() -> i32 {
    var action = test(looks, "\x45\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e")
    if (length != 16 || first != 69 || action != XDP_DROP) {
        print("%u bytes, the first %u", length, first)
        return 1
    }
    return 0
}

@test
fn too_short() -> i32 {
    test(looks, Sized { packet_size: 13 })
    return 0
}
"#;

#[test]
fn root_lf_111_a_test_runs_a_program_on_the_packet_it_describes() {
    let ran = test(&[], "packets.ks", PACKETS);
    assert_eq!(ran.code, 1, "{ran:#?}");
    for name in [
        "the_packet_has_the_size_that_is_said",
        "bytes_and_interface_are_those_that_are_said",
        "a_string_is_a_packet",
    ] {
        assert!(ran.stdout.contains(&format!("test {name} ... ok (")), "{ran:#?}");
    }
    assert!(ran.stdout.contains("test too_short ... FAILED"), "{ran:#?}");
    assert!(ran.stdout.contains("on a packet of 13 bytes: it has 14 to 65536"), "{ran:#?}");
    assert!(ran.stdout.contains("3 passed, 1 failed"), "{ran:#?}");
    let outside = PACKETS.replacen("@test\nfn too_short", "fn main", 1);
    let refused = test(&[], "outside.ks", &outside);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:#?}");
    assert!(refused.stderr.contains("KS0306"), "{refused:#?}");
}

#[test]
fn root_a_filter_chooses_and_json_is_for_tools() {
    let ran = test(&["--json", "map"], "chosen.ks", TESTS);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:#?}");
    let [line] = ran.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{ran:#?}") };
    let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&object["test"], &object["passed"]), (&"writes_the_map".into(), &true.into()), "{object}");
    assert!(object["time_ns"].as_u64().is_some_and(|time| time > 0), "{object}");
    let none = test(&["nosuchtest"], "chosen.ks", TESTS);
    assert_eq!((none.code, none.stdout.as_str()), (1, ""), "{none:#?}");
    assert!(none.stderr.contains("has `nosuchtest` in its name"), "{none:#?}");
    assert!(none.stderr.contains("its tests are ") && none.stderr.contains("writes_the_map"), "{none:#?}");
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

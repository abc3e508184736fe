//! Maps of maps, beside what bpftool reads from the kernel, and within the limits of a policy. These tests need root.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use ks_tests::watched::Running;
use ks_tests::{Folder, allowed, command, compile, finish, wait_until_gone};
use serde_json::Value as Json;

const SHOWN: &str = include_str!("scripts/inner_maps_shown.ks");

/// Returns the answer of bpftool.
fn bpftool(arguments: &[&str]) -> Json {
    let outcome = finish(Command::new("bpftool").arg("-j").args(arguments));
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:#?}"))
}

/// Returns the number of the bytes in an answer of bpftool, least significant first.
fn number(bytes: &Json) -> u64 {
    let bytes = bytes.as_array().expect("a list of bytes").iter();
    let byte = |byte: &Json| {
        let text = byte.as_str().expect("a byte").trim_start_matches("0x").to_owned();
        u64::from_str_radix(&text, 16).expect("a byte")
    };
    bytes.rev().fold(0, |number, one| number << 8 | byte(one))
}

/// Returns the entries of a map: both keys, or key and value.
fn dumped(id: u64) -> Vec<(u64, u64)> {
    let dumped = bpftool(&["map", "dump", "id", &id.to_string()]);
    let entries = dumped.as_array().expect("a list of entries").iter();
    entries.map(|entry| (number(&entry["key"]), number(&entry["value"]))).collect()
}

/// Returns the entries of all inner maps, by both keys, as bpftool reads them. The value in an outer map is the number of
/// an inner one.
fn entries(outer: &str) -> BTreeMap<(u64, u64), u64> {
    let shown = bpftool(&["map", "show"]);
    let is_outer = |map: &&Json| {
        map["name"] == outer && map["type"].as_str().is_some_and(|kind| kind.ends_with("_of_maps"))
    };
    let map = shown.as_array().expect("a list of maps").iter().find(is_outer);
    let id = map.and_then(|map| map["id"].as_u64()).unwrap_or_else(|| panic!("{outer}: {shown}"));
    let inner = dumped(id).into_iter();
    inner
        .flat_map(|(key, id)| dumped(id).into_iter().map(move |(index, value)| ((key, index), value)))
        .collect()
}

/// Both halves wrote to these maps.
#[test]
fn root_inner_maps_hold_what_both_halves_wrote() {
    for isolation in ["thread", "process"] {
        let mut host = allowed();
        host.args(["--timeout", "60", "--isolation", isolation]);
        let running = Running::begin(host, "ksshown", SHOWN, &[""; 0], "ready");
        let (groups, slots) = (entries("ksgroups"), entries("ksslots"));
        let outcome = running.stop();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{isolation}: {outcome:#?}");
        assert_eq!(groups, BTreeMap::from([((7, 3), 5), ((8, 1), 6)]), "{isolation}");
        let expected = [((0, 0), 0), ((0, 1), 4), ((1, 0), 9), ((1, 1), 0)];
        assert_eq!(slots, BTreeMap::from(expected), "{isolation}");
        for row in ["7", "8"] {
            assert!(outcome.stdout.lines().any(|line| line.trim_start().starts_with(row)), "{outcome:#?}");
        }
        wait_until_gone("ksgroups");
    }
}

/// A process that has the descriptor of an outer map could put any map there that it has.
#[test]
fn root_a_worker_has_no_descriptor_of_outer_or_inner_maps() {
    let mut host = allowed();
    host.args(["--timeout", "60", "--isolation", "process"]);
    let script = SHOWN.replace("ksgroups", "kswithin").replace("ksslots", "kswithins");
    let running = Running::begin(host, "kswithin", &script, &[""; 0], "ready");
    let workers: Vec<_> = fs::read_dir("/proc")
        .expect("procfs is mounted")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("ks:kswithin"))
        })
        .collect();
    assert_eq!(workers.len(), 1, "{workers:?}");
    let facts = fs::read_dir(workers[0].join("fdinfo")).expect("root may list it");
    let facts = facts.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let maps: Vec<String> = facts.filter(|facts| facts.contains("map_type")).collect();
    assert!(maps.is_empty(), "{maps:?}");
    assert_eq!(running.stop().code, 0);
}

/// Every inner map counts as a map, with its bytes, whoever creates it.
#[test]
fn root_inner_maps_count_in_the_limits() {
    let folder = Folder::new();
    let script = "var ksmany : hash<u32, hash<u32, u64>(1024)>(64)
        fn main() -> i32 {
            for (i in 0..20) {
                ksmany.create(i as u32)
            }
            ksmany[21][1] = 3
            print(\"{} {} {}\", ksmany[0] != null, ksmany[19] != null, ksmany[21] != null)
            delete ksmany[0]
            ksmany[21][1] = 3
            print(\"{} {}\", ksmany[0] != null, ksmany[21][1])
            return 0
        }";
    let file = folder.write("ksmany.wasm", compile("ksmany", script).plugin);
    let run = |limit: &str| finish(command("ks-host").args(["--limit", limit]).arg(&file));
    let all = run("maps=100");
    assert_eq!((all.code, all.stdout.as_str(), all.stderr.as_str()), (0, "true true true\nfalse 3\n", ""));
    // Room for some of the 20.
    for limit in ["maps=12", "map_bytes=1M"] {
        let some = run(limit);
        let name = limit.split_once('=').expect("a limit").0;
        assert_eq!((some.code, some.stdout.as_str()), (0, "true false false\nfalse 3\n"), "{some:#?}");
        assert!(some.stderr.contains(&format!("--limit {name}=")), "{some:#?}");
    }
    let array = "var ksarray : array<u32, hash<u32, u64>(1024)>(300)
        fn main() -> i32 {
            ksarray[0][1] = 1
            return 0
        }";
    let file = folder.write("ksarray.wasm", compile("ksarray", array).plugin);
    let refused = finish(command("ks-host").arg(&file));
    assert!(refused.code == 125 && refused.stderr.contains("--limit maps="), "{refused:#?}");
    wait_until_gone("ksmany");
    wait_until_gone("ksarray");
}

//! A plugin as JavaScript: `jco` transpiles it, and it runs in Node with a host of plain objects. No name of the
//! contract may hide one that JavaScript's own code needs. These tests need the tools of JavaScript.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::{Folder, compile, finish_within, repository};

const PLUGIN: &str = "
var seen : hash<u32, u64>(8)
@perf_event
fn ksjs(ctx: *bpf_perf_event_data) -> i32 {
    seen[1] += 1
    return 0
}
fn main() -> i32 {
    seen[1] = 7
    print(\"seen %u, %u\", seen[1], seen[2])
    return 3
}
";

#[test]
fn a_plugin_runs_as_javascript_with_a_host_of_objects() {
    let folder = Folder::new();
    let mut tools = Command::new(repository().join("scripts/guest-tools"));
    let tools = finish_within(tools.arg("javascript"), Duration::from_secs(300));
    assert_eq!(tools.code, 0, "{tools:#?}");
    symlink(tools.stdout.trim(), folder.path("node_modules")).expect("the folder is ours");
    let plugin = folder.write("plugin.wasm", compile("ksjs", PLUGIN).plugin);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/toolchains/scripts/transpiled.mjs");
    let script = folder.write("run.mjs", std::fs::read(script).expect("readable"));
    let mut node = Command::new("node");
    let ran = finish_within(node.arg(script).arg(plugin).arg(folder.path("out")), Duration::from_secs(120));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "seen 7, 0\ncode 3\n"), "{ran:#?}");
}

//! The policy that `ks-host inspect --policy` writes allows what the plugin does, and nothing else: the plugin runs
//! with it, is denied something without any of its entries, and is denied whatever it does beyond.

use std::path::{Path, PathBuf};

use ks_host::policy::Policy;
use ks_tests::cgroup::Group;
use ks_tests::net::{LEFT, Wire};
use ks_tests::{Folder, Outcome, command, compile, finish, repository};
use toml::Table;

const DENIED: &str = "the policy does not allow";

fn build(folder: &Folder, script: &Path) -> PathBuf {
    let name = script.file_stem().and_then(|name| name.to_str()).expect("a name");
    let plugin = folder.path(name).with_extension("wasm");
    let built = finish(command("ks").arg("build").arg(script).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    plugin
}

/// Returns the policy that `inspect` writes, as text.
fn generated(plugin: &Path) -> String {
    let inspected = finish(command("ks-host").args(["inspect", "--policy"]).arg(plugin));
    assert_eq!((inspected.code, inspected.stderr.as_str()), (0, ""), "{inspected:#?}");
    inspected.stdout
}

/// Runs a plugin with a policy for a second, in a network of its own.
fn run(folder: &Folder, wire: &Wire, policy: &str, plugin: &Path, arguments: &[String]) -> Outcome {
    let file = folder.write("policy.toml", policy);
    let mut host = wire.command("ks-host");
    host.arg("--policy").arg(file).args(["--timeout", "2s"]).arg(plugin).arg("--").args(arguments);
    finish(host.args(["--exec", "sleep", "0.5"]))
}

/// Returns the arguments of an example that needs some.
fn arguments(script: &Path, group: &Group) -> Vec<String> {
    let group = group.path().display().to_string();
    let words: &[&str] = match script.file_stem().and_then(|name| name.to_str()) {
        Some("packets" | "shield" | "sizes") => &["--interface", LEFT],
        Some("connects") => &["--group", &group],
        _ => &[],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn scripts() -> Vec<PathBuf> {
    let folders = ["perf", "net", "trace", "state"].map(|topic| repository().join("examples").join(topic));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("it is there"));
    let files = files.map(|entry| entry.expect("readable").path());
    let mut scripts: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "ks")).collect();
    scripts.sort();
    assert!(scripts.len() > 15, "{scripts:?}");
    scripts
}

#[test]
fn root_every_example_runs_with_the_policy_that_inspect_writes() {
    let (folder, wire, group) = (Folder::new(), Wire::new(), Group::new());
    for script in scripts() {
        let plugin = build(&folder, &script);
        let policy = generated(&plugin);
        let ran = run(&folder, &wire, &policy, &plugin, &arguments(&script, &group));
        assert_ne!(ran.code, 126, "{}: {ran:#?}\n{policy}", script.display());
        assert!(!ran.stderr.contains(DENIED), "{}: {ran:#?}\n{policy}", script.display());
    }
}

/// Returns each policy that lacks one entry of this one, with the entry.
fn without_each(policy: &str) -> Vec<(String, String)> {
    let table: Table = policy.parse().expect("TOML");
    let allow = table["allow"].as_table().expect("a table");
    let entries: Vec<String> = allow
        .iter()
        .flat_map(|(class, targets)| {
            let targets = targets.as_array().expect("a list");
            targets.iter().map(move |target| format!("{class}={}", target.as_str().expect("a text")))
        })
        .collect();
    let limits = policy.split_once("\n[limits]\n").expect("it has limits").1;
    let without = |left_out: &String| {
        let mut less = Policy::nothing();
        for entry in entries.iter().filter(|entry| *entry != left_out) {
            less.allow_rule(entry).expect("an entry of a policy");
        }
        (left_out.clone(), format!("{}\n[limits]\n{limits}", less.to_toml()))
    };
    entries.iter().map(without).collect()
}

/// Examples all of whose acts happen on every machine, within a second.
const COMPLETE: [&str; 5] =
    ["perf/page_faults.ks", "perf/group.ks", "trace/switches.ks", "net/packets.ks", "net/connects.ks"];

#[test]
fn root_without_an_entry_of_its_policy_a_plugin_is_denied() {
    let (folder, wire, group) = (Folder::new(), Wire::new(), Group::new());
    for name in COMPLETE {
        let script = repository().join("examples").join(name);
        let plugin = build(&folder, &script);
        let policy = generated(&plugin);
        let arguments = arguments(&script, &group);
        assert!(!run(&folder, &wire, &policy, &plugin, &arguments).stderr.contains(DENIED), "{name}");
        for (entry, less) in without_each(&policy) {
            let ran = run(&folder, &wire, &less, &plugin, &arguments);
            assert!(ran.stderr.contains(DENIED), "{name} without {entry}: {ran:#?}\n{policy}");
        }
    }
}

#[test]
fn root_what_a_plugin_does_beyond_its_policy_is_denied() {
    const SCRIPT: &str = "PROGRAMS\nfn main() -> i32 {\n\
        var faults = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })\n\
        print(\"%lld\", read(faults).raw)\nMORE\nreturn 0\n}\n";
    const OPEN: &str = "var more = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })";
    let (folder, wire) = (Folder::new(), Wire::new());
    let plugin = |programs: &str, more: &str| {
        let script = SCRIPT.replace("PROGRAMS", programs).replace("MORE", more);
        folder.write("beyond.wasm", compile("beyond", &script).plugin)
    };
    let policy = generated(&plugin("", ""));
    assert!(policy.contains("\nevent = [\"page_faults\"]\nscope = [\"own\"]\n"), "{policy}");
    assert!(!policy.contains('*'), "{policy}");
    let denied = |programs: &str, more: &str| {
        let ran = run(&folder, &wire, &policy, &plugin(programs, more), &[]);
        ran.stderr.contains(DENIED)
    };
    assert!(!denied("", "") && !denied("", OPEN));
    let traced = "@tracepoint(\"sched/sched_switch\") fn ksneeds(ctx: *trace_event_raw_sched_switch) -> i32 \
                  { return 1 }";
    for (programs, more) in [
        ("", OPEN.replace("page_faults", "context_switches")),
        ("", OPEN.replace("page_faults", "tracepoint(\"sched/sched_switch\")")),
        ("", OPEN.replace("pid: 0, cpu: -1", "cpu: all")),
        ("", OPEN.replace("pid: 0", "command: true")),
        ("var seen: hash<u32, u64>(64)", "seen[1] = 2".to_owned()),
        (traced, "var one = load(ksneeds)\nprint(\"%u\", attach(one, \"sched/sched_switch\", 0))".to_owned()),
    ] {
        let ran = run(&folder, &wire, &policy, &plugin(programs, &more), &[]);
        let is_denied = ran.stderr.contains(DENIED) || ran.stderr.contains("and the limit is 0");
        assert!(is_denied, "{programs} {more}: {ran:#?}");
    }
}

/// What the source does not show is `*`, and a comment says what is chosen at run time.
#[test]
fn a_policy_has_wildcards_only_for_what_is_chosen_at_run_time() {
    let folder = Folder::new();
    let policy = |script: &str| generated(&folder.write("chosen.wasm", compile("chosen", script).plugin));
    let attached = |target: &str| {
        policy(&format!(
            "struct Args {{ at: str(16), task: i32 }}\n@xdp fn kschosen(ctx: *xdp_md) -> xdp_action {{ return \
             XDP_PASS }}\nfn main(args: Args) -> i32 {{\n var one = load(kschosen)\n print(\"%u\", attach(one, \
             {target}, 0))\n return 0\n}}\n"
        ))
    };
    let fixed = attached("\"eth0\"");
    assert!(fixed.contains("\nxdp = [\"eth0\"]\n") && !fixed.contains('*'), "{fixed}");
    let chosen = attached("args.at");
    assert!(chosen.contains("\nxdp = [\"*\"]\n"), "{chosen}");
    assert!(chosen.contains("#   xdp = [\"*\"]: where program `kschosen` is attached\n"), "{chosen}");
    let opened = |event: &str, scope: &str| {
        policy(&format!(
            "struct Args {{ at: str(16), task: i32 }}\nfn main(args: Args) -> i32 {{\n var one = \
             attach(perf_options {{ event: {event}, {scope} }})\n print(\"%lld\", read(one).raw)\n return \
             0\n}}\n"
        ))
    };
    for (event, scope, line) in [
        ("page_faults", "pid: 0, cpu: -1", "event = [\"page_faults\"]\nscope = [\"own\"]\n"),
        ("page_faults", "cpu: all", "event = [\"page_faults\"]\nscope = [\"all\"]\n"),
        ("page_faults", "process: \"sh\", cpu: -1", "event = [\"page_faults\"]\nscope = [\"process\"]\n"),
        ("page_faults", "command: true", "event = [\"page_faults\"]\nscope = [\"command\"]\n"),
        ("page_faults", "pid: args.task, cpu: -1", "event = [\"page_faults\"]\nscope = [\"*\"]\n"),
        (
            "tracepoint(\"sched/sched_switch\")",
            "cpu: all",
            "event = [\"sched/sched_switch\"]\nscope = [\"all\"]\n",
        ),
        ("kprobe_event(\"vfs_read\")", "cpu: all", "event = [\"kprobe:vfs_read\"]\nscope = [\"all\"]\n"),
        ("hw_cache(\"ll\", \"read\", \"miss\")", "cpu: all", "event = [\"cache\"]\nscope = [\"all\"]\n"),
        ("breakpoint(0x10000, 4, \"w\")", "pid: 0, cpu: -1", "event = [\"breakpoint\"]\nscope = [\"own\"]\n"),
        ("pmu(\"kstnopmu/term=1/\")", "cpu: all", "event = [\"kstnopmu/term=1/\"]\nscope = [\"all\"]\n"),
    ] {
        let policy = opened(event, scope);
        assert!(policy.contains(line), "{event} {scope}:\n{policy}");
        assert_eq!(
            policy.contains("#   scope = [\"*\"]: whose events line 3 counts"),
            line.contains('*'),
            "{policy}"
        );
    }
}

//! Permissions of a plugin, with `ks-host` as a user starts it. Most of these tests need root.

use ks_tests::net::Wire;
use ks_tests::{Folder, Outcome, binary, command, compile, finish, kernel_objects};

/// Compiles a script to `NAME.wasm`.
fn plugin(folder: &Folder, name: &str, script: &str) -> std::path::PathBuf {
    folder.write(&format!("{name}.wasm"), compile(name, script).plugin)
}

const STEERING: [(&str, &str, &str); 5] = [
    (
        "xdp",
        "@xdp fn kstpolx(ctx: *xdp_md) -> xdp_action { return XDP_PASS }",
        "attach(load(kstpolx), \"left\", 0)",
    ),
    (
        "tc",
        "@tc(\"ingress\") fn kstpolt(ctx: *__sk_buff) -> i32 { return TC_ACT_OK }",
        "attach(load(kstpolt), \"left\", 0)",
    ),
    (
        "cgroup",
        "@cgroup(\"connect4\") fn kstpolc(ctx: *bpf_sock_addr) -> i32 { return 1 }",
        "attach(load(kstpolc), \"CGROUP\", 0)",
    ),
    (
        "struct_ops",
        "@struct_ops(\"tcp_congestion_ops\")\nimpl kstpols {\n fn ssthresh(sk: *u8) -> u32 { return 2 }\n \
         fn undo_cwnd(sk: *u8) -> u32 { return 2 }\n fn cong_avoid(sk: *u8, ack: u32, acked: u32) -> \
         void { }\n \
         name: \"kstpols\",\n}",
        "register(kstpols)",
    ),
    (
        "pin",
        "pin var kstpolm : hash<u32, u64>(8)\n@perf_event fn kstpolp(ctx: *bpf_perf_event_data) -> i32 { \
         kstpolm[1] = 1\n \
         return 0 }",
        "keep()",
    ),
];

/// Returns the mount point of control groups of version 2.
fn cgroups() -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("readable");
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let root = lines.find(|fields| fields[2] == "cgroup2");
    root.expect("control groups of version 2 are mounted")[1].to_owned()
}

#[test]
fn root_steering_programs_are_denied_by_default() {
    let wire = Wire::new();
    let folder = Folder::new();
    for (class, items, act) in STEERING {
        let more = if class == "pin" { "fn keep() -> i32 {\n load(kstpolp)\n return 0\n}\n" } else { "" };
        let act = act.replace("CGROUP", &cgroups());
        let script =
            format!("{items}\n{more}fn main() -> i32 {{\n print(\"ran %d\", {act})\n return 0\n}}\n");
        let plugin = plugin(&folder, &format!("steer{class}"), &script);
        let denied = finish(wire.command("ks-host").arg("--no-wait").arg(&plugin));
        assert_eq!((denied.code, denied.stdout.as_str()), (126, ""), "{class}: {denied:#?}");
        assert!(denied.stderr.contains(&format!("--allow {class}")), "{class}: {denied:#?}");
        let allow = ["--allow", class, "--no-wait"];
        let allowed = match class {
            // Runs with its own mounts, so that nothing remains.
            "pin" => {
                let run = format!(
                    "mount -t bpf bpf /sys/fs/bpf && exec {} --allow pin {}",
                    binary("ks-host").display(),
                    plugin.display()
                );
                finish(std::process::Command::new("unshare").args(["-m", "sh", "-c", &run]))
            }
            _ => finish(wire.command("ks-host").args(allow).arg(&plugin)),
        };
        assert_eq!((allowed.code, allowed.stdout.as_str()), (0, "ran 0\n"), "{class}: {allowed:#?}");
    }
}

#[test]
fn root_another_target_is_denied_when_it_is_attached() {
    let wire = Wire::new();
    let folder = Folder::new();
    let script = format!(
        "{}\nfn main() -> i32 {{\n var one = load(kstpolx)\n print(\"{{}}\", attach(one, \"left\", 0) == \
         0)\n return 0\n}}\n",
        STEERING[0].1
    );
    let plugin = plugin(&folder, "target", &script);
    let denied =
        finish(wire.command("ks-host").args(["--allow", "xdp=l", "--allow", "xdp=eth*"]).arg(&plugin));
    assert_eq!((denied.code, denied.stdout.as_str()), (0, "false\n"), "{denied:#?}");
    assert!(denied.stderr.contains("--allow xdp=left"), "{denied:#?}");
    let allowed = finish(wire.command("ks-host").args(["--allow", "xdp=le?t"]).arg(&plugin));
    assert_eq!((allowed.stdout.as_str(), allowed.stderr.as_str()), ("true\n", ""), "{allowed:#?}");
}

#[test]
fn root_a_denied_plugin_loads_nothing() {
    let folder = Folder::new();
    let script = format!(
        "{}\n@perf_event fn kstpolw(ctx: *bpf_perf_event_data) -> i32 {{ return 0 }}\n\
         fn main() -> i32 {{\n load(kstpolw)\n sleep(60000)\n load(kstpolx)\n return 0\n}}\n",
        STEERING[0].1
    );
    let outcome = finish(command("ks-host").arg(plugin(&folder, "mixed", &script)));
    assert_eq!(outcome.code, 126, "{outcome:#?}");
    assert_eq!(kernel_objects("kstpolw").expect("root may list what the kernel holds"), Vec::<String>::new());
}

const COUNTS: &str = include_str!("scripts/policy_counts.ks");

fn with_policy(folder: &Folder, plugin: &std::path::Path, policy: &str) -> Outcome {
    let file = folder.write("policy.toml", policy);
    finish(command("ks-host").arg("--policy").arg(file).arg(plugin))
}

#[test]
fn root_a_file_says_which_events_and_whose() {
    let folder = Folder::new();
    let plugin = plugin(&folder, "counts", COUNTS);
    let all = "[allow]\nimport = [\"*\"]\nperf_event = [\"*\"]\nevent = [\"software\"]\nscope = \
               [\"own\", \"all\"]\n";
    let outcome = with_policy(&folder, &plugin, all);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.stderr.as_str()),
        ("own true\nall true\n", ""),
        "{outcome:#?}"
    );
    let own = with_policy(&folder, &plugin, &all.replace(", \"all\"", ""));
    assert_eq!(own.stdout, "own true\nall false\n", "{own:#?}");
    assert!(own.stderr.contains("--allow scope=all"), "{own:#?}");
    let none = with_policy(&folder, &plugin, &all.replace("software", "hardware"));
    assert_eq!(none.stdout, "own false\nall false\n", "{none:#?}");
    assert!(none.stderr.contains("--allow event=software"), "{none:#?}");
    let nothing = with_policy(&folder, &plugin, "");
    assert_eq!((nothing.code, nothing.stdout.as_str()), (126, ""), "{nothing:#?}");
    let small = with_policy(&folder, &plugin, &format!("{all}[limits]\nmaps = 0\n"));
    assert!(small.code == 126 && small.stderr.contains("--limit maps="), "{small:#?}");
}

#[test]
fn root_the_policy_that_inspect_writes_lets_the_plugin_run() {
    let folder = Folder::new();
    let plugin = plugin(&folder, "counts", COUNTS);
    let policy = finish(command("ks-host").args(["inspect", "--policy"]).arg(&plugin));
    assert_eq!((policy.code, policy.stderr.as_str()), (0, ""), "{policy:#?}");
    assert!(!policy.stdout.contains("xdp") && policy.stdout.contains("perf_event = [\"*\"]"), "{policy:#?}");
    let outcome = with_policy(&folder, &plugin, &policy.stdout);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.stderr.as_str()),
        ("own true\nall true\n", ""),
        "{outcome:#?}"
    );
}

#[test]
fn malformed_policies_prevent_the_start() {
    let folder = Folder::new();
    let plugin = plugin(&folder, "nothing", "fn main() -> i32 {\n return 0\n}\n");
    for (arguments, reason) in [
        (["--allow", "xdpp"], "did you mean `xdp`"),
        (["--limit", "map=1"], "did you mean `maps`"),
        (["--limit", "maps=many"], "is not a number"),
        (["--policy", "/nonexistent.toml"], "cannot read /nonexistent.toml"),
    ] {
        let outcome = finish(command("ks-host").args(arguments).arg(&plugin));
        assert!(outcome.code == 125 && outcome.stderr.contains(reason), "{outcome:#?}");
    }
}

#[test]
fn a_flood_of_prints_ends_at_the_limit_of_a_second() {
    let folder = Folder::new();
    let script = "fn main() -> i32 {\n for (i in 0..100000) {\n  print(\"0123456789\")\n }\n return 3\n}\n";
    let plugin = plugin(&folder, "flood", script);
    let outcome = finish(command("ks-host").args(["--limit", "print_bytes_per_second=110"]).arg(&plugin));
    let seconds = outcome.stdout.lines().count() / 10;
    assert!(outcome.code == 3 && (1..60).contains(&seconds), "{} {}", outcome.code, outcome.stdout.len());
    assert_eq!(outcome.stderr.matches("--limit print_bytes_per_second").count(), 1, "{}", outcome.stderr);
}

//! Pins: maps and variables that outlive their plugin and are shared. These tests need root; each has mounts of its own, so
//! that nothing stays behind.

use std::process::Command;

use ks_tests::{Folder, Outcome, binary, compile, finish};

/// Runs a shell script that has a BPF file system of its own; `$HOST` is ks-host.
fn with_bpffs(folder: &Folder, script: &str) -> Outcome {
    let script =
        format!("cd {}\nmount -t bpf bpf /sys/fs/bpf || exit 99\n{script}", folder.path("").display());
    shell(&script)
}

fn shell(script: &str) -> Outcome {
    let host = format!("{} --allow pin", binary("ks-host").display());
    finish(Command::new("unshare").args(["-m", "sh", "-c", script]).env("HOST", host))
}

const COUNTER: &str = r#"
pin var total : u64 = 5
pin var m : hash<u32, u64>(8)
pin var hits : u64 = 0
pin var label : str(8) = "first"
var memory : u8[131072]

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    hits += 1
    m[7] += 1
    return 0
}

fn main() -> i32 {
    var before = hits
    print("%s", label)
    label = "later"
    total += 1
    m[1] += 2
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    for (page in 0..16) {
        memory[page * 4096] = 1
    }
    detach(program)
    print("%u %u {} {}", total, m[1], hits > before, hits == m[7])
    return 0
}
"#;

#[test]
fn root_lf_086_pins_survive_a_restart_with_their_values() {
    let folder = Folder::new();
    folder.write("counter.wasm", compile("counter", COUNTER).plugin);
    let outcome = with_bpffs(
        &folder,
        "$HOST counter.wasm && $HOST counter.wasm && $HOST counter.wasm && cd /sys/fs/bpf && find ./counter -type f | sort",
    );
    let expected = "first\n6 2 true true\nlater\n7 4 true true\nlater\n8 6 true true\n\
                    ./counter/globals/pinned_globals\n./counter/maps/m\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_087_a_pin_of_another_shape_ends_the_start() {
    let folder = Folder::new();
    folder.write("counter.wasm", compile("counter", COUNTER).plugin);
    let wide = COUNTER.replace("hash<u32, u64>(8)", "hash<u64, u64>(8)");
    folder.write("wide.wasm", compile("counter", &wide).plugin);
    let renamed = COUNTER.replace("hits", "strikes");
    folder.write("renamed.wasm", compile("counter", &renamed).plugin);
    let outcome =
        with_bpffs(&folder, "$HOST counter.wasm; $HOST wide.wasm; echo $?; $HOST renamed.wasm; echo $?");
    assert_eq!(outcome.stdout, "first\n6 2 true true\n125\n125\n", "{outcome:#?}");
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let has = |words: &[&str]| {
        let text = lines.join(" ");
        words.iter().for_each(|word| assert!(text.contains(word), "no `{word}`: {outcome:#?}"));
    };
    has(&[
        "pinned map m has another shape (key 4\u{2192}8)",
        "/sys/fs/bpf/counter/maps/m",
        "change the name",
    ]);
    has(&[
        "the pin of all variables has another shape (their names or types)",
        "counter/globals/pinned_globals",
    ]);
}

#[test]
fn root_without_a_bpf_file_system_it_is_said_what_to_do() {
    let folder = Folder::new();
    let file = folder.write("counter.wasm", compile("counter", COUNTER).plugin);
    let outcome = shell(&format!("umount /sys/fs/bpf 2>/dev/null; $HOST {}", file.display()));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome:#?}");
    assert!(outcome.stderr.contains("mount -t bpf bpf /sys/fs/bpf"), "{outcome:#?}");
}

#[test]
fn root_two_plugins_share_a_map_and_one_that_is_killed_loses_nothing() {
    let script = r#"
struct Args { writer: bool, first: u32 }
pin var m : hash<u32, u64>(1000)
pin var writes : u64 = 0

fn main(args: Args) -> i32 {
    if (args.writer) {
        print("before %u", count(m))
        for (i in 0..100) {
            m[args.first + i] = i
            writes += 1
        }
        print("ready")
        while (sleep(1000) == 0) {
        }
        return 0
    }
    while (count(m) < 200 || writes < 200) {
        if (sleep(5) != 0) {
            return 1
        }
    }
    var keys: u64 = 0
    var values: u64 = 0
    for (k, v in m) {
        keys += k
        values += v
    }
    print("%u %u %u", keys, values, writes)
    return 0
}
"#;
    let folder = Folder::new();
    folder.write("shared.wasm", compile("shared", script).plugin);
    let outcome = with_bpffs(
        &folder,
        "$HOST shared.wasm --timeout 40 > reader & reader=$!\n\
         for first in 0 100; do\n\
         : > writer$first\n\
         $HOST shared.wasm --timeout 40 -- --writer --first $first > writer$first & writer=$!\n\
         while ! grep -q ready writer$first; do sleep 0.02; done\n\
         kill -9 $writer; wait $writer\n\
         cat writer$first\n\
         done\n\
         wait $reader; cat reader",
    );
    let expected = "before 0\nready\nbefore 100\nready\n19900 9900 200\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
}

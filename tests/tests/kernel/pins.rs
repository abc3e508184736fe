//! Pins: maps and variables that outlive their plugin and are shared. These tests need root; each has its own
//! mounts, so that nothing remains.

use std::process::Command;

use ks_tests::{Folder, Outcome, binary, compile, finish};

/// Runs a shell script with its own BPF file system; `$HOST` is ks-host.
fn with_bpffs(folder: &Folder, script: &str) -> Outcome {
    let script =
        format!("cd {}\nmount -t bpf bpf /sys/fs/bpf || exit 99\n{script}", folder.path("").display());
    shell(&script)
}

fn shell(script: &str) -> Outcome {
    let host = format!("{} --allow pin", binary("ks-host").display());
    finish(Command::new("unshare").args(["-m", "sh", "-c", script]).env("HOST", host))
}

const COUNTER: &str = include_str!("scripts/pins_counter.ks");

#[test]
fn root_lf_086_pins_survive_a_restart_with_their_values() {
    let folder = Folder::new();
    folder.write("counter.wasm", compile("counter", COUNTER).plugin);
    let outcome = with_bpffs(
        &folder,
        "$HOST counter.wasm && $HOST counter.wasm && $HOST counter.wasm && cd /sys/fs/bpf && find ./counter \
         -type f | sort",
    );
    let expected = "first\n6 2 true true\nlater\n7 4 true true\nlater\n8 6 true true\n\
                    ./counter/globals/pinned_globals\n./counter/maps/m\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

/// The BPF file system takes no dots in names.
#[test]
fn root_names_with_dots_are_pinned_under_names_of_their_own() {
    let folder = Folder::new();
    for name in ["pin.v2", "pin%2ev2"] {
        folder.write(&format!("{name}.wasm"), compile(name, COUNTER).plugin);
    }
    let outcome = with_bpffs(
        &folder,
        "$HOST pin.v2.wasm && $HOST pin.v2.wasm && $HOST pin%2ev2.wasm && cd /sys/fs/bpf && find ./pin* -type f \
         | sort",
    );
    let expected = "first\n6 2 true true\nlater\n7 4 true true\nfirst\n6 2 true true\n\
                    ./pin%252ev2/globals/pinned_globals\n./pin%252ev2/maps/m\n\
                    ./pin%2ev2/globals/pinned_globals\n./pin%2ev2/maps/m\n";
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
    let has = |texts: &[&str]| {
        let errors = lines.join(" ");
        texts.iter().for_each(|text| assert!(errors.contains(text), "no `{text}`: {outcome:#?}"));
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

/// The plugin pins a map and the section of its variables. Pins that exist already count, too.
#[test]
fn root_more_pins_than_the_limit_prevent_the_start() {
    let folder = Folder::new();
    folder.write("counter.wasm", compile("counter", COUNTER).plugin);
    let outcome = with_bpffs(
        &folder,
        "pins() { find /sys/fs/bpf/counter -type f 2>/dev/null | wc -l; }\n\
         $HOST --limit pins=1 counter.wasm; echo $?; pins\n\
         $HOST --limit pins=2 counter.wasm; echo $?; pins\n\
         $HOST --limit pins=1 counter.wasm; echo $?; pins",
    );
    assert_eq!(outcome.stdout, "126\n0\nfirst\n6 2 true true\n0\n2\n126\n2\n", "{outcome:#?}");
    let reason = "pins is 2, and the limit is 1: --limit pins=2 would allow it";
    assert_eq!(outcome.stderr.matches(reason).count(), 2, "{outcome:#?}");
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
    let script = include_str!("scripts/pins_two_plugins_share_a_map_and_one_that_is_killed_loses_nothing.ks");
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

#[test]
fn root_a_tested_load_that_fails_returns_null_next_to_a_pin() {
    // A program on a kernel function needs CAP_PERFMON, which the host lacks below.
    let script = |pinned: &str, use_of_it: &str| {
        format!(
            "struct R {{ n: u64 }}\n{pinned}\n@probe(\"vfs_read\")\nfn on_read(file: *file) -> i32 {{\n    \
             {use_of_it}\n    \
             return 0\n}}\nfn out_callback(r: *R) -> i32 {{ return 0 }}\nfn main() -> i32 {{\n    \
             var program = load(on_read)\n    if (program == null) {{\n        \
             print(\"no program\")\n        return 3\n    }}\n    \
             print(\"loaded\")\n    return 0\n}}\n"
        )
    };
    let scripts = [
        (
            "ring",
            script("pin var out : ringbuf<R>(4096)", "if (var r = out.reserve()) { r->n = 1 out.submit(r) }"),
        ),
        ("table", script("pin var m : hash<u32, u64>(8)\nvar out : ringbuf<R>(4096)", "m[1] += 1")),
        ("value", script("pin var v : u64 = 5\nvar out : ringbuf<R>(4096)", "v += 1")),
    ];
    for (name, script) in scripts {
        let folder = Folder::new();
        folder.write("plugin.wasm", compile(name, &script).plugin);
        // Without the right, the load fails, although the pin itself may be created.
        let outcome = with_bpffs(
            &folder,
            "setpriv --bounding-set -perfmon,-sys_admin --inh-caps -perfmon,-sys_admin $HOST plugin.wasm",
        );
        assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "no program\n"), "{name}: {outcome:#?}");
        assert!(outcome.stderr.contains("cannot load the BPF object"), "{name}: {outcome:#?}");
    }
}

/// Everybody may make folders and links in the BPF file system, and the policy was asked about the path.
#[test]
fn root_pins_lead_through_no_link_and_no_folder_of_another_user() {
    let folder = Folder::new();
    folder.write("counter.wasm", compile("counter", COUNTER).plugin);
    for (prepare, reason) in [
        ("mkdir other; ln -s other counter", "ENOTDIR"),
        ("mkdir -p other counter/globals; ln -s ../other counter/maps", "ENOTDIR"),
        ("mkdir -p other counter/maps; ln -s ../../other/m counter/maps/m", "ELOOP"),
        ("mkdir -p other counter/maps; chown 65534 counter/maps", "uid 65534"),
    ] {
        let script = format!(
            "cd /sys/fs/bpf; {prepare}; cd - > /dev/null; $HOST counter.wasm; echo $?; find /sys/fs/bpf/other \
             -type f"
        );
        let outcome = with_bpffs(&folder, &script);
        assert!(outcome.stderr.contains(reason), "{prepare}: {outcome:#?}");
        assert!(
            outcome.stdout.trim_end().parse::<i32>().is_ok_and(|code| code != 0),
            "{prepare}: {outcome:#?}"
        );
    }
}

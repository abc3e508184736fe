//! Recording a run (`ks-host --record`) and replaying it (`ks-host replay`). These tests need root, because
//! they record the running kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use ks_tests::plugins::{PRINTS_BOOTTIME, component};
use ks_tests::{Folder, Outcome, binary, command, compile, finish, repository};

/// Records a run of a plugin file; returns its outcome and the path of the record.
fn record(folder: &Folder, plugin: &Path, options: &[&str]) -> (Outcome, PathBuf) {
    let record = folder.path("record.jsonl");
    let outcome =
        finish(command("ks-host").arg("--no-cache").args(options).arg("--record").args([&record, plugin]));
    (outcome, record)
}

/// Replays a record with a plugin.
fn replay(plugin: &Path, record: &Path) -> Outcome {
    finish(command("ks-host").args(["replay", "--no-cache"]).args([plugin, record]))
}

/// Replays a record as a user without rights. Only root can read the record, so the user gets a copy.
fn replay_as_nobody(folder: &Folder, plugin: &Path, record: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    let copy = folder.write("copy.jsonl", std::fs::read(record).expect("readable"));
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all"]);
    finish(command.arg(binary("ks-host")).args(["replay", "--no-cache"]).args([plugin, &copy]))
}

fn built(folder: &Folder, name: &str, script: &str) -> PathBuf {
    folder.write(&format!("{name}.wasm"), compile(name, script).plugin)
}

fn example(path: &str) -> String {
    std::fs::read_to_string(repository().join("examples").join(path)).expect("readable")
}

#[test]
fn root_a_recording_is_replayed_without_any_rights() {
    for (name, path) in [("group", "perf/group.ks"), ("latest_faults", "state/latest_faults.ks")] {
        let folder = Folder::new();
        let plugin = built(&folder, name, &example(path));
        let (real, record) = record(&folder, &plugin, &[]);
        assert_eq!((real.code, real.stderr.as_str()), (0, ""), "{real:#?}");
        let again = replay_as_nobody(&folder, &plugin, &record);
        assert_eq!((again.code, again.stdout, again.stderr.as_str()), (0, real.stdout, ""), "{name}");
    }
}

/// The host itself writes lines of the kernel half and warnings: the record has them at their positions.
#[test]
fn root_replays_repeat_the_hosts_output() {
    let script = include_str!("scripts/recording_replays_repeat_the_hosts_output.ks");
    let folder = Folder::new();
    let plugin = built(&folder, "ksrec", script);
    let (real, record) = record(&folder, &plugin, &[]);
    assert_eq!(real.code, 3, "{real:#?}");
    assert!(
        real.stdout.starts_with("from the kernel half\n") && real.stdout.contains("from the plugin\n"),
        "{real:#?}"
    );
    assert!(real.stderr.contains("4095"), "{real:#?}");
    let again = replay(&plugin, &record);
    assert_eq!((again.code, again.stdout, again.stderr), (real.code, real.stdout, real.stderr));
}

/// A replay at a later time prints the time of the recorded run.
#[test]
fn root_replays_repeat_the_time_since_the_boot() {
    let folder = Folder::new();
    let plugin = folder.write("boottime.wasm", component(PRINTS_BOOTTIME));
    let (real, record) = record(&folder, &plugin, &[]);
    assert_eq!(real.code, 0, "{real:#?}");
    let text = std::fs::read_to_string(&record).expect("readable");
    let call = format!("{{\"call\":\"clock.boottime\",\"args\":[],\"answer\":{}}}\n", real.stdout.trim_end());
    assert!(text.contains(&call), "{call}{text}");
    let again = replay(&plugin, &record);
    assert_eq!((again.code, again.stdout, again.stderr.as_str()), (0, real.stdout, ""));
}

#[test]
fn root_the_first_difference_of_a_changed_plugin_is_reported() {
    let folder = Folder::new();
    let plugin = built(&folder, "group", &example("perf/group.ks"));
    let (_, record) = record(&folder, &plugin, &[]);
    let text = std::fs::read_to_string(&record).expect("readable");
    let line = 1 + text.lines().position(|line| line.contains("attachment.disable")).expect("it is disabled");

    let waits = example("perf/group.ks").replace("0..5)", "0..6)");
    let outcome = replay(&built(&folder, "waits", &waits), &record);
    let expected = format!(
        "it differs from the record at line {line}\n  asked:  clock.sleep(1000000)\n  record: \
         perf.[method]attachment.disable(3)\n  in work at waits.ks:18\n"
    );
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains(&expected), "{outcome:#?}");

    let ends = example("perf/group.ks").replace("    detach(faults)\n", "");
    let outcome = replay(&built(&folder, "ends", &ends), &record);
    assert!(outcome.stderr.contains("it ends before the record does, which goes on at line"), "{outcome:#?}");

    let fails =
        example("perf/group.ks").replace("detach(faults)\n    return 0", "detach(faults)\n    return 7");
    let outcome = replay(&built(&folder, "fails", &fails), &record);
    assert!(outcome.stderr.contains("here:   it returned 7\n  record: it returned 0\n"), "{outcome:#?}");

    // A different printed text is no difference.
    let says = example("perf/group.ks").replace("led by", "behind");
    let outcome = replay(&built(&folder, "says", &says), &record);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert!(outcome.stdout.contains("behind page_faults"), "{outcome:#?}");
}

/// The plugin reads in another order: the calls of each resource are the same.
#[test]
fn root_in_any_order_each_call_finds_its_answer() {
    let script = |reads: &str| {
        format!(
            "fn main() -> i32 {{
                var clock = attach(perf_options {{ event: task_clock, pid: 0, cpu: -1 }})
                var faults = attach(perf_options {{ event: page_faults, pid: 0, cpu: -1 }})
                {reads}
                print(\"{{}} {{}}\", time, count)
                return 0
            }}"
        )
    };
    let (time, count) = ("var time = read(clock).raw\n", "var count = read(faults).raw\n");
    let folder = Folder::new();
    let one = built(&folder, "one", &script(&format!("{time}{count}")));
    let (real, record) = record(&folder, &one, &[]);
    assert_eq!(real.code, 0, "{real:#?}");
    let other = built(&folder, "other", &script(&format!("{count}{time}")));
    assert_eq!(replay(&other, &record).code, 125);
    let again =
        finish(command("ks-host").args(["replay", "--no-cache", "--any-order"]).args([&other, &record]));
    assert_eq!((again.code, again.stdout, again.stderr.as_str()), (0, real.stdout, ""));
}

#[test]
fn root_however_a_run_ends_its_record_can_be_read() {
    let cases = [
        ("fn main() -> i32 {\n    while (sleep(1000) == 0) {\n    }\n    return 0\n}\n", 124, "timed-out"),
        ("fn main() -> i32 {\n    while (cpu_count() != 0) {\n    }\n    return 0\n}\n", 124, "timed-out"),
        ("fn main() -> i32 {\n    var all = [1, 2, 3]\n    return all[cpu_count() + 7]\n}\n", 125, "trapped"),
        ("fn main() -> i32 {\n    exit(5)\n    return 0\n}\n", 5, "exited"),
    ];
    for (script, code, end) in cases {
        let folder = Folder::new();
        let plugin = built(&folder, "ends", script);
        let (real, record) = record(&folder, &plugin, &["--timeout", "0.2"]);
        assert_eq!(real.code, code, "{script}: {real:#?}");
        let text = std::fs::read_to_string(&record).expect("readable");
        let last = text.lines().last().expect("it has lines");
        assert!(last.starts_with(&format!("{{\"end\":\"{end}\"")), "{script}: {last}");
        let again = replay(&plugin, &record);
        assert_eq!((again.code, &again.stdout), (code, &real.stdout), "{script}: {again:#?}");
    }
}

#[test]
fn root_a_plugin_that_is_denied_leaves_a_record_without_calls() {
    let folder = Folder::new();
    let plugin = built(&folder, "shield", &example("net/shield.ks"));
    let (denied, record) = record(&folder, &plugin, &[]);
    assert_eq!(denied.code, 126, "{denied:#?}");
    let text = std::fs::read_to_string(&record).expect("readable");
    assert!(text.lines().count() == 2 && text.contains("{\"end\":\"denied\",\"reason\":\"program"), "{text}");
    let again = replay(&plugin, &record);
    assert!(
        again.stderr.contains("which ends at line 2") && again.stderr.contains("was denied the start"),
        "{again:#?}"
    );
}

#[test]
fn root_malformed_recordings_are_refused_with_the_line() {
    let folder = Folder::new();
    let plugin = built(&folder, "group", &example("perf/group.ks"));
    let (_, record) = record(&folder, &plugin, &[]);
    let text = std::fs::read_to_string(&record).expect("readable");
    let lines = text.lines().count();
    let replay_error = |text: &str| {
        let outcome = replay(&plugin, &folder.write("wrong.jsonl", text));
        assert_eq!(outcome.code, 125, "{outcome:#?}");
        outcome.stderr
    };
    for (cut, line) in [(0, 1), (20, 1), (text.len() - 1, lines), (text.len() - 28, lines)] {
        let error = replay_error(&text[..cut]);
        assert!(error.contains(&format!("line {line}: the record is cut off")), "{cut}: {error}");
    }
    for (from, to, expected) in [
        ("\"ks-record\":1", "\"ks-record\":2", "line 1: the record has format 2; this host reads 1"),
        ("\"args\"", "\"argv\"", "line 2: unknown field `argv`"),
        (
            "{\"ok\":1}",
            "{\"ok\":\"1\"}",
            "line 3 of the record: the answer of perf.[static]event.numbered: at `ok`: there should be the \
                                          number of a handle",
        ),
        ("{\"ok\":1}", "{\"fine\":1}", "there should be {\"ok\": ..} or {\"err\": ..}"),
    ] {
        let error = replay_error(&text.replacen(from, to, 1));
        assert!(error.contains(expected), "{from}: {error}");
    }
    assert!(replay_error(&format!("{}1\n", "[".repeat(100_000))).contains("line 1: not a JSON object"));
    let absent = replay(&plugin, &folder.path("absent"));
    assert!(absent.code == 125 && absent.stderr.contains("cannot read"), "{absent:#?}");
}

#[test]
fn root_one_run_makes_one_record() {
    let folder = Folder::new();
    let plugin = built(&folder, "group", &example("perf/group.ks"));
    let record = folder.path("record.jsonl");
    let two = finish(command("ks-host").arg("--record").args([&record, &plugin, &plugin]));
    assert!(two.code == 125 && two.stderr.contains("`--record` is for one plugin"), "{two:#?}");
    let nowhere = finish(command("ks-host").arg("--record").args([&folder.path("none/record"), &plugin]));
    assert!(nowhere.code == 125 && nowhere.stderr.contains("cannot write the record"), "{nowhere:#?}");
    let full = finish(command("ks-host").args(["--record", "/dev/full"]).arg(&plugin));
    assert!(full.code == 125 && full.stderr.contains("cannot write the record /dev/full"), "{full:#?}");
}

//! `ks-host --audit` and `--max-bpf-share`: the actions of a plugin, and the run time of its programs. These
//! tests need root.

use ks_tests::{Folder, command, compile, finish, wait_until_gone};
use serde_json::Value;

const SCRIPT: &str = include_str!("scripts/audit.ks");

fn lines(file: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("the audit is there");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Asserts that the lines contain these actions in order; each is (act, prefix of the target, allowed,
/// answer).
fn in_order(lines: &[Value], expected: &[(&str, &str, bool, Option<&str>)]) {
    let mut rest = lines.iter();
    for (act, target, allowed, answer) in expected {
        let found = rest.any(|line| {
            line["act"] == *act
                && line["target"].as_str().is_some_and(|text| text.starts_with(target))
                && line["allowed"] == *allowed
                && line["answer"].as_str() == *answer
        });
        assert!(found, "{act} {target} {allowed} {answer:?}: {lines:#?}");
    }
}

#[test]
fn root_every_act_is_written_with_what_was_decided_and_answered() {
    let folder = Folder::new();
    let plugin = folder.write("ksaud.wasm", compile("ksaud", SCRIPT).plugin);
    let policy = folder.write(
        "policy.toml",
        "[allow]\nimport = [\"*\"]\nperf_event = [\"*\"]\nevent = [\"software\"]\n\
         scope = [\"own\", \"task\"]\n",
    );
    let audit = folder.path("audit.jsonl");
    let mut host = command("ks-host");
    let outcome = finish(host.arg("--policy").arg(&policy).arg("--audit").arg(&audit).arg(&plugin));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (5, "true\n"), "{outcome:#?}");
    let written = lines(&audit);
    in_order(
        &written,
        &[
            ("ask", "perf_event ", true, None),
            ("load", "programs ksaudp; maps ", true, Some("ok")),
            ("program", "ksaudp", true, Some("ok")),
            ("open", "page_faults of own, program ksaudp", true, Some("ok")),
            ("open", "page_faults of task", true, Some("ESRCH")),
            ("open", "page_faults of all", false, None),
            ("detach", "event", true, Some("ok")),
            ("end", "", true, Some("exit code 5")),
        ],
    );
    assert!(written.iter().all(|line| line["plugin"] == "ksaud.wasm" && line["time"].is_string()));
    let opened = written.iter().find(|line| line["act"] == "open").expect("one");
    let detached = written.iter().find(|line| line["act"] == "detach").expect("one");
    assert!(opened["id"].is_u64() && opened["id"] == detached["id"], "{written:#?}");

    // A denial at the start is logged too; the file is appended to.
    let nothing = folder.write("nothing.toml", "");
    let mut host = command("ks-host");
    let outcome = finish(host.arg("--policy").arg(&nothing).arg("--audit").arg(&audit).arg(&plugin));
    assert_eq!(outcome.code, 126, "{outcome:#?}");
    let later = lines(&audit);
    in_order(
        &later[written.len()..],
        &[("ask", "perf_event ", false, None), ("end", "", true, Some("exit code 126"))],
    );
}

/// The log has events that are switched on and off, put into arrays of programs, or read from outside of the
/// plugin; each kind of read is logged once.
#[test]
fn root_switches_and_looks_are_acts() {
    let script = include_str!("scripts/audit_switches_and_looks_are_acts.ks");
    let folder = Folder::new();
    let plugin = folder.write("ksaus.wasm", compile("ksaus", script).plugin);
    let audit = folder.path("audit.jsonl");
    let policy = folder.write(
        "policy.toml",
        "[allow]\nimport = [\"*\"]\ntracing = [\"*\"]\nevent = [\"software\"]\nscope = [\"*\"]\nsymbols = \
         [\"kernel\"]\n",
    );
    let mut host = command("ks-host");
    let outcome = finish(host.arg("--policy").arg(&policy).arg("--audit").arg(&audit).arg(&plugin));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let written = lines(&audit);
    in_order(
        &written,
        &[
            ("publish", "ksauscount", true, Some("ok")),
            ("open", "page_faults of own", true, Some("ok")),
            ("disable", "event", true, Some("ok")),
            ("enable", "event", true, Some("ok")),
            ("find", "ks-host", true, Some("ok")),
            ("names", "tasks", true, Some("ok")),
            ("symbols", "kernel", true, Some("ok")),
            ("symbols", "task 1", false, None),
            ("find", "no such task", true, Some("none")),
            ("end", "", true, Some("exit code 0")),
        ],
    );
    for act in ["symbols", "names"] {
        let times = written.iter().filter(|line| line["act"] == act).count();
        assert_eq!(times, if act == "symbols" { 2 } else { 1 }, "{written:#?}");
    }
}

#[test]
fn root_a_plugin_whose_acts_cannot_be_written_down_is_ended() {
    let folder = Folder::new();
    let plugin = folder.write("ksaud.wasm", compile("ksauf", SCRIPT).plugin);
    let outcome = finish(command("ks-host").args(["--audit", "/dev/full"]).arg(&plugin));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome:#?}");
    assert!(outcome.stderr.contains("the audit cannot be written"), "{outcome:#?}");
    let outcome = finish(command("ks-host").args(["--audit", "/nonexistent/audit"]).arg(&plugin));
    assert!(outcome.code == 125 && outcome.stderr.contains("/nonexistent/audit"), "{outcome:#?}");
}

const BUSY: &str = include_str!("scripts/audit_busy.ks");

/// Every context switch of the machine runs the program: its share exceeds a millionth, and never the whole.
#[test]
fn root_a_program_above_its_budget_is_detached_and_reported() {
    let folder = Folder::new();
    let waits = BUSY.replace("WAIT", "sleep(1600)");
    // The plugin computes for some seconds without a host call: the budget is still checked once per second.
    let computes = BUSY.replace(
        "WAIT",
        "sleep(100)\n var turns: u64 = 0\n var rest: u64 = 1\n while (turns < 1200000000) {\n  turns += 1\n  \
         rest = (rest * 31 + turns) % (turns | 1)\n  if (ksbudn == 0) {\n   return 9\n  }\n }\n \
         if (rest == turns) {\n  return 9\n }",
    );
    // Or calls the host all the time.
    let calls = BUSY.replace(
        "WAIT",
        "sleep(100)\n var start = time_ns()\n while (time_ns() - start < 1700000000) {\n  if (ksbudn == 0) {\n   \
         return 9\n  }\n }",
    );
    let runs = [
        ("ksbudw", &waits, "thread"),
        ("ksbudc", &computes, "thread"),
        ("ksbudt", &calls, "thread"),
        ("ksbudp", &calls, "process"),
    ];
    for (name, script, isolation) in runs {
        let plugin = folder.write(&format!("{name}.wasm"), compile(name, script).plugin);
        let audit = folder.path(format!("{name}.jsonl"));
        let mut host = command("ks-host");
        host.args(["--isolation", isolation, "--max-bpf-share", "0.0001%", "--audit"])
            .arg(&audit)
            .arg(&plugin);
        let outcome = finish(&mut host);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "0\nagain false\n"), "{outcome:#?}");
        assert!(
            outcome.stderr.contains("program `ksbudp` took ")
                && outcome.stderr.contains("--max-bpf-share 0.0001%"),
            "{outcome:#?}"
        );
        let over = lines(&audit);
        let over = over.iter().find(|line| line["act"] == "over-budget").expect("it is written");
        assert!(
            over["target"] == "ksbudp" && over["answer"].as_str().is_some_and(|share| share.ends_with('%'))
        );
    }
    let plugin = folder.write("ksbudf.wasm", compile("ksbudf", &waits).plugin);
    let outcome = finish(command("ks-host").args(["--max-bpf-share", "100%"]).arg(&plugin));
    // A second attachment to the same point is refused, because the first one still exists.
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "0\nagain false\n"), "{outcome:#?}");
    assert!(!outcome.stderr.contains("--max-bpf-share"), "{outcome:#?}");
    let outcome = finish(command("ks-host").args(["--max-bpf-share", "1"]).arg(&plugin));
    assert!(outcome.code == 125 && outcome.stderr.contains("not a share"), "{outcome:#?}");
    wait_until_gone("ksbud");
}

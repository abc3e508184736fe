//! `ks-host ps`: the running plugins, as another process sees them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use ks_tests::{Folder, command, finish};

#[test]
fn root_ps_shows_a_plugin_its_program_and_how_often_it_runs() {
    let folder = Folder::new();
    let program = format!("ps_{}", std::process::id());
    let script = folder.write(
        "seen.ks",
        format!(
            "var hits : u64 = 0\n\n@perf_event\nfn {program}(ctx: *bpf_perf_event_data) -> i32 {{\n    \
             hits += 1\n    \
             return 0\n}}\n\nfn main() -> i32 {{\n    var p = load({program})\n    \
             attach(p, perf_options {{ event: context_switches, pid: 0, cpu: -1, period: 1 }}, 0)\n    \
             print(\"attached\")\n    while (sleep(1) == 0) {{ }}\n    return 0\n}}\n"
        ),
    );
    let mut child = command("ks-host").arg(script).stdout(Stdio::piped()).spawn().expect("ks-host starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("text");
    assert_eq!(line, "attached\n");
    let json = finish(command("ks-host").args(["ps", "--json", "--seconds", "0.3"]));
    let text = finish(command("ks-host").args(["ps", "--seconds", "0.1"]));
    child.kill().and_then(|()| child.wait().map(drop)).expect("the child is ours");
    assert_eq!((json.code, json.stderr.as_str()), (0, ""), "{json:#?}");
    let processes: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    let own = processes.as_array().expect("a list").iter().find(|process| process["pid"] == child.id());
    let own = own.unwrap_or_else(|| panic!("{processes:#}"));
    assert_eq!((&own["plugins"][0], &own["events"]), (&"seen.ks".into(), &1.into()), "{own:#}");
    let program_json = &own["programs"][0];
    assert_eq!(
        (&program_json["name"], &program_json["kind"]),
        (&program.as_str().into(), &"perf_event".into()),
        "{own:#}"
    );
    assert_eq!(program_json["attached"][0], "perf", "{own:#}");
    // A sleep of a millisecond is a context switch: there were some in 0.3 seconds, and each run took time.
    assert!(program_json["runs"].as_u64().is_some_and(|runs| runs > 0), "{own:#}");
    assert!(program_json["time_ns"].as_u64() > program_json["runs"].as_u64(), "{own:#}");
    assert!(
        text.stdout.lines().any(|line| line.contains(&program) && line.contains("perf_event")),
        "{text:#?}"
    );
    let gone = finish(command("ks-host").args(["ps", "--json", "--seconds", "0.01"]));
    assert!(!gone.stdout.contains(&program), "{gone:#?}");
}

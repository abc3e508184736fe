//! Text that plugins make the host write: to a terminal, to a log, to the audit log. None of it controls a
//! terminal, no line of it looks like another's, and its amount is limited. The tests named `root_` need
//! root.

use ks_tests::guest::{core_module, data};
use ks_tests::{Folder, Outcome, allowed, command, compile, component, finish};
use serde_json::Value;

use super::{contained, ended, function, run_with};

/// Every kind of character that controls a terminal or reorders text, and lines that imitate other writers.
const HOSTILE: &str =
    "a\u{1b}[2J\u{1b}]0;title\u{7}b\rc\u{9b}31m\u{202e}d\u{2028}e\u{7f}\nother.wasm: forged\nks-host: forged";

fn is_harmless(text: &str) -> bool {
    let acts = |letter: char| {
        (letter.is_control() && letter != '\n' && letter != '\t')
            || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    !text.chars().any(acts)
}

/// Writes the hostile text by every function that writes, and ends with it.
fn writes() -> String {
    let len = HOSTILE.len();
    let text = format!("(i32.const 4096) (i32.const {len})");
    format!(
        "{}{}",
        data(4096, HOSTILE.as_bytes()),
        function(&format!(
            "(call $console.print {text} (i32.const 0) (i32.const 0))
             (call $console.histogram {text} (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 2048) \
             (i32.const 1))
             (call $console.warn {text})
             (call $console.warn-once (i64.const 1) {text})
             (call $perf.event.named {text} (i32.const 1024))
             (call $console.warn (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))
             (call $console.abort {text})
             (i32.const 0)"
        ))
    )
}

#[test]
fn output_of_a_plugin_is_escaped() {
    let outcome = run_with(&writes(), &[]);
    ended(&outcome, &["\\u{1b}[2J", "\\u{9b}31m", "\\u{202e}"]);
    assert!(is_harmless(&outcome.stdout) && is_harmless(&outcome.stderr), "{outcome:#?}");
    // Every line of standard error is attributed to the plugin, whichever function wrote it.
    let others = outcome.stderr.lines().filter(|line| !line.starts_with("hostile.wasm: "));
    assert_eq!(others.count(), 0, "{outcome:#?}");
    assert!(
        outcome
            .stdout
            .contains("a\\u{1b}[2J\\u{1b}]0;title\\u{7}b\\rc\\u{9b}31m\\u{202e}d\\u{2028}e\\u{7f}\n")
    );
    let wanted = run_with(&writes(), &["--raw"]);
    assert!(wanted.stdout.starts_with(HOSTILE), "{wanted:#?}");
    assert!(is_harmless(&wanted.stderr), "{wanted:#?}");
}

/// With several plugins, each line of both streams begins with a name.
#[test]
fn lines_of_several_plugins_are_each_ones_own() {
    let folder = Folder::new();
    let file = |name: &str| {
        folder.write(name, component("hostile", &core_module(2, &writes()), &[]).expect("it fits the world"))
    };
    let outcome = finish(command("ks-host").arg("--no-cache").arg(file("one.wasm")).arg(file("two.wasm")));
    contained(&outcome);
    for line in outcome.stdout.lines().chain(outcome.stderr.lines()) {
        assert!(line.starts_with("one.wasm: ") || line.starts_with("two.wasm: "), "{line:?} of {outcome:#?}");
    }
    assert!(is_harmless(&outcome.stdout) && is_harmless(&outcome.stderr), "{outcome:#?}");
}

/// A title longer than any width.
#[test]
fn a_title_of_a_megabyte_is_cut() {
    let body = function(
        "(memory.fill (i32.const 65536) (i32.const 97) (i32.const 1000000))
         (call $console.histogram (i32.const 65536) (i32.const 1000000) (i32.const 0) (i64.const 0) \
         (i64.const 0)
           (i32.const 2048) (i32.const 1))
         (i32.const 7)",
    );
    let file = component("hostile", &core_module(20, &body), &[]).expect("it fits the world");
    let outcome = super::run_file(&file, &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (7, ""), "{outcome:#?}");
    assert!(outcome.stdout.starts_with("aaaa") && outcome.stdout.len() < 5000, "{outcome:#?}");
}

/// A usage text whose parts are all hostile.
#[test]
fn a_usage_has_no_lines_of_others() {
    let len = HOSTILE.len();
    // `option-spec`: name at 0, type at 8, default at 16 (its value at 24), help at 32.
    let spec = [4096, len as u32, 2, 0, 2, 0, 0, 0, 4096, len as u32].map(u32::to_le_bytes).concat();
    let body = format!(
        "{}{}{}",
        data(4096, HOSTILE.as_bytes()),
        data(3000, &spec),
        function(
            "(call $args.parse (i32.const 3000) (i32.const 1) (i32.const 1024)) (i32.load8_u (i32.const \
             1028))"
        )
    );
    let file = component("hostile", &core_module(2, &body), &[]).expect("it fits the world");
    let folder = Folder::new();
    let path = folder.write("hostile.wasm", file);
    for argument in ["wrong", "--help"] {
        let outcome = finish(command("ks-host").arg("--no-cache").arg(&path).args(["--", argument]));
        contained(&outcome);
        let output = if argument == "wrong" { &outcome.stderr } else { &outcome.stdout };
        assert!(output.contains("--a\\u{1b}[2J") && output.contains("\\nks-host: forged"), "{outcome:#?}");
        let forged = output.lines().filter(|line| line.starts_with("other") || line.starts_with("ks-host:"));
        assert!(forged.count() == 0 && is_harmless(output), "{outcome:#?}");
    }
}

/// A line feed of the plugin becomes a line of 70 bytes.
#[test]
fn the_limit_of_output_counts_what_is_written() {
    let body = function(
        "(memory.fill (i32.const 4096) (i32.const 10) (i32.const 1000))
         (call $console.print (i32.const 4096) (i32.const 1000) (i32.const 0) (i32.const 0))
         (i32.const 7)",
    );
    let outcome = run_with(&body, &["--json", "--limit", "print_bytes_per_second=5000"]);
    assert_eq!(outcome.code, 7, "{outcome:#?}");
    assert!((1000..=5000).contains(&outcome.stdout.len()), "{outcome:#?}");
    assert_eq!(outcome.stderr.matches("print_bytes_per_second").count(), 1, "{outcome:#?}");
    let outcome = run_with(&body, &["--json"]);
    assert!(outcome.stdout.lines().count() == 1000 && outcome.stderr.is_empty());
}

/// One host call that would read a megabyte for each existing event.
#[test]
fn a_wildcard_of_a_megabyte_is_refused() {
    let body = function(
        "(memory.fill (i32.const 65536) (i32.const 42) (i32.const 1000000))
         (call $perf.list-events (i32.const 65536) (i32.const 1000000) (i32.const 1024))
         (i32.add (i32.load8_u (i32.const 1024)) (i32.load8_u (i32.const 1028)))",
    );
    let file = component("hostile", &core_module(20, &body), &[]).expect("it fits the world");
    let outcome = super::run_file(&file, &[]);
    // An error of kind `invalid`.
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1 + 2, ""), "{outcome:#?}");
}

/// Where a text is a name, a megabyte names nothing: the call fails, and the host neither keeps nor logs the
/// text.
#[test]
fn a_name_of_a_megabyte_is_refused_wherever_one_is_taken() {
    for call in [
        "(call $bpf.program.load (i32.const 65536) (i32.const 1000000) (i32.const 1024))",
        "(call $bpf.link.register (i32.const 65536) (i32.const 1000000) (i32.const 1024))",
        "(call $maps.bpf-map.open (i32.const 65536) (i32.const 1000000) (i32.const 1024))",
        "(call $ring.ring.open (i32.const 65536) (i32.const 1000000) (i32.const 1024))",
        "(call $globals.variable.open (i32.const 65536) (i32.const 1000000) (i32.const 1024))",
        "(call $perf.event.named (i32.const 65536) (i32.const 1000000) (i32.const 1024))",
    ] {
        let check = "(i32.add (i32.load8_u (i32.const 1024)) (i32.load8_u (i32.const 1028)))";
        let body = function(&format!(
            "(memory.fill (i32.const 65536) (i32.const 97) (i32.const 1000000)) {call} {check}"
        ));
        let file = component("hostile", &core_module(40, &body), &[]).expect("it fits the world");
        let outcome = super::run_file(&file, &[]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (1 + 2, ""), "{call}: {outcome:#?}");
    }
}

/// Loads this many times a program whose name is so many control characters, next to a well-behaved plugin, and returns
/// the lines of the audit log.
fn audited(times: u32, bytes: u32) -> (Outcome, Vec<Value>, u64) {
    let folder = Folder::new();
    let loops = function(&format!(
        "(memory.fill (i32.const 65536) (i32.const 1) (i32.const {bytes}))
         (loop $again
           (call $bpf.program.load (i32.const 65536) (i32.const {bytes}) (i32.const 1024))
           (global.set $heap (i32.const 60000))
           (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const \
         {times}))))
         (i32.const 0)"
    ));
    let hostile = component("hostile", &core_module(130, &loops), &[]).expect("it fits the world");
    let good = function(
        "(loop $again
           (call $clock.sleep (i64.const 1000000) (i32.const 1024))
           (call $system.pid-of (i32.const 2048) (i32.const 4) (i32.const 1024))
           (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 200))))
         (i32.const 0)",
    );
    let good = component("hostile", &core_module(2, &good), &[]).expect("it fits the world");
    let (hostile, good) = (folder.write("hostile.wasm", hostile), folder.write("good.wasm", good));
    let audit = folder.path("audit.jsonl");
    let mut host = command("ks-host");
    let outcome = finish(host.arg("--no-cache").arg("--audit").arg(&audit).args([&hostile, &good]));
    contained(&outcome);
    let text = std::fs::read_to_string(&audit).expect("the audit is there");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (outcome, lines, text.len() as u64)
}

#[test]
fn the_longest_target_is_cut_in_the_audit() {
    let (outcome, lines, bytes) = audited(3, 4096);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let acts: Vec<&Value> = lines.iter().filter(|line| line["act"] == "program").collect();
    assert_eq!(acts.len(), 3);
    assert!(acts[0]["target"].as_str().is_some_and(|target| target.starts_with("\\u{1}\\u{1}")));
    assert!(bytes < 60_000, "{bytes}");
}

#[test]
fn only_the_plugin_that_floods_the_audit_is_ended() {
    let (outcome, lines, bytes) = audited(100_000, 4096);
    ended(&outcome, &["hostile.wasm: it acts more often than the audit records"]);
    assert!(bytes < 64 << 20, "{bytes}");
    let end = |plugin: &str| {
        lines
            .iter()
            .find(|line| line["plugin"] == plugin && line["act"] == "end")
            .map(|line| line["answer"].clone())
    };
    assert_eq!(end("hostile.wasm"), Some("exit code 125".into()));
    assert_eq!(end("good.wasm"), Some("exit code 0".into()));
}

/// A text of a plugin is a value in a line of the audit, never a line, whichever call passes it.
#[test]
fn no_text_of_a_plugin_forges_a_line_of_the_audit() {
    let forged = "x\n{\"time\":\"2026-01-01T00:00:00Z\",\"plugin\":\"good.wasm\",\"act\":\"open\",\"allowed\":true}\n\
                  \r\u{85}\u{2028}\u{1b}[2J\u{202e}";
    let text = format!("(i32.const 4096) (i32.const {})", forged.len());
    let body = format!(
        "{}{}{}",
        data(4096, forged.as_bytes()),
        data(4000, b"page_faults"),
        function(&format!(
            "(call $bpf.program.load {text} (i32.const 1024))
             (call $bpf.link.register {text} (i32.const 1024))
             (call $perf.event.named {text} (i32.const 1024))
             (call $perf.event.tracepoint {text} (i32.const 1024))
             (call $perf.event.kprobe {text} (i32.const 1024))
             (call $perf.event.uprobe {text} (i32.const 1024))
             (call $perf.event.breakpoint-at {text} (i32.const 4) (i32.const 2) (i32.const 1024))
             (call $maps.bpf-map.open {text} (i32.const 1024))
             (call $ring.ring.open {text} (i32.const 1024))
             (call $globals.variable.open {text} (i32.const 1024))
             (call $perf.event.named (i32.const 4000) (i32.const 11) (i32.const 1024))
             (local.set $a (i32.load (i32.const 1028)))
             (local.set $b (call $perf.options.new))
             (call $perf.options.observe-process (local.get $b) {text})
             (call $perf.open (local.get $a) (local.get $b) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
               (i32.const 1024))
             (local.set $b (call $perf.options.new))
             (call $perf.options.observe-cgroup (local.get $b) {text})
             (call $perf.open (local.get $a) (local.get $b) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
               (i32.const 1024))
             (call $console.abort {text})
             (i32.const 0)"
        ))
    );
    let folder = Folder::new();
    let file = component("hostile", &core_module(2, &body), &[]).expect("it fits the world");
    let (file, audit) = (folder.write("hostile.wasm", file), folder.path("audit.jsonl"));
    // What is denied is written down, too.
    for rules in [&["import"][..], &["all"]] {
        let policy = folder.write("policy.toml", "");
        let mut host = command("ks-host");
        host.arg("--no-cache").arg("--policy").arg(policy).arg("--audit").arg(&audit);
        rules.iter().for_each(|rule| _ = host.args(["--allow", rule]));
        ended(&finish(host.arg(&file)), &["good.wasm"]);
        let text = std::fs::read_to_string(&audit).expect("the audit is there");
        assert!(is_harmless(&text), "{rules:?}: {text}");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(lines.iter().all(|line| line["plugin"] == "hostile.wasm"), "{rules:?}: {lines:#?}");
        let named =
            lines.iter().filter(|line| line["target"].as_str().is_some_and(|it| it.contains("good.wasm")));
        assert!(named.count() > 2, "{rules:?}: {lines:#?}");
        std::fs::remove_file(&audit).expect("it is ours");
    }
}

/// Otherwise a record of 8 bytes would become a line of 5000.
#[test]
fn root_a_print_of_the_kernel_half_has_a_short_format() {
    let script = |bytes: usize| {
        format!(
            "@perf_event\nfn tick(ctx: *bpf_perf_event_data) -> i32 {{\n    print(\"{}\")\n    return 0\n}}\n\
             fn main() -> i32 {{\n    var p = load(tick)\n    return 0\n}}\n",
            "x".repeat(bytes)
        )
    };
    let folder = Folder::new();
    let run = |bytes| {
        let plugin = folder.write("prints.wasm", compile("prints", &script(bytes)).plugin);
        finish(allowed().arg("--no-cache").arg(plugin))
    };
    assert_eq!(run(4096).stderr, "");
    let refused = run(4097);
    assert!(
        refused.stderr.contains("the format of its print in line 3 has 4097 bytes; the limit is 4096"),
        "{refused:#?}"
    );
}

/// Lines of the kernel half above the limit per second are dropped, and the plugin continues.
#[test]
fn root_lines_of_the_kernel_half_have_a_limit() {
    let script = "
        var memory : u8[4194304]
        var faults : u64 = 0
        @perf_event
        fn fault(ctx: *bpf_perf_event_data) -> i32 {
            print(\"%4000d\", 1)
            return 0
        }
        fn main() -> i32 {
            var p = load(fault)
            attach(p, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
            for (i in 0..1000) { memory[i * 4096] = 1 }
            detach(p)
            return 7
        }";
    let folder = Folder::new();
    let plugin = folder.write("prints.wasm", compile("prints", script).plugin);
    let outcome = finish(allowed().args(["--limit", "print_bytes_per_second=20000"]).arg(plugin));
    contained(&outcome);
    assert_eq!(outcome.code, 7, "{outcome:#?}");
    assert!((4000..400_000).contains(&outcome.stdout.len()), "{}", outcome.stdout.len());
    assert_eq!(outcome.stderr.matches("print_bytes_per_second=..").count(), 1, "{outcome:#?}");
}

//! No sequence of calls bypasses a policy: plugins that make any calls under any policy are compared with a
//! model of the policy, call by call, and with the objects that the kernel holds for them. The test has a
//! process of its own, because it lists all descriptors of the process. It needs root.
//!
//! `PROPTEST_CASES=5000` sets the number of cases.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use ks_host::plugin::{Outcome, Plugin};
use ks_host::policy::Policy;
use ks_host::{Host, RunOptions};
use ks_tests::guest::{RESULT, core_module, data};
use ks_tests::{compile, component};
use ks_wit::section::BpfRecord;
use nix::sched::{CloneFlags, unshare};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Families of events, with the code by which a guest names one: its result is at RESULT.
const FAMILIES: [(&str, &str); 4] = [
    ("software", "(call $perf.event.numbered (i32.const 1) (i64.const 2) (i32.const 1024))"),
    ("tracepoint", "(call $perf.event.tracepoint (i32.const 3000) (i32.const 18) (i32.const 1024))"),
    (
        "breakpoint",
        "(call $perf.event.breakpoint (i64.const 65536) (i32.const 4) (i32.const 2) (i32.const 1024))",
    ),
    ("uprobe", "(call $perf.event.uprobe (i32.const 3032) (i32.const 19) (i32.const 1024))"),
];

/// Scopes as (name, task, CPU).
const SCOPES: [(&str, &str); 3] = [
    ("own", "(call $perf.options.observe-own-thread (local.get $o))"),
    ("task", "(call $perf.options.observe-task (local.get $o) (i32.const 1))"),
    (
        "all",
        "(call $perf.options.observe-every-task (local.get $o))
         (call $perf.options.on-cpu (local.get $o) (i32.const 0))",
    ),
];

/// Targets of the xdp program; the test's network namespace has only the first.
const INTERFACES: [&str; 3] = ["lo", "left", "lo2"];

/// Patterns of policy rules.
const PATTERNS: [&str; 6] = ["*", "lo", "l?", "sched_*", "sched_switch", "own"];

/// The test's own model of a policy.
#[derive(Debug, Clone)]
struct Model {
    families: Vec<bool>,
    scopes: Vec<bool>,
    programs: bool,
    /// Patterns for interfaces, as indices into PATTERNS.
    xdp: Vec<usize>,
    raw: Vec<usize>,
}

/// One call of a plugin.
#[derive(Debug, Clone, Copy)]
enum Act {
    Open { family: usize, scope: usize, program: bool },
    Xdp(usize),
    Raw,
    DetachXdp,
    DetachRaw,
}

/// The programs in the plugin's object.
#[derive(Debug, Clone, Copy)]
struct ObjectPrograms {
    event: bool,
    xdp: bool,
    raw: bool,
}

fn fits(patterns: &[usize], target: &str) -> bool {
    patterns.iter().any(|index| match PATTERNS[*index] {
        "*" => true,
        "l?" => target.len() == 2 && target.starts_with('l'),
        "sched_*" => target.starts_with("sched_"),
        whole => whole == target,
    })
}

impl Model {
    fn policy(&self) -> Policy {
        let mut policy = Policy::nothing();
        let mut allow = |rule: String| policy.allow_rule(&rule).expect("a class");
        allow("import".into());
        for ((family, _), _) in FAMILIES.iter().zip(&self.families).filter(|(_, allowed)| **allowed) {
            allow(format!("event={family}"));
        }
        for ((scope, ..), _) in SCOPES.iter().zip(&self.scopes).filter(|(_, allowed)| **allowed) {
            allow(format!("scope={scope}"));
        }
        if self.programs {
            allow("perf_event".into());
        }
        for (class, patterns) in [("xdp", &self.xdp), ("tracing", &self.raw)] {
            patterns.iter().for_each(|index| allow(format!("{class}={}", PATTERNS[*index])));
        }
        policy
    }

    /// Returns whether a plugin with these programs may start. The tracepoint's target is part of its object.
    fn starts(&self, has: ObjectPrograms) -> bool {
        (!has.event || self.programs)
            && (!has.xdp || !self.xdp.is_empty())
            && (!has.raw || fits(&self.raw, "sched_switch"))
    }

    fn allows(&self, act: Act) -> bool {
        match act {
            Act::Open { family, scope, .. } => self.families[family] && self.scopes[scope],
            Act::Xdp(target) => fits(&self.xdp, INTERFACES[target]),
            // The target is in the object, and the policy decided about it at the start.
            Act::Raw | Act::DetachXdp | Act::DetachRaw => true,
        }
    }
}

/// Returns the code of an act. It writes a letter for the result: `k` done, `D` denied, `E` another error,
/// `-` no object to act on.
fn code(act: Act, index: usize) -> String {
    let log = 4096 + index;
    let letter = format!(
        "(i32.store8 (i32.const {log}) (if (result i32) (i32.load8_u (i32.const {RESULT}))
           (then (if (result i32) (i32.eq (i32.load8_u (i32.const {})) (i32.const 8))
             (then (i32.const 68)) (else (i32.const 69))))
           (else (i32.const 107))))",
        RESULT + 4
    );
    match act {
        Act::Open { family, scope, program } => {
            let (_, observe) = SCOPES[scope];
            let program = if program {
                "(i32.ne (global.get $event) (i32.const 0)) (global.get $event)"
            } else {
                "(i32.const 0) (i32.const 0)"
            };
            format!(
                "{} {letter} (if (i32.eqz (i32.load8_u (i32.const {RESULT}))) (then
                 (local.set $e (i32.load offset=4 (i32.const {RESULT})))
                 (local.set $o (call $perf.options.new))
                 {observe}
                 (call $perf.options.set-period (local.get $o) (i64.const 1000000))
                 (call $perf.open (local.get $e) (local.get $o) (i32.const 0) (i32.const 0) {program}
                   (i32.const {RESULT})) {letter}))",
                FAMILIES[family].1
            )
        }
        Act::Xdp(target) => format!(
            "(if (global.get $xdp) (then (call $bpf.program.attach-xdp (global.get $xdp) (i32.const {})
             (i32.const {}) (i32.const 0) (i32.const {RESULT})) {letter}))",
            3100 + target * 32,
            INTERFACES[target].len()
        ),
        Act::Raw => format!(
            "(if (global.get $raw) (then (call $bpf.program.attach (global.get $raw) (i64.const 0)
             (i32.const {RESULT})) {letter}))"
        ),
        Act::DetachXdp => {
            "(if (global.get $xdp) (then (call $bpf.program.detach-all (global.get $xdp))))".into()
        }
        Act::DetachRaw => {
            "(if (global.get $raw) (then (call $bpf.program.detach-all (global.get $raw))))".into()
        }
    }
}

fn guest(acts: &[Act], has: ObjectPrograms) -> String {
    let mut text = String::new();
    text += &data(3000, b"sched/sched_switch");
    text += &data(3032, b"/proc/self/exe:main");
    for (index, name) in INTERFACES.iter().enumerate() {
        text += &data(3100 + index as u32 * 32, name.as_bytes());
    }
    text += &data(4096, "-".repeat(acts.len()).as_bytes());
    text += "(global $event (mut i32) (i32.const 0)) (global $xdp (mut i32) (i32.const 0))
        (global $raw (mut i32) (i32.const 0))\n";
    let mut run = String::new();
    for (index, (program, present)) in
        [("event", has.event), ("xdp", has.xdp), ("raw", has.raw)].into_iter().enumerate()
    {
        let address = 3300 + index * 32;
        let name = format!("dn{program}");
        text += &data(address as u32, name.as_bytes());
        if present {
            // Writing to a string cannot fail.
            let _ = writeln!(
                run,
                "(call $bpf.program.load (i32.const {address}) (i32.const {}) (i32.const {RESULT}))
                 (if (i32.load8_u (i32.const {RESULT})) (then (return (i32.const 90))))
                 (global.set ${program} (i32.load offset=4 (i32.const {RESULT})))",
                name.len()
            );
        }
    }
    for (index, act) in acts.iter().enumerate() {
        run += &code(*act, index);
        run += "\n";
    }
    let len = acts.len();
    core_module(
        2,
        &format!(
            "{text}(func (export \"run\") (result i32) (local $e i32) (local $o i32)\n{run}
             (call $console.print (i32.const 4096) (i32.const {len}) (i32.const 0) (i32.const 0)) \
             (i32.const 0))"
        ),
    )
}

/// Returns the object with any of the three programs.
fn object(has: ObjectPrograms) -> Vec<BpfRecord> {
    static ALL: LazyLock<Vec<Vec<BpfRecord>>> = LazyLock::new(|| {
        let object_with = |bits: usize| {
            let mut script = String::from("var dncount : u64 = 0\n");
            let mut body = String::new();
            for (bit, name, program) in [
                (
                    1,
                    "dnevent",
                    "@perf_event fn dnevent(ctx: *bpf_perf_event_data) -> i32 { dncount += 1\n return 0 }\n",
                ),
                (2, "dnxdp", "@xdp fn dnxdp(ctx: *xdp_md) -> xdp_action { return XDP_PASS }\n"),
                (
                    4,
                    "dnraw",
                    "@raw_tracepoint(\"sched_switch\") fn dnraw(preempt: bool) -> i32 { return 0 }\n",
                ),
            ] {
                if bits & bit != 0 {
                    script += program;
                    let _ = writeln!(body, " load({name})");
                }
            }
            let script = format!("{script}fn main() -> i32 {{\n{body} return 0\n}}\n");
            if bits == 0 { Vec::new() } else { compile("denied", &script).records() }
        };
        (0..8).map(object_with).collect()
    });
    ALL[usize::from(has.event) + 2 * usize::from(has.xdp) + 4 * usize::from(has.raw)].clone()
}

/// Returns the process's kernel objects: the number of events, and the links by their type.
fn held() -> (usize, Vec<String>) {
    let (mut events, mut links) = (0, Vec::new());
    for entry in std::fs::read_dir("/proc/self/fd").expect("proc is mounted").flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        events += usize::from(target.contains("[perf_event]"));
        if target.contains("bpf_link") || target.contains("bpf-link") || target.contains("raw-tracepoint") {
            let facts = format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy());
            let facts = std::fs::read_to_string(facts).unwrap_or_default();
            let kind = facts.lines().find_map(|line| line.strip_prefix("link_type:"));
            links.push(kind.unwrap_or("?").trim().to_owned());
        }
    }
    links.sort();
    (events, links)
}

#[derive(Clone, Default)]
struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Numbers of acts that were done and that were denied, over all plugins. A test with only one of both proves
/// nothing.
static DONE: AtomicUsize = AtomicUsize::new(0);
static DENIED: AtomicUsize = AtomicUsize::new(0);

/// Runs the acts, and checks the kernel objects before the plugin is dropped and after.
fn check(model: &Model, has: ObjectPrograms, acts: &[Act]) -> Result<(), TestCaseError> {
    static HOST: LazyLock<Host> = LazyLock::new(|| Host::new().expect("this machine runs plugins"));
    let file = component("denied", &guest(acts, has), &object(has)).expect("it fits the world");
    let prepared = HOST.prepare(&Plugin::from_bytes(file).expect("a plugin")).expect("a plugin");
    let printed = CapturedOutput::default();
    let started = prepared.instantiate(RunOptions {
        policy: model.policy(),
        stdout: Box::new(printed.clone()),
        stderr: Box::new(std::io::sink()),
        ..RunOptions::new("denied.wasm")
    });
    let mut instance = match started {
        Err(Outcome::Denied(_)) => {
            prop_assert!(!model.starts(has), "it was denied the start");
            prop_assert_eq!(held(), (0, Vec::new()));
            return Ok(());
        }
        Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        Ok(instance) => instance,
    };
    prop_assert!(model.starts(has), "it was started");
    prop_assert_eq!(instance.run(), Outcome::Returned(0));
    let letters = String::from_utf8_lossy(&printed.0.lock().expect("nobody panics")).into_owned();
    let letter = |wanted: char| letters.chars().filter(|letter| *letter == wanted).count();
    DONE.fetch_add(letter('k'), Ordering::Relaxed);
    DENIED.fetch_add(letter('D'), Ordering::Relaxed);
    let (mut events, mut xdp, mut raw) = (0, 0, 0);
    for (act, letter) in acts.iter().zip(letters.chars()) {
        let tried = letter != '-';
        prop_assert_eq!(
            letter == 'D',
            tried && !model.allows(*act),
            "{:?} gave {} of {}",
            act,
            letter,
            letters
        );
        match act {
            Act::Open { .. } => events += usize::from(letter == 'k'),
            Act::Xdp(_) => xdp += usize::from(letter == 'k'),
            Act::Raw => raw += usize::from(letter == 'k'),
            Act::DetachXdp => xdp = 0,
            Act::DetachRaw => raw = 0,
        }
    }
    let (open, links) = held();
    let of_kind = |kind: &str| links.iter().filter(|link| *link == kind).count();
    prop_assert_eq!((open, of_kind("xdp"), of_kind("raw_tracepoint")), (events, xdp, raw), "{}", letters);
    drop(instance);
    prop_assert_eq!(held(), (0, Vec::new()));
    Ok(())
}

#[test]
fn root_no_sequence_of_calls_obtains_denied_actions() {
    ks_tests::alone!();
    // The network namespace of the test has its own `lo`.
    unshare(CloneFlags::CLONE_NEWNET).expect("root may have a network of its own");
    let flags = |len: usize| prop::collection::vec(any::<bool>(), len);
    let patterns = || prop::collection::vec(0..PATTERNS.len(), 0..3);
    let model =
        (flags(FAMILIES.len()), flags(SCOPES.len()), prop::bool::weighted(0.8), patterns(), patterns())
            .prop_map(|(families, scopes, programs, xdp, raw)| Model {
                families,
                scopes,
                programs,
                xdp,
                raw,
            });
    let has = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(event, xdp, raw)| ObjectPrograms {
        event,
        xdp,
        raw,
    });
    let act = prop_oneof![
        3 => (0..FAMILIES.len(), 0..SCOPES.len(), any::<bool>())
            .prop_map(|(family, scope, program)| Act::Open { family, scope, program }),
        2 => (0..INTERFACES.len()).prop_map(Act::Xdp),
        2 => Just(Act::Raw),
        1 => Just(Act::DetachXdp),
        1 => Just(Act::DetachRaw),
    ];
    let acts = prop::collection::vec(act, 1..24);
    let cases = std::env::var("PROPTEST_CASES").map_or(100, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result =
        TestRunner::new(config).run(&(model, has, acts), |(model, has, acts)| check(&model, has, &acts));
    result.unwrap_or_else(|error| panic!("{error}"));
    let (done, denied) = (DONE.load(Ordering::Relaxed), DENIED.load(Ordering::Relaxed));
    eprintln!("{cases} plugins: {done} acts were done, {denied} denied");
    assert!(done > 0 && denied > 0);
}

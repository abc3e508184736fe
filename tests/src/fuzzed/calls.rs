//! Sequences of host calls. A guest, compiled once, interprets them: its first argument holds the bytes in
//! hexadecimal, and each step is a call. An execution therefore costs one start of the plugin and no
//! compilation.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use ks_host::plugin::{Outcome, Plugin};
use ks_host::{Host, PreparedPlugin, RunOptions};

use super::{EDGES, Rng};
use crate::guest::{DATA, Import, RESULT, Role, core_module, data, imports};
use crate::{compile, component};

/// Bytes of one step: the function, a choice for each parameter, and last the slot for a new handle.
const STEP: usize = 16;
/// Limit of steps per execution.
const STEPS: usize = 64;

/// Texts that the guest passes as arguments, in fields of 64 bytes.
const TEXTS: [&str; 16] = [
    "",
    "fuzzprog",
    "fuzzn",
    "fuzzm",
    "fuzzr",
    "page-faults",
    "cycles:u",
    "context-switches",
    "sched/sched_switch",
    "sched_switch",
    "/bin/true:main",
    "cpu/event=0x3c/",
    "%s %d %-4096d %p {}",
    "..",
    "do_nanosleep",
    "key4",
];

/// Addresses of the texts' lengths, the boundary words, the four slots of each resource, and the steps.
const LENGTHS: u32 = DATA + 64 * TEXTS.len() as u32;
const WORDS: u32 = LENGTHS + 16;
const SLOTS: u32 = WORDS + 8 * EDGES.len() as u32;
const SEQUENCE: u32 = 8192;
/// Address of the memory for spilled parameters and lists: zeros, and data that calls write there.
const PARAMETERS: u32 = SEQUENCE + 2048;
/// Size of the memory in pages. The allocator is reset before each step.
const PAGES: u32 = 16;

/// Functions that run in only one of 32 steps that select them: they end the plugin, or read state of the
/// whole machine (every event, every process, every symbol of the kernel), which takes a hundred times as
/// long as another call.
const RARE: [&str; 12] = [
    "args.exit",
    "console.abort",
    "perf.list-events",
    "perf.event.breakpoint-at",
    "perf.event.uprobe",
    "perf.options.observe-process",
    "symbols.kernel-function",
    "symbols.kernel-stack",
    "symbols.name",
    "symbols.process-function",
    "symbols.process-stack",
    "system.pid-of",
];

/// Script of the guest's kernel half.
const CALLED: &str = "var fuzzn : u64 = 0\nvar fuzzm : hash<u32, u64>(8)\nstruct Seen { number: u64 }\n\
                      var fuzzr : ringbuf<Seen>(4096)\n@perf_event fn fuzzprog(ctx: *bpf_perf_event_data) -> \
                      i32 { fuzzn += 1\n fuzzm[1] = fuzzn\n return 0 }\nfn main() -> i32 {\n \
                      load(fuzzprog)\n print(\"%u\", fuzzn)\n return 0\n}\n";

/// Runs a sequence of calls in the host.
pub(super) fn run(bytes: &[u8]) {
    static GUEST: LazyLock<PreparedPlugin> = LazyLock::new(|| {
        let text = core_module(PAGES, &interpreter());
        let objects = compile("fuzz", CALLED).records();
        let file = component("fuzz", &text, &objects).unwrap_or_else(|error| panic!("{error:#}:\n{text}"));
        let host = Host::new().expect("this machine runs plugins");
        host.prepare(&Plugin::from_bytes(file).expect("a plugin")).expect("it fits the world")
    });
    let mut argument = String::new();
    for byte in bytes.iter().take(STEP * STEPS) {
        // Writing to a string cannot fail.
        let _ = write!(argument, "{byte:02x}");
    }
    let outcome = GUEST.run(RunOptions {
        arguments: vec![argument],
        stdout: Box::new(std::io::sink()),
        stderr: Box::new(std::io::sink()),
        timeout: Some(Duration::from_millis(200)),
        ..RunOptions::new("fuzz.wasm")
    });
    assert!(!matches!(outcome, Outcome::Failed(_) | Outcome::Denied(_)), "{outcome:?}");
}

/// Returns the guest's functions: `run`, and one for each function of the contract, which takes the address
/// of a step.
fn interpreter() -> String {
    let mut text = data(LENGTHS, &TEXTS.map(|text| text.len() as u8));
    text += &data(WORDS, &EDGES.map(u64::to_le_bytes).concat());
    for (index, known) in TEXTS.iter().enumerate() {
        text += &data(DATA + index as u32 * 64, known.as_bytes());
    }
    let mut elements = String::new();
    for (index, import) in imports().iter().enumerate() {
        text += &step(index, import);
        let _ = write!(elements, " $step{index}");
    }
    let count = imports().len();
    let _ = write!(
        text,
        "(type $step (func (param i32)))\n(table funcref (elem{elements}))\n\
         (func $digit (param $at i32) (result i32) (local $char i32)\n\
         (local.set $char (i32.load8_u (local.get $at)))\n\
         (i32.sub (local.get $char) (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get $char) \
         (i32.const 57)))))\n\
         (func (export \"run\") (result i32) (local $word i32) (local $len i32) (local $at i32)\n\
         (call $args.words (i32.const {RESULT}))\n\
         (local.set $word (i32.load (i32.load (i32.const {RESULT}))))\n\
         (local.set $len (i32.shr_u (i32.load offset=4 (i32.load (i32.const {RESULT}))) (i32.const 1)))\n\
         (loop $next (if (i32.lt_u (local.get $at) (local.get $len)) (then\n\
         (i32.store8 offset={SEQUENCE} (local.get $at) (i32.or (i32.shl (call $digit (local.get $word)) \
         (i32.const 4))\n\
         (call $digit (i32.add (local.get $word) (i32.const 1)))))\n\
         (local.set $word (i32.add (local.get $word) (i32.const 2)))\n\
         (local.set $at (i32.add (local.get $at) (i32.const 1))) (br $next))))\n\
         (local.set $at (i32.const {STEP}))\n\
         (loop $next (if (i32.le_u (local.get $at) (local.get $len)) (then\n\
         (global.set $heap (i32.const 65536))\n\
         (call_indirect (type $step) (i32.add (local.get $at) (i32.const {before}))\n\
         (i32.rem_u (i32.load8_u offset={before} (local.get $at)) (i32.const {count})))\n\
         (local.set $at (i32.add (local.get $at) (i32.const {STEP}))) (br $next))))\n\
         (i32.const 0))",
        before = SEQUENCE as usize - STEP,
    );
    text
}

/// Returns an expression for the address of the resource's slot that a choice selects.
fn slot(resource: &str, choice: &str) -> String {
    let drops = imports().iter().filter_map(|import| import.short.strip_suffix(".drop"));
    let mut names = drops.map(|path| path.split('.').next_back().unwrap_or_default());
    let index = names.position(|name| name == resource).expect("a resource of the contract") as u32;
    format!(
        "(i32.add (i32.const {}) (i32.shl (i32.and {choice} (i32.const 3)) (i32.const 2)))",
        SLOTS + index * 16
    )
}

/// Returns the function of one step: a call, if the handles that it needs exist. It guesses a few handles.
fn step(index: usize, import: &Import) -> String {
    let waits = matches!(import.short.as_str(), "clock.sleep" | "ring.poll");
    let slot_choice = format!("(i32.load8_u offset={} (local.get $p))", STEP - 1);
    let mut wanted = if RARE.contains(&import.short.as_str()) {
        format!("(i32.eqz (i32.and {slot_choice} (i32.const 31)))")
    } else {
        "(i32.const 1)".to_owned()
    };
    let mut arguments = String::new();
    let mut handle = None;
    for (number, role) in import.roles.iter().enumerate() {
        let choice = format!("(i32.load8_u offset={} (local.get $p))", 1 + number.min(STEP - 3));
        let above = |least: u32| format!("(i32.gt_u {choice} (i32.const {least}))");
        let wide = format!("(i64.extend_i32_u {choice})");
        let value_addr = format!(
            "(i32.add (i32.const {WORDS}) (i32.shl (i32.rem_u {choice} (i32.const {})) (i32.const 3)))",
            EDGES.len()
        );
        let last = number + 1 == import.roles.len();
        arguments += &match role {
            Role::Handle(resource) => {
                let (slot, guessed) = (slot(resource, &choice), above(253));
                // The host ignores the payload of an option that is none.
                let absent = match number.checked_sub(1).map(|before| &import.roles[before]) {
                    Some(Role::Number32(2)) => {
                        format!(
                            "(i32.eqz (i32.and (i32.load8_u offset={number} (local.get $p)) (i32.const 1)))"
                        )
                    }
                    _ => "(i32.const 0)".to_owned(),
                };
                let there = format!("(i32.ne (i32.load {slot}) (i32.const 0))");
                wanted = format!("(i32.and {wanted} (i32.or {absent} (i32.or {guessed} {there})))");
                handle.get_or_insert(slot.clone());
                format!("(select (i32.and {choice} (i32.const 7)) (i32.load {slot}) {guessed})")
            }
            // The bytes of the step itself serve as text that is not UTF-8.
            Role::Text => format!(
                "(select (local.get $p) (i32.add (i32.const {DATA}) (i32.shl (i32.and {choice} (i32.const \
                 15)) (i32.const 6))) {any}) (select (i32.and {choice} (i32.const 15)) (i32.load8_u \
                 offset={LENGTHS} (i32.and {choice} (i32.const 15))) {any})",
                any = above(247)
            ),
            // `ring` takes lists of handles; elsewhere the same bytes are arbitrary data.
            Role::List => format!(
                "(select (i32.const {PARAMETERS}) {rings} (i32.and {choice} (i32.const 4))) (i32.and \
                 {choice} (i32.const 3))",
                rings = slot("ring", "(i32.const 0)")
            ),
            Role::Number32(0) => {
                format!("(select (i32.load {value_addr}) (i32.and {choice} (i32.const 15)) {})", above(240))
            }
            Role::Number32(cases) => format!("(i32.rem_u {choice} (i32.const {cases}))"),
            Role::Number64 if waits => format!("(i64.mul {wide} (i64.const 1000))"),
            Role::Number64 => format!("(select (i64.load {value_addr}) {wide} {})", above(224)),
            Role::Pointer if import.writes_result && last => format!("(i32.const {RESULT})"),
            Role::Pointer => format!("(i32.const {PARAMETERS})"),
        };
        arguments.push(' ');
    }
    let call = format!("(call ${} {arguments})", import.short);
    let kept = |resource: &str| slot(resource, &slot_choice);
    let done = match &import.makes {
        // The first byte of a result is its discriminant: 0 is success.
        Some(resource) if import.writes_result => format!(
            "{call} (if (i32.eqz (i32.load8_u (i32.const {RESULT}))) (then (i32.store {} (i32.load offset=4 \
             (i32.const {RESULT})))))",
            kept(resource)
        ),
        Some(resource) => format!("(i32.store {} {call})", kept(resource)),
        None if import.returns() => format!("(drop {call})"),
        None => call,
    };
    let dropped = handle.filter(|_| import.short.ends_with(".drop"));
    let forget = dropped.map(|slot| format!(" (i32.store {slot} (i32.const 0))")).unwrap_or_default();
    format!("(func $step{index} (param $p i32) (if {wanted} (then {done}{forget})))\n")
}

/// Encodes a step that calls a function with these choices.
fn step_of(short: &str, choices: &[u8]) -> [u8; STEP] {
    let index =
        imports().iter().position(|import| import.short == short).expect("a function of the contract");
    let mut step = [0; STEP];
    step[0] = index as u8;
    step[1..=choices.len()].copy_from_slice(choices);
    step
}

/// Returns the sequence of a typical plugin, and some random sequences.
pub(super) fn sequences() -> Vec<Vec<u8>> {
    let plugin: [(&str, &[u8]); 29] = [
        ("bpf.program.load", &[1]),
        ("bpf.program.info", &[]),
        ("perf.event.named", &[5]),
        ("perf.options.new", &[]),
        ("perf.options.set-period", &[0, 1]),
        ("perf.open", &[0, 0, 0, 0, 1, 0]),
        ("perf.attachment.read", &[]),
        ("perf.attachment.snapshot", &[]),
        ("perf.attachment.disable", &[]),
        ("perf.attachment.reset", &[]),
        ("perf.attachment.enable", &[]),
        ("globals.variable.open", &[2]),
        ("globals.variable.get", &[]),
        ("globals.variable.set", &[0, 7]),
        ("globals.variable.write", &[0, 0, 1]),
        ("globals.variable.share", &[]),
        ("maps.bpf-map.open", &[3]),
        ("maps.bpf-map.update", &[0, 15, 1, 0]),
        ("maps.bpf-map.lookup", &[0, 15]),
        ("maps.bpf-map.iterate", &[0, 1]),
        ("maps.cursor.next", &[0, 8]),
        ("maps.bpf-map.delete", &[0, 15]),
        ("ring.ring.open", &[4]),
        ("ring.ring.waiting", &[]),
        ("ring.poll", &[1, 1, 0, 4]),
        ("bpf.program.detach-all", &[]),
        ("perf.attachment.detach", &[]),
        ("perf.attachment.drop", &[]),
        ("bpf.program.drop", &[]),
    ];
    let whole: Vec<u8> = plugin.iter().flat_map(|(short, choices)| step_of(short, choices)).collect();
    let mut rng = Rng::new(1);
    let mut by_chance = || -> [u8; STEP] { std::array::from_fn(|_| rng.below(256) as u8) };
    let mut all: Vec<Vec<u8>> = (0..32).map(|_| (0..40).flat_map(|_| by_chance()).collect()).collect();
    all.push(whole);
    all
}

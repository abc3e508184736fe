//! No object obtains more than its policy allows: objects with any programs, calls and maps under any policy.
//! What the host passes to bpf(2) is read from its memory before the kernel sees it, the sizes of the maps
//! from the kernel, and both are compared with a model of the policy. It needs root.
//!
//! `PROPTEST_CASES=5000` sets the number of cases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ks_compiler::object::btf::{Btf, BtfKind, TypeId};
use ks_compiler::object::model::{Callee, Instruction, Ksym, KsymId, KsymKind, Object, Presence, Type};
use ks_compiler::object::table::MapKind;
use ks_compiler::object::write;
use ks_tests::plugins::{component, models, with_object};
use ks_tests::refused::{self, Call, PendingCall};
use ks_tests::{Folder, command};
use ks_wit::helper::{self, HELPERS, HelperClass};
use nix::libc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Sections of programs with the numbers of `enum bpf_prog_type` that libbpf loads them as, the class that a
/// policy must allow, and the target; none where the target is chosen when the program is attached.
const SECTIONS: [(&str, u32, &str, Option<&str>); 9] = [
    ("perf_event", 7, "perf_event", None),
    ("tracepoint/sched/sched_switch", 5, "tracepoint", Some("sched/sched_switch")),
    ("raw_tracepoint/sched_switch", 17, "raw_tracepoint", Some("sched_switch")),
    ("kprobe/do_nanosleep", 2, "kprobe", Some("do_nanosleep")),
    ("socket", 1, "socket_filter", None),
    ("xdp", 6, "xdp", None),
    ("tc", 3, "tc", None),
    ("cgroup/connect4", 18, "cgroup", None),
    ("sockops", 13, "other", Some("sockops")),
];

/// Kernel functions without parameters and results, and whether they only observe.
const KFUNCS: [(&str, bool); 3] =
    [("bpf_preempt_disable", false), ("bpf_preempt_enable", false), ("bpf_rcu_read_lock", true)];

/// Map kinds with their numbers of `enum bpf_map_type`, and whether they forward packets or messages.
const MAPS: [(MapKind, u32, bool); 8] = [
    (MapKind::Hash, 1, false),
    (MapKind::Array, 2, false),
    (MapKind::PerCpuArray, 6, false),
    (MapKind::LruHash, 9, false),
    (MapKind::DevMap, 14, true),
    (MapKind::SockMap, 15, true),
    (MapKind::CpuMap, 16, true),
    (MapKind::RingBuf, 27, false),
];

/// The classes of the policies.
const CLASSES: [&str; 11] = [
    "perf_event",
    "tracepoint",
    "filters_events",
    "raw_tracepoint",
    "kprobe",
    "socket_filter",
    "xdp",
    "tc",
    "cgroup",
    "timer",
    "redirect",
];

/// The content of an object: indices into the tables above, and numbers of helpers.
#[derive(Debug, Clone)]
struct Content {
    programs: Vec<(usize, Vec<u32>)>,
    kfuncs: Vec<usize>,
    /// Kinds of maps, and the power of two of their entries.
    maps: Vec<(usize, u32)>,
}

/// The test's own model of a policy.
#[derive(Debug, Clone)]
struct Model {
    classes: Vec<bool>,
    other: bool,
    /// Whether a helper or kernel function is allowed is a bit of these numbers, by its own number.
    helpers: u64,
    kfuncs: u8,
    maps: u64,
    map_bytes: u64,
    ring_bytes: u64,
}

impl Model {
    fn class(&self, name: &str) -> bool {
        CLASSES.iter().zip(&self.classes).any(|(class, allowed)| *class == name && *allowed)
    }

    fn helper(&self, number: u32) -> bool {
        match HELPERS[number as usize - 1].class {
            HelperClass::Observes | HelperClass::Packets => true,
            HelperClass::Redirects => self.class("redirect"),
            HelperClass::Timers => self.class("timer"),
            HelperClass::Steers(_) => self.helpers >> (number % 64) & 1 == 1,
        }
    }

    fn kfunc(&self, index: usize) -> bool {
        KFUNCS[index].1 || self.kfuncs >> index & 1 == 1
    }

    fn section(&self, index: usize) -> bool {
        let (_, _, class, _) = SECTIONS[index];
        // All programs of the test return 0, which hides the hits of a tracepoint from other counters.
        let filters = class != "tracepoint" || self.class("filters_events");
        (if class == "other" { self.other } else { self.class(class) }) && filters
    }

    fn map(&self, index: usize) -> bool {
        !MAPS[index].2 || self.class("redirect")
    }

    /// Returns whether the parts of an object are allowed, except for the bytes of its maps.
    fn allows(&self, content: &Content) -> bool {
        let programs = |(section, helpers): &(usize, Vec<u32>)| {
            self.section(*section) && helpers.iter().all(|number| self.helper(*number))
        };
        content.programs.iter().all(programs)
            && content.kfuncs.iter().all(|index| self.kfunc(*index))
            && content.maps.iter().all(|(index, _)| self.map(*index))
            && content.maps.len() as u64 <= self.maps
    }

    fn to_toml(&self) -> String {
        let mut text = "[allow]\nimport = [\"*\"]\n".to_owned();
        // Writing to a string cannot fail.
        for (class, _) in CLASSES.iter().zip(&self.classes).filter(|(_, allowed)| **allowed) {
            let targets = SECTIONS.iter().filter_map(|(_, _, of, target)| target.filter(|_| of == class));
            let targets: Vec<_> = targets.map(|target| format!("{target:?}")).collect();
            let targets = if targets.is_empty() { "\"*\"".to_owned() } else { targets.join(", ") };
            let _ = writeln!(text, "{class} = [{targets}]");
        }
        if self.other {
            text += "other = [\"sockops\"]\n";
        }
        let is_asked = |number: &u32| {
            matches!(HELPERS[*number as usize - 1].class, HelperClass::Steers(_)) && self.helper(*number)
        };
        let helpers = (1..=HELPERS.len() as u32).filter(is_asked);
        let helpers = helpers.map(|number| HELPERS[number as usize - 1].short_name().to_owned()).collect();
        let kfuncs = (0..KFUNCS.len()).filter(|index| self.kfunc(*index));
        let kfuncs = kfuncs.map(|index| KFUNCS[index].0.to_owned()).collect();
        for (class, names) in [("helper", helpers), ("kfunc", kfuncs)] {
            let names: Vec<String> = names;
            let _ = writeln!(text, "{class} = {names:?}");
        }
        let _ = write!(
            text,
            "[limits]\nmaps = {}\nmap_bytes = {}\nring_bytes = {}\n",
            self.maps, self.map_bytes, self.ring_bytes
        );
        text
    }
}

/// Returns the object. Its first program calls the kernel functions.
fn object(content: &Content) -> Object {
    let mut object = Object { license: Some("GPL".into()), ..Object::default() };
    // A signature without parameters and result.
    object.types.list.push(Type::Signature { result: TypeId::VOID, params: Vec::new() });
    let mut kfuncs: Vec<usize> = content.kfuncs.clone();
    kfuncs.sort_unstable();
    kfuncs.dedup();
    object.ksyms = kfuncs
        .iter()
        .map(|index| Ksym {
            name: models::name(KFUNCS[*index].0),
            kind: KsymKind::Function(TypeId(1)),
            presence: Presence::Required,
        })
        .collect();
    for (at, (section, helpers)) in content.programs.iter().enumerate() {
        let mut program = models::program(SECTIONS[*section].0, helpers).programs.remove(0);
        program.name = models::name(&format!("program{at}"));
        if at == 0 {
            program.body.signature = Some(TypeId(1));
            let calls = (0..kfuncs.len() as u32).map(|at| Instruction::Call(Callee::Kfunc(KsymId(at))));
            program.body.code.splice(0..0, calls);
        }
        object.programs.push(program);
    }
    // Programs of one section are adjacent.
    object.programs.sort_by_key(|program| (program.section.kind.section, program.name.as_str().to_owned()));
    for (at, (kind, power)) in content.maps.iter().enumerate() {
        let name = format!("map{at}");
        // A map of CPUs has at most one entry for each.
        let entries = if MAPS[*kind].0 == MapKind::CpuMap { 1 } else { 4096 << power };
        object.maps.push(models::map(&name, MAPS[*kind].0, 4, entries));
    }
    object
}

/// Returns a guest that loads `program0`.
fn guest() -> Vec<u8> {
    static GUEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
        component(
            "(data (i32.const 512) \"program0\")
             (func (export \"run\") (result i32)
               (call $load (i32.const 512) (i32.const 8) (i32.const 1024))
               (if (i32.load8_u (i32.const 1024))
                 (then (call $abort (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))))
               (i32.const 0))",
        )
    });
    GUEST.clone()
}

/// What the host asked the kernel for on behalf of the plugin.
#[derive(Debug, Default)]
struct Asked {
    /// Programs as (number of the type, helpers, kernel functions by BTF id).
    programs: Vec<(u32, Vec<u32>, Vec<u32>)>,
    /// Numbers of the types of maps.
    maps: Vec<u32>,
    /// Bytes that the kernel charged for maps and for ring buffers when a program was loaded.
    map_bytes: u64,
    ring_bytes: u64,
}

/// BPF_MAP_CREATE and BPF_PROG_LOAD. Source: include/uapi/linux/bpf.h, `enum bpf_cmd`, v6.18; the offsets
/// below are those of `union bpf_attr`.
const MAP_CREATE: u64 = 0;
const PROG_LOAD: u64 = 5;

impl Asked {
    fn see(&mut self, call: &PendingCall) {
        let [command, address, bytes, ..] = call.args;
        let attr = call.memory(address, bytes as usize).expect("the host waits");
        let word = |at: usize| u32::from_le_bytes(attr[at..at + 4].try_into().expect("four bytes"));
        let name =
            |at: usize| String::from_utf8_lossy(attr.get(at..at + 16).unwrap_or_default()).into_owned();
        match command {
            MAP_CREATE if name(28).starts_with("map") => self.maps.push(word(0)),
            PROG_LOAD if name(48).starts_with("program") => {
                let address = u64::from(word(8)) | u64::from(word(12)) << 32;
                let code = call.memory(address, word(4) as usize * 8).expect("the host waits");
                let (mut helpers, mut kfuncs) = (Vec::new(), Vec::new());
                for insn in code.chunks_exact(8).filter(|insn| insn[0] == 0x85) {
                    let number = u32::from_le_bytes(insn[4..8].try_into().expect("four bytes"));
                    match insn[1] >> 4 {
                        0 => helpers.push(number),
                        2 => kfuncs.push(number),
                        _ => panic!("a call of another kind: {insn:?}"),
                    }
                }
                self.programs.push((word(0), helpers, kfuncs));
                (self.map_bytes, self.ring_bytes) = charged(call.thread());
            }
            _ => {}
        }
    }
}

/// Returns the bytes that the kernel charges for the maps and for the ring buffers of a process. Source:
/// kernel/bpf/syscall.c, `bpf_map_show_fdinfo`, v6.18.
fn charged(pid: u32) -> (u64, u64) {
    let mut maps: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the host waits").flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|number| number.trim().parse::<u64>().ok())
        };
        if let (Some(id), Some(ty), Some(bytes)) = (field("map_id"), field("map_type"), field("memlock")) {
            maps.insert(id, (ty, bytes));
        }
    }
    let sum =
        |rings: bool| maps.values().filter(|(ty, _)| (*ty == 27) == rings).map(|(_, bytes)| bytes).sum();
    (sum(false), sum(true))
}

/// Returns the id of each kernel function of the test.
fn kfunc_ids() -> &'static [u32] {
    static IDS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let types = fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has its types");
        let types = Btf::parse(types).expect("the kernel's types are sound");
        let id = |(name, _): &(&str, bool)| types.find(name, BtfKind::Func).expect("6.18 has it").0;
        KFUNCS.iter().map(id).collect()
    });
    &IDS
}

/// Numbers of objects that were loaded and that were denied. A test with only one of both proves nothing.
static LOADED: AtomicUsize = AtomicUsize::new(0);
static DENIED: AtomicUsize = AtomicUsize::new(0);

fn check(folder: &Folder, content: &Content, model: &Model) -> Result<(), TestCaseError> {
    let elf = write(&object(content)).expect("a sound object");
    let plugin = folder.write("any.wasm", with_object(guest(), elf));
    let policy = folder.write("policy.toml", model.to_toml());
    let mut asked = Asked::default();
    let bpf = Call { name: "bpf", number: libc::SYS_bpf };
    let mut host = command("ks-host");
    host.arg("--policy").arg(policy).arg(plugin);
    let outcome = refused::observe(&mut host, &[bpf], |call| {
        asked.see(call);
        None
    });
    let outcome = outcome.expect("6.18 has notifications");
    let by_size = outcome.stderr.contains("map_bytes") || outcome.stderr.contains("ring_bytes");
    let denied = outcome.code == 126;
    prop_assert!(!denied || !model.allows(content) || by_size, "denied: {outcome:?}");
    prop_assert!(denied || model.allows(content), "started: {outcome:?}");
    if denied {
        DENIED.fetch_add(1, Ordering::Relaxed);
        prop_assert!(asked.programs.is_empty() && asked.maps.is_empty(), "{asked:?}");
        return Ok(());
    }
    // The verifier may refuse the first program, and then the second one is not loaded.
    prop_assert!(!asked.programs.is_empty(), "nothing was loaded: {outcome:?}");
    LOADED.fetch_add(1, Ordering::Relaxed);
    for (ty, helpers, kfuncs) in &asked.programs {
        let section = SECTIONS.iter().position(|(_, number, ..)| number == ty);
        prop_assert!(section.is_some_and(|section| model.section(section)), "type {ty}");
        for number in helpers {
            prop_assert!(helper::numbered(*number).is_some() && model.helper(*number), "helper {number}");
        }
        for id in kfuncs {
            let index = kfunc_ids().iter().position(|known| known == id);
            prop_assert!(index.is_some_and(|index| model.kfunc(index)), "kernel function {id}");
        }
    }
    prop_assert!(asked.maps.len() as u64 <= model.maps, "{asked:?}");
    for ty in &asked.maps {
        let index = MAPS.iter().position(|(_, number, _)| number == ty);
        prop_assert!(index.is_some_and(|index| model.map(index)), "map of type {ty}");
    }
    prop_assert!(asked.map_bytes <= model.map_bytes && asked.ring_bytes <= model.ring_bytes, "{asked:?}");
    Ok(())
}

#[test]
fn root_the_kernel_is_asked_only_for_what_the_policy_allows() {
    let steering = || {
        let numbers = 1..=HELPERS.len() as u32;
        numbers.filter(|number| !matches!(HELPERS[*number as usize - 1].class, HelperClass::Observes))
    };
    let number = prop_oneof![
        2 => 1..=HELPERS.len() as u32,
        1 => prop::sample::select(steering().collect::<Vec<_>>()),
    ];
    let program = (0..SECTIONS.len(), prop::collection::vec(number, 0..3));
    let content = (
        prop::collection::vec(program, 1..3),
        prop::collection::vec(0..KFUNCS.len(), 0..2),
        prop::collection::vec((0..MAPS.len(), 0_u32..6), 0..4),
    )
        .prop_map(|(programs, kfuncs, maps)| Content { programs, kfuncs, maps });
    let model = (
        prop::collection::vec(prop::bool::weighted(0.8), CLASSES.len()),
        any::<bool>(),
        (any::<u64>(), any::<u64>()).prop_map(|(one, other)| one | other),
        any::<u8>(),
        2_u64..5,
        (12_u32..26).prop_map(|power| 1 << power),
        (12_u32..26).prop_map(|power| 1 << power),
    )
        .prop_map(|(classes, other, helpers, kfuncs, maps, map_bytes, ring_bytes)| Model {
            classes,
            other,
            helpers,
            kfuncs,
            maps,
            map_bytes,
            ring_bytes,
        });
    let cases = std::env::var("PROPTEST_CASES").map_or(100, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let folder = Folder::new();
    let result =
        TestRunner::new(config).run(&(content, model), |(content, model)| check(&folder, &content, &model));
    result.unwrap_or_else(|error| panic!("{error}"));
    let (loaded, denied) = (LOADED.load(Ordering::Relaxed), DENIED.load(Ordering::Relaxed));
    eprintln!("{cases} objects: {loaded} were loaded, {denied} denied");
    assert!(loaded * 10 > cases as usize && denied > 0, "{loaded} loaded, {denied} denied");
}

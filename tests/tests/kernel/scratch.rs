//! Scratch memory of programs whose frames do not fit the stack: a run that is interrupted or preempted by
//! others on its CPU keeps its values, and every exit releases the slot. These tests need root.

use std::ffi::OsStr;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ks_compiler::pipeline::{self, Options};
use ks_host::perf::{Attachments, Event, LinkProgram, Options as EventOptions};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut, ProgramType,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Both programs do the same. `outer` runs on demand; a clock runs `inner`, which interrupts it. `results`
/// holds the runs of `inner`, those that interrupted `outer`, and the number of corrupted words.
const SCRIPT: &str = "
var results : array<u32, u64>(8)
MEMORY

@helper
fn wrong_words(mark: u32, turns: u32) -> u32 {
    LOCAL
    var bad: u32 = 0
    for (turn in 0..turns) {
        for (i in 0..100) {
            words[i] = mark + turn + i
        }
        for (i in 0..100) {
            if (words[i] != mark + turn + i) {
                bad += 1
            }
        }
    }
    return bad
}

@perf_event
fn outer(ctx: *bpf_perf_event_data) -> i32 {
    var own: u32[100] = [0]
    var turns: u32 = results[7]
    for (i in 0..100) {
        own[i] = turns + i
    }
    results[3] = 1
    results[2] += wrong_words(1000000, turns)
    results[3] = 0
    for (i in 0..100) {
        if (own[i] != turns + i) {
            results[2] += 1
        }
    }
    return 1
}

@perf_event
fn inner(ctx: *bpf_perf_event_data) -> i32 {
    var own: u32[100] = [0]
    own[results[7] % 100] = 3
    results[0] += 1
    if (results[3] == 1) {
        results[1] += 1
    }
    results[2] += wrong_words(2000000, 1) + own[50]
    return 0
}
";

/// The CPU on which all programs run.
const CPU: usize = 0;

fn compile(script: &str) -> Vec<u8> {
    let checked = pipeline::parse("scratch.ks", script.as_bytes(), Options::new("scratch"))
        .expect("the script is short")
        .check();
    let hir = checked.hir.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let split = ks_compiler::split::split(&hir);
    let arch = ks_wit::section::Arch::Any;
    let object = ks_compiler::kernel::compile(&hir, &split, &checked.sources, arch);
    object.unwrap_or_else(|errors| panic!("{errors:?}")).elf().to_vec()
}

/// Loads an object, with one program as a kind that the kernel can run on demand in a task. Maps may be
/// shared with another object.
fn load(elf: &[u8], on_demand: &str, shared: &[(&str, &MapHandle)]) -> Object {
    let mut open = ObjectBuilder::default().open_memory(elf).expect("libbpf opens it");
    for mut program in open.progs_mut().filter(|program| program.name() == on_demand) {
        program.set_prog_type(ProgramType::RawTracepoint);
    }
    for mut map in open.maps_mut() {
        if let Some((_, other)) = shared.iter().find(|(name, _)| map.name() == OsStr::new(name)) {
            map.reuse_fd(other.as_fd()).expect("the same shape");
        }
    }
    open.load().expect("the verifier accepts it")
}

fn program<'a>(object: &'a mut Object, name: &str) -> ProgramMut<'a> {
    object.progs_mut().find(|one| one.name() == name).expect("the script has it")
}

fn map(object: &Object, name: &str) -> MapHandle {
    let map = object.maps().find(|map| map.name() == OsStr::new(name)).expect("the object has it");
    MapHandle::try_from(&map).expect("it is loaded")
}

fn has_map(object: &Object, name: &str) -> bool {
    object.maps().any(|map| map.name() == name)
}

fn result(results: &MapHandle, index: u32) -> u64 {
    let bytes = results.lookup(&index.to_le_bytes(), MapFlags::ANY).expect("an array").expect("in range");
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// Returns the number of runs that ended by a fault, from the counters of an object. Its loop has a counter
/// of its own, which is never larger.
fn faults_of(counts: &MapHandle) -> u64 {
    let bytes = counts.lookup(&[0; 4], MapFlags::ANY).expect("an array").expect("it has one value");
    let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    words.max().expect("there are counts")
}

/// Returns, for each slot and CPU, the number of runs that claim it.
fn marks(scratch: &MapHandle) -> Vec<u64> {
    let slots = (0..ks_compiler::kernel::SCRATCH_SLOTS).flat_map(|slot| {
        let slot = scratch.lookup_percpu(&slot.to_le_bytes(), MapFlags::ANY).expect("a per-CPU array");
        slot.expect("in range")
    });
    slots.map(|bytes| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))).collect()
}

/// Sets the marks of all slots on all CPUs.
fn mark_all(scratch: &MapHandle, mark: u64) {
    for slot in 0..ks_compiler::kernel::SCRATCH_SLOTS {
        let key = slot.to_le_bytes();
        let mut values =
            scratch.lookup_percpu(&key, MapFlags::ANY).expect("a per-CPU array").expect("in range");
        values.iter_mut().for_each(|value| value[..8].copy_from_slice(&mark.to_le_bytes()));
        scratch.update_percpu(&key, &values, MapFlags::ANY).expect("its own values");
    }
}

fn run(program: &ProgramMut<'_>) -> u32 {
    program.test_run(ProgramInput::default()).expect("raw tracepoints run on demand").return_value
}

/// Runs a program each time the CPU's clock has advanced by this many nanoseconds.
fn at_clock(attachments: &mut Attachments, program: &ProgramMut<'_>, period: u64) -> Link {
    let event = Event::named("cpu_clock").expect("every kernel has it");
    let options = EventOptions { cpu: CPU as i32, period, ..EventOptions::default() };
    let (sender, opened) = std::sync::mpsc::channel();
    let link: LinkProgram = Arc::new(move |event: std::os::fd::BorrowedFd<'_>, _| {
        sender.send(event.try_clone_to_owned().expect("a descriptor")).expect("somebody listens");
        Ok(OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there")))
    });
    attachments.open(&event, &options, None, Some(link)).expect("a clock");
    // libbpf's link owns the descriptor passed to it.
    let own = opened.recv().expect("the event was opened");
    program.attach_perf_event(own.into_raw_fd()).expect("a perf program")
}

/// Runs `outer` in two threads that share a CPU and maps, until `inner` has interrupted it often enough.
/// Returns the number of corrupted words.
fn interfere(script: &str) -> (Object, u64) {
    const ITERATIONS: u64 = 400;
    const INTERRUPTIONS: u64 = 20;
    let elf = compile(script);
    let mut object = load(&elf, "outer", &[]);
    let results = map(&object, "results");
    let others = ["__scratch", "words"].into_iter().filter(|name| has_map(&object, name));
    let others: Vec<_> = others.map(|name| (name, map(&object, name))).collect();
    let mut shared = vec![("results", &results)];
    shared.extend(others.iter().map(|(name, map)| (*name, map)));
    results.update(&7u32.to_le_bytes(), &ITERATIONS.to_le_bytes(), MapFlags::ANY).expect("in range");
    let mut attachments = Attachments::new();
    let link = at_clock(&mut attachments, &program(&mut object, "inner"), 100_000);
    let deadline = Instant::now() + Duration::from_secs(20);
    let enough = || result(&results, 1) >= INTERRUPTIONS;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut cpus = CpuSet::new();
                cpus.set(CPU).expect("there is a first CPU");
                sched_setaffinity(Pid::from_raw(0), &cpus).expect("own thread");
                let mut own = load(&elf, "outer", &shared);
                let outer = program(&mut own, "outer");
                while !enough() && Instant::now() < deadline {
                    run(&outer);
                }
            });
        }
    });
    drop(link);
    assert!(enough(), "the clock did not interrupt the program");
    let wrong = result(&results, 2);
    (object, wrong)
}

#[test]
fn root_interrupted_and_preempted_runs_keep_their_scratch_data() {
    let own = SCRIPT.replace("MEMORY", "").replace("LOCAL", "var words: u32[100] = [0]");
    let (object, wrong) = interfere(&own);
    assert_eq!(wrong, 0, "a run has seen what another wrote");
    assert!(marks(&map(&object, "__scratch")).iter().all(|mark| *mark == 0), "every slot was given back");

    // The control experiment, with one memory for all runs: it shows that the check above detects corruption.
    let shared = SCRIPT.replace("MEMORY", "var words : array<u32, u32>(100)").replace("LOCAL", "");
    assert_ne!(interfere(&shared).1, 0, "runs that share memory disturb each other");
}

#[test]
fn root_every_exit_frees_the_slot_and_none_free_is_a_counted_fault() {
    let script = "
var way : array<u32, u32>(1)

@helper
fn deep(n: u32) -> u32 {
    var words: u32[100] = [0]
    words[n % 100] = n
    if (n == 1) {
        throw 5
    }
    while (n == 2) {
        words[n] += 1
    }
    return words[n % 100]
}

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    var own: u32[100] = [0]
    own[way[0] % 100] = 7
    try {
        if (deep(way[0]) == 3) {
            return 33
        }
    } catch 5 {
        return 55
    }
    if (own[way[0] % 100] == 7) {
        return 77
    }
    return 1
}
";
    let mut object = load(&compile(script), "watch", &[]);
    let (choice, scratch) = (map(&object, "way"), map(&object, "__scratch"));
    let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
    let faults = MapHandle::try_from(&bss.expect("the count of faults")).expect("it is loaded");
    let watch = program(&mut object, "watch");
    // Exits by the end of a function, by a return, by a throw, and by a loop that reaches its limit.
    for (number, expected, counted) in [(0u32, 77, 0), (3, 33, 0), (1, 55, 0), (2, 0, 1)] {
        choice.update(&[0; 4], &number.to_le_bytes(), MapFlags::ANY).expect("in range");
        assert_eq!((run(&watch), faults_of(&faults)), (expected, counted), "way {number}");
        assert!(marks(&scratch).iter().all(|mark| *mark == 0), "way {number} gives the slot back");
    }
    choice.update(&[0; 4], &[0; 4], MapFlags::ANY).expect("in range");
    mark_all(&scratch, 1);
    assert_eq!((run(&watch), faults_of(&faults)), (0, 2), "no slot is free");
    assert!(marks(&scratch).iter().all(|mark| *mark == 1), "slots of others are left as they were");
    mark_all(&scratch, 0);
    assert_eq!((run(&watch), faults_of(&faults)), (77, 2), "slots are free again");
}

#[test]
fn root_faults_are_reported_when_the_plugin_ends() {
    let script = include_str!("scripts/scratch_faults_are_reported_when_the_plugin_ends.ks");
    let outcome = ks_tests::run_script("faults", script, &[] as &[&str]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let because =
        "of program `endless` ended by a fault: the loop in line 6 reached its limit of 8388608 iterations";
    assert!(outcome.stderr.contains(because), "{}", outcome.stderr);
}

/// Together the frames need twice the kernel's stack, each alone fits; locals keep their values.
const DEEP: &str = "
@helper
fn sum(first: u32) -> u32 {
    var words: u32[125] = [0]
    for (i in 0..125) {
        words[i] = first + i
    }
    var total: u32 = 0
    for (i in 0..125) {
        total += words[i]
    }
    return total
}

@xdp
fn frames(ctx: *xdp_md) -> xdp_action {
    var own: u32[100] = [0]
    for (i in 0..100) {
        own[i] = sum(i)
    }
    for (i in 0..100) {
        if (own[i] != 125 * i + 7750) {
            return XDP_DROP
        }
    }
    return XDP_PASS
}
";

#[test]
fn root_lf_122_deep_frames_load_and_keep_their_values() {
    const XDP_PASS: i32 = 2;
    let loaded = ks_tests::runs::Loaded::new(DEEP);
    assert_eq!(loaded.run("frames", &[0; 64]).result, XDP_PASS);
    let wide = DEEP.replace("words: u32[125]", "words: u32[150]");
    let refused = ks_tests::try_compile("frames", &wide).map(|_| ()).expect_err("600 bytes");
    assert!(refused.contains("error[KS1001]"), "{refused}");
}

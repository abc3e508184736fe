//! Probes that would change another program: inside an instruction, or with a counter that the kernel
//! increments in its memory. The calls fail, the kernel is asked for none of them, and the program runs on
//! unchanged.
#![cfg(target_arch = "x86_64")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ks_compiler::object::write;
use ks_tests::guest::{core_module, data};
use ks_tests::plugins::models::program;
use ks_tests::refused::{Call, PendingCall, observe};
use ks_tests::watched::Running;
use ks_tests::{Folder, allowed, component, finish, wait_until};
use ks_wit::section::{Arch, BpfRecord};
use nix::libc;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSegment as _, ObjectSymbol as _};

use super::super::{contained, function};

/// Builds the program that is attacked.
fn build(folder: &Folder) -> PathBuf {
    let source = ks_tests::repository().join("tests/tests/kernel/hostile/attacks/victim.c");
    let built = folder.path("victim");
    let outcome = finish(Command::new("cc").args(["-O1", "-no-pie", "-o"]).arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    built
}

/// Returns the offset in its file at which a symbol lies.
fn offset_of(file: &Path, symbol: &str) -> u64 {
    let bytes = fs::read(file).expect("it was built");
    let elf = ElfFile64::<Endianness>::parse(&*bytes).expect("a program");
    let address = elf.symbols().find(|one| one.name() == Ok(symbol)).expect("the symbol is there").address();
    let segment = elf.segments().find(|one| (one.address()..one.address() + one.size()).contains(&address));
    let segment = segment.expect("it is loaded");
    address - segment.address() + segment.file_range().0
}

/// The program that is attacked, and the lines that it has printed: a thread reads them as they come.
struct Victim {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Victim {
    fn start(path: &Path) -> Victim {
        let mut child = Command::new(path).stdout(Stdio::piped()).spawn().expect("it was built");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&lines);
        // It ends with the program.
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .for_each(|line| read.lock().expect("nobody panics").push(line));
        });
        Victim { child, lines }
    }

    /// Waits until it has printed some more lines, and asserts that all of them are those of the unchanged
    /// program.
    fn assert_untouched(&self) {
        let count = || self.lines.lock().expect("nobody panics").len();
        let expected = count() + 20;
        wait_until(Duration::from_secs(20), "the program prints", || count() >= expected);
        let lines = self.lines.lock().expect("nobody panics");
        let changed = lines.iter().find(|line| *line != "0x909090 0x909090 7");
        assert_eq!(changed, None);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Texts of a guest, and where they are in its memory.
#[derive(Default)]
struct Texts(String, u32);

impl Texts {
    /// Returns the arguments that pass a text.
    fn pass(&mut self, text: &str) -> String {
        let at = 8192 + 256 * self.1;
        self.1 += 1;
        self.0.push_str(&data(at, text.as_bytes()));
        format!("(i32.const {at}) (i32.const {})", text.len())
    }
}

/// Kinds of errors in the order of `error-kind`, as letters that the guest prints: `D` is `denied-by-policy`.
const KINDS: &[u8; 11] = b"pnibls!-Dk?";

/// Returns code that appends a letter for the result at 1024: `.` for success.
fn letter() -> &'static str {
    "(i32.store8 (local.get $n) (if (result i32) (i32.load8_u (i32.const 1024))
       (then (i32.load8_u (i32.add (i32.const 3000) (i32.load8_u (i32.const 1028)))))
       (else (i32.const 46))))
     (local.set $n (i32.add (local.get $n) (i32.const 1)))"
}

/// Returns code that makes an event by this call, and opens it for every process if it is made. The letter is
/// that of the first failure.
fn opens(make: &str) -> String {
    format!(
        "(call {make} (i32.const 1024))
         (if (i32.eqz (i32.load8_u (i32.const 1024))) (then
           (local.set $a (i32.load (i32.const 1028)))
           (local.set $b (call $perf.options.new))
           (call $perf.options.observe-every-task (local.get $b))
           (call $perf.options.on-cpu (local.get $b) (i32.const 0))
           (call $perf.open (local.get $a) (local.get $b) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
             (i32.const 1024))))
         {}",
        letter()
    )
}

/// Returns code that attaches the program to an offset of a function.
fn attaches(texts: &mut Texts, path: &str, function: &str, offset: u32) -> String {
    format!(
        "(call $bpf.program.attach-uprobe (global.get $program) {} {} (i64.const {offset}) (i32.const 0)
           (i32.const 0) (i64.const 0) (i32.const 1024))
         {}",
        texts.pass(path),
        texts.pass(function),
        letter()
    )
}

/// Returns a guest that does these acts, prints a letter for each, and then runs this code.
fn guest(texts: &Texts, acts: &[String], then: &str) -> Vec<u8> {
    let elf = write(&program("uprobe", &[])).expect("a sound object");
    let record = BpfRecord { name: "hostile".into(), arch: Arch::Any, elf };
    let body = format!(
        "{}{}{}(global $program (mut i32) (i32.const 0)){}",
        texts.0,
        data(3000, KINDS),
        data(3100, b"one"),
        function(&format!(
            "(call $bpf.program.load (i32.const 3100) (i32.const 3) (i32.const 1024))
             (global.set $program (i32.load (i32.const 1028)))
             (local.set $n (i32.const 4096))
             {}
             (call $console.print (i32.const 4096) (i32.const {}) (i32.const 0) (i32.const 0))
             {then}
             (i32.const 0)",
            acts.concat(),
            acts.len()
        ))
    );
    component("hostile", &core_module(2, &body), &[record]).expect("it fits the world")
}

/// Code that waits until the plugin is asked to stop.
const WAITS: &str = "(loop $again
    (call $clock.sleep (i64.const 1000000000) (i32.const 1024))
    (br_if $again (i32.eqz (i32.load8_u (i32.const 1024)))))";

/// What the kernel was asked to count: the type of an event, the upper half of its `config`, the file and the
/// offset of a probe.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    ty: u32,
    counter: u64,
    path: Option<PathBuf>,
    offset: u64,
}

fn type_of(pmu: &str) -> u32 {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{pmu}/type")).expect("a PMU");
    text.trim().parse().expect("a number")
}

/// Source: include/uapi/linux/perf_event.h, `struct perf_event_attr`; kernel/events/core.c,
/// `perf_uprobe_event_init`; v6.18.
fn look(pending: &PendingCall) -> Asked {
    let attr = pending.memory(pending.args[0], 72).expect("the caller waits");
    let long = |at: usize| u64::from_le_bytes(attr[at..at + 8].try_into().expect("eight bytes"));
    let ty = long(0) as u32;
    let path = (ty == type_of("uprobe")).then(|| {
        let text = pending.memory(long(56), 64).expect("a path of the host");
        let text = String::from_utf8_lossy(text.split(|byte| *byte == 0).next().expect("one")).into_owned();
        let file = text.replace("/proc/self/", &format!("/proc/{}/", pending.thread()));
        fs::canonicalize(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
    });
    Asked { ty, counter: long(8) >> 32, path, offset: if ty == type_of("uprobe") { long(64) } else { 0 } }
}

/// Runs the acts, of which the last is a probe of `limit`, traced and beside the program that is attacked.
/// Returns the letters of the others.
fn attack(folder: &Folder, victim: &Path, texts: &mut Texts, mut acts: Vec<String>) -> String {
    let attach_point = format!("{}:limit", victim.display());
    acts.push(opens(&format!("$perf.event.uprobe {}", texts.pass(&attach_point))));
    let file = folder.write("traced.wasm", guest(texts, &acts, ""));
    let watched = [Call { name: "perf_event_open", number: libc::SYS_perf_event_open }];
    let mut asked = Vec::new();
    let outcome = observe(allowed().arg("--no-cache").arg(&file), &watched, |pending| {
        asked.push(look(pending));
        None
    });
    let outcome = outcome.expect("the kernel has notifications");
    contained(&outcome);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let path = Some(fs::canonicalize(victim).expect("it was built"));
    let expected = Asked { ty: type_of("uprobe"), counter: 0, path, offset: offset_of(victim, "limit") };
    assert_eq!(asked, [expected], "{outcome:#?}");
    let letters = outcome.stdout.trim_end().to_owned();
    let others = letters.strip_suffix('.').unwrap_or_else(|| panic!("`limit` is probed: {outcome:#?}"));

    let beside = Victim::start(victim);
    beside.assert_untouched();
    let file = folder.write("beside.wasm", guest(texts, &acts, WAITS));
    let running = Running::of(allowed().args(["--timeout", "60"]).arg(&file), &letters);
    beside.assert_untouched();
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.signal), (0, None), "{outcome:#?}");
    beside.assert_untouched();
    others.to_owned()
}

/// The attack `multi2`, and programs at the same attach_points.
#[test]
fn root_no_breakpoint_lies_inside_an_instruction() {
    let folder = Folder::new();
    let victim = build(&folder);
    let path = victim.display().to_string();
    let mut texts = Texts::default();
    let inside = offset_of(&victim, "immediate");
    let attach_points = [
        "immediate".to_owned(),
        "limit+1".to_owned(),
        "limit+4".to_owned(),
        "inner".to_owned(),
        "outer+2".to_owned(),
        "counter".to_owned(),
        format!("+{inside:#x}"),
        format!("+{:#x}", offset_of(&victim, "counter")),
    ];
    let mut acts: Vec<String> = attach_points
        .iter()
        .map(|attach_point| {
            opens(&format!("$perf.event.uprobe {}", texts.pass(&format!("{path}:{attach_point}"))))
        })
        .collect();
    for (function, offset) in [("immediate", 0), ("limit", 1), ("inner", 0), ("limit", 2), ("outer", 1)] {
        acts.push(attaches(&mut texts, &path, function, offset));
    }
    // No function has the name of a variable.
    assert_eq!(attack(&folder, &victim, &mut texts, acts), "DDDDDnDDDDDDD");
}

/// The attack `refctr`: numbers of the probes' PMU, which the kernel takes for the address of a path in the host
/// and for the place of a counter in other programs; and of the other types whose numbers are addresses.
#[test]
fn root_numbers_of_events_lead_to_no_memory() {
    let folder = Folder::new();
    let victim = build(&folder);
    let mut texts = Texts::default();
    let (uprobe, counter) = (type_of("uprobe"), offset_of(&victim, "counter"));
    let limit = offset_of(&victim, "limit");
    let mut acts = Vec::new();
    // A guess at where the memory of the plugin lies in the host, which would hold the path.
    let mut raw = |ty: u32, config: u64, config1: u64, config2: u64| {
        acts.push(opens(&format!(
            "$perf.event.raw (i32.const {ty}) (i64.const {config}) (i64.const {config1}) (i64.const {config2})"
        )));
    };
    for address in [0x7fff_ffff_0000, 0x40_0000, 0, u64::MAX] {
        raw(uprobe, counter << 32, address, limit);
    }
    raw(uprobe, counter << 32 | 1, 0x40_0000, limit);
    // Breakpoints, tracepoints, software events and another PMU with words that they do not have.
    raw(5, 0, 0x40_0000, 8);
    raw(2, 1, 0x40_0000, 0);
    raw(1, 2, 0x40_0000, 8);
    raw(type_of("msr"), 0, 0x40_0000, limit);
    for (ty, config) in [(uprobe, 0), (uprobe, counter << 32), (5, 0), (2, 1)] {
        acts.push(opens(&format!("$perf.event.numbered (i32.const {ty}) (i64.const {config})")));
    }
    for name in [
        format!("uprobe/ref_ctr_offset={counter:#x},config1=0x400000,config2={limit:#x}/"),
        "uprobe/retprobe,config1=0x400000/".to_owned(),
        "uprobe/config=0/".to_owned(),
        "breakpoint/config1=0x400000/".to_owned(),
        "tracepoint/config=1/".to_owned(),
        "msr/tsc,config1=0x400000/".to_owned(),
    ] {
        let name = texts.pass(&name);
        acts.push(opens(&format!("$perf.event.named {name}")));
    }
    let letters = attack(&folder, &victim, &mut texts, acts);
    assert!(letters.bytes().all(|letter| letter == b'D'), "{letters}");
    assert_eq!(letters.len(), 19);
}

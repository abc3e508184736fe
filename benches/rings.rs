//! Records from a program to a plugin: a ring buffer that one CPU fills, emptied by a plugin and, in the same run, by a
//! consumer in Rust with libbpf-rs.
//!
//! A thread on CPU 0 makes system calls, each of which leaves a burst of records; who consumes has CPU 1. For each rate
//! the table says how many of the records were lost, and that those that were handled and those that were lost are all
//! that there were is checked. The last row has no pause between bursts. Needs root and two CPUs.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ks_benches::commands;
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_compiler::pipeline::{self, Built, Options, Target};
use ks_host::perf::{Attachments, Catalog, LinkProgram, Options as EventOptions};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Records of one system call, as in the script.
const BURST: u64 = 64;
/// Thousands of records a second.
const RATES: [u64; 8] = [250, 500, 1000, 2000, 4000, 6000, 8000, 12_000];
/// How long each rate is held.
const HELD: Duration = Duration::from_millis(500);

/// `state`: bursts up to now, the thread whose calls count.
const SCRIPT: &str = r#"
struct Args { task: u64, bursts: u64 }
struct Event { n: u64, burst: u64 }
var events : ringbuf<Event>(1048576)
var state : array<u32, u64>(2)
var handled : u64 = 0
var last : u64 = 0
var disorder : u64 = 0

@syscall_enter("getppid")
fn produce() -> i32 {
    if (state[1] != tid()) {
        return 0
    }
    var burst = state[0]
    for (i in 0..64) {
        var e = events.reserve()
        if (e != null) {
            e->n = burst * 64 + i + 1
            e->burst = burst
            events.submit(e)
        }
    }
    state[0] = burst + 1
    return 0
}

fn events_callback(e: *Event) -> i32 {
    handled += 1
    if (e->n <= last) {
        disorder += 1
    }
    last = e->n
    return 0
}

fn main(args: Args) -> i32 {
    var program = load(produce)
    state[1] = args.task
    if (attach(program, "", 0) != 0) {
        return 1
    }
    dispatch(events, 0)
    print("ready")
    while (state[0] < args.bursts) {
        dispatch(events, 10)
    }
    detach(program)
    while (dispatch(events, 0) > 0) {
    }
    print("%u %u", handled, disorder)
    return 0
}
"#;

fn main() -> Result<()> {
    println!("{}\n", Machine::here());
    let held = if record::is_measured() { HELD } else { HELD / 50 };
    stay_on(1).context("the consumer has a CPU of its own")?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let script = compile(SCRIPT)?;
    let plugin = folder.path().join("rings.wasm");
    std::fs::write(&plugin, &script.plugin)?;
    let (_, object) = script.objects.first().context("the script has a program")?;
    let host = commands::path("ks-host")?;
    println!("a ring of 1 MiB, records of 16 bytes; lost, and handled a second\n");
    println!("{:>14} {:>30} {:>30}", "records/s", "plugin", "libbpf-rs");
    // The rows at which each lost nothing, up to the first at which it did.
    let mut lossless = [const { Vec::new() }; 2];
    let mut still = [true; 2];
    let mut records = Vec::new();
    for rate in RATES.map(Some).into_iter().chain([None]) {
        let pace = Pace::new(rate, held);
        let rows = [run_plugin(&host, &plugin, &pace)?, run_libbpf(object.elf(), &pace)?];
        let name = rate.map_or("full speed".to_owned(), |rate| format!("{:.2} M", rate as f64 / 1e3));
        println!("{name:>14} {:>30} {:>30}", rows[0].shown(&pace), rows[1].shown(&pace));
        let case = rate.map_or("full-speed".to_owned(), |rate| format!("{rate}-thousand"));
        for (row, who) in rows.iter().zip(["plugin", "libbpf"]) {
            records.push(Record::new(format!("ring/{case}/{who}"), row.rate(), "records/s"));
        }
        for (column, row) in rows.iter().enumerate() {
            still[column] &= row.handled == pace.records();
            lossless[column].extend(still[column].then(|| name.clone()));
        }
    }
    let [ours, theirs] = lossless.map(|rates| rates.last().map_or("none".to_owned(), String::clone));
    println!("\n{:>14} {ours:>30} {theirs:>30}", "nothing lost to");
    record::leave("rings", &records)
}

/// How fast records are made, and how many.
struct Pace {
    /// Between the starts of two bursts; none at full speed.
    every: Option<Duration>,
    bursts: u64,
}

impl Pace {
    /// So many thousand records a second for a time; as many as the highest rate makes at full speed.
    fn new(rate: Option<u64>, held: Duration) -> Pace {
        let thousands = rate.unwrap_or(RATES[RATES.len() - 1]);
        let every = Duration::from_nanos(BURST * 1_000_000 / thousands);
        Pace { every: rate.map(|_| every), bursts: (held.as_nanos() / every.as_nanos()) as u64 }
    }

    fn records(&self) -> u64 {
        self.bursts * BURST
    }
}

/// What a consumer saw.
struct Row {
    handled: u64,
    took: Duration,
}

impl Row {
    /// Records a second.
    fn rate(&self) -> f64 {
        self.handled as f64 / self.took.as_secs_f64()
    }

    fn shown(&self, pace: &Pace) -> String {
        let lost = (pace.records() - self.handled) as f64 / pace.records() as f64 * 100.0;
        let rate = self.rate() / 1e6;
        format!("{lost:.2} %  {rate:.2} M/s")
    }
}

/// A thread on CPU 0 that makes bursts when it is told to.
struct Producer {
    tid: u64,
    start: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Producer {
    fn new(pace: &Pace) -> Result<Producer> {
        let (every, bursts) = (pace.every, pace.bursts);
        let (tell, told) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pinned = stay_on(0).map(|()| gettid().as_raw());
            let is_pinned = pinned.is_ok();
            // Nobody starts it if the consumer does not.
            if tell.send(pinned).is_err() || !is_pinned || started.recv().is_err() {
                return Duration::ZERO;
            }
            let begin = Instant::now();
            for burst in 0..bursts {
                while every.is_some_and(|every| begin.elapsed() < every * burst as u32) {
                    std::hint::spin_loop();
                }
                std::hint::black_box(std::os::unix::process::parent_id());
            }
            begin.elapsed()
        });
        let tid = told.recv().context("the producer starts")??;
        Ok(Producer { tid: u64::try_from(tid)?, start, thread })
    }

    fn run(self) -> Result<Duration> {
        self.start.send(()).context("the producer waits")?;
        self.thread.join().map_err(|_| anyhow!("the producer panicked"))
    }
}

fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on CPU {cpu} alone"))
}

/// The plugin, in a process of its own.
fn run_plugin(host: &Path, plugin: &Path, pace: &Pace) -> Result<Row> {
    let producer = Producer::new(pace)?;
    let mut child = Command::new(host)
        .args(["--no-cache", "--timeout", "60"])
        .arg(plugin)
        .args(["--", "--task", &producer.tid.to_string(), "--bursts", &pace.bursts.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ks-host")?;
    let mut lines = BufReader::new(child.stdout.take().context("piped")?);
    let mut ready = String::new();
    lines.read_line(&mut ready)?;
    let took = if ready == "ready\n" { producer.run()? } else { Duration::ZERO };
    let mut printed = String::new();
    lines.read_to_string(&mut printed)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ks-host ended with {}: {said}", output.status);
    let numbers = printed.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let [handled, disorder] = numbers[..] else { return Err(anyhow!("expected 2 numbers: {printed:?}")) };
    let lost = said.split_once(" records were lost").and_then(|(before, _)| before.split(' ').next_back());
    let lost: u64 = lost.map_or(Ok(0), str::parse)?;
    ensure!(
        disorder == 0 && handled + lost == pace.records(),
        "{printed}{said}of {} records",
        pace.records()
    );
    Ok(Row { handled, took })
}

/// The same object, in this process, without a host.
fn run_libbpf(elf: &[u8], pace: &Pace) -> Result<Row> {
    let producer = Producer::new(pace)?;
    let mut object = ObjectBuilder::default().open_memory(elf)?.load()?;
    set_state(&object, 1, producer.tid)?;
    let attached = attach(&mut object, producer.tid)?;
    let (handled, last, disorder) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let mut builder = RingBufferBuilder::new();
    let events = object.maps().find(|map| map.name() == "events").context("the object has the ring")?;
    builder.add(&events, |record| {
        let n = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        handled.set(handled.get() + 1);
        disorder.set(disorder.get() + u64::from(n <= last.get()));
        last.set(n);
        0
    })?;
    let ring = builder.build()?;
    let running = std::thread::spawn(move || producer.run());
    while state(&object, 0)? < pace.bursts {
        ring.poll(Duration::from_millis(10))?;
    }
    drop(attached);
    ring.consume()?;
    let took = running.join().map_err(|_| anyhow!("the producer panicked"))??;
    ensure!(
        disorder.get() == 0 && handled.get() <= pace.records(),
        "{} of {}",
        handled.get(),
        pace.records()
    );
    Ok(Row { handled: handled.get(), took })
}

/// Links the program to the event that the host would open; libbpf needs tracefs for that, which may not be mounted.
fn attach(object: &mut Object, tid: u64) -> Result<(Attachments, Link)> {
    let event = Catalog::default().tracepoint("syscalls/sys_enter_getppid")?;
    let options = EventOptions { pid: i32::try_from(tid)?, cpu: -1, period: 1, ..EventOptions::default() };
    let (tell, opened) = mpsc::channel::<OwnedFd>();
    let link: LinkProgram = Arc::new(move |event: BorrowedFd<'_>, _| {
        let own = event.try_clone_to_owned().expect("a process has room for a descriptor");
        tell.send(own).expect("the event is waited for");
        Ok(OwnedFd::from(File::open("/dev/null").expect("every system has it")))
    });
    let mut attachments = Attachments::new();
    attachments.open(&event, &options, None, Some(link))?;
    // libbpf's link owns the descriptor that it is given.
    let event = opened.recv().context("the event was opened")?;
    let mut programs = object.progs_mut().filter(|program| program.name() == "produce");
    let link =
        programs.next().context("the object has the program")?.attach_perf_event(event.into_raw_fd())?;
    Ok((attachments, link))
}

fn set_state(object: &Object, index: u32, value: u64) -> Result<()> {
    let map = object.maps().find(|map| map.name() == "state").context("the object has the map")?;
    Ok(map.update(&index.to_le_bytes(), &value.to_le_bytes(), MapFlags::ANY)?)
}

fn state(object: &Object, index: u32) -> Result<u64> {
    let map = object.maps().find(|map| map.name() == "state").context("the object has the map")?;
    let value = map.lookup(&index.to_le_bytes(), MapFlags::ANY)?.context("arrays have all entries")?;
    Ok(value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

fn compile(text: &str) -> Result<Built> {
    let mut checked = pipeline::parse("rings.ks", text.as_bytes(), Options::new("rings"))?.check();
    let built = checked.build(Target::default());
    built.map_err(|_| anyhow!("rings.ks has errors: {:?}", checked.diagnostics))
}

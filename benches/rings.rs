//! Records from programs to a plugin: a ring buffer that one or two CPUs fill, emptied by a plugin on a thread, by the
//! same plugin in a process of its own and, in the same run, by a consumer in Rust with libbpf-rs.
//!
//! Each producer is a thread pinned to its own CPU; each of its system calls emits a burst of records. The
//! consumer runs on CPU 1. The first table reports, for each rate, how many records were lost. The second has
//! no pause between bursts: it reports, for several record sizes and for one and two producers, the
//! consumer's CPU time per record. The bench checks that handled and lost records add up to all records, and
//! that they arrive in order. Needs root and two CPUs; two producers need a third.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ks_benches::commands;
use ks_benches::machine::{Machine, stay_on, usable};
use ks_benches::producer::{self, Pace, Producer};
use ks_benches::record::{self, Record};
use ks_compiler::pipeline::{self, Built, Options, Target};
use ks_host::perf::{AttachmentId, Attachments, Catalog, Event, LinkProgram, Options as EventOptions};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};

/// Production rates, in thousands of records per second.
const RATES: [u64; 8] = [250, 500, 1000, 2000, 4000, 6000, 8000, 12_000];
/// Duration of each rate.
const HELD: Duration = Duration::from_millis(500);
/// The consumers, as records name them: the plugin in both forms, and a program without a host.
const CONSUMERS: [&str; 3] = ["plugin", "process", "libbpf"];
/// Record sizes, in bytes.
const SIZES: [usize; 4] = [16, 64, 256, 1024];
/// The consumer's CPU, and those of the producers, as far as they exist.
const CONSUMER: usize = 1;
const PRODUCERS: [usize; 2] = [0, 2];
/// Bytes of a record that identify it; the rest only has to be copied.
const HEAD: usize = 16;

/// `state` holds the threads whose calls count, then the number of bursts of each so far.
const SCRIPT: &str = r#"
struct Args { first: u64, second: u64, bursts: u64 }
struct Event { n: u64, producer: u64 REST }
var events : ringbuf<Event>(1048576)
var state : array<u32, u64>(4)
var handled : u64 = 0
var last : u64[2] = [0, 0]
var disorder : u64 = 0

@syscall_enter("getppid")
fn produce() -> i32 {
    var producer: u32 = 0
    if (state[0] != tid()) {
        if (state[1] != tid()) {
            return 0
        }
        producer = 1
    }
    var burst = state[2 + producer]
    for (i in 0..64) {
        var e = events.reserve()
        if (e != null) {
            e->n = burst * 64 + i + 1
            e->producer = producer
            events.submit(e)
        }
    }
    state[2 + producer] = burst + 1
    return 0
}

fn events_callback(e: *Event) -> i32 {
    handled += 1
    var producer: u32 = e->producer & 1
    if (e->n <= last[producer]) {
        disorder += 1
    }
    last[producer] = e->n
    return 0
}

fn main(args: Args) -> i32 {
    var program = load(produce)
    state[0] = args.first
    state[1] = args.second
    if (attach(program, "", 0) != 0) {
        return 1
    }
    dispatch(events, 0)
    print("ready")
    while (state[2] + state[3] < args.bursts) {
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
    println!("machine: {}\n", Machine::here());
    let held = if record::is_measured() { HELD } else { HELD / 50 };
    let most_producers = usable(&PRODUCERS)?;
    stay_on(CONSUMER).context("who consumes has a CPU of its own")?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut records = Vec::new();
    rates(&Consumers::new(folder.path(), SIZES[0])?, held, &mut records)?;
    sizes(folder.path(), held, most_producers, &mut records)?;
    record::leave("rings", &records)
}

/// Reports which consumer loses records, and from which rate on.
fn rates(consumers: &Consumers, held: Duration, records: &mut Vec<Record>) -> Result<()> {
    println!("a ring of 1 MiB, records of {HEAD} bytes; lost, and handled a second\n");
    println!("{:>14} {:>30} {:>30} {:>30}", "records/s", "plugin", "in a process", "libbpf-rs");
    // For each consumer, the rows without losses, up to the first row with one.
    let mut lossless = [const { Vec::new() }; CONSUMERS.len()];
    let mut still = [true; CONSUMERS.len()];
    for rate in RATES {
        let load = Load { pace: Pace::held(rate, held), producers: 1 };
        let rows = consumers.run(load)?;
        let name = format!("{:.2} M", rate as f64 / 1e3);
        let [thread, process, libbpf] = rows.each_ref().map(|row| row.summary(load));
        println!("{name:>14} {thread:>30} {process:>30} {libbpf:>30}");
        for (row, who) in rows.iter().zip(CONSUMERS) {
            records.push(Record::new(format!("ring/{rate}-thousand/{who}"), row.rate(), "records/s"));
        }
        for (column, row) in rows.iter().enumerate() {
            still[column] &= row.handled == load.records();
            lossless[column].extend(still[column].then(|| name.clone()));
        }
    }
    let [thread, process, libbpf] =
        lossless.map(|rates| rates.last().map_or("none".to_owned(), String::clone));
    println!("{:>14} {thread:>30} {process:>30} {libbpf:>30}\n", "nothing lost to");
    Ok(())
}

/// Reports each consumer's maximum rate, and its cost per record.
fn sizes(folder: &Path, held: Duration, most_producers: usize, records: &mut Vec<Record>) -> Result<()> {
    println!("at full speed; lost, handled a second, and CPU time for each that was handled\n");
    if most_producers < PRODUCERS.len() {
        println!(
            "two producers are left out: they and who consumes need CPUs {PRODUCERS:?} and {CONSUMER}\n"
        );
    }
    println!(
        "{:>8} {:>10} {:>32} {:>32} {:>32}",
        "bytes", "producers", "plugin", "in a process", "libbpf-rs"
    );
    for size in SIZES {
        let consumers = Consumers::new(folder, size)?;
        for producers in 1..=most_producers {
            let pace = Pace::at_full_speed(Pace::held(RATES[RATES.len() - 1], held));
            let load = Load { pace, producers };
            let rows = consumers.run(load)?;
            let [thread, process, libbpf] =
                rows.each_ref().map(|row| format!("{}  {:.0} ns", row.summary(load), row.cpu_of_each()));
            println!("{size:>8} {producers:>10} {thread:>32} {process:>32} {libbpf:>32}");
            let case = format!("{size}-bytes-{producers}-producers");
            for (row, who) in rows.iter().zip(CONSUMERS) {
                records.push(Record::new(format!("ring/{case}/{who}"), row.rate(), "records/s"));
                records.push(Record::new(format!("ring-cpu/{case}/{who}"), row.cpu_of_each(), "ns"));
            }
        }
    }
    Ok(())
}

/// The work of the producers.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// The pace of each producer.
    pace: Pace,
    producers: usize,
}

impl Load {
    fn bursts(&self) -> u64 {
        self.pace.bursts * self.producers as u64
    }

    fn records(&self) -> u64 {
        self.pace.records() * self.producers as u64
    }

    fn producers(&self) -> Result<Vec<Producer>> {
        PRODUCERS[..self.producers].iter().map(|cpu| Producer::new(*cpu, self.pace)).collect()
    }
}

/// Returns the producers' thread ids in the order of `state`; 0 for a missing one.
fn threads(producers: &[Producer]) -> [u64; 2] {
    [0, 1].map(|index| producers.get(index).map_or(0, |producer| producer.tid))
}

/// One consumer's counts and costs.
struct Row {
    handled: u64,
    took: Duration,
    /// CPU time of the consumer.
    cpu: Duration,
}

impl Row {
    /// Returns the handled records per second.
    fn rate(&self) -> f64 {
        self.handled as f64 / self.took.as_secs_f64()
    }

    /// Returns the consumer's CPU time per record, in nanoseconds.
    fn cpu_of_each(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.handled.max(1) as f64
    }

    fn summary(&self, load: Load) -> String {
        let lost = (load.records() - self.handled) as f64 / load.records() as f64 * 100.0;
        let rate = self.rate() / 1e6;
        format!("{lost:.2} %  {rate:.2} M/s")
    }
}

/// A plugin for one record size, and its object for the consumer without a host.
struct Consumers {
    plugin: PathBuf,
    elf: Vec<u8>,
}

impl Consumers {
    fn new(folder: &Path, size: usize) -> Result<Consumers> {
        let rest = match size - HEAD {
            0 => String::new(),
            bytes => format!(", rest: u8[{bytes}]"),
        };
        let built = compile(&SCRIPT.replace(" REST", &rest))?;
        let plugin = folder.join(format!("rings{size}.wasm"));
        std::fs::write(&plugin, &built.plugin)?;
        let (_, object) = built.objects.first().context("the script has a program")?;
        Ok(Consumers { plugin, elf: object.elf().to_vec() })
    }

    /// Runs the consumers, in the order of [`CONSUMERS`].
    fn run(&self, load: Load) -> Result<[Row; CONSUMERS.len()]> {
        let [thread, process] =
            ["thread", "process"].map(|isolation| run_plugin(&self.plugin, isolation, load));
        Ok([thread?, process?, run_libbpf(&self.elf, load)?])
    }
}

/// Runs the plugin by `ks-host`, isolated so.
fn run_plugin(plugin: &Path, isolation: &str, load: Load) -> Result<Row> {
    let producers = load.producers()?;
    let [first, second] = threads(&producers);
    let mut child = Command::new(commands::path("ks-host")?)
        .args(["--no-cache", "--timeout", "60", "--isolation", isolation])
        .arg(plugin)
        .args(["--", &format!("--first={first}"), &format!("--second={second}")])
        .arg(format!("--bursts={}", load.bursts()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ks-host")?;
    let mut clock = CpuClock::of(child.id())?;
    let mut lines = BufReader::new(child.stdout.take().context("piped")?);
    let mut ready = String::new();
    lines.read_line(&mut ready)?;
    // Excludes the time to compile and start.
    let started = clock.read()?;
    let took = if ready == "ready\n" { producer::run_all(producers)? } else { Duration::ZERO };
    let mut printed = String::new();
    lines.read_to_string(&mut printed)?;
    let output = child.wait_with_output()?;
    let cpu = clock.read()? - started;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ks-host ended with {}: {said}", output.status);
    let numbers = printed.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let [handled, disorder] = numbers[..] else { return Err(anyhow!("expected 2 numbers: {printed:?}")) };
    let lost = said.rsplit_once(" records were lost").and_then(|(before, _)| before.split(' ').next_back());
    let lost: u64 = lost.map_or(Ok(0), str::parse)?;
    let all = load.records();
    ensure!(disorder == 0 && handled + lost == all, "{printed}{said}of {all} records");
    Ok(Row { handled, took, cpu })
}

/// Counts the CPU time of a process and of those that it starts, also of those that have ended.
struct CpuClock {
    attachments: Attachments,
    clock: AttachmentId,
}

impl CpuClock {
    fn of(pid: u32) -> Result<CpuClock> {
        let mut attachments = Attachments::new();
        let options =
            EventOptions { pid: i32::try_from(pid)?, cpu: -1, inherit: true, ..EventOptions::default() };
        let clock = attachments.open(&Event::named("task-clock")?, &options, None, None)?;
        Ok(CpuClock { attachments, clock })
    }

    fn read(&mut self) -> Result<Duration> {
        Ok(Duration::from_nanos(self.attachments.read(self.clock)?.raw))
    }
}

/// Runs the same object in this process, without a host.
fn run_libbpf(elf: &[u8], load: Load) -> Result<Row> {
    let producers = load.producers()?;
    let mut object = ObjectBuilder::default().open_memory(elf)?.load()?;
    let threads = threads(&producers);
    for (index, thread) in threads.into_iter().enumerate() {
        set_state(&object, index as u32, thread)?;
    }
    let attached = attach(&mut object, threads[0])?;
    let (handled, disorder) = (Cell::new(0), Cell::new(0));
    let last = RefCell::new([0; 2]);
    let mut builder = RingBufferBuilder::new();
    let events = object.maps().find(|map| map.name() == "events").context("the object has the ring")?;
    builder.add(&events, |record| {
        let (numbers, _) = record.as_chunks::<8>();
        let [n, producer] =
            [0, 1].map(|index| numbers.get(index).map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        let last = &mut last.borrow_mut()[usize::from(producer == 1)];
        handled.set(handled.get() + 1);
        disorder.set(disorder.get() + u64::from(n <= *last));
        *last = n;
        0
    })?;
    let ring = builder.build()?;
    let before = own_cpu()?;
    let running = std::thread::spawn(move || producer::run_all(producers));
    while state(&object, 2)? + state(&object, 3)? < load.bursts() {
        ring.poll(Duration::from_millis(10))?;
    }
    drop(attached);
    ring.consume()?;
    let cpu = own_cpu()? - before;
    let took = running.join().map_err(|_| anyhow!("the producer panicked"))??;
    let (handled, all) = (handled.get(), load.records());
    ensure!(disorder.get() == 0 && handled <= all, "{handled} of {all}");
    Ok(Row { handled, took, cpu })
}

/// Returns the CPU time of the calling thread.
fn own_cpu() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Links the program to the event that the host would open; libbpf needs tracefs for that, which may not be
/// mounted. The kernel runs the program at the tracepoint for every thread, whichever event it is linked to.
fn attach(object: &mut Object, thread: u64) -> Result<(Attachments, Link)> {
    let event = Catalog::default().tracepoint("syscalls/sys_enter_getppid")?;
    let options = EventOptions { pid: i32::try_from(thread)?, cpu: -1, period: 1, ..EventOptions::default() };
    let (sender, opened) = mpsc::channel::<OwnedFd>();
    let link: LinkProgram = Arc::new(move |event: BorrowedFd<'_>, _| {
        let own = event.try_clone_to_owned().expect("a process has room for a descriptor");
        sender.send(own).expect("the event is waited for");
        Ok(OwnedFd::from(File::open("/dev/null").expect("every system has it")))
    });
    let mut attachments = Attachments::new();
    attachments.open(&event, &options, None, Some(link))?;
    // libbpf's link owns the descriptor passed to it.
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

//! Unit tests of plugins without a kernel: a host that says what a test tells it to say.
//!
//! Where a plugin is not built for Wasm, the calls of this crate reach the [`Host`] of the thread. So `cargo test` runs
//! a plugin's functions as they are, `main` included:
//!
//! ```
//! use std::time::Duration;
//!
//! use ks_guest::testing::Host;
//! use ks_guest::{Attachment, Event, PerfOptions, Result, clock, println};
//!
//! fn watch() -> Result<()> {
//!     let faults = Attachment::open(&Event::named("page_faults")?, &PerfOptions::new().own_thread())?;
//!     while clock::sleep(Duration::from_secs(1)).is_ok() {
//!         println!("{} faults", faults.read()?.raw);
//!     }
//!     Ok(())
//! }
//!
//! let host = Host::new();
//! host.counter("page_faults", [3, 8]);
//! host.stop_after(Duration::from_millis(2500));
//! assert_eq!(host.run(watch), 0);
//! assert_eq!(host.output(), "3 faults\n8 faults\n");
//! ```
//!
//! Time is the host's: a sleep takes none, and moves the clock. Maps, rings and variables are opened by the test as the
//! plugin opens them; [`kernel!`](crate::kernel!) makes a function `declare` that gives a host all that the kernel half
//! has. What is not here: the kernel. No program runs, and nothing is counted.

mod readings;
mod state;
pub(crate) mod world;

use core::marker::PhantomData;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

pub use readings::{counted, multiplexed, never_ran};
use state::{Exit, FakeGlobal, FakeMap, FakeRing, MapKind, Refusal, State, with};

use crate::error::ErrorKind;
use crate::layout;
use crate::perf::Reading;
use crate::plain::Plain;
use crate::termination::Termination;

/// The host of one test: of this thread, until it is dropped.
#[derive(Debug)]
pub struct Host {
    // It belongs to the thread that made it.
    thread: PhantomData<*const ()>,
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

impl Host {
    /// A host with 4 CPUs at time 0, which asks the plugin to stop after a minute and knows no event, map or program.
    ///
    /// # Panics
    /// If the thread has one.
    pub fn new() -> Host {
        state::install(State::new());
        Host { thread: PhantomData }
    }

    /// Runs a function as the host runs `main`, and gives the exit code of the plugin: also if it calls
    /// [`args::exit`](crate::args::exit).
    ///
    /// # Panics
    /// If the function does.
    pub fn run<T: Termination>(&self, main: impl FnOnce() -> T) -> u8 {
        match catch_unwind(AssertUnwindSafe(|| main().report())) {
            // The low 8 bits, as the host takes them.
            Ok(code) => code as u8,
            Err(cause) => match cause.downcast::<Exit>() {
                Ok(exit) => exit.0,
                Err(cause) => resume_unwind(cause),
            },
        }
    }

    /// The words behind `--` on the command line.
    pub fn args(&self, arguments: &[&str]) {
        with(|state| state.arguments = arguments.iter().map(ToString::to_string).collect());
    }

    /// When the host asks the plugin to stop, from now: then, not later, a wait ends with
    /// [`Interrupted`](ErrorKind::Interrupted).
    pub fn stop_after(&self, time: Duration) {
        with(|state| state.stop = state.now + nanos(time));
    }

    /// How many CPUs there are. For maps that are declared after it.
    pub fn cpus(&self, count: u32) {
        with(|state| state.cpus = count);
    }

    /// A process that [`system`](crate::system) finds.
    pub fn process(&self, pid: i32, command: &str) {
        with(|state| state.processes.insert(pid, command.to_string()));
    }

    /// What [`symbols`](crate::symbols) call an address, of the kernel and of every process.
    pub fn symbol(&self, address: u64, name: &str) {
        with(|state| state.symbols.insert(address, name.to_string()));
    }

    /// An event, and what its reads give: one count after the other, then the last one again. It was on a counter all
    /// the time. Every attachment of it begins with the first.
    ///
    /// The name is that of [`Event::named`](crate::Event::named) in either spelling, or what another function of
    /// [`Event`](crate::Event) was given: `sched/sched_switch`.
    ///
    /// # Panics
    /// If there is no count.
    pub fn counter(&self, event: &str, counts: impl IntoIterator<Item = u64>) {
        let counts = counts.into_iter().map(readings::Scripted::Count).collect();
        self.script(event, counts);
    }

    /// The same with whole readings: of [`counted`], [`multiplexed`] and [`never_ran`].
    ///
    /// # Panics
    /// If there is no reading.
    pub fn readings(&self, event: &str, readings: impl IntoIterator<Item = Reading>) {
        let readings = readings.into_iter().map(readings::Scripted::Reading).collect();
        self.script(event, readings);
    }

    fn script(&self, event: &str, reads: Vec<readings::Scripted>) {
        assert!(!reads.is_empty(), "the event `{event}` needs something to read");
        with(|state| state.events.insert(state::spelling(event), reads));
    }

    /// From now on an event cannot be opened, or a program, map, ring buffer or variable: for this reason.
    pub fn refuse(&self, name: &str, kind: ErrorKind, message: &str) {
        let refusal = Refusal { kind, message: message.to_string() };
        with(|state| state.refused.insert(state::spelling(name), refusal));
    }

    /// A program of the plugin's object.
    pub fn program(&self, name: &str) {
        with(|state| state.programs.insert(name.to_string()));
    }

    /// What programs are attached to now, in the order of attaching: program and target, or program and event.
    pub fn attached(&self) -> Vec<(String, String)> {
        with(|state| state.attached())
    }

    /// A map with keys, of a hash kind.
    pub fn map<K: Plain, V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(
            name,
            FakeMap::new(MapKind::Hash, Some(layout::of::<K>()), layout::of::<V>(), max_entries),
        );
    }

    /// An array: every index is there, with zeros.
    pub fn array<V: Plain>(&self, name: &str, len: u32) {
        self.declare(name, FakeMap::new(MapKind::Array, Some(layout::of::<u32>()), layout::of::<V>(), len));
    }

    /// A map of a hash kind with a value for each CPU.
    pub fn per_cpu_map<K: Plain, V: Plain>(&self, name: &str, max_entries: u32) {
        let cpus = with(|state| state.cpus);
        self.declare(
            name,
            FakeMap::new(MapKind::Hash, Some(layout::of::<K>()), layout::of::<V>(), max_entries)
                .on_cpus(cpus),
        );
    }

    /// An array with a value for each CPU.
    pub fn per_cpu_array<V: Plain>(&self, name: &str, len: u32) {
        let cpus = with(|state| state.cpus);
        self.declare(
            name,
            FakeMap::new(MapKind::Array, Some(layout::of::<u32>()), layout::of::<V>(), len).on_cpus(cpus),
        );
    }

    /// A queue.
    pub fn queue<V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(name, FakeMap::new(MapKind::Queue, None, layout::of::<V>(), max_entries));
    }

    /// A stack.
    pub fn stack<V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(name, FakeMap::new(MapKind::Stack, None, layout::of::<V>(), max_entries));
    }

    /// A bloom filter, which never errs.
    pub fn bloom<V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(name, FakeMap::new(MapKind::Bloom, None, layout::of::<V>(), max_entries));
    }

    fn declare(&self, name: &str, map: FakeMap) {
        with(|state| state.maps.insert(name.to_string(), map));
    }

    /// A ring buffer of so many bytes.
    pub fn ring(&self, name: &str, bytes: u32) {
        with(|state| state.rings.insert(name.to_string(), FakeRing::new(bytes)));
    }

    /// Puts a record into a ring buffer, now. One that finds no room is lost, and counted.
    ///
    /// # Panics
    /// If there is no such ring buffer.
    pub fn push<T: Plain>(&self, ring: &str, record: &T) {
        self.push_after(Duration::ZERO, ring, record);
    }

    /// The same later: a poll that waits for records gets it then.
    ///
    /// # Panics
    /// As [`Host::push`].
    pub fn push_after<T: Plain>(&self, time: Duration, ring: &str, record: &T) {
        with(|state| {
            let due = state.now + nanos(time);
            state
                .ring(ring)
                .unwrap_or_else(|| panic!("no ring buffer `{ring}`"))
                .push(due, record.to_bytes());
        });
    }

    /// A variable of the plugin's object, with its initial value.
    pub fn global<T: Plain>(&self, name: &str, value: &T) {
        self.global_bytes::<T>(name, value.to_bytes());
    }

    /// The same from the bytes of the object; those that are missing are zeros.
    #[doc(hidden)]
    pub fn global_with<T: Plain>(&self, name: &str, start: &[u8]) {
        let mut bytes = start.to_vec();
        bytes.resize(T::SIZE, 0);
        self.global_bytes::<T>(name, bytes);
    }

    /// A config block of the plugin's object, with its defaults.
    pub fn config<T: Plain>(&self, name: &str, defaults: &T) {
        self.config_with::<T>(name, &defaults.to_bytes());
    }

    /// The same from the bytes of the object.
    #[doc(hidden)]
    pub fn config_with<T: Plain>(&self, name: &str, defaults: &[u8]) {
        let name = crate::config::map_name(name);
        self.array::<T>(&name, 1);
        let entry = |map: &mut FakeMap| map.entries.insert(vec![0; 4], defaults.to_vec());
        with(|state| state.maps.get_mut(&name).and_then(entry));
    }

    fn global_bytes<T: Plain>(&self, name: &str, bytes: Vec<u8>) {
        let global = FakeGlobal { layout: layout::of::<T>(), bytes };
        with(|state| state.globals.insert(name.to_string(), global));
    }

    /// What the plugin wrote to standard output so far.
    pub fn output(&self) -> String {
        with(|state| state.output.clone())
    }

    /// What the plugin wrote to standard error so far, without its name before each line.
    pub fn errors(&self) -> String {
        with(|state| state.errors.clone())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        state::remove();
    }
}

fn nanos(time: Duration) -> u64 {
    // Longer than the clock can run.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1)
}

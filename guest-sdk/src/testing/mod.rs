//! Unit tests of plugins without a kernel, on an emulated host that answers as the test defines.
//!
//! Where a plugin is not built for Wasm, the calls of this crate reach the [`Host`] of the thread. So `cargo
//! test` runs a plugin's functions unchanged, `main` included:
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
//! Time is simulated: a sleep takes no time, and advances the clock. The test opens maps, rings and variables
//! as the plugin does; [`kernel!`](crate::kernel!) generates a function `declare` that declares the whole
//! kernel half to a host. There is no kernel: no program runs, and nothing is counted.
#![expect(clippy::result_large_err, reason = "the calls have the contract's signatures, in tests only")]

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
use crate::nested::Nested;
use crate::perf::Reading;
use crate::plain::Plain;
use crate::termination::Termination;

/// The emulated host of one test: active on this thread until it is dropped.
#[derive(Debug)]
pub struct Host {
    // The host belongs to the thread that created it.
    thread: PhantomData<*const ()>,
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

impl Host {
    /// Creates a host with 4 CPUs at time 0, which asks the plugin to stop after a minute and knows no event,
    /// map or program.
    ///
    /// # Panics
    /// If the thread has a host already.
    pub fn new() -> Host {
        state::install(State::new());
        Host { thread: PhantomData }
    }

    /// Runs a function as the host runs `main`, and returns the plugin's exit code, even if the function
    /// calls [`args::exit`](crate::args::exit).
    ///
    /// # Panics
    /// If the function does.
    pub fn run<T: Termination>(&self, main: impl FnOnce() -> T) -> u8 {
        match catch_unwind(AssertUnwindSafe(|| main().report())) {
            Ok(ended) => ended.map_or_else(|code| code, |()| 0),
            Err(cause) => match cause.downcast::<Exit>() {
                Ok(exit) => exit.0,
                Err(cause) => resume_unwind(cause),
            },
        }
    }

    /// Sets the arguments that follow `--` on the command line.
    pub fn args(&self, arguments: &[&str]) {
        with(|state| state.arguments = arguments.iter().map(ToString::to_string).collect());
    }

    /// Sets the time, from now, after which the host asks the plugin to stop: a wait then ends with
    /// [`Interrupted`](ErrorKind::Interrupted).
    pub fn stop_after(&self, time: Duration) {
        with(|state| state.stop = state.now + nanos(time));
    }

    /// Sets the number of CPUs, for maps that are declared later.
    pub fn cpus(&self, count: u32) {
        with(|state| state.cpus = count);
    }

    /// Adds a process that [`system`](crate::system) finds.
    pub fn process(&self, pid: i32, command: &str) {
        with(|state| state.processes.insert(pid, command.to_string()));
    }

    /// Sets the name that [`symbols`](crate::symbols) returns for an address, of the kernel and of every
    /// process.
    pub fn symbol(&self, address: u64, name: &str) {
        with(|state| state.symbols.insert(address, name.to_string()));
    }

    /// Declares an event, and the counts that its reads return: one after the other, then the last one
    /// repeatedly. It is on a counter all the time. Every attachment starts with the first count.
    ///
    /// The name is that of [`Event::named`](crate::Event::named) in either spelling, or the argument of
    /// another function of [`Event`](crate::Event): `sched/sched_switch`.
    ///
    /// # Panics
    /// If there is no count.
    pub fn counter(&self, event: &str, counts: impl IntoIterator<Item = u64>) {
        let counts = counts.into_iter().map(readings::Scripted::Count).collect();
        self.script(event, counts);
    }

    /// Declares an event with whole readings: results of [`counted`], [`multiplexed`] and [`never_ran`].
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

    /// Makes every later opening of an event, program, map, ring buffer or variable of this name fail for
    /// this reason.
    pub fn refuse(&self, name: &str, kind: ErrorKind, message: &str) {
        let refusal = Refusal { kind, message: message.to_string() };
        with(|state| state.refused.insert(state::spelling(name), refusal));
    }

    /// Declares a program of the plugin's object.
    pub fn program(&self, name: &str) {
        with(|state| state.programs.insert(name.to_string()));
    }

    /// Returns the current attachments of programs, in order of attaching: program and target, or program and
    /// event.
    pub fn attached(&self) -> Vec<(String, String)> {
        with(|state| state.attached())
    }

    /// Declares a hash map.
    pub fn map<K: Plain, V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(
            name,
            FakeMap::new(MapKind::Hash, Some(layout::of::<K>()), layout::of::<V>(), max_entries),
        );
    }

    /// Declares an array: every index exists, with zeros.
    pub fn array<V: Plain>(&self, name: &str, len: u32) {
        self.declare(name, FakeMap::new(MapKind::Array, Some(layout::of::<u32>()), layout::of::<V>(), len));
    }

    /// Declares a map of maps, which has no inner maps yet, with room for so many entries in all of them. Inner arrays have
    /// no elements before they are written.
    pub fn map_of_maps<O: Plain, I: Plain, V: Plain>(&self, name: &str, max_entries: u32) {
        let (key, value) = (layout::of::<Nested<O, I>>(), layout::of::<V>());
        self.declare(name, FakeMap::new(MapKind::Hash, Some(key), value, max_entries).of_maps(O::SIZE));
    }

    /// Declares a hash map with a value for each CPU.
    pub fn per_cpu_map<K: Plain, V: Plain>(&self, name: &str, max_entries: u32) {
        let cpus = with(|state| state.cpus);
        self.declare(
            name,
            FakeMap::new(MapKind::Hash, Some(layout::of::<K>()), layout::of::<V>(), max_entries)
                .on_cpus(cpus),
        );
    }

    /// Declares an array with a value for each CPU.
    pub fn per_cpu_array<V: Plain>(&self, name: &str, len: u32) {
        let cpus = with(|state| state.cpus);
        self.declare(
            name,
            FakeMap::new(MapKind::Array, Some(layout::of::<u32>()), layout::of::<V>(), len).on_cpus(cpus),
        );
    }

    /// Declares a queue of the plugin's object.
    pub fn queue<V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(name, FakeMap::new(MapKind::Queue, None, layout::of::<V>(), max_entries));
    }

    /// Declares a stack of the plugin's object.
    pub fn stack<V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(name, FakeMap::new(MapKind::Stack, None, layout::of::<V>(), max_entries));
    }

    /// Declares a bloom filter, which has no false positives here.
    pub fn bloom<V: Plain>(&self, name: &str, max_entries: u32) {
        self.declare(name, FakeMap::new(MapKind::Bloom, None, layout::of::<V>(), max_entries));
    }

    fn declare(&self, name: &str, map: FakeMap) {
        with(|state| state.maps.insert(name.to_string(), map));
    }

    /// Declares a ring buffer of this size in bytes.
    pub fn ring(&self, name: &str, bytes: u32) {
        with(|state| state.rings.insert(name.to_string(), FakeRing::new(bytes)));
    }

    /// Puts a record into a ring buffer immediately. A record that does not fit is lost, and counted.
    ///
    /// # Panics
    /// If there is no such ring buffer.
    pub fn push<T: Plain>(&self, ring: &str, record: &T) {
        self.push_after(Duration::ZERO, ring, record);
    }

    /// Puts a record into a ring buffer later: a poll that waits for records receives it then.
    ///
    /// # Panics
    /// See [`Host::push`].
    pub fn push_after<T: Plain>(&self, time: Duration, ring: &str, record: &T) {
        with(|state| {
            let due = state.now + nanos(time);
            state
                .ring(ring)
                .unwrap_or_else(|| panic!("no ring buffer `{ring}`"))
                .push(due, record.to_bytes());
        });
    }

    /// Declares a variable of the plugin's object, with its initial value.
    pub fn global<T: Plain>(&self, name: &str, value: &T) {
        self.global_bytes::<T>(name, value.to_bytes());
    }

    /// Declares a variable by the initial bytes in the object; missing bytes are zeros.
    #[doc(hidden)]
    pub fn global_with<T: Plain>(&self, name: &str, start: &[u8]) {
        let mut bytes = start.to_vec();
        bytes.resize(T::SIZE, 0);
        self.global_bytes::<T>(name, bytes);
    }

    /// Declares a config block of the plugin's object, with its defaults.
    pub fn config<T: Plain>(&self, name: &str, defaults: &T) {
        self.config_with::<T>(name, &defaults.to_bytes());
    }

    /// Declares a config block by the default bytes in the object.
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

    /// Returns the plugin's standard output so far.
    pub fn output(&self) -> String {
        with(|state| state.output.clone())
    }

    /// Returns the plugin's standard error so far, without the name that prefixes each line.
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
    // Saturates beyond the range of the clock.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1)
}

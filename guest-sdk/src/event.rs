//! Events that can be counted.

use alloc::string::String;

use crate::error::Result;
use crate::sys::perf;

/// The accesses that a hardware breakpoint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only.
    Read,
    /// Stores only.
    Write,
    /// Loads and stores.
    ReadWrite,
    /// Instruction fetches.
    Execute,
}

impl From<Access> for perf::Access {
    fn from(access: Access) -> perf::Access {
        match access {
            Access::Read => perf::Access::READ,
            Access::Write => perf::Access::WRITE,
            Access::ReadWrite => perf::Access::READ | perf::Access::WRITE,
            Access::Execute => perf::Access::EXECUTE,
        }
    }
}

/// The type and configuration of an event, not yet opened. One may be opened any number of times.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::Event;
///
/// let faults = Event::named("page_faults")?;
/// let misses = Event::named("L1-dcache-load-misses:u")?;
/// let switches = Event::tracepoint("sched/sched_switch")?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Event {
    pub(crate) raw: perf::Event,
}

impl Event {
    /// Looks up an event by its name, in the language's spelling (`page_faults`) or in that of `perf list`
    /// (`page-faults`, `cpu/event=0x3c/`, `r3c`, `msr/tsc/`, followed by letters such as `:u`).
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), with similar names; [`Invalid`](crate::ErrorKind::Invalid)
    /// for an unknown term, value or letter; [`DeniedByPolicy`](crate::ErrorKind::DeniedByPolicy) as for
    /// [`Event::numbered`].
    pub fn named(name: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::named(name)? })
    }

    /// Creates the event with these numbers: `perf_event_attr.type` and `.config`, as perf_event_open(2)
    /// lists them.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for numbers that the kernel's header does not define,
    /// [`DeniedByPolicy`](crate::ErrorKind::DeniedByPolicy) for a type that has its own function, and for
    /// numbers that the PMU does not describe,
    /// [`NotFound`](crate::ErrorKind::NotFound) if no PMU has that type here.
    pub fn numbered(kind: u32, config: u64) -> Result<Event> {
        Ok(Event { raw: perf::Event::numbered(kind, config)? })
    }

    /// Like [`Event::numbered`], with `config1` and `config2`, which some PMUs need.
    ///
    /// # Errors
    /// See [`Event::numbered`].
    pub fn numbered_with(kind: u32, config: u64, config1: u64, config2: u64) -> Result<Event> {
        Ok(Event { raw: perf::Event::raw(kind, config, config1, config2)? })
    }

    /// Looks up the static tracepoint `category/event`; it counts hits.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), with similar names;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) or [`NotPermitted`](crate::ErrorKind::NotPermitted) if
    /// tracefs is not mounted or not readable.
    pub fn tracepoint(name: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::tracepoint(name)? })
    }

    /// Counts calls of a kernel function: `function` or `function+0x10`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the kernel has no kprobes,
    /// [`Invalid`](crate::ErrorKind::Invalid) for another form. An unknown function is reported when the
    /// event is opened. It cannot be opened with `inherit` or `follow`, because the observed task could then
    /// start no child.
    pub fn kprobe(function: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::kprobe(function)? })
    }

    /// Counts calls of a function of a program or library: `path:function`, `path:function+0x10`,
    /// `path:+0x1040`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) (no such file or function; a kernel without uprobes),
    /// [`Invalid`](crate::ErrorKind::Invalid) for another form,
    /// [`DeniedByPolicy`](crate::ErrorKind::DeniedByPolicy) where nothing proves that an instruction begins.
    /// It cannot be opened with `inherit` or `follow`, like [`kprobe`](Event::kprobe).
    pub fn uprobe(target: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::uprobe(target)? })
    }

    /// Counts accesses to `len` bytes (1, 2, 4 or 8) at an address of the observed task, by a hardware
    /// breakpoint.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a length or a combination that no CPU supports.
    pub fn breakpoint(address: u64, len: u32, access: Access) -> Result<Event> {
        Ok(Event { raw: perf::Event::breakpoint(address, len, access.into())? })
    }

    /// Counts accesses to `len` bytes at a kernel symbol.
    ///
    /// # Errors
    /// See [`Event::breakpoint`]; [`NotFound`](crate::ErrorKind::NotFound) (no such symbol),
    /// [`NotPermitted`](crate::ErrorKind::NotPermitted) (the kernel hides its addresses).
    pub fn breakpoint_at(symbol: &str, len: u32, access: Access) -> Result<Event> {
        Ok(Event { raw: perf::Event::breakpoint_at(symbol, len, access.into())? })
    }

    /// The event's name in messages, for example `page_faults`.
    pub fn name(&self) -> String {
        self.raw.name()
    }
}

//! What is counted.

use alloc::string::String;

use crate::error::Result;
use crate::sys::perf;

/// Which accesses a hardware breakpoint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads.
    Read,
    /// Stores.
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
    /// The event of this name, in the language's spelling (`page_faults`) or in that of `perf list` (`page-faults`,
    /// `cpu/event=0x3c/`, `r3c`, `msr/tsc/`, with letters such as `:u` behind it).
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), with near names; [`Invalid`](crate::ErrorKind::Invalid) for a term, a
    /// value or a letter that is none.
    pub fn named(name: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::named(name)? })
    }

    /// The event of these numbers: `perf_event_attr.type` and `.config`, as perf_event_open(2) lists them.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for numbers that the kernel's header does not define,
    /// [`NotFound`](crate::ErrorKind::NotFound) if no PMU has that type here.
    pub fn numbered(kind: u32, config: u64) -> Result<Event> {
        Ok(Event { raw: perf::Event::numbered(kind, config)? })
    }

    /// As [`Event::numbered`], with `config1` and `config2`, which some PMUs want.
    ///
    /// # Errors
    /// As [`Event::numbered`].
    pub fn numbered_with(kind: u32, config: u64, config1: u64, config2: u64) -> Result<Event> {
        Ok(Event { raw: perf::Event::raw(kind, config, config1, config2)? })
    }

    /// The static tracepoint `category/event`; counts its hits.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), with near names; [`Unsupported`](crate::ErrorKind::Unsupported) or
    /// [`NotPermitted`](crate::ErrorKind::NotPermitted) if tracefs is not mounted or may not be read.
    pub fn tracepoint(name: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::tracepoint(name)? })
    }

    /// Calls of a function of the kernel: `function` or `function+0x10`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the kernel has no kprobes, [`Invalid`](crate::ErrorKind::Invalid) for
    /// another form. Whether there is such a function is known when the event is opened: not with `inherit` or `follow`,
    /// because its observed task could start no child then.
    pub fn kprobe(function: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::kprobe(function)? })
    }

    /// Calls of a function of a program or library: `path:function`, `path:function+0x10`, `path:+0x1040`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) (no such file or function; a kernel without uprobes),
    /// [`Invalid`](crate::ErrorKind::Invalid) for another form. It cannot be opened with `inherit` or `follow`, as
    /// [`kprobe`](Event::kprobe) cannot.
    pub fn uprobe(target: &str) -> Result<Event> {
        Ok(Event { raw: perf::Event::uprobe(target)? })
    }

    /// A hardware breakpoint: accesses to `len` bytes (1, 2, 4 or 8) at an address of the observed task.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a length or a combination that no CPU has.
    pub fn breakpoint(address: u64, len: u32, access: Access) -> Result<Event> {
        Ok(Event { raw: perf::Event::breakpoint(address, len, access.into())? })
    }

    /// The same at a symbol of the kernel.
    ///
    /// # Errors
    /// As [`Event::breakpoint`]; [`NotFound`](crate::ErrorKind::NotFound) (no such symbol),
    /// [`NotPermitted`](crate::ErrorKind::NotPermitted) (the kernel hides its addresses).
    pub fn breakpoint_at(symbol: &str, len: u32, access: Access) -> Result<Event> {
        Ok(Event { raw: perf::Event::breakpoint_at(symbol, len, access.into())? })
    }

    /// The name under which messages show it, for example `page_faults`.
    pub fn name(&self) -> String {
        self.raw.name()
    }
}

//! BPF programs of the plugin file, and their attachments.

use alloc::string::String;
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::shared;
use crate::sys::bpf;

/// The type of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProgramKind {
    /// Runs on the overflow of a perf event.
    PerfEvent,
    /// Runs at a static tracepoint, with its record.
    Tracepoint,
    /// Runs at a static tracepoint, with its arguments.
    RawTracepoint,
    /// Another type, by its number in `enum bpf_prog_type`.
    Other(u32),
}

impl From<bpf::ProgramKind> for ProgramKind {
    fn from(kind: bpf::ProgramKind) -> ProgramKind {
        match kind {
            bpf::ProgramKind::PerfEvent => ProgramKind::PerfEvent,
            bpf::ProgramKind::Tracepoint => ProgramKind::Tracepoint,
            bpf::ProgramKind::RawTracepoint => ProgramKind::RawTracepoint,
            bpf::ProgramKind::Other(number) => ProgramKind::Other(number),
        }
    }
}

/// The kernel's facts about a loaded program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramInfo {
    /// The name in the plugin's object, uncut.
    pub name: String,
    /// The type with which it was loaded.
    pub kind: ProgramKind,
    /// The kernel's id, as `bpftool prog` shows it.
    pub id: u32,
    /// Instructions after the kernel's own rewriting, 8 bytes each.
    pub instructions: u32,
}

/// The input of a test run of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The first bytes of the packet, from the Ethernet header on.
    pub data: Vec<u8>,
    /// Size of the whole packet in bytes, 14 to 65536; bytes beyond `data` are zero, a longer `data` is cut.
    pub size: u32,
    /// Index of an existing interface that it seems to come from; 0 means none.
    pub interface: u32,
    /// The `mark` of the socket buffer.
    pub mark: u32,
    /// Number of runs on the same packet, 1 to 10000.
    pub repeat: u32,
}

impl Default for Packet {
    fn default() -> Packet {
        Packet { data: Vec::new(), size: 1500, interface: 0, mark: 0, repeat: 1 }
    }
}

/// The result of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestOutput {
    /// The program's return value, in the last run.
    pub return_value: u32,
    /// The packet as the program left it; empty for programs without packets.
    pub data: Vec<u8>,
    /// The mean time of a run.
    pub duration: Duration,
}

/// Where an xdp program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum XdpMode {
    /// In the driver, or in the kernel's own code if the driver cannot.
    #[default]
    Best,
    /// In the kernel's own code, for any interface.
    Generic,
    /// In the driver.
    Native,
    /// On the device.
    Offloaded,
}

/// A program of the plugin's object, as the object describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramDescription {
    /// The program's name.
    pub name: String,
    /// The program type.
    pub kind: ProgramKind,
    /// Where the object says that the program is attached: a function, a tracepoint, a hook. Empty if it says
    /// nothing.
    pub target: String,
}

/// A BPF program of the plugin file, loaded. It stays loaded while something is attached to it.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::Program;
///
/// let program = Program::load("on_switch")?;
/// let link = program.attach_tracepoint("sched/sched_switch", 0)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Program {
    pub(crate) raw: bpf::Program,
}

impl Program {
    /// Returns the programs of the plugin's object, in its order. Nothing is loaded.
    pub fn list() -> Vec<ProgramDescription> {
        let describe = |one: bpf::ProgramDescription| ProgramDescription {
            name: one.name,
            kind: one.kind.into(),
            target: one.target,
        };
        bpf::list_programs().into_iter().map(describe).collect()
    }

    /// Loads the program of this name. The first load creates the object's maps and variables and loads its other
    /// programs, too, if the kernel accepts all of them.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) (no such program in the plugin file),
    /// [`NotPermitted`](ErrorKind::NotPermitted) (CAP_BPF, CAP_PERFMON),
    /// [`Unsupported`](ErrorKind::Unsupported), [`Limit`](ErrorKind::Limit),
    /// [`Kernel`](ErrorKind::Kernel) (the verifier rejected it; the message has its reason).
    pub fn load(name: &str) -> Result<Program> {
        let raw = bpf::Program::load(name)?;
        shared::loaded();
        Ok(Program { raw })
    }

    /// Reads the kernel's current facts about the program.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn info(&self) -> Result<ProgramInfo> {
        let info = self.raw.info()?;
        Ok(ProgramInfo {
            name: info.name,
            kind: info.kind.into(),
            id: info.id,
            instructions: info.instructions,
        })
    }

    /// Attaches the program where its object says: at the tracepoint, function or hook of its section. A timer
    /// runs from now on. The program gets the cookie from `bpf_get_attach_cookie`; 0 is what it gets without
    /// one. Programs of perf events are attached by
    /// [`Attachment::open_with`](crate::Attachment::open_with).
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) (no such function or event here), [`Invalid`](ErrorKind::Invalid)
    /// (the object says nothing; a program of perf events), [`Unsupported`](ErrorKind::Unsupported) (also: no
    /// cookie for this kind), [`Busy`](ErrorKind::Busy), [`NotPermitted`](ErrorKind::NotPermitted),
    /// [`DeniedByPolicy`](ErrorKind::DeniedByPolicy), [`Limit`](ErrorKind::Limit) (of probes),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn attach(&self, cookie: u64) -> Result<Link> {
        Ok(Link { raw: self.raw.attach(cookie)? })
    }

    /// Attaches a tracepoint program to `category/event`.
    ///
    /// # Errors
    /// See [`Program::attach`]; [`Invalid`](ErrorKind::Invalid) for a program of another type.
    pub fn attach_tracepoint(&self, tracepoint: &str, cookie: u64) -> Result<Link> {
        Ok(Link { raw: self.raw.attach_tracepoint(tracepoint, cookie)? })
    }

    /// Attaches a raw_tracepoint program to a tracepoint, by the event's name without its category.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`].
    pub fn attach_raw_tracepoint(&self, tracepoint: &str, cookie: u64) -> Result<Link> {
        Ok(Link { raw: self.raw.attach_raw_tracepoint(tracepoint, cookie)? })
    }

    /// Attaches a kprobe or kretprobe program to a function of the kernel, so many bytes behind its start.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`].
    pub fn attach_kprobe(&self, function: &str, offset: u64, cookie: u64) -> Result<Link> {
        Ok(Link { raw: self.raw.attach_kprobe(function, offset, cookie)? })
    }

    /// Attaches a uprobe or uretprobe program to every function of this name in a program or library, so many
    /// bytes behind its start, in every process that runs the file or in one. An empty name is the start of
    /// the file.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`]; [`NotFound`](ErrorKind::NotFound) (no such process).
    pub fn attach_uprobe(
        &self,
        path: &str,
        function: &str,
        offset: u64,
        process: Option<i32>,
        cookie: u64,
    ) -> Result<Link> {
        Ok(Link { raw: self.raw.attach_uprobe(path, function, offset, process, cookie)? })
    }

    /// Attaches an xdp program to an interface, by name or number, in this mode.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`].
    pub fn attach_xdp(&self, interface: &str, mode: XdpMode) -> Result<Link> {
        let mode = match mode {
            XdpMode::Best => bpf::XdpMode::Best,
            XdpMode::Generic => bpf::XdpMode::Generic,
            XdpMode::Native => bpf::XdpMode::Native,
            XdpMode::Offloaded => bpf::XdpMode::Offloaded,
        };
        Ok(Link { raw: self.raw.attach_xdp(interface, mode)? })
    }

    /// Attaches a tc program to an interface, by name or number, before the programs that are there. With a
    /// priority or a handle it is a filter of clsact, of which the one of lower priority runs first.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`]; [`Busy`](ErrorKind::Busy) (a filter with these two is there).
    pub fn attach_tc(
        &self,
        interface: &str,
        priority: Option<NonZeroU16>,
        handle: Option<NonZeroU32>,
    ) -> Result<Link> {
        let (priority, handle) = (priority.map(NonZeroU16::get), handle.map(NonZeroU32::get));
        Ok(Link { raw: self.raw.attach_tc(interface, priority, handle)? })
    }

    /// Attaches a program of a cgroup hook to a control group of version 2 and those below it, by its folder:
    /// absolute, or below where they are mounted.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`].
    pub fn attach_cgroup(&self, path: &str) -> Result<Link> {
        Ok(Link { raw: self.raw.attach_cgroup(path)? })
    }

    /// Runs a socket filter on the packets of an interface, by name or number.
    ///
    /// # Errors
    /// See [`Program::attach_tracepoint`].
    pub fn attach_socket_filter(&self, interface: &str) -> Result<Link> {
        Ok(Link { raw: self.raw.attach_socket_filter(interface)? })
    }

    /// Runs the program on a packet, [`Packet::repeat`] times. Nothing is attached; maps and variables
    /// change as in any run.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (the packet's size), [`NotFound`](ErrorKind::NotFound) (no such
    /// interface), [`Unsupported`](ErrorKind::Unsupported) (no test run for its type),
    /// [`NotPermitted`](ErrorKind::NotPermitted), [`Kernel`](ErrorKind::Kernel).
    pub fn test_run(&self, packet: &Packet) -> Result<TestOutput> {
        let input = bpf::TestInput::new();
        input.set_data(&packet.data);
        input.set_packet_size(packet.size);
        input.set_ingress_ifindex(packet.interface);
        input.set_mark(packet.mark);
        input.set_repeat(packet.repeat);
        self.run(&input)
    }

    /// Runs a program of a raw tracepoint once on these arguments, at most 12.
    ///
    /// # Errors
    /// See [`Program::test_run`].
    pub fn test_run_with(&self, arguments: &[u64]) -> Result<TestOutput> {
        let input = bpf::TestInput::new();
        input.set_arguments(arguments);
        self.run(&input)
    }

    fn run(&self, input: &bpf::TestInput) -> Result<TestOutput> {
        let bpf::TestOutput { return_value, data, duration } = self.raw.test_run(input)?;
        Ok(TestOutput { return_value, data, duration: Duration::from_nanos(duration) })
    }

    /// Detaches all attachments of the program, including perf events, newest first.
    pub fn detach_all(&self) {
        self.raw.detach_all();
    }
}

/// One attachment of a program, or one registered struct. Dropping it detaches or unregisters.
#[derive(Debug)]
pub struct Link {
    raw: bpf::Link,
}

impl Link {
    /// Registers the struct_ops struct of this name in the plugin's object: a TCP congestion control or a
    /// scheduler.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) (no such struct in the plugin file),
    /// [`Unsupported`](ErrorKind::Unsupported) (before Linux 6.4), [`Busy`](ErrorKind::Busy) (the kernel has
    /// one of that name), [`NotPermitted`](ErrorKind::NotPermitted),
    /// [`DeniedByPolicy`](ErrorKind::DeniedByPolicy), [`Kernel`](ErrorKind::Kernel).
    pub fn register(name: &str) -> Result<Link> {
        let raw = bpf::Link::register(name)?;
        shared::loaded();
        Ok(Link { raw })
    }

    /// Detaches or unregisters immediately, like dropping it.
    pub fn detach(self) {
        self.raw.detach();
    }
}

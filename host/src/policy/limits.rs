//! How much a plugin may take.

use ks_compiler::object::model::Memory;

use super::Policy;
use super::file::PolicyError;
use crate::near::near;
use crate::quantity;

/// Something of which a plugin may take a limited amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Maps of its object, those of its variables included.
    Maps,
    /// Bytes that the kernel charges for all its maps but ring buffers when they are full.
    MapBytes,
    /// Bytes that the kernel charges for all its ring buffers.
    RingBytes,
    /// Bytes that it may write to standard output and standard error in a second.
    PrintBytes,
    /// Events that it has open at a time; one on every CPU is one.
    Attachments,
    /// Probes of functions of the kernel and of programs that it has at a time, one for each CPU that an event is opened
    /// on, and files that events hold open for them. The kernel takes 50 to 90 ms to take one away, one after the other, and
    /// as long as a process has some, no signal ends it.
    Probes,
    /// Handles of all kinds that it holds at a time.
    Handles,
    /// Bytes of all its memories.
    MemoryBytes,
    /// Elements of all its tables.
    TableElements,
    /// Core instances, memories and tables, each. Guards against a component that instantiates a large module a
    /// thousand times: each memory reserves 4 GiB of address space.
    Instances,
    /// Bytes of arguments that one host call may copy out of the plugin. Guards against a list whose elements all
    /// denote the same large text: the plugin holds it once, the host would copy it each time.
    CallBytes,
    /// Bytes that the host keeps for it: records that it put back, entries that cursors have read, texts of its handles,
    /// begun lines, copies of variables and values.
    HostBytes,
    /// Milliseconds that it may compute (time of its thread on a CPU) without calling the host.
    ComputeMs,
    /// Milliseconds that compiling its code may take. Guards against code that is made to be slow to compile.
    CompileMs,
    /// Bytes of memory that the process which compiles its code may take.
    CompileBytes,
    /// Milliseconds that it may run.
    RunMs,
}

impl Limit {
    /// All.
    pub const ALL: [Limit; 16] = [
        Limit::Maps,
        Limit::MapBytes,
        Limit::RingBytes,
        Limit::PrintBytes,
        Limit::Attachments,
        Limit::Probes,
        Limit::Handles,
        Limit::MemoryBytes,
        Limit::TableElements,
        Limit::Instances,
        Limit::CallBytes,
        Limit::HostBytes,
        Limit::ComputeMs,
        Limit::CompileMs,
        Limit::CompileBytes,
        Limit::RunMs,
    ];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Maps => "maps",
            Limit::MapBytes => "map_bytes",
            Limit::RingBytes => "ring_bytes",
            Limit::PrintBytes => "print_bytes_per_second",
            Limit::Attachments => "attachments",
            Limit::Probes => "probes",
            Limit::Handles => "handles",
            Limit::MemoryBytes => "memory_bytes",
            Limit::TableElements => "table_elements",
            Limit::Instances => "instances",
            Limit::CallBytes => "call_bytes",
            Limit::HostBytes => "host_bytes",
            Limit::ComputeMs => "compute_ms",
            Limit::CompileMs => "compile_ms",
            Limit::CompileBytes => "compile_bytes",
            Limit::RunMs => "run_ms",
        }
    }

    /// What holds if nobody sets it.
    pub(super) fn default(self) -> u64 {
        match self {
            Limit::Maps => 256,
            Limit::MapBytes => 1 << 30,
            Limit::RingBytes => 256 << 20,
            // Far above what a person or a tool reads: it ends what would fill a disk.
            Limit::PrintBytes => 64 << 20,
            Limit::Attachments => 16_384,
            // Some twenty seconds to the end of the process.
            Limit::Probes => 256,
            // Guards the host's memory; descriptors have the process's limit.
            Limit::Handles => 1 << 16,
            Limit::MemoryBytes => ks_wit::MEMORY_BYTES as u64,
            // An element costs the host a pointer, a page of memory costs the guest nothing.
            Limit::TableElements => 100_000,
            Limit::Instances => 64,
            Limit::CallBytes => 16 << 20,
            Limit::HostBytes => 256 << 20,
            Limit::ComputeMs => 30_000,
            // An interpreter as a component, of 18 MB, takes 10 to 15 seconds.
            Limit::CompileMs => 120_000,
            // Such an interpreter takes a tenth.
            Limit::CompileBytes => 4 << 30,
            // Whoever started it knows how long.
            Limit::RunMs => u64::MAX,
        }
    }

    /// Reads how much is allowed: of bytes also as a size (`16M`), of milliseconds as a time (`2s`).
    pub(super) fn number(self, text: &str) -> Result<u64, String> {
        let name = self.name();
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) if name.contains("_bytes") => quantity::bytes(text),
            Err(_) if name.ends_with("_ms") => {
                let time = quantity::duration(text)?;
                u64::try_from(time.as_millis()).map_err(|error| error.to_string())
            }
            Err(_) => Err(format!("`{text}` is no number")),
        }
    }

    /// What a person is told when it is reached.
    pub fn reached(self, number: u64) -> String {
        let name = self.name();
        format!("the limit `{name}` of the plugin is {number}\n  do: --limit {name}=.. allows more")
    }

    /// The limit of this name.
    pub(super) fn named(name: &str) -> Result<Limit, PolicyError> {
        let found = Limit::ALL.into_iter().find(|limit| limit.name() == name);
        found.ok_or_else(|| {
            let names = Limit::ALL.into_iter().map(|limit| limit.name().to_owned());
            PolicyError::UnknownLimit { name: name.into(), near: near(name, names) }
        })
    }
}

/// What of the objects is above the limits, in words.
pub(super) fn exceeded(policy: &Policy, memory: Memory) -> Vec<String> {
    let taken = [
        (Limit::Maps, memory.maps),
        (Limit::MapBytes, memory.map_bytes),
        (Limit::RingBytes, memory.ring_bytes),
    ];
    let above = taken.into_iter().filter(|(limit, number)| *number > policy.limit(*limit));
    above
        .map(|(limit, number)| {
            let name = limit.name();
            format!(
                "its maps: {name} is {number}, and the limit is {}: --limit {name}={number} would allow it",
                policy.limit(limit)
            )
        })
        .collect()
}

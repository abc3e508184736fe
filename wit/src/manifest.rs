//! Descriptive metadata of a plugin, which `ks-host inspect` shows.
//!
//! The manifest grants nothing. The sections and the host's policy decide what a plugin can reach.

use serde::{Deserialize, Serialize};

/// The format that this version writes. A reader refuses a higher number.
pub const FORMAT: u32 = 1;

/// The manifest of one plugin. Readers ignore unknown members, so that an older host reads a newer compiler's
/// file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format number; [`FORMAT`] when this version wrote it.
    pub format: u32,
    /// Name and version of the tool that wrote it, for example `ks 0.1.0`.
    pub compiler: String,
    /// The project's name, which is the base name of the main source file.
    pub project: String,
    /// Name and hash of the main source file.
    pub source: Source,
    /// BPF programs, in source order.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Kernel structs that the plugin implements (struct_ops), in source order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub struct_ops: Vec<StructOps>,
    /// BPF maps, in source order.
    #[serde(default)]
    pub maps: Vec<Map>,
    /// Global variables that the kernel half and the userspace half share, in source order.
    #[serde(default)]
    pub globals: Vec<Global>,
    /// Every `attach` of a perf event in the source, in source order. Arguments that are not constants are
    /// missing.
    #[serde(default)]
    pub events: Vec<Event>,
    /// The tests of a plugin compiled with tests, in source order. Such a plugin targets the world
    /// `test-plugin`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Test>,
    /// Config blocks, in source order.
    #[serde(default)]
    pub configs: Vec<Config>,
}

/// The source file that a plugin was compiled from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// File name without folders, so that the file does not reveal paths of the build machine.
    pub file: String,
    /// SHA-256 of the text, in hexadecimal digits.
    pub sha256: String,
}

/// A BPF program of the plugin's object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program's symbol in the object.
    pub name: String,
    /// The program kind in KernelScript's spelling, for example `perf_event`.
    pub kind: String,
    /// The targets that the source attaches it to; none if one of them is known only at run time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

/// A kernel struct whose members are programs (struct_ops): the argument of `register`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StructOps {
    /// The struct's name in the object, unique among its maps.
    pub name: String,
    /// The type of the kernel's struct, for example `tcp_congestion_ops`.
    #[serde(rename = "struct")]
    pub ops: String,
    /// The members that are programs, in source order.
    pub methods: Vec<String>,
}

/// A test: the argument of `run-test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// Name of the test function.
    pub name: String,
    /// Its line in the main source file, from 1.
    pub line: u32,
}

/// A BPF map of the plugin's object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// The map's name in the object.
    pub name: String,
    /// The map kind in KernelScript's spelling, for example `percpu_array`.
    pub kind: String,
    /// The type of a key, as the script spells it.
    pub key: String,
    /// The type of a value, as the script spells it.
    pub value: String,
    /// Capacity of the map, in entries.
    pub max_entries: u32,
    /// The known members of the key, in order. Empty if no part of the key is a stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_parts: Vec<KeyPart>,
}

/// A part of a map's key that identifies a stack, a task, a CPU or a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// The path of the member in the key, with `.` between names; empty if the part is the whole key.
    pub name: String,
    /// Bytes from the key's start.
    pub offset: u32,
    /// Size in bytes: 4 or 8 for an integer, otherwise the size of a text, which ends at its first zero byte
    /// or here.
    pub bytes: u32,
    /// The meaning of these bytes.
    #[serde(flatten)]
    pub holds: Holds,
}

/// The meaning of a key part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "holds", rename_all = "snake_case")]
pub enum Holds {
    /// The kernel's stack: its id in a `stack_trace` map, or a negative errno.
    KernelStack {
        /// Name of the `stack_trace` map that holds the stack.
        map: String,
    },
    /// The user stack: its id in a `stack_trace` map, or a negative errno.
    UserStack {
        /// Name of the `stack_trace` map that holds the stack.
        map: String,
    },
    /// The user stack and its process: the id of the stack in the low 32 bits, the process id in the high ones, or a
    /// negative errno.
    ProcessStack {
        /// Name of the `stack_trace` map that holds the stack.
        map: String,
    },
    /// The process id (tgid).
    Process,
    /// The thread id (the kernel's pid).
    Thread,
    /// The name of the task (comm).
    Command,
    /// The number of the CPU.
    Cpu,
    /// The id of the control group (cgroup v2).
    Cgroup,
}

/// A global variable in the object's data sections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Global {
    /// The variable's symbol in the object.
    pub name: String,
    /// The variable's type, as the script spells it.
    #[serde(rename = "type")]
    pub ty: String,
}

/// A config block: settings that a user may change before the plugin starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The name of the block in the script.
    pub name: String,
    /// The fields of the block, in source order.
    pub fields: Vec<ConfigField>,
}

/// A field of a config block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigField {
    /// The field's name in the script, unique within its block.
    pub name: String,
    /// The field's type as the script spells it: an integer, `bool`, `char`, or an array of these, for
    /// example `u16[4]`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Bytes from the block's start.
    pub offset: u32,
    /// The text of the field's `///` lines; empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub docs: String,
}

/// A perf event that the script opens. A field is `None` if its value is known only at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The event as policies spell it: `page_faults`, `sched/sched_switch`, `uprobe:/bin/sh:main`; an event of a
    /// PMU as the source has it.
    pub event: Option<String>,
    /// The family of the event in policies, if the source shows it: `software`, `cache`, `uprobe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The observed task: -1 for all tasks, 0 for the plugin's own thread.
    pub pid: Option<i32>,
    /// Whose events are counted, as policies spell it: `own`, `task`, `process`, `command`, `cgroup`, `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The observed CPU: -1 for any CPU; none if it is chosen at run time, or if all are observed.
    pub cpu: Option<i32>,
    /// Whether there is an event on each CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_cpu: bool,
    /// The program that runs on overflow; `None` if the event is only counted.
    pub program: Option<String>,
    /// Line of the `attach` in the main source file, from 1.
    pub line: u32,
}

//! What a plugin says of itself before it runs. `ks-host inspect` shows it.
//!
//! The manifest describes; it grants nothing. What a plugin can reach is decided by its sections and the host's policy.

use serde::{Deserialize, Serialize};

/// The format that this version writes. A reader refuses a higher one.
pub const FORMAT: u32 = 1;

/// One manifest. Unknown members are ignored, so that an older host reads a newer compiler's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The tool that wrote it, for example `ks 0.1.0`.
    pub compiler: String,
    /// The project: base name of the main source file.
    pub project: String,
    /// The main source file.
    pub source: Source,
    /// BPF programs, in source order.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Structs of the kernel that the plugin fills in, in source order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub struct_ops: Vec<StructOps>,
    /// BPF maps, in source order.
    #[serde(default)]
    pub maps: Vec<Map>,
    /// Global variables that both halves see, in source order.
    #[serde(default)]
    pub globals: Vec<Global>,
    /// Every `attach` of a perf event in the source, in source order, as far as its arguments are constants.
    #[serde(default)]
    pub events: Vec<Event>,
    /// The tests of a plugin that was compiled for them, in source order. Such a plugin is of the world `test-plugin`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Test>,
    /// Config blocks, in source order.
    #[serde(default)]
    pub configs: Vec<Config>,
}

/// Where a plugin was compiled from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// File name without folders: the place of the build machine is nobody's business.
    pub file: String,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: String,
}

/// A BPF program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The symbol in the object.
    pub name: String,
    /// The program kind in the language's words, for example `perf_event`.
    pub kind: String,
}

/// A struct of the kernel that programs fill in: what `register` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StructOps {
    /// The name in the object.
    pub name: String,
    /// The kernel's struct, for example `tcp_congestion_ops`.
    #[serde(rename = "struct")]
    pub ops: String,
    /// The members that are programs, in source order.
    pub methods: Vec<String>,
}

/// A test: what `run-test` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Its line in the main source file, from 1.
    pub line: u32,
}

/// A BPF map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// The name in the object.
    pub name: String,
    /// The kind in the language's words, for example `percpu_array`.
    pub kind: String,
    /// The type of a key, as the script spells it.
    pub key: String,
    /// The type of a value, as the script spells it.
    pub value: String,
    /// Most entries the map holds.
    pub max_entries: u32,
    /// What lies in the key, as far as it is known; in order, and empty if no part of it is a stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_parts: Vec<KeyPart>,
}

/// A part of a map's key that says where or in which task something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// The member of the key, with those around it before a `.`; empty if it is the whole key.
    pub name: String,
    /// Bytes from the key's start.
    pub offset: u32,
    /// Its bytes: 4 or 8 of an integer, else those of a text that ends with a zero or where it ends.
    pub bytes: u32,
    /// What it is.
    #[serde(flatten)]
    pub holds: Holds,
}

/// What a part of a key is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "holds", rename_all = "snake_case")]
pub enum Holds {
    /// The kernel's stack: its id in a `stack_trace` map, or a negative errno.
    KernelStack {
        /// The map of stacks.
        map: String,
    },
    /// The stack of the process: its id in a `stack_trace` map, or a negative errno.
    UserStack {
        /// The map of stacks.
        map: String,
    },
    /// The process id.
    Process,
    /// The thread id.
    Thread,
    /// The name of the task.
    Command,
    /// The CPU.
    Cpu,
    /// The id of the control group.
    Cgroup,
}

/// A global variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Global {
    /// The symbol in the object.
    pub name: String,
    /// Its type, as the script spells it.
    #[serde(rename = "type")]
    pub ty: String,
}

/// A config block: what a person may set before the plugin starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The name in the script.
    pub name: String,
    /// Its fields, in source order.
    pub fields: Vec<ConfigField>,
}

/// A field of a config block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigField {
    /// Its name.
    pub name: String,
    /// Its type as the script spells it: an integer, `bool`, `char`, or an array of one of those such as `u16[4]`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Bytes from the block's start.
    pub offset: u32,
    /// The `///` lines above it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub docs: String,
}

/// A perf event that the script opens. `None` where the value is known at run time only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The event, in the language's spelling.
    pub event: Option<String>,
    /// The task: -1 all, 0 the plugin's own thread.
    pub pid: Option<i32>,
    /// The CPU: -1 any.
    pub cpu: Option<i32>,
    /// The program that runs on overflow; none if the event is only counted.
    pub program: Option<String>,
    /// Line of the `attach` in the main source file, from 1.
    pub line: u32,
}

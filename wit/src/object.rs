//! Names and layouts inside a plugin's BPF object that the compiler and the host agree on.

use serde::{Deserialize, Serialize};

use crate::section::FAULT_COUNT_PREFIX;

/// Returns the name of the 64-bit variable in which the kernel half counts the records or entries that this
/// ring buffer or map had no space for. An object without the variable loses nothing, or does not count.
pub fn lost_variable(map: &str) -> String {
    format!("__lost_{map}")
}

/// Limit of iterations of a loop in the kernel half; the kernel refuses more. Source: include/linux/bpf.h,
/// `BPF_MAX_LOOPS`, v6.18.
pub const MAX_ITERATIONS: u64 = 1 << 23;

/// The prefix of each [`cut_loop_variable`].
const CUT_LOOP_PREFIX: &str = "__cut_";

/// Returns the name of the 64-bit variable that counts how often the loop at this line stopped because it
/// reached [`MAX_ITERATIONS`]. `module` is the imported module of the line, empty for the script itself.
pub fn cut_loop_variable(line: u32, module: &str) -> String {
    let separator = if module.is_empty() { "" } else { "_" };
    format!("{CUT_LOOP_PREFIX}{line}{separator}{module}")
}

/// The prefix of each [`cut_list_variable`].
const CUT_LIST_PREFIX: &str = "__cut_list_";

/// Returns the name of the 64-bit variable that counts how often the loop at this line left a list of the kernel before its
/// end. `module` is that of a [`cut_loop_variable`].
pub fn cut_list_variable(line: u32, module: &str) -> String {
    let separator = if module.is_empty() { "" } else { "_" };
    format!("{CUT_LIST_PREFIX}{line}{separator}{module}")
}

/// The 64-bit variable that counts how many texts a program could not read: there was no memory at the address, or its
/// page had to be fetched first.
pub const UNREAD: &str = "__unread";

/// The 64-bit variable that counts how many numbers a program gave up to keep as the least or the greatest of several:
/// other CPUs stored theirs in between, again and again.
pub const UNRAISED: &str = "__unraised";

/// A variable that counts losses, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossVariable<'a> {
    /// Runs of this program that a fault ended ([`FAULT_COUNT_PREFIX`]).
    Fault(&'a str),
    /// A [`cut_loop_variable`], with its line and its module.
    CutLoop(u32, &'a str),
    /// A [`cut_list_variable`], with its line and its module.
    CutList(u32, &'a str),
    /// [`UNREAD`].
    Unread,
    /// [`UNRAISED`].
    Unraised,
}

/// Parses the name of a variable of a program or loop; none for a variable that counts no losses, and for a
/// [`lost_variable`], which is found by its map.
pub fn loss_variable(name: &str) -> Option<LossVariable<'_>> {
    if name == UNREAD {
        return Some(LossVariable::Unread);
    }
    if name == UNRAISED {
        return Some(LossVariable::Unraised);
    }
    if let Some(program) = name.strip_prefix(FAULT_COUNT_PREFIX) {
        return Some(LossVariable::Fault(program));
    }
    if let Some(rest) = name.strip_prefix(CUT_LIST_PREFIX) {
        let (line, module) = line_and_module(rest)?;
        return Some(LossVariable::CutList(line, module));
    }
    let (line, module) = line_and_module(name.strip_prefix(CUT_LOOP_PREFIX)?)?;
    Some(LossVariable::CutLoop(line, module))
}

fn line_and_module(text: &str) -> Option<(u32, &str)> {
    let (line, module) = text.split_once('_').unwrap_or((text, ""));
    Some((line.parse().ok()?, module))
}

/// Returns the name of the one-element array whose first 16 bytes are the `struct bpf_timer` of this timer
/// program. The object has this map exactly for timer programs. A test run of the program starts its timer;
/// writing the element cancels it.
///
/// Source: kernel/bpf/arraymap.c, `array_map_update_elem`, v6.12.
pub fn timer_map(program: &str) -> String {
    format!("__timer_{program}")
}

/// The section of pinned variables. Its map is pinned as a unit with all of them.
pub const PINNED_SECTION: &str = ".data.pinned";

/// The 64-bit variable in [`PINNED_SECTION`] whose initial value is a hash of the names, types and sizes of
/// all others: a pin with another value holds other variables.
pub const PINNED_LAYOUT: &str = "__pinned_layout";

/// Returns the name of the bool in `.rodata` that is true if this kernel module is loaded. Programs then call
/// the module's functions, otherwise the object's own. The host sets it before the load.
pub fn module_variable(module: &str) -> String {
    format!("{MODULE_PREFIX}{module}")
}

/// The prefix of each [`module_variable`].
pub const MODULE_PREFIX: &str = "__module_";

/// Returns the name of the bool in `.rodata` that is true if the running kernel has this function. The host sets it
/// before the load.
pub fn function_variable(function: &str) -> String {
    format!("{FUNCTION_PREFIX}{function}")
}

/// The prefix of each [`function_variable`].
pub const FUNCTION_PREFIX: &str = "__exists_";

/// A constant of zeros, as large as the largest map value from which a program initialises a missing entry:
/// `m[k].f += 1`.
pub const ZEROS: &str = "__zeros";

/// The `.rodata` variable that describes the host's PID namespace to programs: [`PidNamespaceWord`]s, all 0
/// in the initial namespace. The host sets it before the load. An object without it reads no task ids.
pub const PID_NAMESPACE: &str = "__pid_namespace";

/// Size of a [`PidNamespaceWord`], in bytes.
pub const PID_NAMESPACE_WORD_BYTES: usize = 8;

/// Size of [`PID_NAMESPACE`], in bytes.
pub const PID_NAMESPACE_BYTES: usize = 8 * PID_NAMESPACE_WORD_BYTES;

/// Position of a word in [`PID_NAMESPACE`]: the namespace, and offsets at which the kernel keeps the ids of a
/// task in it. Offsets are bytes in the kernel's structs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum PidNamespaceWord {
    /// The inode number of the namespace; 0 means the initial namespace.
    Number = 0,
    /// The nesting depth of the namespace; the initial one has 0.
    Level = 1,
    /// Byte offset of `task_struct.group_leader`.
    GroupLeader = 2,
    /// Byte offset of `task_struct.thread_pid`.
    ThreadPid = 3,
    /// Byte offset of `pid.level`.
    PidLevel = 4,
    /// Offset of `pid.numbers[level].nr`, at the namespace's level.
    EntryNumber = 5,
    /// Offset of `pid.numbers[level].ns`, at the namespace's level.
    EntryNamespace = 6,
    /// Byte offset of `pid_namespace.ns.inum`.
    NamespaceNumber = 7,
}

/// The ring buffer of lines that the kernel half prints. A record starts with 8 bytes, the line's position in
/// the list of [`PRINTS_SECTION`], little-endian. Its values follow: numbers, bools and characters are
/// extended to 8 bytes; a text has the size of its type, rounded up to a multiple of 8.
pub const PRINTS: &str = "__prints";

/// The section of the object that describes the records of [`PRINTS`]: a JSON list of [`Print`].
pub const PRINTS_SECTION: &str = ".ks.prints";

/// A `print` call of the kernel half.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Print {
    /// Name of the script's file, without folders.
    pub file: String,
    /// Line of the call in the file, from 1.
    pub line: u32,
    /// The format string, as `console.print` of the contract takes it.
    pub format: Vec<u8>,
    /// The types of a record's values, in order.
    pub values: Vec<PrintValue>,
}

impl Print {
    /// Parses the contents of [`PRINTS_SECTION`]; none if they are malformed.
    pub fn table(section: &[u8]) -> Option<Vec<Print>> {
        serde_json::from_slice(section).ok()
    }

    /// Whether the host makes a text of this form of one of its values.
    pub fn displays(&self, is_wanted: impl Fn(&DisplayForm) -> bool) -> bool {
        self.values.iter().any(|value| matches!(value, PrintValue::Display(form) if is_wanted(form)))
    }
}

/// The type of a printed value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrintValue {
    /// An unsigned number with this many bits.
    Unsigned(u8),
    /// A signed number with this many bits.
    Signed(u8),
    /// A bool; every number but 0 is true.
    Boolean,
    /// A character, one byte.
    Character,
    /// A pointer, as a 64-bit number.
    Pointer,
    /// A text of at most this many bytes, up to its first zero byte.
    Text(u32),
    /// A value of an enum, shown as its first enumerator with this value, otherwise as a number.
    Enum {
        /// The integer type of the enum.
        number: Box<PrintValue>,
        /// Values, extended to 64 bits, with their names, in declaration order.
        enumerators: Vec<(u64, String)>,
    },
    /// Operands from which the host makes a text.
    Display(DisplayForm),
}

impl PrintValue {
    /// Returns the size of the value in a record, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            PrintValue::Text(bytes) => (*bytes as usize).next_multiple_of(8),
            PrintValue::Display(form) => form.bytes(),
            _ => 8,
        }
    }
}

/// How the host makes a text of numbers and addresses: the functions of the contract's `display`, and those of
/// `symbols`. Operands are numbers, extended to 8 bytes, and addresses of networks, filled up to a multiple of
/// 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DisplayForm {
    /// `display.ipv4` of 4 bytes.
    Ipv4,
    /// `display.ipv6` of 16 bytes.
    Ipv6,
    /// `display.mac` of 6 bytes.
    Mac,
    /// `display.system-call`.
    SystemCall,
    /// `display.errno`.
    Errno,
    /// `display.signal`.
    Signal,
    /// `display.capability`.
    Capability,
    /// `display.enumerator` of the enum that has this name, or an enumerator of it.
    Enumerator(String),
    /// `symbols.kernel-function`.
    KernelFunction,
    /// `symbols.process-function`.
    ProcessFunction,
    /// `symbols.kernel-stack` of this map.
    KernelStack(String),
    /// `symbols.process-stack` of this map.
    ProcessStack(String),
    /// `display.time-of-day` in this format.
    TimeOfDay(Vec<u8>),
    /// `display.bytes`.
    Bytes,
    /// `display.duration`.
    Duration,
}

impl DisplayForm {
    /// Returns the name of the contract's function.
    pub fn function(&self) -> &'static str {
        match self {
            DisplayForm::Ipv4 => "ipv4",
            DisplayForm::Ipv6 => "ipv6",
            DisplayForm::Mac => "mac",
            DisplayForm::SystemCall => "system-call",
            DisplayForm::Errno => "errno",
            DisplayForm::Signal => "signal",
            DisplayForm::Capability => "capability",
            DisplayForm::Enumerator(_) => "enumerator",
            DisplayForm::KernelFunction => "kernel-function",
            DisplayForm::ProcessFunction => "process-function",
            DisplayForm::KernelStack(_) => "kernel-stack",
            DisplayForm::ProcessStack(_) => "process-stack",
            DisplayForm::TimeOfDay(_) => "time-of-day",
            DisplayForm::Bytes => "bytes",
            DisplayForm::Duration => "duration",
        }
    }

    /// Returns the size of the operands in a record, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            DisplayForm::Ipv6 | DisplayForm::ProcessFunction | DisplayForm::ProcessStack(_) => 16,
            _ => 8,
        }
    }
}

//! What the compiler and the host agree on inside of a plugin's BPF object.

use serde::{Deserialize, Serialize};

/// The variable of the object, 64 bits, in which the kernel half counts what a ring buffer or map of this name had no
/// room for. An object without it lost nothing, or does not count.
pub fn lost_variable(map: &str) -> String {
    format!("__lost_{map}")
}

/// Most iterations of a loop in the kernel half: the kernel refuses more. Source: include/linux/bpf.h, `BPF_MAX_LOOPS`,
/// v6.18.
pub const MAX_ITERATIONS: u64 = 1 << 23;

/// How the name of a [`cut_loop_variable`] begins.
const CUT_LOOP_PREFIX: &str = "__cut_";

/// The variable of the object, 64 bits, that counts the runs that the loop of this line ended, because it reached
/// [`MAX_ITERATIONS`]. The module is the imported one that the line belongs to, empty for the script itself.
pub fn cut_loop_variable(line: u32, module: &str) -> String {
    let separator = if module.is_empty() { "" } else { "_" };
    format!("{CUT_LOOP_PREFIX}{line}{separator}{module}")
}

/// The line and the module that the name of a [`cut_loop_variable`] has; none if it is no such name.
pub fn cut_loop(variable: &str) -> Option<(u32, &str)> {
    let rest = variable.strip_prefix(CUT_LOOP_PREFIX)?;
    let (line, module) = rest.split_once('_').unwrap_or((rest, ""));
    Some((line.parse().ok()?, module))
}

/// The array of the object, of one value, whose first 16 bytes are the `struct bpf_timer` of the timer program of this name.
/// The object has it exactly for timer programs: a test run of such a program starts its timer, and whoever writes the
/// value ends it.
///
/// Source: kernel/bpf/arraymap.c, `array_map_update_elem`, v6.12.
pub fn timer_map(program: &str) -> String {
    format!("__timer_{program}")
}

/// The section of pinned variables: its map is pinned as all of them together.
pub const PINNED_SECTION: &str = ".data.pinned";

/// The variable in [`PINNED_SECTION`], 64 bits, whose initial value stands for the names and types of all others: a pin
/// with another value has other variables.
pub const PINNED_LAYOUT: &str = "__pinned_layout";

/// The variable of the object, a bool in `.rodata`, that is true if the kernel module of this name is loaded: then programs
/// call its functions, else those of the object. The host sets it before the load.
pub fn module_variable(module: &str) -> String {
    format!("{MODULE_PREFIX}{module}")
}

/// How the name of a [`module_variable`] begins.
pub const MODULE_PREFIX: &str = "__module_";

/// The constant of the object that is as many zeros as the largest value of a map of which a program makes an entry from
/// nothing: `m[k].f += 1`.
pub const ZEROS: &str = "__zeros";

/// The variable of the object, in `.rodata`, by which the host tells programs its PID namespace: [`PidNamespaceWord`]s, all
/// 0 in the first namespace. The host sets it before the load; an object without it asks for no numbers of tasks.
pub const PID_NAMESPACE: &str = "__pid_namespace";

/// Bytes of a [`PidNamespaceWord`].
pub const PID_NAMESPACE_WORD_BYTES: usize = 8;

/// Bytes of [`PID_NAMESPACE`].
pub const PID_NAMESPACE_BYTES: usize = 8 * PID_NAMESPACE_WORD_BYTES;

/// A word of [`PID_NAMESPACE`], by its position: the namespace, and where the kernel has the numbers of a task in it.
/// Offsets are bytes in the kernel's structs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum PidNamespaceWord {
    /// The inode number of the namespace; 0 means the first one.
    Number = 0,
    /// How many namespaces it lies in.
    Level = 1,
    /// `task_struct.group_leader`.
    GroupLeader = 2,
    /// `task_struct.thread_pid`.
    ThreadPid = 3,
    /// `pid.level`.
    PidLevel = 4,
    /// `pid.numbers[level].nr`.
    EntryNumber = 5,
    /// `pid.numbers[level].ns`.
    EntryNamespace = 6,
    /// `pid_namespace.ns.inum`.
    NamespaceNumber = 7,
}

/// The ring buffer of lines that the kernel half prints. A record is 8 bytes, the line's position in the list of
/// [`PRINTS_SECTION`], little-endian, and then its values: numbers, bools and characters have 8 bytes, extended to them,
/// text as many as its type, rounded up to 8.
pub const PRINTS: &str = "__prints";

/// The section of the object that says what the records of [`PRINTS`] mean: a JSON list of [`Print`].
pub const PRINTS_SECTION: &str = ".ks.prints";

/// A `print` of the kernel half.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Print {
    /// The script's file, without folders.
    pub file: String,
    /// The line in it, from 1.
    pub line: u32,
    /// The format, as `console.print` of the contract takes it.
    pub format: Vec<u8>,
    /// The values of a record, in order.
    pub values: Vec<PrintValue>,
}

/// What a value of a printed line is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrintValue {
    /// An unsigned number of so many bits.
    Unsigned(u8),
    /// A signed number of so many bits.
    Signed(u8),
    /// A bool.
    Boolean,
    /// A character.
    Character,
    /// A pointer, as a number of 64 bits.
    Pointer,
    /// Text of at most so many bytes, up to the first zero.
    Text(u32),
    /// A value of an enum, shown as the first of its enumerators that has it, or as a number.
    Enum {
        /// The number that it is.
        number: Box<PrintValue>,
        /// Values, extended to 64 bits, and names.
        enumerators: Vec<(u64, String)>,
    },
}

impl PrintValue {
    /// Its bytes in a record.
    pub fn bytes(&self) -> usize {
        match self {
            PrintValue::Text(bytes) => (*bytes as usize).next_multiple_of(8),
            _ => 8,
        }
    }
}

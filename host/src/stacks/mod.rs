//! Output of the stacks that programs counted: a tree, folded lines, a flame graph, a pprof file.
//!
//! In: addresses, tasks and weights ([`CountedStacks`], which `world` reads from maps), and names for the
//! addresses ([`FunctionNames`]). Out: text and bytes. Not here: maps, files, standard output.

mod flame;
mod folded;
mod naming;
mod pprof;
mod tree;

pub use self::flame::flame_graph;
pub use self::folded::{folded, json_lines};
pub use self::naming::FunctionNames;
pub(crate) use self::naming::{LOST, NO_STACK};
pub use self::pprof::pprof;
pub use self::tree::tree;

use std::sync::Arc;

use crate::naming::MAX_TEXT_BYTES;
use crate::text::{CUT_BYTES, visible};

/// Limit of the names in one stack, in bytes, where they are written out for each stack: 250 for each frame
/// at full depth. A process chooses the names of its functions, and a plugin may count thousands of its
/// stacks.
const MAX_STACK_BYTES: usize = 32 << 10;

/// Limit of the addresses in a stack that the kernel stores, unless sysctl kernel.perf_event_max_stack was
/// lowered.
pub(crate) const MAX_DEPTH: usize = 127;

/// The addresses of a stack, as the kernel stored them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackAddresses {
    /// The task had none: a kernel thread has no user stack, and a task in user code has no kernel stack.
    #[default]
    None,
    /// From the current address to that of the outermost caller.
    Known(Vec<u64>),
    /// The stack collided with another one in the map.
    Lost,
}

/// One entry of a map: a task, its stacks, and their weight.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedStack {
    /// The task, as far as the map's key identifies it.
    pub task: Task,
    /// The kernel part of the stack.
    pub kernel: StackAddresses,
    /// The user part of the stack.
    pub user: StackAddresses,
    /// The map's value, in a unit that the plugin chooses.
    pub weight: u64,
    /// The other task that the key identifies, such as the one that woke this task, with its stacks. Its weight is
    /// not used.
    pub other: Option<Box<CountedStack>>,
}

/// The task of a stack; fields that the map's key lacks are None.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// The process id (tgid).
    pub process: Option<i32>,
    /// The thread id (Linux tid).
    pub thread: Option<i32>,
    /// The task's name (comm).
    pub command: Option<String>,
    /// The CPU on which the task ran.
    pub cpu: Option<i32>,
    /// The id of the task's control group.
    pub cgroup: Option<u64>,
}

/// All stacks of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedStacks {
    /// The map's name in the kernel half.
    pub map: String,
    /// The entries of the map, unordered.
    pub stacks: Vec<CountedStack>,
}

/// A frame of a stack: a running function or one of its callers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackFrame {
    /// The function's name; without one, the file and an offset in it, or `[unknown]`.
    pub function: Arc<str>,
    /// Path of the mapped file that contains the function; None for the kernel and if no file is known.
    pub module: Option<Arc<str>>,
    /// Path of the source file, if known.
    pub file: Option<Arc<str>>,
    /// Line in the source file, if known.
    pub line: Option<u32>,
    /// The address in the stack, a return address except for the innermost frame; 0 for a note.
    pub address: u64,
    /// The kind of code.
    pub kind: FrameKind,
}

/// The kind of code that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Code of a process.
    User,
    /// Code of a process that is inlined into the frame before it.
    Inlined,
    /// Code of the kernel.
    Kernel,
    /// No code: a note, such as a lost stack.
    Note,
}

/// A stack with names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// The task, as far as the map's key identifies it.
    pub task: Task,
    /// From the outermost caller to the function that ran.
    pub frames: Vec<Arc<StackFrame>>,
    /// The value of the map's entry.
    pub weight: u64,
}

/// All stacks of a map, with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The map's name in the kernel half.
    pub map: String,
    /// The named stacks, sorted by task and frames.
    pub samples: Vec<Sample>,
}

impl CountedStack {
    /// Returns the stack of the first task, then that of the other one.
    fn parts(&self) -> impl Iterator<Item = &CountedStack> {
        std::iter::once(self).chain(self.other.as_deref())
    }
}

impl Task {
    /// Returns the label before the frames: the task's name or its id.
    fn label(&self) -> Option<String> {
        match (&self.command, self.process.or(self.thread)) {
            (Some(command), _) if !command.is_empty() => Some(command.clone()),
            (_, Some(id)) => Some(format!("task {id}")),
            _ => None,
        }
    }
}

impl CountedStacks {
    /// Returns the weight of the stacks that reach the kernel's depth limit: their outermost callers may be
    /// missing.
    pub fn cut(&self) -> u64 {
        let is_full = |addresses: &StackAddresses| match addresses {
            StackAddresses::Known(known) => known.len() >= MAX_DEPTH,
            _ => false,
        };
        let cut = self
            .stacks
            .iter()
            .filter(|stack| stack.parts().any(|part| is_full(&part.kernel) || is_full(&part.user)));
        cut.fold(0, |total, stack| total.saturating_add(stack.weight))
    }

    /// Resolves the addresses to names and returns the profile.
    pub fn named(&self, names: &mut FunctionNames) -> Profile {
        names.prepare(&self.stacks);
        let named = |stack: &CountedStack| Sample {
            task: stack.task.clone(),
            frames: names.frames(stack),
            weight: stack.weight,
        };
        let mut samples: Vec<Sample> = self.stacks.iter().map(named).collect();
        samples.sort();
        Profile { map: self.map.clone(), samples }
    }
}

impl Profile {
    /// Returns the sum of all weights, at most `u64::MAX`.
    pub fn total(&self) -> u64 {
        self.samples.iter().fold(0, |total, sample| total.saturating_add(sample.weight))
    }
}

impl Sample {
    /// Returns the labels of the root and all frames, for text formats. All are visible, and their length is
    /// limited.
    fn labels(&self) -> Vec<String> {
        let display = |label: String| visible(&label, MAX_TEXT_BYTES).into_owned();
        let frames = self.frames.iter().map(|frame| frame.label());
        let labels: Vec<String> = self.task.label().into_iter().chain(frames).map(display).collect();
        if labels.iter().map(String::len).sum::<usize>() <= MAX_STACK_BYTES {
            return labels;
        }
        let share = MAX_STACK_BYTES / labels.len().max(1);
        let share = share.saturating_sub(CUT_BYTES);
        labels.iter().map(|label| visible(label, share).into_owned()).collect()
    }
}

impl StackFrame {
    /// Returns a frame that contains a note instead of a function.
    fn note(text: &str) -> StackFrame {
        StackFrame {
            function: text.into(),
            module: None,
            file: None,
            line: None,
            address: 0,
            kind: FrameKind::Note,
        }
    }

    /// Returns the function's name, marked as other tools do: `_[k]` for the kernel, `_[i]` for inlined code.
    /// A name that ends like a mark is escaped with a backslash.
    fn label(&self) -> String {
        let mark = match self.kind {
            FrameKind::Kernel => "_[k]",
            FrameKind::Inlined => "_[i]",
            FrameKind::User | FrameKind::Note => "",
        };
        let name = &*self.function;
        match name.len().checked_sub(4).and_then(|at| name.split_at_checked(at)) {
            Some((start, end)) if end.starts_with("_[") && end.ends_with(']') => {
                format!("{start}_\\{}{mark}", &end[1..])
            }
            _ => format!("{name}{mark}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn frame(function: &str, kind: FrameKind) -> Arc<StackFrame> {
        Arc::new(StackFrame {
            function: function.into(),
            module: Some("/bin/program".into()),
            file: None,
            line: None,
            address: 0x1000,
            kind,
        })
    }

    /// `main` calls `work` (3 alone, 5 in the kernel) and `rest` (1), in a task named `program; x`.
    pub(super) fn profile() -> Profile {
        let task = Task { process: Some(7), command: Some("program; x".into()), ..Task::default() };
        let sample = |frames: &[(&str, FrameKind)], weight| Sample {
            task: task.clone(),
            frames: frames.iter().map(|(name, kind)| frame(name, *kind)).collect(),
            weight,
        };
        let (user, kernel) = (FrameKind::User, FrameKind::Kernel);
        let samples = vec![
            sample(&[("main", user), ("rest", user)], 1),
            sample(&[("main", user), ("work", user)], 3),
            sample(&[("main", user), ("work", user), ("read", kernel)], 5),
        ];
        Profile { map: "seen".into(), samples }
    }

    #[test]
    fn a_stack_of_the_most_addresses_may_be_cut() {
        let stack = |depth, weight| CountedStack {
            user: StackAddresses::Known(vec![1; depth]),
            weight,
            ..CountedStack::default()
        };
        let stacks = vec![stack(MAX_DEPTH, 5), stack(MAX_DEPTH - 1, 2)];
        assert_eq!(CountedStacks { map: "seen".into(), stacks }.cut(), 5);
    }

    #[test]
    fn names_of_processes_cannot_forge_marks_or_escapes() {
        let label = |name: &str, kind| frame(name, kind).label();
        assert_eq!(label("do_syscall_64_[k]", FrameKind::User), "do_syscall_64_\\[k]");
        assert_eq!(label("read", FrameKind::Kernel), "read_[k]");
        assert_eq!(label("ä_[i]", FrameKind::Inlined), "ä_\\[i]_[i]");
        assert_eq!(
            (label("ä[k]", FrameKind::User), label("x", FrameKind::User)),
            ("ä[k]".into(), "x".into())
        );
        let task = Task { command: Some("\u{1b}[31mevil\n".into()), ..Task::default() };
        let frames = vec![frame("a\u{ffff}\u{202e}", FrameKind::User)];
        let sample = Sample { task, frames, weight: 1 };
        assert_eq!(sample.labels(), ["\\u{1b}[31mevil\\n", "a\\u{ffff}\\u{202e}"]);
    }

    #[test]
    fn the_names_of_a_stack_have_a_limit_together() {
        let frames = vec![frame(&"x".repeat(1 << 20), FrameKind::User); MAX_DEPTH];
        let sample = Sample { task: Task::default(), frames, weight: 1 };
        let labels = sample.labels();
        assert_eq!(labels.len(), MAX_DEPTH);
        assert!(labels.iter().map(String::len).sum::<usize>() <= MAX_STACK_BYTES);
        assert!(labels.iter().all(|label| label.len() > 200 && label.ends_with(" bytes)")));
    }
}

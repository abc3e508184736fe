//! Stacks that programs counted, as something to look at: a tree, folded lines, a flame graph, a pprof file.
//!
//! In: addresses, tasks and weights ([`CountedStacks`], which `world` reads out of maps), and names for the addresses
//! ([`FunctionNames`]). Out: text and bytes. Not here: maps, files, standard output.

mod flame;
mod folded;
mod naming;
mod pprof;
mod tree;

pub use self::flame::flame_graph;
pub use self::folded::folded;
pub use self::naming::FunctionNames;
pub use self::pprof::pprof;
pub use self::tree::tree;

use std::sync::Arc;

use crate::naming::MAX_TEXT_BYTES;
use crate::text::{CUT_BYTES, visible};

/// Most bytes of the names in one stack, where they are written out for each: at full depth 250 for each frame. A process
/// chooses the names of its functions, and whoever observes it counts thousands of stacks.
const MAX_STACK_BYTES: usize = 32 << 10;

/// Most addresses of a stack that the kernel keeps, unless a person lowered sysctl kernel.perf_event_max_stack.
pub(crate) const MAX_DEPTH: usize = 127;

/// A stack as the kernel wrote it down.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackAddresses {
    /// The task had none: a thread of the kernel has no stack of a process, a process in user code none of the kernel.
    #[default]
    None,
    /// From the place where the task was to the function that called all others.
    Known(Vec<u64>),
    /// It collided with another one.
    Lost,
}

/// What a map says of one key: where, who, and how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedStack {
    /// The task.
    pub task: Task,
    /// The part in the kernel.
    pub kernel: StackAddresses,
    /// The part in the process.
    pub user: StackAddresses,
    /// The map's value.
    pub weight: u64,
}

/// The task of a stack, as far as the key has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Its process.
    pub process: Option<i32>,
    /// Its thread id.
    pub thread: Option<i32>,
    /// Its name.
    pub command: Option<String>,
    /// Where it ran.
    pub cpu: Option<i32>,
    /// The id of its control group.
    pub cgroup: Option<u64>,
}

/// All stacks of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedStacks {
    /// The map.
    pub map: String,
    /// In no order.
    pub stacks: Vec<CountedStack>,
}

/// A function that was running, or had called one that was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackFrame {
    /// The function; without one, the file and an offset into it, or the address.
    pub function: Arc<str>,
    /// The file or part of the kernel that it is in.
    pub module: Option<Arc<str>>,
    /// Its source file.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// Where the CPU was.
    pub address: u64,
    /// What kind of code it is.
    pub kind: FrameKind,
}

/// What kind of code a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Of a process.
    User,
    /// The same, as a part of the function around it.
    Inlined,
    /// The kernel.
    Kernel,
    /// None: words in its place.
    Note,
}

/// A stack with names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// The task.
    pub task: Task,
    /// From the function that called all others to the one that ran.
    pub frames: Vec<Arc<StackFrame>>,
    /// How much.
    pub weight: u64,
}

/// All stacks of a map, with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The map.
    pub map: String,
    /// Ordered.
    pub samples: Vec<Sample>,
}

impl CountedStacks {
    /// How much of the total lies in stacks that are as deep as the kernel keeps them: their outermost callers may be
    /// missing.
    pub fn cut(&self) -> u64 {
        let is_full = |addresses: &StackAddresses| matches!(addresses, StackAddresses::Known(known) if known.len() >= MAX_DEPTH);
        let cut = self.stacks.iter().filter(|stack| is_full(&stack.kernel) || is_full(&stack.user));
        cut.fold(0, |total, stack| total.saturating_add(stack.weight))
    }

    /// Gives names to the addresses.
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
    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.samples.iter().fold(0, |total, sample| total.saturating_add(sample.weight))
    }
}

impl Sample {
    /// What stands before the frames: the task's name, or what else is known of it.
    fn root(&self) -> Option<String> {
        match (&self.task.command, self.task.process.or(self.task.thread)) {
            (Some(command), _) if !command.is_empty() => Some(command.clone()),
            (_, Some(id)) => Some(format!("task {id}")),
            _ => None,
        }
    }

    /// The words of the root and of all frames, in the forms that have nothing but words. All can be shown.
    fn labels(&self) -> Vec<String> {
        let display = |label: String| visible(&label, MAX_TEXT_BYTES).into_owned();
        let frames = self.frames.iter().map(|frame| frame.label());
        let labels: Vec<String> = self.root().into_iter().chain(frames).map(display).collect();
        if labels.iter().map(String::len).sum::<usize>() <= MAX_STACK_BYTES {
            return labels;
        }
        let share = MAX_STACK_BYTES / labels.len().max(1);
        let share = share.saturating_sub(CUT_BYTES);
        labels.iter().map(|label| visible(label, share).into_owned()).collect()
    }
}

impl StackFrame {
    /// Words in the place of a frame.
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

    /// The function, marked as other tools mark it: `_[k]` for the kernel, `_[i]` for inlined. A function whose name ends
    /// like a mark has a backslash in it.
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
    fn what_a_process_calls_itself_is_no_mark_and_no_escape() {
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

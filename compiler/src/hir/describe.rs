//! Words for what a back end may not have yet.

use super::{ExprKind, KernelBuiltin, SharedBuiltin, StmtKind, UserBuiltin};

impl ExprKind {
    /// The construct, with its verb: `` `new` is ``.
    pub fn describe(&self) -> &'static str {
        match self {
            ExprKind::CallExtern { .. } => "a call of an `extern` is",
            ExprKind::TailCall(_) => "a tail call is",
            ExprKind::New => "`new` is",
            ExprKind::Take { .. } | ExprKind::Taken { .. } => "a queue or stack is",
            ExprKind::Event(_) => "this event is",
            ExprKind::Shared(builtin) => builtin.describe(),
            ExprKind::Kernel(builtin) => builtin.describe(),
            ExprKind::User(builtin) => builtin.describe(),
            _ => "this expression is",
        }
    }
}

impl SharedBuiltin {
    fn describe(&self) -> &'static str {
        match self {
            SharedBuiltin::Print { .. } => "`print` here is",
            SharedBuiltin::Push(..) => "a queue or stack is",
            SharedBuiltin::Add(..) | SharedBuiltin::Has(..) => "a bloom filter is",
            SharedBuiltin::Ratio(_) => "`ratio` is",
            SharedBuiltin::Log2Slot(_) | SharedBuiltin::LinearSlot(_) => "the slot of a histogram is",
            SharedBuiltin::Rate(_) => "`rate` is",
            _ => "this builtin is",
        }
    }
}

impl KernelBuiltin {
    fn describe(&self) -> &'static str {
        match self {
            KernelBuiltin::Reserve(_) | KernelBuiltin::Submit(..) | KernelBuiltin::Discard(..) => {
                "a ring buffer is"
            }
            KernelBuiltin::StackId { .. } => "counting stacks is",
            KernelBuiltin::AttachmentId(_) => "`attachment_id` is",
            KernelBuiltin::ReadCounter(_) => "a counter is",
            _ => "this builtin is",
        }
    }
}

impl UserBuiltin {
    /// The construct, with its verb.
    pub fn describe(&self) -> &'static str {
        match self {
            UserBuiltin::AttachTarget { .. } => "attaching this kind of program is",
            UserBuiltin::ReadCpu(_) => "`read_cpu` is",
            UserBuiltin::ReadCounter(..) => "a counter is",
            UserBuiltin::Register(_) => "`register` is",
            UserBuiltin::Test { .. } => "`test` is",
            UserBuiltin::OnEvent(..) | UserBuiltin::Dispatch { .. } => "a ring buffer is",
            UserBuiltin::Exec(_) => "`exec` is",
            UserBuiltin::Python { .. } => "a call of a Python module is",
            UserBuiltin::PidOf(_) => "`pid_of` is",
            UserBuiltin::CommOf(_) => "`comm_of` is",
            UserBuiltin::CpuCount => "reading single CPUs is",
            UserBuiltin::Clear(_) => "`clear` is",
            UserBuiltin::Count(_) => "`count` is",
            UserBuiltin::Events(_) => "`events` is",
            UserBuiltin::Symbol { .. } => "`symbol` is",
            _ => "this builtin is",
        }
    }
}

impl StmtKind {
    /// The construct, with its verb.
    pub fn describe(&self) -> &'static str {
        match self {
            StmtKind::Take { .. } => "a queue or stack is",
            StmtKind::ForEach { .. } => "walking a map or an array is",
            StmtKind::Remove { .. } | StmtKind::Free(_) | StmtKind::Release(_) => "`delete` is",
            StmtKind::Give { .. } => "giving an object to a map is",
            _ => "this statement is",
        }
    }
}

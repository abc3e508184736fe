//! The kernel functions (kfuncs) that the compiler calls or whose calls only observe: the only such table.
//! Other kernel functions are declared by scripts (`extern`) and denied until a policy allows them, so that
//! functions of later kernels are, too.
//!
//! Source: kernel/bpf/helpers.c, kernel/bpf/bpf_iter.c, v6.18, and the tags that contain the commits which
//! added the functions.

use crate::helper::Version;

/// A kernel function that changes nothing except objects which the program itself holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kfunc {
    /// The name in the kernel's BTF.
    pub name: &'static str,
    /// The first kernel that offers it to any program kind.
    pub since: Version,
}

const fn kfunc(name: &'static str, since: Version) -> Kfunc {
    Kfunc { name, since }
}

/// Starts a number iterator.
pub const ITER_NUM_NEW: Kfunc = kfunc("bpf_iter_num_new", (6, 4));
/// Fetches the next number of an iterator.
pub const ITER_NUM_NEXT: Kfunc = kfunc("bpf_iter_num_next", (6, 4));
/// Releases a number iterator.
pub const ITER_NUM_DESTROY: Kfunc = kfunc("bpf_iter_num_destroy", (6, 4));

/// All functions of the table. Every other function may do more than observe.
pub const OBSERVING: &[Kfunc] = &[
    ITER_NUM_NEW,
    ITER_NUM_NEXT,
    ITER_NUM_DESTROY,
    kfunc("bpf_rcu_read_lock", (6, 2)),
    kfunc("bpf_rcu_read_unlock", (6, 2)),
    kfunc("bpf_rdonly_cast", (6, 2)),
    kfunc("bpf_cast_to_kern_ctx", (6, 2)),
    kfunc("bpf_obj_new_impl", (6, 2)),
    kfunc("bpf_obj_drop_impl", (6, 2)),
];

/// Returns the function of a name, if it only observes.
#[must_use]
pub fn observing(name: &str) -> Option<&'static Kfunc> {
    OBSERVING.iter().find(|kfunc| kfunc.name == name)
}

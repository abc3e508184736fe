//! Kernel functions (kfuncs) that programs call: which of them only observe. Helpers are in the contract's
//! table ([`ks_wit::helper`]).
//!
//! Unknown functions count as not observing, so functions of later kernels are denied until a policy allows
//! them.

/// Returns whether a kernel function changes nothing except objects that the program itself holds.
pub(super) fn kfunc_observes(name: &str) -> bool {
    const OBSERVING: [&str; 9] = [
        "bpf_iter_num_new",
        "bpf_iter_num_next",
        "bpf_iter_num_destroy",
        "bpf_rcu_read_lock",
        "bpf_rcu_read_unlock",
        "bpf_rdonly_cast",
        "bpf_cast_to_kern_ctx",
        "bpf_obj_new_impl",
        "bpf_obj_drop_impl",
    ];
    OBSERVING.contains(&name)
}

//! Capabilities of one thread.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

use super::Confinement;

/// Returns the capabilities that a thread must keep.
///
/// None is about files: those that not everybody may read are opened by another thread (`opener`).
///
/// Source: capabilities(7); kernel/bpf/syscall.c `bpf_prog_load`, kernel/events/core.c `perf_event_open`,
/// v6.18.
pub(super) fn needed(confinement: &Confinement) -> CapsHashSet {
    // CAP_PERFMON and CAP_BPF exist since 5.8; older kernels require CAP_SYS_ADMIN instead.
    let has_finer = caps::has_cap(None, CapSet::Bounding, Capability::CAP_BPF).is_ok();
    let observes = confinement.events || confinement.observing;
    let acts = observes || confinement.object;
    // The verifier refuses programs of any kind that subtract pointers of a packet, without the capability to
    // observe (kernel/bpf/verifier.c, `allow_ptr_leaks`, v6.18).
    let is_verified = observes || confinement.programs;
    let administers = confinement.breakpoints
        || confinement.user_probes
        || confinement.modules
        || observes && is_closed()
        || acts && !has_finer;
    let wanted = [
        (is_verified, Capability::CAP_PERFMON),
        (confinement.object, Capability::CAP_BPF),
        // Event buffers above `kernel.perf_event_mlock_kb`.
        (confinement.events || confinement.buffers, Capability::CAP_IPC_LOCK),
        (confinement.network, Capability::CAP_NET_ADMIN),
        (confinement.packets, Capability::CAP_NET_RAW),
        // Addresses in /proc/kallsyms. Functions of processes are resolved on another thread (`naming`).
        (confinement.symbols, Capability::CAP_SYSLOG),
        (administers, Capability::CAP_SYS_ADMIN),
        // Events of tasks of other users, and memory of maps, before 5.8 and 5.11.
        (acts && !has_finer, Capability::CAP_SYS_PTRACE),
        (acts && !has_finer, Capability::CAP_SYS_RESOURCE),
    ];
    wanted.into_iter().filter(|(needs, _)| *needs).map(|(_, capability)| capability).collect()
}

/// Returns the capabilities that loading an object takes, as far as it does not attach it.
pub(super) fn to_load(needs: &Confinement) -> CapsHashSet {
    let has_finer = caps::has_cap(None, CapSet::Bounding, Capability::CAP_BPF).is_ok();
    let wanted = [
        (needs.programs, Capability::CAP_PERFMON),
        (needs.object, Capability::CAP_BPF),
        (needs.network, Capability::CAP_NET_ADMIN),
        (needs.symbols, Capability::CAP_SYSLOG),
        (needs.modules || !has_finer, Capability::CAP_SYS_ADMIN),
        (!has_finer, Capability::CAP_SYS_RESOURCE),
    ];
    wanted.into_iter().filter(|(needs, _)| *needs).map(|(_, capability)| capability).collect()
}

/// Returns whether this kernel opens events only with CAP_SYS_ADMIN. Debian's kernels do if
/// `kernel.perf_event_paranoid` is 3, their default; CAP_PERFMON does not suffice there.
fn is_closed() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    setting.trim().parse().is_ok_and(|setting: i32| setting > 2)
}

/// Drops all capabilities of the calling thread except these.
///
/// # Errors
/// Those of capset(2).
pub(super) fn drop_others(keep: &CapsHashSet) -> Result<(), CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let effective = caps::read(None, CapSet::Effective)?;
    let both = |set: &CapsHashSet| set.intersection(keep).copied().collect::<CapsHashSet>();
    // The effective set first, then the permitted set that it could be restored from. Children of this thread
    // inherit nothing.
    caps::set(None, CapSet::Effective, &both(&effective))?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Permitted, &both(&permitted))
}

//! Capabilities of one thread.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

use super::Confinement;

/// What of its capabilities a thread must keep.
///
/// Source: capabilities(7); kernel/bpf/syscall.c `bpf_prog_load`, kernel/events/core.c `perf_event_open`, v6.18.
pub(super) fn needed(confinement: Confinement) -> CapsHashSet {
    // CAP_PERFMON and CAP_BPF are of 5.8; before them CAP_SYS_ADMIN was asked for.
    let has_finer = caps::has_cap(None, CapSet::Bounding, Capability::CAP_BPF).is_ok();
    let acts = confinement.events || confinement.object;
    let administers =
        confinement.breakpoints || confinement.user_probes || acts && (!has_finer || is_closed());
    let wanted = [
        (acts, Capability::CAP_PERFMON),
        (confinement.object, Capability::CAP_BPF),
        // Buffers of events beyond `kernel.perf_event_mlock_kb`; memory of maps before 5.11.
        (acts, Capability::CAP_IPC_LOCK),
        // Files of tracefs, programs of other users that probes are put into.
        (acts, Capability::CAP_DAC_READ_SEARCH),
        (confinement.network, Capability::CAP_NET_ADMIN),
        (confinement.packets, Capability::CAP_NET_RAW),
        // Addresses in /proc/kallsyms. Functions of processes are named by another thread (`naming`).
        (acts || confinement.symbols, Capability::CAP_SYSLOG),
        // The mappings of processes that are sampled.
        (acts, Capability::CAP_SYS_PTRACE),
        // A folder in the BPF file system that another user made.
        (confinement.pins, Capability::CAP_DAC_OVERRIDE),
        (administers, Capability::CAP_SYS_ADMIN),
        (confinement.object && !has_finer, Capability::CAP_SYS_RESOURCE),
    ];
    wanted.into_iter().filter(|(needs, _)| *needs).map(|(_, capability)| capability).collect()
}

/// Whether this kernel opens events for CAP_SYS_ADMIN only: Debian's do with `kernel.perf_event_paranoid` at 3, which is
/// their default, and CAP_PERFMON does not count there.
fn is_closed() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    setting.trim().parse().is_ok_and(|setting: i32| setting > 2)
}

/// Drops all capabilities of the calling thread but these.
///
/// # Errors
/// Of capset(2).
pub(super) fn drop_others(keep: &CapsHashSet) -> Result<(), CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let effective = caps::read(None, CapSet::Effective)?;
    let both = |set: &CapsHashSet| set.intersection(keep).copied().collect::<CapsHashSet>();
    // First what acts, then what could be taken back; a child of this thread would inherit nothing.
    caps::set(None, CapSet::Effective, &both(&effective))?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Permitted, &both(&permitted))
}

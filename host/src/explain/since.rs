//! First kernel versions of features that plugins use.
//!
//! Those of helpers, kernel functions and programs are in the contract's tables. Source of the others: the tags
//! that contain the commits which added the numbers to include/uapi/linux/bpf.h (`enum bpf_map_type`).

use ks_wit::caller::Caller;
pub use ks_wit::helper::Version;

use crate::bpf::InstructionGroup;

/// Returns the first kernel in which the programs of a section may call a helper.
pub(super) fn helper(number: u32, section: &str) -> Option<Version> {
    let helper = ks_wit::helper::numbered(number)?;
    Some(Caller::of_section(section).map_or(helper.since, |caller| helper.since_in(caller)))
}

/// The highest map type number of each version. Numbers are assigned in ascending order, so lower numbers
/// came with it or before.
const MAPS: &[(u32, Version)] = &[
    (2, (3, 19)),
    (3, (4, 2)),
    (4, (4, 3)),
    (7, (4, 6)),
    (8, (4, 8)),
    (10, (4, 10)),
    (11, (4, 11)),
    (13, (4, 12)),
    (15, (4, 14)),
    (16, (4, 15)),
    (18, (4, 18)),
    (20, (4, 19)),
    (23, (4, 20)),
    (24, (5, 2)),
    (25, (5, 4)),
    (26, (5, 6)),
    (27, (5, 8)),
    (28, (5, 10)),
    (29, (5, 11)),
    (30, (5, 16)),
    (31, (6, 1)),
    (32, (6, 2)),
    (33, (6, 9)),
];

/// Returns the first kernel with a map type.
pub(super) fn map(kind: u32) -> Option<Version> {
    MAPS.iter().find(|(last, _)| kind <= *last).map(|(_, since)| *since)
}

/// Returns the first kernel with the instructions of a group, and a name for the group.
///
/// Source: the tags that contain `bpf: Add instructions for atomic_[cmp]xchg` (v5.12), `bpf: Support new
/// sign-extension load insns` and those after it (v6.6), `bpf: Introduce may_goto instruction` (v6.9).
pub(super) const fn instructions(group: InstructionGroup) -> (Version, &'static str) {
    match group {
        InstructionGroup::Atomics => ((5, 12), "atomic instructions"),
        InstructionGroup::V4 => ((6, 6), "instructions of version 4"),
        InstructionGroup::MayGoto => ((6, 9), "may_goto"),
    }
}

#[cfg(test)]
mod tests {
    use ks_wit::program_kind::SectionSupport;

    use super::*;

    #[test]
    fn numbers_and_versions_grow_together() {
        assert!(MAPS.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    }

    #[test]
    fn some_that_are_well_known() {
        // Helpers bpf_loop, bpf_ringbuf_output, bpf_get_attach_cookie; map types ring buffer, cgroup storage,
        // arena.
        assert_eq!(
            [181, 130, 174].map(|number| helper(number, "kprobe/f")),
            [Some((5, 17)), Some((5, 8)), Some((5, 15))]
        );
        assert_eq!([27, 32, 33, 19].map(map), [Some((5, 8)), Some((6, 2)), Some((6, 9)), Some((4, 19))]);
        assert_eq!((helper(212, "xdp"), map(99)), (None, None));
        assert_eq!([helper(14, "xdp"), helper(14, "kprobe/f")], [Some((6, 10)), Some((4, 2))]);
        let storage = ["xdp", "tp_btf/sched_switch", "lsm/file_open"].map(|section| helper(156, section));
        assert_eq!(storage, [Some((6, 16)), Some((5, 12)), Some((5, 11))]);
        assert!(SectionSupport::of("tcx/ingress").is_some_and(|tcx| tcx.links_since == (4, 5)));
        assert!(SectionSupport::of("nothing").is_none());
    }
}

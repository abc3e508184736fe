//! The kernel's helpers by number; the table of them is the contract's.

use ks_wit::helper;

/// The name of the helper with this number (`bpf_ktime_get_ns` for 5), if there is one.
#[must_use]
pub fn helper_name(number: u32) -> Option<&'static str> {
    helper::numbered(number).map(|helper| helper.name)
}

/// The number of the helper with this name (5 for `bpf_ktime_get_ns`), if there is one.
#[must_use]
pub fn helper_number(name: &str) -> Option<u32> {
    helper::named(name).filter(|(_, helper)| helper.name == name).map(|(number, _)| number)
}

/// Whether the helper with this number changes where the packet starts or ends, or where its bytes are.
#[must_use]
pub fn changes_packet(number: u32) -> bool {
    helper::numbered(number).is_some_and(|helper| helper.moves_packets)
}

/// Whether the helper with this number is given memory that must be on the stack: the state of a dynptr.
/// Source: kernel/bpf/verifier.c, `dynptr_types`, v6.12.
#[must_use]
pub fn needs_stack(number: u32) -> bool {
    helper_name(number).is_some_and(|name| name.contains("dynptr"))
}

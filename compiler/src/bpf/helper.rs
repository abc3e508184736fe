//! The kernel's helpers by number; their table is in the contract (`ks_wit`).

use ks_wit::helper;

/// Returns the name of the helper with this number (`bpf_ktime_get_ns` for 5), if there is one.
#[must_use]
pub fn helper_name(number: u32) -> Option<&'static str> {
    helper::numbered(number).map(|helper| helper.name)
}

/// Returns the number of the helper with this name (5 for `bpf_ktime_get_ns`), if there is one.
#[must_use]
pub fn helper_number(name: &str) -> Option<u32> {
    helper::named(name).filter(|(_, helper)| helper.name == name).map(|(number, _)| number)
}

/// Returns whether the helper with this number changes the start or end of the packet, or moves its bytes.
#[must_use]
pub fn changes_packet(number: u32) -> bool {
    helper::numbered(number).is_some_and(|helper| helper.moves_packets)
}

/// Returns whether an argument of the helper with this number must be memory on the stack: the state of a
/// dynptr. Source: kernel/bpf/verifier.c, `dynptr_types`, v6.12.
#[must_use]
pub fn needs_stack(number: u32) -> bool {
    helper_name(number).is_some_and(|name| name.contains("dynptr"))
}

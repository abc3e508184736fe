//! Texts for people of numbers and addresses of the kernel: `display` of the contract, and what the kernel half
//! prints.
//!
//! Pure, but for the clock and the time zone of [`time`], and the kernel's types of [`enumerators`].

mod enumerators;
mod names;
mod time;
mod units;

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) use self::enumerators::EnumNames;
pub(crate) use self::names::{capability, errno, signal, system_call};
pub(crate) use self::time::TimeZone;
pub(crate) use self::units::{bytes, duration};

/// Formats an IPv4 address whose number has its bytes in the order of memory.
pub(crate) fn ipv4(address: u32) -> String {
    Ipv4Addr::from(address.to_ne_bytes()).to_string()
}

/// Formats an IPv6 address by RFC 5952. Missing bytes are 0.
pub(crate) fn ipv6(address: &[u8]) -> String {
    Ipv6Addr::from(filled(address)).to_string()
}

/// Formats a link-layer address. Missing bytes are 0.
pub(crate) fn mac(address: &[u8]) -> String {
    filled::<6>(address).map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the first `N` bytes; zeros for missing ones.
fn filled<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_networks_are_in_network_byte_order() {
        assert_eq!(ipv4(u32::from_ne_bytes([10, 0, 0, 1])), "10.0.0.1");
        assert_eq!(ipv4(0), "0.0.0.0");
        assert_eq!(ipv4(u32::MAX), "255.255.255.255");
        assert_eq!(mac(&[0x52, 0x54, 0, 0x12, 0x34, 0xff, 0xaa]), "52:54:00:12:34:ff");
        assert_eq!(mac(&[1]), "01:00:00:00:00:00");
    }

    /// The examples of RFC 5952, sections 2 and 4.
    #[test]
    fn ipv6_addresses_have_the_form_of_rfc_5952() {
        let text = |groups: [u16; 8]| ipv6(&groups.map(u16::to_be_bytes).concat());
        assert_eq!(text([0x2001, 0xdb8, 0, 0, 1, 0, 0, 1]), "2001:db8::1:0:0:1");
        assert_eq!(text([0x2001, 0xdb8, 0, 1, 1, 1, 1, 1]), "2001:db8:0:1:1:1:1:1");
        assert_eq!(text([0x2001, 0, 0, 1, 0, 0, 0, 1]), "2001:0:0:1::1");
        assert_eq!(text([0x2001, 0xdb8, 0, 0, 0, 0, 0x2, 0xAAAA]), "2001:db8::2:aaaa");
        assert_eq!(text([0; 8]), "::");
        assert_eq!(text([0, 0, 0, 0, 0, 0, 0, 1]), "::1");
        assert_eq!(text([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201]), "::ffff:192.0.2.1");
        assert_eq!(ipv6(&[0xfe, 0x80]), "fe80::");
    }
}

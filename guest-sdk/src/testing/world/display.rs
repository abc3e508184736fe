//! `display`: addresses of networks as the host shows them, and numbers without names or units.

use std::format;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::string::{String, ToString as _};
use std::vec::Vec;

pub(crate) fn ipv4(address: u32) -> String {
    Ipv4Addr::from(address.to_ne_bytes()).to_string()
}

pub(crate) fn ipv6(address: &[u8]) -> String {
    let mut all = [0; 16];
    all.iter_mut().zip(address).for_each(|(to, from)| *to = *from);
    Ipv6Addr::from(all).to_string()
}

pub(crate) fn mac(address: &[u8]) -> String {
    address.iter().take(6).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

pub(crate) fn system_call(number: i64) -> String {
    number.to_string()
}

pub(crate) fn errno(number: i64) -> String {
    number.to_string()
}

pub(crate) fn signal(number: i64) -> String {
    number.to_string()
}

pub(crate) fn capability(number: i64) -> String {
    number.to_string()
}

pub(crate) fn enumerator(_of: &str, number: i64) -> String {
    number.to_string()
}

pub(crate) fn time_of_day(_format: &[u8], time: u64) -> String {
    time.to_string()
}

pub(crate) fn bytes(number: u64) -> String {
    number.to_string()
}

pub(crate) fn duration(time: u64) -> String {
    time.to_string()
}

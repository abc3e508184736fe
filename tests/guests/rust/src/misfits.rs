//! Types that each differ from the object's types in one respect.

use ks_guest::{Error, Map, Plain};

#[derive(Plain)]
struct Point {
    x: u16,
    y: i16,
}

/// The struct of the test's script.
#[derive(Plain)]
pub struct Flow {
    way: u32,
    open: bool,
    name: [u8; 16],
    ends: [Point; 2],
    bytes: u64,
}

#[derive(Plain)]
struct Renamed {
    kind: u32,
    open: bool,
    name: [u8; 16],
    ends: [Point; 2],
    bytes: u64,
}

#[derive(Plain)]
struct NoTruth {
    way: u32,
    open: u8,
    name: [u8; 16],
    ends: [Point; 2],
    bytes: u64,
}

#[derive(Plain)]
struct Short {
    way: u32,
    open: bool,
    name: [u8; 15],
    ends: [Point; 2],
    bytes: u64,
}

#[derive(Plain)]
struct NoSignPoint {
    x: u16,
    y: u16,
}

#[derive(Plain)]
struct NoSign {
    way: u32,
    open: bool,
    name: [u8; 16],
    ends: [NoSignPoint; 2],
    bytes: u64,
}

#[derive(Plain)]
struct Missing {
    way: u32,
    open: bool,
    name: [u8; 16],
    ends: [Point; 2],
}

#[derive(Plain)]
struct Added {
    way: u32,
    open: bool,
    name: [u8; 16],
    ends: [Point; 2],
    bytes: u64,
    more: u32,
}

/// A record with the object's name, and a number of another size.
#[derive(Plain)]
#[plain(name = "Seen")]
pub struct Other {
    cpu: u32,
    number: u32,
}

#[derive(Plain)]
#[plain(name = "unseen")]
pub struct Unseen {
    cpu: u32,
}

/// Returns the errors of the types that differ from `Flow`.
pub fn of_flows() -> Vec<Error> {
    [
        open::<Renamed>(),
        open::<NoTruth>(),
        open::<Short>(),
        open::<NoSign>(),
        open::<Missing>(),
        open::<Added>(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn open<V: Plain>() -> Option<Error> {
    Map::<u32, V>::open("flows").err()
}

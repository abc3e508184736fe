//! `kernel!` as a plugin's author uses it: the items that it generates from a script.

use ks_guest::testing::Host;
use ks_guest::{Bloom, Config, Global, Map, Nested, PerCpuMap, Plain, Program, Queue, Result, Ring};

use crate::probe::{self, Fault, Kind, Pair};

type ByGroup = Map<Nested<u64, u32>, u64>;

#[test]
fn each_name_of_the_script_opens_with_its_types() {
    let _: fn() -> Result<Program> = probe::on_fault;
    let _: fn() -> Result<Map<u32, Fault>> = probe::faults;
    let _: fn() -> Result<Map<u32, u64>> = probe::totals;
    let _: fn() -> Result<PerCpuMap<u32, u64>> = probe::cells;
    let _: fn() -> Result<Queue<u32>> = probe::line;
    let _: fn() -> Result<Bloom<u64>> = probe::known;
    let _: fn() -> Result<ByGroup> = probe::by_group;
    let _: fn() -> Result<Ring<Fault>> = probe::records;
    let _: fn() -> Result<Global<u64>> = probe::handled;
    let _: fn() -> Result<Global<Pair>> = probe::best;
    let _: fn() -> Result<Config<probe::pace>> = probe::pace;
}

#[test]
fn records_lie_as_in_the_kernel_half() {
    assert_eq!((Pair::SIZE, size_of::<Pair>(), Fault::SIZE, size_of::<Fault>()), (8, 8, 56, 56));
    let fault = Fault {
        cpu: 3,
        number: 0x0102,
        kind: Kind::WRITE,
        r#type: -1,
        comm: *b"probe\0\0\0\0\0\0\0\0\0\0\0",
        pairs: [Pair { low: 1, high: 2 }; 2],
    };
    let bytes = fault.to_bytes();
    assert_eq!(bytes[..21], [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0xff]);
    assert_eq!(Fault::from_bytes(&bytes), fault);
    assert_eq!(Kind(7).to_bytes(), [7, 0, 0, 0], "a value without a name is a value");
}

#[test]
fn a_map_of_maps_has_inner_maps() {
    let host = Host::new();
    probe::declare(&host);
    let groups = probe::by_group().expect("it is declared");
    let entry = |outer, inner| Nested { outer, inner };
    assert_eq!(entry(1, 2).to_bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((groups.has_inner(&7), groups.get(&entry(7, 1))), (Ok(false), Ok(None)));
    assert_eq!((groups.create_inner(&[7, 8]), groups.has_inner(&8)), (Ok(()), Ok(true)));
    assert_eq!((groups.insert(&entry(7, 1), &5), groups.insert(&entry(8, 1), &6)), (Ok(()), Ok(())));
    assert_eq!((groups.remove_inner(&7), groups.remove_inner(&7)), (Ok(true), Ok(false)));
    assert_eq!((groups.get(&entry(7, 1)), groups.get(&entry(8, 1))), (Ok(None), Ok(Some(6))));
}

/// The same functions on the host of a test.
#[test]
fn a_tests_host_has_what_the_kernel_half_has() {
    let host = Host::new();
    probe::declare(&host);
    probe::on_fault().expect("it is declared");
    assert_eq!(probe::handled().expect("it is declared").get(), 7);
    assert_eq!(probe::best().expect("it is declared").get(), Pair { low: 1, high: 2 });
    assert_eq!(probe::totals().and_then(|totals| totals.get(&3)), Ok(Some(0)), "an array is full of zeros");
    assert_eq!(probe::cells().and_then(|cells| cells.get(&0)), Ok(Some(vec![0; 4])), "one for each CPU");
    assert_eq!(probe::known().and_then(|known| known.contains(&1)), Ok(false));
    assert_eq!(probe::line().and_then(|line| line.pop()), Ok(None));
    assert_eq!(probe::records().map(|ring| ring.size()), Ok(65536));
    let pace = probe::pace().expect("it is declared");
    assert_eq!(pace.get(), Ok(probe::pace { step: 5, marks: [1, 2] }), "its defaults");
    assert_eq!(pace.set(&probe::pace { step: 6, marks: [7, 8] }), Ok(()));
    assert_eq!(probe::pace().and_then(|pace| pace.get()).map(|pace| pace.marks), Ok([7, 8]));
}

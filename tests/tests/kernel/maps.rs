//! Maps of an object, on the running kernel. They need root (CAP_BPF).

use ks_host::bpf::CursorContent::{Keys, KeysAndValues};
use ks_host::bpf::{BpfError, Cursor, CursorContent, Map, Object, UpdateMode};
use ks_host::host_bytes::HostBytes;
use ks_tests::plugins::{admitted, elf};
use nix::errno::Errno;
use std::sync::Arc;

/// Numbers of `enum bpf_map_type` of `include/uapi/linux/bpf.h`.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;

const VALUE: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// Returns a map, and the object that owns it.
fn map(ty: u32) -> (Object, Arc<Map>) {
    let admitted = admitted("test", &elf::map(ty)).expect("a sound object");
    let mut object = Object::open(admitted).expect("a sound object");
    let map = object.map("m").unwrap_or_else(|error| panic!("{error}: {error:?}"));
    (object, map)
}

fn errno<T: std::fmt::Debug>(result: Result<T, BpfError>) -> Option<Errno> {
    result.expect_err("the kernel refuses").errno()
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

#[test]
fn root_a_hash_map_keeps_what_is_written() {
    let (_object, map) = map(HASH);
    let shape = map.shape();
    assert_eq!((shape.ty, shape.key_size, shape.value_size, shape.max_entries), (HASH, 4, 12, 2));
    assert!(!shape.per_cpu);
    assert_eq!(map.lookup(&key(7)).expect("answered"), None);
    assert_eq!(errno(map.update(&key(7), &VALUE, UpdateMode::Exist)), Some(Errno::ENOENT));
    map.update(&key(7), &VALUE, UpdateMode::NoExist).expect("room for it");
    assert_eq!(errno(map.update(&key(7), &VALUE, UpdateMode::NoExist)), Some(Errno::EEXIST));
    assert_eq!(map.lookup(&key(7)).expect("answered").as_deref(), Some(&VALUE[..]));
    assert!(map.delete(&key(7)).expect("answered"));
    assert!(!map.delete(&key(7)).expect("answered"));
}

#[test]
fn root_a_full_map_refuses() {
    let (_object, map) = map(HASH);
    for number in 0..2 {
        map.update(&key(number), &VALUE, UpdateMode::Any).expect("room for it");
    }
    assert_eq!(errno(map.update(&key(2), &VALUE, UpdateMode::Any)), Some(Errno::E2BIG));
}

#[test]
fn root_an_array_has_all_its_entries_and_loses_none() {
    let (_object, map) = map(ARRAY);
    assert_eq!(map.lookup(&key(1)).expect("answered"), Some(vec![0; 12]));
    assert_eq!(map.lookup(&key(2)).expect("answered"), None);
    assert_eq!(errno(map.update(&key(2), &VALUE, UpdateMode::Any)), Some(Errno::E2BIG));
    assert_eq!(errno(map.delete(&key(1))), Some(Errno::EINVAL));
}

#[test]
fn root_per_cpu_values_come_without_the_kernels_padding() {
    let (_object, map) = map(PERCPU_ARRAY);
    let cpus = libbpf_rs::num_possible_cpus().expect("known");
    assert!(map.shape().per_cpu);
    map.update(&key(0), &VALUE, UpdateMode::Any).expect("written");
    let mut expected = vec![0; 12 * cpus];
    expected[..12].copy_from_slice(&VALUE);
    assert_eq!(map.lookup(&key(0)).expect("answered").as_ref(), Some(&expected), "one value is CPU 0's");

    let each: Vec<u8> = (0..12 * cpus).map(|byte| byte as u8).collect();
    map.update(&key(1), &each, UpdateMode::Any).expect("written");
    assert_eq!(map.lookup(&key(1)).expect("answered"), Some(each), "one value for each CPU");
}

/// Returns the whole map iteration, in pieces of at most this many bytes.
fn pieces(map: &Arc<Map>, content: CursorContent, most: usize) -> Vec<Vec<u8>> {
    let mut cursor =
        Cursor::new(Arc::clone(map), content, &HostBytes::new(u64::MAX)).expect("a kind with entries");
    let next = || cursor.next(most).expect("answered");
    std::iter::repeat_with(next).take_while(|piece| !piece.is_empty()).collect()
}

#[test]
fn root_map_iteration_returns_whole_entries_as_many_as_fit() {
    let (_object, map) = map(HASH);
    assert_eq!(pieces(&map, KeysAndValues, 16), [[0; 0]; 0], "nothing is in it");
    map.update(&key(7), &VALUE, UpdateMode::Any).expect("room for it");
    map.update(&key(9), &[9; 12], UpdateMode::Any).expect("room for it");
    let entries = [[&key(7)[..], &VALUE].concat(), [&key(9)[..], &[9; 12]].concat()];
    for (most, number) in [(16, 2), (31, 2), (32, 1), (33, 1), (1 << 20, 1)] {
        let mut found = pieces(&map, KeysAndValues, most);
        assert_eq!(found.len(), number, "pieces of {most} bytes");
        found = found.concat().chunks_exact(16).map(<[u8]>::to_vec).collect();
        found.sort();
        assert_eq!(found, entries, "pieces of {most} bytes");
    }
    let mut keys = pieces(&map, Keys, 7).concat();
    keys.sort();
    assert_eq!(keys, [0, 0, 0, 0, 0, 0, 7, 9]);
    for (content, size) in [(KeysAndValues, 16), (Keys, 4)] {
        let mut cursor =
            Cursor::new(Arc::clone(&map), content, &HostBytes::new(u64::MAX)).expect("a kind with entries");
        let error = cursor.next(size - 1).expect_err("no room for one");
        assert!(
            matches!(error, BpfError::Size { expected, given, .. } if (expected, given) == (size, size - 1))
        );
        assert_eq!(cursor.next(size).expect("room for one").len(), size, "the error took nothing");
    }
}

#[test]
fn root_map_iteration_over_per_cpu_values_omits_the_kernels_padding() {
    let (_object, map) = map(PERCPU_ARRAY);
    let cpus = libbpf_rs::num_possible_cpus().expect("known");
    let each: Vec<u8> = (0..12 * cpus).map(|byte| byte as u8).collect();
    map.update(&key(1), &each, UpdateMode::Any).expect("written");
    let found = pieces(&map, KeysAndValues, 4 + 12 * cpus);
    assert_eq!(found, [[&key(0)[..], &vec![0; 12 * cpus]].concat(), [&key(1)[..], &each].concat()]);
}

#[test]
fn root_sizes_are_checked_before_the_kernel_is_asked() {
    let (_object, map) = map(HASH);
    for error in [
        map.lookup(&[0; 3]).expect_err("a short key"),
        map.delete(&[0; 5]).expect_err("a long key"),
        map.update(&key(0), &VALUE[1..], UpdateMode::Any).expect_err("a short value"),
    ] {
        assert!(matches!(error, BpfError::Size { .. }), "{error}");
    }
}

#[test]
fn root_a_map_that_is_not_there_is_answered_with_those_that_are() {
    let (mut object, _map) = map(HASH);
    let Err(BpfError::NotFound { known, .. }) = object.map("n") else { panic!("found") };
    assert_eq!(known, ["m"]);
}

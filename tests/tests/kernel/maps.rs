//! Maps of an object, on the running kernel. They need root (CAP_BPF).

use ks_host::bpf::CursorContent::{Keys, KeysAndValues};
use ks_host::bpf::{BpfError, Cursor, CursorContent, Map, Object, UpdateMode};
use ks_host::host_bytes::HostBytes;
use ks_tests::compile;
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
    map.update_sum(&key(0), &VALUE, UpdateMode::Any).expect("written");
    let mut expected = vec![0; 12 * cpus];
    expected[..12].copy_from_slice(&VALUE);
    assert_eq!(map.lookup(&key(0)).expect("answered").as_ref(), Some(&expected), "a sum is CPU 0's");
    let one = map.update(&key(0), &VALUE, UpdateMode::Any);
    assert!(matches!(one, Err(BpfError::Size { given: 12, .. })), "one value is none for each CPU: {one:?}");

    let each: Vec<u8> = (0..12 * cpus).map(|byte| byte as u8).collect();
    map.update(&key(1), &each, UpdateMode::Any).expect("written");
    assert_eq!(map.lookup(&key(1)).expect("answered"), Some(each), "one value for each CPU");
}

#[test]
fn root_batches_take_whole_entries_and_keys() {
    let (_object, map) = map(HASH);
    let entries: Vec<u8> = (1..=2).flat_map(|n: u32| [&key(n)[..], &[n as u8; 12]].concat()).collect();
    assert_eq!(map.update_batch(&entries, UpdateMode::Any).expect("room for them"), 2);
    assert_eq!(map.lookup(&key(2)).expect("answered"), Some(vec![2; 12]));
    assert_eq!(map.update_batch(&[], UpdateMode::Any).expect("nothing to do"), 0);
    let rest = map.update_batch(&entries[1..], UpdateMode::Any);
    assert!(matches!(rest, Err(BpfError::NotWhole { .. })), "{rest:?}");
    // The kernel's batches know no mode but `any`; the host writes one by one then.
    let there = map.update_batch(&entries, UpdateMode::NoExist);
    assert!(matches!(there, Err(BpfError::Kernel { errno: Errno::EEXIST, .. })), "{there:?}");
    assert_eq!(map.update_batch(&entries, UpdateMode::Exist).expect("they are there"), 2);

    assert_eq!(map.lookup_and_delete(&key(2)).expect("answered"), Some(vec![2; 12]));
    assert_eq!(map.lookup_and_delete(&key(2)).expect("answered"), None);
    let full: Vec<u8> = (1..=3).flat_map(|n: u32| [&key(n)[..], &[n as u8; 12]].concat()).collect();
    let full = map.update_batch(&full, UpdateMode::Any);
    assert!(matches!(full, Err(BpfError::Kernel { errno: Errno::E2BIG, .. })), "{full:?}");
    let keys = [key(1), key(2), key(3)].concat();
    assert_eq!(map.delete_batch(&keys).expect("answered"), 2, "what had room");
    map.update(&key(1), &VALUE, UpdateMode::Any).expect("written");
    let lock = map.lookup_locked(&key(1));
    assert!(matches!(lock, Err(BpfError::Kernel { errno: Errno::EINVAL, .. })), "it has no lock: {lock:?}");
}

#[test]
fn root_a_frozen_map_is_read_only_for_user_space() {
    let (_object, map) = map(HASH);
    map.update(&key(1), &VALUE, UpdateMode::Any).expect("written");
    map.freeze().expect("a hash can be frozen");
    map.freeze().expect("it is frozen already");
    assert_eq!(map.lookup(&key(1)).expect("answered"), Some(VALUE.to_vec()));
    for refused in [
        map.update(&key(1), &VALUE, UpdateMode::Any).map(drop),
        map.update_batch(&[&key(2)[..], &VALUE].concat(), UpdateMode::Any).map(drop),
        map.delete(&key(1)).map(drop),
        map.lookup_and_delete(&key(1)).map(drop),
    ] {
        assert!(matches!(refused, Err(BpfError::Frozen { .. })), "{refused:?}");
    }
}

#[test]
fn root_a_queue_takes_batches_and_is_no_bloom_filter() {
    let script = "var line : queue<u32>(4)\n\
                  @perf_event\nfn seen(ctx: *bpf_perf_event_data) -> i32 { line.push(1)\n return 0 }\n\
                  fn main() -> i32 { return 0 }";
    let elf = compile("line", script).records().swap_remove(0).elf;
    let mut object = Object::open(admitted("line", &elf).expect("a sound object")).expect("a sound object");
    let map = object.map("line").expect("the kernel has queues");
    let values = [key(5), key(6)].concat();
    assert_eq!(map.update_batch(&values, UpdateMode::Any).expect("room for them"), 2);
    assert_eq!(map.lookup_and_delete(&[]).expect("answered").as_deref(), Some(&key(5)[..]));
    // A look at the next value would succeed.
    let asked = map.contains(&key(6));
    assert!(matches!(asked, Err(BpfError::NotBloom { .. })), "{asked:?}");
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

//! The interface `maps`: calls on a map of the object, of which the words name one and say what is unusual.

use ks_guest::bindings::kernelscript::host::maps::{self, BpfMap, UpdateMode};
use ks_guest::bindings::kernelscript::host::system;
use ks_guest::bindings::kernelscript::host::types::Error;

use crate::{Answer, abort, begin, prepared, until_refused};

pub fn answer(function: &str, words: &[&str]) -> Answer {
    match (function, words) {
        ("bpf-map.open", [name]) => {
            begin();
            BpfMap::open(name).map(drop)
        }
        ("bpf-map.open", [name, "many"]) => until_refused(|| BpfMap::open(name)),
        ("set-max-entries" | "set-value-size", [name, number, rest @ ..]) => {
            if rest == ["loaded"] {
                prepared(BpfMap::open("bare"));
            }
            let Ok(number) = number.parse() else { return abort("no number") };
            match function {
                "set-max-entries" => maps::set_max_entries(name, number),
                _ => maps::set_value_size(name, number),
            }
        }
        ("settle", ["now"]) => {
            begin();
            maps::settle()
        }
        (function, [name, unusual @ ..]) => of_map(function, &prepared(BpfMap::open(name)), unusual),
        _ => abort(&format!("no way to call `{function}`: {words:?}")),
    }
}

/// Bytes of the key of an inner map.
const OUTER_KEY_BYTES: u32 = 4;

/// What a call is arguments.
struct Arguments {
    key: Vec<u8>,
    value: Vec<u8>,
    mode: UpdateMode,
}

impl Arguments {
    /// The key 0 of a map, and a value of zeros.
    fn of(map: &BpfMap, function: &str) -> Arguments {
        let info = map.info();
        let each = if info.per_cpu && function != "bpf-map.update-sum" { system::cpu_count() } else { 1 };
        let key_size = if function.ends_with("-inner") { OUTER_KEY_BYTES } else { info.key_size };
        Arguments {
            key: vec![0; key_size as usize],
            value: vec![0; (info.value_size * each) as usize],
            mode: UpdateMode::Any,
        }
    }
}

fn of_map(function: &str, map: &BpfMap, unusual: &[&str]) -> Answer {
    let mut arguments = Arguments::of(map, function);
    match unusual {
        [] => {}
        ["short-key"] => drop(arguments.key.pop()),
        ["short-value"] => drop(arguments.value.pop()),
        ["frozen"] => prepared(map.freeze()),
        ["mapped"] if map.share().is_none() => return abort("the map is not mapped"),
        ["mapped"] => {}
        // A key that is there is to be created.
        ["there"] => {
            prepared(call(function, map, &arguments));
            arguments.mode = UpdateMode::NoExist;
        }
        // A key that is not there is to be replaced.
        ["absent"] => arguments.mode = UpdateMode::Exist,
        // The maps have room for two entries.
        ["full"] => {
            for key in 1..3_u32 {
                arguments.key = key.to_le_bytes().to_vec();
                prepared(call(function, map, &arguments));
            }
            arguments.key = 3_u32.to_le_bytes().to_vec();
        }
        ["beyond"] => arguments.key = 2_u32.to_le_bytes().to_vec(),
        // Something is there to be removed.
        ["filled-frozen"] => {
            prepared(map.update(&arguments.key, &arguments.value, UpdateMode::Any));
            prepared(map.freeze());
        }
        ["many"] => return until_refused(|| map.iterate(true)),
        // More inner maps than a policy allows.
        ["thousand"] => arguments.key = (0..1000_u32).flat_map(u32::to_le_bytes).collect(),
        // An inner map is there.
        ["created"] => prepared(map.create_inner(&arguments.key)),
        // More bytes than the test lets the host keep.
        ["long"] => {
            arguments.key = arguments.key.repeat(1 << 16);
            arguments.value = arguments.value.repeat(1 << 16);
        }
        ["small-room"] => {
            prepared(map.update(&arguments.key, &arguments.value, UpdateMode::Any));
            return prepared(map.iterate(true)).next(1).map(drop);
        }
        _ => return abort(&format!("no way to call `{function}`: {unusual:?}")),
    }
    begin();
    call(function, map, &arguments)
}

fn call(function: &str, map: &BpfMap, arguments: &Arguments) -> Answer {
    let Arguments { key, value, mode } = arguments;
    match function {
        "bpf-map.lookup" => map.lookup(key).map(drop),
        "bpf-map.lookup-locked" => map.lookup_locked(key).map(drop),
        "bpf-map.lookup-and-delete" => map.lookup_and_delete(key).map(drop),
        "bpf-map.update" => map.update(key, value, *mode),
        "bpf-map.update-locked" => map.update_locked(key, value, *mode),
        "bpf-map.update-sum" => map.update_sum(key, value, *mode),
        "bpf-map.update-batch" => map.update_batch(&[&key[..], value].concat(), *mode).map(drop),
        "bpf-map.delete-batch" => map.delete_batch(key).map(drop),
        "bpf-map.delete" => map.delete(key).map(drop),
        "bpf-map.create-inner" => map.create_inner(key),
        "bpf-map.has-inner" => map.has_inner(key).map(drop),
        "bpf-map.delete-inner" => map.delete_inner(key).map(drop),
        "bpf-map.contains" => map.contains(value).map(drop),
        "bpf-map.freeze" => map.freeze(),
        "bpf-map.iterate" => map.iterate(true).map(drop),
        "bpf-map.count" => map.count().map(drop),
        "bpf-map.clear" => map.clear(),
        "cursor.next" => next_of_all(map),
        _ => abort(&format!("no function `{function}`")),
    }
}

fn next_of_all(map: &BpfMap) -> Result<(), Error> {
    prepared(map.iterate(false)).next(u32::MAX).map(drop)
}

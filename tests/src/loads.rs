//! What the kernel gets at BPF_PROG_LOAD: the attributes of each call of a child that loads an object by libbpf,
//! one program at a time.
//!
//! Source: include/uapi/linux/bpf.h, `union bpf_attr`, v6.12.
#![expect(unsafe_code, reason = "libbpf's functions and file descriptors")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::process::Command;
use std::ptr;

use libbpf_sys as libbpf;
use nix::libc;

use crate::Folder;
use crate::prepared::{self, Owner, text};
use crate::refused::{Call, PendingCall, observe};

/// Set for the child: the path of the object that it loads.
const OBJECT: &str = "KS_LOADED_OBJECT";

/// `BPF_PROG_LOAD`
const PROG_LOAD: u64 = 5;

/// A command that no kernel has: the child's sign that it loads the program of this number next. The kernel cuts
/// names to 15 bytes, which several programs share.
const NEXT: u64 = 0xffff;

/// Attributes of a call that loads a program, without numbers that differ between two processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadAttributes {
    kind: u32,
    /// Maps are numbered by the order of their first use instead of by descriptors; descriptors of BTF are 0 or
    /// 1.
    instructions: Vec<[u8; 8]>,
    maps: Vec<MapFacts>,
    license: String,
    flags: u32,
    attach_kind: u32,
    /// Id of the kernel's function or variable.
    attach_type_id: u32,
    /// Whether descriptors are given of the object's types, and of a program or a module's types to attach to.
    descriptors: [bool; 2],
    /// First instruction of each function that has a type.
    functions: Vec<u32>,
    /// Instruction, and line and column, of each source line.
    lines: Vec<[u32; 2]>,
}

/// A map as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MapFacts {
    name: String,
    /// Kind, bytes of keys and values, entries, flags.
    shape: [u32; 5],
}

/// The loads of one object.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectLoads {
    /// Attributes of each program that reached the kernel, by its whole name.
    pub programs: BTreeMap<String, LoadAttributes>,
    /// Result of each program: 0, or the negative errno of libbpf.
    pub results: BTreeMap<String, i32>,
}

/// Loads an object in a child, and returns what the kernel got. `test` is the name of the test in this binary
/// that calls [`load_if_asked`].
///
/// # Errors
/// If the kernel has no notifications of system calls, or the child fails.
pub fn loads(test: &str, elf: &[u8]) -> io::Result<ObjectLoads> {
    let folder = Folder::new();
    let mut child = Command::new(std::env::current_exe()?);
    child.env(OBJECT, folder.write("object.o", elf));
    child.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let mut found: Vec<Vec<(String, LoadAttributes)>> = Vec::new();
    let mut faults = Vec::new();
    let outcome = observe(&mut child, &[Call { name: "bpf", number: libc::SYS_bpf }], |pending| {
        match pending.args[0] {
            NEXT => found.push(Vec::new()),
            PROG_LOAD => match (LoadAttributes::read(pending), found.last_mut()) {
                (Ok(load), Some(loads)) => loads.push(load),
                (Ok(_), None) => {}
                (Err(error), _) => faults.push(error),
            },
            _ => {}
        }
        None
    })?;
    if let Some(fault) = faults.pop() {
        return Err(fault);
    }
    let result = |line: &str| {
        let (name, result) = line.strip_prefix("loaded ")?.split_once(' ')?;
        Some((name.to_owned(), result.parse().ok()?))
    };
    let results: Vec<(String, i32)> = outcome.stdout.lines().filter_map(result).collect();
    if outcome.code != 0 || results.is_empty() || results.len() != found.len() {
        return Err(io::Error::other(format!("{outcome:#?}")));
    }
    // The loads before it are those by which libbpf finds out what the kernel can; it repeats one that is refused,
    // for the verifier's messages.
    let own = |((whole, _), loads): (&(String, i32), Vec<(String, LoadAttributes)>)| {
        let cut = &whole[..whole.len().min(15)];
        let (_, attributes) = loads.into_iter().find(|(name, _)| name == cut)?;
        Some((whole.clone(), attributes))
    };
    let programs = results.iter().zip(found).filter_map(own).collect();
    Ok(ObjectLoads { programs, results: results.into_iter().collect() })
}

impl LoadAttributes {
    /// Reads the attributes of a call, and the name of the program.
    fn read(pending: &PendingCall) -> io::Result<(String, LoadAttributes)> {
        let len = usize::try_from(pending.args[2]).unwrap_or_default();
        let mut bytes = pending.memory(pending.args[1], len)?;
        // A longer attribute has fields that are newer, a shorter one zeros.
        bytes.resize(152, 0);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let records = |address: usize, count: usize, size: usize| {
            let size = word(size) as usize;
            let all = pending.memory(long(address), word(count) as usize * size)?;
            io::Result::Ok(all.chunks(size.max(1)).map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let of_record =
            |record: &[u8], at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap_or_default());
        let slots = pending.memory(long(8), word(4) as usize * 8)?;
        let (instructions, maps) = normalised(pending, &slots)?;
        let name = bytes[48..64].split(|&byte| byte == 0).next().unwrap_or_default();
        let license = pending.memory(long(16), 64).unwrap_or_default();
        let license = license.split(|&byte| byte == 0).next().unwrap_or_default();
        let attributes = LoadAttributes {
            kind: word(0),
            instructions,
            maps,
            license: String::from_utf8_lossy(license).into_owned(),
            flags: word(44),
            attach_kind: word(68),
            attach_type_id: word(108),
            descriptors: [word(72) != 0, word(112) != 0],
            functions: records(80, 88, 76)?.iter().map(|record| of_record(record, 0)).collect(),
            lines: records(96, 104, 92)?
                .iter()
                .map(|record| [of_record(record, 0), of_record(record, 12)])
                .collect(),
        };
        Ok((String::from_utf8_lossy(name).into_owned(), attributes))
    }
}

/// Replaces the descriptors in wide loads, and returns the maps among them.
fn normalised(pending: &PendingCall, slots: &[u8]) -> io::Result<(Vec<[u8; 8]>, Vec<MapFacts>)> {
    let (slots, _) = slots.as_chunks::<8>();
    let (mut slots, mut maps) = (slots.to_vec(), Vec::new());
    let mut at = 0;
    while at < slots.len() {
        let slot = slots[at];
        if slot[0] != 0x18 {
            at += 1;
            continue;
        }
        // BPF_PSEUDO_MAP_FD and BPF_PSEUDO_MAP_VALUE; BPF_PSEUDO_BTF_ID.
        match slot[1] >> 4 {
            1 | 2 => {
                let descriptor = i32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
                let facts = map_facts(pending, descriptor)?;
                let known = maps.iter().position(|map| *map == facts);
                let index = known.unwrap_or(maps.len());
                if known.is_none() {
                    maps.push(facts);
                }
                slots[at][4..].copy_from_slice(&(index as u32).to_le_bytes());
            }
            3 => {
                if let Some(second) = slots.get_mut(at + 1) {
                    let is_module = second[4..] != [0; 4];
                    second[4..].copy_from_slice(&u32::from(is_module).to_le_bytes());
                }
            }
            _ => {}
        }
        at += 2;
    }
    Ok((slots, maps))
}

/// Returns what a descriptor of the caller is: its map's id from proc, the rest from the kernel.
fn map_facts(pending: &PendingCall, descriptor: i32) -> io::Result<MapFacts> {
    let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", pending.thread()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok());
    let id = id.ok_or_else(|| io::Error::other(format!("descriptor {descriptor} is no map: {info}")))?;
    // SAFETY: the descriptor belongs to nobody else; the kernel writes at most the size of the struct, in which
    // zeros are valid.
    unsafe {
        let own = libbpf::bpf_map_get_fd_by_id(id);
        if own < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut facts: libbpf::bpf_map_info = zeroed();
        let mut len = size_of_val(&facts) as u32;
        let result = libbpf::bpf_obj_get_info_by_fd(own, (&raw mut facts).cast(), &raw mut len);
        libc::close(own);
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let name = CStr::from_ptr(facts.name.as_ptr()).to_string_lossy().into_owned();
        let shape = [facts.type_, facts.key_size, facts.value_size, facts.max_entries, facts.map_flags];
        Ok(MapFacts { name, shape })
    }
}

/// In a child of [`loads`]: loads each program of the object alone, and prints the results. Does nothing
/// elsewhere.
pub fn load_if_asked() {
    let Ok(path) = std::env::var(OBJECT) else { return };
    let elf = std::fs::read(path).expect("the parent wrote it");
    libbpf_rs::set_print(None);
    let mut names = Vec::new();
    each_program(&open(&elf), |_, name| names.push(name));
    for (index, name) in names.iter().enumerate() {
        let object = open(&elf);
        let mut at = 0;
        each_program(&object, |program, _| {
            // SAFETY: the program is one of the open object's.
            unsafe { libbpf::bpf_program__set_autoload(program, at == index) };
            at += 1;
        });
        set_sizes(&object);
        // SAFETY: the kernel refuses the command; the object is open and is loaded once.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, NEXT, 0, 0);
            libbpf::bpf_object__load(object.0.as_ptr())
        };
        println!("\nloaded {name} {result}");
    }
}

fn open(elf: &[u8]) -> Owner {
    prepared::open("tool", elf).unwrap_or_else(|error| panic!("{error}"))
}

/// Calls a function with each program and its name.
fn each_program(object: &Owner, mut look: impl FnMut(*mut libbpf::bpf_program, String)) {
    let mut program = ptr::null_mut();
    loop {
        // SAFETY: the object is open; the program is one of its programs, or null to start with.
        program = unsafe { libbpf::bpf_object__next_program(object.0.as_ptr(), program) };
        if program.is_null() {
            break;
        }
        // SAFETY: as above.
        let name = unsafe { text(libbpf::bpf_program__name(program)) };
        look(program, name);
    }
}

/// Sets the sizes that the tools set: entries of maps, and the bytes of a stack of 127 frames.
fn set_sizes(object: &Owner) {
    let mut map = ptr::null_mut();
    loop {
        // SAFETY: the object is open; the map is one of its maps, or null to start with.
        unsafe {
            map = libbpf::bpf_object__next_map(object.0.as_ptr(), map);
            if map.is_null() {
                break;
            }
            let kind = libbpf::bpf_map__type(map);
            let entries = match kind {
                libbpf::BPF_MAP_TYPE_RINGBUF => 1 << 18,
                // libbpf sets it to the number of CPUs; a map of sizes for each task or inode has none.
                libbpf::BPF_MAP_TYPE_PERF_EVENT_ARRAY
                | libbpf::BPF_MAP_TYPE_TASK_STORAGE
                | libbpf::BPF_MAP_TYPE_INODE_STORAGE
                | libbpf::BPF_MAP_TYPE_SK_STORAGE
                | libbpf::BPF_MAP_TYPE_CGRP_STORAGE => 0,
                _ => 1024,
            };
            if libbpf::bpf_map__max_entries(map) == 0 && entries != 0 {
                libbpf::bpf_map__set_max_entries(map, entries);
            }
            if kind == libbpf::BPF_MAP_TYPE_STACK_TRACE && libbpf::bpf_map__value_size(map) == 0 {
                libbpf::bpf_map__set_value_size(map, 127 * 8);
            }
        }
    }
}

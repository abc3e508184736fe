//! Objects that libbpf, a loader for objects that one trusts, would follow out of its memory. Each is refused
//! before anything of it reaches libbpf or the kernel, although everything is allowed.

use std::process::Command;

use ks_compiler::object::table::MapKind;
use ks_compiler::object::{Object, write};
use ks_tests::plugins::elf::{self, MapDef};
use ks_tests::plugins::models::map;
use ks_tests::plugins::with_object;
use ks_tests::{Folder, binary};

use super::{loads, traced, traced_command};

/// What clang writes for most of what an object may have.
const FEATURES: &[u8] = include_bytes!("../../../../../compiler/src/object/tests/objects/features.o");
/// Structs that the object fills in for the kernel.
const STRUCTS: &[u8] = include_bytes!("../../../../../compiler/src/object/tests/objects/struct_ops.o");

/// Kinds of BTF records, in `include/uapi/linux/btf.h`.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
const VAR: u32 = 14;
const DATASEC: u32 = 15;

/// BPF_MAP_TYPE_ARENA.
const ARENA: u32 = 33;

/// An ELF file with single fields changed.
#[derive(Clone)]
struct Edited(Vec<u8>);

impl Edited {
    fn half(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes(self.0[at..at + 2].try_into().expect("two bytes")))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn text(&self, at: usize) -> &[u8] {
        self.0[at..].split(|byte| *byte == 0).next().expect("one part")
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Edited {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Returns the offset of a section's header.
    fn header(&self, name: &str) -> usize {
        let table = self.long(40) as usize;
        let names = self.long(table + 64 * self.half(62) + 24) as usize;
        let mut headers = (0..self.half(60)).map(|index| table + 64 * index);
        let header = headers.find(|at| self.text(names + self.word(*at) as usize) == name.as_bytes());
        header.unwrap_or_else(|| panic!("no section {name}"))
    }

    /// Returns the range of a section's content.
    fn content(&self, name: &str) -> std::ops::Range<usize> {
        let header = self.header(name);
        let start = self.long(header + 24) as usize;
        start..start + self.long(header + 32) as usize
    }

    /// Returns the offset of the first symbol of this name.
    fn symbol(&self, name: &str) -> usize {
        let names = self.content(".strtab").start;
        let mut symbols = self.content(".symtab").step_by(24);
        let symbol = symbols.find(|at| self.text(names + self.word(*at) as usize) == name.as_bytes());
        symbol.unwrap_or_else(|| panic!("no symbol {name}"))
    }

    /// Returns the number of a symbol.
    fn number(&self, name: &str) -> u32 {
        ((self.symbol(name) - self.content(".symtab").start) / 24) as u32
    }

    /// Returns the offset of the relocation that refers to this symbol, the last one if there are several.
    fn relocation(&self, section: &str, symbol: &str) -> usize {
        let number = self.number(symbol);
        let mut all = self.content(&format!(".rel{section}")).step_by(16).rev();
        all.find(|at| self.word(at + 12) == number).unwrap_or_else(|| panic!("no relocation of {symbol}"))
    }

    /// Returns the offset of the first BTF record of this kind and name.
    fn record(&self, kind: u32, name: &str) -> usize {
        let btf = self.content(".BTF").start;
        let types = btf + self.word(btf + 4) as usize;
        let strings = types + self.word(btf + 16) as usize;
        let end = types + self.word(btf + 12) as usize;
        let mut at = types;
        while at < end {
            let (found, len) = (self.word(at + 4) >> 24 & 31, self.word(at + 4) as usize & 0xffff);
            if found == kind && self.text(strings + self.word(at) as usize) == name.as_bytes() {
                return at;
            }
            // Source: Documentation/bpf/btf.rst.
            at += 12
                + match found {
                    INT | VAR | 17 => 4,
                    ARRAY => 12,
                    STRUCT | 5 | DATASEC | 19 => 12 * len,
                    6 | 13 => 8 * len,
                    _ => 0,
                };
        }
        panic!("no record of kind {kind} named {name:?}")
    }

    fn with_word(self, at: usize, word: u32) -> Edited {
        self.with(at, &word.to_le_bytes())
    }

    fn with_long(self, at: usize, long: u64) -> Edited {
        self.with(at, &long.to_le_bytes())
    }

    /// Changes the field of a section's header at this offset.
    fn with_header(self, name: &str, field: usize, long: u64) -> Edited {
        let at = self.header(name) + field;
        self.with_long(at, long)
    }

    fn with_record(self, kind: u32, name: &str, field: usize, word: u32) -> Edited {
        let at = self.record(kind, name) + field;
        self.with_word(at, word)
    }

    fn with_symbol(self, name: &str, field: usize, long: u64) -> Edited {
        let at = self.symbol(name) + field;
        self.with_long(at, long)
    }

    fn with_relocation(self, section: &str, symbol: &str, field: usize, long: u64) -> Edited {
        let at = self.relocation(section, symbol) + field;
        self.with_long(at, long)
    }
}

fn features() -> Edited {
    Edited(FEATURES.to_vec())
}

fn structs() -> Edited {
    Edited(STRUCTS.to_vec())
}

/// What the attack is, the object, and a part of the reason for which it is refused.
type Attack = (&'static str, Vec<u8>, &'static str);

/// Asserts that no command that reads the object passes anything of it to libbpf or the kernel.
fn refused_before_libbpf(attacks: Vec<Attack>) {
    let folder = Folder::new();
    for (name, object, reason) in attacks {
        let file = folder.write("attack.wasm", with_object(loads("count"), object));
        for command in [&["--no-cache", "--allow", "all"][..], &["check"], &["test", "--allow", "all"]] {
            let (outcome, trace) = traced(command, &file);
            assert!(matches!(outcome.code, 126 | 127), "{name}, {command:?}: {outcome:#?}");
            let said = outcome.stdout.contains(reason) || outcome.stderr.contains(reason);
            // A component without tests is refused by `test` for that, too.
            assert!(said || command[0] == "test", "{name}, {command:?}: {outcome:#?}");
            assert_eq!((trace.creates(), &trace.low[..]), (0, &[][..]), "{name}, {command:?}: {trace:?}");
        }
        let (inspected, trace) = traced(&["inspect", "--json"], &file);
        assert!(inspected.stdout.contains(reason), "{name}: {inspected:#?}");
        assert_eq!((trace.bpf.len(), trace.low.len()), (0, 0), "{name}: {trace:?}");
    }
}

/// libbpf maps an arena at the address that the object asks for, over whatever lies there.
#[test]
fn root_no_arena_is_mapped_over_the_hosts_memory() {
    let inner = || {
        let mut outer = map("outer", MapKind::ArrayOfMaps, 4, 1);
        outer.inner = Some(map("inner", MapKind::Array, 8, 77).shape);
        let written = Edited(write(&Object { maps: vec![outer], ..Object::default() }).expect("sound"));
        // The number of its type, as the length of an array: 2, BPF_MAP_TYPE_ARRAY.
        let kinds: Vec<usize> = written
            .content(".BTF")
            .step_by(4)
            .filter(|at| {
                written.0[*at..].starts_with(&[0, 0, 0, 0, 0, 0, 0, 3]) && written.word(at + 20) == 2
            })
            .collect();
        kinds.into_iter().fold(written, |file, at| file.with_word(at + 20, ARENA)).0
    };
    let program = b"the first bytes of the host's program";
    refused_before_libbpf(vec![
        ("over the program", elf::arena(0x40_0000, 16, program), "variables of an arena: arenas are refused"),
        ("without bytes", elf::arena(0x40_0000, 16, b""), "a map of kind ARENA is refused"),
        ("anywhere", elf::arena(0, 1, b""), "a map of kind ARENA is refused"),
        ("inside a map", inner(), "ARENA"),
        (
            "an address for a map that has none",
            elf::with_map(MapDef { extra: 0x40_0000, ..MapDef::SMALL }),
            "`map_extra` is 0x400000, which has no use for this kind",
        ),
    ]);
}

/// libbpf copies members of structs by the offsets and sizes of the object's own types.
#[test]
fn root_no_member_is_copied_out_of_its_struct() {
    let ops = "tcp_congestion_ops";
    // Members have 12 bytes behind the 12 of their record: name, type, offset in bits.
    let offset_of = |member: usize| 12 + 12 * member + 8;
    let relocated = ".struct_ops.link";
    refused_before_libbpf(vec![
        (
            "a member behind the struct",
            structs().with_record(STRUCT, ops, offset_of(2), 0x7fff_ffc0).0,
            "lies outside of its struct",
        ),
        (
            "a member before the struct",
            structs().with_record(STRUCT, ops, offset_of(0), 0u32.wrapping_sub(64)).0,
            "lies outside of its struct",
        ),
        ("a struct larger than its variable", structs().with_record(STRUCT, ops, 8, 0x1_0000).0, "`mine`"),
        (
            "a variable larger than its section",
            structs().with_record(DATASEC, relocated, 12 + 8, 0x1_0000).0,
            "`mine`",
        ),
        (
            "a variable behind its section",
            structs().with_record(DATASEC, relocated, 12 + 4, 0x1_0000).0,
            "`mine`",
        ),
        (
            "a function written behind the variable",
            structs().with_relocation(relocated, "half", 0, 0x1_0000).0,
            ".rel.struct_ops.link",
        ),
        (
            "a value written behind a map of maps",
            features().with_relocation(".maps", "first", 0, 0x1_0000).0,
            ".rel.maps",
        ),
        (
            "a program written before its map",
            features().with_relocation(".maps", "tail", 0, 112).0,
            "not of an initial value of a map",
        ),
    ]);
}

/// Fields that libbpf adds to an address or takes for an index.
#[test]
fn root_no_number_of_an_object_leads_out_of_the_file() {
    let core = |field: usize, word: u32| {
        let file = features();
        let ext = file.content(".BTF.ext").start;
        // The last table: the size of a record, the name of a section, the number of records, and the first.
        let table = ext + 24 + 8 + file.word(ext + 24) as usize;
        file.with_word(table + field, word).0
    };
    refused_before_libbpf(vec![
        ("an integer of gigabytes", features().with_record(INT, "int", 8, 0xa400_0004).0, "an integer of"),
        (
            "a name behind the names",
            features().with_record(INT, "int", 0, 0x00ff_0000).0,
            "no string starts at offset",
        ),
        (
            "a type that does not exist",
            features().with_record(VAR, "counter", 8, 0xffff).0,
            "a reference to type",
        ),
        ("a function of no type", features().with_record(FUNC, "own", 8, 0xffff).0, "a reference to type"),
        (
            "more members than the record has",
            features().with_record(STRUCT, "task_struct", 4, STRUCT << 24 | 0xffff).0,
            ".BTF",
        ),
        (
            "a symbol behind its section",
            features().with_symbol("outer", 8, u64::from(u32::MAX)).0,
            "symbol 45",
        ),
        ("a symbol of a huge size", features().with_symbol("outer", 16, 0xec00_0000).0, "symbol 45"),
        ("a section behind the file", features().with_header("license", 24, 1 << 40).0, "lies outside"),
        ("a section of a huge size", features().with_header(".data", 32, u64::MAX - 7).0, "lies outside"),
        ("a section over another", features().with_header("license", 24, 0x40).0, "shares bytes of the file"),
        (
            "a relocation of no symbol",
            features().with_relocation("xdp", "bloom", 8, u64::from(u32::MAX) << 32 | 1).0,
            "relocation",
        ),
        (
            "a relocation behind the code",
            features().with_relocation("xdp", "bloom", 0, 0x10_0000).0,
            "relocation",
        ),
        ("a CO-RE record of no size", core(0, 0), ".BTF.ext"),
        ("more CO-RE records than the table has", core(8, 0x0fff_ffff), ".BTF.ext"),
        ("a CO-RE record behind the code", core(12, 0x10_0000), ".BTF.ext"),
        ("a CO-RE path behind the names", core(20, 0x00ff_0000), ".BTF.ext"),
    ]);
}

/// libbpf takes the number of a setting of the kernel, or the last of two relocations, for the callee of a call.
#[test]
fn root_no_call_has_a_callee_that_was_not_judged() {
    let section = "tp_btf/sched_switch";
    let of = |symbol: &str, at: &str| {
        let file = features();
        let offset = file.long(file.relocation(section, at));
        file.with_relocation(section, symbol, 0, offset).0
    };
    let calls = |symbol: &str| {
        let file = features();
        let call = u64::from(file.number(symbol)) << 32 | 10;
        file.with_relocation(section, "bpf_rcu_read_unlock", 8, call).0
    };
    let second = "there are two relocations at this offset";
    refused_before_libbpf(vec![
        ("a kernel function before our own", of("bpf_rcu_read_unlock", "global"), second),
        ("our own before a kernel function", of("global", "bpf_rcu_read_unlock"), second),
        ("a setting before our own", of("CONFIG_HZ", "global"), second),
        ("two kernel functions", of("bpf_rcu_read_lock", "bpf_rcu_read_unlock"), second),
        ("a call of a setting", calls("CONFIG_HZ"), section),
        ("a call of an optional setting", calls("CONFIG_IPV6"), section),
        ("a call of a variable of the kernel", calls("runqueues"), section),
        ("a call of a variable", calls("counter"), section),
        ("a call of a map", calls("first"), section),
        ("a call of a kernel function by number", elf::calling(2, 65_561), "by a number"),
    ]);
}

/// The refusals above come from the changes: unchanged, the objects reach the kernel.
#[test]
fn root_the_unchanged_objects_are_given_to_the_kernel() {
    let folder = Folder::new();
    // One of the maps is pinned: with its own mounts nothing remains.
    let host = format!(
        "mount -t bpf bpf /sys/fs/bpf && exec {} --no-cache --allow all \"$0\"",
        binary("ks-host").display()
    );
    for (object, program) in [(FEATURES.to_vec(), "tail"), (elf::counting("perf_event"), "count")] {
        let file = folder.write("sound.wasm", with_object(loads(program), object));
        let mut command = Command::new("unshare");
        let (outcome, trace) = traced_command(command.args(["-m", "sh", "-c", &host]).arg(&file));
        assert!(outcome.code < 2 && trace.creates() > 0, "{program}: {outcome:#?} {trace:?}");
    }
    // The reader accepts this one, too; the host refuses the section of a struct.
    let file = folder.write("structs.wasm", with_object(loads("half"), STRUCTS.to_vec()));
    let (outcome, _) = traced(&["--no-cache", "--allow", "all"], &file);
    assert!(outcome.stderr.contains("`other` would stay registered"), "{outcome:#?}");
}

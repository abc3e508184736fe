//! Accepted and rejected maps.

use super::super::error::MapFault;
use super::super::limits::MAX_ITEMS;
use super::super::model::{MapInitSlot, Pinning, Side};
use super::super::table::{Class, MapKind, MapUse, map_row};
use super::file::{DATA64, File, SECTION, VARIABLE, kind};
use super::{Object, Reason, accepted, assert_refused, refused};

/// Builds a map of numbers, with keys and values of four bytes by default.
fn map(numbers: &[(&str, u32)]) -> File {
    let mut file = File::new();
    let var = file.types.map("counts", numbers, &[]);
    let bytes = numbers.len() as u32 * 8;
    file.types.section(".maps", &[[var, 0, bytes]]);
    file.section(".maps", 1, 3, &vec![0; bytes as usize]);
    file.symbol("counts", VARIABLE, ".maps", 0, bytes.into());
    file
}

fn fault(file: &File) -> MapFault {
    match refused(file).reason {
        Reason::Map { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

fn kind_of(object: &Object) -> MapKind {
    object.maps[0].shape.kind
}

const SIZES: [(&str, u32); 3] = [("key_size", 4), ("value_size", 4), ("max_entries", 16)];

#[test]
fn every_kind_is_allowed_needs_a_class_or_is_refused() {
    for number in 0..=34 {
        let row = map_row(number).expect("the table has every number");
        let sizes: &[_] = match number {
            22 | 23 | 30 => &[("value_size", 4), ("max_entries", 16)],
            27 | 31 => &[("max_entries", 4096)],
            24 | 28 | 29 | 32 => &[("key_size", 4), ("value_size", 4)],
            7 => &[("key_size", 4), ("value_size", 1016), ("max_entries", 16)],
            11 => &[("key_size", 8), ("value_size", 4), ("max_entries", 16)],
            _ => &SIZES,
        };
        let file = map(&[&[("type", number)], sizes].concat());
        match row.usage {
            MapUse::Refused(_) => assert!(matches!(fault(&file), MapFault::RefusedKind { .. }), "{number}"),
            MapUse::Allowed(kind) | MapUse::NeedsClass(kind, _) if kind.holds_maps() => {
                assert!(matches!(fault(&file), MapFault::Values(_)), "{number}");
            }
            MapUse::Allowed(kind) | MapUse::NeedsClass(kind, _) => {
                assert_eq!(kind_of(&accepted(&file)), kind);
                assert_eq!(kind.number(), number);
            }
        }
    }
    for number in [35, 36, u32::MAX] {
        assert_eq!(fault(&map(&[("type", number)])), MapFault::UnknownKind(number));
    }
    assert_eq!(fault(&map(&SIZES)), MapFault::UnknownKind(0));
    assert_eq!(MapKind::XskMap.class(), Some(Class::Redirect));
    assert_eq!(MapKind::Hash.class(), None);
}

#[test]
fn an_arena_is_refused_by_its_kind() {
    let file = map(&[("type", 33), ("map_flags", 1 << 10), ("max_entries", 100), ("map_extra", 1 << 20)]);
    assert!(matches!(fault(&file), MapFault::RefusedKind { kind: "ARENA", .. }));
}

#[test]
fn extra_is_the_hash_functions_of_a_bloom_filter() {
    let bloom = |extra| map(&[("type", 30), ("value_size", 4), ("max_entries", 16), ("map_extra", extra)]);
    assert_eq!(accepted(&bloom(5)).maps[0].shape.bloom_hashes, Some(5));
    assert_eq!(accepted(&bloom(0)).maps[0].shape.bloom_hashes, None);
    assert_eq!(fault(&bloom(16)), MapFault::Extra(16));
    let hash = map(&[&[("type", 1), ("map_extra", 1)], &SIZES[..]].concat());
    assert_eq!(fault(&hash), MapFault::Extra(1));
    // The form of `__ulong` in bpf_helpers.h.
    let mut file = File::new();
    let value = file.types.string("value");
    let long = file.types.add("", kind::ENUM, 1, 8, &[value, 7]);
    let number = file.types.number(30);
    let bytes = file.types.number(4);
    let ty = file.types.structure(
        "",
        24,
        &[("type", number, 0), ("value_size", bytes, 64), ("map_extra", long, 128)],
    );
    let var = file.types.var("bloom", ty, 1);
    file.types.section(".maps", &[[var, 0, 24]]);
    file.section(".maps", 1, 3, &[0; 24]);
    file.symbol("bloom", VARIABLE, ".maps", 0, 24);
    assert_eq!(accepted(&file).maps[0].shape.bloom_hashes, Some(7));
}

#[test]
fn flags_and_sizes_are_those_of_the_kind() {
    let with = |number: u32, more: &[(&str, u32)]| map(&[&[("type", number)], more].concat());
    assert_eq!(fault(&with(1, &[("map_flags", 1 << 10)])), MapFault::Flags(1 << 10));
    assert_eq!(fault(&with(2, &[("map_flags", 1 << 3)])), MapFault::Flags(1 << 3));
    assert_eq!(fault(&with(27, &[("map_flags", u32::MAX)])), MapFault::Flags(u32::MAX));
    assert_eq!(fault(&with(2, &[("key_size", 8)])), MapFault::KeySize(8));
    assert_eq!(fault(&with(1, &[("key_size", 513)])), MapFault::KeySize(513));
    assert_eq!(fault(&with(27, &[("value_size", 4)])), MapFault::ValueSize(4));
    assert_eq!(fault(&with(1, &[("value_size", u32::MAX)])), MapFault::ValueSize(u32::MAX));
    assert_eq!(fault(&with(1, &[("max_entries", u32::MAX)])), MapFault::Entries(u32::MAX));
    assert_eq!(fault(&with(29, &[("max_entries", 1)])), MapFault::Entries(1));
    let node = |flags| accepted(&with(1, &[("map_flags", flags), ("numa_node", 1)])).maps[0].shape.numa_node;
    assert_eq!((node(1 | 4), node(1), node(4)), (Some(1), None, Some(1)));
    // Sizes that the loader sets.
    assert_eq!(accepted(&with(7, &[("key_size", 4)])).maps[0].shape.value, Side::Nothing);
}

#[test]
fn definitions_have_the_members_of_libbpf_each_once() {
    assert!(matches!(fault(&map(&[("type", 1), ("type", 2)])), MapFault::Member(_)));
    assert!(matches!(fault(&map(&[("type", 1), ("inner_map_idx", 2)])), MapFault::Member(_)));
    assert!(matches!(fault(&map(&[("type", 1), ("", 2)])), MapFault::Member(_)));
    let mut file = File::new();
    let var = file.types.map("counts", &[("type", 1), ("key_size", 8)], &[("key", 1)]);
    file.types.section(".maps", &[[var, 0, 24]]);
    file.section(".maps", 1, 3, &[0; 24]);
    file.symbol("counts", VARIABLE, ".maps", 0, 24);
    assert_eq!(fault(&file), MapFault::Conflict);
    // A size instead of a type, and a type instead of a number.
    let mut file = File::new();
    let ty = file.types.structure("", 8, &[("type", 1, 0)]);
    let var = file.types.var("counts", ty, 1);
    file.types.section(".maps", &[[var, 0, 8]]);
    file.section(".maps", 1, 3, &[0; 8]);
    file.symbol("counts", VARIABLE, ".maps", 0, 8);
    assert!(matches!(fault(&file), MapFault::Member(_)));
}

#[test]
fn maps_are_pinned_by_name_only() {
    assert_eq!(accepted(&map(&[("type", 1), ("pinning", 1)])).maps[0].pinning, Pinning::ByName);
    assert_eq!(fault(&map(&[("type", 1), ("pinning", 2)])), MapFault::Pinning(2));
}

#[test]
fn maps_are_global_variables_with_symbols_that_lie_apart() {
    let base = || map(&[("type", 1), ("max_entries", 4)]);
    let mut file = base();
    file.symbols.last_mut().expect("the map").value = 8;
    file.symbols.last_mut().expect("the map").size = 8;
    assert!(matches!(fault(&file), MapFault::Definition(_)));
    let mut file = base();
    file.symbols.last_mut().expect("the map").name = "other";
    assert!(matches!(fault(&file), MapFault::Definition(_)));
    for name in ["..", ".rodata", "1st"] {
        let mut file = File::new();
        let var = file.types.map(name, &[("type", 1)], &[]);
        file.types.section(".maps", &[[var, 0, 8]]);
        file.section(".maps", 1, 3, &[0; 8]);
        file.symbol(name, VARIABLE, ".maps", 0, 8);
        assert!(matches!(fault(&file), MapFault::Definition(_)), "{name}");
    }
    let mut file = base();
    file.symbols.last_mut().expect("the map").info = 1;
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    let mut file = base();
    file.find(".maps").bytes[3] = 1;
    assert_refused(&file, ".maps", |reason| matches!(reason, Reason::Section(_)));
    // No types, or those of another section.
    let mut file = File::new();
    file.section(".maps", 1, 3, &[0; 8]);
    file.symbol("counts", VARIABLE, ".maps", 0, 8);
    assert_refused(&file, ".maps", |reason| matches!(reason, Reason::TypeHeader(_)));
    // Two at one offset, with names that are invalid for maps.
    let mut file = File::new();
    let vars = ["one", "two"].map(|name| file.types.map(name, &[("type", 1)], &[]));
    file.types.section(".maps", &[[vars[0], 0, 8], [vars[1], 4, 8]]);
    file.section(".maps", 1, 3, &[0; 12]);
    file.symbol("one", VARIABLE, ".maps", 0, 8);
    file.symbol("two", VARIABLE, ".maps", 4, 8);
    assert!(matches!(fault(&file), MapFault::Definition(_)));
}

/// Builds an array of programs or maps whose values follow its definition.
fn filled(number: u32, values: impl FnOnce(&mut File) -> u32) -> File {
    filled_up_to(2, number, values)
}

/// The same with so many entries.
fn filled_up_to(entries: u32, number: u32, values: impl FnOnce(&mut File) -> u32) -> File {
    let mut file = File::new();
    let numbers = [("type", number), ("key_size", 4), ("max_entries", entries)];
    let numbers = numbers.map(|(name, number)| (name, file.types.number(number)));
    let values = values(&mut file);
    let pointer = file.types.pointer(values);
    let values = file.types.array(pointer, 0);
    let [a, b, c] = numbers;
    let members = [(a.0, a.1, 0), (b.0, b.1, 64), (c.0, c.1, 128), ("values", values, 192)];
    let ty = file.types.structure("", 24, &members);
    let var = file.types.var("outer", ty, 1);
    let other = file.types.map("inner", &[("type", 2), ("max_entries", 1)], &[("key", 1), ("value", 1)]);
    file.types.section(".maps", &[[var, 0, 40], [other, 40, 32]]);
    file.section(".maps", 1, 3, &[0; 72]);
    file.symbol("outer", VARIABLE, ".maps", 0, 40);
    file.symbol("inner", VARIABLE, ".maps", 40, 32);
    file
}

#[test]
fn arrays_of_programs_and_maps_of_maps_are_filled_with_theirs() {
    let programs = || filled(3, |file| file.types.add("", kind::FUNC_PROTO, 0, 0, &[]));
    let inner_type = |file: &mut File| {
        let (ty, bytes) = (file.types.number(2), file.types.number(4));
        file.types.structure("", 24, &[("type", ty, 0), ("key_size", bytes, 64), ("value_size", bytes, 128)])
    };
    let maps = || filled(12, inner_type);
    let mut file = programs();
    let (watch, inner) = (file.symbol_of("watch"), file.symbol_of("inner"));
    file.relocate(".maps", 32, DATA64, watch);
    let object = accepted(&file);
    assert!(matches!(object.maps[0].slots.get(&1), Some(MapInitSlot::Program(_))), "{object:#?}");
    let mut file = maps();
    file.relocate(".maps", 24, DATA64, inner);
    let object = accepted(&file);
    assert!(matches!(object.maps[0].slots.get(&0), Some(MapInitSlot::Map(_))), "{object:#?}");
    assert_eq!(object.maps[0].inner.as_ref().map(|inner| inner.kind), Some(MapKind::Array));
    assert_eq!(object.memory(2).maps, 3);
    // A map in an array of programs, a program in a map of maps, the map itself, offsets that are not values.
    for (mut file, symbol, offset) in [
        (programs(), inner, 24),
        (maps(), watch, 24),
        (maps(), maps().symbol_of("outer"), 24),
        (programs(), watch, 16),
        (programs(), watch, 28),
        (programs(), watch, 40),
        (programs(), watch, 64),
    ] {
        file.relocate(".maps", offset, DATA64, symbol);
        let error = refused(&file);
        assert!(matches!(error.reason, Reason::Map { .. } | Reason::Relocation(_)), "{offset}: {error}");
    }
    // The section of a program instead of its function, and a map of the older form.
    let mut file = programs();
    let section = file.symbol("", SECTION, "xdp", 0, 0);
    file.relocate(".maps", 24, DATA64, section);
    assert!(matches!(fault(&file), MapFault::Values(_)));
    let mut file = maps();
    let older: Vec<u8> = [2_u32, 4, 4, 1, 0].iter().flat_map(|field| field.to_le_bytes()).collect();
    file.section("maps", 1, 3, &older);
    // Maps are read in the order of their sections.
    file.sections.rotate_right(1);
    let older = file.symbol("older", VARIABLE, "maps", 0, 20);
    accepted(&file);
    file.relocate(".maps", 24, DATA64, older);
    assert!(matches!(fault(&file), MapFault::Values(_)));
    // Two values and one entry; with 0 the loader sets the number.
    let signature = |file: &mut File| file.types.add("", kind::FUNC_PROTO, 0, 0, &[]);
    for (entries, fine) in [(0, true), (1, false), (2, true)] {
        let mut file = filled_up_to(entries, 3, signature);
        file.relocate(".maps", 32, DATA64, watch);
        match super::read(&file.bytes()) {
            Ok(_) => assert!(fine, "{entries}"),
            Err(_) => assert!(!fine && matches!(fault(&file), MapFault::Values(_)), "{entries}"),
        }
    }
    assert_eq!(accepted(&filled(3, signature)).maps[0].shape.value, Side::Bytes(4));
    // Functions in a hash, numbers in an array of programs.
    assert!(matches!(fault(&filled(1, signature)), MapFault::Values(_)));
    assert!(matches!(fault(&filled(3, |_| 1)), MapFault::Values(_)));
    let inner_with = |more: &str| {
        filled(12, |file| {
            let (ty, bytes, one) = (file.types.number(2), file.types.number(4), file.types.number(1));
            let members =
                [("type", ty, 0), ("key_size", bytes, 64), ("value_size", bytes, 128), (more, one, 192)];
            file.types.structure("", 32, &members)
        })
    };
    assert!(matches!(fault(&inner_with("pinning")), MapFault::Values(_)));
    accepted(&inner_with("max_entries"));
    // Values are the last member.
    let mut early = File::new();
    let pointer = early.types.pointer(1);
    let (values, ty) = (early.types.array(pointer, 0), early.types.number(3));
    let definition = early.types.structure("", 8, &[("values", values, 0), ("type", ty, 0)]);
    let var = early.types.var("early", definition, 1);
    early.types.section(".maps", &[[var, 0, 8]]);
    early.section(".maps", 1, 3, &[0; 8]);
    early.symbol("early", VARIABLE, ".maps", 0, 8);
    assert!(matches!(fault(&early), MapFault::Member(_)));
    let nested = filled(12, |file| {
        let (ty, bytes) = (file.types.number(12), file.types.number(4));
        file.types.structure("", 16, &[("type", ty, 0), ("key_size", bytes, 64)])
    });
    assert!(matches!(fault(&nested), MapFault::Values(_)));
    let arena = filled(12, |file| {
        let ty = file.types.number(33);
        file.types.structure("", 8, &[("type", ty, 0)])
    });
    assert!(matches!(fault(&arena), MapFault::RefusedKind { .. }));
}

#[test]
fn older_definitions_are_lists_of_numbers() {
    let legacy = |fields: &[u32]| {
        let mut file = File::new();
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        file.section("maps", 1, 3, &bytes);
        file.symbol("counts", VARIABLE, "maps", 0, bytes.len() as u64);
        file
    };
    let object = accepted(&legacy(&[1, 4, 8, 16, 0, 0, 1]));
    let map = &object.maps[0];
    assert_eq!((map.shape.value, map.shape.entries, map.pinning), (Side::Bytes(8), 16, Pinning::ByName));
    accepted(&legacy(&[1, 4, 8, 16, 1]));
    assert!(matches!(fault(&legacy(&[1, 4, 8, 16])), MapFault::Definition(_)));
    assert!(matches!(fault(&legacy(&[1, 4, 8, 16, 0, 7, 0])), MapFault::Definition(_)));
    assert!(matches!(fault(&legacy(&[1, 4, 8, 16, 0, 0, 2])), MapFault::Pinning(2)));
    assert!(matches!(fault(&legacy(&[33, 0, 0, 100, 0, 0, 0])), MapFault::RefusedKind { .. }));
    assert!(matches!(fault(&legacy(&[12, 4, 4, 16, 0, 0, 0])), MapFault::Values(_)));
}

#[test]
fn a_section_without_maps_needs_no_types() {
    let mut file = File::new();
    file.section(".maps", 1, 3, &[]);
    assert_eq!(accepted(&file).maps, []);
}

#[test]
fn maps_are_limited() {
    let mut file = File::new();
    let maps = MAX_ITEMS as u32 + 1;
    let ty = file.types.number(2);
    let definition = file.types.structure("", 8, &[("type", ty, 0)]);
    let entries: Vec<[u32; 3]> = (0..maps)
        .map(|map| {
            let name: &'static str = format!("m{map}").leak();
            file.symbol(name, VARIABLE, ".maps", u64::from(map) * 8, 8);
            [file.types.var(name, definition, 1), map * 8, 8]
        })
        .collect();
    file.types.section(".maps", &entries);
    file.section(".maps", 1, 3, &vec![0; maps as usize * 8]);
    let too_many = Reason::TooMany { what: "maps", found: maps.into(), limit: MAX_ITEMS as u64 };
    assert_eq!(refused(&file).reason, too_many);
    // The older form.
    let mut file = File::new();
    let bytes: Vec<u8> = [2_u32, 4, 4, 1, 0].iter().flat_map(|field| field.to_le_bytes()).collect();
    file.section("maps", 1, 3, &bytes.repeat(maps as usize));
    for map in 0..maps {
        let name: &'static str = format!("m{map}").leak();
        file.symbol(name, VARIABLE, "maps", u64::from(map) * 20, 20);
    }
    assert_eq!(refused(&file).reason, too_many);
}

#[test]
fn values_end_where_their_map_ends() {
    // Between the maps is room, and the loader sets the number of entries.
    let mut file = filled_up_to(0, 3, |file| file.types.add("", kind::FUNC_PROTO, 0, 0, &[]));
    let watch = file.symbol_of("watch");
    let inner = file.symbols.last_mut().expect("the inner map");
    inner.value = 48;
    file.find(".maps").bytes.resize(80, 0);
    let (last, count) = (file.types.starts.last().copied(), file.types.records.len());
    let entries = last.expect("the list of maps") as usize - 24;
    file.types.records[entries + 28..entries + 32].copy_from_slice(&48_u32.to_le_bytes());
    assert_eq!(entries + 36, count, "two entries of three words behind a header of three");
    accepted(&file);
    file.relocate(".maps", 40, DATA64, watch);
    assert_eq!(refused(&file).reason, Reason::Relocation("not of an initial value of a map"));
}

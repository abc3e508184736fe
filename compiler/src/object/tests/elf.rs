//! Files with invalid headers, sections, symbols or relocations.

use super::file::{
    ABSOLUTE, CALL, COMMON, DATA64, File, LOCAL_FUNCTION, SECTION, VARIABLE, WIDE, returns, slot, wide,
};
use super::{Reason, accepted, assert_refused, read, refused};

#[test]
fn a_plain_program_is_accepted() {
    let object = accepted(&File::new());
    assert_eq!(object.license.as_deref(), Some("GPL"));
    let (_, program) = object.program("watch").expect("the program is there");
    assert_eq!((program.section.to_string().as_str(), program.body.code.len()), ("xdp", 2));
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b""[..], b"\x7fELF", &[0; 64], b"\0asm\x01\0\0\0"] {
        let error = read(bytes).expect_err("no object");
        assert!(matches!(error.reason, Reason::NotBpf(_)), "{error}");
    }
    let mut file = File::new();
    file.machine = 62;
    assert_refused(&file, "", |reason| matches!(reason, Reason::NotBpf(_)));
    // Executables, segments, an entry, sections of another size, a table of sections outside of the file.
    for (at, bytes, is_outside) in [
        (16, vec![2, 0], false),
        (24, vec![1], false),
        (56, vec![1], false),
        (58, vec![40, 0], false),
        (60, vec![0, 0], false),
        (62, vec![0xff, 0xfe], false),
        (40, vec![0xff; 8], true),
        (40, vec![0, 0, 1, 0, 0, 0, 0, 0], true),
    ] {
        let mut file = File::new();
        file.patches.push((at, bytes));
        let error = refused(&file);
        let expected = match error.reason {
            Reason::Outside(_) => is_outside,
            Reason::NotBpf(_) => !is_outside,
            _ => false,
        };
        assert!(expected, "{at}: {error}");
    }
}

#[test]
fn each_field_of_the_header_counts() {
    let with = |at: usize, bytes: &[u8]| {
        let mut file = File::new();
        file.patches.push((at, bytes.to_vec()));
        refused(&file)
    };
    for (at, bytes) in [
        (7, vec![1]),
        (18, vec![62, 0]),
        (20, vec![2]),
        (24, vec![1]),
        (32, vec![64]),
        (52, vec![52, 0]),
        (56, vec![1]),
        (58, vec![40, 0]),
        (60, vec![0, 0]),
        (60, vec![0, 0xff]),
        (62, vec![0, 0]),
        (62, vec![0xff, 0]),
    ] {
        let error = with(at, &bytes);
        assert!(matches!(error.reason, Reason::NotBpf(_)), "{at}: {error}");
    }
    // A table of sections whose first header is inside.
    let len = File::new().bytes().len() as u64;
    for table in [len - 64, len - 128, len, 8, 56] {
        let error = with(40, &table.to_le_bytes());
        assert_eq!(error.reason, Reason::Outside("the table of sections"), "{table}");
    }
}

#[test]
fn a_wrong_symbol_is_reported_where_it_stands() {
    let mut file = File::new();
    let index = file.symbol("nowhere", VARIABLE, "", 8, 8);
    let error = refused(&file);
    assert_eq!((error.section.as_deref(), error.offset), (Some(".symtab"), u64::from(index) * 24));
}

#[test]
fn a_wrong_relocation_is_reported_where_it_stands() {
    let mut file = File::with_code(&[wide(1, 0), wide(1, 0), wide(1, 0)]);
    let map = file.add_map();
    for (offset, kind) in [(0, WIDE), (16, WIDE), (32, 77)] {
        file.relocate("xdp", offset, kind, map);
    }
    let error = refused(&file);
    assert_eq!((error.section.as_deref(), error.offset), (Some(".relxdp"), 32), "{error}");
}

#[test]
fn relocations_are_of_symbols_that_exist() {
    let with = |change: &dyn Fn(u32) -> u32| {
        let mut file = File::with_code(&[wide(1, 0)]);
        let map = file.add_map();
        file.relocate("xdp", 0, WIDE, change(map));
        file
    };
    accepted(&with(&|map| map));
    let wrong: [fn(u32) -> u32; 4] = [|_| 0, |map| map + 1, |map| map + 2, |_| u32::MAX];
    for change in wrong {
        assert_refused(&with(&change), ".relxdp", |reason| matches!(reason, Reason::Relocation(_)));
    }
}

#[test]
fn a_wrong_section_header_is_reported_where_it_stands() {
    for (name, index) in [("xdp", 1), ("license", 2)] {
        let mut file = File::new();
        // A name behind all names, and the type of the section.
        file.headers.push((name.into(), 0, 1 << 32 | 0xffff_fff0));
        let bytes = file.bytes();
        let table = u64::from_le_bytes(*bytes[40..].first_chunk().expect("eight bytes"));
        let error = refused(&file);
        assert_eq!((error.section.as_deref(), error.offset), (None, table + index * 64), "{error}");
    }
}

#[test]
fn alignments_are_powers_of_two_up_to_a_page() {
    // The file has the section where its alignment says.
    for (align, fine) in [(0, true), (1, true), (8, true), (4096, true), (24, false), (8192, false)] {
        let mut file = File::new();
        file.find("xdp").align = align;
        match read(&file.bytes()) {
            Ok(_) => assert!(fine, "{align}"),
            Err(error) => assert!(!fine && matches!(error.reason, Reason::Section(_)), "{align}: {error}"),
        }
    }
}

#[test]
fn the_first_section_is_nothing() {
    let bytes = File::new().bytes();
    let table = u64::from_le_bytes(*bytes[40..].first_chunk().expect("eight bytes")) as usize;
    // Its type, offset and size.
    let content = "the first section has content";
    for (at, reason) in [(4, "only the first section is none"), (24, content), (32, content)] {
        let mut file = File::new();
        file.patches.push((table + at, vec![1]));
        assert_eq!(refused(&file).reason, Reason::Section(reason), "{at}");
    }
}

#[test]
fn code_has_a_limit() {
    let with = |slots: usize| {
        let mut file = File::new();
        let code = [slot(0xb7, 1, 0, 0, 0)].repeat(slots - 2);
        file.find("xdp").bytes = [code, returns(2)].concat().as_flattened().to_vec();
        file.symbols[0].size = file.find("xdp").bytes.len() as u64;
        file
    };
    assert_eq!(accepted(&with(1 << 18)).programs[0].body.code.len(), 1 << 18);
    let error = refused(&with((1 << 20) + 1));
    assert!(matches!(error.reason, Reason::TooMany { what: "slots of instructions", .. }), "{error}");
}

#[test]
fn sections_lie_inside_and_apart() {
    // A size that ends outside, one that overflows with its offset, an offset outside.
    for (field, value) in [(32, 1 << 40), (32, u64::MAX - 7), (24, u64::MAX - 7)] {
        let mut file = File::new();
        file.headers.push(("xdp".into(), field, value));
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Outside(_)));
    }
    let mut file = File::new();
    file.headers.push(("license".into(), 24, 72));
    assert_refused(&file, "license", |reason| matches!(reason, Reason::Overlap(_)));
    let mut file = File::new();
    file.headers.push(("license".into(), 24, 32));
    assert_refused(&file, "license", |reason| matches!(reason, Reason::Overlap(_)));
    let mut file = File::new();
    file.headers.push(("xdp".into(), 48, 3));
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Section(_)));
    let mut file = File::new();
    file.headers.push(("xdp".into(), 16, 0x1000));
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Section(_)));
}

#[test]
fn sections_have_a_role_and_one_name() {
    let mut file = File::new();
    file.section("license", 1, 3, b"GPL\0");
    assert_refused(&file, "license", |reason| matches!(reason, Reason::SecondSection));
    for (name, ty, flags) in [
        (".addr_space.1", 1, 3),
        (".jumptables", 1, 2),
        ("strange", 1, 3),
        ("strange", 1, 6),
        ("fentry/*", 1, 6),
        ("?lsm/*", 1, 6),
        ("kprobe/a b", 1, 6),
        ("syscall", 1, 6),
        ("uprobe//bin/sh:m\u{1b}[31m", 1, 6),
        (".data", 8, 3),
        (".data", 4, 3),
        ("xdp/more", 0x6fff_4700, 6),
    ] {
        let mut file = File::new();
        file.section(name, ty, flags, &[0; 16]);
        let error = refused(&file);
        assert!(matches!(error.reason, Reason::Section(_)), "{name}: {error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
    let mut file = File::new();
    for _ in 0..5000 {
        file.section(".debug_info", 1, 0, &[1]);
    }
    assert_refused(&file, "", |reason| matches!(reason, Reason::TooMany { what: "sections", .. }));
}

#[test]
fn sections_that_no_loader_reads_are_dropped() {
    let mut file = File::new();
    file.section(".debug_info", 1, 0, &[1; 9]);
    file.section("version", 1, 3, &[1; 4]);
    file.section(".llvm_addrsig", 0x6fff_4c03, 0x8000_0000, &[1; 4]);
    file.section(".data", 1, 3, &[]);
    assert_eq!(accepted(&file), accepted(&File::new()));
}

#[test]
fn symbols_lie_in_their_sections() {
    for (value, size) in [(0, 24), (8, 16), (u64::MAX - 7, 16), (0, u64::MAX)] {
        let mut file = File::new();
        (file.symbols[0].value, file.symbols[0].size) = (value, size);
        assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    }
    for (value, size) in [(4, 8), (0, 12), (0, 0)] {
        let mut file = File::new();
        (file.symbols[0].value, file.symbols[0].size) = (value, size);
        assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    }
    // Kinds, bindings and visibilities that no compiler writes; an undefined symbol with a value.
    for (info, other) in [(0x1a, 0), (0x16, 0), (0xa2, 0), (0x12, 4), (0x12, 0x80)] {
        let mut file = File::new();
        (file.symbols[0].info, file.symbols[0].other) = (info, other);
        assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    }
    let mut file = File::new();
    file.symbol("nowhere", VARIABLE, "", 8, 8);
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    let mut file = File::new();
    file.symbol("in_code", VARIABLE, "xdp", 0, 8);
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    let mut file = File::new();
    file.symbol("in_data", 0x12, "license", 0, 4);
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
}

#[test]
fn functions_are_apart_and_programs_global() {
    let mut file = File::new();
    file.symbol("alias", 0x12, "xdp", 8, 8);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Function { .. }));
    let mut file = File::new();
    file.symbols[0].info = LOCAL_FUNCTION;
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Function { .. }));
    let mut file = File::new();
    file.code("tc", "watch", &[returns(0)]);
    assert_refused(&file, "tc", |reason| matches!(reason, Reason::NameTwice(_)));
    let mut file = File::new();
    file.symbols[0].name = "wa\u{1b}tch";
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Name(_)));
}

#[test]
fn one_relocation_per_offset_of_the_kind_of_its_instruction() {
    let base = || {
        let mut file = File::with_code(&[wide(1, 0)]);
        let map = file.add_map();
        (file, map)
    };
    let (mut file, map) = base();
    file.relocate("xdp", 0, WIDE, map);
    accepted(&file);
    file.relocate("xdp", 0, WIDE, map);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::SecondRelocation));
    // Outside, not at a slot, the wide load cut off, overflowing, of other kinds, of symbols that do not
    // exist.
    for (offset, kind, symbol) in [
        (32, WIDE, 2),
        (24, WIDE, 2),
        (4, WIDE, 2),
        (u64::MAX - 7, WIDE, 2),
        (0, DATA64, 2),
        (0, 7, 2),
        (0, 0, 2),
        (0, WIDE, 0),
        (0, WIDE, 99),
        (0, WIDE, u32::MAX),
    ] {
        let (mut file, _) = base();
        file.relocate("xdp", offset, kind, symbol);
        assert_refused(&file, ".relxdp", |reason| matches!(reason, Reason::Relocation(_)));
    }
    // Valid in the section, but not for the instruction.
    for (offset, kind) in [(0, CALL), (8, WIDE), (16, WIDE), (8, CALL), (16, CALL)] {
        let (mut file, map) = base();
        file.relocate("xdp", offset, kind, map);
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Relocation(_)));
    }
    let (mut file, map) = base();
    file.section(".data", 1, 3, &[0; 8]);
    file.relocate(".data", 0, DATA64, map);
    let error = refused(&file);
    assert_eq!(error.section.as_deref(), Some(".rel.data"));
    assert!(error.to_string().contains("no loader fills them in"), "{error}");
}

#[test]
fn tables_of_relocations_name_their_section_and_their_symbols() {
    let base = || {
        let mut file = File::with_code(&[wide(1, 0)]);
        let map = file.add_map();
        file.relocate("xdp", 0, WIDE, map);
        file
    };
    for (field, value) in [(40, 0), (40, 1 << 32), (40, 99 << 32), (40, 2 << 32), (56, 24), (32, 15)] {
        let mut file = base();
        file.headers.push((".relxdp".into(), field, value));
        assert_refused(&file, ".relxdp", |reason| matches!(reason, Reason::Relocation(_)));
    }
}

#[test]
fn a_second_table_of_symbols_is_refused() {
    let mut file = File::new();
    file.section("more", 2, 0, &[0; 24]);
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Section(_)));
}

#[test]
fn labels_and_files_are_nothing() {
    let mut file = File::new();
    file.symbol("LBB0_1", 0, "xdp", 8, 0);
    file.symbol("", SECTION, "xdp", 0, 0);
    // The name of the source file, which is local.
    file.symbol("a.c", 4, ABSOLUTE, 0, 0);
    assert_eq!(accepted(&file), accepted(&File::new()));
}

#[test]
fn symbols_are_in_sections_of_the_file() {
    let with = |info: u8, section: &'static str, value: u64, size: u64| {
        let mut file = File::new();
        file.symbol("other", info, section, value, size);
        file
    };
    for (info, section, value, size) in [
        // A constant, a common variable, and a file's name with a value.
        (VARIABLE, ABSOLUTE, 0, 0),
        (VARIABLE, COMMON, 0, 0),
        (4, COMMON, 0, 0),
        (4, ABSOLUTE, 8, 0),
        (4, ABSOLUTE, 0, 8),
        // A section begins where it begins.
        (SECTION, "xdp", 8, 0),
        (SECTION, "xdp", 0, 8),
        // Behind the end of a section.
        (0, "license", 5, 0),
    ] {
        let file = with(info, section, value, size);
        assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
    }
    // What nobody reads has symbols anywhere.
    let mut file = File::new();
    file.section(".debug_info", 1, 0, &[1; 9]);
    file.symbol("other", 0, ".debug_info", 90, 0);
    accepted(&file);
}

#[test]
fn the_first_symbol_is_nothing() {
    let bytes = File::new().bytes();
    let table = u64::from_le_bytes(*bytes[40..].first_chunk().expect("eight bytes")) as usize;
    // The table of symbols is the third section of the plain file, behind the program and the licence.
    let symbols = u64::from_le_bytes(*bytes[table + 3 * 64 + 24..].first_chunk().expect("eight bytes"));
    // A name, a kind, a section, a value, a size.
    for (at, value) in [(0, 1), (4, 2), (6, 1), (8, 1), (16, 1)] {
        let mut file = File::new();
        file.patches.push((symbols as usize + at, vec![value]));
        let error = refused(&file);
        assert!(matches!(error.reason, Reason::Symbol { index: 0, .. }), "{at}: {error}");
    }
    let mut file = File::new();
    file.headers.push((".symtab".into(), 56, 32));
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Section(_)));
}

#[test]
fn the_section_of_names_is_one_of_the_sections() {
    let sections = File::new().bytes()[60];
    for names in [0, sections, 0xff] {
        let mut file = File::new();
        file.patches.push((62, vec![names, 0]));
        assert_eq!(
            refused(&file).reason,
            Reason::NotBpf("it has no table of sections with names"),
            "{names}"
        );
    }
}

#[test]
fn a_function_outside_of_code_is_reported_where_it_stands() {
    let mut file = File::new();
    let index = u64::from(file.symbol("in_data", 0x12, "license", 0, 4));
    let error = refused(&file);
    assert_eq!(error.reason, Reason::Symbol { index, reason: "is a function outside of code" });
    assert_eq!((error.section.as_deref(), error.offset), (Some(".symtab"), index * 24));
}

#[test]
fn a_relocation_within_an_instruction_is_reported_where_it_stands() {
    let mut file = File::with_code(&[wide(1, 0)]);
    let map = file.add_map();
    file.relocate("xdp", 8, WIDE, map);
    let error = refused(&file);
    assert_eq!(error.reason, Reason::Relocation("in the middle of an instruction"));
    assert_eq!((error.section.as_deref(), error.offset), (Some("xdp"), 8));
}

#[test]
fn what_no_object_may_have_is_refused_with_its_reason() {
    for (name, reason) in [
        (".addr_space.1", "variables of an arena: arenas are refused"),
        (".arena.1", "variables of an arena: arenas are refused"),
        (".jumptables", "jump tables: indirect jumps are refused"),
        ("strange", "a BPF object has no section of this name"),
    ] {
        let mut file = File::new();
        file.section(name, 1, 3, &[0; 16]);
        assert_eq!(refused(&file).reason, Reason::Section(reason), "{name}");
    }
    for section in [ABSOLUTE, COMMON] {
        let mut file = File::new();
        let index = file.symbol("other", VARIABLE, section, 0, 0).into();
        assert_eq!(refused(&file).reason, Reason::Symbol { index, reason: "is in no section" }, "{section}");
    }
}

#[test]
fn what_does_no_harm_is_accepted() {
    // A section without bytes, wherever it says that they are, and a symbol that only other programs cannot
    // replace (STV_PROTECTED).
    let mut file = File::new();
    file.section("strange", 1, 3, &[]);
    file.headers.push(("strange".into(), 24, 1 << 40));
    file.symbols[0].other = 3;
    assert_eq!(accepted(&file), accepted(&File::new()));
}

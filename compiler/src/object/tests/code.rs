//! Instructions with invalid operands.

use super::super::model::{Callee, Instruction, KsymId, Linkage, SubprogramId, Wide};
use super::file::{
    CALL, EXTERN, File, LOCAL_FUNCTION, SECTION, VARIABLE, WEAK_EXTERN, WIDE, call, helper, kind, returns,
    slot, wide,
};
use super::{Object, Reason, accepted, assert_refused, refused};

/// Returns the first instruction of the program.
fn first(object: &Object) -> Instruction {
    object.programs[0].body.code[0]
}

#[test]
fn helpers_are_those_of_the_kernel() {
    let object = accepted(&File::with_code(&[helper(5)]));
    let Instruction::Call(Callee::Helper(helper_5)) = first(&object) else { panic!("{object:#?}") };
    assert_eq!(helper_5.name(), "bpf_ktime_get_ns");
    for number in [0, 212, -1, i32::MAX] {
        let file = File::with_code(&[helper(number)]);
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    }
}

#[test]
fn calls_lead_to_starts_of_functions_of_text() {
    let base = |immediate| {
        let mut file = File::with_code(&[call(immediate)]);
        file.code(".text", "unused", &[returns(1)]);
        file.code(".text", "called", &[returns(3)]);
        file
    };
    // Against the function, and against the section with the distance in the instruction, as clang does for
    // static ones.
    let mut file = base(-1);
    let symbol = file.symbol_of("called");
    file.relocate("xdp", 0, CALL, symbol);
    let object = accepted(&file);
    assert_eq!(first(&object), Instruction::Call(Callee::Subprogram(SubprogramId(0))));
    assert_eq!(object.subprograms.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["called"]);
    let mut file = base(1);
    let section = file.symbol("", SECTION, ".text", 0, 0);
    file.relocate("xdp", 0, CALL, section);
    assert_eq!(accepted(&file), object);
    for immediate in [0, 2, 3, -2, i32::MIN, i32::MAX] {
        let mut file = base(immediate);
        let section = file.symbol("", SECTION, ".text", 0, 0);
        file.relocate("xdp", 0, CALL, section);
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    }
    // A program, a function of the own section without a relocation, a kernel symbol by number.
    let mut file = base(-1);
    let watch = file.symbol_of("watch");
    file.relocate("xdp", 0, CALL, watch);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    assert_refused(&base(-1), "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    let by_number = File::with_code(&[vec![slot(0x85, 0, 2, 0, 65561)]]);
    assert_refused(&by_number, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    // A helper that has a relocation, the class of 32-bit jumps, an address in a register.
    let mut file = File::with_code(&[helper(5)]);
    file.code(".text", "called", &[returns(3)]);
    let symbol = file.symbol_of("called");
    file.relocate("xdp", 0, CALL, symbol);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    for opcode in [0x86, 0x8d, 0x8e] {
        let file = File::with_code(&[vec![slot(opcode, 0, 0, 0, 5)]]);
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Decode(_)));
    }
}

#[test]
fn functions_call_each_other_without_relocations() {
    let mut file = File::with_code(&[call(-1)]);
    file.code(".text", "outer", &[call(1), returns(3)]);
    file.symbols.last_mut().expect("just added").info = LOCAL_FUNCTION;
    file.code(".text", "never", &[returns(3)]);
    let outer = file.symbol_of("outer");
    file.relocate("xdp", 0, CALL, outer);
    assert_refused(&file, ".text", |reason| matches!(reason, Reason::Instruction(_)));
    file.find(".text").bytes[4] = 2;
    let object = accepted(&file);
    let names: Vec<_> = object.subprograms.iter().map(|one| (one.name.as_str(), one.linkage)).collect();
    assert_eq!(names, [("outer", Linkage::Static), ("never", Linkage::Static)]);
    let uses = object.uses(object.program("watch").expect("the program is there").0);
    assert_eq!(uses.subprograms.len(), 2);
}

#[test]
fn wide_loads_name_parts_of_the_object_inside_their_bounds() {
    let base = |immediate| {
        let mut file = File::with_code(&[wide(1, immediate)]);
        file.section(".data", 1, 3, &[1, 2, 3, 4, 5, 6, 7, 8]);
        file.symbol("", SECTION, ".data", 0, 0);
        file.symbol("number", VARIABLE, ".data", 4, 4);
        file
    };
    let mut file = base(0);
    let number = file.symbol_of("number");
    file.relocate("xdp", 0, WIDE, number);
    let object = accepted(&file);
    let Instruction::LoadWide { value: Wide::Data { offset, .. }, .. } = first(&object) else {
        panic!("{object:#?}")
    };
    assert_eq!(offset, 4);
    for (immediate, fine) in
        [(0, true), (7, true), (8, false), (-1, false), (i32::MAX, false), (i32::MIN, false)]
    {
        let mut file = base(immediate);
        let data = file.symbol_of("");
        file.relocate("xdp", 0, WIDE, data);
        if fine {
            accepted(&file);
        } else {
            assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
        }
    }
    // By number: a map, a map's value, a function or a kernel symbol; and a constant in the second half.
    for source in 1..=6 {
        let file = File::with_code(&[vec![slot(0x18, 1, source, 0, 0), slot(0, 0, 0, 0, 0)]]);
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    }
    let mut file = base(0);
    let number = file.symbol_of("number");
    file.find("xdp").bytes[12] = 1;
    file.relocate("xdp", 0, WIDE, number);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    // A section that does not hold variables.
    let mut file = base(0);
    let license = file.symbol("LICENSE", VARIABLE, "license", 0, 4);
    file.relocate("xdp", 0, WIDE, license);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Relocation(_)));
}

#[test]
fn callbacks_are_functions_of_text() {
    let base = |immediate| {
        let mut file = File::with_code(&[wide(2, immediate)]);
        file.code(".text", "first", &[returns(1)]);
        file.code(".text", "each", &[returns(3)]);
        file
    };
    let mut file = base(16);
    let section = file.symbol("", SECTION, ".text", 0, 0);
    file.relocate("xdp", 0, WIDE, section);
    let object = accepted(&file);
    assert!(
        matches!(first(&object), Instruction::LoadWide { value: Wide::Subprogram(_), .. }),
        "{object:#?}"
    );
    assert_eq!(object.subprograms[0].name.as_str(), "each");
    let mut file = base(0);
    let each = file.symbol_of("each");
    file.relocate("xdp", 0, WIDE, each);
    assert_eq!(accepted(&file), object);
    for immediate in [8, 24, 32, -16] {
        let mut file = base(immediate);
        let section = file.symbol("", SECTION, ".text", 0, 0);
        file.relocate("xdp", 0, WIDE, section);
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    }
    let mut file = base(0);
    let watch = file.symbol_of("watch");
    file.relocate("xdp", 0, WIDE, watch);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Relocation(_)));
}

#[test]
fn functions_of_the_kernel_are_called_by_name_and_facts_are_not_called() {
    let mut file = File::with_code(&[call(-1)]);
    let signature = file.types.add("", kind::FUNC_PROTO, 0, 0, &[]);
    let func = file.types.add("bpf_rcu_read_lock", kind::FUNC, 2, signature, &[]);
    file.types.section(".ksyms", &[[func, 0, 0]]);
    let symbol = file.symbol("bpf_rcu_read_lock", WEAK_EXTERN, "", 0, 0);
    file.relocate("xdp", 0, CALL, symbol);
    let object = accepted(&file);
    assert_eq!(first(&object), Instruction::Call(Callee::Kfunc(KsymId(0))));
    file.find("xdp").bytes[4..8].copy_from_slice(&0i32.to_le_bytes());
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Relocation(_)));
    // libbpf would read the offset of the setting as the number of a function.
    let mut file = File::with_code(&[call(-1)]);
    let fact = file.add_extern(".kconfig", "CONFIG_HZ", 1, EXTERN);
    file.relocate("xdp", 0, CALL, fact);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
    let mut file = File::with_code(&[wide(1, 4)]);
    let fact = file.add_extern(".kconfig", "CONFIG_HZ", 1, EXTERN);
    file.relocate("xdp", 0, WIDE, fact);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Relocation(_)));
}

#[test]
fn instructions_are_whole_and_branches_stay_inside() {
    for code in [
        vec![slot(0x05, 0, 0, 5, 0)],
        vec![slot(0x05, 0, 0, -2, 0)],
        vec![slot(0xff, 0, 0, 0, 0)],
        vec![slot(0xb7, 11, 0, 0, 0)],
        vec![slot(0xb7, 0, 1, 0, 0)],
        // An address cast of arenas, a packet load of classic BPF.
        vec![slot(0xbf, 0, 0, 1, 1)],
        vec![slot(0x30, 0, 0, 0, 0)],
    ] {
        let error = refused(&File::with_code(&[code]));
        assert!(matches!(error.reason, Reason::Decode(_)), "{error}");
    }
    let mut file = File::new();
    file.find("xdp").bytes = wide(1, 0).as_flattened()[..8].to_vec();
    file.symbols[0].size = 8;
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Decode(_)));
}

#[test]
fn functions_that_nothing_calls_are_dropped_but_read() {
    let mut file = File::new();
    file.code(".text", "unused", &[returns(1)]);
    assert_eq!(accepted(&file), accepted(&File::new()));
    file.find(".text").bytes[0] = 0xff;
    assert_refused(&file, ".text", |reason| matches!(reason, Reason::Decode(_)));
}

#[test]
fn programs_of_one_section_become_neighbours() {
    let mut file = File::new();
    file.code("tc", "second", &[returns(0)]);
    file.code("xdp/with_a_word", "third", &[returns(0)]);
    let object = accepted(&file);
    let names: Vec<_> =
        object.programs.iter().map(|one| (one.name.as_str(), one.section.to_string())).collect();
    assert_eq!(names, [("watch", "xdp".into()), ("third", "xdp".into()), ("second", "tc".to_owned())]);
}

/// Builds a file with this code in a program at a tracepoint.
fn at_tracepoint(code: &[Vec<[u8; 8]>]) -> File {
    let mut file = File::new();
    file.sections.retain(|one| one.name != "xdp");
    file.symbols.retain(|one| one.section != "xdp");
    file.code("tracepoint/sched/sched_switch", "seen", code);
    file
}

/// Returns whether the program at the tracepoint may suppress events for others.
fn filters(code: &[Vec<[u8; 8]>]) -> bool {
    let object = accepted(&at_tracepoint(code));
    let (id, _) = object.program("seen").expect("it is there");
    object.may_filter_events(id)
}

#[test]
fn a_program_at_a_tracepoint_filters_unless_its_result_is_odd_on_every_path() {
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let mov = |dst: u8, constant: i32| vec![slot(0xb7, dst, 0, 0, constant)];
    let copy = |dst: u8, src: u8| vec![slot(0xbf, dst, src, 0, 0)];
    let exit = || vec![EXIT];
    // `if r6 == constant goto +offset`, `!=`, `&`
    let jump = |opcode: u8, offset: i16, constant: i32| vec![slot(opcode, 6, 0, offset, constant)];
    for (code, odd) in [
        (vec![mov(0, 1), exit()], true),
        (vec![mov(0, 0), exit()], false),
        // The kernel checks only the lowest bit.
        (vec![mov(0, 2), exit()], false),
        (vec![mov(0, -1), exit()], true),
        (vec![vec![slot(0xb4, 0, 0, 0, 3)], exit()], true),
        (vec![mov(6, 1), helper(5), copy(0, 6), exit()], true),
        (vec![mov(0, 1), helper(5), exit()], false),
        // Only one of two paths returns an odd value.
        (vec![helper(5), copy(6, 0), mov(0, 1), jump(0x15, 1, 7), mov(0, 0), exit()], false),
        (vec![helper(5), copy(6, 0), mov(0, 1), jump(0x15, 1, 7), mov(0, 3), exit()], true),
        // A comparison determines the value of the register.
        (vec![helper(5), copy(6, 0), copy(0, 6), jump(0x15, 1, 7), mov(0, 1), exit()], false),
        (vec![helper(5), copy(6, 0), jump(0x15, 1, 7), mov(6, 1), copy(0, 6), exit()], true),
        (vec![helper(5), copy(6, 0), jump(0x55, 1, 7), copy(0, 6), mov(0, 1), exit()], true),
        (vec![helper(5), copy(6, 0), jump(0x45, 1, 1), mov(6, 1), copy(0, 6), exit()], true),
        (vec![helper(5), copy(6, 0), jump(0x45, 1, 2), mov(6, 1), copy(0, 6), exit()], false),
        // `r0 |= 1`, `r0 += 1`
        (vec![helper(5), vec![slot(0x47, 0, 0, 0, 1)], exit()], true),
        (vec![mov(0, 1), vec![slot(0x07, 0, 0, 0, 1)], exit()], false),
        // An infinite loop has no path to the exit.
        (vec![mov(0, 1), vec![slot(0x05, 0, 0, -1, 0)], exit()], true),
    ] {
        assert_eq!(filters(&code), !odd, "{code:?}");
    }
}

#[test]
fn the_result_of_a_called_function_counts() {
    for (number, odd) in [(1, true), (4, false)] {
        let mut file = at_tracepoint(&[call(-1), vec![slot(0x95, 0, 0, 0, 0)]]);
        file.code(".text", "inner", &[returns(number)]);
        let inner = file.symbol_of("inner");
        file.relocate("tracepoint/sched/sched_switch", 0, CALL, inner);
        let object = accepted(&file);
        assert_eq!(object.may_filter_events(object.program("seen").expect("it is there").0), !odd);
    }
    // Other programs suppress nothing, whatever they return.
    let object = accepted(&File::with_code(&[returns(0)]));
    assert!(!object.may_filter_events(object.program("watch").expect("it is there").0));
}

#[test]
fn calls_have_no_other_fields() {
    for (destination, offset) in [(1, 0), (0, 1), (9, -1)] {
        for source in [0, 1] {
            let file = File::with_code(&[vec![slot(0x85, destination, source, offset, 5)]]);
            assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Instruction(_)));
        }
    }
    let mut file = File::with_code(&[helper(5)]);
    file.code(".text", "called", &[returns(3)]);
    let symbol = file.symbol_of("called");
    file.relocate("xdp", 0, CALL, symbol);
    let error = refused(&file);
    assert!(error.to_string().contains("a call of a helper has a relocation"), "{error}");
}

/// An addend would lead from one map to the next.
#[test]
fn a_map_is_named_by_its_own_symbol() {
    let with = |first: &'static str, addend: i32| {
        let mut file = File::with_code(&[wide(1, addend)]);
        let numbers = [("type", 1), ("max_entries", 16)];
        let vars = ["one", "two"].map(|name| file.types.map(name, &numbers, &[("key", 1), ("value", 1)]));
        file.types.section(".maps", &[[vars[0], 0, 32], [vars[1], 32, 32]]);
        file.section(".maps", 1, 3, &[0; 64]);
        for (name, value) in [("one", 0), ("two", 32)] {
            file.symbol(name, VARIABLE, ".maps", value, 32);
        }
        let symbol = file.symbol_of(first);
        file.relocate("xdp", 0, WIDE, symbol);
        file
    };
    for (name, id) in [("one", 0), ("two", 1)] {
        let Instruction::LoadWide { value: Wide::Map(map), .. } = first(&accepted(&with(name, 0))) else {
            panic!("the address of a map")
        };
        assert_eq!(map.index(), id);
    }
    for (name, addend) in [("one", 32), ("two", -32), ("one", 8), ("two", 32)] {
        assert_refused(&with(name, addend), "xdp", |reason| matches!(reason, Reason::Relocation(_)));
    }
}

/// The message names the instruction that is wrong.
#[test]
fn an_unknown_instruction_is_reported_where_it_stands() {
    for at in [0, 2, 5] {
        let mut code = vec![slot(0xb7, 1, 0, 0, 0); at];
        code.push(slot(0xff, 0, 0, 0, 0));
        let error = refused(&File::with_code(&[code]));
        assert!(matches!(error.reason, Reason::Decode(_)), "{error}");
        assert_eq!(error.offset, at as u64 * 8, "{error}");
    }
}

#[test]
fn the_table_of_printed_lines_is_kept_as_it_is() {
    let with = |bytes: &[u8]| {
        let mut file = File::new();
        file.section(ks_wit::object::PRINTS_SECTION, 1, 0, bytes);
        file
    };
    assert_eq!(accepted(&File::new()).print_table, None);
    for table in [&b"[]"[..], b"[1, 2]", b""] {
        assert_eq!(accepted(&with(table)).print_table.as_deref(), Some(table));
    }
    let most = vec![b' '; 4 << 20];
    assert!(accepted(&with(&most)).print_table.is_some());
    let error = refused(&with(&[&most[..], b" "].concat()));
    assert!(matches!(error.reason, Reason::TooMany { .. }), "{error}");
}

/// The second half of a wide load has none, wherever its function begins.
#[test]
fn relocations_lie_at_the_start_of_an_instruction() {
    for before in [0, 1, 3] {
        let mut file = File::new();
        let section = file.find("xdp").bytes.len() as u64;
        file.code("xdp", "second", &[vec![slot(0xb7, 1, 0, 0, 0); before], wide(1, 0), returns(1)]);
        let map = file.add_map();
        let load = section + before as u64 * 8;
        let mut fine = file.clone();
        fine.relocate("xdp", load, WIDE, map);
        accepted(&fine);
        for offset in [load + 8, load + 16] {
            let mut wrong = file.clone();
            wrong.relocate("xdp", offset, WIDE, map);
            assert_refused(&wrong, "xdp", |reason| matches!(reason, Reason::Relocation(_)));
        }
    }
}

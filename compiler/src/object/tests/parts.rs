//! Variables, externs, struct_ops, the licence.

use super::super::model::{DataContent, KconfigType, KsymKind, Linkage, Presence, StructOpsValue};
use super::super::table::{Target, TargetForm};
use super::file::{DATA64, EXTERN, File, VARIABLE, WEAK_EXTERN, kind, returns};
use super::{Object, Reason, accepted, assert_refused, refused};

/// Two variables in `.data`: `first` is typed, `second` is a symbol only.
fn variables() -> File {
    let mut file = File::new();
    let var = file.types.var("first", 1, 1);
    file.types.section(".data", &[[var, 0, 4]]);
    file.section(".data", 1, 3, &[1, 0, 0, 0, 2, 0, 0, 0]);
    file.symbol("first", VARIABLE, ".data", 0, 4);
    file.symbol("second", VARIABLE, ".data", 4, 4);
    file
}

#[test]
fn variables_are_symbols_with_the_types_of_btf() {
    let object = accepted(&variables());
    let (_, first) = object.variable("first").expect("the variable is there");
    assert!(first.ty.is_some());
    let (_, second) = object.variable("second").expect("the variable is there");
    assert_eq!((second.ty, second.offset), (None, 4));
    let mut file = variables();
    file.section(".bss.more", 8, 3, &[]).size = Some(1 << 20);
    let object = accepted(&file);
    assert_eq!(
        (object.data[1].name().as_str(), &object.data[1].content),
        (".bss.more", &DataContent::Zeros(1 << 20))
    );
    file.find(".bss.more").size = Some(1 << 31);
    assert_refused(&file, ".bss.more", |reason| matches!(reason, Reason::TooMany { .. }));
}

#[test]
fn hidden_and_static_variables_are_static() {
    let mut file = variables();
    file.symbols[1].other = 2;
    let object = accepted(&file);
    assert_eq!(object.data[0].variables[0].linkage, Linkage::Static);
    let mut file = variables();
    file.symbols[1].info = 1;
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Variable { .. }));
}

#[test]
fn variables_lie_apart_and_have_names_of_their_own() {
    let mut file = variables();
    file.symbols[2].value = 2;
    assert_refused(&file, ".data", |reason| matches!(reason, Reason::Variable { .. }));
    let mut file = variables();
    file.symbols[1].size = 2;
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Variable { .. }));
    let mut file = variables();
    file.symbols[1].name = "other";
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Variable { .. }));
    let mut file = variables();
    file.section(".rodata", 1, 2, &[0; 4]);
    file.symbol("second", VARIABLE, ".rodata", 0, 4);
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::NameTwice(_)));
    // Variables of a section that does not exist, and two lists of one section.
    let mut file = variables();
    let var = file.types.var("third", 1, 0);
    file.types.section(".data.other", &[[var, 0, 4]]);
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::TypeHeader(_)));
    let mut file = variables();
    let var = file.types.var("third", 1, 0);
    file.types.section(".data", &[[var, 4, 4]]);
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::TypeHeader(_)));
}

#[test]
fn offsets_of_variables_come_from_relocations_if_there_are_some() {
    // clang leaves 0 for the variable and a relocation against its symbol; the section of `.BTF` is last.
    let mut file = File::new();
    let var = file.types.var("second", 1, 1);
    let list = file.types.section(".data", &[[var, 0, 4]]);
    let position = u64::from(file.types.starts[list as usize - 1]) + 16;
    file.section(".data", 1, 3, &[0; 8]);
    let symbol = file.symbol("second", VARIABLE, ".data", 4, 4);
    let types = file.types.bytes();
    file.types = Default::default();
    file.section(".BTF", 1, 0, &types);
    let unrelocated = file.clone();
    assert_refused(&unrelocated, ".BTF", |reason| matches!(reason, Reason::Variable { .. }));
    // Another kind of relocation, and another section.
    let mut wrong = file.clone();
    wrong.relocate(".BTF", position, DATA64, symbol);
    assert_refused(&wrong, ".rel.BTF", |reason| matches!(reason, Reason::Relocation(_)));
    let mut wrong = file.clone();
    wrong.section(".bss", 8, 3, &[]).size = Some(8);
    let other = wrong.symbol("other", VARIABLE, ".bss", 4, 4);
    wrong.relocate(".BTF", position, 4, other);
    assert_refused(&wrong, ".BTF", |reason| matches!(reason, Reason::Relocation(_)));
    file.relocate(".BTF", position, 4, symbol);
    assert_eq!(accepted(&file).data[0].variables[0].offset, 4);
    let mut file = unrelocated;
    file.relocate(".BTF", position - 4, 4, symbol);
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Relocation(_)));
}

fn fact(name: &'static str, ty: impl FnOnce(&mut File) -> u32) -> File {
    let mut file = File::new();
    let ty = ty(&mut file);
    file.add_extern(".kconfig", name, ty, EXTERN);
    file
}

fn fact_type(object: &Object) -> KconfigType {
    object.kconfig[0].ty
}

#[test]
fn facts_about_the_kernel_have_known_names_and_types() {
    for name in ["LINUX_KERNEL_VERSION", "LINUX_HAS_BPF_COOKIE", "CONFIG_HZ_1000"] {
        accepted(&fact(name, |_| 1));
    }
    for name in ["LINUX_OTHER", "CONFIG_", "CONFIG_a", "hz", "LINUX_KERNEL_VERSION_2"] {
        assert_refused(&fact(name, |_| 1), ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
    }
    let text = |bytes| {
        fact("CONFIG_TEXT", move |file: &mut File| {
            let char = file.types.add("char", kind::INT, 0, 1, &[1 << 24 | 8]);
            file.types.array(char, bytes)
        })
    };
    assert_eq!(fact_type(&accepted(&text(60))), KconfigType::Text { bytes: 60 });
    for bytes in [0, 70_000] {
        assert_refused(&text(bytes), ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
    }
    let boolean = fact("CONFIG_B", |file| file.types.add("_Bool", kind::INT, 0, 1, &[4 << 24 | 8]));
    assert_eq!(fact_type(&accepted(&boolean)), KconfigType::Bool);
    let tristate = fact("CONFIG_T", |file| file.types.add("libbpf_tristate", kind::ENUM, 0, 4, &[]));
    assert_eq!(fact_type(&accepted(&tristate)), KconfigType::Tristate);
    let structure = fact("CONFIG_S", |file| file.types.structure("s", 4, &[("member", 1, 0)]));
    assert_refused(&structure, ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
}

#[test]
fn names_of_the_kernel_are_typed_or_only_addresses() {
    let mut file = File::new();
    let void = file.types.add("", kind::CONST, 0, 0, &[]);
    let queue = file.types.add("rq", kind::FWD, 0, 0, &[]);
    let vars = [file.types.var("jiffies_64", void, 2), file.types.var("runqueues", queue, 2)];
    file.types.section(".ksyms", &[[vars[0], 0, 0], [vars[1], 0, 0]]);
    file.symbol("jiffies_64", WEAK_EXTERN, "", 0, 0);
    file.symbol("runqueues", EXTERN, "", 0, 0);
    let object = accepted(&file);
    let kinds: Vec<_> = object.ksyms.iter().map(|one| (one.name.as_str(), one.presence)).collect();
    assert_eq!(kinds, [("jiffies_64", Presence::Optional), ("runqueues", Presence::Required)]);
    assert!(matches!(
        (object.ksyms[0].kind, object.ksyms[1].kind),
        (KsymKind::Address, KsymKind::Variable(_))
    ));
    // A pattern of names, one without types, one without a symbol, one that is the object's own.
    let wild = {
        let mut file = File::new();
        file.add_extern(".ksyms", "*", 1, WEAK_EXTERN);
        file
    };
    assert_refused(&wild, ".symtab", |reason| matches!(reason, Reason::Name(_)));
    let mut untyped = File::new();
    untyped.symbol("memcpy", EXTERN, "", 0, 0);
    assert_refused(&untyped, ".symtab", |reason| matches!(reason, Reason::Extern { .. }));
    let mut file = File::new();
    let var = file.types.var("jiffies_64", 1, 2);
    file.types.section(".ksyms", &[[var, 0, 0]]);
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
    let mut file = File::new();
    let var = file.types.var("jiffies_64", 1, 1);
    file.types.section(".ksyms", &[[var, 0, 0]]);
    file.symbol("jiffies_64", EXTERN, "", 0, 0);
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
    // A duplicate extern.
    let mut file = File::new();
    file.add_extern(".ksyms", "jiffies_64", 1, EXTERN);
    file.symbol("jiffies_64", EXTERN, "", 0, 0);
    assert_refused(&file, ".symtab", |reason| matches!(reason, Reason::Symbol { .. }));
}

/// A kernel struct with a function and a number.
fn filled_in(flags: [u8; 4]) -> File {
    let mut file = File::new();
    file.code("struct_ops/half", "half", &[returns(1)]);
    let signature = file.types.add("", kind::FUNC_PROTO, 0, 1, &[]);
    let pointer = file.types.pointer(signature);
    let ty = file.types.structure("tcp_congestion_ops", 16, &[("half", pointer, 0), ("flags", 1, 64)]);
    let var = file.types.var("mine", ty, 1);
    file.types.section(".struct_ops.link", &[[var, 0, 16]]);
    file.section(".struct_ops.link", 1, 3, &[&[0; 8][..], &flags, &[0; 4]].concat());
    file.symbol("mine", VARIABLE, ".struct_ops.link", 0, 16);
    file
}

#[test]
fn structs_of_the_kernel_have_programs_and_data() {
    let mut file = filled_in([7, 0, 0, 0]);
    let half = file.symbol_of("half");
    file.relocate(".struct_ops.link", 0, DATA64, half);
    let object = accepted(&file);
    let one = &object.struct_ops[0];
    assert_eq!((one.name.as_str(), one.ops.as_str(), one.by_link), ("mine", "tcp_congestion_ops", true));
    assert!(matches!(one.members[0].value, StructOpsValue::Program(_)));
    assert_eq!(one.members[1].value, StructOpsValue::Bytes(vec![7, 0, 0, 0]));
    // A program of another kind, a member that is not a function, a pointer with a value, bytes between
    // members.
    for (name, offset) in [("watch", 0), ("half", 8)] {
        let mut file = filled_in([0; 4]);
        let symbol = file.symbol_of(name);
        file.relocate(".struct_ops.link", offset, DATA64, symbol);
        let error = refused(&file);
        assert!(matches!(error.reason, Reason::StructOps { .. }), "{error}");
    }
    for position in [0, 13] {
        let mut file = filled_in([0; 4]);
        file.find(".struct_ops.link").bytes[position] = 1;
        assert_refused(&file, ".struct_ops.link", |reason| matches!(reason, Reason::StructOps { .. }));
    }
}

#[test]
fn members_of_structs_of_the_kernel_are_whole_values() {
    // Numbers in the names of members, types, offsets; the flag of bit fields.
    let with = |flag: u32, members: &dyn Fn(&mut File) -> Vec<[u32; 3]>| {
        let mut file = File::new();
        file.code("struct_ops/half", "half", &[returns(1)]);
        let members = members(&mut file);
        let members: Vec<_> = members
            .iter()
            .map(|[number, ty, at]| [file.types.string(&format!("member{number}")), *ty, *at])
            .collect();
        let len = members.len() as u32 | flag << 31;
        let ty = file.types.add("tcp_congestion_ops", kind::STRUCT, len, 16, members.as_flattened());
        let var = file.types.var("mine", ty, 1);
        file.types.section(".struct_ops.link", &[[var, 0, 16]]);
        file.section(".struct_ops.link", 1, 3, &[0; 16]);
        file.symbol("mine", VARIABLE, ".struct_ops.link", 0, 16);
        file
    };
    accepted(&with(0, &|_| vec![[0, 1, 0], [1, 1, 32]]));
    // Three bits of a number.
    let bits = with(1, &|_| vec![[0, 1, 3 << 24], [1, 1, 32]]);
    assert_refused(&bits, ".struct_ops.link", |reason| matches!(reason, Reason::StructOps { .. }));
    // The address of a program in a pointer to a number, and in one to a pointer to functions.
    let pointers: [fn(&mut File) -> u32; 2] = [
        |file| file.types.pointer(1),
        |file| {
            let signature = file.types.add("", kind::FUNC_PROTO, 0, 1, &[]);
            let pointer = file.types.pointer(signature);
            file.types.pointer(pointer)
        },
    ];
    for pointer in pointers {
        let mut file = with(0, &|file| vec![[0, pointer(file), 0]]);
        let half = file.symbol_of("half");
        file.relocate(".struct_ops.link", 0, DATA64, half);
        assert_refused(&file, ".struct_ops.link", |reason| matches!(reason, Reason::StructOps { .. }));
    }
}

#[test]
fn the_licence_is_short_text() {
    for (text, fine) in [
        (&b"Dual MIT/GPL\0"[..], true),
        (b"GPL", false),
        (b"\0", false),
        (b"GPL\0x", false),
        (b"G\x1b[2J\0", false),
        (&[b'x'; 65], false),
    ] {
        let mut file = File::new();
        file.find("license").bytes = text.to_vec();
        if fine {
            accepted(&file);
        } else {
            assert_refused(&file, "license", |reason| matches!(reason, Reason::License));
        }
    }
    let mut file = File::new();
    file.sections.retain(|one| one.name != "license");
    assert_eq!(accepted(&file).license, None);
}

#[test]
fn targets_are_parsed_and_printed_again() {
    for (form, text, printed) in [
        (TargetForm::Function, "do_unlinkat+0x4", "do_unlinkat+4"),
        (TargetForm::Function, "bpf_testmod:run", "bpf_testmod:run"),
        (TargetForm::Functions, "tcp_*", "tcp_*"),
        (TargetForm::Event, "sched/sched_switch", "sched/sched_switch"),
        (TargetForm::Name, "file_open", "file_open"),
        (TargetForm::Binary, "/bin/sh:main+16", "/bin/sh:main+16"),
        (TargetForm::Binary, "/bin/sh:4096", "/bin/sh:+4096"),
        (TargetForm::Binary, "/bin/sh:0x10", "/bin/sh:+16"),
        (TargetForm::Binary, "/bin/sh:ns::f(int, char*)+4", "/bin/sh:ns::f(int, char*)+4"),
        (TargetForm::Binary, "/bin/sh:f@a.c", "/bin/sh:f@a.c"),
        (TargetForm::Binary, "libc.so.6:malloc@GLIBC_2.2", "libc.so.6:malloc@GLIBC_2.2"),
        (TargetForm::Usdt, "/bin/sh:libc:setjmp", "/bin/sh:libc:setjmp"),
        (TargetForm::Nothing, "any word", ""),
    ] {
        let target = Target::parse(form, text).expect("a target of the form");
        assert_eq!(target.to_string(), printed);
        assert_eq!(Target::parse(form, printed), Some(target));
    }
    for (form, text) in [
        (TargetForm::Function, "*"),
        (TargetForm::Function, "a b"),
        (TargetForm::Function, "a+b"),
        (TargetForm::Function, "a+010"),
        (TargetForm::Function, "a+99999999999999999999"),
        (TargetForm::Event, "sched"),
        (TargetForm::Event, "sched/../x"),
        (TargetForm::Name, "a/b"),
        (TargetForm::Binary, ":main"),
        (TargetForm::Binary, "/bin/sh:\u{1b}"),
        (TargetForm::Binary, "/bin/sh@a.c:12"),
        (TargetForm::Usdt, "/bin/sh:setjmp"),
    ] {
        assert_eq!(Target::parse(form, text), None, "{text}");
    }
}

/// Returns a file with eight bytes in `.data` and a symbol `second` for the last four, and a typed variable.
fn with_variable(name: &str, linkage: u32, offset: u32) -> File {
    let mut file = File::new();
    let var = file.types.var(name, 1, linkage);
    file.types.section(".data", &[[var, offset, 4]]);
    file.section(".data", 1, 3, &[0; 8]);
    file.symbol("second", VARIABLE, ".data", 4, 4);
    file
}

#[test]
fn variables_with_a_type_and_no_symbol_are_static() {
    let object = accepted(&with_variable("third", 0, 0));
    let (_, third) = object.variable("third").expect("the variable is there");
    assert_eq!((third.linkage, third.offset, third.ty.is_some()), (Linkage::Static, 0, true));
    // A global variable has a symbol, and a name lies where its symbol does.
    for file in [with_variable("third", 1, 0), with_variable("second", 0, 0), with_variable("second", 1, 0)] {
        assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Variable { .. }));
    }
    let mut file = with_variable("second", 1, 4);
    assert_eq!(accepted(&file).data[0].variables.len(), 1);
    // A label has no bytes.
    file.symbol("label", VARIABLE, ".data", 4, 0);
    assert_eq!(accepted(&file).data[0].variables.len(), 1);
}

#[test]
fn attributes_of_variables_and_functions_are_kept() {
    let mut file = with_variable("second", 1, 4);
    let var = file.types.count - 1;
    file.types.add("contains:node:link", kind::DECL_TAG, 0, var, &[u32::MAX]);
    let object = accepted(&file);
    let attributes = |one: &super::super::model::Variable| {
        one.attributes.iter().map(|attribute| attribute.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(attributes(&object.data[0].variables[0]), ["contains:node:link"]);

    let mut file = File::new();
    let pointer = file.types.pointer(1);
    let param = file.types.string("ctx");
    let signature = file.types.add("", kind::FUNC_PROTO, 1, 1, &[param, pointer]);
    let function = file.types.add("watch", kind::FUNC, 1, signature, &[]);
    file.types.add("arg:nonnull", kind::DECL_TAG, 0, function, &[0]);
    file.types.add("bpf_fastcall", kind::DECL_TAG, 0, function, &[u32::MAX]);
    let section = file.types.string("xdp");
    file.ext.functions.push((section, vec![[0, function]]));
    let object = accepted(&file);
    let notes: Vec<_> =
        object.programs[0].body.notes.iter().map(|note| (note.param, note.attribute.as_str())).collect();
    assert_eq!(notes, [(None, "bpf_fastcall"), (Some(0), "arg:nonnull")]);
}

#[test]
fn an_extern_is_its_own_symbol() {
    let with = |own: bool| {
        let mut file = File::new();
        let vars = [file.types.var("jiffies_64", 1, 2), file.types.var("runqueues", 1, 2)];
        let list = file.types.section(".ksyms", &[[vars[0], 0, 0], [vars[1], 0, 0]]);
        let symbols = ["jiffies_64", "runqueues"].map(|name| file.symbol(name, EXTERN, "", 0, 0));
        let position = u64::from(file.types.starts[list as usize - 1]) + 16;
        let types = file.types.bytes();
        file.types = Default::default();
        file.section(".BTF", 1, 0, &types);
        file.relocate(".BTF", position, 4, symbols[usize::from(!own)]);
        file
    };
    assert_eq!(accepted(&with(true)).ksyms.len(), 2);
    assert_refused(&with(false), ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
}

#[test]
fn truth_values_of_the_kernel_have_one_byte() {
    let boolean = |bytes: u32| {
        let encoding = 4 << 24 | (bytes * 8);
        fact("CONFIG_B", move |file| file.types.add("_Bool", kind::INT, 0, bytes, &[encoding]))
    };
    assert_eq!(fact_type(&accepted(&boolean(1))), KconfigType::Bool);
    for bytes in [2, 4, 8] {
        assert_refused(&boolean(bytes), ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
    }
    let char = fact("CONFIG_C", |file| file.types.add("char", kind::INT, 0, 1, &[2 << 24 | 8]));
    assert_eq!(fact_type(&accepted(&char)), KconfigType::Char { signed: false });
    let signed = fact("CONFIG_C", |file| file.types.add("char", kind::INT, 0, 1, &[1 << 24 | 8]));
    assert_eq!(fact_type(&accepted(&signed)), KconfigType::Char { signed: true });
}

#[test]
fn structs_of_the_kernel_lie_apart_and_have_the_sizes_of_their_types() {
    // Offsets and sizes of two variables of a struct of eight bytes, in 16 bytes.
    let with = |entries: [[u32; 2]; 2], linkage: u32| {
        let mut file = File::new();
        let ty = file.types.structure("tcp_congestion_ops", 8, &[("flags", 1, 0)]);
        let vars = ["one", "two"].map(|name| file.types.var(name, ty, linkage));
        let entry = |at: usize| [vars[at], entries[at][0], entries[at][1]];
        file.types.section(".struct_ops.link", &[entry(0), entry(1)]);
        file.section(".struct_ops.link", 1, 3, &[0; 16]);
        for (name, [offset, bytes]) in ["one", "two"].into_iter().zip(entries) {
            file.symbol(name, VARIABLE, ".struct_ops.link", offset.into(), bytes.min(16 - offset).into());
        }
        file
    };
    assert_eq!(accepted(&with([[0, 8], [8, 8]], 1)).struct_ops.len(), 2);
    for entries in
        [[[0, 8], [4, 8]], [[0, 8], [0, 8]], [[0, 4], [8, 8]], [[0, 12], [12, 4]], [[0, 8], [12, 8]]]
    {
        assert_refused(&with(entries, 1), ".BTF", |reason| matches!(reason, Reason::StructOps { .. }));
    }
    assert_refused(&with([[0, 8], [8, 8]], 2), ".BTF", |reason| matches!(reason, Reason::StructOps { .. }));
    let mut file = with([[0, 8], [8, 8]], 1);
    file.symbols.last_mut().expect("the second struct").name = "other";
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::StructOps { .. }));
}

#[test]
fn a_tristate_is_the_type_of_libbpf() {
    let other = fact("CONFIG_T", |file| file.types.add("tristate", kind::ENUM, 0, 4, &[]));
    assert_refused(&other, ".BTF", |reason| matches!(reason, Reason::Extern { .. }));
}

#[test]
fn symbols_of_the_kernel_are_global_and_have_no_kind() {
    // A function, and a symbol of this file only.
    for info in [0x12, 0x00] {
        let mut file = File::new();
        let void = file.types.add("", kind::CONST, 0, 0, &[]);
        let index = u64::from(file.add_extern(".ksyms", "jiffies_64", void, info));
        let reason = "is nowhere, and is nothing of the kernel";
        assert_eq!(refused(&file).reason, Reason::Symbol { index, reason });
    }
}

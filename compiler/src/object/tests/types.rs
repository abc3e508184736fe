//! Invalid `.BTF` and `.BTF.ext`.

use super::super::error::TypeFault;
use super::super::limits::{MAX_NESTING, MAX_SECTIONS, MAX_TARGET_BYTES};
use super::super::model::Type;
use super::file::{DATA64, Ext, File, SECTION, Types, VARIABLE, kind, returns};
use super::{Object, Reason, accepted, assert_refused, refused};

/// Builds a variable of the type that a function adds.
fn with_type(bytes: u32, add: impl FnOnce(&mut Types) -> u32) -> File {
    let mut file = File::new();
    let ty = add(&mut file.types);
    let var = file.types.var("number", ty, 1);
    file.types.section(".data", &[[var, 0, bytes]]);
    file.section(".data", 1, 3, &vec![0; bytes as usize]);
    file.symbol("number", VARIABLE, ".data", 0, bytes.into());
    file
}

fn fault(file: &File) -> TypeFault {
    match refused(file).reason {
        Reason::Type { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

/// Returns the type of the variable.
fn ty(object: &Object) -> &Type {
    let ty = object.data[0].variables[0].ty.expect("the variable has a type");
    object.types.get(ty).expect("the type is there")
}

#[test]
fn types_are_kept_if_something_uses_them() {
    let file = with_type(16, |types| {
        types.structure("unused", 4, &[("member", 1, 0)]);
        let pointer = types.pointer(types.count + 2);
        types.structure("node", 16, &[("next", pointer, 0), ("number", 1, 64)])
    });
    let object = accepted(&file);
    assert_eq!(object.types.list.len(), 3);
    assert!(matches!(ty(&object), Type::Composite { bytes: 16, .. }));
}

#[test]
fn members_lie_inside_of_their_struct() {
    for (bytes, offset) in [(4, 8), (4, 32), (4, u32::MAX - 31), (0, 0), (8, 40), (8, 1)] {
        let file = with_type(8, |types| types.structure("wrong", bytes, &[("member", 1, offset)]));
        assert_eq!(fault(&file), TypeFault::Member(0), "{bytes} {offset}");
    }
    let union = |offset| with_type(8, |types| types.add("u", kind::UNION, 1, 8, &[0, 1, offset]));
    accepted(&union(0));
    assert_eq!(fault(&union(32)), TypeFault::Member(0));
}

#[test]
fn bit_fields_are_numbers_and_fit_them() {
    let field = |ty: u32, bits: u32, offset: u32| {
        with_type(8, |types| {
            let name = types.string("flags");
            types.add("s", kind::STRUCT, 1 << 31 | 1, 8, &[name, ty, bits << 24 | offset])
        })
    };
    accepted(&field(1, 3, 29));
    accepted(&field(1, 32, 32));
    // Of a number by another name.
    accepted(&with_type(8, |types| {
        let typedef = types.add("number", kind::TYPEDEF, 0, 1, &[]);
        let constant = types.add("", kind::CONST, 0, typedef, &[]);
        let name = types.string("flags");
        types.add("s", kind::STRUCT, 1 << 31 | 1, 8, &[name, constant, 3 << 24])
    }));
    assert_eq!(fault(&field(1, 33, 0)), TypeFault::BitField(0));
    assert_eq!(fault(&field(1, 3, 62)), TypeFault::Member(0));
    let pointer = with_type(8, |types| {
        let pointer = types.pointer(0);
        types.add("s", kind::STRUCT, 1 << 31 | 1, 8, &[0, pointer, 3 << 24])
    });
    assert_eq!(fault(&pointer), TypeFault::BitField(0));
}

#[test]
fn types_contain_themselves_through_pointers_to_structs_only() {
    // A struct in itself, through an array and a typedef; pointers and typedefs of themselves.
    let itself = with_type(8, |types| types.structure("s", 8, &[("member", types.count + 1, 0)]));
    assert_eq!(fault(&itself), TypeFault::Cycle);
    let through = with_type(8, |types| {
        let array = types.array(types.count + 2, 1);
        let typedef = types.add("t", kind::TYPEDEF, 0, types.count + 2, &[]);
        types.structure("s", 8, &[("member", array, 0)]);
        typedef
    });
    assert_eq!(fault(&through), TypeFault::Cycle);
    let pointer = with_type(8, |types| types.pointer(types.count + 1));
    assert_eq!(fault(&pointer), TypeFault::Cycle);
    let constant = with_type(8, |types| {
        types.pointer(types.count + 2);
        types.add("", kind::CONST, 0, types.count, &[])
    });
    assert_eq!(fault(&constant), TypeFault::Cycle);
    accepted(&with_type(8, |types| {
        let pointer = types.pointer(types.count + 2);
        types.structure("s", 8, &[("next", pointer, 0)])
    }));
}

#[test]
fn types_are_nested_at_most_so_deep() {
    let nested = |depth: u32| {
        with_type(4, |types| (0..depth).fold(1, |inner, _| types.structure("s", 4, &[("member", inner, 0)])))
    };
    accepted(&nested(MAX_NESTING));
    assert_eq!(fault(&nested(MAX_NESTING + 1)), TypeFault::Nesting);
    let pointers = |depth: u32| with_type(8, |types| (0..depth).fold(0, |inner, _| types.pointer(inner)));
    accepted(&pointers(MAX_NESTING));
    assert_eq!(fault(&pointers(MAX_NESTING + 1)), TypeFault::Nesting);
    // Deepest first: the reader's recursion does not grow with the file.
    let reversed = with_type(4, |types| {
        for _ in 0..100_000 {
            types.add("", kind::CONST, 0, types.count + 2, &[]);
        }
        types.int("last", 4)
    });
    assert!(matches!(fault(&reversed), TypeFault::Nesting));
}

/// Chains of each kind, from both ends: the reader's recursion does not grow with the file.
#[test]
fn every_kind_of_chain_has_an_end() {
    type Step = fn(&mut Types, u32) -> u32;
    let steps: [Step; 4] = [
        |types, inner| types.add("t", kind::TYPEDEF, 0, inner, &[]),
        |types, inner| types.array(inner, 1),
        |types, inner| types.structure("s", 4, &[("member", inner, 0)]),
        |types, inner| types.pointer(inner),
    ];
    for step in steps {
        let chain = |depth: u32| {
            with_type(8, |types| {
                let last = (0..depth).fold(1, |inner, _| step(types, inner));
                types.structure("kept", 8, &[("member", last, 0)])
            })
        };
        accepted(&chain(MAX_NESTING - 1));
        assert_eq!(fault(&chain(MAX_NESTING + 1)), TypeFault::Nesting);
        let reversed = with_type(4, |types| {
            for _ in 0..100_000 {
                let next = types.count + 2;
                step(types, next);
            }
            types.int("last", 4)
        });
        assert_eq!(fault(&reversed), TypeFault::Nesting);
    }
}

#[test]
fn signatures_have_values_and_dots_at_the_end() {
    let void = 0;
    let signature = |result: fn(&mut Types) -> u32, params: &dyn Fn(&mut Types) -> Vec<[u32; 2]>| {
        let file = with_type(8, |types| {
            let (result, params) = (result(types), params(types));
            let signature =
                types.add("", kind::FUNC_PROTO, params.len() as u32, result, params.as_flattened());
            types.pointer(signature)
        });
        match super::read(&file.bytes()) {
            Ok(_) => drop(accepted(&file)),
            Err(_) => assert!(matches!(fault(&file), TypeFault::Reference(_))),
        }
        super::read(&file.bytes()).is_ok()
    };
    let int: fn(&mut Types) -> u32 = |_| 1;
    let array: fn(&mut Types) -> u32 = |types| types.array(1, 1);
    assert!(signature(int, &|_| vec![[0, 1], [0, 1]]));
    // `...` is without name and type, and last.
    assert!(signature(int, &|_| vec![[0, 1], [0, void]]));
    assert!(!signature(int, &|_| vec![[0, void], [0, 1]]));
    assert!(!signature(int, &|types| vec![[types.string("named"), void]]));
    assert!(!signature(int, &|types| vec![[0, types.array(1, 1)]]));
    assert!(!signature(array, &|_| Vec::new()));
    assert!(!signature(|types| types.add("f", kind::FWD, 0, 0, &[]), &|_| Vec::new()));
    assert!(signature(|_| 0, &|_| Vec::new()));
    assert!(signature(|types| types.add("", kind::CONST, 0, 0, &[]), &|_| Vec::new()));
    assert!(signature(|types| types.add("nothing", kind::TYPEDEF, 0, 0, &[]), &|_| Vec::new()));
}

#[test]
fn lists_of_variables_have_variables() {
    let with = |section: &str, entry: fn(&mut Types) -> u32| {
        let mut file = File::new();
        let entry = entry(&mut file.types);
        file.types.section(section, &[[entry, 0, 4]]);
        refused(&file)
    };
    let function: fn(&mut Types) -> u32 = |types| {
        let signature = types.add("", kind::FUNC_PROTO, 0, 0, &[]);
        types.add("function", kind::FUNC, 2, signature, &[])
    };
    for (section, entry) in [(".data", function), (".kconfig", function), (".ksyms", |_| 1)] {
        let error = with(section, entry);
        assert!(matches!(error.reason, Reason::Type { fault: TypeFault::Reference(_), .. }), "{error}");
    }
}

#[test]
fn floating_point_numbers_have_the_sizes_of_c() {
    let float = |bytes| with_type(16, |types| types.add("float", kind::FLOAT, 0, bytes, &[]));
    for bytes in [2, 4, 8, 12, 16] {
        accepted(&float(bytes));
    }
    for bytes in [0, 1, 3, 10, 32] {
        assert!(matches!(fault(&float(bytes)), TypeFault::Size { .. }), "{bytes}");
    }
}

#[test]
fn a_wrong_type_is_reported_where_it_stands() {
    for before in [0, 1, 3] {
        let file = with_type(8, |types| {
            (0..before).for_each(|_| _ = types.structure("s", 4, &[("member", 1, 0)]));
            types.add("", 0, 0, 4, &[])
        });
        let id = before + 2;
        let start = file.types.starts[id as usize - 1];
        let error = refused(&file);
        assert_eq!((error.section.as_deref(), error.offset), (Some(".BTF"), u64::from(start)));
        assert_eq!(error.reason, Reason::Type { id, fault: TypeFault::Kind(0) });
    }
    // As many types as there may be, and one more; the variable and its section are types, too.
    let many = |count: u32| with_type(8, |types| (2..count).map(|_| types.pointer(1)).last().expect("some"));
    accepted(&many((1 << 17) - 1));
    assert!(matches!(refused(&many(1 << 17)).reason, Reason::TooMany { what: "types", .. }));
}

#[test]
fn references_are_to_types_that_may_stand_there() {
    for target in [99, u32::MAX] {
        assert_eq!(fault(&with_type(8, |types| types.pointer(target))), TypeFault::Reference(target));
    }
    let to_var = with_type(8, |types| {
        let var = types.var("v", 1, 0);
        types.pointer(var)
    });
    assert!(matches!(fault(&to_var), TypeFault::Reference(_)));
    let without_size = with_type(8, |types| {
        let forward = types.add("f", kind::FWD, 0, 0, &[]);
        types.structure("s", 8, &[("member", forward, 0)])
    });
    assert_eq!(fault(&without_size), TypeFault::NoSize);
    let by_value = with_type(8, |types| {
        let forward = types.add("f", kind::FWD, 0, 0, &[]);
        let signature = types.add("", kind::FUNC_PROTO, 1, 1, &[0, forward]);
        types.pointer(signature)
    });
    assert!(matches!(fault(&by_value), TypeFault::Reference(_)));
}

#[test]
fn sizes_fit() {
    // The number of a map definition is the length of a pointed-to array.
    accepted(&with_type(8, |types| types.number(u32::MAX)));
    let large = with_type(8, |types| types.array(1, 0x1000_0001));
    assert!(matches!(refused(&large).reason, Reason::Variable { .. }));
    let larger = with_type(8, |types| {
        let array = types.array(1, 0x1000_0001);
        types.array(array, 0x1000_0001)
    });
    assert_eq!(fault(&larger), TypeFault::NoSize);
    accepted(&with_type(8, |types| {
        let largest = types.structure("s", 1 << 30, &[]);
        types.pointer(largest)
    }));
    let structure = with_type(8, |types| types.structure("s", (1 << 30) + 1, &[]));
    assert_eq!(fault(&structure), TypeFault::TooLarge);
    assert!(matches!(fault(&with_type(8, |types| types.int("i", 3))), TypeFault::Size { .. }));
    assert!(matches!(
        fault(&with_type(8, |types| types.add("e", kind::ENUM, 0, 3, &[]))),
        TypeFault::Size { .. }
    ));
    // A type that is larger than its variable.
    let file = with_type(4, |types| types.int("long", 8));
    assert!(matches!(refused(&file).reason, Reason::Variable { .. }));
}

#[test]
fn reserved_fields_are_zero_and_kinds_are_known() {
    assert_eq!(fault(&with_type(8, |types| types.add("", kind::PTR, 1, 0, &[]))), TypeFault::Reserved);
    assert_eq!(fault(&with_type(8, |types| types.add("", kind::PTR, 1 << 31, 0, &[]))), TypeFault::Reserved);
    assert_eq!(
        fault(&with_type(8, |types| types.add("i", kind::INT, 0, 4, &[1 << 16 | 32]))),
        TypeFault::Reserved
    );
    assert_eq!(
        fault(&with_type(8, |types| types.add("i", kind::INT, 0, 4, &[3 << 24 | 32]))),
        TypeFault::Reserved
    );
    assert_eq!(fault(&with_type(8, |types| types.add("x", 20, 0, 4, &[]))), TypeFault::Kind(20));
    assert_eq!(fault(&with_type(8, |types| types.add("", 0, 0, 4, &[]))), TypeFault::Kind(0));
    assert_eq!(fault(&with_type(8, |types| types.add("named", kind::PTR, 0, 0, &[]))), TypeFault::Name);
    assert_eq!(fault(&with_type(8, |types| types.add("", kind::TYPEDEF, 0, 1, &[]))), TypeFault::Name);
}

#[test]
fn attributes_are_those_that_are_known() {
    let tagged = |text: &str| {
        with_type(8, |types| {
            let tagged = types.add(text, kind::TYPE_TAG, 0, 1, &[]);
            types.pointer(tagged)
        })
    };
    accepted(&tagged("kptr"));
    assert_eq!(fault(&tagged("address_space(1)")), TypeFault::Attribute);
    let declared = |text: &str, component: u32| {
        with_type(4, |types| {
            let ty = types.structure("s", 4, &[("member", 1, 0)]);
            types.add(text, kind::DECL_TAG, 0, ty, &[component]);
            ty
        })
    };
    assert_eq!(accepted(&declared("contains:node:link", 0)).types.notes.len(), 1);
    assert_eq!(fault(&declared("exception_callback:watch", u32::MAX)), TypeFault::Attribute);
    assert!(matches!(fault(&declared("arg:ctx", 1)), TypeFault::Reference(_)));
}

#[test]
fn strings_begin_where_strings_begin() {
    for offset in [2, 4000, u32::MAX] {
        let mut file = with_type(8, |types| types.pointer(1));
        let at = file.types.starts[0] as usize - 24;
        file.types.records[at..at + 4].copy_from_slice(&u32::to_le_bytes(offset));
        assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::StringOffset(_)));
    }
    let mut file = with_type(8, |types| types.pointer(1));
    file.types.strings.push(b'x');
    assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::TypeHeader(_)));
}

#[test]
fn names_do_nothing_on_a_terminal() {
    let named = |name: &str| with_type(4, |types| types.structure(name, 4, &[("member", 1, 0)]));
    let object = accepted(&named("Option<u32>"));
    assert!(
        matches!(ty(&object), Type::Composite { name: Some(name), .. } if name.as_str() == "Option_u32_")
    );
    for name in ["a\u{1b}[2J", "a\nb", "ä", &"x".repeat(512)] {
        assert_refused(&named(name), ".BTF", |reason| matches!(reason, Reason::Name(_)));
    }
}

#[test]
fn headers_of_types_are_of_version_1() {
    let with = |at: usize, value: &[u8]| {
        let mut file = with_type(8, |types| types.pointer(1));
        let bytes = file.bytes();
        let start = bytes.windows(4).position(|four| four == [0x9f, 0xeb, 1, 0]).expect("BTF is there");
        file.patches.push((start + at, value.to_vec()));
        refused(&file)
    };
    for (at, value) in [(0, 0xeb), (1, 0x9f), (2, 0), (2, 2), (3, 1)] {
        let error = with(at, &[value]);
        assert!(error.to_string().contains("magic number, version or flags"), "{at}: {error}");
    }
    assert!(with(4, &[32, 0, 0, 0]).to_string().contains("since Linux 7.1"));
    assert!(with(4, &[28, 0, 0, 0]).to_string().contains("the header has another size"));
}

#[test]
fn counts_are_not_believed() {
    let long = with_type(8, |types| types.add("s", kind::STRUCT, 0xffff, 8, &[0, 1, 0]));
    assert_refused(&long, ".BTF", |reason| matches!(reason, Reason::Outside(_)));
    for (at, value) in [(4, 28), (8, 4), (12, 0xffff_fff0), (16, 0xffff_fff0), (20, 0xffff_fff0)] {
        let mut file = with_type(8, |types| types.pointer(1));
        let bytes = file.bytes();
        let start = bytes.windows(4).position(|four| four == [0x9f, 0xeb, 1, 0]).expect("BTF is there");
        file.patches.push((start + at, u32::to_le_bytes(value).to_vec()));
        let error = refused(&file);
        assert!(matches!(error.reason, Reason::TypeHeader(_) | Reason::Outside(_)), "{at}: {error}");
    }
}

#[test]
fn records_of_lines_rise_and_are_about_instructions() {
    let base = |offsets: &[u32]| {
        let mut file = File::new();
        let (name, text) = (file.types.string("xdp"), file.types.string("return 2;\u{1b}[31m"));
        let lines = offsets.iter().map(|&offset| [offset, text, text, 7 << 10 | 3]);
        file.ext.lines.push((name, lines.collect()));
        file
    };
    let object = accepted(&base(&[0, 8]));
    let line = &object.programs[0].body.lines[1];
    assert_eq!((line.line, line.column, &*line.text), (7, 3, "return 2; [31m"));
    for offsets in [&[0, 0][..], &[8, 0], &[4], &[16], &[u32::MAX - 7]] {
        assert_refused(&base(offsets), ".BTF.ext", |reason| matches!(reason, Reason::TypeHeader(_)));
    }
    let mut file = base(&[0]);
    file.ext.lines[0].0 = file.types.string("license");
    assert_refused(&file, ".BTF.ext", |reason| matches!(reason, Reason::TypeHeader(_)));
    let mut file = base(&[0]);
    let same = file.ext.lines[0].clone();
    file.ext.lines.push(same);
    assert_refused(&file, ".BTF.ext", |reason| matches!(reason, Reason::TypeHeader(_)));
}

#[test]
fn records_of_functions_are_about_their_starts() {
    let base = |offset: u32, of_func: bool| {
        let mut file = File::new();
        let signature = file.types.add("", kind::FUNC_PROTO, 0, 1, &[]);
        let func = file.types.add("watch", kind::FUNC, 1, signature, &[]);
        let name = file.types.string("xdp");
        file.ext.functions.push((name, vec![[offset, if of_func { func } else { signature }]]));
        file
    };
    assert!(accepted(&base(0, true)).programs[0].body.signature.is_some());
    for file in [base(8, true), base(0, false), base(16, true)] {
        assert_refused(&file, ".BTF.ext", |reason| matches!(reason, Reason::TypeHeader(_)));
    }
}

#[test]
fn enumerators_have_the_values_of_the_file() {
    let values = |kind: u32, flag: u32, words: [u32; 2]| {
        let object = accepted(&with_type(8, |types| {
            let name = types.string("ONE");
            let tail = [name, words[0], words[1]];
            types.add("e", kind, flag << 31 | 1, 8, if kind == kind::ENUM { &tail[..2] } else { &tail })
        }));
        let Type::Enum { values, .. } = ty(&object) else { panic!("{object:#?}") };
        values[0].1
    };
    assert_eq!(values(kind::ENUM, 0, [u32::MAX, 0]), 0xffff_ffff);
    assert_eq!(values(kind::ENUM, 1, [u32::MAX, 0]), -1);
    assert_eq!(values(kind::ENUM64, 0, [7, 3]), 3 << 32 | 7);
    assert_eq!(values(kind::ENUM64, 1, [u32::MAX, u32::MAX]), -1);
}

#[test]
fn lists_of_variables_have_the_name_of_a_section() {
    for name in ["", "a b", "a\n", "\u{e9}", &"x".repeat(4097)] {
        let mut file = File::new();
        let var = file.types.var("v", 1, 1);
        file.types.section(name, &[[var, 0, 4]]);
        assert_refused(&file, ".BTF", |reason| matches!(reason, Reason::Name(_)));
    }
}

#[test]
fn records_of_code_without_a_function_are_of_lines() {
    // What is left of a weak function that the linker replaced.
    let base = || {
        let mut file = File::new();
        file.find("xdp").bytes.extend_from_slice(returns(0).as_flattened());
        let name = file.types.string("xdp");
        (file, name)
    };
    let (mut file, name) = base();
    file.ext.lines.push((name, vec![[0, 0, 0, 1 << 10], [16, 0, 0, 2 << 10]]));
    assert_eq!(accepted(&file).programs[0].body.lines.len(), 1);
    let (mut file, name) = base();
    let signature = file.types.add("", kind::FUNC_PROTO, 0, 1, &[]);
    let func = file.types.add("watch", kind::FUNC, 1, signature, &[]);
    file.ext.functions.push((name, vec![[0, func], [16, func]]));
    let error = refused(&file);
    assert_eq!(error.reason, Reason::TypeHeader("a record is about no instruction"));
}

#[test]
fn relocations_of_records_are_against_the_start_of_their_code() {
    const DATA32: u32 = 4;
    // The first record of lines: behind the header, the size of records, the name and the count.
    const RECORD: u64 = 32 + 4 + 8;
    let with = |kind: u32, symbol: &dyn Fn(&mut File) -> u32| {
        let mut file = File::new();
        let name = file.types.string("xdp");
        file.ext.lines.push((name, vec![[0, 0, 0, 1 << 10]]));
        let (types, ext) = (file.types.bytes(), file.ext.bytes());
        (file.types, file.ext) = (Types::default(), Ext::default());
        file.section(".BTF", 1, 0, &types);
        file.section(".BTF.ext", 1, 0, &ext);
        let symbol = symbol(&mut file);
        file.relocate(".BTF.ext", RECORD, kind, symbol);
        file
    };
    let start = |file: &mut File| file.symbol("", SECTION, "xdp", 0, 0);
    assert_eq!(accepted(&with(DATA32, &start)).programs[0].body.lines.len(), 1);
    let inside = |file: &mut File| file.symbol("", SECTION, "xdp", 8, 0);
    let other = |file: &mut File| file.symbol("", SECTION, "license", 0, 0);
    for (kind, symbol) in [(DATA64, &start as &dyn Fn(&mut File) -> u32), (DATA32, &inside), (DATA32, &other)]
    {
        let error = refused(&with(kind, symbol));
        assert!(matches!(error.reason, Reason::Relocation(_) | Reason::Symbol { .. }), "{error}");
    }
}

/// What one kind of chain counts, another kind does not.
#[test]
fn chains_of_several_kinds_have_an_end() {
    let mixed = |depth: u32| {
        with_type(8, |types| {
            let step = |inner, at| match at % 2 {
                0 => types.add("t", kind::TYPEDEF, 0, inner, &[]),
                _ => types.array(inner, 1),
            };
            let last = (0..depth).fold(1, step);
            types.structure("kept", 8, &[("member", last, 0)])
        })
    };
    accepted(&mixed(MAX_NESTING - 1));
    assert_eq!(fault(&mixed(MAX_NESTING)), TypeFault::Nesting);
}

#[test]
fn sections_of_variables_are_limited() {
    let mut file = File::new();
    let var = file.types.var("v", 1, 1);
    for _ in 0..=MAX_SECTIONS {
        file.types.section(".data", &[[var, 0, 4]]);
    }
    let (what, limit) = ("sections of variables", MAX_SECTIONS as u64);
    assert_eq!(refused(&file).reason, Reason::TooMany { what, found: limit + 1, limit });
}

#[test]
fn names_of_sections_are_as_long_as_targets() {
    for (bytes, fits) in [(MAX_TARGET_BYTES, true), (MAX_TARGET_BYTES + 1, false)] {
        let mut file = File::new();
        let var = file.types.var("v", 1, 1);
        file.types.section(&"x".repeat(bytes), &[[var, 0, 4]]);
        // There is no such section either way.
        assert_eq!(!matches!(refused(&file).reason, Reason::Name(_)), fits, "{bytes}");
    }
}

//! The ELF file as another reader sees it, and the builder's errors.

use crate::object::sample;
use ks_compiler::bpf::{CallTarget, Imm64, Insn, InsnIndex, MapRef, Reg, decode};
use ks_compiler::object::btf::{Btf, FuncLinkage, IntEncoding, Line, Type, TypeId};
use ks_compiler::object::build::{
    BuildError, CodeSection, DataSection, FunctionBody, FunctionDecl, GlobalDef, MapDef, MapSide,
    ObjectBuilder, Pinning,
};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SymbolKind, elf};

fn section<'a>(file: &'a object::File<'a>, name: &str) -> object::Section<'a, 'a> {
    file.section_by_name(name).unwrap_or_else(|| panic!("no section {name}"))
}

/// Returns offset, type and symbol of each relocation of a section.
fn relocations(file: &object::File<'_>, name: &str) -> Vec<(u64, u32, String)> {
    let target = |target| match target {
        RelocationTarget::Symbol(index) => {
            let symbol = file.symbol_by_index(index).expect("the symbol exists");
            match symbol.kind() {
                SymbolKind::Section => "section".to_owned(),
                _ => symbol.name().expect("it has a name").to_owned(),
            }
        }
        other => panic!("{other:?}"),
    };
    section(file, name)
        .relocations()
        .map(|(offset, relocation)| match relocation.flags() {
            RelocationFlags::Elf { r_type } => (offset, r_type, target(relocation.target())),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn sections_symbols_and_relocations_are_those_libbpf_expects() {
    let bytes = sample::everything();
    let file = object::File::parse(&*bytes).expect("it is an ELF file");
    assert_eq!(file.architecture(), object::Architecture::Bpf);
    assert!(file.is_little_endian());
    assert_eq!(section(&file, "license").data(), Ok(&b"GPL\0"[..]));
    assert_eq!(section(&file, ".bss").size(), 8);
    assert_eq!(section(&file, ".rodata").data(), Ok(&[3, 0, 0, 0, 0, 0, 0, 0][..]));
    assert_eq!(section(&file, ".data").data(), Ok(&[1, 0, 0, 0][..]));
    assert_eq!(section(&file, ".maps").size(), 32);

    let program = file.symbol_by_name("count_faults").expect("a symbol");
    assert!(program.is_global() && program.kind() == SymbolKind::Text && program.address() == 0);
    assert_eq!(program.size(), section(&file, "perf_event").size());
    let twice = file.symbol_by_name("twice").expect("a symbol");
    assert!(twice.is_local() && twice.kind() == SymbolKind::Text);
    let kfunc = file.symbol_by_name("bpf_iter_num_new").expect("a symbol");
    assert!(kfunc.is_undefined() && kfunc.is_global());

    let (map_or_data, call) = (elf::R_BPF_64_64, elf::R_BPF_64_32);
    let found = relocations(&file, "perf_event");
    let found: Vec<(u32, &str)> = found.iter().map(|(_, kind, symbol)| (*kind, symbol.as_str())).collect();
    assert_eq!(
        found,
        [
            (map_or_data, "total"),
            (map_or_data, "counts"),
            (call, "twice"),
            (map_or_data, "limit"),
            (call, "bpf_iter_num_new"),
            (call, "bpf_iter_num_next"),
            (map_or_data, "calls"),
            (call, "bpf_iter_num_destroy"),
        ]
    );
}

#[test]
fn relocated_calls_and_addresses_carry_the_addends_of_clang() {
    let bytes = sample::callback();
    let file = object::File::parse(&*bytes).expect("it is an ELF file");
    let code = section(&file, "perf_event").data().expect("it has content");
    let found = relocations(&file, "perf_event");
    // The address of a static function: .text itself, and the function's offset (two slots in front of it).
    assert_eq!(found[0], (8, elf::R_BPF_64_64, "section".to_owned()));
    assert_eq!(code[8..16], [0x18, 0x02, 0, 0, 16, 0, 0, 0]);
    // A call: BPF_PSEUDO_CALL in the source register, and -1.
    let (at, kind, symbol) = &found[1];
    assert_eq!((*kind, symbol.as_str()), (elf::R_BPF_64_32, "first"));
    let at = usize::try_from(*at).expect("small");
    assert_eq!(code[at..at + 8], [0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn the_same_calls_make_the_same_bytes() {
    assert_eq!(sample::everything(), sample::everything());
}

#[test]
fn the_types_of_the_object_are_read_back() {
    let bytes = sample::everything();
    let file = object::File::parse(&*bytes).expect("it is an ELF file");
    let btf = Btf::parse(section(&file, ".BTF").data().expect("it has content")).expect("it is BTF");
    let function = btf.find_function("twice").expect("no error").expect("written");
    assert_eq!(function.linkage, FuncLinkage::Static);
    let var = btf.find("counts", ks_compiler::object::btf::BtfKind::Var).expect("written");
    let Ok(Type::Var { ty, .. }) = btf.get(var) else { panic!("a variable") };
    assert_eq!(btf.size_of(ty), Ok(32));
    assert!(btf.field(ty, "max_entries").expect("no error").is_some());
    assert!(decode(section(&file, ".text").data().expect("it has content")).is_ok());
}

/// Builds an object with one program, which `change` makes invalid.
fn spoiled(change: impl FnOnce(&mut ObjectBuilder, &mut FunctionDecl, &mut FunctionBody)) -> BuildError {
    let mut object = ObjectBuilder::new();
    let btf = object.btf();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let context = btf.ptr(TypeId::VOID);
    let proto = btf.func_proto(int, &[("ctx", context)]);
    let mut decl = FunctionDecl {
        name: "program".to_owned(),
        section: CodeSection::Program("perf_event".to_owned()),
        linkage: FuncLinkage::Global,
        proto,
    };
    let mut body = FunctionBody { code: vec![Insn::mov(Reg::R0, 0), Insn::Exit], ..FunctionBody::default() };
    change(&mut object, &mut decl, &mut body);
    let function = object.declare_function(decl);
    object.define_function(function, body);
    object.finish().expect_err("it was spoiled")
}

fn global(bytes: u32, align: u32, initial: &[u8]) -> GlobalDef {
    GlobalDef {
        name: "variable".to_owned(),
        section: DataSection::Bss,
        ty: TypeId(1),
        bytes,
        align,
        initial: initial.to_vec(),
    }
}

fn line(at: u32, line: u32) -> Line {
    Line { at: InsnIndex(at), file: "a.ks".to_owned(), line, column: 1, text: String::new() }
}

#[test]
fn names_the_kernel_would_refuse_are_refused() {
    let error = spoiled(|_, decl, _| decl.name = "two words".to_owned());
    assert!(matches!(error, BuildError::Name { .. }), "{error}");
    let error = spoiled(|object, _, _| {
        object.add_map(MapDef {
            name: "program".to_owned(),
            map_type: 1,
            key: MapSide::Bytes(4),
            value: MapSide::Bytes(4),
            max_entries: 1,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
            inner: None,
        });
    });
    assert!(matches!(error, BuildError::DuplicateName(_)), "{error}");
}

#[test]
fn contradicting_variables_are_refused() {
    for def in [global(0, 1, &[]), global(4, 3, &[]), global(4, 4, &[1]), global(1, 1, &[1, 2])] {
        let error = spoiled(|object, _, _| {
            object.add_global(def);
        });
        assert!(matches!(error, BuildError::Global { .. }), "{error}");
    }
}

#[test]
fn line_tables_the_kernel_would_refuse_are_refused() {
    for lines in
        [vec![line(1, 1)], vec![line(0, 1), line(1, 2), line(0, 3)], vec![line(0, 0)], vec![line(2, 1)]]
    {
        let error = spoiled(|_, _, body| body.lines = lines);
        assert!(matches!(error, BuildError::Insn { .. }), "{error}");
    }
    let error = spoiled(|object, decl, body| {
        body.lines = vec![line(0, 1)];
        let other = object.declare_function(FunctionDecl { name: "other".to_owned(), ..decl.clone() });
        object.define_function(other, FunctionBody { lines: Vec::new(), ..body.clone() });
    });
    assert!(matches!(error, BuildError::Function { .. }), "{error}");
}

#[test]
fn instructions_that_no_object_can_hold_are_refused() {
    for insn in [
        Insn::load_imm64(Reg::R1, Imm64::MapFd(3)),
        Insn::Call { target: CallTarget::FunctionAt(InsnIndex(1)) },
        Insn::Call { target: CallTarget::KfuncId { btf_id: 1, module: 0 } },
    ] {
        let error = spoiled(|_, _, body| body.code.insert(0, insn));
        assert!(matches!(error, BuildError::Insn { .. }), "{error}");
    }
    let error = spoiled(|object, _, body| {
        let def = GlobalDef { ty: object.btf().int("int", 4, IntEncoding::Signed), ..global(4, 4, &[]) };
        let global = object.add_global(def);
        body.code.insert(0, Insn::load_imm64(Reg::R1, Imm64::Global { global, offset: 4 }));
    });
    assert!(matches!(error, BuildError::Insn { .. }), "{error}");
}

#[test]
fn references_to_nothing_are_refused() {
    let mut other = ObjectBuilder::new();
    let map: MapRef = other.add_map(MapDef {
        name: "map".to_owned(),
        map_type: 1,
        key: MapSide::None,
        value: MapSide::None,
        max_entries: 0,
        flags: 0,
        numa_node: None,
        pinning: Pinning::None,
        programs: Vec::new(),
        inner: None,
    });
    let error = spoiled(|_, _, body| body.code.insert(0, Insn::load_imm64(Reg::R1, Imm64::Map(map))));
    assert!(matches!(error, BuildError::Foreign(_)), "{error}");
}

#[test]
fn functions_without_a_body_or_with_a_wrong_section_are_refused() {
    let error = spoiled(|_, _, body| body.code.clear());
    assert!(matches!(error, BuildError::Function { .. }), "{error}");
    let error = spoiled(|_, decl, _| decl.linkage = FuncLinkage::Static);
    assert!(matches!(error, BuildError::Function { .. }), "{error}");
    let error = spoiled(|_, decl, _| decl.section = CodeSection::Program(".data".to_owned()));
    assert!(matches!(error, BuildError::Function { .. }), "{error}");
    let error = spoiled(|object, decl, _| {
        object.declare_function(FunctionDecl { name: "missing".to_owned(), ..decl.clone() });
    });
    assert!(matches!(error, BuildError::Function { .. }), "{error}");
}

//! Code, maps and global variables to an ELF object with type information and the script's lines.

mod core;

use std::collections::{BTreeMap, BTreeSet};

use ks_wit::section::{Arch, FAULT_COUNT_PREFIX};

use ks_wit::object;
use sha2::{Digest, Sha256};

use super::emit::{Code, Symbols};
use super::isel::{Symbol, Target};
use super::mir::core::{CoreField, CoreQuestion};
use super::mir::{self, Kfunc, Lost};
use super::scratch::SLOTS;
use super::section;
use crate::bpf::{CallTarget, FunctionRef, GlobalRef, Imm64, Insn, InsnIndex, KfuncRef, MapRef, disasm};
use crate::btf::{self, CoreRelo, Enumerator, FuncLinkage, IntEncoding, Line, Member, Signedness};
use crate::elf::{
    CodeSection, DataSection, ElfError, FunctionBody, FunctionDecl, GlobalDef, KfuncPresence, MapDef,
    MapSide, ObjectBuilder, Pinning,
};
use crate::hir::{ConfigId, FuncId, Function, GlobalId, Hir, Map, MapId, MapKind, RingId};
use crate::index::Id;
use crate::source::{SourceMap, Span};
use crate::split::Split;
use crate::types::{IntType, TypeId, TypeKind};

/// An object that is being made.
pub struct Assembly<'a> {
    hir: &'a Hir,
    builder: ObjectBuilder,
    maps: BTreeMap<MapId, MapRef>,
    configs: BTreeMap<ConfigId, MapRef>,
    rings: BTreeMap<RingId, MapRef>,
    prints: Option<MapRef>,
    /// What the records in it mean, for the host.
    print_table: Vec<u8>,
    lost: BTreeMap<Lost, GlobalRef>,
    globals: BTreeMap<GlobalId, GlobalRef>,
    functions: BTreeMap<FuncId, FunctionRef>,
    kfuncs: BTreeMap<Kfunc, KfuncRef>,
    scratch: Option<MapRef>,
    /// The arrays of programs, by the first one.
    programs: BTreeMap<FuncId, MapRef>,
    faults: BTreeMap<FuncId, GlobalRef>,
    core: core::Core,
    arch: Arch,
    code: Vec<(String, Vec<Insn>)>,
}

impl<'a> Assembly<'a> {
    /// An object with the maps and variables of a split, and functions without bodies.
    pub fn new(hir: &'a Hir, split: &Split, program: &mir::Program, arch: Arch) -> Assembly<'a> {
        let mut assembly = Assembly {
            hir,
            builder: ObjectBuilder::new(),
            maps: BTreeMap::new(),
            configs: BTreeMap::new(),
            rings: BTreeMap::new(),
            prints: None,
            print_table: Vec::new(),
            lost: BTreeMap::new(),
            globals: BTreeMap::new(),
            functions: BTreeMap::new(),
            kfuncs: BTreeMap::new(),
            scratch: None,
            programs: BTreeMap::new(),
            faults: BTreeMap::new(),
            core: core::Core::of(&program.functions),
            arch,
            code: Vec::new(),
        };
        split.maps.iter().for_each(|id| assembly.add_map(*id));
        split.configs.iter().for_each(|id| assembly.add_config(*id));
        split.rings.iter().for_each(|id| assembly.add_ring(*id));
        split.kernel_globals.iter().for_each(|id| assembly.add_global(*id));
        assembly.add_layout(split);
        program.functions.iter().for_each(|function| assembly.declare(function, program));
        assembly
    }

    fn add_map(&mut self, id: MapId) {
        let map = &self.hir.maps[id];
        let (key, value) = self.map_sides(map);
        let map = MapDef {
            name: map.name.clone(),
            map_type: map_type(map.kind),
            key,
            value,
            max_entries: map.max_entries,
            flags: map.flags,
            numa_node: (map.flags & NUMA_NODE != 0).then_some(map.numa_node),
            pinning: pinning(map.pinned),
            programs: Vec::new(),
        };
        self.maps.insert(id, self.builder.add_map(map));
    }

    /// The one-entry array map of a config block, whose value is the struct of its fields. Whoever loads the object writes
    /// the defaults.
    fn add_config(&mut self, id: ConfigId) {
        let config = &self.hir.configs[id];
        let key = self.builder.btf().int("u32", 4, IntEncoding::Unsigned);
        let value = self.ty(config.ty);
        let map = MapDef {
            name: format!("{}_config_map", config.name),
            map_type: map_type(MapKind::Array),
            key: MapSide::Type(key),
            value: MapSide::Type(value),
            max_entries: 1,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
        };
        self.configs.insert(id, self.builder.add_map(map));
    }

    /// The array of programs that tail calls lead to. The loader fills it.
    pub fn add_programs(&mut self, programs: &[FuncId]) {
        let Some(first) = programs.first() else { return };
        let name = self.unused_name(&format!("__programs{}", self.programs.len()));
        let programs: Vec<_> = programs.iter().map(|id| self.functions[id]).collect();
        let map = self.builder.add_program_array(&name, programs);
        self.programs.insert(*first, map);
    }

    /// The map of scratch slots, so many bytes each.
    pub fn add_scratch(&mut self, bytes: u32) {
        let name = self.unused_name("__scratch");
        let btf = self.builder.btf();
        let key = btf.int("u32", 4, IntEncoding::Unsigned);
        let byte = btf.int("u8", 1, IntEncoding::Unsigned);
        let value = btf.array(byte, bytes.next_multiple_of(8));
        self.scratch = Some(self.builder.add_map(MapDef {
            name,
            map_type: map_type(MapKind::PercpuArray),
            key: MapSide::Type(key),
            value: MapSide::Type(value),
            max_entries: SLOTS,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
        }));
    }

    /// The variable that counts a program's faults.
    fn fault_count(&mut self, program: FuncId) -> GlobalRef {
        if let Some(found) = self.faults.get(&program) {
            return *found;
        }
        let name = self.unused_name(&format!("{FAULT_COUNT_PREFIX}{}", self.hir.functions[program].name));
        let ty = self.builder.btf().int("u64", 8, IntEncoding::Unsigned);
        let (section, initial) = (DataSection::Bss, Vec::new());
        let added = self.builder.add_global(GlobalDef { name, section, ty, bytes: 8, align: 8, initial });
        self.faults.insert(program, added);
        added
    }

    /// A name that nothing of the script has.
    fn unused_name(&self, wanted: &str) -> String {
        let maps = self.hir.maps.iter().map(|map| &map.name);
        let globals = self.hir.globals.iter().map(|global| &global.name);
        let functions = self.hir.functions.iter().map(|function| &function.name);
        let taken: BTreeSet<_> = maps.chain(globals).chain(functions).collect();
        let mut name = wanted.to_owned();
        while taken.contains(&name) {
            name.push('_');
        }
        name
    }

    /// Keys and values; by their sizes where the kernel takes no types (kernel/bpf/syscall.c, `map_check_btf`, v6.12).
    fn map_sides(&mut self, map: &Map) -> (MapSide, MapSide) {
        let bytes = u32::try_from(self.hir.types.size(map.value)).unwrap_or(u32::MAX);
        match map.kind {
            MapKind::Queue | MapKind::Stack | MapKind::Bloom => (MapSide::None, MapSide::Bytes(bytes)),
            MapKind::StackTrace => (MapSide::Bytes(4), MapSide::Bytes(bytes)),
            kind => {
                let key = match kind.is_array() {
                    true => self.builder.btf().int("u32", 4, IntEncoding::Unsigned),
                    false => self.ty(map.key),
                };
                (MapSide::Type(key), MapSide::Type(self.ty(map.value)))
            }
        }
    }

    /// The ring buffer of printed lines, made when something is printed.
    fn prints(&mut self) -> MapRef {
        if let Some(found) = self.prints {
            return found;
        }
        let added = self.builder.add_map(MapDef {
            name: object::PRINTS.into(),
            map_type: RING_BUFFER,
            key: MapSide::None,
            value: MapSide::None,
            max_entries: PRINTS_BYTES,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
        });
        self.prints = Some(added);
        added
    }

    fn add_ring(&mut self, id: RingId) {
        let ring = &self.hir.rings[id];
        let map = MapDef {
            name: ring.name.clone(),
            map_type: RING_BUFFER,
            key: MapSide::None,
            value: MapSide::None,
            max_entries: ring.bytes,
            flags: 0,
            numa_node: None,
            pinning: pinning(ring.pinned),
            programs: Vec::new(),
        };
        self.rings.insert(id, self.builder.add_map(map));
    }

    /// The variable that counts something lost.
    fn lost(&mut self, lost: Lost) -> GlobalRef {
        if let Some(found) = self.lost.get(&lost) {
            return *found;
        }
        let name = match lost {
            Lost::Record(ring) => &self.hir.rings[ring].name,
            Lost::Update(map) => &self.hir.maps[map].name,
            Lost::Print => object::PRINTS,
        };
        let name = object::lost_variable(name);
        let ty = self.builder.btf().int("u64", 8, IntEncoding::Unsigned);
        let added = self.builder.add_global(GlobalDef {
            name,
            section: DataSection::Bss,
            ty,
            bytes: 8,
            align: 8,
            initial: Vec::new(),
        });
        self.lost.insert(lost, added);
        added
    }

    fn add_global(&mut self, id: GlobalId) {
        let global = &self.hir.globals[id];
        let is_zero = global.init.iter().all(|byte| *byte == 0);
        let types = &self.hir.types;
        // Copies of aggregates rely on this alignment.
        let align = types.scalar(global.ty).map_or(8, |int| int.bytes() as u32);
        let ty = self.ty(global.ty);
        let global = GlobalDef {
            name: global.name.clone(),
            section: match is_zero {
                _ if global.pinned => DataSection::Pinned,
                true => DataSection::Bss,
                false => DataSection::Data,
            },
            ty,
            bytes: u32::try_from(types.size(global.ty)).unwrap_or(u32::MAX),
            align,
            initial: if is_zero && !global.pinned { Vec::new() } else { global.init.clone() },
        };
        self.globals.insert(id, self.builder.add_global(global));
    }

    /// What the host compares the pinned variables of an earlier run with.
    fn add_layout(&mut self, split: &Split) {
        let pinned = split.kernel_globals.iter().map(|id| &self.hir.globals[*id]).filter(|one| one.pinned);
        let layout: String = pinned
            .map(|one| {
                format!("{}: {}: {}\n", one.name, self.hir.types.name(one.ty), self.hir.types.size(one.ty))
            })
            .collect();
        if layout.is_empty() {
            return;
        }
        let ty = self.builder.btf().int("u64", 8, IntEncoding::Unsigned);
        self.builder.add_global(GlobalDef {
            name: object::PINNED_LAYOUT.into(),
            section: DataSection::Pinned,
            ty,
            bytes: 8,
            align: 8,
            initial: Sha256::digest(layout).get(..8).unwrap_or_default().to_vec(),
        });
    }

    fn declare(&mut self, declared: &mir::Function, program: &mir::Program) {
        let id = declared.id;
        let Some(function) = self.hir.functions.get(id) else {
            return self.declare_body(declared, program);
        };
        let (section, linkage) = if function.kind.is_program() {
            (CodeSection::Program(section::of(function, self.arch)), FuncLinkage::Global)
        } else {
            (CodeSection::Text, FuncLinkage::Static)
        };
        let result = match self.hir.types.scalar(function.ret) {
            Some(_) => self.ty(function.ret),
            None => self.builder.btf().int("i32", 4, IntEncoding::Signed),
        };
        let proto = if function.kind.is_program() {
            let context = self.builder.btf().ptr(btf::TypeId::VOID);
            let params: Vec<_> = declared.params.iter().map(|name| (name.as_str(), context)).collect();
            self.builder.btf().func_proto(result, &params)
        } else {
            let types: Vec<_> = declared.params.iter().map(|name| self.param_type(function, name)).collect();
            let names = declared.params.iter().map(String::as_str);
            let params: Vec<_> = names.zip(types).collect();
            self.builder.btf().func_proto(result, &params)
        };
        let name = function.name.clone();
        let decl = FunctionDecl { name, section, linkage, proto };
        self.functions.insert(id, self.builder.declare_function(decl));
    }

    /// The type of a helper's parameter; what lies in memory is passed by its address, as is what the script does not have.
    fn param_type(&mut self, function: &Function, name: &str) -> btf::TypeId {
        let local = function.params.iter().map(|id| &function.locals[*id]).find(|local| local.name == name);
        let pointed = match local.map(|local| local.ty) {
            Some(ty) if self.hir.types.scalar(ty).is_some() => return self.ty(ty),
            Some(ty) => match self.hir.types.kind(ty) {
                TypeKind::Ptr(_) => btf::TypeId::VOID,
                _ => self.ty(ty),
            },
            None => btf::TypeId::VOID,
        };
        self.builder.btf().ptr(pointed)
    }

    /// The function of a loop's body, which the verifier looks at on its own: it needs to know the parameters.
    fn declare_body(&mut self, body: &mir::Function, program: &mir::Program) {
        let name = self.unused_name(&format!("{}_{}", body.name, body.id.index() - self.hir.functions.len()));
        let btf = self.builder.btf();
        let byte = btf.int("u8", 1, IntEncoding::Unsigned);
        let scratch = btf.array(byte, program.scratch_bytes.next_multiple_of(8));
        let scratch = btf.ptr(scratch);
        let context = btf.structure(program.context.unwrap_or("__ctx"), 0, &[]);
        let context = btf.ptr(context);
        let params: Vec<_> = body.params.iter().map(String::as_str).zip([scratch, context]).collect();
        let result = btf.int("i32", 4, IntEncoding::Signed);
        let proto = btf.func_proto(result, &params);
        let decl = FunctionDecl { name, section: CodeSection::Text, linkage: FuncLinkage::Global, proto };
        self.functions.insert(body.id, self.builder.declare_function(decl));
    }

    /// What the records of printed lines mean.
    pub fn print_table(&mut self, table: Vec<u8>) {
        self.print_table = table;
    }

    /// Gives a function its body.
    pub fn define(&mut self, id: FuncId, name: &str, code: Code, sources: &SourceMap) {
        let Some(function) = self.functions.get(&id) else {
            return;
        };
        let lines = code.spans.iter().map(|(at, span)| line(sources, *at, *span)).collect();
        self.code.push((name.to_owned(), code.insns.clone()));
        let body = FunctionBody { code: code.insns, lines, relos: code.relos };
        self.builder.define_function(*function, body);
    }

    /// The instructions as text.
    pub fn text(&self) -> String {
        let one = |(name, insns): &(String, Vec<Insn>)| {
            format!("{name}:\n{}", disasm(insns, &|symbol| self.builder.symbol_name(symbol)))
        };
        let functions: Vec<_> = self.code.iter().map(one).collect();
        functions.join("\n")
    }

    /// Something of the script that is in the object: there is nothing to fail in an empty one.
    pub fn any_span(&self) -> Option<Span> {
        let functions = self.functions.keys().filter_map(|id| Some(self.hir.functions.get(*id)?.span));
        functions.chain(self.maps.keys().map(|id| self.hir.maps[*id].span)).next()
    }

    /// The ELF file.
    ///
    /// # Errors
    /// Sizes that the formats cannot express; else mistakes of this compiler.
    pub fn finish(mut self) -> Result<Vec<u8>, ElfError> {
        if self.prints.is_some() {
            self.builder.add_section(object::PRINTS_SECTION, self.print_table.clone());
        }
        self.builder.finish()
    }

    /// A type of the language in BTF.
    fn ty(&mut self, id: TypeId) -> btf::TypeId {
        let types = &self.hir.types;
        match types.kind(id) {
            TypeKind::Bool => self.builder.btf().int("bool", 1, IntEncoding::Bool),
            TypeKind::Char => self.builder.btf().int("char", 1, IntEncoding::Char),
            TypeKind::Int(int) => self.int(*int),
            TypeKind::Str(size) => {
                let char = self.builder.btf().int("char", 1, IntEncoding::Char);
                self.builder.btf().array(char, *size)
            }
            TypeKind::Array(element, len) => {
                let element = self.ty(*element);
                self.builder.btf().array(element, u32::try_from(*len).unwrap_or(u32::MAX))
            }
            TypeKind::Struct(def) => {
                let def = types.struct_def(*def);
                let fields: Vec<_> = def.fields.iter().map(|field| self.ty(field.ty)).collect();
                let TypeKind::Struct(key) = types.kind(id) else { return btf::TypeId::VOID };
                let members: Vec<_> = (def.fields.iter().zip(fields).enumerate())
                    .map(|(index, (field, ty))| {
                        let offset = types.field_offset(*key, index);
                        Member::at(&field.name, ty, u32::try_from(offset).unwrap_or(u32::MAX))
                    })
                    .collect();
                let bytes = u32::try_from(types.size(id)).unwrap_or(u32::MAX);
                self.builder.btf().structure(&def.name, bytes, &members)
            }
            TypeKind::Enum(def) => {
                let def = types.enum_def(*def);
                let (repr, sign) =
                    (def.repr, if def.repr.signed { Signedness::Signed } else { Signedness::Unsigned });
                let values: Vec<_> = (def.enumerators.iter())
                    .map(|(name, bits)| Enumerator { name, value: repr.value(*bits) as i64 })
                    .collect();
                self.builder.btf().enumeration(&def.name, repr.bytes() as u32, sign, &values)
            }
            _ => self.int(IntType { bits: 64, signed: false }),
        }
    }

    fn int(&mut self, int: IntType) -> btf::TypeId {
        let encoding = if int.signed { IntEncoding::Signed } else { IntEncoding::Unsigned };
        self.builder.btf().int(&int.to_string(), int.bytes() as u32, encoding)
    }

    fn kfunc(&mut self, kfunc: Kfunc) -> KfuncRef {
        if let Some(found) = self.kfuncs.get(&kfunc) {
            return *found;
        }
        let btf = self.builder.btf();
        let int = btf.int("int", 4, IntEncoding::Signed);
        let word = btf.int("u64", 8, IntEncoding::Unsigned);
        let words = btf.array(word, 1);
        let iterator = btf.structure("bpf_iter_num", 8, &[Member::at("__opaque", words, 0)]);
        let iterator = btf.ptr(iterator);
        let proto = match kfunc {
            Kfunc::IterNumNew => btf.func_proto(int, &[("it", iterator), ("start", int), ("end", int)]),
            Kfunc::IterNumNext => {
                let turn = btf.ptr(int);
                btf.func_proto(turn, &[("it", iterator)])
            }
            Kfunc::IterNumDestroy => btf.func_proto(btf::TypeId::VOID, &[("it", iterator)]),
        };
        let added = self.builder.add_kfunc(kfunc.name(), proto, KfuncPresence::Required);
        self.kfuncs.insert(kfunc, added);
        added
    }
}

impl Symbols for Assembly<'_> {
    fn address(&mut self, symbol: Symbol) -> Imm64 {
        match symbol {
            Symbol::Map(id) => Imm64::Map(self.maps[&id]),
            Symbol::Config(id) => Imm64::Map(self.configs[&id]),
            Symbol::Ring(id) => Imm64::Map(self.rings[&id]),
            Symbol::Prints => Imm64::Map(self.prints()),
            Symbol::Lost(lost) => Imm64::Global { global: self.lost(lost), offset: 0 },
            Symbol::Global(id, offset) => Imm64::Global { global: self.globals[&id], offset },
            Symbol::Programs(first) => Imm64::Map(self.programs[&first]),
            Symbol::Scratch => Imm64::Map(self.scratch.expect("a program that claims a slot has the map")),
            Symbol::Faults(id) => Imm64::Global { global: self.fault_count(id), offset: 0 },
        }
    }

    fn core(&mut self, at: InsnIndex, field: &CoreField, question: CoreQuestion) -> (i32, CoreRelo) {
        self.core.relocation(self.builder.btf(), at, field, question)
    }

    fn callee(&mut self, target: Target) -> CallTarget {
        match target {
            Target::Helper(number) => CallTarget::Helper(number),
            Target::Kfunc(kfunc) => CallTarget::Kfunc(self.kfunc(kfunc)),
            Target::Function(id) => CallTarget::Function(self.functions[&id]),
        }
    }
}

fn pinning(pinned: bool) -> Pinning {
    if pinned { Pinning::ByName } else { Pinning::None }
}

/// BPF_F_NUMA_NODE. Source: include/uapi/linux/bpf.h, v6.12.
const NUMA_NODE: u32 = 4;
/// Bytes of the ring buffer of printed lines.
const PRINTS_BYTES: u32 = 256 << 10;
/// BPF_MAP_TYPE_RINGBUF.
const RING_BUFFER: u32 = 27;

/// Source: include/uapi/linux/bpf.h, `enum bpf_map_type`, v6.12.
fn map_type(kind: MapKind) -> u32 {
    match kind {
        MapKind::Hash => 1,
        MapKind::Array => 2,
        MapKind::PercpuHash => 5,
        MapKind::PercpuArray => 6,
        MapKind::StackTrace => 7,
        MapKind::LruHash => 9,
        MapKind::LruPercpuHash => 10,
        MapKind::LpmTrie => 11,
        MapKind::Queue => 22,
        MapKind::Stack => 23,
        MapKind::SkStorage => 24,
        MapKind::InodeStorage => 28,
        MapKind::TaskStorage => 29,
        MapKind::Bloom => 30,
        MapKind::CgroupStorage => 32,
    }
}

/// The script's place of an instruction; the file without its folders, which differ from machine to machine.
fn line(sources: &SourceMap, at: crate::bpf::InsnIndex, span: Span) -> Line {
    let (name, line, column) = sources.place(span);
    let file = name.rsplit('/').next().unwrap_or(name).replace('\0', " ");
    let text = sources.file(span.file).line_text(line);
    let text = String::from_utf8_lossy(text).replace('\0', " ");
    Line { at, file, line, column, text }
}

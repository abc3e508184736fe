//! Assembles code, maps and global variables to an ELF object with BTF and the script's line information.

mod core;
mod maps;
mod struct_ops;
mod timer;
mod types;
pub mod variables;

use std::collections::{BTreeMap, BTreeSet};

use ks_wit::object;
use ks_wit::section::Arch;

use super::emit::{MachineCode, Symbols};
use super::isel::{Symbol, Target};
use super::mir::core::{CoreField, CoreQuestion};
use super::mir::{self, Count, FunctionOrigin, Kfunc, MapSymbol};
use super::section;
use crate::bpf::{
    self, CallTarget, FunctionRef, GlobalRef, Imm64, Insn, InsnIndex, KernelVariableRef, KfuncRef,
    LabelError, MapRef, disasm,
};
use crate::hir::{
    self, ExternId, FuncId, FunctionKind, GlobalId, Hir, HirFunction, KernelVariableId, ProgramKind,
};
use crate::index::Id;
use crate::object::btf::{self, CoreRelo, FuncLinkage, IntEncoding, Line, Member};
use crate::object::build::{BuildError, CodeSection, FunctionBody, FunctionDecl, ObjectBuilder};
use crate::object::model::Presence;
use crate::object::table::{ARGUMENTS_OF_C, ARGUMENTS_OF_GO, Attribute, OPTIONAL};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use crate::types::TypeKind;

/// An object under construction.
pub struct Assembly<'a> {
    hir: &'a Hir,
    sources: &'a SourceMap,
    builder: ObjectBuilder,
    maps: BTreeMap<MapSymbol, MapRef>,
    /// The JSON table by which the host formats `print` records.
    print_table: Vec<u8>,
    counts: BTreeMap<Count, GlobalRef>,
    /// The counters of cut loops by name; loops on one line share one.
    cut_loops: BTreeMap<String, GlobalRef>,
    globals: BTreeMap<GlobalId, GlobalRef>,
    functions: BTreeMap<FuncId, FunctionRef>,
    /// The names of the script's functions in the object.
    symbols: BTreeMap<FuncId, String>,
    kfuncs: BTreeMap<Kfunc, KfuncRef>,
    externals: BTreeMap<ExternId, KfuncRef>,
    kernel_variables: BTreeMap<KernelVariableId, KernelVariableRef>,
    timers: BTreeMap<FuncId, timer::Timer>,
    core: core::Core,
    arch: Arch,
    code: Vec<(String, Vec<Insn>)>,
}

impl<'a> Assembly<'a> {
    /// Starts an object with the maps and variables of a split, and declared functions without bodies.
    pub fn new(
        hir: &'a Hir,
        split: &Split,
        program: &mir::Program,
        arch: Arch,
        sources: &'a SourceMap,
    ) -> Assembly<'a> {
        let mut assembly = Assembly {
            hir,
            sources,
            builder: ObjectBuilder::new(),
            maps: BTreeMap::new(),
            print_table: Vec::new(),
            counts: BTreeMap::new(),
            cut_loops: BTreeMap::new(),
            globals: BTreeMap::new(),
            functions: BTreeMap::new(),
            symbols: BTreeMap::new(),
            kfuncs: BTreeMap::new(),
            externals: BTreeMap::new(),
            kernel_variables: BTreeMap::new(),
            timers: BTreeMap::new(),
            core: core::Core::of(&program.functions),
            arch,
            code: Vec::new(),
        };
        split.maps.iter().for_each(|id| assembly.add_map(*id));
        split.configs.iter().for_each(|id| assembly.add_config(*id));
        split.rings.iter().for_each(|id| assembly.add_ring(*id));
        split.counters.iter().for_each(|id| assembly.add_counter(*id));
        split.kernel_globals.iter().for_each(|id| assembly.add_global(*id));
        assembly.add_layout(split);
        program.functions.iter().for_each(|function| assembly.declare(function, program));
        split.impls.iter().for_each(|id| assembly.add_struct_ops(*id));
        assembly
    }

    /// A name like `wanted` that no symbol of the script uses.
    fn unused_name(&self, wanted: &str) -> String {
        let maps = self.hir.maps.iter().map(|map| &map.name);
        let globals = self.hir.globals.iter().map(|global| &global.name);
        let functions = self.hir.functions.iter().map(|function| &function.name);
        let impls = self.hir.impls.iter().map(|block| &block.name);
        let taken: BTreeSet<_> =
            maps.chain(globals).chain(functions).chain(impls).chain(self.symbols.values()).collect();
        let mut name = wanted.to_owned();
        while taken.contains(&name) {
            name.push('_');
        }
        name
    }

    fn declare(&mut self, declared: &mir::MirFunction, program: &mir::Program) {
        let id = declared.id;
        let Some(function) = self.hir.functions.get(id) else {
            return match declared.origin {
                FunctionOrigin::Callback => self.declare_callback(declared),
                FunctionOrigin::Specialization(helper) => self.declare_static(declared, Some(helper)),
                FunctionOrigin::TaskId => self.declare_static(declared, None),
                FunctionOrigin::Body | FunctionOrigin::Script => self.declare_body(declared, program),
            };
        };
        if self.declare_timer(declared) {
            return;
        }
        let is_program = declared.is_program;
        let (section, linkage) = if is_program {
            let section = section::of(function, self.arch);
            let sleeps = program.sleeping.programs.contains(&id);
            (
                CodeSection::Program(if sleeps { section::sleeping(&section) } else { section }),
                FuncLinkage::Global,
            )
        } else {
            (CodeSection::Text, FuncLinkage::Static)
        };
        let result = match self.hir.types.scalar(function.ret) {
            Some(_) => self.ty(function.ret),
            None => self.builder.btf().int("i32", 4, IntEncoding::Signed),
        };
        let proto = if is_program {
            let context = self.builder.btf().ptr(btf::TypeId::VOID);
            let params: Vec<_> = declared.params.iter().map(|name| (name.as_str(), context)).collect();
            self.builder.btf().func_proto(result, &params)
        } else {
            let types: Vec<_> = declared.params.iter().map(|name| self.param_type(function, name)).collect();
            let names = declared.params.iter().map(String::as_str);
            let params: Vec<_> = names.zip(types).collect();
            self.builder.btf().func_proto(result, &params)
        };
        let name = self.symbol(id);
        self.symbols.insert(id, name.clone());
        let decl = FunctionDecl { name, section, linkage, proto };
        let found = self.builder.declare_function(decl);
        if let Some(convention) = self.convention(function) {
            self.builder.add_attribute(found, convention);
        }
        for target in &function.also {
            self.builder.add_attribute(found, Attribute::also(target));
        }
        if function.optional {
            self.builder.add_attribute(found, OPTIONAL);
        }
        self.functions.insert(id, found);
    }

    /// The attribute of a program that takes arguments of a function of a user program.
    fn convention(&self, function: &HirFunction) -> Option<&'static str> {
        let hir::Target::User { go, .. } = function.target else { return None };
        let mut params = function.params.iter().map(|param| function.locals[*param].ty);
        let takes_arguments = function.kind == FunctionKind::Program(ProgramKind::Uprobe)
            && params.any(|ty| !self.hir.types.is_context_pointer(ty));
        takes_arguments.then_some(if go { ARGUMENTS_OF_GO } else { ARGUMENTS_OF_C })
    }

    /// Declares a function that takes numbers and addresses: one that is none of the script, or a helper of the
    /// script for pointers of certain kinds.
    fn declare_static(&mut self, declared: &mir::MirFunction, helper: Option<FuncId>) {
        let helper = helper.map(|helper| &self.hir.functions[helper]);
        let mut params = Vec::with_capacity(declared.params.len());
        for (name, value) in declared.params.iter().zip(&declared.blocks[declared.entry()].params) {
            params.push((
                name.as_str(),
                match declared.values[*value] {
                    mir::Type::I32 => self.builder.btf().int("u32", 4, IntEncoding::Unsigned),
                    mir::Type::I64 => self.builder.btf().int("u64", 8, IntEncoding::Unsigned),
                    mir::Type::Ptr(_) => match helper {
                        Some(helper) => self.param_type(helper, name),
                        None => self.builder.btf().ptr(btf::TypeId::VOID),
                    },
                },
            ));
        }
        let result = match declared.ret {
            mir::Type::I64 => self.builder.btf().int("u64", 8, IntEncoding::Unsigned),
            _ => self.builder.btf().int("u32", 4, IntEncoding::Unsigned),
        };
        let proto = self.builder.btf().func_proto(result, &params);
        let name = self.unused_name(&declared.name);
        self.symbols.insert(declared.id, name.clone());
        let decl = FunctionDecl { name, section: CodeSection::Text, linkage: FuncLinkage::Static, proto };
        self.functions.insert(declared.id, self.builder.declare_function(decl));
    }

    /// The BTF type of a helper's parameter. Aggregates and hidden parameters are passed by address.
    fn param_type(&mut self, function: &HirFunction, name: &str) -> btf::TypeId {
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

    /// Declares the function that `bpf_loop` calls for each iteration. Source: include/uapi/linux/bpf.h,
    /// `bpf_loop`, v6.12.
    fn declare_callback(&mut self, callback: &mir::MirFunction) {
        let name = self.body_name(callback);
        let btf = self.builder.btf();
        let pointer = btf.ptr(btf::TypeId::VOID);
        // The callback of a map iteration takes the map, the key, the entry and the captured words; that of a
        // loop takes the index and the captured words.
        let types = match callback.params.len() {
            2 => vec![btf.int("u32", 4, IntEncoding::Unsigned), pointer],
            given => vec![pointer; given],
        };
        let params: Vec<_> = callback.params.iter().map(String::as_str).zip(types).collect();
        let result = btf.int("i32", 4, IntEncoding::Signed);
        let proto = btf.func_proto(result, &params);
        let decl = FunctionDecl { name, section: CodeSection::Text, linkage: FuncLinkage::Static, proto };
        self.functions.insert(callback.id, self.builder.declare_function(decl));
    }

    fn body_name(&self, body: &mir::MirFunction) -> String {
        self.unused_name(&format!("{}_{}", body.name, body.id.index() - self.hir.functions.len()))
    }

    /// Declares the function of an outlined loop body with its parameter types, because the verifier checks
    /// it on its own.
    fn declare_body(&mut self, body: &mir::MirFunction, program: &mir::Program) {
        let name = self.body_name(body);
        let btf = self.builder.btf();
        let byte = btf.int("u8", 1, IntEncoding::Unsigned);
        let scratch = btf.array(byte, program.scratch_bytes.next_multiple_of(8));
        let scratch =
            if program.loops.called { btf.int("u32", 4, IntEncoding::Unsigned) } else { btf.ptr(scratch) };
        let mut types = vec![scratch];
        let pointee_bytes = program.loops.pointee_bytes.get(&body.id).map_or(&[][..], Vec::as_slice);
        if body.params.len() > 1 + pointee_bytes.len() {
            let context = btf.structure(body.context.unwrap_or("__ctx"), 0, &[]);
            types.push(btf.ptr(context));
        }
        for bytes in pointee_bytes {
            let memory = btf.array(byte, *bytes);
            types.push(btf.ptr(memory));
        }
        let params: Vec<_> = body.params.iter().map(String::as_str).zip(types).collect();
        let result = btf.int("i32", 4, IntEncoding::Signed);
        let proto = btf.func_proto(result, &params);
        let decl = FunctionDecl { name, section: CodeSection::Text, linkage: FuncLinkage::Global, proto };
        self.functions.insert(body.id, self.builder.declare_function(decl));
    }

    /// Sets the JSON table by which the host formats `print` records.
    pub fn print_table(&mut self, table: Vec<u8>) {
        self.print_table = table;
    }

    /// Adds the body of a declared function.
    ///
    /// # Errors
    /// Reports a bug of this compiler.
    pub fn define(
        &mut self,
        id: FuncId,
        name: &str,
        code: MachineCode,
        sources: &SourceMap,
    ) -> Result<(), LabelError> {
        let Some(function) = self.functions.get(&id).copied() else { return Ok(()) };
        let lines = code.spans.iter().map(|(at, span)| line(sources, *at, *span)).collect();
        let name = if self.timers.contains_key(&id) {
            self.builder.symbol_name(bpf::Symbol::Function(function)).unwrap_or_default()
        } else {
            name.to_owned()
        };
        self.code.push((name, code.insns.clone()));
        let body = FunctionBody { code: code.insns, lines, relos: code.relos };
        self.builder.define_function(function, body);
        self.define_timer(id, function, sources)
    }

    /// The instructions as text.
    pub fn text(&self) -> String {
        let one = |(name, insns): &(String, Vec<Insn>)| {
            format!("{name}:\n{}", disasm(insns, &|symbol| self.builder.symbol_name(symbol)))
        };
        let functions: Vec<_> = self.code.iter().map(one).collect();
        functions.join("\n")
    }

    /// The span of any item of the script in the object; `None` only if it has none. An empty object cannot
    /// fail.
    pub fn any_span(&self) -> Option<Span> {
        let functions = self.functions.keys().filter_map(|id| Some(self.hir.functions.get(*id)?.span));
        let maps = self.maps.keys().filter_map(|map| match map {
            MapSymbol::Map(id) => Some(self.hir.maps[*id].span),
            _ => None,
        });
        functions.chain(maps).next()
    }

    /// Writes the ELF object.
    ///
    /// # Errors
    /// Reports sizes that the formats cannot express; any other error is a bug of this compiler.
    pub fn finish(mut self) -> Result<Vec<u8>, BuildError> {
        if self.maps.contains_key(&MapSymbol::Prints) {
            self.builder.add_section(object::PRINTS_SECTION, self.print_table.clone());
        }
        self.builder.finish()
    }

    fn kernel_variable(&mut self, id: KernelVariableId) -> KernelVariableRef {
        if let Some(found) = self.kernel_variables.get(&id) {
            return *found;
        }
        let hir = self.hir;
        let variable = &hir.kernel_variables[id];
        let ty = if variable.per_cpu { self.pointee(variable.pointer) } else { btf::TypeId::VOID };
        let added = self.builder.add_kernel_variable(&variable.name, ty);
        self.kernel_variables.insert(id, added);
        added
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
                let counter = btf.ptr(int);
                btf.func_proto(counter, &[("it", iterator)])
            }
            Kfunc::IterNumDestroy => btf.func_proto(btf::TypeId::VOID, &[("it", iterator)]),
        };
        let added = self.builder.add_kfunc(kfunc.name(), proto, Presence::Required);
        self.kfuncs.insert(kfunc, added);
        added
    }
}

impl Symbols for Assembly<'_> {
    fn address(&mut self, symbol: Symbol) -> Imm64 {
        match symbol {
            Symbol::Map(map) => Imm64::Map(self.map(map)),
            Symbol::Count(count) => Imm64::Global { global: self.count(count), offset: 0 },
            Symbol::Function(id) => Imm64::Function(self.functions[&id]),
            Symbol::Global(id, offset) => Imm64::Global { global: self.globals[&id], offset },
            Symbol::KernelVariable(id) => Imm64::KernelVariable(self.kernel_variable(id)),
        }
    }

    fn core(&mut self, at: InsnIndex, field: &CoreField, question: CoreQuestion) -> (i32, CoreRelo) {
        self.core.relocation(self.builder.btf(), at, field, question)
    }

    fn callee(&mut self, target: Target) -> CallTarget {
        match target {
            Target::Helper(helper) => CallTarget::Helper(helper.number()),
            Target::Kfunc(kfunc) => CallTarget::Kfunc(self.kfunc(kfunc)),
            Target::External(id) => match self.hir.externs[id].helper {
                Some(number) => CallTarget::Helper(number),
                None => CallTarget::Kfunc(self.external(id)),
            },
            Target::Function(id) => CallTarget::Function(self.functions[&id]),
        }
    }
}

/// The line information of an instruction. The file name has no directories, which differ between machines.
fn line(sources: &SourceMap, at: crate::bpf::InsnIndex, span: Span) -> Line {
    let (name, line, column) = sources.position(span);
    let file = name.rsplit('/').next().unwrap_or(name).replace('\0', " ");
    let text = sources.file(span.file).line_text(line);
    let text = String::from_utf8_lossy(text).replace('\0', " ");
    Line { at, file, line, column, text }
}

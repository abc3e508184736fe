//! State shared by the lowering of all functions: the module under construction and its addresses.

use std::collections::{BTreeMap, BTreeSet};

use wasm_encoder::ValType;

use super::abi::Abi;
use super::code::{DefinedId, ImportId, WasmCode, WasmGlobal};
use super::defer;
use super::load;
use super::maps::Table;
use super::memory::MAX_STATIC;
use super::module::{Module, Origin};
use super::perf;
use super::recursion;
use super::runtime::Routine;
use crate::diag::Diagnostic;
use crate::hir::{CounterId, FuncId, GlobalId, Hir, RingId};
use crate::plugin::contract::{HostFunction, HostResource};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use crate::types::TypeId;

/// Result of lowering a node; boxed, because a diagnostic is large and rare.
pub type Lower<T> = Result<T, Box<Diagnostic>>;

/// A value that lives for the whole run, in its own wasm global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptGlobal {
    /// Handle of a map.
    Map(Table),
    /// Which of two maps that `take` exchanges programs use: 0 for the first.
    ActiveBuffer(Table),
    /// Handle of a loaded program.
    Program(FuncId),
    /// Handle of a global variable of the BPF object.
    Variable(GlobalId),
    /// Start of a variable in shared memory; 0 if it is not mapped.
    VariableStart(GlobalId),
    /// Start of a map in shared memory; 0 if it is not mapped.
    MapStart(Table),
    /// The pending exception: address of a length followed by the text of the source line; 0 if none.
    Thrown,
    /// Code of the last exception.
    ThrownCode,
    /// Address of the newest pending deferred call's record; 0 if none.
    Deferred,
    /// Address of the newest link's record; 0 if none.
    Links,
}

/// Storage of a global variable of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalHome {
    /// At this address of linear memory.
    Memory(u32),
    /// In the BPF object, accessed by handle or shared memory.
    Object,
}

/// A constant text in linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// Address in linear memory.
    pub address: u32,
    /// Length in bytes.
    pub len: u32,
}

/// State of the compilation of one userspace half.
pub struct Cx<'a> {
    /// The typed program.
    pub hir: &'a Hir,
    /// Layouts of the contract's types.
    pub abi: Abi,
    /// The module under construction.
    pub module: Module,
    /// Address where the host writes results that do not fit one value. They are read directly after the
    /// call; the next call overwrites them.
    pub returned: u32,
    sources: &'a SourceMap,
    functions: BTreeMap<FuncId, DefinedId>,
    globals: BTreeMap<GlobalId, GlobalHome>,
    routines: BTreeMap<Routine, DefinedId>,
    kept: BTreeMap<KeptGlobal, WasmGlobal>,
    free_lists: Option<u32>,
    /// Pages of shared memory reserved for array maps.
    pub array_pages: u32,
    /// Routine that asks for the variables' addresses in shared memory; defined at the end (`shared`).
    pub share_variables: Option<DefinedId>,
    /// Address of the state of each used ring (`ring`).
    pub rings: BTreeMap<RingId, u32>,
    /// Functions that may be entered again before they return.
    pub recursive: BTreeSet<FuncId>,
    /// Whether a function of the half throws.
    pub throws: bool,
    /// Whether a function of the half defers calls.
    pub defers: bool,
    /// Whether the script checks the result of a `load`.
    pub tests_a_load: bool,
    /// Programs that the half loads.
    pub loaded: BTreeSet<FuncId>,
    /// Counters that BPF programs read.
    pub exposed_counters: BTreeSet<CounterId>,
    /// Perf options and kinds of events that the half uses.
    pub perf: perf::used::UsedFeatures,
}

impl<'a> Cx<'a> {
    /// Declares the functions and lays out the variables of the userspace half.
    ///
    /// # Errors
    /// If the variables exceed the plugin's memory limit.
    pub fn new(hir: &'a Hir, split: &Split, sources: &'a SourceMap) -> Lower<Cx<'a>> {
        let mut module = Module::new();
        let returned = module.statics.reserve(u64::from(Abi.largest_result()), 8);
        let mut cx = Cx {
            hir,
            abi: Abi,
            module,
            returned,
            sources,
            functions: BTreeMap::new(),
            globals: BTreeMap::new(),
            routines: BTreeMap::new(),
            kept: BTreeMap::new(),
            free_lists: None,
            array_pages: 0,
            share_variables: None,
            rings: BTreeMap::new(),
            recursive: recursion::recursive(hir, &split.user),
            throws: split.user.iter().any(|id| hir.functions[*id].throws),
            defers: split.user.iter().any(|id| defer::defers(&hir.functions[*id])),
            tests_a_load: load::tests_a_load(hir, &split.user),
            loaded: load::loaded(hir, &split.user),
            exposed_counters: split.counters.clone(),
            perf: perf::used::UsedFeatures::of(hir, &split.user),
        };
        for id in &split.user {
            cx.declare(*id);
        }
        for id in &split.plugin_globals {
            cx.lay_out(*id)?;
        }
        cx.globals.extend(split.kernel_globals.iter().map(|id| (*id, GlobalHome::Object)));
        Ok(cx)
    }

    /// Returns the wasm function of a script's function.
    pub fn function(&self, id: FuncId) -> DefinedId {
        *self.functions.get(&id).expect("the split names every function that userspace code reaches")
    }

    /// Returns the storage of a global variable.
    pub fn global(&self, id: GlobalId) -> GlobalHome {
        *self.globals.get(&id).expect("the split names every global that userspace code reaches")
    }

    /// Returns a host function, imported on first use.
    pub fn host(&mut self, function: HostFunction) -> ImportId {
        self.module.import(self.abi.import(function))
    }

    /// Returns the host function that drops a handle, imported on first use.
    pub fn drop_handle(&mut self, resource: HostResource) -> ImportId {
        self.module.import(self.abi.drop_import(resource))
    }

    /// Returns a routine of the runtime, defined on first use.
    pub fn routine(&mut self, routine: Routine) -> DefinedId {
        if let Some(id) = self.routines.get(&routine) {
            return *id;
        }
        let (params, results) = routine.signature();
        let id = self.module.declare(routine.name(self.hir), params, results);
        self.routines.insert(routine, id);
        let code = routine.code(self);
        self.module.define(id, code, None);
        id
    }

    /// Returns the wasm global of a kept value, created with the initial value `init` on first use.
    pub fn kept(&mut self, what: KeptGlobal, init: i32) -> WasmGlobal {
        if let Some(global) = self.kept.get(&what) {
            return *global;
        }
        let global = self.module.global(init);
        self.kept.insert(what, global);
        global
    }

    /// Returns whether a value has a wasm global already.
    pub fn is_kept(&self, what: KeptGlobal) -> bool {
        self.kept.contains_key(&what)
    }

    /// Returns the address of the heads of the heap's free lists, which take `bytes` bytes.
    pub fn free_lists(&mut self, bytes: u32) -> u32 {
        *self.free_lists.get_or_insert_with(|| self.module.statics.reserve(bytes.into(), 4))
    }

    /// Returns the used variables of the BPF object, each with the wasm global of its handle.
    pub fn kept_variables(&self) -> Vec<(GlobalId, WasmGlobal)> {
        let variable = |(what, global): (&KeptGlobal, &WasmGlobal)| match what {
            KeptGlobal::Variable(id) => Some((*id, *global)),
            _ => None,
        };
        self.kept.iter().filter_map(variable).collect()
    }

    /// Returns the variables accessed in shared memory, each with the wasm global of its address.
    pub fn shared_variables(&self) -> Vec<(GlobalId, WasmGlobal)> {
        let variable = |(what, global): (&KeptGlobal, &WasmGlobal)| match what {
            KeptGlobal::VariableStart(id) => Some((*id, *global)),
            _ => None,
        };
        self.kept.iter().filter_map(variable).collect()
    }

    /// Returns an upper bound of the size in bytes of the BPF object's variables, with padding.
    pub fn object_bytes(&self) -> u64 {
        let of_object = self.globals.iter().filter(|(_, home)| **home == GlobalHome::Object);
        of_object.map(|(id, _)| self.hir.types.size(self.hir.globals[*id].ty) + 8).sum()
    }

    /// Stores a constant text, each once.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> Text {
        let bytes = text.as_ref();
        Text { address: self.module.statics.constant(bytes), len: bytes.len() as u32 }
    }

    /// Returns the start of a message about a source range: `counters.ks:7: `.
    pub fn line_prefix(&self, span: Span) -> String {
        format!("{}: ", self.line(span))
    }

    /// Formats a source range as file and line: `counters.ks:7`.
    pub fn line(&self, span: Span) -> String {
        let (file, line, _) = self.sources.position(span);
        format!("{}:{line}", base_name(file))
    }

    /// Returns the start of a trap's message: `counters.ks:7:12: `.
    pub fn location_prefix(&self, span: Span) -> String {
        let (file, line, column) = self.sources.position(span);
        format!("{}:{line}:{column}: ", base_name(file))
    }

    /// Returns the line table of a script function. The instructions before its first statement belong to
    /// `span`.
    pub fn origin(&self, name: &str, span: Span, code: &WasmCode) -> Origin {
        let line = |span| self.sources.position(span).1;
        let mut lines = vec![(0, line(span))];
        lines.extend(code.spans().iter().map(|(position, span)| (*position, line(*span))));
        let (file, ..) = self.sources.position(span);
        Origin { name: name.to_owned(), file: base_name(file).to_owned(), lines }
    }

    /// Declares a function of the script. Aggregates are passed by address; the address of an aggregate
    /// result is the first parameter.
    fn declare(&mut self, id: FuncId) {
        let function = &self.hir.functions[id];
        let param_types: Vec<TypeId> =
            function.params.iter().map(|param| function.locals[*param].ty).collect();
        let (params, results) = self.core_signature(&param_types, function.ret);
        let defined = self.module.declare(function.name.clone(), &params, &results);
        self.functions.insert(id, defined);
    }

    /// Returns core parameters and results of functions of a type.
    pub fn core_signature(&self, param_types: &[TypeId], ret: TypeId) -> (Vec<ValType>, Vec<ValType>) {
        let mut params: Vec<ValType> = Vec::new();
        let mut results = Vec::new();
        match self.scalar_type(ret) {
            Some(ty) => results.push(ty),
            None if ret != self.hir.types.common().void => params.push(ValType::I32),
            None => {}
        }
        params.extend(param_types.iter().map(|ty| self.scalar_type(*ty).unwrap_or(ValType::I32)));
        (params, results)
    }

    /// Returns the core type of a scalar; none for aggregates and void.
    pub fn scalar_type(&self, ty: TypeId) -> Option<ValType> {
        let int = self.hir.types.scalar(ty)?;
        Some(if int.bits == 64 { ValType::I64 } else { ValType::I32 })
    }

    fn lay_out(&mut self, id: GlobalId) -> Lower<()> {
        let global = &self.hir.globals[id];
        let align = self.hir.types.align(global.ty) as u32;
        let size = self.hir.types.size(global.ty);
        let address = self.module.statics.variable(&global.init, size, align);
        if self.module.statics.overflow() {
            return Err(too_large(global.span, "the variables of the userspace half", MAX_STATIC));
        }
        self.globals.insert(id, GlobalHome::Memory(address));
        Ok(())
    }
}

/// Error: an object larger than a plugin's memory.
pub fn too_large(span: Span, what: &str, limit: u64) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(1004, span, format!("{what} need more than {limit} bytes"))
            .label("this does not fit the plugin's memory"),
    )
}

/// Returns the file name of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

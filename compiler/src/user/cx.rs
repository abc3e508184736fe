//! What the lowering of all functions shares: the module under construction and where things live in it.

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
use crate::source::{SourceMap, Span};
use crate::split::Split;
use crate::types::TypeId;

/// The result of lowering a piece of the tree; boxed, because a diagnostic is large and rare.
pub type Lower<T> = Result<T, Box<Diagnostic>>;

/// A value that is kept for the whole run, in a wasm global of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptGlobal {
    /// The handle of a map.
    Map(Table),
    /// The handle of a loaded program.
    Program(FuncId),
    /// The handle of a global variable of the BPF object.
    Variable(GlobalId),
    /// Where a variable starts in shared memory, or 0.
    VariableStart(GlobalId),
    /// Where a map starts in shared memory, or 0.
    MapStart(Table),
    /// What is thrown and not caught yet: the address of the text that names the place, behind its length; 0: nothing.
    Thrown,
    /// The code that was thrown last.
    ThrownCode,
    /// The last deferred call that waits: the address of its record, or 0.
    Deferred,
    /// The newest link: the address of its record, or 0.
    Links,
}

/// Where a global variable of the script lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalHome {
    /// In linear memory.
    Memory(u32),
    /// In the BPF object.
    Object,
}

/// A constant text in linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// Its address.
    pub address: u32,
    /// Its length in bytes.
    pub len: u32,
}

/// The state of one compilation.
pub struct Cx<'a> {
    /// The program.
    pub hir: &'a Hir,
    /// The contract's layouts.
    pub abi: Abi,
    /// The module under construction.
    pub module: Module,
    /// Where the host puts results that do not fit one value. Read at once after each call: never across two.
    pub returned: u32,
    sources: &'a SourceMap,
    functions: BTreeMap<FuncId, DefinedId>,
    globals: BTreeMap<GlobalId, GlobalHome>,
    routines: BTreeMap<Routine, DefinedId>,
    kept: BTreeMap<KeptGlobal, WasmGlobal>,
    free_lists: Option<u32>,
    /// Pages of shared memory for maps.
    pub array_pages: u32,
    /// Asks where variables lie in shared memory; defined at the end (`shared`).
    pub share_variables: Option<DefinedId>,
    /// Where the state of each ring lies that is used (`ring`).
    pub rings: BTreeMap<RingId, u32>,
    /// Functions that may be entered again before they are left.
    pub recursive: BTreeSet<FuncId>,
    /// Whether some function of the half throws.
    pub throws: bool,
    /// Whether some function of the half defers calls.
    pub defers: bool,
    /// Whether the script asks what came of a `load`.
    pub tests_a_load: bool,
    /// Counters that programs read.
    pub exposed_counters: BTreeSet<CounterId>,
    /// Which options and kinds of events the half uses.
    pub perf: perf::used::UsedFeatures,
}

impl<'a> Cx<'a> {
    /// Declares the functions and lays out the variables of the userspace half.
    ///
    /// # Errors
    /// If the variables take more than the plugin's memory may have.
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

    /// A function of the script.
    pub fn function(&self, id: FuncId) -> DefinedId {
        *self.functions.get(&id).expect("the split names every function that userspace code reaches")
    }

    /// Where a global variable lives.
    pub fn global(&self, id: GlobalId) -> GlobalHome {
        *self.globals.get(&id).expect("the split names every global that userspace code reaches")
    }

    /// A function of the host, imported on first use.
    pub fn host(&mut self, interface: &str, function: &str) -> ImportId {
        self.module.import(self.abi.import(interface, function))
    }

    /// The function that drops a handle, imported on first use.
    pub fn drop_handle(&mut self, interface: &str, resource: &str) -> ImportId {
        self.module.import(self.abi.drop_import(interface, resource))
    }

    /// A routine of the runtime, made on first use.
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

    /// The wasm global that keeps a handle; `init` until somebody sets it.
    pub fn kept(&mut self, what: KeptGlobal, init: i32) -> WasmGlobal {
        if let Some(global) = self.kept.get(&what) {
            return *global;
        }
        let global = self.module.global(init);
        self.kept.insert(what, global);
        global
    }

    /// Whether something is kept already.
    pub fn is_kept(&self, what: KeptGlobal) -> bool {
        self.kept.contains_key(&what)
    }

    /// Where the lists of free objects start, which take so many bytes.
    pub fn free_lists(&mut self, bytes: u32) -> u32 {
        *self.free_lists.get_or_insert_with(|| self.module.statics.reserve(bytes.into(), 4))
    }

    /// The variables of the BPF object that some function uses, with the wasm globals that keep their handles.
    pub fn kept_variables(&self) -> Vec<(GlobalId, WasmGlobal)> {
        let variable = |(what, global): (&KeptGlobal, &WasmGlobal)| match what {
            KeptGlobal::Variable(id) => Some((*id, *global)),
            _ => None,
        };
        self.kept.iter().filter_map(variable).collect()
    }

    /// The variables that some function reads or writes in shared memory, with the wasm globals that keep where.
    pub fn shared_variables(&self) -> Vec<(GlobalId, WasmGlobal)> {
        let variable = |(what, global): (&KeptGlobal, &WasmGlobal)| match what {
            KeptGlobal::VariableStart(id) => Some((*id, *global)),
            _ => None,
        };
        self.kept.iter().filter_map(variable).collect()
    }

    /// Bytes of the variables of the BPF object, each with what aligns it.
    pub fn object_bytes(&self) -> u64 {
        let of_object = self.globals.iter().filter(|(_, home)| **home == GlobalHome::Object);
        of_object.map(|(id, _)| self.hir.types.size(self.hir.globals[*id].ty) + 8).sum()
    }

    /// A constant text.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> Text {
        let bytes = text.as_ref();
        Text { address: self.module.statics.constant(bytes), len: bytes.len() as u32 }
    }

    /// How a message starts that concerns this place: `counters.ks:7: `.
    pub fn line_prefix(&self, span: Span) -> String {
        format!("{}: ", self.line(span))
    }

    /// A place in words: `counters.ks:7`.
    pub fn line(&self, span: Span) -> String {
        let (file, line, _) = self.sources.position(span);
        format!("{}:{line}", base_name(file))
    }

    /// How the message of a trap starts: `counters.ks:7:12: `.
    pub fn location_prefix(&self, span: Span) -> String {
        let (file, line, column) = self.sources.position(span);
        format!("{}:{line}:{column}: ", base_name(file))
    }

    /// Where the code of a function of the script comes from; what stands before its first statement belongs to `span`.
    pub fn origin(&self, name: &str, span: Span, code: &WasmCode) -> Origin {
        let line = |span| self.sources.position(span).1;
        let mut lines = vec![(0, line(span))];
        lines.extend(code.spans().iter().map(|(position, span)| (*position, line(*span))));
        let (file, ..) = self.sources.position(span);
        Origin { name: name.to_owned(), file: base_name(file).to_owned(), lines }
    }

    /// Core parameters and results of a function of the script: what is no scalar travels by address, a result
    /// in memory that the caller names first.
    fn declare(&mut self, id: FuncId) {
        let function = &self.hir.functions[id];
        let param_types: Vec<TypeId> =
            function.params.iter().map(|param| function.locals[*param].ty).collect();
        let (params, results) = self.core_signature(&param_types, function.ret);
        let defined = self.module.declare(function.name.clone(), &params, &results);
        self.functions.insert(id, defined);
    }

    /// Core parameters and results of functions of a type.
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

    /// The core type of a scalar; none for what lives in memory and for void.
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

/// More memory than a plugin has.
pub fn too_large(span: Span, what: &str, limit: u64) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(1004, span, format!("{what} need more than {limit} bytes"))
            .label("this does not fit the plugin's memory"),
    )
}

/// The code of a routine with so many parameters.
pub fn routine_code(routine: Routine) -> WasmCode {
    WasmCode::new(routine.signature().0.len())
}

/// The file of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

//! The checker: syntax trees to typed tree, one file per construct.
//!
//! Names are resolved, types checked and conversions made explicit in one traversal per function, after all
//! declarations are known; so order at top level does not matter. One cause results in one diagnostic: an
//! expression that depends on a name or type with an error has the error type, which fits everywhere.

mod aggregates;
mod arguments;
mod assignable;
mod attributes;
mod binding;
mod builtin;
pub mod builtin_table;
mod call;
mod columns;
mod condition;
mod configs;
mod constant;
mod consts;
mod context;
mod convert;
mod counters;
mod display;
mod entries;
mod errors;
mod events;
mod expr;
mod externs;
mod fold;
mod format;
mod function;
mod globals;
mod helper;
mod histogram;
mod implied;
mod impls;
mod items;
mod kernel_facts;
mod kernel_lists;
mod kernel_structs;
mod lifecycle;
mod literal;
mod lock;
mod loops;
mod lvalue;
mod map_ops;
mod maps;
mod matching;
mod member;
mod modules;
mod names;
mod nested_maps;
mod objects;
mod operator;
mod options;
mod perf;
mod pointer;
mod predeclared;
mod prescan;
mod read_form;
mod ring;
mod rings;
mod same_sides;
mod signatures;
mod simple;
mod size_options;
mod stacks;
mod stats;
mod stmt;
mod take;
mod tasks;
mod text;
mod type_items;
mod types;

use std::collections::{BTreeMap, HashMap, HashSet};

pub(crate) use attributes::period;

use crate::ast;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::{
    Config, ConfigId, Counter, CounterId, Extern, ExternId, FuncId, FunctionKind, Global, GlobalId, Half,
    Hir, HirFunction, HistogramScale, Impl, ImplId, KernelVariable, KernelVariableId, KnownTypes, Map, MapId,
    Ring, RingId, Target,
};
use crate::index::IndexVec;
use crate::options::Options;
use crate::resolve::{Import, ImportTarget, Program};
use crate::source::{FileId, Span};
use crate::types::{StructId, TypeId, Types};
use kernel_facts::KernelFact;
use names::{Symbol, SymbolTable};

/// The interface of a function.
#[derive(Debug, Clone)]
struct Signature {
    /// The name; with its module's before a `.` if it belongs to one.
    name: String,
    params: Vec<TypeId>,
    ret: TypeId,
    /// None if its attributes are invalid, which was reported.
    kind: Option<FunctionKind>,
    target: Target,
    span: Span,
}

/// The state of one check of a program.
struct Checker<'a> {
    options: &'a Options,
    types: Types,
    known: KnownTypes,
    /// Names declared in the current unit.
    names: SymbolTable,
    /// The name of the current unit; none for the script itself.
    module: Option<String>,
    /// The names of finished units, by their position in the program.
    modules: Vec<SymbolTable>,
    /// The paths of imported Python files.
    python: Vec<String>,
    /// Names of the current unit's imports that were used.
    used_imports: HashSet<String>,
    /// The file of the current unit: declarations in other files come from headers.
    file: Option<FileId>,
    /// Declarations of headers, by the source range of their name: the same for all units.
    from_headers: HashMap<Span, Symbol>,
    /// Names of the current unit that have no value at compile time.
    not_constant: HashSet<String>,
    /// The half in which types are being resolved: in the kernel half, a pointer may point to a struct
    /// without a declaration.
    half: Half,
    /// Structs that the script has values of, with the first source range.
    by_value: HashMap<StructId, Span>,
    /// Whether the current types are those of a struct's fields.
    in_fields: bool,
    /// Structs that functions of the kernel half take or return pointers to.
    pointed_to: HashSet<StructId>,
    /// Structs that the script has values of which are not only parts of other structs.
    own_values: HashSet<StructId>,
    /// Structs whose values are converted from the kernel's.
    copied: HashSet<StructId>,
    /// Structs of the kernel that no script declares.
    kernel_structs: HashMap<String, StructId>,
    /// What the running kernel has here, whatever the kernel that the script is compiled for has.
    existing: Vec<KernelFact>,
    /// Members that scripts declare of a kernel struct and the kernel of the build lacks.
    strange_members: Vec<(StructId, String, Span)>,
    /// Names of members that an `exists` asks for in bodies of the kernel half, whether checked yet or not.
    asked_members: HashSet<String>,
    /// Members that an `exists` asked for.
    tested_members: HashSet<KernelFact>,
    /// Functions of the kernel that an `exists` asks for, with the constant that tells.
    asked_functions: HashMap<String, GlobalId>,
    /// Functions of the kernel with a call that no `exists` guards.
    needed_externs: HashSet<ExternId>,
    /// The name of the member that an `exists` asks for.
    asked_member: Option<Span>,
    /// Facts about their members that the types do not contain.
    kernel_members: crate::hir::KernelStructs,
    /// The number of parts of each type, if more than one.
    weights: HashMap<TypeId, u32>,
    /// The methods of each impl block by name.
    methods: IndexVec<ImplId, HashMap<String, FuncId>>,
    signatures: IndexVec<FuncId, Signature>,
    globals: IndexVec<GlobalId, Global>,
    maps: IndexVec<MapId, Map>,
    /// Maps of the current unit whose size is an option.
    sized_by_option: Vec<(MapId, ast::Size)>,
    /// The structs that are histograms.
    histograms: BTreeMap<StructId, HistogramScale>,
    /// Whether names without a declaration are maps if they are indexed.
    infers_maps: bool,
    /// The bodies of programs that are left out.
    left_out: &'a [ast::Block],
    /// The maps that were inferred.
    implied: HashSet<MapId>,
    /// The structs that were made for keys of several parts.
    key_structs: HashSet<StructId>,
    /// The maps of `kstack()` and `ustack()`.
    own_stacks: stacks::OwnStacks,
    rings: IndexVec<RingId, Ring>,
    configs: IndexVec<ConfigId, Config>,
    counters: IndexVec<CounterId, Counter>,
    externs: IndexVec<ExternId, Extern>,
    kernel_variables: IndexVec<KernelVariableId, KernelVariable>,
    impls: IndexVec<ImplId, Impl>,
    /// Rings that some `on_event` has a handler for.
    handled: HashSet<RingId>,
    /// Rings in calls of `dispatch`, with the source range of the argument.
    dispatched: Vec<(RingId, Span)>,
    diagnostics: &'a mut Diagnostics,
}

/// Checks a program. None if there is an error; the reasons are in `diagnostics`, which otherwise may contain
/// warnings.
pub fn check(program: &Program, options: &Options, diagnostics: &mut Diagnostics) -> Option<Hir> {
    let (types, known, predeclared) = predeclared::declare();
    let mut checker = Checker {
        options,
        types,
        known,
        names: predeclared.fresh(),
        module: None,
        modules: Vec::new(),
        python: Vec::new(),
        used_imports: HashSet::new(),
        file: None,
        from_headers: HashMap::new(),
        not_constant: HashSet::new(),
        half: Half::Kernel,
        by_value: HashMap::new(),
        in_fields: false,
        pointed_to: HashSet::new(),
        own_values: HashSet::new(),
        copied: HashSet::new(),
        kernel_structs: HashMap::new(),
        existing: Vec::new(),
        strange_members: Vec::new(),
        asked_members: HashSet::new(),
        tested_members: HashSet::new(),
        asked_functions: HashMap::new(),
        needed_externs: HashSet::new(),
        asked_member: None,
        kernel_members: crate::hir::KernelStructs::default(),
        weights: HashMap::new(),
        methods: IndexVec::new(),
        signatures: IndexVec::new(),
        globals: IndexVec::new(),
        maps: IndexVec::new(),
        sized_by_option: Vec::new(),
        histograms: BTreeMap::from([(known.log2_hist, HistogramScale::Log2)]),
        infers_maps: false,
        left_out: &program.left_out,
        implied: HashSet::new(),
        key_structs: HashSet::new(),
        own_stacks: stacks::OwnStacks::new(),
        rings: IndexVec::new(),
        configs: IndexVec::new(),
        counters: IndexVec::new(),
        externs: IndexVec::new(),
        kernel_variables: IndexVec::new(),
        impls: IndexVec::new(),
        handled: HashSet::new(),
        dispatched: Vec::new(),
        diagnostics,
    };
    let mut functions: IndexVec<FuncId, HirFunction> = IndexVec::new();
    let mut main = None;
    for unit in &program.units {
        checker.names = predeclared.fresh();
        checker.module = unit.name.clone();
        checker.file = Some(unit.file);
        checker.infers_maps = program.infers_maps && unit.name.is_none();
        for import in &unit.imports {
            let symbol = match &import.target {
                ImportTarget::Unit(unit) => Symbol::Module(*unit),
                ImportTarget::Python(path) => {
                    checker.python.push(path.clone());
                    Symbol::Python(checker.python.len() - 1)
                }
                ImportTarget::Missing => Symbol::Error,
            };
            checker.declare_name(&import.name, symbol);
        }
        let declared = checker.declare(&unit.ast);
        checker.give_asked_structs_to_kernel();
        for function in checker.bodies(&declared) {
            functions.push(function);
        }
        checker.half = Half::Kernel;
        checker.check_imports(&unit.imports);
        if unit.name.is_none() {
            main = checker.check_entries(&unit.ast, &declared);
            checker.check_unused_methods(&functions);
        }
        let own_main = declared.iter().find(|(id, _)| Some(*id) == main).copied();
        checker.find_size_options(own_main);
        let names = std::mem::take(&mut checker.names);
        checker.modules.push(names);
    }
    checker.name_own_stacks();
    checker.check_handlers();
    checker.check_pointer_globals(&functions);
    checker.check_local_maps(&functions);
    checker.check_values_of_kernel_structs();
    checker.check_strange_members();
    checker.let_kernels_lack_functions();
    if checker.diagnostics.has_errors() {
        return None;
    }
    // Members that were added last may belong to structs that contain structs of the kernel.
    checker.types.seal_again();
    let Checker {
        types,
        known,
        histograms,
        implied,
        kernel_members,
        globals,
        maps,
        rings,
        configs,
        counters,
        externs,
        kernel_variables,
        impls,
        ..
    } = checker;
    let tests =
        functions.iter_enumerated().filter(|(_, one)| one.kind == FunctionKind::Test).map(|(id, _)| id);
    let tests = tests.collect();
    Some(Hir {
        project: options.project.clone(),
        types,
        functions,
        globals,
        maps,
        rings,
        configs,
        externs,
        kernel_variables,
        impls,
        counters,
        open_counters: None,
        zeros: None,
        main,
        tests,
        kernel_structs: kernel_members,
        histograms,
        implied: implied.into_iter().collect(),
        known,
    })
}

impl Checker<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.report(diagnostic);
    }

    /// Reports a construct that 0.1.1 does not have, if the script must be portable to it.
    fn strict(&mut self, span: Span, what: &str) {
        if self.options.strict_011 {
            self.report(
                Diagnostic::error(211, span, format!("KernelScript 0.1.1 has no {what}"))
                    .note("--strict-011 asks for the language of 0.1.1"),
            );
        }
    }

    /// Warns about unused imports of the current unit.
    fn check_imports(&mut self, imports: &[Import]) {
        let used = std::mem::take(&mut self.used_imports);
        for import in imports.iter().filter(|import| !matches!(import.target, ImportTarget::Missing)) {
            let name = &import.name.name;
            if !used.contains(name) && !name.starts_with('_') {
                let text = format!("unused import `{name}`");
                self.report(Diagnostic::warning(312, import.name.span, text));
            }
        }
    }

    /// Checks the bodies of functions, and returns them in the same order. The kernel half comes first if
    /// maps are inferred: userspace uses those that its programs write.
    fn bodies(&mut self, declared: &[(FuncId, &ast::AstFunction)]) -> Vec<HirFunction> {
        let half =
            |checker: &Self, id: FuncId| checker.signatures[id].kind.map_or(Half::Kernel, FunctionKind::half);
        let mut order: Vec<usize> = (0..declared.len()).collect();
        if self.infers_maps {
            order.sort_by_key(|at| half(self, declared[*at].0) == Half::User);
        }
        let mut checked: Vec<(usize, HirFunction)> = Vec::with_capacity(declared.len());
        for at in order {
            let (id, function) = declared[at];
            self.half = half(self, id);
            checked.push((at, self.function(id, function)));
        }
        checked.sort_by_key(|(at, _)| *at);
        checked.into_iter().map(|(_, function)| function).collect()
    }

    /// Returns the name of a declaration in the whole program: with its module's before a `.`.
    fn full_name(&self, name: &ast::Ident) -> String {
        match &self.module {
            Some(module) => format!("{module}.{}", name.name),
            None => name.name.clone(),
        }
    }
}

/// Formats a number of arguments: `1 argument`, `2 arguments`.
fn count(arguments: usize) -> String {
    count_of(arguments, "argument")
}

/// Formats a number of things: `1 parameter`, `2 parameters`.
fn count_of(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

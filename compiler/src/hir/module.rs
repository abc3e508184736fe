//! Lowers `@kfunc` functions that a kernel module may provide: the BPF object prefers the module's functions
//! to its own.
//!
//! ```text
//! @kfunc fn f(a: u32) -> u32 { .. }
//!     -> extern f(a: u32) -> u32          weak: the kernel may not have it
//!        fn f(a: u32) -> u32 { if (the module is loaded) { return extern f(a) } .. }
//! ```
//!
//! Whether the module is loaded is a variable that the host sets before the object is loaded and that never
//! changes later, so the verifier only explores the branch that is taken.

use std::collections::BTreeSet;

use super::visit::{self, Visitor};
use super::{
    Block, Expr, ExprKind, Extern, ExternId, FuncId, FunctionKind, Global, GlobalId, Hir, HirFunction,
    Lvalue, LvalueKind, ProgramKind, Stmt, StmtKind, Target,
};
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Program types that may call functions of modules in every kernel that allows this for programs at all (6.1
/// and later). Source: kernel/bpf/btf.c, `bpf_prog_type_to_kfunc_hook`, v6.1 and v6.12.
pub const PROGRAM_TYPES: &[&str] =
    &["BPF_PROG_TYPE_XDP", "BPF_PROG_TYPE_SCHED_CLS", "BPF_PROG_TYPE_TRACING", "BPF_PROG_TYPE_STRUCT_OPS"];

/// Whether programs of a kind have one of [`PROGRAM_TYPES`].
fn calls_modules(function: &HirFunction) -> bool {
    match function.kind {
        FunctionKind::Program(kind) => match kind {
            ProgramKind::Xdp | ProgramKind::Tc | ProgramKind::Retprobe | ProgramKind::RawTracepoint => true,
            ProgramKind::Probe => matches!(function.target, Target::Function { offset: None, .. }),
            _ => false,
        },
        _ => true,
    }
}

/// The module's name: that of the script, in the kernel's spelling.
pub fn name(hir: &Hir) -> String {
    hir.project.replace(|one: char| !one.is_ascii_alphanumeric(), "_")
}

/// Returns the module's functions that programs call.
pub fn exported(hir: &Hir) -> Vec<FuncId> {
    hir.functions.ids().filter(|id| hir.functions[*id].kind == FunctionKind::Kfunc).collect()
}

/// Reports programs that reach a `@kfunc` although the kernel does not let their kind call functions of
/// modules.
pub fn callers_that_cannot(hir: &Hir) -> Vec<Diagnostic> {
    let cannot = hir.functions.ids().filter(|id| hir.is_entry(*id) && !calls_modules(&hir.functions[*id]));
    let report = |id: FuncId| {
        let kfunc = reaches_kfunc(hir, id)?;
        let (program, name) = (&hir.functions[id], &hir.functions[kfunc].name);
        let text = format!("this program cannot call `{name}` of a kernel module");
        Some(
            Diagnostic::error(1006, program.span, text)
                .label("the kernel lets only some kinds of programs call functions of modules")
                .note(
                    "they are `@xdp`, `@tc`, `@probe` at a function's entry, `@retprobe`, \
                       `@raw_tracepoint`, and methods",
                )
                .help("build without `--emit kmod`, or call a `@helper` here"),
        )
    };
    cannot.filter_map(report).collect()
}

fn reaches_kfunc(hir: &Hir, from: FuncId) -> Option<FuncId> {
    let mut open = vec![from];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if hir.functions[id].kind == FunctionKind::Kfunc {
            return Some(id);
        }
        if seen.insert(id) {
            let mut called = Called(Vec::new());
            visit::block(&mut called, &hir.functions[id].body);
            open.extend(called.0);
        }
    }
    None
}

struct Called(Vec<FuncId>);

impl Visitor for Called {
    fn function(&mut self, id: FuncId) {
        self.0.push(id);
    }
}

/// Rewrites all `@kfunc` functions.
pub fn rewrite(hir: &mut Hir) {
    let exported = exported(hir);
    let Some(first) = exported.first() else { return };
    let loaded = hir.globals.push(Global {
        kernel_only: true,
        constant: true,
        ..Global::new(
            ks_wit::object::module_variable(&name(hir)),
            hir.types.common().bool,
            hir.functions[*first].span,
        )
    });
    for id in exported {
        let external = external(hir, id);
        let prefers = prefer(hir, id, external, loaded);
        hir.functions[id].body.insert(0, prefers);
    }
}

/// Declares the function as one of the kernel, with integers for enums: both sides agree on these types.
fn external(hir: &mut Hir, id: FuncId) -> ExternId {
    let function = &hir.functions[id];
    let params: Vec<TypeId> = function.params.iter().map(|param| function.locals[*param].ty).collect();
    let (name, span, ret) = (function.name.clone(), function.span, function.ret);
    let params = params.into_iter().map(|ty| number(hir, ty)).collect();
    let ret = number(hir, ret);
    hir.externs.push(Extern { name, span: Some(span), params, ret, helper: None, optional: true })
}

/// Returns the integer type of an enum; every other type unchanged.
fn number(hir: &mut Hir, ty: TypeId) -> TypeId {
    match (hir.types.kind(ty), hir.types.scalar(ty)) {
        (TypeKind::Enum(_), Some(int)) => hir.types.intern(TypeKind::Int(int)),
        _ => ty,
    }
}

/// `if (loaded) { return extern f(parameters) }`.
fn prefer(hir: &Hir, id: FuncId, external: ExternId, loaded: GlobalId) -> Stmt {
    let function = &hir.functions[id];
    let span = function.span;
    let declared = &hir.externs[external];
    let load = |kind: LvalueKind, ty| Expr { kind: ExprKind::Load(Lvalue { kind, ty, span }), ty, span };
    let argument = |(local, ty): (_, &TypeId)| {
        let own = function.locals[local].ty;
        converted(load(LvalueKind::Local(local), own), *ty)
    };
    let args = function.params.iter().copied().zip(&declared.params).map(argument).collect();
    let call = Expr { kind: ExprKind::CallExtern { function: external, args }, ty: declared.ret, span };
    let statement = |kind| Stmt { kind, span };
    let then: Block = match hir.types.kind(function.ret) {
        TypeKind::Void => vec![statement(StmtKind::Expr(call)), statement(StmtKind::Return(None))],
        _ => vec![statement(StmtKind::Return(Some(converted(call, function.ret))))],
    };
    let cond = load(LvalueKind::Global(loaded), hir.globals[loaded].ty);
    statement(StmtKind::If { cond, then, otherwise: Vec::new() })
}

fn converted(value: Expr, ty: TypeId) -> Expr {
    let span: Span = value.span;
    if value.ty == ty { value } else { Expr { kind: ExprKind::Convert(Box::new(value)), ty, span } }
}

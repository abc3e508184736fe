//! Functions: attributes, signatures, and the walk over a body.

use std::collections::HashMap;

use super::prescan::Prescan;
use super::types::Position;
use super::{Checker, Signature, flow, read_form};
use crate::ast;
use crate::diag::{Diagnostic, near};
use crate::hir::{self, Expr, FuncId, FunctionKind, Half, Local, LocalId, StmtKind};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Attributes of the language that this version does not compile.
const LATER: &[&str] = &[
    "xdp",
    "tc",
    "probe",
    "retprobe",
    "tracepoint",
    "raw_tracepoint",
    "kfunc",
    "private",
    "test",
    "struct_ops",
    "lsm",
    "uprobe",
    "uretprobe",
    "cgroup",
    "socket_filter",
    "timer",
    "syscall_enter",
    "syscall_exit",
];

/// What a name inside a function means.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scoped {
    /// A variable.
    Local(LocalId),
    /// A constant: its value and type.
    Const(i128, TypeId),
}

/// The state of the walk over one body.
pub(super) struct Body<'c, 'a> {
    pub(super) checker: &'c mut Checker<'a>,
    pub(super) kind: FunctionKind,
    pub(super) ret: TypeId,
    pub(super) locals: IndexVec<LocalId, Local>,
    /// Variables that are never assigned: loop variables.
    pub(super) fixed: Vec<LocalId>,
    pub(super) prescan: Prescan,
    pub(super) loops: u32,
    /// The variable that is being set, while its value is checked.
    pub(super) target: Option<String>,
    scopes: Vec<HashMap<String, (Scoped, Span)>>,
    named_result: Option<LocalId>,
    written_ret: bool,
}

impl Checker<'_> {
    /// What a function's attributes make of it; none if they cannot be used.
    pub(super) fn attribute_kind(&mut self, function: &ast::Function) -> Option<FunctionKind> {
        let Some((first, others)) = function.attributes.split_first() else {
            return Some(FunctionKind::Plain);
        };
        if let Some(other) = others.first() {
            self.report(
                Diagnostic::error(502, other.span, "one function, one program kind")
                    .also(first.span, "the first stands here"),
            );
        }
        let kind = match first.name.name.as_str() {
            "helper" => FunctionKind::Helper,
            "perf_event" => FunctionKind::PerfEvent,
            other => {
                self.report_attribute(other, first);
                return None;
            }
        };
        if let Some(argument) = &first.argument {
            let text = format!("`@{}` takes no argument", first.name.name);
            self.report(Diagnostic::error(501, argument.span, text).help("remove the parentheses"));
        }
        Some(kind)
    }

    fn report_attribute(&mut self, name: &str, attribute: &ast::Attribute) {
        if LATER.contains(&name) {
            self.report(Diagnostic::not_yet(attribute.span, &format!("`@{name}` is")));
            return;
        }
        let help = match name {
            "kprobe" => Some("write `@probe(\"function\")`".to_owned()),
            _ => near(name, LATER.iter().copied().chain(["helper", "perf_event"]))
                .map(|near| format!("a similar attribute exists: `@{near}`")),
        };
        self.report(
            Diagnostic::error(501, attribute.span, format!("unknown attribute `@{name}`")).maybe_help(help),
        );
    }

    /// The declared result. Without one: u32 if a value is returned somewhere, else void.
    pub(super) fn result_type(&mut self, function: &ast::Function) -> TypeId {
        match &function.ret {
            Some(returns) => self.type_expr(&returns.ty, Position::Result),
            None if flow::returns_value(&function.body) => self.types.common().u32,
            None => self.types.common().void,
        }
    }

    pub(super) fn check_signature(&mut self, function: &ast::Function, signature: &Signature) {
        if signature.kind != Some(FunctionKind::PerfEvent) {
            return;
        }
        let context = self.types.intern(TypeKind::Ptr(self.known.perf_context));
        let error = |ty: &TypeId| self.types.is_error(*ty);
        if signature.params.iter().any(error) || error(&signature.ret) {
            return;
        }
        let expected = "a perf_event program must look like `fn name(ctx: *bpf_perf_event_data) -> i32`";
        if signature.params != [context] {
            let span = function.params.first().map_or(function.name.span, |param| param.ty.span);
            self.report(Diagnostic::error(507, span, expected));
        } else if signature.ret != self.types.common().i32 {
            let span = function.ret.as_ref().map_or(function.name.span, |returns| returns.ty.span);
            self.report(Diagnostic::error(503, span, expected));
        }
    }

    pub(super) fn function(&mut self, id: FuncId, function: &ast::Function) -> hir::Function {
        let Signature { params: types, ret, kind, .. } = self.signatures[id].clone();
        let Some(kind) = kind else { return unusable(function, ret) };
        let mut body = Body::new(self, kind, ret, Prescan::of(&function.body));
        body.written_ret = function.ret.is_some();
        let params: Vec<LocalId> = function
            .params
            .iter()
            .zip(types)
            .map(|(param, ty)| body.declare_local(&param.name, ty, false))
            .collect();
        let mut block = Vec::new();
        if let Some(name) = function.ret.as_ref().and_then(|returns| returns.name.as_ref()) {
            let local = body.declare_local(name, ret, false);
            body.named_result = Some(local);
            block.push(hir::Stmt { kind: StmtKind::Let { local, init: None }, span: name.span });
        }
        // Parameters and the body's own variables share a scope: neither may repeat the other.
        body.statements(&function.body, &mut block);
        body.finish(function, &mut block);
        let Body { locals, .. } = body;
        read_form::choose(&mut block, &locals);
        hir::Function {
            name: function.name.name.clone(),
            span: function.name.span,
            kind,
            params,
            ret,
            locals,
            body: block,
        }
    }
}

/// Stands for a function whose attributes were refused.
fn unusable(function: &ast::Function, ret: TypeId) -> hir::Function {
    hir::Function {
        name: function.name.name.clone(),
        span: function.name.span,
        kind: FunctionKind::Plain,
        params: Vec::new(),
        ret,
        locals: IndexVec::new(),
        body: Vec::new(),
    }
}

impl<'c, 'a> Body<'c, 'a> {
    /// The state before a body, or before an expression outside any function.
    pub(super) fn new(
        checker: &'c mut Checker<'a>,
        kind: FunctionKind,
        ret: TypeId,
        prescan: Prescan,
    ) -> Self {
        Body {
            checker,
            kind,
            ret,
            locals: IndexVec::new(),
            fixed: Vec::new(),
            prescan,
            loops: 0,
            target: None,
            scopes: vec![HashMap::new()],
            named_result: None,
            written_ret: false,
        }
    }
}

impl Body<'_, '_> {
    pub(super) fn half(&self) -> Half {
        self.kind.half()
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.checker.report(diagnostic);
    }

    pub(super) fn type_name(&self, ty: TypeId) -> String {
        self.checker.types.name(ty)
    }

    /// A new variable that no name reaches.
    pub(super) fn hidden_local(&mut self, name: &str, ty: TypeId, span: Span, binding: bool) -> LocalId {
        self.locals.push(Local { name: name.into(), ty, span, binding })
    }

    pub(super) fn declare_local(&mut self, name: &ast::Ident, ty: TypeId, binding: bool) -> LocalId {
        let local = self.hidden_local(&name.name, ty, name.span, binding);
        self.declare(name, Scoped::Local(local));
        local
    }

    pub(super) fn declare(&mut self, name: &ast::Ident, meaning: Scoped) {
        let scope = self.scopes.last_mut().expect("a body has a scope");
        if let Some((_, first)) = scope.get(&name.name) {
            let first = *first;
            self.checker.report_duplicate(name, first);
            return;
        }
        scope.insert(name.name.clone(), (meaning, name.span));
    }

    pub(super) fn lookup(&self, name: &str) -> Option<Scoped> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).map(|(meaning, _)| *meaning)
    }

    /// The names of all variables in reach, for near matches.
    pub(super) fn scoped_names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.scopes.iter().flat_map(HashMap::keys).map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Runs `inner` in a scope of its own.
    pub(super) fn scoped<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(HashMap::new());
        let result = inner(self);
        self.scopes.pop();
        result
    }

    /// What `return` without a value gives.
    pub(super) fn bare_return(&mut self, span: Span) -> Option<Expr> {
        let common = self.checker.types.common();
        if let Some(local) = self.named_result {
            return Some(self.load_local(local, span));
        }
        if self.ret == common.void || self.checker.types.is_error(self.ret) {
            return None;
        }
        if self.written_ret {
            let name = self.type_name(self.ret);
            self.report(Diagnostic::error(413, span, format!("`return` needs a value of type `{name}`")));
        }
        Some(Expr { kind: hir::ExprKind::Const(0), ty: self.ret, span })
    }

    pub(super) fn load_local(&self, local: LocalId, span: Span) -> Expr {
        let ty = self.locals[local].ty;
        let place = hir::Place { kind: hir::PlaceKind::Local(local), ty, span };
        Expr { kind: hir::ExprKind::Load(place), ty, span }
    }

    /// Makes every path end in a return, or reports the path that gives no value.
    fn finish(&mut self, function: &ast::Function, block: &mut hir::Block) {
        let common = self.checker.types.common();
        if self.ret == common.void || self.checker.types.is_error(self.ret) || flow::ends(block) {
            return;
        }
        let span = Span { start: function.body.span.end - 1, ..function.body.span };
        if self.named_result.is_some() || !self.written_ret {
            let value = self.bare_return(span);
            block.push(hir::Stmt { kind: StmtKind::Return(value), span });
            return;
        }
        let tail = match block.last() {
            Some(hir::Stmt { kind: StmtKind::Expr(tail), .. }) if tail.ty != common.void => {
                Some(tail.clone())
            }
            _ => None,
        };
        if let Some(tail) = tail {
            let span = tail.span;
            let value = self.coerce(super::expr::Typed::of(tail), self.ret);
            block.pop();
            block.push(hir::Stmt { kind: StmtKind::Return(Some(value)), span });
            return;
        }
        let name = self.type_name(self.ret);
        self.report(
            Diagnostic::error(
                413,
                span,
                format!("not every path of `{}` returns a value", function.name.name),
            )
            .label("this point is reached")
            .also(function.name.span, format!("which promises `{name}`"))
            .help("add a `return` with a value"),
        );
    }
}

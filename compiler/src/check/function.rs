//! Functions: the check of a body.

use std::collections::{BTreeSet, HashMap};

use super::kernel_facts::KernelFact;
use super::names::Symbol;
use super::prescan::Prescan;
use super::{Checker, Signature, read_form};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{self, Expr, FuncId, FunctionKind, Half, Local, LocalId, StmtKind};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// The meaning of a name inside a function.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scoped {
    /// A variable or parameter.
    Local(LocalId),
    /// A constant, with its value and type.
    Const(i128, TypeId),
    /// A variable that stands for a program: `var p = watch`.
    Program(FuncId),
}

/// The state while one body is checked.
pub(super) struct Body<'c, 'a> {
    pub(super) checker: &'c mut Checker<'a>,
    pub(super) kind: FunctionKind,
    /// Where the program is attached, as its attribute writes it.
    pub(super) attach_point: Option<String>,
    pub(super) ret: TypeId,
    pub(super) params: Vec<LocalId>,
    pub(super) locals: IndexVec<LocalId, Local>,
    /// Variables that are never assigned: loop variables.
    pub(super) fixed: Vec<LocalId>,
    /// The values of `for` over a map: in the kernel half aliases of the entries if they are structs.
    pub(super) entry_values: Vec<LocalId>,
    /// For a binding whose type is not the map's, the hidden variable with its presence bit.
    pub(super) presence: HashMap<LocalId, LocalId>,
    pub(super) prescan: Prescan,
    pub(super) loops: u32,
    /// While the value of a variable is checked, the source range of the variable's declaration.
    pub(super) target: Option<Span>,
    /// The program whose handle a variable holds; none if it may be one of several.
    pub(super) handles: HashMap<LocalId, Option<FuncId>>,
    /// Whether a call of a program here is a tail call.
    pub(super) tail_call: bool,
    /// Whether the current expression is the last operation of the function.
    pub(super) tail: bool,
    /// The type of the destination of the current call, if it has one.
    pub(super) destination: Option<TypeId>,
    /// Whether the current expression is the value of a constant: enumerators are numbers there.
    pub(super) in_constant: bool,
    /// The value of `print` that is being checked, for texts that the host makes.
    pub(super) printed: Option<Span>,
    /// Variables that are declared by `null` alone, with the source range of their name.
    pub(super) null_locals: HashMap<LocalId, Span>,
    /// Types of these variables, as inferred from assignments and calls.
    pub(super) null_types: HashMap<Span, TypeId>,
    /// Whether a type was added to `null_types`.
    null_type_found: bool,
    scopes: Vec<HashMap<String, (Scoped, Span)>>,
    named_result: Option<LocalId>,
    written_ret: bool,
    /// The struct and the member that each `exists` asks for.
    pub(super) tested: HashMap<Span, KernelFact>,
}

impl Checker<'_> {
    pub(super) fn function(&mut self, id: FuncId, function: &ast::AstFunction) -> hir::HirFunction {
        self.function_with(id, function, HashMap::new())
    }

    /// Checks a function, with these types for the variables that are declared by `null` alone.
    fn function_with(
        &mut self,
        id: FuncId,
        function: &ast::AstFunction,
        null_types: HashMap<Span, TypeId>,
    ) -> hir::HirFunction {
        let Signature { params: types, ret, kind, target, .. } = self.signatures[id].clone();
        let name = self.full_name(&function.name);
        let Some(kind) = kind else { return unusable(name, function.name.span, ret) };
        let keys_of_map = |name: &str| match self.names.get(name) {
            Some(Symbol::Map(map)) => Some(if self.maps[map].outer.is_some() { 2 } else { 1 }),
            _ => self.is_implied_map(name).then_some(1),
        };
        let prescan = Prescan::of(&function.params, &function.body, &keys_of_map);
        let before = prescan.has_nulls().then(|| (self.diagnostics.clone(), self.dispatched.len()));
        let mut body = Body::new(self, kind, ret, prescan);
        body.null_types = null_types;
        body.attach_point = target.text();
        body.written_ret = function.ret.is_some();
        body.params = function
            .params
            .iter()
            .zip(types.iter().copied())
            .map(|(param, ty)| body.declare_local(&param.name, ty))
            .collect();
        let mut block = Vec::new();
        if let Some(name) = function.ret.as_ref().and_then(|returns| returns.name.as_ref()) {
            let local = body.declare_local(name, ret);
            body.named_result = Some(local);
            block.push(hir::Stmt { kind: StmtKind::Let { local, init: None }, span: name.span });
        }
        // Parameters and the body's own variables share a scope: neither may repeat a name of the other.
        body.tail = body.returns_tail();
        body.statements(&function.body, &mut block);
        body.finish(function, &mut block);
        let Body { locals, params, null_types, null_type_found, .. } = body;
        if let (Some((diagnostics, dispatched)), true) = (before, null_type_found) {
            // Checks again, now that the type is known. Each repetition infers the type of another variable,
            // so this ends.
            *self.diagnostics = diagnostics;
            self.dispatched.truncate(dispatched);
            return self.function_with(id, function, null_types);
        }
        let system_call = self.system_call(&target);
        let record_arguments = self.record_arguments(&target);
        let given = self.given_objects(kind, &target, &function.name.name, &types);
        let also = function.attributes.iter().flat_map(|attribute| &attribute.also);
        let also = also.map(|text| String::from_utf8_lossy(&text.bytes).into_owned()).collect();
        let objects = params.iter().zip(given).filter_map(|(local, given)| given.then_some(*local)).collect();
        read_form::choose(&mut block);
        hir::HirFunction {
            name,
            span: function.name.span,
            kind,
            target,
            also,
            optional: function.attributes.iter().any(|attribute| attribute.optional),
            params,
            ret,
            locals,
            body: block,
            throws: false,
            system_call,
            record_arguments,
            objects,
        }
    }
}

/// Returns the placeholder for a function whose attributes were rejected.
fn unusable(name: String, span: Span, ret: TypeId) -> hir::HirFunction {
    hir::HirFunction {
        name,
        span,
        kind: FunctionKind::Plain,
        target: hir::Target::None,
        also: Vec::new(),
        optional: false,
        params: Vec::new(),
        ret,
        locals: IndexVec::new(),
        body: Vec::new(),
        throws: false,
        system_call: None,
        record_arguments: None,
        objects: BTreeSet::new(),
    }
}

impl<'c, 'a> Body<'c, 'a> {
    /// Creates the state before a body, or before an expression outside any function.
    pub(super) fn new(
        checker: &'c mut Checker<'a>,
        kind: FunctionKind,
        ret: TypeId,
        prescan: Prescan,
    ) -> Self {
        Body {
            checker,
            kind,
            attach_point: None,
            ret,
            params: Vec::new(),
            locals: IndexVec::new(),
            fixed: Vec::new(),
            entry_values: Vec::new(),
            presence: HashMap::new(),
            prescan,
            loops: 0,
            target: None,
            handles: HashMap::new(),
            tail_call: false,
            tail: false,
            in_constant: false,
            printed: None,
            null_locals: HashMap::new(),
            null_types: HashMap::new(),
            null_type_found: false,
            scopes: vec![HashMap::new()],
            named_result: None,
            written_ret: false,
            tested: HashMap::new(),
            destination: None,
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

    /// Creates a variable that no name refers to.
    pub(super) fn hidden_local(&mut self, name: &str, ty: TypeId, span: Span) -> LocalId {
        self.locals.push(Local { name: name.into(), ..Local::hidden(ty, span) })
    }

    pub(super) fn declare_local(&mut self, name: &ast::Ident, ty: TypeId) -> LocalId {
        let binding = self.prescan.uses(name.span).from_element;
        let local = Local { name: name.name.clone(), binding, ..Local::hidden(ty, name.span) };
        let local = self.locals.push(local);
        self.declare(name, Scoped::Local(local));
        local
    }

    /// Returns the type of a variable that is declared by `null` alone: a byte pointer until a type is
    /// inferred.
    pub(super) fn null_type(&mut self, declared: Span) -> TypeId {
        let u8 = self.checker.types.common().u8;
        let any = self.checker.types.intern(TypeKind::Ptr(u8));
        self.null_types.get(&declared).copied().unwrap_or(any)
    }

    /// Infers the type of a variable from a use, if it is declared by `null` alone and this is the first use
    /// with a type.
    pub(super) fn find_null_type(&mut self, local: LocalId, met: TypeId) {
        let Some(declared) = self.null_locals.get(&local) else { return };
        let is_nullable =
            matches!(self.checker.types.kind(met), TypeKind::Ptr(_) | TypeKind::Fn(..) | TypeKind::Program);
        if is_nullable && met != self.locals[local].ty && !self.null_types.contains_key(declared) {
            self.null_types.insert(*declared, met);
            self.null_type_found = true;
        }
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

    /// Returns the names of all variables in scope, for suggestions.
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

    /// Returns the value of a `return` without an expression.
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
        let lvalue = hir::Lvalue { kind: hir::LvalueKind::Local(local), ty, span };
        Expr { kind: hir::ExprKind::Load(lvalue), ty, span }
    }

    /// Whether the function returns the value of its last statement.
    fn returns_tail(&self) -> bool {
        self.written_ret && self.named_result.is_none() && self.ret != self.checker.types.common().void
    }

    /// Ends every path in a return, or reports the path without a value.
    fn finish(&mut self, function: &ast::AstFunction, block: &mut hir::Block) {
        let common = self.checker.types.common();
        if self.ret == common.void || self.checker.types.is_error(self.ret) || hir::flow::ends(block) {
            return;
        }
        let span = Span { start: function.body.span.end - 1, ..function.body.span };
        if !self.returns_tail() {
            let value = self.bare_return(span);
            block.push(hir::Stmt { kind: StmtKind::Return(value), span });
            return;
        }
        self.return_tail(block);
        if hir::flow::ends(block) {
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

    /// Converts the value of the last statement into the result, in both branches of an `if` and in all
    /// clauses of a `try`.
    fn return_tail(&mut self, block: &mut hir::Block) {
        let Some(last) = block.last_mut() else { return };
        match &mut last.kind {
            // A script does not mean the result of `print` as its own.
            StmtKind::Expr(Expr {
                kind: hir::ExprKind::Shared(hir::SharedBuiltin::Print { .. }), ..
            }) => {}
            StmtKind::Expr(value) if value.ty != self.checker.types.common().void => {
                let typed = super::expr::Typed::of(value.clone());
                let value = self.coerce(typed, self.ret);
                last.kind = StmtKind::Return(Some(value));
            }
            StmtKind::If { then, otherwise, .. } => {
                self.return_tail(then);
                self.return_tail(otherwise);
            }
            StmtKind::Try { body, catches } => {
                self.return_tail(body);
                catches.iter_mut().for_each(|catch| self.return_tail(&mut catch.body));
            }
            _ => {}
        }
    }
}

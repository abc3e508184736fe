//! `for (i, p in list(head, T, member))`: lists of the kernel as loops with a bound.
//!
//! ```text
//! head = ..; next = head->next
//! for (i in 0..bound + 1) {
//!     if (head == null || next == head) { break }
//!     if (next == null || i == bound) { count a cut list; break }
//!     p = container_of(next, T, member); next = next->next
//!     body
//! }
//! ```
//!
//! An `hlist_head` ends with null, so nobody knows of its elements whether one could not be read.

use ks_wit::object::MAX_ITERATIONS;

use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{BinaryOp, Block, Expr, ExprKind, Half, KernelBuiltin, LocalId, LogicOp};
use crate::hir::{Lvalue, LvalueKind, Stmt, StmtKind};
use crate::source::Span;
use crate::types::{StructId, TypeId, TypeKind};

/// Maximum number of elements of a list that names no bound.
const DEFAULT_ELEMENTS: u64 = 4096;

/// The names of an element in the body of a loop.
pub(super) struct Element<'a> {
    pub(super) index: &'a ast::Ident,
    pub(super) pointer: &'a ast::Ident,
}

/// A list of the kernel.
struct List {
    /// The pointer to the head.
    head: Expr,
    /// The member of the head that points to the first element.
    first: (StructId, &'static str),
    /// Whether the last element points to the head, else to nothing.
    is_circular: bool,
}

impl Body<'_, '_> {
    /// Returns the arguments of `list(..)`, unless the script declares something of this name.
    pub(super) fn list_iterated<'e>(&self, over: &'e ast::Expr) -> Option<&'e [ast::Expr]> {
        let ast::ExprKind::Call { callee, args } = &strip(over).kind else { return None };
        let is_list = matches!(&strip(callee).kind, ast::ExprKind::Name(name) if name == "list");
        let is_own = self.lookup("list").is_some() || self.checker.names.get("list").is_some();
        (is_list && !is_own).then_some(args)
    }

    /// Checks a loop over a list of the kernel. The variables that it needs are declared before it in `out`.
    pub(super) fn list_loop(
        &mut self,
        element: &Element<'_>,
        args: &[ast::Expr],
        body: &ast::Block,
        span: Span,
        out: &mut Block,
    ) -> Option<StmtKind> {
        let iterated = self.list_parts(args, span);
        let error = self.common().error;
        let u32 = self.common().u32;
        let ty = iterated.as_ref().map_or(error, |(_, ty, _)| *ty);
        // The body is checked whatever is wrong with the list.
        let (index, pointer, body) = self.scoped(|scope| {
            let index = scope.declare_local(element.index, u32);
            let pointer = scope.declare_local(element.pointer, ty);
            scope.fixed.push(index);
            (index, pointer, scope.loop_body(body))
        });
        let (list, ty, bound) = iterated?;
        let (owner, first) = list.first;
        let head = self.hidden_local("list", list.head.ty, span);
        let head_span = list.head.span;
        out.push(Stmt { kind: StmtKind::Let { local: head, init: Some(list.head) }, span });
        let head_value = self.local_value(head, span);
        let start = self.pointer_member(head_value.clone(), owner, first, span)?;
        let node = self.node_of(&start)?;
        let next = self.hidden_local("next", start.ty, span);
        out.push(Stmt { kind: StmtKind::Let { local: next, init: Some(start) }, span });
        let next_value = self.local_value(next, span);

        let number = |number: u64| Expr { kind: ExprKind::Const(number), ty: u32, span };
        let stop = |cond: Expr, before: Vec<Stmt>| {
            let then = before.into_iter().chain([Stmt { kind: StmtKind::Break, span }]).collect();
            Stmt { kind: StmtKind::If { cond, then, otherwise: Vec::new() }, span }
        };
        let no_head = self.is_null(head_value.clone());
        let no_next = self.is_null(next_value.clone());
        let at_bound = self.equal(self.local_value(index, span), number(bound));
        let cut = self.kernel_builtin(KernelBuiltin::CutList, self.common().void, span).expr;
        let cut = vec![Stmt { kind: StmtKind::Expr(cut), span }];
        let mut stmts = if list.is_circular {
            let is_end = self.equal(next_value.clone(), head_value);
            let is_cut = self.either(no_next, at_bound);
            vec![stop(self.either(no_head, is_end), Vec::new()), stop(is_cut, cut)]
        } else {
            vec![stop(self.either(no_head, no_next), Vec::new()), stop(at_bound, cut)]
        };
        let value = self.container_of(next_value.clone(), &args[1], &args[2], head_span)?.expr;
        debug_assert_eq!(value.ty, ty);
        stmts.push(Stmt { kind: StmtKind::Let { local: pointer, init: Some(value) }, span });
        let after = self.pointer_member(next_value, node, "next", span)?;
        let lvalue = Lvalue { kind: LvalueKind::Local(next), ty: after.ty, span };
        stmts.push(Stmt { kind: StmtKind::Assign { lvalue, value: after }, span });
        stmts.extend(body);
        Some(StmtKind::For { local: index, start: number(0), end: number(bound + 1), body: stmts })
    }

    /// Reports a `list` that no loop walks over.
    pub(super) fn list_alone(&mut self, span: Span) -> Typed {
        self.report(
            Diagnostic::error(402, span, "a list of the kernel is only iterated over")
                .help("write `for (i, child in list(&task->children, task_struct, sibling)) { .. }`"),
        );
        self.error_expr(span)
    }

    /// Checks the arguments: the list, the type of the pointers to its elements, and the bound.
    fn list_parts(&mut self, args: &[ast::Expr], span: Span) -> Option<(List, TypeId, u64)> {
        if self.half() == Half::User {
            self.report(Diagnostic::error(306, span, "`list` belongs to the kernel half"));
            return None;
        }
        let (head, owner, member, bound) = match args {
            [head, owner, member] => (head, owner, member, None),
            [head, owner, member, bound] => (head, owner, member, Some(bound)),
            _ => {
                self.report(
                    Diagnostic::error(401, span, "`list` takes a list, the struct of its elements, and their member")
                        .help("write `list(&task->children, task_struct, sibling)`, with a bound behind if it needs one"),
                );
                return None;
            }
        };
        let bound = match bound {
            Some(bound) => self.list_bound(bound)?,
            None => DEFAULT_ELEMENTS,
        };
        let head = self.not_last(|body| body.expr(head, None)).expr;
        let list = self.list_head(head)?;
        let (structure, first) = list.first;
        let start = self.pointer_member(list.head.clone(), structure, first, span)?;
        if self.node_of(&start).is_none() {
            let structure = self.checker.types.struct_def(structure).name.clone();
            let text = format!("`{first}` of the script's `{structure}` is no pointer to an element");
            self.report(
                Diagnostic::error(511, span, text)
                    .help(format!("remove the declaration of `{structure}`: the kernel describes it")),
            );
            return None;
        }
        // Reports what is wrong with the struct and its member.
        let pointer = self.container_of(start, owner, member, span)?;
        Some((list, pointer.expr.ty, bound))
    }

    /// The struct that a pointer to an element of a list points to.
    fn node_of(&self, pointer: &Expr) -> Option<StructId> {
        match *self.checker.types.kind(pointer.ty) {
            TypeKind::Ptr(to) => self.checker.types.kernel_struct(to),
            _ => None,
        }
    }

    fn list_bound(&mut self, bound: &ast::Expr) -> Option<u64> {
        let found = self.not_last(|body| body.expr(bound, None));
        let elements = found.constant.and_then(|value| u64::try_from(value).ok());
        let fits = elements.filter(|elements| (1..MAX_ITERATIONS).contains(elements));
        if fits.is_none() && !self.checker.types.is_error(found.expr.ty) {
            let text = format!("the bound of a list is a constant from 1 to {}", MAX_ITERATIONS - 1);
            self.report(Diagnostic::error(705, bound.span, text));
        }
        fits
    }

    fn list_head(&mut self, head: Expr) -> Option<List> {
        if self.checker.types.is_error(head.ty) {
            return None;
        }
        let structure = match *self.checker.types.kind(head.ty) {
            TypeKind::Ptr(to) => self.checker.types.kernel_struct(to),
            _ => None,
        };
        let name = structure.map(|id| self.checker.types.struct_def(id).name.clone());
        let first = match name.as_deref() {
            Some("list_head") => Some(("next", true)),
            Some("hlist_head") => Some(("first", false)),
            _ => None,
        };
        let (Some(id), Some((member, is_circular))) = (structure, first) else {
            let text = format!("expected a list of the kernel, found `{}`", self.type_name(head.ty));
            self.report(
                Diagnostic::error(402, head.span, text)
                    .help("the address of a `list_head` or `hlist_head`: `&task->children`"),
            );
            return None;
        };
        Some(List { head, first: (id, member), is_circular })
    }

    /// The value of a member behind a pointer to a kernel struct.
    fn pointer_member(&mut self, pointer: Expr, owner: StructId, member: &str, span: Span) -> Option<Expr> {
        let name = ast::Ident { name: member.to_owned(), span };
        let field = self.checker.kernel_member(owner, &name)?;
        let ty = self.checker.types.struct_def(owner).fields[field].ty;
        let structure = self.checker.types.struct_type(owner);
        let whole = Lvalue { kind: LvalueKind::Deref(Box::new(pointer)), ty: structure, span };
        let lvalue = Lvalue { kind: LvalueKind::Field { base: Box::new(whole), field }, ty, span };
        Some(Expr { kind: ExprKind::Load(lvalue), ty, span })
    }

    fn local_value(&self, local: LocalId, span: Span) -> Expr {
        let ty = self.locals[local].ty;
        Expr { kind: ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), ty, span }), ty, span }
    }

    fn is_null(&self, pointer: Expr) -> Expr {
        let span = pointer.span;
        Expr { kind: ExprKind::IsNull(Box::new(pointer)), ty: self.common().bool, span }
    }

    fn equal(&self, left: Expr, right: Expr) -> Expr {
        let span = left.span;
        let kind = ExprKind::Binary(BinaryOp::Eq, Box::new(left), Box::new(right));
        Expr { kind, ty: self.common().bool, span }
    }

    fn either(&self, left: Expr, right: Expr) -> Expr {
        let span = left.span;
        let kind = ExprKind::Logic(LogicOp::Or, Box::new(left), Box::new(right));
        Expr { kind, ty: self.common().bool, span }
    }
}

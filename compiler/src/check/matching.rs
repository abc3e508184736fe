//! `match` (language reference, 8.2).

use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{
    Arm, ArmBody, Block, Expr, ExprKind, KernelBuiltin, LocalId, Lvalue, LvalueKind, Match, Pattern,
    SharedBuiltin, Stmt, StmtKind,
};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// The end of a block or branch.
enum Tail {
    /// It ends with a value.
    Value(Typed),
    /// Control never reaches the end: it returns, throws or leaves the loop.
    Leaves,
    /// It ends with an `if` whose branches have tails of their own; the `if` is the last statement of the
    /// block.
    Branches(Box<Branch>, Box<Branch>),
    /// It ends without a value, at this source range.
    Nothing(Span),
}

/// The type and constant value of an arm.
#[derive(Clone, Copy)]
struct ArmValue {
    ty: TypeId,
    literal: bool,
    span: Span,
}

/// The position of a `match` that may have a value or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchPosition {
    Statement,
    /// The end of an arm: its value may be the arm's.
    EndOfArm,
}

/// A block and its end. The value is not in the block.
struct Branch {
    block: Block,
    tail: Tail,
}

/// A pattern whose type is that of the value.
enum CheckedPattern {
    Of(Pattern),
    /// The value's type has no such value.
    Never,
}

/// An arm after its check.
struct Checked {
    /// The pattern with its source range; none for `default`.
    pattern: Option<(CheckedPattern, Span)>,
    branch: Branch,
}

impl Body<'_, '_> {
    /// Checks a `match` whose value is used.
    pub(super) fn match_value(
        &mut self,
        value: &ast::Expr,
        arms: &[ast::Arm],
        wanted: Option<TypeId>,
        span: Span,
    ) -> Typed {
        let (value, arms) = self.arms(value, arms);
        let mut missing = None;
        arms.iter().for_each(|arm| first_missing(&arm.branch.tail, &mut missing));
        if let Some(arm_end) = missing {
            self.report(
                Diagnostic::error(708, arm_end, "arm gives no value")
                    .also(Span { end: span.start + 5, ..span }, "this match is used as a value")
                    .help("end the arm with an expression, `return` or `throw`"),
            );
            return self.error_expr(span);
        }
        let Some(ty) = self.unify(&arms) else { return self.error_expr(span) };
        // Each arm converts to the type of the destination by itself, so that literals take that type.
        let ty = match wanted {
            Some(wanted) if !self.checker.types.is_error(wanted) => wanted,
            _ => ty,
        };
        self.assemble(value, arms, ty, span)
    }

    /// Checks a `match` that may have a value or not. Its value is the function's result if it is the last
    /// operation of the function.
    pub(super) fn match_statement(
        &mut self,
        value: &ast::Expr,
        arms: &[ast::Arm],
        position: MatchPosition,
        span: Span,
    ) -> Expr {
        let wanted = self.tail.then_some(self.ret);
        let (value, arms) = self.arms(value, arms);
        let mut missing = None;
        arms.iter().for_each(|arm| first_missing(&arm.branch.tail, &mut missing));
        let void = self.checker.types.common().void;
        // A script does not mean the result of `print` as its own.
        let prints = wanted.is_some() && arms.iter().any(|arm| prints(&arm.branch.tail));
        let used = position == MatchPosition::EndOfArm || wanted.is_some();
        if used && missing.is_none() && !prints && arms.iter().any(|arm| has_value(&arm.branch.tail)) {
            let Some(ty) = self.unify(&arms) else { return self.error_expr(span).expr };
            return self.assemble(value, arms, wanted.unwrap_or(ty), span).expr;
        }
        if self.checker.options.strict_011
            && let Some(arm_end) = missing
        {
            self.report(Diagnostic::error(708, arm_end, "arm gives no value").note("0.1.1 demands one"));
        }
        self.assemble(value, arms, void, span).expr
    }

    fn arms(&mut self, value: &ast::Expr, arms: &[ast::Arm]) -> (Expr, Vec<Checked>) {
        let tail_call = std::mem::take(&mut self.tail_call);
        let value = self.not_last(|body| body.expr(value, None)).expr;
        let compared = self.matched_type(&value);
        let mut checked = Vec::new();
        for arm in arms {
            let pattern = arm.pattern.as_ref().map(|pattern| (self.pattern(pattern, compared), pattern.span));
            self.tail_call = tail_call;
            let branch = self.arm_result(&arm.result);
            self.tail_call = false;
            match pattern {
                Some((Some(pattern), span)) => {
                    checked.push(Checked { pattern: Some((pattern, span)), branch })
                }
                Some((None, _)) => {}
                None => checked.push(Checked { pattern: None, branch }),
            }
        }
        self.tail_call = tail_call;
        self.check_arms(&checked, arms, compared, value.span);
        (value, checked)
    }

    /// Returns the type in which patterns are compared; the error type if an error was reported.
    fn matched_type(&mut self, value: &Expr) -> TypeId {
        let fits = matches!(
            self.checker.types.kind(value.ty),
            TypeKind::Int(_)
                | TypeKind::Enum(_)
                | TypeKind::Bool
                | TypeKind::Char
                | TypeKind::Str(_)
                | TypeKind::Error
        );
        if fits {
            return value.ty;
        }
        let text = format!("`{}` cannot be matched", self.type_name(value.ty));
        self.report(
            Diagnostic::error(418, value.span, text)
                .help("match an integer, an enum, a bool, a character or a string"),
        );
        self.checker.types.common().error
    }

    /// Checks a pattern for values of a type; `None` if it was reported.
    fn pattern(&mut self, pattern: &ast::Expr, ty: TypeId) -> Option<CheckedPattern> {
        if let ast::ExprKind::Name(name) = &strip(pattern).kind {
            let variable =
                matches!(self.lookup(name), Some(Scoped::Local(_) | Scoped::Const(..) | Scoped::Program(_)));
            let constant = matches!(
                self.checker.names.get(name),
                Some(Symbol::Enumerator(..) | Symbol::Const(..) | Symbol::Error) | None
            );
            if variable || !constant {
                self.report(
                    Diagnostic::error(429, pattern.span, "a pattern is a literal, an enumerator or default")
                        .label(format!("`{name}` is a name for a value that is not constant"))
                        .help("compare variables with `if`"),
                );
                return None;
            }
        }
        let found = self.expr(pattern, None);
        if self.checker.types.is_error(found.expr.ty) || self.checker.types.is_error(ty) {
            return None;
        }
        if let ExprKind::Kernel(KernelBuiltin::Enumerator { name, .. }) = &found.expr.kind {
            let text =
                format!("the value of `{name}` is the running kernel's, so that it cannot be a pattern");
            self.report(
                Diagnostic::error(429, pattern.span, text).help(format!("compare with `if (.. == {name})`")),
            );
            return None;
        }
        let pair = (self.checker.types.kind(found.expr.ty).clone(), self.checker.types.kind(ty).clone());
        let pattern = match pair {
            (TypeKind::Str(_), TypeKind::Str(_)) => match found.expr.kind {
                ExprKind::Bytes(bytes) => Some(CheckedPattern::Of(Pattern::Text(bytes))),
                _ => None,
            },
            (TypeKind::Bool, TypeKind::Bool) | (TypeKind::Char, TypeKind::Char) => match found.expr.kind {
                ExprKind::Const(bits) => Some(CheckedPattern::Of(Pattern::Const(bits))),
                _ => None,
            },
            (TypeKind::Enum(one), TypeKind::Enum(other)) if one != other => None,
            (TypeKind::Int(_) | TypeKind::Enum(_), TypeKind::Int(_) | TypeKind::Enum(_)) => {
                self.integer_pattern(&found, ty)
            }
            _ => None,
        };
        if pattern.is_none() {
            let text = format!(
                "a pattern of type `{}` does not fit `{}`",
                self.type_name(found.expr.ty),
                self.type_name(ty)
            );
            self.report(Diagnostic::error(418, found.expr.span, text));
        }
        pattern
    }

    fn integer_pattern(&mut self, found: &Typed, ty: TypeId) -> Option<CheckedPattern> {
        let int = self.checker.types.scalar(ty)?;
        let (bits, same) = found.bits_in(int, &self.checker.types)?;
        if !same {
            let value = found.number(&self.checker.types)?;
            let text = format!("`{}` never has the value {value}", self.type_name(ty));
            self.report(Diagnostic::warning(706, found.expr.span, text).label("this arm is never reached"));
            return Some(CheckedPattern::Never);
        }
        Some(CheckedPattern::Of(Pattern::Const(bits)))
    }

    /// Reports arms that are never reached, and values that no arm matches.
    fn check_arms(&mut self, arms: &[Checked], written: &[ast::Arm], ty: TypeId, matched: Span) {
        let mut seen: Vec<(&Pattern, Span)> = Vec::new();
        for (pattern, span) in arms.iter().filter_map(|arm| arm.pattern.as_ref()) {
            let CheckedPattern::Of(pattern) = pattern else { continue };
            if let Some((_, first)) = seen.iter().find(|(one, _)| *one == pattern) {
                let first = *first;
                self.report(
                    Diagnostic::warning(706, *span, "this arm is never reached")
                        .also(first, "the same value is taken here"),
                );
            } else {
                seen.push((pattern, *span));
            }
        }
        let defaults = written.iter().filter(|arm| arm.pattern.is_none()).count();
        if defaults > 1 {
            self.report(Diagnostic::warning(706, matched, "only the first `default` is ever taken"));
        }
        let has = |bits: u64| seen.iter().any(|(pattern, _)| **pattern == Pattern::Const(bits));
        let missing = match self.checker.types.kind(ty) {
            TypeKind::Bool => (!has(0) || !has(1)).then(|| if has(0) { "true" } else { "false" }.to_owned()),
            TypeKind::Enum(id) => {
                let def = self.checker.types.enum_def(*id);
                def.enumerators.iter().find(|(_, bits)| !has(*bits)).map(|(name, _)| name.clone())
            }
            _ => None,
        };
        if let (Some(missing), 0) = (missing, defaults) {
            self.report(
                Diagnostic::warning(707, matched, "not all values are covered")
                    .label(format!("no arm for `{missing}`"))
                    .help("add the arm, or a `default`"),
            );
        }
    }

    fn arm_result(&mut self, result: &ast::ArmResult) -> Branch {
        match result {
            ast::ArmResult::Expr(expr) => {
                let mut block = Vec::new();
                let tail = self.last_expr(expr, &mut block);
                Branch { block, tail }
            }
            ast::ArmResult::Block(block) => self.arm_block(block),
        }
    }

    /// Checks the expression at the end of an arm; one without a value is evaluated as a statement.
    fn last_expr(&mut self, expr: &ast::Expr, out: &mut Block) -> Tail {
        let value = match &strip(expr).kind {
            ast::ExprKind::Match { value, arms } => {
                let position = MatchPosition::EndOfArm;
                Typed::of(self.not_last(|body| body.match_statement(value, arms, position, expr.span)))
            }
            _ => {
                self.tail_call &= super::stmt::may_be_tail_call(expr);
                self.not_last(|body| body.expr(expr, None))
            }
        };
        if value.expr.ty == self.checker.types.common().void {
            let span = value.expr.span;
            out.push(Stmt { kind: StmtKind::Expr(value.expr), span });
            return if crate::hir::flow::ends(out) { Tail::Leaves } else { Tail::Nothing(span) };
        }
        Tail::Value(value)
    }

    /// Checks a block whose last expression is its value.
    fn arm_block(&mut self, block: &ast::Block) -> Branch {
        self.scoped(|scope| {
            let Some((last, others)) = block.stmts.split_last() else {
                return Branch { block: Vec::new(), tail: Tail::Nothing(block.span) };
            };
            let mut out = Vec::new();
            scope.not_last(|scope| others.iter().for_each(|stmt| scope.statement(stmt, &mut out)));
            let tail = scope.last_statement(last, &mut out);
            Branch { block: out, tail }
        })
    }

    fn last_statement(&mut self, last: &ast::Stmt, out: &mut Block) -> Tail {
        match &last.kind {
            ast::StmtKind::Expr(expr) => self.last_expr(expr, out),
            ast::StmtKind::If(one) => self.last_if(one, last.span, out),
            _ => {
                self.not_last(|body| body.statement(last, out));
                let leaves = matches!(
                    last.kind,
                    ast::StmtKind::Return(_)
                        | ast::StmtKind::Throw(_)
                        | ast::StmtKind::Break
                        | ast::StmtKind::Continue
                );
                if leaves || crate::hir::flow::ends(out) { Tail::Leaves } else { Tail::Nothing(last.span) }
            }
        }
    }

    fn last_if(&mut self, one: &ast::If, span: Span, out: &mut Block) -> Tail {
        let (cond, then) = match &one.cond {
            ast::Cond::Expr(cond) => {
                let checked = self.not_last(|body| body.condition(cond));
                (checked, self.knowing(cond, true, |body| body.arm_block(&one.then)))
            }
            ast::Cond::Var { name, value } => self.scoped(|body| {
                let cond = body.not_last(|body| body.bound_condition(name, value, out));
                (cond, body.arm_block(&one.then))
            }),
        };
        let otherwise = self.knowing_otherwise(&one.cond, |body| match &one.otherwise {
            Some(ast::Else::Block(block)) => body.arm_block(block),
            Some(ast::Else::If(nested, span)) => {
                let mut block = Vec::new();
                let tail = body.last_if(nested, *span, &mut block);
                Branch { block, tail }
            }
            None => Branch { block: Vec::new(), tail: Tail::Nothing(span) },
        });
        let kind = StmtKind::If { cond, then: Vec::new(), otherwise: Vec::new() };
        out.push(Stmt { kind, span });
        Tail::Branches(Box::new(then), Box::new(otherwise))
    }

    /// Returns the common type of all arms; `None` if an error was reported.
    fn unify(&mut self, arms: &[Checked]) -> Option<TypeId> {
        let mut values = Vec::new();
        arms.iter().for_each(|arm| collect_values(&arm.branch.tail, &mut values));
        let void = self.checker.types.common().void;
        let mut all = values.into_iter();
        let Some(mut common) = all.next() else { return Some(void) };
        for next in all {
            let Some(ty) = self.meet(common, next) else {
                let (a, b) = (self.type_name(common.ty), self.type_name(next.ty));
                let text = format!("match arms of `{a}` and `{b}` do not go together");
                self.report(
                    Diagnostic::error(418, next.span, text).also(common.span, format!("this is `{a}`")),
                );
                return None;
            };
            common = ArmValue { ty, literal: common.literal && next.literal, span: next.span };
        }
        Some(common.ty)
    }

    /// Returns the common type of two arms.
    fn meet(&mut self, a: ArmValue, b: ArmValue) -> Option<TypeId> {
        let types = &self.checker.types;
        let (left, right) = (a.ty, b.ty);
        if left == right || types.is_error(right) {
            return Some(left);
        }
        if types.is_error(left) {
            return Some(right);
        }
        let action = self.checker.known.xdp_action;
        match (types.kind(left), types.kind(right)) {
            (TypeKind::Str(one), TypeKind::Str(other)) => Some(if one >= other { left } else { right }),
            (TypeKind::Null, TypeKind::Ptr(_) | TypeKind::Fn(..)) => Some(right),
            (TypeKind::Ptr(_) | TypeKind::Fn(..), TypeKind::Null) => Some(left),
            (TypeKind::Enum(_), TypeKind::Enum(_)) => Some(types.common().u32),
            (TypeKind::Int(_) | TypeKind::Enum(_), TypeKind::Int(_) | TypeKind::Enum(_)) => {
                if left == action || right == action {
                    return Some(action);
                }
                let (one, other) = (types.scalar(left)?, types.scalar(right)?);
                let int = match (a.literal, b.literal) {
                    (true, false) if super::convert::combine(one, other).is_none() => Some(other),
                    (false, true) if super::convert::combine(one, other).is_none() => Some(one),
                    _ => super::convert::combine(one, other),
                }?;
                Some(self.int_type(int))
            }
            _ => None,
        }
    }

    fn assemble(&mut self, value: Expr, arms: Vec<Checked>, ty: TypeId, span: Span) -> Typed {
        let mut result = Match { value, arms: Vec::new(), otherwise: None };
        for arm in arms {
            let body = self.arm_body(arm.branch, ty);
            match arm.pattern {
                Some((CheckedPattern::Of(pattern), span)) => result.arms.push(Arm { pattern, body, span }),
                // Cut to the type, the pattern would match another value.
                Some((CheckedPattern::Never, _)) => {}
                None => result.otherwise = result.otherwise.or(Some(body)),
            }
        }
        self.make(ExprKind::Match(Box::new(result)), ty, span)
    }

    fn arm_body(&mut self, branch: Branch, ty: TypeId) -> ArmBody {
        let Branch { mut block, tail } = branch;
        let void = self.checker.types.common().void;
        let value = match tail {
            Tail::Value(value) if ty == void => {
                let span = value.expr.span;
                block.push(Stmt { kind: StmtKind::Expr(value.expr), span });
                None
            }
            Tail::Value(value) => Some(self.coerce(value, ty)),
            Tail::Leaves | Tail::Nothing(_) => None,
            Tail::Branches(then, otherwise) => self.branches(&mut block, *then, *otherwise, ty),
        };
        ArmBody { block, value }
    }

    /// Joins the branches of an `if` at the end of an arm through a variable of its own.
    fn branches(&mut self, block: &mut Block, then: Branch, otherwise: Branch, ty: TypeId) -> Option<Expr> {
        let Some(Stmt { kind: StmtKind::If { cond, .. }, span }) = block.pop() else { return None };
        let used =
            ty != self.checker.types.common().void && (has_value(&then.tail) || has_value(&otherwise.tail));
        let local = used.then(|| self.hidden_local("match", ty, span));
        if let Some(local) = local {
            block.push(Stmt { kind: StmtKind::Let { local, init: None }, span });
        }
        let then = self.branch_into(then, ty, local);
        let otherwise = self.branch_into(otherwise, ty, local);
        block.push(Stmt { kind: StmtKind::If { cond, then, otherwise }, span });
        local.map(|local| self.load_local(local, span))
    }

    fn branch_into(&mut self, branch: Branch, ty: TypeId, local: Option<LocalId>) -> Block {
        let ArmBody { mut block, value } = self.arm_body(branch, ty);
        if let (Some(local), Some(value)) = (local, value) {
            let span = value.span;
            let lvalue = Lvalue { kind: LvalueKind::Local(local), ty, span };
            block.push(Stmt { kind: StmtKind::Assign { lvalue, value }, span });
        }
        block
    }
}

fn first_missing(tail: &Tail, found: &mut Option<Span>) {
    match tail {
        Tail::Nothing(span) => *found = found.or(Some(*span)),
        Tail::Branches(then, otherwise) => {
            first_missing(&then.tail, found);
            first_missing(&otherwise.tail, found);
        }
        Tail::Value(_) | Tail::Leaves => {}
    }
}

fn prints(tail: &Tail) -> bool {
    match tail {
        Tail::Value(value) => matches!(value.expr.kind, ExprKind::Shared(SharedBuiltin::Print { .. })),
        Tail::Branches(then, otherwise) => prints(&then.tail) || prints(&otherwise.tail),
        Tail::Leaves | Tail::Nothing(_) => false,
    }
}

fn has_value(tail: &Tail) -> bool {
    match tail {
        Tail::Value(_) => true,
        Tail::Branches(then, otherwise) => has_value(&then.tail) || has_value(&otherwise.tail),
        Tail::Leaves | Tail::Nothing(_) => false,
    }
}

fn collect_values(tail: &Tail, out: &mut Vec<ArmValue>) {
    match tail {
        Tail::Value(Typed { expr, literal, .. }) => {
            out.push(ArmValue { ty: expr.ty, literal: *literal, span: expr.span });
        }
        Tail::Branches(then, otherwise) => {
            collect_values(&then.tail, out);
            collect_values(&otherwise.tail, out);
        }
        Tail::Leaves | Tail::Nothing(_) => {}
    }
}

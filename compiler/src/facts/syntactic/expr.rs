//! Expressions: references of their names, and their types as far as they follow from the text.

use super::Collector;
use crate::ast::{Arm, ArmResult, BinaryOp, Expr, ExprKind, Ident, UnaryOp};
use crate::facts::tables::builtins::named;
use crate::facts::{DefId, DefKind, Ty};
use crate::source::Span;

impl Collector<'_> {
    /// Records the references of an expression, and returns its type.
    pub(super) fn expr(&mut self, expr: &Expr) -> Ty {
        match &expr.kind {
            ExprKind::Int(value) => Ty::named(if *value > u64::from(u32::MAX) { "u64" } else { "u32" }),
            ExprKind::Str(bytes) => Ty::Str(Some(bytes.len() as u64 + 1)),
            ExprKind::Char(_) => Ty::named("char"),
            ExprKind::Bool(_) => Ty::named("bool"),
            ExprKind::Null => Ty::Unknown,
            ExprKind::Array(elements) => self.array(elements),
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::Paren(inner) => self.expr(inner),
            ExprKind::Field { base, name, .. } => self.field(base, name),
            ExprKind::Index(base, index) => {
                let base = self.expr(base);
                self.expr(index);
                self.unalias(&base).element()
            }
            ExprKind::Keys(parts) => {
                parts.iter().for_each(|part| {
                    self.expr(part);
                });
                Ty::Unknown
            }
            // The columns of a map, which are not in scope.
            ExprKind::Named(name, _) if name.name == "by" => Ty::Unknown,
            ExprKind::Named(_, value) => self.expr(value),
            ExprKind::Call { callee, args } => self.call(callee, args),
            ExprKind::New(ty, flag) => {
                flag.iter().for_each(|flag| {
                    self.expr(flag);
                });
                Ty::Ptr(Box::new(self.type_expr(ty)))
            }
            ExprKind::Struct { module, name, fields } => self.literal(module.as_ref(), name, fields),
            ExprKind::Type(ty) => {
                self.type_expr(ty);
                Ty::Unknown
            }
            ExprKind::Match { value, arms } => {
                self.expr(value);
                self.arms(arms)
            }
            ExprKind::Unary(op, inner) => {
                let ty = self.expr(inner);
                unary(*op, ty)
            }
            ExprKind::Binary(op, left, right) => {
                let (left, right) = (self.expr(left), self.expr(right));
                binary(*op, left, right)
            }
            ExprKind::Cast(inner, ty) => {
                self.expr(inner);
                self.type_expr(ty)
            }
        }
    }

    fn array(&mut self, elements: &[Expr]) -> Ty {
        let types: Vec<Ty> = elements.iter().map(|element| self.expr(element)).collect();
        let len = types.len();
        types.into_iter().next().map_or(Ty::Unknown, |first| Ty::Array(Box::new(first), len.to_string()))
    }

    pub(super) fn name(&mut self, name: &str, span: Span) -> Ty {
        let Some(id) = self.lookup(name) else { return Ty::Unknown };
        self.facts.refer(span, id);
        match self.facts.definition(id) {
            // A function's type is that of its result, which its name alone does not have.
            Some(one) if !one.kind.is_function() => one.ty.clone(),
            _ => Ty::Unknown,
        }
    }

    fn field(&mut self, base: &Expr, name: &Ident) -> Ty {
        let (id, _) = self.field_def(base, name);
        match id.and_then(|id| self.facts.definition(id)) {
            Some(one) if !one.kind.is_function() => one.ty.clone(),
            _ => Ty::Unknown,
        }
    }

    /// Returns the definition of `base.name`, and the type of the base.
    fn field_def(&mut self, base: &Expr, name: &Ident) -> (Option<DefId>, Ty) {
        let (id, ty) = match self.owner(base) {
            Some(owner) => (self.member(owner, &name.name), Ty::Unknown),
            None => {
                let ty = self.expr(base);
                (self.field_of(&ty, &name.name), ty)
            }
        };
        self.refer(name.span, id);
        (id, ty)
    }

    /// Returns the module or config that stands before the dot.
    fn owner(&mut self, base: &Expr) -> Option<DefId> {
        let ExprKind::Name(owner) = &base.kind else { return None };
        let id = self.lookup(owner)?;
        if !matches!(self.kind_of(id)?, DefKind::Module | DefKind::Config) {
            return None;
        }
        self.facts.refer(base.span, id);
        Some(id)
    }

    fn call(&mut self, callee: &Expr, args: &[Expr]) -> Ty {
        let ty = match &callee.kind {
            ExprKind::Name(name) => self.call_name(name, callee.span),
            ExprKind::Field { base, name, .. } => self.call_member(base, name),
            _ => {
                let ty = self.expr(callee);
                self.unalias(&ty).result()
            }
        };
        let args: Vec<Ty> = args.iter().map(|arg| self.expr(arg)).collect();
        self.by_arguments(callee, &args).unwrap_or(ty)
    }

    fn call_name(&mut self, name: &str, span: Span) -> Ty {
        // A script's own function does not hide a builtin of 0.1.1 in a call (language reference, 3.1).
        let builtin = named(name).filter(|builtin| builtin.in_011);
        let builtin = builtin.and_then(|_| self.predeclared.get(name).copied());
        let Some(id) = builtin.or_else(|| self.lookup(name)) else { return Ty::Unknown };
        self.facts.refer(span, id);
        match self.facts.definition(id) {
            Some(one) if one.kind.is_function() => one.ty.clone(),
            Some(one) => self.unalias(&one.ty).result(),
            None => Ty::Unknown,
        }
    }

    fn call_member(&mut self, base: &Expr, name: &Ident) -> Ty {
        let (id, base) = self.field_def(base, name);
        let Some(one) = id.and_then(|id| self.facts.definition(id)) else { return Ty::Unknown };
        match (&base, one.name.as_str()) {
            (Ty::Ring(record, _), "reserve") => Ty::Ptr(record.clone()),
            (Ty::Keyless(..), "pop" | "peek") => base.element(),
            _ if one.kind.is_function() => one.ty.clone(),
            _ => self.unalias(&one.ty).result(),
        }
    }

    /// Returns the result of a builtin that depends on its arguments.
    fn by_arguments(&self, callee: &Expr, args: &[Ty]) -> Option<Ty> {
        let ExprKind::Name(name) = &callee.kind else { return None };
        let options = |ty: &Ty| self.unalias(ty) == Ty::named("perf_options");
        match name.as_str() {
            "attach" if !args.iter().any(options) => Some(Ty::named("u32")),
            "per_cpu" if self.kind_of(self.lookup(name)?) == Some(DefKind::Builtin) => {
                args.first().map(Ty::element)
            }
            _ => None,
        }
    }

    fn literal(&mut self, module: Option<&Ident>, name: &Ident, fields: &[(Ident, Expr)]) -> Ty {
        let owner = module.and_then(|module| self.globals.get(&module.name).copied());
        let id = match (module, owner) {
            (Some(module), Some(owner)) => {
                self.facts.refer(module.span, owner);
                self.member(owner, &name.name)
            }
            (Some(_), None) => None,
            (None, _) => self.lookup_global(&name.name),
        };
        self.refer(name.span, id);
        let full = module.map_or(name.name.clone(), |module| format!("{}.{}", module.name, name.name));
        let of = self.type_def(&full);
        for (field, value) in fields {
            let found = of.and_then(|of| self.member(of, &field.name));
            self.refer(field.span, found);
            self.expr(value);
        }
        Ty::Named(full)
    }

    fn arms(&mut self, arms: &[Arm]) -> Ty {
        let mut first = Ty::Unknown;
        for arm in arms {
            if let Some(pattern) = &arm.pattern {
                self.expr(pattern);
            }
            let ty = match &arm.result {
                ArmResult::Expr(result) => self.expr(result),
                ArmResult::Block(block) => {
                    self.block(block);
                    Ty::Unknown
                }
            };
            if !first.is_known() {
                first = ty;
            }
        }
        first
    }
}

fn unary(op: UnaryOp, ty: Ty) -> Ty {
    match (op, ty) {
        (UnaryOp::Not, _) => Ty::named("bool"),
        (UnaryOp::Deref, ty) => ty.pointee(),
        (UnaryOp::AddrOf, ty) if ty.is_known() => Ty::Ptr(Box::new(ty)),
        (UnaryOp::Neg, Ty::Named(name)) => Ty::named(match name.as_str() {
            "u8" => "i16",
            "u16" => "i32",
            "u32" | "u64" => "i64",
            signed => signed,
        }),
        (UnaryOp::BitNot, ty) => ty,
        _ => Ty::Unknown,
    }
}

/// Returns the type of an operator's result (language reference, 3.4).
fn binary(op: BinaryOp, left: Ty, right: Ty) -> Ty {
    match op {
        BinaryOp::OrOr
        | BinaryOp::AndAnd
        | BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge => Ty::named("bool"),
        BinaryOp::Shl | BinaryOp::Shr => left,
        BinaryOp::Add | BinaryOp::Sub => match (left, right) {
            (Ty::Str(Some(a)), Ty::Str(Some(b))) => Ty::Str(Some(a.saturating_add(b))),
            (Ty::Ptr(_), Ty::Ptr(_)) => Ty::named("u64"),
            (pointer @ Ty::Ptr(_), _) | (_, pointer @ Ty::Ptr(_)) => pointer,
            (left, right) => wider(left, right),
        },
        _ => wider(left, right),
    }
}

fn wider(left: Ty, right: Ty) -> Ty {
    let (Ty::Named(a), Ty::Named(b)) = (&left, &right) else { return Ty::Unknown };
    let (Some((a_signed, a_bits)), Some((b_signed, b_bits))) = (integer(a), integer(b)) else {
        return Ty::Unknown;
    };
    let sign = if a_signed || b_signed { 'i' } else { 'u' };
    Ty::Named(format!("{sign}{}", a_bits.max(b_bits)))
}

/// Returns the signedness and width in bits of an integer type.
fn integer(name: &str) -> Option<(bool, u32)> {
    let (signed, bits) = match name.split_at_checked(1)? {
        ("i", bits) => (true, bits),
        ("u", bits) => (false, bits),
        _ => return None,
    };
    matches!(bits, "8" | "16" | "32" | "64").then(|| bits.parse().ok().map(|bits| (signed, bits)))?
}

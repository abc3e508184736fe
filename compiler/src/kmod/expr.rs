//! Writes expressions in C.

use super::code::Writer;
use super::code::Written;
use super::types::int_name;
use super::{refused, symbol};
use crate::hir::{
    ArmBody, BinaryOp, Expr, ExprKind, KernelBuiltin, LogicOp, Match, Pattern, SharedBuiltin, UnaryOp,
};
use crate::types::TypeKind;

impl Writer<'_, '_, '_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Written {
        let span = expr.span;
        Ok(match &expr.kind {
            ExprKind::Const(bits) => {
                let ty = self.ty(expr.ty, span)?;
                format!("(({ty})0x{bits:x}ULL)")
            }
            ExprKind::Bytes(bytes) => {
                let ty = self.ty(expr.ty, span)?;
                let bytes: Vec<_> = bytes.iter().map(u8::to_string).collect();
                format!("({ty}){{ .e = {{ {} }} }}", bytes.join(", "))
            }
            ExprKind::Load(lvalue) => self.read(lvalue)?,
            ExprKind::Unary(op, operand) => {
                let (ty, operand) = (self.ty(expr.ty, span)?, self.expr(operand)?);
                match op {
                    UnaryOp::Neg => format!("(({ty})(0 - (u64){operand}))"),
                    UnaryOp::Not => format!("(!{operand})"),
                    UnaryOp::BitNot => format!("(({ty})~{operand})"),
                }
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right)?,
            ExprKind::Logic(op, left, right) => {
                let op = if *op == LogicOp::And { "&&" } else { "||" };
                format!("({} {op} {})", self.expr(left)?, self.expr(right)?)
            }
            ExprKind::Convert(from) if self.hir.types.scalar(from.ty).is_some() => {
                format!("(({}){})", self.ty(expr.ty, span)?, self.expr(from)?)
            }
            ExprKind::Truth(one) if self.hir.types.scalar(one.ty).is_some() => {
                format!("({} != 0)", self.expr(one)?)
            }
            ExprKind::Truth(one) => format!("(({}).e[0] != 0)", self.expr(one)?),
            ExprKind::Call { func, args } => {
                let args = args.iter().map(|arg| self.expr(arg)).collect::<Written<Vec<_>>>()?;
                format!("{}({})", symbol(self.hir, *func), args.join(", "))
            }
            ExprKind::Struct(values) => {
                let ty = self.ty(expr.ty, span)?;
                let values = values.iter().map(|value| self.expr(value)).collect::<Written<Vec<_>>>()?;
                format!("({ty}){{ {} }}", values.join(", "))
            }
            ExprKind::Array(values) => {
                let ty = self.ty(expr.ty, span)?;
                let values = values.iter().map(|value| self.expr(value)).collect::<Written<Vec<_>>>()?;
                format!("({ty}){{ .e = {{ {} }} }}", values.join(", "))
            }
            ExprKind::Repeat(value) => {
                let TypeKind::Array(_, len) = *self.hir.types.kind(expr.ty) else {
                    return refused(span, "this array is");
                };
                let (ty, element, value) =
                    (self.ty(expr.ty, span)?, self.ty(value.ty, value.span)?, self.expr(value)?);
                format!(
                    "({{ {element} ks_v = {value}; {ty} ks_r; u32 ks_i; \
                     for (ks_i = 0; ks_i < {len}; ks_i++) ks_r.e[ks_i] = ks_v; ks_r; }})"
                )
            }
            ExprKind::Match(one) => self.matched(one, expr)?,
            ExprKind::Shared(builtin) => self.shared(builtin, expr)?,
            ExprKind::Kernel(builtin) => match builtin {
                KernelBuiltin::TimeNs => "ktime_get_mono_fast_ns()".into(),
                KernelBuiltin::Pid => "((u32)current->tgid)".into(),
                KernelBuiltin::Tid => "((u32)current->pid)".into(),
                KernelBuiltin::Uid => "from_kuid(&init_user_ns, current_uid())".into(),
                KernelBuiltin::Gid => "from_kgid(&init_user_ns, current_gid())".into(),
                KernelBuiltin::Cpu => "((u32)raw_smp_processor_id())".into(),
                _ => return refused(span, "what only programs have is"),
            },
            ExprKind::Present { .. } | ExprKind::Bound(_) => return refused(span, "a map is"),
            ExprKind::AddrOf(_) | ExprKind::Offset(..) | ExprKind::Distance(..) | ExprKind::IsNull(_) => {
                return refused(span, "a pointer is");
            }
            ExprKind::CallExtern { .. } => return refused(span, "a function that is there for programs is"),
            _ => return refused(span, "this expression is"),
        })
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Written {
        let ty = self.ty(left.ty, left.span)?;
        let is_text = matches!(self.hir.types.kind(left.ty), TypeKind::Str(_));
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        if is_text {
            let equal = format!("strcmp((const char *)({left}).e, (const char *)({right}).e) == 0");
            return Ok(if op == BinaryOp::Eq { format!("({equal})") } else { format!("(!({equal}))") });
        }
        Ok(self.arithmetic(op, &right, &left, &ty))
    }

    /// Writes `left op right` for operands of one type; the result has the same type, except for comparisons.
    pub(super) fn arithmetic(&self, op: BinaryOp, right: &str, left: &str, ty: &str) -> String {
        let infix = |sign: &str| format!("(({ty})({left} {sign} {right}))");
        // Computed in u64: an overflow would be undefined in signed types, and in int, to which C promotes
        // small operands.
        let wrapping = |sign: &str| format!("(({ty})((u64){left} {sign} (u64){right}))");
        let bits = ty[1..].parse::<u32>().unwrap_or(8);
        match op {
            BinaryOp::Add => wrapping("+"),
            BinaryOp::Sub => wrapping("-"),
            BinaryOp::Mul => wrapping("*"),
            BinaryOp::Div => format!("ks_div_{ty}({left}, {right})"),
            BinaryOp::Rem => format!("ks_rem_{ty}({left}, {right})"),
            BinaryOp::And => infix("&"),
            BinaryOp::Or => infix("|"),
            BinaryOp::Xor => infix("^"),
            BinaryOp::Shl => format!("(({ty})((u64){left} << ((u64){right} & {})))", bits - 1),
            BinaryOp::Shr => format!("(({ty})({left} >> ((u64){right} & {})))", bits - 1),
            BinaryOp::Eq => format!("({left} == {right})"),
            BinaryOp::Ne => format!("({left} != {right})"),
            BinaryOp::Lt => format!("({left} < {right})"),
            BinaryOp::Le => format!("({left} <= {right})"),
            BinaryOp::Gt => format!("({left} > {right})"),
            BinaryOp::Ge => format!("({left} >= {right})"),
            BinaryOp::Max => format!("({left} > {right} ? {left} : {right})"),
        }
    }

    fn shared(&mut self, builtin: &SharedBuiltin, expr: &Expr) -> Written {
        match builtin {
            SharedBuiltin::Len(one) => Ok(format!("((u32)strlen((const char *)({}).e))", self.expr(one)?)),
            SharedBuiltin::SwapBytes(one) => {
                let ty = self.ty(one.ty, one.span)?;
                let bits = self.hir.types.scalar(one.ty).map_or(16, |int| int.bits);
                Ok(format!("(({ty})__builtin_bswap{bits}({}))", self.expr(one)?))
            }
            SharedBuiltin::Print { format, args } => self.print(format, args, expr.span),
            _ => refused(expr.span, "this builtin is"),
        }
    }

    /// Writes a `match`: the arms one after another, then the value of the one that matched.
    fn matched(&mut self, one: &Match, expr: &Expr) -> Written {
        let has_value = *self.hir.types.kind(expr.ty) != TypeKind::Void;
        let compared = match self.hir.types.scalar(one.value.ty) {
            Some(_) => self.ty(one.value.ty, one.value.span)?,
            None => return refused(expr.span, "a match of strings is"),
        };
        let mut text = format!("({{ {compared} ks_m = {}; ", self.expr(&one.value)?);
        if has_value {
            text += &format!("{} ks_r = {}; ", self.ty(expr.ty, expr.span)?, self.zero_of(expr.ty));
        }
        let int = self.hir.types.scalar(one.value.ty);
        for arm in &one.arms {
            let Pattern::Const(bits) = arm.pattern else { return refused(arm.span, "this pattern is") };
            let name = int.map_or_else(|| compared.clone(), int_name);
            text += &format!("if (ks_m == ({name})0x{bits:x}ULL) {{ {} }} else ", self.arm(&arm.body)?);
        }
        let otherwise = one.otherwise.as_ref().map(|body| self.arm(body)).transpose()?;
        text += &format!("{{ {} }} ", otherwise.unwrap_or_default());
        text += if has_value { "ks_r; })" } else { "(void)0; })" };
        Ok(text)
    }

    fn arm(&mut self, body: &ArmBody) -> Written {
        let block = self.block(&body.block)?;
        match &body.value {
            Some(value) if *self.hir.types.kind(value.ty) != TypeKind::Void => {
                Ok(format!("{block} ks_r = {};", self.expr(value)?))
            }
            Some(value) => Ok(format!("{block} {};", self.expr(value)?)),
            None => Ok(block),
        }
    }
}

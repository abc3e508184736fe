//! Formats expressions, including calls, literals and matches.

use super::layout::Break;
use super::writer::{Brackets, Writer};
use crate::ast::{Arm, ArmResult, BinaryOp, Expr, ExprKind, Ident, UnaryOp};

impl Writer<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Int(value) => self.verbatim(|| value.to_string().into_bytes()),
            ExprKind::Str(bytes) => self.verbatim(|| quoted(b'"', bytes)),
            ExprKind::Char(byte) => self.verbatim(|| quoted(b'\'', &[*byte])),
            ExprKind::Bool(true) => self.token("true"),
            ExprKind::Bool(false) => self.token("false"),
            ExprKind::Null => self.token("null"),
            ExprKind::Array(elements) => self.array(elements),
            ExprKind::Name(name) => self.name(name),
            ExprKind::Paren(inner) => {
                self.token("(");
                self.indent();
                self.expr(inner);
                self.dedent();
                self.same_line(")");
            }
            ExprKind::Field { base, arrow, name } => {
                self.expr(base);
                self.same_line(if *arrow { "->" } else { "." });
                self.name(&name.name);
            }
            ExprKind::Index(base, index) => {
                self.expr(base);
                self.same_line("[");
                self.indent();
                self.expr(index);
                self.dedent();
                self.same_line("]");
            }
            ExprKind::Keys(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        self.same_line(",");
                        self.space();
                    }
                    self.expr(part);
                }
            }
            ExprKind::Named(name, value) => {
                self.name(&name.name);
                self.same_line(":");
                self.space();
                self.expr(value);
            }
            ExprKind::Call { callee, args } => {
                self.expr(callee);
                self.args(args);
            }
            ExprKind::New(ty, flag) => {
                self.token("new");
                self.space();
                self.ty(ty);
                self.same_line("(");
                flag.iter().for_each(|flag| self.expr(flag));
                self.same_line(")");
            }
            ExprKind::Struct { module, name, fields } => self.struct_literal(module.as_ref(), name, fields),
            ExprKind::Match { value, arms } => self.match_expr(value, arms),
            ExprKind::Unary(op, operand) => self.unary(*op, operand),
            ExprKind::Binary(op, left, right) => {
                // A comment before the group is written first, so that it does not break the group.
                self.comments();
                self.group(Break::IfTooLong, |writer| {
                    writer.chain(*op, left, right);
                    writer.dedent();
                });
            }
            ExprKind::Cast(inner, ty) => {
                self.expr(inner);
                self.space();
                self.stick("as");
                self.space();
                self.ty(ty);
            }
            ExprKind::Type(ty) => self.ty(ty),
        }
    }

    /// Writes a chain of operators of one precedence. Indents after the first operand; the caller dedents.
    fn chain(&mut self, op: BinaryOp, left: &Expr, right: &Expr) {
        match &left.kind {
            ExprKind::Binary(inner, first, second) if inner.level() == op.level() => {
                self.chain(*inner, first, second);
            }
            _ => {
                self.expr(left);
                self.indent();
            }
        }
        self.space();
        match op {
            BinaryOp::Shl => ["<", "<"].into_iter().for_each(|half| self.same_line(half)),
            BinaryOp::Shr => [">", ">"].into_iter().for_each(|half| self.same_line(half)),
            _ => self.same_line(op.text()),
        }
        self.line();
        self.expr(right);
    }

    fn unary(&mut self, op: UnaryOp, operand: &Expr) {
        self.token(match op {
            UnaryOp::Neg => "-",
            UnaryOp::Not => "!",
            UnaryOp::Deref => "*",
            UnaryOp::AddrOf => "&",
            UnaryOp::BitNot => "~",
        });
        if op == UnaryOp::AddrOf && matches!(operand.kind, ExprKind::Unary(UnaryOp::AddrOf, _)) {
            // Two `&` together are another operator.
            self.space();
        }
        self.expr(operand);
    }

    /// Fills lines with as many elements as fit.
    fn array(&mut self, elements: &[Expr]) {
        self.token("[");
        self.group(Break::IfTooLong, |writer| {
            writer.indent();
            for (at, element) in elements.iter().enumerate() {
                if at == 0 {
                    writer.soft();
                } else {
                    writer.same_line(",");
                    writer.group(Break::IfTooLong, Writer::line);
                }
                writer.expr(element);
            }
            writer.last_comments();
            writer.dedent();
            if !elements.is_empty() {
                writer.soft();
            }
            writer.token("]");
        });
    }

    fn args(&mut self, args: &[Expr]) {
        // An argument that breaks well by itself stays on the line of the parenthesis.
        let hugs = args.iter().filter(|arg| !is_short(arg)).count() == 1
            && args.iter().all(|arg| is_short(arg) || breaks_itself(arg))
            && !self.comments_in_brackets();
        self.same_line("(");
        if hugs {
            for (at, arg) in args.iter().enumerate() {
                if at > 0 {
                    self.same_line(",");
                    self.space();
                }
                self.expr(arg);
            }
            self.omit_trailing_comma();
            self.same_line(")");
            return;
        }
        self.group(Break::IfTooLong, |writer| {
            writer.list(args, Brackets::Round, Writer::expr);
            writer.token(")");
        });
    }

    fn struct_literal(&mut self, module: Option<&Ident>, name: &Ident, fields: &[(Ident, Expr)]) {
        if let Some(module) = module {
            self.name(&module.name);
            self.same_line(".");
        }
        self.name(&name.name);
        self.space();
        self.braces(fields, Break::IfTooLong, |writer, (name, value)| {
            writer.name(&name.name);
            writer.same_line(":");
            writer.space();
            writer.expr(value);
        });
    }

    fn match_expr(&mut self, value: &Expr, arms: &[Arm]) {
        self.token("match");
        self.space();
        self.same_line("(");
        self.indent();
        self.expr(value);
        self.dedent();
        self.same_line(")");
        self.space();
        self.braces(arms, Break::Always, |writer, arm| {
            match &arm.pattern {
                Some(pattern) => writer.expr(pattern),
                None => writer.token("default"),
            }
            writer.same_line(":");
            writer.space();
            match &arm.result {
                ArmResult::Expr(result) => {
                    writer.indent();
                    writer.expr(result);
                    writer.dedent();
                }
                ArmResult::Block(block) => writer.block(block),
            }
        });
    }
}

/// Whether an expression is short enough for any line.
fn is_short(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Int(_) | ExprKind::Char(_) | ExprKind::Bool(_) | ExprKind::Null | ExprKind::Name(_) => true,
        ExprKind::Field { base, .. } | ExprKind::Unary(_, base) => is_short(base),
        _ => false,
    }
}

fn breaks_itself(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Struct { .. } | ExprKind::Match { .. })
}

/// Quotes the bytes of a literal.
pub(super) fn quoted(quote: u8, bytes: &[u8]) -> Vec<u8> {
    let mut text = vec![quote];
    for byte in bytes {
        match byte {
            b'\n' => text.extend(b"\\n"),
            b'\t' => text.extend(b"\\t"),
            b'\r' => text.extend(b"\\r"),
            0 => text.extend(b"\\0"),
            b'\\' => text.extend(b"\\\\"),
            byte if *byte == quote => text.extend([b'\\', quote]),
            0x20..0x7f => text.push(*byte),
            byte => text.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    text.push(quote);
    text
}

//! Writes functions and statements in C.

use std::fmt::Write as _;

use super::types::Definitions;
use super::{refused, symbol};
use crate::diag::Diagnostic;
use crate::hir::{
    BinaryOp, Block, Expr, ExprKind, FunctionKind, Hir, HirFunction, Local, LocalId, Lvalue, LvalueKind,
    MapIteration, Stmt, StmtKind,
};
use crate::index::{Id as _, IndexVec};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// C text, or the diagnostic why there is none.
pub(super) type Written<T = String> = Result<T, Box<Diagnostic>>;

/// A C function: its declaration without `;`, and its body.
pub(super) struct CFunction {
    pub(super) head: String,
    pub(super) body: String,
}

/// Writes one function of the typed tree in C.
pub(super) fn function(
    hir: &Hir,
    function: &HirFunction,
    definitions: &mut Definitions<'_>,
) -> Written<CFunction> {
    let mut writer = Writer { hir, locals: &function.locals, ret: function.ret, definitions };
    let mut params = Vec::new();
    for id in &function.params {
        let local = &function.locals[*id];
        params.push(format!("{} {}", writer.ty(local.ty, local.span)?, variable(*id)));
    }
    let params = if params.is_empty() { "void".into() } else { params.join(", ") };
    let mut body = String::from("{\n");
    for (id, local) in function.locals.iter_enumerated().filter(|(id, _)| !function.params.contains(id)) {
        let ty = writer.ty(local.ty, local.span)?;
        let _ = writeln!(body, "{ty} {} = {};", variable(id), writer.zero_of(local.ty));
    }
    body += &writer.block(&function.body)?;
    body.push_str("}\n");
    let linkage = if function.kind == FunctionKind::Kfunc { "__bpf_kfunc" } else { "static" };
    let id = hir.functions.iter_enumerated().find(|(_, one)| std::ptr::eq(*one, function));
    let name = id.map_or_else(String::new, |(id, _)| symbol(hir, id));
    let head = format!("{linkage} {} {name}({params})", writer.ty(function.ret, function.span)?);
    Ok(CFunction { head, body })
}

/// Returns the C name of a local.
pub(super) fn variable(id: LocalId) -> String {
    format!("v{}", id.index())
}

/// The state of writing one function.
pub(super) struct Writer<'a, 'd, 't> {
    pub(super) hir: &'a Hir,
    locals: &'a IndexVec<LocalId, Local>,
    ret: TypeId,
    definitions: &'d mut Definitions<'t>,
}

impl Writer<'_, '_, '_> {
    pub(super) fn ty(&mut self, ty: TypeId, span: Span) -> Written {
        self.definitions.name(ty, span)
    }

    /// Writes statements, each on a line of its own.
    pub(super) fn block(&mut self, block: &Block) -> Written {
        block.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt(&mut self, stmt: &Stmt) -> Written {
        let span = stmt.span;
        Ok(match &stmt.kind {
            StmtKind::Let { local, init: Some(init) } => {
                format!("{} = {};\n", variable(*local), self.expr(init)?)
            }
            StmtKind::Let { local, init: None } => {
                let ty = self.ty(self.locals[*local].ty, span)?;
                format!("{} = ({ty}){};\n", variable(*local), self.zero_of(self.locals[*local].ty))
            }
            StmtKind::Assign { lvalue, value } => self.assign(lvalue, value)?,
            StmtKind::Compound { lvalue, op, value } => self.compound(lvalue, *op, value)?,
            StmtKind::Expr(one) => format!("(void)({});\n", self.expr(one)?),
            StmtKind::If { cond, then, otherwise } => {
                let (cond, then) = (self.expr(cond)?, self.block(then)?);
                if otherwise.is_empty() {
                    format!("if ({cond}) {{\n{then}}}\n")
                } else {
                    format!("if ({cond}) {{\n{then}}} else {{\n{}}}\n", self.block(otherwise)?)
                }
            }
            StmtKind::While { cond, body } => {
                let (cond, body, give_up) = (self.expr(cond)?, self.block(body)?, self.give_up(span)?);
                format!("{{\nu32 ks_turns = 0;\n\nwhile ({cond}) {{\n{give_up}{body}}}\n}}\n")
            }
            StmtKind::For { local, start, end, body } => self.for_loop(*local, start, end, body)?,
            StmtKind::ForEach { key, value, iteration: MapIteration::Array(array), body } => {
                self.for_array(*key, *value, array, body)?
            }
            StmtKind::Break => "break;\n".into(),
            StmtKind::Continue => "continue;\n".into(),
            StmtKind::Return(None) => "return;\n".into(),
            StmtKind::Return(Some(value)) => format!("return {};\n", self.expr(value)?),
            StmtKind::Throw(_) | StmtKind::Try { .. } => return refused(span, "a thrown code is"),
            StmtKind::Defer(_) => return refused(span, "`defer` is"),
            StmtKind::Bind { .. }
            | StmtKind::Remove { .. }
            | StmtKind::ForEach { .. }
            | StmtKind::Lock { .. } => {
                return refused(span, "a map is");
            }
            StmtKind::Free(_) | StmtKind::Release(_) | StmtKind::Give { .. } => {
                return refused(span, "an object is");
            }
            StmtKind::Take { .. } => return refused(span, "a queue or stack is"),
        })
    }

    fn for_loop(&mut self, local: LocalId, start: &Expr, end: &Expr, body: &Block) -> Written {
        let ty = self.ty(start.ty, start.span)?;
        let (start, end, give_up) = (self.expr(start)?, self.expr(end)?, self.give_up(start.span)?);
        let body = self.block(body)?;
        let name = variable(local);
        Ok(format!(
            "{{\n{ty} ks_next = {start}, ks_end = {end};\nu32 ks_turns = 0;\n\n\
             for (; ks_next < ks_end; ks_next++) {{\n{give_up}{name} = ks_next;\n{body}}}\n}}\n"
        ))
    }

    fn for_array(&mut self, key: LocalId, value: LocalId, array: &Lvalue, body: &Block) -> Written {
        let TypeKind::Array(_, len) = *self.hir.types.kind(array.ty) else {
            return refused(array.span, "walking this is");
        };
        let from = self.read(array)?;
        let body = self.block(body)?;
        let (key, value) = (variable(key), variable(value));
        Ok(format!(
            "{{\nu64 ks_next;\n\nfor (ks_next = 0; ks_next < {len}; ks_next++) {{\n{key} = ks_next;\n\
             {value} = ({from}).e[ks_next];\n{body}}}\n}}\n"
        ))
    }

    /// Writes the return from the function after a loop's maximum number of iterations.
    fn give_up(&mut self, span: Span) -> Written {
        let value = match self.hir.types.kind(self.ret) {
            TypeKind::Void => String::new(),
            _ => format!(" ({}){}", self.ty(self.ret, span)?, self.zero_of(self.ret)),
        };
        Ok(format!("if (ks_turns++ == KS_MAX_TURNS)\nreturn{value};\n"))
    }

    /// Returns the initializer of a type's zero.
    pub(super) fn zero_of(&self, ty: TypeId) -> &'static str {
        if self.hir.types.scalar(ty).is_some() { "0" } else { "{}" }
    }

    fn assign(&mut self, lvalue: &Lvalue, value: &Expr) -> Written {
        let value = self.expr(value)?;
        if let Some(direct) = self.direct(lvalue)? {
            return Ok(format!("{direct} = {value};\n"));
        }
        let (ty, address) = (self.ty(lvalue.ty, lvalue.span)?, self.address(lvalue)?);
        Ok(format!("{{\n{ty} ks_v = {value}, *ks_p = {address};\n\nif (ks_p)\n*ks_p = ks_v;\n}}\n"))
    }

    fn compound(&mut self, lvalue: &Lvalue, op: BinaryOp, value: &Expr) -> Written {
        let (from, arithmetic) = (self.ty(lvalue.ty, lvalue.span)?, self.ty(value.ty, value.span)?);
        let address = self.address(lvalue)?;
        let value = self.expr(value)?;
        let result = self.arithmetic(op, value.as_str(), &format!("(({arithmetic})*ks_p)"), &arithmetic);
        Ok(format!("{{\n{from} *ks_p = {address};\n\nif (ks_p)\n*ks_p = ({from})({result});\n}}\n"))
    }

    /// Returns an lvalue as a C lvalue, if it is always valid.
    pub(super) fn direct(&mut self, lvalue: &Lvalue) -> Written<Option<String>> {
        Ok(match &lvalue.kind {
            LvalueKind::Local(id) => Some(variable(*id)),
            LvalueKind::Field { base, field } => self.direct(base)?.map(|base| format!("{base}.f{field}")),
            LvalueKind::Index { base, index } => match index.kind {
                ExprKind::Const(index) => self.direct(base)?.map(|base| format!("{base}.e[{index}]")),
                _ => None,
            },
            LvalueKind::Value(value) => Some(format!("({})", self.expr(value)?)),
            LvalueKind::Global(_) | LvalueKind::Config(..) => {
                return refused(lvalue.span, "a variable that programs share is");
            }
            LvalueKind::Element { .. } => return refused(lvalue.span, "a map is"),
            LvalueKind::Deref(_) => return refused(lvalue.span, "a pointer is"),
        })
    }

    /// Returns the address of an lvalue, null if it is out of range.
    fn address(&mut self, lvalue: &Lvalue) -> Written {
        if let Some(direct) = self.direct(lvalue)? {
            return Ok(format!("&{direct}"));
        }
        match &lvalue.kind {
            LvalueKind::Field { base, field } => {
                let (ty, base) = (self.ty(base.ty, base.span)?, self.address(base)?);
                Ok(format!("({{ {ty} *ks_q = {base}; ks_q ? &ks_q->f{field} : NULL; }})"))
            }
            LvalueKind::Index { base, index } => {
                let len = match *self.hir.types.kind(base.ty) {
                    TypeKind::Array(_, len) => len,
                    TypeKind::Str(size) => u64::from(size),
                    _ => return refused(lvalue.span, "indexing this is"),
                };
                let (ty, base) = (self.ty(base.ty, base.span)?, self.address(base)?);
                // A negative index becomes a large one.
                let index = self.expr(index)?;
                Ok(format!(
                    "({{ {ty} *ks_q = {base}; u64 ks_i = {index}; ks_q && ks_i < {len} ? &ks_q->e[ks_i] : \
                     NULL; }})"
                ))
            }
            _ => refused(lvalue.span, "this place is"),
        }
    }

    /// Returns the value of an lvalue; zero if it is out of range.
    pub(super) fn read(&mut self, lvalue: &Lvalue) -> Written {
        if let Some(direct) = self.direct(lvalue)? {
            return Ok(direct);
        }
        let (ty, address) = (self.ty(lvalue.ty, lvalue.span)?, self.address(lvalue)?);
        let zero = self.zero_of(lvalue.ty);
        Ok(format!("({{ {ty} *ks_p = {address}; ks_p ? *ks_p : ({ty}){zero}; }})"))
    }
}

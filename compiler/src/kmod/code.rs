//! Functions and statements in C.

use std::fmt::Write as _;

use super::types::Definitions;
use super::{refused, symbol};
use crate::diag::Diagnostic;
use crate::hir::{
    BinaryOp, Block, Expr, ExprKind, Function, FunctionKind, Hir, Local, LocalId, Place, PlaceKind, Stmt,
    StmtKind, Walk,
};
use crate::index::{Id as _, IndexVec};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Text, or why there is none.
pub(super) type Written<T = String> = Result<T, Box<Diagnostic>>;

/// A function: what stands before its body, and the body.
pub(super) struct Code {
    pub(super) head: String,
    pub(super) body: String,
}

/// Writes one function.
pub(super) fn function(hir: &Hir, function: &Function, definitions: &mut Definitions<'_>) -> Written<Code> {
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
    Ok(Code { head, body })
}

/// The C name of a local.
pub(super) fn variable(id: LocalId) -> String {
    format!("v{}", id.index())
}

/// Writes what is in one function.
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

    /// Statements, each on a line of its own.
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
            StmtKind::Assign { place, value } => self.assign(place, value)?,
            StmtKind::Compound { place, op, value } => self.compound(place, *op, value)?,
            StmtKind::Expr(one) => format!("(void)({});\n", self.expr(one)?),
            StmtKind::If { cond, then, otherwise } => {
                let (cond, then) = (self.expr(cond)?, self.block(then)?);
                match otherwise.is_empty() {
                    true => format!("if ({cond}) {{\n{then}}}\n"),
                    false => format!("if ({cond}) {{\n{then}}} else {{\n{}}}\n", self.block(otherwise)?),
                }
            }
            StmtKind::While { cond, body } => {
                let (cond, body, give_up) = (self.expr(cond)?, self.block(body)?, self.give_up(span)?);
                format!("{{\nu32 ks_turns = 0;\n\nwhile ({cond}) {{\n{give_up}{body}}}\n}}\n")
            }
            StmtKind::For { local, start, end, body } => self.for_loop(*local, start, end, body)?,
            StmtKind::ForEach { key, value, walk: Walk::Array(array), body } => {
                self.walk_array(*key, *value, array, body)?
            }
            StmtKind::Break => "break;\n".into(),
            StmtKind::Continue => "continue;\n".into(),
            StmtKind::Return(None) => "return;\n".into(),
            StmtKind::Return(Some(value)) => format!("return {};\n", self.expr(value)?),
            StmtKind::Throw(_) | StmtKind::Try { .. } => return refused(span, "a thrown code is"),
            StmtKind::Defer(_) => return refused(span, "`defer` is"),
            StmtKind::Bind { .. } | StmtKind::Remove { .. } | StmtKind::ForEach { .. } => {
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

    fn walk_array(&mut self, key: LocalId, value: LocalId, array: &Place, body: &Block) -> Written {
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

    /// Leaves the function where a loop has had all turns that it may have.
    fn give_up(&mut self, span: Span) -> Written {
        let value = match self.hir.types.kind(self.ret) {
            TypeKind::Void => String::new(),
            _ => format!(" ({}){}", self.ty(self.ret, span)?, self.zero_of(self.ret)),
        };
        Ok(format!("if (ks_turns++ == KS_MAX_TURNS)\nreturn{value};\n"))
    }

    /// The initializer of a type's zero.
    pub(super) fn zero_of(&self, ty: TypeId) -> &'static str {
        if self.hir.types.scalar(ty).is_some() { "0" } else { "{}" }
    }

    fn assign(&mut self, place: &Place, value: &Expr) -> Written {
        let value = self.expr(value)?;
        if let Some(direct) = self.direct(place)? {
            return Ok(format!("{direct} = {value};\n"));
        }
        let (ty, address) = (self.ty(place.ty, place.span)?, self.address(place)?);
        Ok(format!("{{\n{ty} ks_v = {value}, *ks_p = {address};\n\nif (ks_p)\n*ks_p = ks_v;\n}}\n"))
    }

    fn compound(&mut self, place: &Place, op: BinaryOp, value: &Expr) -> Written {
        let (from, arithmetic) = (self.ty(place.ty, place.span)?, self.ty(value.ty, value.span)?);
        let address = self.address(place)?;
        let value = self.expr(value)?;
        let result = self.arithmetic(op, value.as_str(), &format!("(({arithmetic})*ks_p)"), &arithmetic);
        Ok(format!("{{\n{from} *ks_p = {address};\n\nif (ks_p)\n*ks_p = ({from})({result});\n}}\n"))
    }

    /// A place as C reads and writes it, if it is there whatever happens.
    pub(super) fn direct(&mut self, place: &Place) -> Written<Option<String>> {
        Ok(match &place.kind {
            PlaceKind::Local(id) => Some(variable(*id)),
            PlaceKind::Field { base, field } => self.direct(base)?.map(|base| format!("{base}.f{field}")),
            PlaceKind::Index { base, index } => match index.kind {
                ExprKind::Const(index) => self.direct(base)?.map(|base| format!("{base}.e[{index}]")),
                _ => None,
            },
            PlaceKind::Value(value) => Some(format!("({})", self.expr(value)?)),
            PlaceKind::Global(_) | PlaceKind::Config(..) => {
                return refused(place.span, "a variable that programs share is");
            }
            PlaceKind::Element { .. } => return refused(place.span, "a map is"),
            PlaceKind::Deref(_) => return refused(place.span, "a pointer is"),
        })
    }

    /// The address of a place, null if it is out of range.
    fn address(&mut self, place: &Place) -> Written {
        if let Some(direct) = self.direct(place)? {
            return Ok(format!("&{direct}"));
        }
        match &place.kind {
            PlaceKind::Field { base, field } => {
                let (ty, base) = (self.ty(base.ty, base.span)?, self.address(base)?);
                Ok(format!("({{ {ty} *ks_q = {base}; ks_q ? &ks_q->f{field} : NULL; }})"))
            }
            PlaceKind::Index { base, index } => {
                let len = match *self.hir.types.kind(base.ty) {
                    TypeKind::Array(_, len) => len,
                    TypeKind::Str(size) => u64::from(size),
                    _ => return refused(place.span, "indexing this is"),
                };
                let (ty, base) = (self.ty(base.ty, base.span)?, self.address(base)?);
                // A negative index becomes a large one.
                let index = self.expr(index)?;
                Ok(format!(
                    "({{ {ty} *ks_q = {base}; u64 ks_i = {index}; ks_q && ks_i < {len} ? &ks_q->e[ks_i] : NULL; }})"
                ))
            }
            _ => refused(place.span, "this place is"),
        }
    }

    /// The value at a place; zero if it is out of range.
    pub(super) fn read(&mut self, place: &Place) -> Written {
        if let Some(direct) = self.direct(place)? {
            return Ok(direct);
        }
        let (ty, address) = (self.ty(place.ty, place.span)?, self.address(place)?);
        let zero = self.zero_of(place.ty);
        Ok(format!("({{ {ty} *ks_p = {address}; ks_p ? *ks_p : ({ty}){zero}; }})"))
    }
}

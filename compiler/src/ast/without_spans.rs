//! Compares syntax trees without their source ranges.

use super::{
    Arm, ArmResult, AstFunction, Attribute, AttributeArg, Block, Catch, CatchPattern, ColumnAttribute, Cond,
    Else, Expr, ExprKind, FieldDecl, File, Global, Ident, If, IntLit, Item, ItemKind, MapFlags, Param,
    Returns, Size, Stmt, StmtKind, StrLit, TypeExpr, TypeExprKind,
};
use crate::source::Span;

/// Whether two files have the same tree, whatever their source ranges.
pub fn same(one: &File, other: &File) -> bool {
    let span = Span { end: one.end.start, ..one.end };
    moved_to(one, span) == moved_to(other, span)
}

/// Returns the tree with all source ranges replaced by one.
fn moved_to(file: &File, span: Span) -> File {
    let mut file = file.clone();
    file.end = span;
    let mover = Mover(span);
    file.items.iter_mut().for_each(|item| mover.item(item));
    file
}

struct Mover(Span);

impl Mover {
    fn item(&self, Item { docs: _, kind, span }: &mut Item) {
        *span = self.0;
        match kind {
            ItemKind::Include(path) => self.string(path),
            ItemKind::Import { name, path } => {
                self.ident(name);
                self.string(path);
            }
            ItemKind::Config { name, fields } => {
                self.ident(name);
                self.fields(fields);
            }
            ItemKind::Alias { name, ty } => {
                self.ident(name);
                self.ty(ty);
            }
            ItemKind::Enum { name, enumerators } => {
                self.ident(name);
                for (name, value) in enumerators {
                    self.ident(name);
                    value.iter_mut().for_each(|value| self.int(value));
                }
            }
            ItemKind::Struct { attributes, name, fields } => {
                self.attributes(attributes);
                self.ident(name);
                self.fields(fields);
            }
            ItemKind::Global(global) => self.global(global),
            ItemKind::Const { name, ty, value } => {
                self.ident(name);
                ty.iter_mut().for_each(|ty| self.ty(ty));
                self.expr(value);
            }
            ItemKind::Counter { name, event, leader } => {
                self.ident(name);
                self.expr(event);
                leader.iter_mut().for_each(|leader| self.ident(leader));
            }
            ItemKind::Extern { name, params, ret } => {
                self.ident(name);
                self.params(params);
                ret.iter_mut().for_each(|ret| self.ty(ret));
            }
            ItemKind::ExternVariable { per_cpu, name, ty } => {
                per_cpu.iter_mut().for_each(|span| *span = self.0);
                self.ident(name);
                self.ty(ty);
            }
            ItemKind::Function(function) => self.function(function),
            ItemKind::Impl { attributes, name, methods, fields } => {
                self.attributes(attributes);
                self.ident(name);
                methods.iter_mut().for_each(|method| self.function(method));
                self.values(fields);
            }
        }
    }

    fn global(&self, Global { flags, column, pin, local, per_cpu, name, ty, init }: &mut Global) {
        if let Some(MapFlags { flags, span }) = flags {
            *span = self.0;
            for (name, number) in flags {
                self.ident(name);
                number.iter_mut().for_each(|number| self.int(number));
            }
        }
        self.column(column);
        pin.iter_mut().chain(local).chain(per_cpu).for_each(|span| *span = self.0);
        self.ident(name);
        ty.iter_mut().for_each(|ty| self.ty(ty));
        init.iter_mut().for_each(|init| self.expr(init));
    }

    fn column(&self, column: &mut Option<ColumnAttribute>) {
        if let Some(ColumnAttribute { heading, unit, span }) = column {
            *span = self.0;
            self.string(heading);
            unit.iter_mut().for_each(|unit| self.string(unit));
        }
    }

    fn function(
        &self,
        AstFunction { docs: _, attributes, has_head: _, name, params, ret, body }: &mut AstFunction,
    ) {
        self.attributes(attributes);
        self.ident(name);
        self.params(params);
        if let Some(Returns { name, ty }) = ret {
            name.iter_mut().for_each(|name| self.ident(name));
            self.ty(ty);
        }
        self.block(body);
    }

    fn attributes(&self, attributes: &mut [Attribute]) {
        for Attribute { name, argument, more, also, optional: _, span } in attributes {
            *span = self.0;
            self.ident(name);
            argument.iter_mut().chain(also).for_each(|argument| self.string(argument));
            for AttributeArg { name, value } in more {
                name.iter_mut().for_each(|name| self.ident(name));
                self.expr(value);
            }
        }
    }

    fn params(&self, params: &mut [Param]) {
        for Param { name, ty } in params {
            self.ident(name);
            self.ty(ty);
        }
    }

    fn fields(&self, fields: &mut [FieldDecl]) {
        for FieldDecl { docs: _, column, name, ty, default } in fields {
            self.column(column);
            self.ident(name);
            self.ty(ty);
            default.iter_mut().for_each(|default| self.expr(default));
        }
    }

    fn values(&self, values: &mut [(Ident, Expr)]) {
        for (name, value) in values {
            self.ident(name);
            self.expr(value);
        }
    }

    fn ident(&self, ident: &mut Ident) {
        ident.span = self.0;
    }

    fn string(&self, string: &mut StrLit) {
        string.span = self.0;
    }

    fn int(&self, int: &mut IntLit) {
        int.span = self.0;
    }

    fn size(&self, size: &mut Size) {
        match size {
            Size::Int(int) => self.int(int),
            Size::Const(name) => self.ident(name),
            Size::Option { options, field } => {
                self.ident(options);
                self.ident(field);
            }
        }
    }

    fn ty(&self, TypeExpr { kind, span }: &mut TypeExpr) {
        *span = self.0;
        match kind {
            TypeExprKind::Name(_) => {}
            TypeExprKind::Qualified { module, name } => {
                self.ident(module);
                self.ident(name);
            }
            TypeExprKind::Str(size) => self.int(size),
            TypeExprKind::Array(of, size) | TypeExprKind::Ring(of, size) => {
                self.ty(of);
                self.size(size);
            }
            TypeExprKind::LinearHist { low, step, slots } => {
                [low, step, slots].into_iter().for_each(|number| self.int(number));
            }
            TypeExprKind::Ptr(to) => self.ty(to),
            TypeExprKind::Fn(params, ret) => {
                params.iter_mut().for_each(|param| self.ty(param));
                self.ty(ret);
            }
            TypeExprKind::Map { kind, key, value, size } => {
                self.ident(kind);
                self.ty(key);
                self.ty(value);
                size.iter_mut().for_each(|size| self.size(size));
            }
            TypeExprKind::Keyless { kind, value, size } => {
                self.ident(kind);
                value.iter_mut().for_each(|value| self.ty(value));
                size.iter_mut().for_each(|size| self.size(size));
            }
        }
    }

    fn block(&self, Block { stmts, span }: &mut Block) {
        *span = self.0;
        stmts.iter_mut().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&self, Stmt { kind, span }: &mut Stmt) {
        *span = self.0;
        match kind {
            StmtKind::Var { name, ty, init } => {
                self.ident(name);
                ty.iter_mut().for_each(|ty| self.ty(ty));
                init.iter_mut().for_each(|init| self.expr(init));
            }
            StmtKind::Const { name, ty, value } => {
                self.ident(name);
                ty.iter_mut().for_each(|ty| self.ty(ty));
                self.expr(value);
            }
            StmtKind::Assign { lvalue, op: _, value } => {
                self.expr(lvalue);
                self.expr(value);
            }
            StmtKind::Expr(expr) | StmtKind::Delete(expr) | StmtKind::Throw(expr) | StmtKind::Defer(expr) => {
                self.expr(expr);
            }
            StmtKind::Return(value) => value.iter_mut().for_each(|value| self.expr(value)),
            StmtKind::If(branch) => self.branch(branch),
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.block(body);
            }
            StmtKind::For { name, start, end, body } => {
                self.ident(name);
                self.expr(start);
                self.expr(end);
                self.block(body);
            }
            StmtKind::ForEach { key, value, over, body } => {
                self.ident(key);
                self.ident(value);
                self.expr(over);
                self.block(body);
            }
            StmtKind::Lock { name, body } => {
                self.ident(name);
                self.block(body);
            }
            StmtKind::Break | StmtKind::Continue => {}
            StmtKind::Try { body, catches } => {
                self.block(body);
                for Catch { pattern, body } in catches {
                    match pattern {
                        CatchPattern::Int(int) => self.int(int),
                        CatchPattern::Name(name) => self.ident(name),
                    }
                    self.block(body);
                }
            }
        }
    }

    fn branch(&self, If { cond, then, otherwise }: &mut If) {
        match cond {
            Cond::Expr(cond) => self.expr(cond),
            Cond::Var { name, value } => {
                self.ident(name);
                self.expr(value);
            }
        }
        self.block(then);
        match otherwise {
            Some(Else::Block(block)) => self.block(block),
            Some(Else::If(branch, span)) => {
                *span = self.0;
                self.branch(branch);
            }
            None => {}
        }
    }

    fn expr(&self, Expr { kind, span }: &mut Expr) {
        *span = self.0;
        match kind {
            ExprKind::Int(_)
            | ExprKind::Str(_)
            | ExprKind::Char(_)
            | ExprKind::Bool(_)
            | ExprKind::Null
            | ExprKind::Name(_) => {}
            ExprKind::Array(elements) | ExprKind::Keys(elements) => {
                elements.iter_mut().for_each(|element| self.expr(element));
            }
            ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Named(name, value) => {
                self.ident(name);
                self.expr(value);
            }
            ExprKind::Field { base, arrow: _, name } => {
                self.expr(base);
                self.ident(name);
            }
            ExprKind::Index(left, right) | ExprKind::Binary(_, left, right) => {
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Call { callee, args } => {
                self.expr(callee);
                args.iter_mut().for_each(|arg| self.expr(arg));
            }
            ExprKind::New(ty, flag) => {
                self.ty(ty);
                flag.iter_mut().for_each(|flag| self.expr(flag));
            }
            ExprKind::Struct { module, name, fields } => {
                module.iter_mut().for_each(|module| self.ident(module));
                self.ident(name);
                self.values(fields);
            }
            ExprKind::Match { value, arms } => {
                self.expr(value);
                for Arm { pattern, result } in arms {
                    pattern.iter_mut().for_each(|pattern| self.expr(pattern));
                    match result {
                        ArmResult::Expr(expr) => self.expr(expr),
                        ArmResult::Block(block) => self.block(block),
                    }
                }
            }
            ExprKind::Cast(inner, ty) => {
                self.expr(inner);
                self.ty(ty);
            }
            ExprKind::Type(ty) => self.ty(ty),
        }
    }
}

//! Bodies: statements and the scopes they open.

use super::Collector;
use crate::ast::{
    AstFunction, Attribute, Block, Catch, CatchPattern, Cond, Else, Expr, FieldDecl, Global, Ident, If, Item,
    ItemKind, Stmt, StmtKind, TypeExpr,
};
use crate::facts::{DefId, DefKind, Definition, Ty};
use crate::source::Span;

/// The type of a name, and its origin.
struct LocalType {
    ty: Ty,
    written: bool,
}

impl LocalType {
    fn written(ty: Ty) -> LocalType {
        LocalType { ty, written: true }
    }

    fn inferred(ty: Ty) -> LocalType {
        LocalType { ty, written: false }
    }
}

impl Collector<'_> {
    /// Visits a declaration of the main file.
    pub(super) fn item(&mut self, item: &Item, id: Option<DefId>) {
        match &item.kind {
            ItemKind::Include(_) | ItemKind::Import { .. } => {}
            ItemKind::Config { fields, .. } => self.field_types(fields),
            ItemKind::Alias { ty, .. } => {
                self.type_expr(ty);
            }
            ItemKind::Enum { .. } => {}
            ItemKind::Const { ty, value, .. } => {
                let known = self.declared(ty.as_ref(), Some(value));
                self.infer(id, known.ty);
            }
            ItemKind::Counter { event, leader, .. } => {
                self.expr(event);
                if let Some(leader) = leader {
                    let found = self.lookup_global(&leader.name);
                    self.refer(leader.span, found);
                }
            }
            ItemKind::Struct { attributes, fields, .. } => {
                self.attributes(attributes);
                self.field_types(fields);
            }
            ItemKind::Global(global) => self.visit_global(global, id),
            ItemKind::Extern { params, ret, .. } => {
                params.iter().map(|param| &param.ty).chain(ret).for_each(|ty| {
                    self.type_expr(ty);
                });
            }
            ItemKind::ExternVariable { ty, .. } => {
                self.type_expr(ty);
            }
            ItemKind::Function(function) => self.function(function),
            ItemKind::Impl { attributes, methods, fields, .. } => {
                self.attributes(attributes);
                self.methods = self.methods_of(id);
                fields.iter().for_each(|(_, value)| {
                    self.expr(value);
                });
                methods.iter().for_each(|method| self.function(method));
                self.methods.clear();
            }
        }
    }

    fn methods_of(&self, id: Option<DefId>) -> std::collections::HashMap<String, DefId> {
        let members = id.and_then(|id| self.members.get(&id)).into_iter().flatten();
        let named = members.filter_map(|id| Some((*id, self.facts.definition(*id)?)));
        let methods = named.filter(|(_, one)| one.kind == DefKind::Method);
        methods.map(|(id, one)| (one.name.clone(), id)).collect()
    }

    fn attributes(&mut self, attributes: &[Attribute]) {
        for attribute in attributes {
            self.refer(attribute.name.span, self.attributes.get(&attribute.name.name).copied());
        }
    }

    /// Notes that an attribute that has a syntax of its own stands in a range, which begins with its `@`.
    fn refer_to_attribute(&mut self, span: Span, name: &str) {
        let start = span.start + 1;
        let keyword = Span { start, end: start + name.len() as u32, ..span };
        self.refer(keyword, self.attributes.get(name).copied());
    }

    fn field_types(&mut self, fields: &[FieldDecl]) {
        for field in fields {
            if let Some(column) = &field.column {
                self.refer_to_attribute(column.span, "column");
            }
            self.type_expr(&field.ty);
            if let Some(default) = &field.default {
                self.expr(default);
            }
        }
    }

    fn visit_global(&mut self, global: &Global, id: Option<DefId>) {
        for (flag, _) in global.flags.iter().flat_map(|flags| &flags.flags) {
            self.refer(flag.span, self.attributes.get(&flag.name).copied());
        }
        if let Some(flags) = &global.flags {
            self.refer_to_attribute(flags.span, "flags");
        }
        if let Some(column) = &global.column {
            self.refer_to_attribute(column.span, "column");
        }
        if let Some(ty) = &global.ty {
            self.type_expr(ty);
        }
        if let Some(ty) = global.init.as_ref().map(|init| self.expr(init)) {
            self.infer(id, ty);
        }
    }

    /// Sets the type of a name at top level that is declared without one.
    fn infer(&mut self, id: Option<DefId>, ty: Ty) {
        let Some(id) = id else { return };
        if self.facts.definition(id).is_some_and(|one| one.ty.is_known()) {
            return;
        }
        self.facts.amend(id, |one| {
            one.inferred = true;
            if ty.is_known() {
                let at = one.detail.find(" =").unwrap_or(one.detail.len());
                one.detail.insert_str(at, &format!(": {ty}"));
            }
            one.ty = ty;
        });
    }

    fn function(&mut self, function: &AstFunction) {
        self.attributes(&function.attributes);
        self.scope(function.body.span, |collector| {
            for param in &function.params {
                let ty = collector.type_expr(&param.ty);
                // A parameter is visible from its own declaration on, to help while the signature is being
                // written.
                collector.local(&param.name, DefKind::Param, LocalType::written(ty), param.name.span.end);
            }
            if let Some(ret) = &function.ret {
                let ty = collector.type_expr(&ret.ty);
                if let Some(name) = &ret.name {
                    collector.local(
                        name,
                        DefKind::Variable,
                        LocalType::written(ty),
                        function.body.span.start,
                    );
                }
            }
            collector.stmts(&function.body);
        });
    }

    /// Runs `inner` for the source range `span`; the names declared in it end with it.
    fn scope(&mut self, span: Span, inner: impl FnOnce(&mut Self)) {
        let (mark, outer) = (self.open.len(), std::mem::replace(&mut self.block_end, span.end));
        inner(self);
        for name in self.open.drain(mark..) {
            if let Some(same) = self.locals.get_mut(&name) {
                same.pop();
            }
        }
        self.block_end = outer;
    }

    pub(super) fn block(&mut self, block: &Block) {
        self.scope(block.span, |collector| collector.stmts(block));
    }

    fn stmts(&mut self, block: &Block) {
        block.stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    /// Declares a name of the function, visible from a byte to the end of the block.
    fn local(&mut self, name: &Ident, kind: DefKind, LocalType { ty, written }: LocalType, from: u32) {
        let scope = Span { start: from, end: self.block_end.max(from), ..name.span };
        let id = self.facts.define(|| {
            let keyword = match kind {
                DefKind::Param => "",
                DefKind::Constant => "const ",
                _ => "var ",
            };
            let colon = if ty.is_known() { format!(": {ty}") } else { String::new() };
            Definition {
                span: Some(name.span),
                detail: format!("{keyword}{}{colon}", name.name),
                scope: Some(scope),
                inferred: !written,
                ty,
                ..Definition::new(&name.name, kind)
            }
        });
        self.locals.entry(name.name.clone()).or_default().push(id);
        self.open.push(name.name.clone());
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Var { name, ty, init } => {
                let known = self.declared(ty.as_ref(), init.as_ref());
                self.local(name, DefKind::Variable, known, stmt.span.end);
            }
            StmtKind::Const { name, ty, value } => {
                let known = self.declared(ty.as_ref(), Some(value));
                self.local(name, DefKind::Constant, known, stmt.span.end);
            }
            StmtKind::Assign { lvalue, value, .. } => {
                self.expr(lvalue);
                self.expr(value);
            }
            StmtKind::If(one) => self.conditional(one),
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.block(body);
            }
            StmtKind::For { name, start, end, body } => {
                let ty = self.expr(start);
                let ty = ty.is_known().then_some(ty);
                let end = self.expr(end);
                self.scope(body.span, |collector| {
                    collector.local(
                        name,
                        DefKind::Variable,
                        LocalType::inferred(ty.unwrap_or(end)),
                        body.span.start,
                    );
                    collector.stmts(body);
                });
            }
            StmtKind::ForEach { key, value, over, body } => self.for_each(key, value, over, body),
            StmtKind::Lock { name, body } => {
                self.name(&name.name, name.span);
                self.block(body);
            }
            StmtKind::Try { body, catches } => {
                self.block(body);
                catches.iter().for_each(|catch| self.catch(catch));
            }
            StmtKind::Expr(one)
            | StmtKind::Return(Some(one))
            | StmtKind::Delete(one)
            | StmtKind::Throw(one)
            | StmtKind::Defer(one) => {
                self.expr(one);
            }
            StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue => {}
        }
    }

    /// Returns the written type, else that of the value.
    fn declared(&mut self, ty: Option<&TypeExpr>, value: Option<&Expr>) -> LocalType {
        let written = ty.map(|ty| self.type_expr(ty));
        let found = value.map(|value| self.expr(value));
        match written {
            Some(ty) => LocalType::written(ty),
            None => LocalType::inferred(found.unwrap_or_default()),
        }
    }

    fn conditional(&mut self, one: &If) {
        match &one.cond {
            Cond::Expr(cond) => {
                self.expr(cond);
                self.block(&one.then);
            }
            Cond::Var { name, value } => {
                let ty = self.expr(value);
                self.scope(one.then.span, |collector| {
                    collector.local(name, DefKind::Variable, LocalType::inferred(ty), one.then.span.start);
                    collector.stmts(&one.then);
                });
            }
        }
        match &one.otherwise {
            Some(Else::Block(block)) => self.block(block),
            Some(Else::If(nested, _)) => self.conditional(nested),
            None => {}
        }
    }

    fn for_each(&mut self, key: &Ident, value: &Ident, over: &Expr, body: &Block) {
        let over = self.expr(over);
        let (key_ty, value_ty) = match self.unalias(&over) {
            Ty::Map(_, key, value, _) => (*key, *value),
            Ty::Array(element, _) => (Ty::named("u32"), *element),
            _ => (Ty::Unknown, Ty::Unknown),
        };
        self.scope(body.span, |collector| {
            collector.local(key, DefKind::Variable, LocalType::inferred(key_ty), body.span.start);
            collector.local(value, DefKind::Variable, LocalType::inferred(value_ty), body.span.start);
            collector.stmts(body);
        });
    }

    fn catch(&mut self, catch: &Catch) {
        self.scope(catch.body.span, |collector| {
            if let CatchPattern::Name(name) = &catch.pattern {
                let known = collector
                    .lookup(&name.name)
                    .filter(|id| collector.kind_of(*id) == Some(DefKind::Enumerator));
                match known {
                    Some(id) => collector.facts.refer(name.span, id),
                    None if name.name == "_" => {}
                    None => {
                        let code = LocalType::inferred(Ty::named("i32"));
                        collector.local(name, DefKind::Variable, code, catch.body.span.start);
                    }
                }
            }
            collector.stmts(&catch.body);
        });
    }
}

//! Formats declarations at top level and their members.

use super::exprs::quoted;
use super::layout::Break;
use super::writer::{Brackets, Writer};
use crate::ast::{
    AstFunction, Attribute, AttributeArg, ColumnAttribute, Expr, FieldDecl, File, Global, Ident, Item,
    ItemKind, MapFlags, Param, StmtKind, StrLit, TypeExpr,
};

/// A member of an impl block.
enum Member<'a> {
    Field(&'a (Ident, Expr)),
    Method(&'a AstFunction),
}

impl Writer<'_> {
    pub(super) fn file(&mut self, file: &File) {
        for (at, item) in file.items.iter().enumerate() {
            self.hard();
            self.element(at);
            if at > 0 {
                self.blank_without_source();
            }
            self.item(item);
        }
        self.hard();
        self.element(file.items.len());
        self.comments();
    }

    fn item(&mut self, item: &Item) {
        self.docs(item.docs.as_deref());
        match &item.kind {
            ItemKind::Include(path) => {
                self.token("include");
                self.space();
                self.string(path);
            }
            ItemKind::Import { name, path } => {
                self.named("import", name);
                self.space();
                self.same_line("from");
                self.space();
                self.string(path);
            }
            ItemKind::Config { name, fields } => {
                self.named("config", name);
                self.fields(fields);
            }
            ItemKind::Alias { name, ty } => {
                self.named("type", name);
                self.space();
                self.same_line("=");
                self.space();
                self.ty(ty);
            }
            ItemKind::Enum { name, enumerators } => {
                self.named("enum", name);
                self.space();
                self.braces(enumerators, Break::Always, |writer, (name, value)| {
                    writer.name(&name.name);
                    if let Some(value) = value {
                        writer.space();
                        writer.same_line("=");
                        writer.space();
                        writer.int(value);
                    }
                });
            }
            ItemKind::Struct { attributes, name, fields } => {
                self.attributes(attributes);
                self.named("struct", name);
                self.fields(fields);
            }
            ItemKind::Global(global) => self.global(global),
            ItemKind::Const { name, ty, value } => self.binding("const", name, ty.as_ref(), Some(value)),
            ItemKind::Counter { name, event, leader } => self.counter(name, event, leader.as_ref()),
            ItemKind::Extern { name, params, ret } => {
                self.named("extern", name);
                self.params(params);
                self.result(None, ret.as_ref());
            }
            ItemKind::ExternVariable { per_cpu, name, ty } => {
                if per_cpu.is_some() {
                    self.token("percpu");
                    self.space();
                }
                self.named("extern", name);
                self.of_type(ty);
            }
            ItemKind::Function(function) => self.function(function),
            ItemKind::Impl { attributes, name, methods, fields } => {
                self.attributes(attributes);
                self.named("impl", name);
                self.members(methods, fields);
            }
        }
    }

    fn named(&mut self, keyword: &'static str, name: &Ident) {
        self.token(keyword);
        self.space();
        self.name(&name.name);
    }

    fn string(&mut self, string: &StrLit) {
        self.verbatim(|| quoted(b'"', &string.bytes));
    }

    /// Writes attributes, each on a line of its own.
    fn attributes(&mut self, attributes: &[Attribute]) {
        for attribute in attributes {
            self.attribute(attribute);
            self.hard();
        }
    }

    fn attribute(&mut self, attribute: &Attribute) {
        self.token("@");
        self.name(&attribute.name.name);
        if !attribute.more.is_empty() {
            self.attribute_args(attribute);
        } else if let Some(argument) = &attribute.argument {
            self.same_line("(");
            self.string(argument);
            self.same_line(")");
        }
    }

    fn attribute_args(&mut self, attribute: &Attribute) {
        let texts = attribute.argument.iter().map(Ok);
        let args: Vec<Result<&StrLit, &AttributeArg>> = texts.chain(attribute.more.iter().map(Err)).collect();
        self.same_line("(");
        self.group(Break::IfTooLong, |writer| {
            writer.list(&args, Brackets::Round, |writer, arg| match arg {
                Ok(text) => writer.string(text),
                Err(AttributeArg { name, value }) => {
                    if let Some(name) = name {
                        writer.name(&name.name);
                        writer.same_line(":");
                        writer.space();
                    }
                    writer.expr(value);
                }
            });
            writer.token(")");
        });
    }

    fn fields(&mut self, fields: &[FieldDecl]) {
        self.space();
        self.braces(fields, Break::Always, |writer, field| {
            writer.docs(field.docs.as_deref());
            writer.column(field.column.as_ref());
            writer.name(&field.name.name);
            writer.of_type(&field.ty);
            field.default.iter().for_each(|default| writer.value(default));
        });
    }

    /// Writes a type at top level, where a space stands on both sides of the colon.
    fn top_type(&mut self, ty: &TypeExpr) {
        self.space();
        self.of_type(ty);
    }

    fn global(&mut self, global: &Global) {
        if let Some(flags) = &global.flags {
            self.flags(flags);
            if self.starts_line() { self.hard() } else { self.space() }
        }
        self.column(global.column.as_ref());
        if global.pin.is_some() {
            self.token("pin");
            self.space();
        }
        if global.local.is_some() {
            self.token("local");
            self.space();
        }
        if global.per_cpu.is_some() {
            self.name("percpu");
            self.space();
        }
        self.named("var", &global.name);
        global.ty.iter().for_each(|ty| self.top_type(ty));
        global.init.iter().for_each(|init| self.value(init));
    }

    /// Writes `@column(..)`, before what it is about.
    fn column(&mut self, column: Option<&ColumnAttribute>) {
        let Some(ColumnAttribute { heading, unit, .. }) = column else { return };
        self.token("@");
        self.name("column");
        self.same_line("(");
        self.string(heading);
        if let Some(unit) = unit {
            self.same_line(",");
            self.space();
            self.string(unit);
        }
        self.same_line(")");
        if self.starts_line() { self.hard() } else { self.space() }
    }

    fn flags(&mut self, flags: &MapFlags) {
        self.token("@");
        self.name("flags");
        self.same_line("(");
        for (at, (name, number)) in flags.flags.iter().enumerate() {
            if at > 0 {
                self.space();
                self.same_line("|");
                self.space();
            }
            self.name(&name.name);
            if let Some(number) = number {
                self.same_line("(");
                self.int(number);
                self.same_line(")");
            }
        }
        self.same_line(")");
    }

    fn counter(&mut self, name: &Ident, event: &Expr, leader: Option<&Ident>) {
        self.name("counter");
        self.space();
        self.name(&name.name);
        self.space();
        self.same_line(":");
        self.space();
        self.expr(event);
        if let Some(leader) = leader {
            self.space();
            self.same_line("group");
            self.space();
            self.name(&leader.name);
        }
    }

    fn params(&mut self, params: &[Param]) {
        self.same_line("(");
        self.group(Break::IfTooLong, |writer| {
            writer.list(params, Brackets::Round, |writer, param| {
                writer.name(&param.name.name);
                writer.of_type(&param.ty);
            });
            writer.token(")");
        });
    }

    fn result(&mut self, name: Option<&Ident>, ty: Option<&TypeExpr>) {
        let Some(ty) = ty else { return };
        self.space();
        self.same_line("->");
        self.space();
        match name {
            Some(name) => {
                self.name(&name.name);
                self.of_type(ty);
            }
            None => self.ty(ty),
        }
    }

    fn function(&mut self, function: &AstFunction) {
        self.docs(function.docs.as_deref());
        if !function.has_head {
            for (at, attribute) in function.attributes.iter().enumerate() {
                if at > 0 {
                    self.hard();
                }
                self.attribute(attribute);
            }
            self.space();
            match function.body.stmts.as_slice() {
                // One `if` needs no braces around it.
                [only] if matches!(only.kind, StmtKind::If(_)) && only.span == function.body.span => {
                    self.stmt(only);
                }
                _ => self.block(&function.body),
            }
            return;
        }
        self.attributes(&function.attributes);
        self.named("fn", &function.name);
        self.params(&function.params);
        let ret = function.ret.as_ref();
        self.result(ret.and_then(|ret| ret.name.as_ref()), ret.map(|ret| &ret.ty));
        self.space();
        self.block(&function.body);
    }

    /// Writes the members of an impl block in source order; the tree stores fields and methods separately.
    fn members(&mut self, methods: &[AstFunction], fields: &[(Ident, Expr)]) {
        let mut members: Vec<Member> = fields.iter().map(Member::Field).collect();
        members.extend(methods.iter().map(Member::Method));
        members.sort_by_key(|member| match member {
            Member::Field((name, _)) => name.span,
            Member::Method(method) => method.name.span,
        });
        self.space();
        self.same_line("{");
        self.indent();
        for (at, member) in members.iter().enumerate() {
            self.hard();
            self.element(at);
            match member {
                Member::Field((name, value)) => self.static_field(name, value),
                Member::Method(method) => self.function(method),
            }
        }
        self.element(members.len());
        self.last_comments();
        self.dedent();
        if !members.is_empty() {
            self.hard();
        }
        self.token("}");
    }

    fn static_field(&mut self, name: &Ident, value: &Expr) {
        self.name(&name.name);
        self.same_line(":");
        self.space();
        self.expr(value);
        self.comma();
    }
}

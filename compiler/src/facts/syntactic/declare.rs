//! Names at top level: declared before any body is visited, because they may be used in any order.

use super::{Collector, Module, docs};
use crate::ast::{
    AstFunction, Attribute, Expr, ExprKind, FieldDecl, Global, Ident, Item, ItemKind, Param, UnaryOp,
};
use crate::facts::{DefId, DefKind, Definition, Ty};
use crate::source::Span;

/// The module whose declarations are visited.
struct Owner<'a> {
    /// The definition of the module; none for the main file.
    module: Option<DefId>,
    /// The name of the module, which prefixes its own types.
    name: &'a str,
    /// The types that it declares.
    types: Vec<&'a str>,
}

impl Owner<'_> {
    /// Returns a type as the main file writes it.
    fn ty(&self, written: &crate::ast::TypeExpr) -> Ty {
        Ty::of(written, &|name| self.types.contains(&name).then(|| format!("{}.{name}", self.name)))
    }
}

impl<'a> Collector<'a> {
    /// Declares the items of the current unit, and returns the definition of each.
    pub(super) fn declare_unit(&mut self, module: Option<(DefId, &str)>) -> Vec<Option<DefId>> {
        let unit = self.unit;
        let types = unit.ast.items.iter().filter_map(type_name).collect();
        let owner = match module {
            Some((id, name)) => Owner { module: Some(id), name, types },
            None => Owner { module: None, name: "", types: Vec::new() },
        };
        unit.ast.items.iter().map(|item| self.declare(item, &owner)).collect()
    }

    /// Declares the members of an imported module.
    pub(super) fn declare_module(&mut self, module: &Module<'a>) {
        let Some(id) = self.globals.get(module.name).copied() else { return };
        let Some(unit) = module.units.first() else { return };
        self.unit = unit;
        let docs = unit.ast.items.first().map(|item| docs::above(unit, item.span.start)).unwrap_or_default();
        self.facts.amend(id, |one| one.docs = docs);
        for unit in &module.units {
            self.unit = unit;
            self.declare_unit(Some((id, module.name)));
        }
    }

    fn declare(&mut self, item: &Item, owner: &Owner<'_>) -> Option<DefId> {
        // Generated headers repeat predeclared items with fewer facts (language reference, 4.2).
        if self.in_header && type_name(item).is_some_and(|name| self.predeclared.contains_key(name)) {
            return None;
        }
        let id = match &item.kind {
            ItemKind::Include(_) => return None,
            ItemKind::Import { name, path } => {
                let path = String::from_utf8_lossy(&path.bytes).into_owned();
                self.top(item, name, owner, DefKind::Module, Ty::Unknown, |name| {
                    format!("import {name} from \"{path}\"")
                })
            }
            ItemKind::Config { name, fields } => {
                let id = self
                    .top(item, name, owner, DefKind::Config, Ty::Unknown, |name| format!("config {name}"));
                self.fields(id, fields, owner);
                id
            }
            ItemKind::Alias { name, ty } => {
                let ty = owner.ty(ty);
                let text = ty.to_string();
                self.top(item, name, owner, DefKind::Type, ty, |name| format!("type {name} = {text}"))
            }
            ItemKind::Enum { name, enumerators } => {
                let id =
                    self.top(item, name, owner, DefKind::Enum, Ty::Unknown, |name| format!("enum {name}"));
                self.enumerators(id, &name.name, enumerators, owner);
                id
            }
            ItemKind::Struct { name, fields, .. } => {
                let id = self
                    .top(item, name, owner, DefKind::Struct, Ty::Unknown, |name| format!("struct {name}"));
                self.fields(id, fields, owner);
                id
            }
            ItemKind::Global(global) => self.global(item, global, owner),
            ItemKind::Const { name, ty, value } => {
                let ty = ty.as_ref().map_or(Ty::Unknown, |ty| owner.ty(ty));
                let colon = if ty.is_known() { format!(": {ty}") } else { String::new() };
                let value = default_text(Some(value));
                self.top(item, name, owner, DefKind::Constant, ty, |name| {
                    format!("const {name}{colon}{value}")
                })
            }
            ItemKind::Counter { name, event, leader } => {
                let event = written(&self.unit.text, event.span);
                let group =
                    leader.as_ref().map(|leader| format!(" group {}", leader.name)).unwrap_or_default();
                self.top(item, name, owner, DefKind::Counter, Ty::Unknown, |name| {
                    format!("counter {name} : {event}{group}")
                })
            }
            ItemKind::Extern { name, params, ret } => {
                let ty = ret.as_ref().map_or(Ty::named("void"), |ret| owner.ty(ret));
                let arrow = ret.as_ref().map(|_| format!(" -> {ty}")).unwrap_or_default();
                let params = list(params, owner);
                self.top(item, name, owner, DefKind::Extern, ty, |name| {
                    format!("extern {name}({params}){arrow}")
                })
            }
            ItemKind::ExternVariable { per_cpu, name, ty } => {
                let ty = owner.ty(ty);
                let text = format!(": {ty}");
                let word = if per_cpu.is_some() { "percpu extern" } else { "extern" };
                self.top(item, name, owner, DefKind::Extern, ty, |name| format!("{word} {name}{text}"))
            }
            ItemKind::Function(function) => {
                let ty = result(function, owner);
                let kind = function_kind(&function.attributes);
                let text = signature(function, owner);
                self.top(item, &function.name, owner, kind, ty, |_| text)
            }
            ItemKind::Impl { name, methods, fields, .. } => {
                let id =
                    self.top(item, name, owner, DefKind::Impl, Ty::Unknown, |name| format!("impl {name}"));
                self.impl_members(id, item.span, methods, fields, owner);
                id
            }
        };
        Some(id)
    }

    /// Declares a name at top level, or of a module.
    fn top(
        &mut self,
        item: &Item,
        name: &Ident,
        owner: &Owner<'_>,
        kind: DefKind,
        ty: Ty,
        detail: impl FnOnce(&str) -> String,
    ) -> DefId {
        let id = self.define(name, Some(item.span), || Definition {
            detail: detail(&name.name),
            parent: owner.module,
            ty,
            ..Definition::new(&name.name, kind)
        });
        if owner.module.is_none() {
            // The first declaration of a name is used; the checker reports the second.
            self.globals.entry(name.name.clone()).or_insert(id);
        }
        id
    }

    /// Adds a definition with its source range and comments.
    fn define(&mut self, name: &Ident, extent: Option<Span>, make: impl FnOnce() -> Definition) -> DefId {
        let (unit, predeclaring) = (self.unit, self.predeclaring);
        let id = self.facts.define(|| {
            let definition = make();
            let docs = match extent.map(|extent| docs::above(unit, extent.start)) {
                Some(docs) if !docs.is_empty() || definition.kind != DefKind::Field => docs,
                _ => docs::trailing(unit, extent.map_or(name.span.end, |extent| extent.end)),
            };
            let span = (!predeclaring).then_some(name.span);
            Definition { span, extent: extent.filter(|_| !predeclaring), docs, ..definition }
        });
        if let Some(parent) = self.facts.definition(id).and_then(|one| one.parent) {
            self.members.entry(parent).or_default().push(id);
        }
        id
    }

    fn fields(&mut self, parent: DefId, fields: &[FieldDecl], owner: &Owner<'_>) {
        for FieldDecl { name, ty, default, .. } in fields {
            let extent = name.span.to(default.as_ref().map_or(ty.span, |default| default.span));
            let ty = owner.ty(ty);
            self.define(name, Some(extent), || Definition {
                detail: format!("{}: {ty}{}", name.name, default_text(default.as_ref())),
                parent: Some(parent),
                ty,
                ..Definition::new(&name.name, DefKind::Field)
            });
        }
    }

    fn enumerators(
        &mut self,
        parent: DefId,
        of: &str,
        enumerators: &[(Ident, Option<crate::ast::IntLit>)],
        owner: &Owner<'_>,
    ) {
        let mut next = 0i128;
        for (name, written) in enumerators {
            if let Some(literal) = written {
                let value = i128::from(literal.value);
                next = if literal.negative { -value } else { value };
            }
            let extent = written.as_ref().map_or(name.span, |value| name.span.to(value.span));
            let value = next;
            let id = self.define(name, Some(extent), || Definition {
                detail: format!("{} = {value}", name.name),
                parent: Some(parent),
                ty: Ty::named(of),
                ..Definition::new(&name.name, DefKind::Enumerator)
            });
            if owner.module.is_none() {
                self.globals.entry(name.name.clone()).or_insert(id);
            }
            next = next.saturating_add(1);
        }
    }

    fn global(&mut self, item: &Item, global: &Global, owner: &Owner<'_>) -> DefId {
        let ty = global.ty.as_ref().map_or(Ty::Unknown, |ty| owner.ty(ty));
        let kind = match ty {
            Ty::Map(..) | Ty::Keyless(..) => DefKind::Map,
            Ty::Ring(..) => DefKind::Ring,
            _ => DefKind::Global,
        };
        let modifiers = [(global.pin, "pin "), (global.local, "local "), (global.per_cpu, "percpu ")];
        let modifiers: String =
            modifiers.into_iter().filter(|(span, _)| span.is_some()).map(|(_, word)| word).collect();
        let colon = if ty.is_known() { format!(": {ty}") } else { String::new() };
        self.top(item, &global.name, owner, kind, ty, |name| format!("{modifiers}var {name}{colon}"))
    }

    fn impl_members(
        &mut self,
        parent: DefId,
        extent: Span,
        methods: &[AstFunction],
        fields: &[(Ident, Expr)],
        owner: &Owner<'_>,
    ) {
        for method in methods {
            let whole = method.name.span.to(method.body.span);
            let ty = result(method, owner);
            let text = signature(method, owner);
            self.define(&method.name, Some(whole), || Definition {
                detail: text,
                scope: Some(extent),
                parent: Some(parent),
                ty,
                ..Definition::new(&method.name.name, DefKind::Method)
            });
        }
        for (name, value) in fields {
            self.define(name, Some(name.span.to(value.span)), || Definition {
                detail: format!("{}{}", name.name, default_text(Some(value)).replacen(" =", ":", 1)),
                parent: Some(parent),
                ..Definition::new(&name.name, DefKind::Field)
            });
        }
    }
}

/// Returns a part of the text on one line.
fn written(text: &[u8], span: Span) -> String {
    let text = String::from_utf8_lossy(text.get(span.range()).unwrap_or_default());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn type_name(item: &Item) -> Option<&str> {
    match &item.kind {
        ItemKind::Alias { name, .. } | ItemKind::Enum { name, .. } | ItemKind::Struct { name, .. } => {
            Some(&name.name)
        }
        _ => None,
    }
}

fn function_kind(attributes: &[Attribute]) -> DefKind {
    let mut kind = DefKind::Function;
    for attribute in attributes {
        match attribute.name.name.as_str() {
            "helper" | "kfunc" | "private" => kind = DefKind::Helper,
            "test" => {}
            _ => return DefKind::Program,
        }
    }
    kind
}

fn result(function: &AstFunction, owner: &Owner<'_>) -> Ty {
    function.ret.as_ref().map_or(Ty::Unknown, |ret| owner.ty(&ret.ty))
}

/// Returns the head of a function on one line.
fn signature(function: &AstFunction, owner: &Owner<'_>) -> String {
    let mut text = String::new();
    for attribute in &function.attributes {
        text += &format!("@{}", attribute.name.name);
        if let Some(argument) = &attribute.argument {
            text += &format!("(\"{}\")", String::from_utf8_lossy(&argument.bytes));
        }
        text.push(' ');
    }
    if !function.has_head {
        return text.trim_end().to_owned();
    }
    text += &format!("fn {}({})", function.name.name, list(&function.params, owner));
    if let Some(ret) = &function.ret {
        let name = ret.name.as_ref().map(|name| format!("{}: ", name.name)).unwrap_or_default();
        text += &format!(" -> {name}{}", owner.ty(&ret.ty));
    }
    text
}

fn list(params: &[Param], owner: &Owner<'_>) -> String {
    let params: Vec<_> =
        params.iter().map(|param| format!("{}: {}", param.name.name, owner.ty(&param.ty))).collect();
    params.join(", ")
}

/// Returns ` = value` for a default that is one literal.
fn default_text(default: Option<&Expr>) -> String {
    let Some(default) = default else { return String::new() };
    let value = match &default.kind {
        ExprKind::Unary(UnaryOp::Neg, inner) => match inner.kind {
            ExprKind::Int(value) => format!("-{value}"),
            _ => return String::new(),
        },
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Char(value) => format!("'{}'", value.escape_ascii()),
        ExprKind::Str(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        ExprKind::Null => "null".to_owned(),
        _ => return String::new(),
    };
    format!(" = {value}")
}

//! Types at top level: enums, structs and aliases.

use std::collections::{HashMap, HashSet};

use super::Checker;
use super::names::Symbol;
use super::types::Position;
use crate::ast::{self, FieldDecl, IntLit, Item, ItemKind};
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::types::{EnumDef, Field, IntType, StructDef, StructId, StructOrigin, TypeId, TypeKind};

/// Maximum nesting of structs in each other: far above any handwritten script.
const MAX_NESTING: usize = 64;

/// A struct whose name is declared, and whose fields are not yet resolved.
struct Declared<'a> {
    id: StructId,
    name: &'a ast::Ident,
    fields: &'a [FieldDecl],
}

impl Checker<'_> {
    /// Declares types and constants. Their order in the file does not matter.
    pub(super) fn declare_types(&mut self, items: &[Item]) {
        let mut structs = Vec::new();
        for item in items {
            match &item.kind {
                ItemKind::Struct { attributes, name, fields } => {
                    self.check_struct_attributes(attributes, name, fields);
                    structs.extend(self.declare_struct(name, fields));
                }
                ItemKind::Enum { name, enumerators } => self.declare_enum(name, enumerators),
                _ => {}
            }
        }
        self.declare_in_order(items);
        for one in &structs {
            self.fill_struct(one);
        }
        self.check_nesting(&structs);
        for one in &structs {
            self.field_defaults(one);
        }
    }

    /// Declares the name of a struct; none if the struct is already declared.
    fn declare_struct<'a>(&mut self, name: &'a ast::Ident, fields: &'a [FieldDecl]) -> Option<Declared<'a>> {
        if self.declared_by_header(name) || self.repeats_struct(name, fields) {
            return None;
        }
        let record = name.name.starts_with("trace_event_raw_");
        let described = (self.in_header(name.span) || record) && self.kernel().has_structure(&name.name);
        let origin = if described { StructOrigin::Kernel } else { StructOrigin::Script };
        let id = self.types.add_struct(StructDef { name: name.name.clone(), fields: Vec::new(), origin });
        let ty = self.types.struct_type(id);
        self.declare_name(name, Symbol::Type(ty));
        Some(Declared { id, name, fields })
    }

    /// Whether a struct has the same meaning as the predeclared one of its name. In a context only the names
    /// of the members count: its types are those of the language.
    fn repeats_struct(&mut self, name: &ast::Ident, fields: &[FieldDecl]) -> bool {
        let Some(Symbol::Type(ty)) = self.names.predeclared(&name.name) else { return false };
        let &TypeKind::Struct(id) = self.types.kind(ty) else { return false };
        let def = self.types.struct_def(id).clone();
        if def.origin == StructOrigin::Context {
            let known = |field: &FieldDecl| def.field(&field.name.name).is_some();
            return self.in_header(name.span) || fields.iter().all(known);
        }
        let same_names =
            fields.iter().map(|field| &field.name.name).eq(def.fields.iter().map(|one| &one.name));
        same_names
            && fields
                .iter()
                .zip(&def.fields)
                .all(|(field, one)| self.type_expr(&field.ty, Position::Value) == one.ty)
    }

    fn declare_enum(&mut self, name: &ast::Ident, enumerators: &[(ast::Ident, Option<IntLit>)]) {
        if self.declared_by_header(name) {
            for (enumerator, _) in enumerators {
                self.declared_by_header(enumerator);
            }
            return;
        }
        let mut next = 0i128;
        let mut values = Vec::new();
        for (enumerator, value) in enumerators {
            if let Some(value) = value {
                next = i128::from(value.value) * if value.negative { -1 } else { 1 };
            }
            values.push((enumerator, next));
            next += 1;
        }
        if self.names.is_reserved(&name.name) {
            if !self.repeats_enum(name, &values) {
                self.declare_name(name, Symbol::Error);
            }
            return;
        }
        let repr = self.enum_repr(&values);
        let listed = values.iter().map(|(name, value)| (name.name.clone(), repr.truncate(*value as u64)));
        let def = EnumDef { name: name.name.clone(), repr, enumerators: listed.collect() };
        let id = self.types.add_enum(def);
        let ty = self.types.intern(TypeKind::Enum(id));
        self.declare_name(name, Symbol::Type(ty));
        for (enumerator, value) in values {
            if self.predeclared_value(&enumerator.name) != Some(value) {
                self.declare_name(enumerator, Symbol::Enumerator(ty, repr.truncate(value as u64)));
            }
        }
    }

    /// Whether an enum has the same meaning as the predeclared one of its name; a header may leave
    /// enumerators out.
    fn repeats_enum(&self, name: &ast::Ident, values: &[(&ast::Ident, i128)]) -> bool {
        let Some(Symbol::Type(ty)) = self.names.predeclared(&name.name) else { return false };
        let &TypeKind::Enum(id) = self.types.kind(ty) else { return false };
        let def = self.types.enum_def(id);
        let known = |(name, value): &(&ast::Ident, i128)| {
            let mut all = def.enumerators.iter();
            all.any(|(one, bits)| *one == name.name && def.repr.value(*bits) == *value)
        };
        values.iter().all(known) && (self.in_header(name.span) || values.len() == def.enumerators.len())
    }

    /// Returns the value of a predeclared enumerator that no script can redeclare.
    fn predeclared_value(&self, name: &str) -> Option<i128> {
        match self.names.predeclared(name)? {
            Symbol::Enumerator(ty, bits) if self.names.is_reserved(name) => {
                Some(self.types.scalar(ty)?.value(bits))
            }
            _ => None,
        }
    }

    fn enum_repr(&mut self, values: &[(&ast::Ident, i128)]) -> IntType {
        let least = values.iter().map(|(_, value)| *value).min().unwrap_or(0);
        let most = values.iter().map(|(_, value)| *value).max().unwrap_or(0);
        let signed = least < 0;
        let fits = |bits: u32| {
            let (low, high) =
                if signed { (-1i128 << (bits - 1), 1i128 << (bits - 1)) } else { (0, 1i128 << bits) };
            least >= low && most < high
        };
        if !fits(64)
            && let Some((name, _)) = values.iter().find(|(_, value)| *value == most)
        {
            let text = format!("`{}` has a value that does not fit 64 bits", name.name);
            self.report(Diagnostic::error(416, name.span, text));
        }
        IntType { bits: if fits(32) { 32 } else { 64 }, signed }
    }

    fn fill_struct(&mut self, one: &Declared<'_>) {
        let mut filled: Vec<Field> = Vec::new();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        self.in_fields = true;
        for field in one.fields {
            if let Some(first) = seen.insert(&field.name.name, field.name.span) {
                self.report_duplicate(&field.name, first);
                continue;
            }
            let ty = self.type_expr(&field.ty, Position::Value);
            let docs = field.docs.clone().unwrap_or_default();
            let column = field.column.as_ref().and_then(|column| self.column_label(column, ty));
            filled.push(Field { docs, column, ..Field::new(&field.name.name, ty) });
        }
        self.in_fields = false;
        self.types.struct_mut(one.id).fields = filled;
    }

    /// Reports structs that contain themselves; computes the layout of the others.
    fn check_nesting(&mut self, structs: &[Declared<'_>]) {
        let positions: HashMap<StructId, usize> =
            structs.iter().enumerate().map(|(at, one)| (one.id, at)).collect();
        // The nesting depth of each struct; 0 while it is being visited.
        let mut depths: HashMap<StructId, usize> = HashMap::new();
        for one in structs {
            let mut open = vec![(one.id, 0, 0)];
            if depths.contains_key(&one.id) {
                continue;
            }
            depths.insert(one.id, 0);
            while let Some((id, field, deepest)) = open.last_mut() {
                let fields = &self.types.struct_def(*id).fields;
                let Some(inner) = fields.get(*field).map(|field| self.struct_within(field.ty)) else {
                    let (id, depth) = (*id, *deepest + 1);
                    depths.insert(id, depth);
                    self.types.seal(id);
                    open.pop();
                    if let Some((_, _, outer)) = open.last_mut() {
                        *outer = (*outer).max(depth);
                    }
                    continue;
                };
                let (holder, at) = (*id, *field);
                *field += 1;
                let Some(inner) = inner.filter(|inner| positions.contains_key(inner)) else { continue };
                match depths.get(&inner) {
                    Some(0) => self.report_cycle(holder, at, structs[positions[&inner]].name),
                    Some(depth) => *deepest = (*deepest).max(*depth),
                    None if open.len() >= MAX_NESTING => {
                        let name = structs[positions[&inner]].name;
                        let text = format!("more than {MAX_NESTING} structs lie in each other");
                        self.report(Diagnostic::error(419, name.span, text));
                        self.types.struct_mut(holder).fields[at].ty = self.types.common().error;
                    }
                    None => {
                        depths.insert(inner, 0);
                        open.push((inner, 0, 0));
                    }
                }
            }
        }
    }

    fn report_cycle(&mut self, holder: StructId, field: usize, name: &ast::Ident) {
        let text = format!("type `{}` contains itself", name.name);
        let mut error = Diagnostic::error(419, name.span, text).note("its size would have no end");
        let outer = &self.types.struct_def(holder).name;
        if *outer != name.name {
            error = error.note(format!("`{outer}` contains it"));
        }
        self.report(error.help(format!("a pointer to it is fine: `*{}`", name.name)));
        // Computing the layout must terminate although the program is rejected.
        self.types.struct_mut(holder).fields[field].ty = self.types.common().error;
    }

    /// Returns the struct that a value of a type consists of, alone or in an array.
    fn struct_within(&self, mut ty: TypeId) -> Option<StructId> {
        loop {
            match self.types.kind(ty) {
                TypeKind::Array(element, _) => ty = *element,
                TypeKind::Struct(id) => return Some(*id),
                _ => return None,
            }
        }
    }

    fn field_defaults(&mut self, one: &Declared<'_>) {
        for field in one.fields {
            let Some(default) = &field.default else { continue };
            self.strict(default.span, "default of a field");
            let Some(index) = self.types.struct_def(one.id).field(&field.name.name) else { continue };
            let ty = self.types.struct_def(one.id).fields[index].ty;
            let value = self.constant_expr(default, Some(ty));
            let bytes = self.constant_bytes(&value, ty);
            self.types.struct_mut(one.id).fields[index].default = bytes;
            self.types.seal(one.id);
        }
    }

    /// Whether `wanted` accepts the kind of any part of a value of a type.
    pub(super) fn any_part(&self, ty: TypeId, wanted: impl Fn(&TypeKind) -> bool) -> bool {
        let (mut open, mut seen) = (vec![ty], HashSet::new());
        while let Some(ty) = open.pop() {
            let kind = self.types.kind(ty);
            if wanted(kind) {
                return true;
            }
            match kind {
                TypeKind::Array(element, _) => open.push(*element),
                TypeKind::Struct(id) if seen.insert(*id) => {
                    open.extend(self.types.struct_def(*id).fields.iter().map(|field| field.ty));
                }
                _ => {}
            }
        }
        false
    }
}

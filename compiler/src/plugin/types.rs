//! Types of the contract in a component: defined once in each imported interface.

use crate::index::FastMap;
use wasm_encoder::{
    Alias, ComponentBuilder, ComponentExportKind, ComponentOuterAliasKind, ComponentTypeRef,
    ComponentValType, InstanceType, TypeBounds,
};

use super::contract::{Type, TypeId, TypeKind, WitFunction};

/// Interfaces that the component has imported so far.
#[derive(Debug, Default)]
pub struct Instances {
    by_interface: FastMap<usize, u32>,
}

impl Instances {
    /// Records the instance of an imported interface.
    pub fn set(&mut self, interface: usize, instance: u32) {
        self.by_interface.insert(interface, instance);
    }

    /// Returns the instance of an interface, by its position.
    ///
    /// # Panics
    /// If the interface was not imported.
    pub fn of(&self, interface: usize) -> u32 {
        *self.by_interface.get(&interface).expect("an interface is imported before it is used")
    }

    /// Returns the component's index of a type of an imported interface.
    ///
    /// # Panics
    /// If the type has no name.
    pub fn alias(&self, builder: &mut ComponentBuilder, id: TypeId) -> u32 {
        let def = id.def();
        let (Some(owner), Some(name)) = (def.owner, def.name) else {
            panic!("a type without a name is of no interface")
        };
        builder.alias_export(self.of(owner), name, ComponentExportKind::Type)
    }
}

/// Returns the type of an interface with these of its types and functions.
pub fn instance(
    builder: &mut ComponentBuilder,
    instances: &Instances,
    interface: usize,
    types: &[TypeId],
    functions: impl Iterator<Item = &'static WitFunction>,
) -> InstanceType {
    let mut writer =
        Writer { builder, instances, interface, ty: InstanceType::new(), written: FastMap::default() };
    for id in types {
        writer.named(*id);
    }
    let mut known: Vec<(&WitFunction, u32)> = Vec::new();
    for function in functions {
        let same =
            |one: &&(&WitFunction, u32)| (one.0.params, one.0.result) == (function.params, function.result);
        let index = match known.iter().find(same) {
            Some((_, index)) => *index,
            None => writer.function(function),
        };
        known.push((function, index));
        writer.ty.export(function.name, ComponentTypeRef::Func(index));
    }
    writer.ty
}

/// Returns the type of a function that the component exports.
///
/// # Panics
/// If the signature has other types than primitive ones, lists and results; the tests of this module check each
/// function.
pub fn function(builder: &mut ComponentBuilder, known: &mut OwnTypes, function: &WitFunction) -> u32 {
    let params: Vec<_> = function.params.iter().map(|(name, ty)| (*name, known.of(builder, *ty))).collect();
    let result = function.result.map(|ty| known.of(builder, ty));
    let (index, mut writer) = builder.type_function(None);
    writer.params(params).result(result);
    index
}

/// Types without a name that the component defines itself, each once.
#[derive(Debug, Default)]
pub struct OwnTypes {
    written: FastMap<u16, u32>,
}

impl OwnTypes {
    fn of(&mut self, builder: &mut ComponentBuilder, ty: Type) -> ComponentValType {
        let id = match ty {
            Type::Primitive { ty, .. } => return ComponentValType::Primitive(ty),
            Type::Id(id) => id,
        };
        if let Some(index) = self.written.get(&id.0) {
            return ComponentValType::Type(*index);
        }
        let index = match id.def().kind {
            TypeKind::Result { ok, err, .. } => {
                let (ok, err) = (ok.map(|ty| self.of(builder, ty)), err.map(|ty| self.of(builder, ty)));
                let (index, writer) = builder.type_defined(None);
                writer.result(ok, err);
                index
            }
            TypeKind::List(element) => {
                let element = self.of(builder, element);
                let (index, writer) = builder.type_defined(None);
                writer.list(element);
                index
            }
            _ => panic!("exports have results and lists only"),
        };
        self.written.insert(id.0, index);
        ComponentValType::Type(index)
    }
}

struct Writer<'a> {
    builder: &'a mut ComponentBuilder,
    instances: &'a Instances,
    interface: usize,
    ty: InstanceType,
    written: FastMap<u16, u32>,
}

impl Writer<'_> {
    fn function(&mut self, function: &WitFunction) -> u32 {
        let params: Vec<_> = function.params.iter().map(|(name, ty)| (*name, self.ty(*ty))).collect();
        let result = function.result.map(|ty| self.ty(ty));
        let index = self.ty.type_count();
        self.ty.ty().function().params(params).result(result);
        index
    }

    fn ty(&mut self, ty: Type) -> ComponentValType {
        match ty {
            Type::Primitive { ty, .. } => ComponentValType::Primitive(ty),
            Type::Id(id) => self.named(id),
        }
    }

    fn index(&mut self, id: TypeId) -> u32 {
        match self.named(id) {
            ComponentValType::Type(index) => index,
            ComponentValType::Primitive(_) => panic!("a handle is one of a resource"),
        }
    }

    /// Returns the index of a type, which is encoded on first use.
    fn named(&mut self, id: TypeId) -> ComponentValType {
        if let Some(index) = self.written.get(&id.0) {
            return ComponentValType::Type(*index);
        }
        let def = id.def();
        let written = if def.owner.is_some_and(|owner| owner != self.interface) {
            let index = self.instances.alias(self.builder, id);
            self.ty.alias(Alias::Outer { kind: ComponentOuterAliasKind::Type, count: 1, index });
            ComponentValType::Type(self.ty.type_count() - 1)
        } else if let (TypeKind::Resource, Some(name)) = (&def.kind, def.name) {
            ComponentValType::Type(self.export(name, TypeBounds::SubResource))
        } else {
            match (self.define(&def.kind), def.name) {
                (ComponentValType::Type(index), Some(name)) => {
                    ComponentValType::Type(self.export(name, TypeBounds::Eq(index)))
                }
                (ComponentValType::Primitive(ty), Some(name)) => {
                    let index = self.ty.type_count();
                    self.ty.ty().defined_type().primitive(ty);
                    ComponentValType::Type(self.export(name, TypeBounds::Eq(index)))
                }
                (written, None) => written,
            }
        };
        if let ComponentValType::Type(index) = written {
            self.written.insert(id.0, index);
        }
        written
    }

    /// Exports a type under its name, which assigns it a new index.
    fn export(&mut self, name: &str, bounds: TypeBounds) -> u32 {
        let index = self.ty.type_count();
        self.ty.export(name, ComponentTypeRef::Type(bounds));
        index
    }

    fn define(&mut self, kind: &TypeKind) -> ComponentValType {
        // The types that a definition refers to have lower indices.
        match kind {
            TypeKind::Alias(ty) => return self.ty(*ty),
            TypeKind::Record(fields) => {
                let fields: Vec<_> = fields.iter().map(|field| (field.name, self.ty(field.ty))).collect();
                self.ty.ty().defined_type().record(fields);
            }
            TypeKind::Variant { cases, .. } => {
                let cases: Vec<_> =
                    cases.iter().map(|(name, ty)| (*name, ty.map(|ty| self.ty(ty)))).collect();
                self.ty.ty().defined_type().variant(cases);
            }
            TypeKind::Option { some, .. } => {
                let some = self.ty(*some);
                self.ty.ty().defined_type().option(some);
            }
            TypeKind::Result { ok, err, .. } => {
                let (ok, err) = (ok.map(|ty| self.ty(ty)), err.map(|ty| self.ty(ty)));
                self.ty.ty().defined_type().result(ok, err);
            }
            TypeKind::Enum(names) => self.ty.ty().defined_type().enum_type(names.iter().copied()),
            TypeKind::Flags(names) => self.ty.ty().defined_type().flags(names.iter().copied()),
            TypeKind::Tuple(types) => {
                let types: Vec<_> = types.iter().map(|(ty, _)| self.ty(*ty)).collect();
                self.ty.ty().defined_type().tuple(types);
            }
            TypeKind::List(ty) => {
                let ty = self.ty(*ty);
                self.ty.ty().defined_type().list(ty);
            }
            TypeKind::Own(id) => {
                let resource = self.index(*id);
                self.ty.ty().defined_type().own(resource);
            }
            TypeKind::Borrow(id) => {
                let resource = self.index(*id);
                self.ty.ty().defined_type().borrow(resource);
            }
            TypeKind::Resource => panic!("a resource has a name"),
        }
        ComponentValType::Type(self.ty.type_count() - 1)
    }
}

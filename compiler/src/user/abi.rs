//! The canonical ABI: core imports and the memory layout of the contract's types.
//!
//! In: the contract's tables. Out: import names with core signatures, and [`Shape`]s that are navigated by
//! WIT names. No other module hard-codes a size or an offset of the contract.

use wasm_encoder::ValType;

use crate::plugin::contract::{HostFunction, HostResource, INTERFACES, Type, TypeKind, WitFunction, World};

/// Byte offset of the length in a list or string; the address is at offset 0.
pub const LIST_LEN: u32 = 4;

/// Entry point to the contract's tables.
#[derive(Clone, Copy)]
pub struct Abi;

/// A core import: module, name and core signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreImport {
    /// Name of the interface, with its version.
    pub module: &'static str,
    /// Name of the function within the interface.
    pub name: String,
    /// Core parameters. The last one is the result's address if the result does not fit one value.
    pub params: &'static [ValType],
    /// Core results: at most one.
    pub results: &'static [ValType],
}

/// The type of a value and its offset within a host call's result or argument.
#[derive(Clone, Copy)]
pub struct Shape {
    ty: Type,
    /// Offset in bytes.
    pub offset: u32,
}

impl Abi {
    /// Returns the core import of a function.
    pub fn import(self, function: HostFunction) -> CoreImport {
        let WitFunction { name, core_params, core_results, .. } = function.def();
        CoreImport {
            module: function.interface().id,
            name: (*name).to_owned(),
            params: core_params,
            results: core_results,
        }
    }

    /// Returns the core import that drops a handle.
    pub fn drop_import(self, resource: HostResource) -> CoreImport {
        CoreImport {
            module: resource.interface().id,
            name: resource.drop_name(),
            params: &[ValType::I32],
            results: &[],
        }
    }

    /// Returns the shape of a function's result.
    pub fn result(self, function: HostFunction) -> Shape {
        let ty = function.def().result.expect("the function has a result");
        Shape { ty, offset: 0 }
    }

    /// Returns the shape of the result of a function that plugins of a world export.
    pub fn exported(self, world: World, name: &str) -> Shape {
        let function = world.exports().iter().find(|function| function.name == name);
        let ty = function.and_then(|function| function.result).expect("the world has it, with a result");
        Shape { ty, offset: 0 }
    }

    /// Returns the shape of a type of an interface.
    pub fn named(self, interface: &str, name: &str) -> Shape {
        let interface = INTERFACES.iter().find(|one| one.name == interface);
        let mut types = interface.expect("the contract has the interface").types.iter();
        let (_, id) = types.find(|(found, _)| *found == name).expect("the contract has the type");
        Shape { ty: Type::Id(*id), offset: 0 }
    }

    /// Returns the size in bytes of the largest function result.
    pub fn largest_result(self) -> u32 {
        let functions = INTERFACES.iter().flat_map(|interface| interface.functions);
        functions.filter_map(|function| function.result).map(Type::size).max().unwrap_or(0)
    }
}

impl Shape {
    /// Returns the size of the type in bytes.
    pub fn size(self) -> u32 {
        self.ty.size()
    }

    /// Returns the shape of a field of this record.
    pub fn field(self, name: &str) -> Shape {
        let TypeKind::Record(fields) = self.kind() else { panic!("{name} is looked up in a record") };
        let field = fields.iter().find(|field| field.name == name).expect("the record has the field");
        self.at(field.offset, field.ty)
    }

    /// Returns the shape of a result's payload for discriminant 0.
    pub fn ok(self) -> Shape {
        let TypeKind::Result { ok, payload, .. } = self.kind() else { panic!("a result has an ok side") };
        self.at(*payload, ok.expect("the ok side has a value"))
    }

    /// Returns the shape of a result's payload for discriminant 1.
    pub fn err(self) -> Shape {
        let TypeKind::Result { err, payload, .. } = self.kind() else { panic!("a result has an error side") };
        self.at(*payload, err.expect("the error side has a value"))
    }

    /// Returns the shape of an option's payload for discriminant 1.
    pub fn some(self) -> Shape {
        let TypeKind::Option { some, payload } = self.kind() else { panic!("an option may hold a value") };
        self.at(*payload, *some)
    }

    /// Returns the shape of an element of this tuple.
    pub fn item(self, position: usize) -> Shape {
        let TypeKind::Tuple(elements) = self.kind() else { panic!("a tuple has numbered elements") };
        let (ty, offset) = elements[position];
        self.at(offset, ty)
    }

    /// Returns the shape of a list element; its offset counts from the element's start.
    pub fn element(self) -> Shape {
        let TypeKind::List(ty) = self.kind() else { panic!("a list has elements") };
        Shape { ty: *ty, offset: 0 }
    }

    /// Returns the discriminant and the payload of a variant's case.
    pub fn case(self, name: &str) -> (u32, Option<Shape>) {
        let TypeKind::Variant { cases, payload } = self.kind() else {
            panic!("{name} is looked up in a variant")
        };
        let number = cases.iter().position(|(case, _)| *case == name).expect("the variant has the case");
        (number as u32, cases[number].1.map(|ty| self.at(*payload, ty)))
    }

    /// Returns the number of an enum's case.
    pub fn enumerator(self, name: &str) -> u32 {
        let TypeKind::Enum(cases) = self.kind() else { panic!("{name} is looked up in an enum") };
        cases.iter().position(|case| *case == name).expect("the enum has the case") as u32
    }

    fn at(self, offset: u32, ty: Type) -> Shape {
        Shape { offset: self.offset + offset, ty }
    }

    /// Returns the definition with aliases resolved.
    fn kind(self) -> &'static TypeKind {
        let mut ty = self.ty;
        loop {
            let Type::Id(id) = ty else { panic!("a primitive type has no parts") };
            match &id.def().kind {
                TypeKind::Alias(other) => ty = *other,
                kind => return kind,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::contract::import;

    #[test]
    fn shapes_follow_the_contract() {
        let reading = Abi.result(import::perf::ATTACHMENT_READ);
        assert_eq!(reading.ok().field("raw").offset, 8);
        assert_eq!(reading.ok().field("scaled").some().offset, 24);
        assert_eq!(Abi.named("console", "value").case("text").0, 10);
        assert_eq!(Abi.named("maps", "update-mode").enumerator("exist"), 2);
        assert!(Abi.largest_result() >= reading.size());
    }

    #[test]
    fn imports_are_named_as_the_component_model_does() {
        let read = Abi.import(import::perf::ATTACHMENT_READ);
        assert_eq!(read.module, "kernelscript:host/perf@0.2.0");
        assert_eq!(read.name, "[method]attachment.read");
        assert_eq!((read.params, read.results), (&[ValType::I32, ValType::I32][..], &[][..]));
        let names = [import::perf::OPTIONS_NEW, import::perf::EVENT_BREAKPOINT_AT, import::perf::READ_BY_ID]
            .map(|function| Abi.import(function).name);
        assert_eq!(names, ["[constructor]options", "[static]event.breakpoint-at", "read-by-id"]);
        assert_eq!(Abi.drop_import(import::perf::ATTACHMENT).name, "[resource-drop]attachment");
    }
}

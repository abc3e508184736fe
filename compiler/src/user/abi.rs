//! The canonical ABI: core imports, and where the parts of a value lie in memory.
//!
//! In: the contract's WIT. Out: import names with core signatures, and [`Shape`]s that are walked by the names of the
//! WIT. No size or offset of the contract is written down by hand anywhere else.

use wasm_encoder::ValType;
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, InterfaceId, Resolve, SizeAlign, Type, TypeDefKind};

use crate::plugin::contract;

/// Where the length lies in a list or string; the address lies at 0.
pub const LIST_LEN: u32 = 4;

/// The contract, with its layouts worked out.
pub struct Abi {
    resolve: &'static Resolve,
    sizes: SizeAlign,
}

/// A core import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreImport {
    /// The interface with its version.
    pub module: String,
    /// The function.
    pub name: String,
    /// Core parameters; the last is the address of the result if the result does not fit one value.
    pub params: Vec<ValType>,
    /// Core results.
    pub results: Vec<ValType>,
}

/// A value of some type at some offset from the start of a host call's result or argument.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    abi: &'a Abi,
    ty: Type,
    /// Offset in bytes.
    pub offset: u32,
}

impl Abi {
    /// Reads the contract.
    pub fn new() -> Abi {
        // The imports of both worlds are the same.
        let (resolve, _) = contract::resolve(contract::World::Plugin);
        let mut sizes = SizeAlign::default();
        sizes.fill(resolve);
        Abi { resolve, sizes }
    }

    /// The core import of a function of an interface, spelled as the ABI does: `[method]attachment.read`.
    pub fn import(&self, interface: &str, function: &str) -> CoreImport {
        let signature =
            self.resolve.wasm_signature(AbiVariant::GuestImport, self.function(interface, function));
        assert!(
            !signature.indirect_params,
            "{function}: no function of the contract has that many parameters"
        );
        CoreImport {
            module: self.module(interface),
            name: function.to_owned(),
            params: signature.params.iter().map(|ty| val_type(*ty)).collect(),
            results: signature.results.iter().map(|ty| val_type(*ty)).collect(),
        }
    }

    /// The core import that drops a handle.
    pub fn drop_import(&self, interface: &str, resource: &str) -> CoreImport {
        CoreImport {
            module: self.module(interface),
            name: format!("[resource-drop]{resource}"),
            params: vec![ValType::I32],
            results: Vec::new(),
        }
    }

    /// The shape of a function's result.
    pub fn result(&self, interface: &str, function: &str) -> Shape<'_> {
        let ty = self.function(interface, function).result.expect("the function has a result");
        self.shape(ty)
    }

    /// The shape of a type of an interface.
    pub fn named(&self, interface: &str, name: &str) -> Shape<'_> {
        let types = &self.resolve.interfaces[self.interface(interface)].types;
        self.shape(Type::Id(*types.get(name).expect("the contract has the type")))
    }

    /// Bytes that the largest result of any function takes.
    pub fn largest_result(&self) -> u32 {
        let functions =
            self.resolve.interfaces.iter().flat_map(|(_, interface)| interface.functions.values());
        functions.filter_map(|function| function.result).map(|ty| self.shape(ty).size()).max().unwrap_or(0)
    }

    fn shape(&self, ty: Type) -> Shape<'_> {
        Shape { abi: self, ty, offset: 0 }
    }

    fn interface(&self, name: &str) -> InterfaceId {
        let found = self.resolve.interfaces.iter().find(|(_, one)| one.name.as_deref() == Some(name));
        found.expect("the contract has the interface").0
    }

    fn module(&self, interface: &str) -> String {
        self.resolve.id_of(self.interface(interface)).expect("interfaces of the contract have names")
    }

    fn function(&self, interface: &str, name: &str) -> &Function {
        let functions = &self.resolve.interfaces[self.interface(interface)].functions;
        functions.get(name).expect("the contract has the function")
    }
}

impl<'a> Shape<'a> {
    /// Its size in bytes.
    pub fn size(self) -> u32 {
        self.abi.sizes.size(&self.ty).size_wasm32() as u32
    }

    /// A field of a record.
    pub fn field(self, name: &str) -> Shape<'a> {
        let TypeDefKind::Record(record) = self.kind() else { panic!("{name} is looked up in a record") };
        let offsets = self.abi.sizes.field_offsets(record.fields.iter().map(|field| &field.ty));
        let position =
            record.fields.iter().position(|field| field.name == name).expect("the record has the field");
        let (offset, ty) = offsets[position];
        self.at(offset.size_wasm32(), *ty)
    }

    /// What a result holds if its discriminant is 0.
    pub fn ok(self) -> Shape<'a> {
        let (TypeDefKind::Result(result), payload) = (self.kind(), self.payload_offset()) else {
            panic!("a result has an ok side")
        };
        self.at(payload, result.ok.expect("the ok side has a value"))
    }

    /// What a result holds if its discriminant is 1.
    pub fn err(self) -> Shape<'a> {
        let (TypeDefKind::Result(result), payload) = (self.kind(), self.payload_offset()) else {
            panic!("a result has an error side")
        };
        self.at(payload, result.err.expect("the error side has a value"))
    }

    /// What an option holds if its discriminant is 1.
    pub fn some(self) -> Shape<'a> {
        let TypeDefKind::Option(ty) = self.kind() else { panic!("an option may hold a value") };
        self.at(self.payload_offset(), *ty)
    }

    /// An element of a list: offsets count from the element's start.
    pub fn element(self) -> Shape<'a> {
        let TypeDefKind::List(ty) = self.kind() else { panic!("a list has elements") };
        self.abi.shape(*ty)
    }

    /// A case of a variant: its discriminant, and its value.
    pub fn case(self, name: &str) -> (u32, Option<Shape<'a>>) {
        let TypeDefKind::Variant(variant) = self.kind() else { panic!("{name} is looked up in a variant") };
        let number =
            variant.cases.iter().position(|case| case.name == name).expect("the variant has the case");
        let payload = self.payload_offset();
        (number as u32, variant.cases[number].ty.map(|ty| self.at(payload, ty)))
    }

    /// The number of a case of an enum.
    pub fn enumerator(self, name: &str) -> u32 {
        let TypeDefKind::Enum(def) = self.kind() else { panic!("{name} is looked up in an enum") };
        def.cases.iter().position(|case| case.name == name).expect("the enum has the case") as u32
    }

    fn at(self, offset: usize, ty: Type) -> Shape<'a> {
        Shape { offset: self.offset + offset as u32, ty, ..self }
    }

    /// The definition behind aliases.
    fn kind(self) -> &'a TypeDefKind {
        let mut ty = self.ty;
        loop {
            let Type::Id(id) = ty else { panic!("a primitive type has no parts") };
            match &self.abi.resolve.types[id].kind {
                TypeDefKind::Type(target) => ty = *target,
                kind => return kind,
            }
        }
    }

    fn payload_offset(self) -> usize {
        let sizes = &self.abi.sizes;
        let offset = match self.kind() {
            TypeDefKind::Variant(variant) => {
                sizes.payload_offset(variant.tag(), variant.cases.iter().map(|case| case.ty.as_ref()))
            }
            TypeDefKind::Option(ty) => sizes.payload_offset(wit_parser::Int::U8, [Some(ty)]),
            TypeDefKind::Result(result) => {
                sizes.payload_offset(wit_parser::Int::U8, [result.ok.as_ref(), result.err.as_ref()])
            }
            kind => panic!("a {} has no payload", kind.as_str()),
        };
        offset.size_wasm32()
    }
}

fn val_type(ty: WasmType) -> ValType {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => ValType::I32,
        WasmType::I64 | WasmType::PointerOrI64 => ValType::I64,
        WasmType::F32 => ValType::F32,
        WasmType::F64 => ValType::F64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_follow_the_contract() {
        let abi = Abi::new();
        let reading = abi.result("perf", "[method]attachment.read");
        assert_eq!(reading.ok().field("raw").offset, 8);
        assert_eq!(reading.ok().field("scaled").some().offset, 24);
        assert_eq!(abi.named("console", "value").case("text").0, 10);
        assert_eq!(abi.named("maps", "update-mode").enumerator("exist"), 2);
        assert!(abi.largest_result() >= reading.size());
    }

    #[test]
    fn imports_are_named_as_the_component_model_does() {
        let read = Abi::new().import("perf", "[method]attachment.read");
        assert_eq!(read.module, "kernelscript:host/perf@0.1.0");
        assert_eq!((read.params, read.results), (vec![ValType::I32, ValType::I32], vec![]));
    }
}

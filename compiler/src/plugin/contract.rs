//! The WIT package of the contract as tables, which the build script makes: no script waits for WIT to be parsed.
//!
//! Sizes and offsets are those of the canonical ABI in a 32-bit memory, in bytes.

use wasm_encoder::{PrimitiveValType, ValType};

include!(concat!(env!("OUT_DIR"), "/contract.rs"));

/// The worlds that a compiled script targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// A plugin.
    Plugin,
    /// A plugin that holds tests.
    TestPlugin,
}

impl World {
    /// What a plugin of this world exports.
    pub fn exports(self) -> &'static [WitFunction] {
        EXPORTS[self as usize]
    }
}

/// An interface that a plugin may import.
#[derive(Debug)]
pub struct Interface {
    /// Its name: `perf`.
    pub name: &'static str,
    /// Its name with package and version: `kernelscript:host/perf@0.1.0`.
    pub id: &'static str,
    /// Its types by name, those that it uses of others included.
    pub types: &'static [(&'static str, TypeId)],
    /// Its functions.
    pub functions: &'static [WitFunction],
}

/// A function of an interface, or one that a plugin exports.
#[derive(Debug)]
pub struct WitFunction {
    /// Spelled as the ABI does: `[method]attachment.read`.
    pub name: &'static str,
    /// Names and types.
    pub params: &'static [(&'static str, Type)],
    /// None if it has none.
    pub result: Option<Type>,
    /// All types that it is made of, each behind those that it is made of.
    pub live: &'static [TypeId],
    /// The same number for functions of the same core signature, with the meaning of its addresses and lengths.
    pub signature: u16,
    /// Core parameters; the last is the address of the result if the result does not fit one value.
    pub core_params: &'static [ValType],
    /// Core results.
    pub core_results: &'static [ValType],
    /// What a call needs of the plugin.
    pub needs: Needs,
}

/// What the canonical ABI needs to pass arguments and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The plugin's memory.
    pub memory: bool,
    /// The plugin's allocator.
    pub realloc: bool,
    /// The encoding of text.
    pub text: bool,
}

/// A type that is written out in [`TYPES`]; of equal types without a name, the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeId(pub u16);

impl TypeId {
    /// Its definition.
    pub fn def(self) -> &'static TypeDef {
        &TYPES[usize::from(self.0)]
    }
}

/// A type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A number, a truth value, a character or text.
    Primitive {
        /// Which.
        ty: PrimitiveValType,
        /// Its size.
        size: u32,
    },
    /// All others.
    Id(TypeId),
}

impl Type {
    /// Bytes that a value takes.
    pub fn size(self) -> u32 {
        match self {
            Type::Primitive { size, .. } => size,
            Type::Id(id) => id.def().size,
        }
    }
}

/// A type's definition.
#[derive(Debug)]
pub struct TypeDef {
    /// Its name.
    pub name: Option<&'static str>,
    /// The interface that names it, by its position in [`INTERFACES`].
    pub owner: Option<usize>,
    /// Bytes that a value takes.
    pub size: u32,
    /// Of what it is made.
    pub kind: TypeKind,
}

/// Of what a type is made.
#[derive(Debug)]
pub enum TypeKind {
    /// Fields in order.
    Record(&'static [Field]),
    /// One of several cases, each with or without a value.
    Variant {
        /// Names and types.
        cases: &'static [(&'static str, Option<Type>)],
        /// Where the value lies.
        payload: u32,
    },
    /// A value or none.
    Option {
        /// The value's type.
        some: Type,
        /// Where it lies.
        payload: u32,
    },
    /// Success or an error.
    Result {
        /// What success gives.
        ok: Option<Type>,
        /// What an error gives.
        err: Option<Type>,
        /// Where either lies.
        payload: u32,
    },
    /// One of several names.
    Enum(&'static [&'static str]),
    /// Any of several names.
    Flags(&'static [&'static str]),
    /// Several values.
    Tuple(&'static [Type]),
    /// Any number of values.
    List(Type),
    /// Another name.
    Alias(Type),
    /// A thing of the host.
    Resource,
    /// A handle that ends with its holder.
    Own(TypeId),
    /// A handle for the time of a call.
    Borrow(TypeId),
}

/// A field of a record.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub ty: Type,
    /// Where it lies.
    pub offset: u32,
}

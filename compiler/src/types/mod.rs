//! Types: interned, so that equal types have equal ids; aliases are resolved.
//!
//! Sizes, alignments and offsets are computed once, in `layout.rs`, for both halves. Not here: which
//! conversions the language allows (`check`).

mod layout;

use crate::id_type;
use crate::index::{FastMap, IndexVec};

id_type! {
    /// The id of a type. Equal ids are equal types.
    TypeId,
    /// The id of a struct, user's or predeclared.
    StructId,
    /// The id of an enum, user's or predeclared.
    EnumId,
}

/// The width and signedness of an integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntType {
    /// Width in bits: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether it is signed (two's complement).
    pub signed: bool,
}

impl IntType {
    /// Returns the size in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.bits / 8)
    }

    /// Returns `bits` truncated to this width, the other bits zero.
    pub fn truncate(self, bits: u64) -> u64 {
        if self.bits == 64 { bits } else { bits & ((1 << self.bits) - 1) }
    }

    /// Returns the value of the low bits of `bits` in this type.
    pub fn value(self, bits: u64) -> i128 {
        let cut = self.truncate(bits);
        let negative = self.signed && cut >> (self.bits - 1) & 1 == 1;
        i128::from(cut) - if negative { 1 << self.bits } else { 0 }
    }
}

impl std::fmt::Display for IntType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.signed { 'i' } else { 'u' }, self.bits)
    }
}

/// The kinds of types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// No value; size 0.
    Void,
    /// A bool: one byte, 0 or 1.
    Bool,
    /// A character: one byte of text.
    Char,
    /// An integer of 8 to 64 bits.
    Int(IntType),
    /// A string in N bytes: text of at most N-1 bytes, then zeros.
    Str(u32),
    /// An array: the element type and the number of elements.
    Array(TypeId, u64),
    /// A pointer to a type. In the kernel half its origin determines the memory it points to.
    Ptr(TypeId),
    /// A function value: parameter types and result type.
    Fn(Vec<TypeId>, TypeId),
    /// An enum: an integer of [`EnumDef::repr`].
    Enum(EnumId),
    /// A struct, by its id.
    Struct(StructId),
    /// The result of `load`. It has no spelling; 4 bytes, 0 is null.
    Program,
    /// The type of `null` until another type determines it.
    Null,
    /// The type of an expression whose error was already reported; fits everything.
    Error,
}

/// How a script wants the column of a field, a map or a variable to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnLabel {
    /// The heading, instead of the name.
    pub heading: String,
    /// The unit of its numbers.
    pub unit: Option<String>,
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The type of the field.
    pub ty: TypeId,
    /// The value if neither a literal nor the command line sets it: as many bytes as the type has.
    pub default: Option<Vec<u8>>,
    /// The `///` lines above it; empty if there are none.
    pub docs: String,
    /// How tables show it; none if the script does not say.
    pub column: Option<ColumnLabel>,
}

impl Field {
    /// Creates a field without a default and without documentation.
    pub fn new(name: impl Into<String>, ty: TypeId) -> Field {
        Field { name: name.into(), ty, default: None, docs: String::new(), column: None }
    }
}

/// The owner of a struct's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StructOrigin {
    /// The script: C layout of its fields.
    Script,
    /// The compiler: C layout of its fields.
    Predeclared,
    /// The compiler, for the keys of a map of maps: the key of the outer map and that of the inner one, each filled up with
    /// zeros to a multiple of 8 bytes, as the contract has them.
    NestedKey,
    /// A context of a program, only ever a pointee: `builtins` has the offsets of its members.
    Context,
    /// The kernel, only ever a pointee: BTF has the offsets of its members. The fields are those that the
    /// script declares or uses.
    Kernel,
}

/// A struct and its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructDef {
    /// The name of the struct.
    pub name: String,
    /// The fields in order of declaration.
    pub fields: Vec<Field>,
    /// The owner of the layout.
    pub origin: StructOrigin,
}

impl StructDef {
    /// Returns the position of a field; none for an unknown name.
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }
}

/// An enum and its enumerators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumDef {
    /// The name of the enum.
    pub name: String,
    /// 32 bits, or 64 if a value needs it; signed if an enumerator is negative.
    pub repr: IntType,
    /// Names and values (as bits of [`EnumDef::repr`]) in order.
    pub enumerators: Vec<(String, u64)>,
}

/// The name of the predeclared struct of statistics.
pub const STATS: &str = "stats";

/// Types that need no table, created first in this order.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names are the language's")]
pub struct Common {
    pub void: TypeId,
    pub bool: TypeId,
    pub char: TypeId,
    pub u8: TypeId,
    pub u16: TypeId,
    pub u32: TypeId,
    pub u64: TypeId,
    pub i8: TypeId,
    pub i16: TypeId,
    pub i32: TypeId,
    pub i64: TypeId,
    pub program: TypeId,
    pub null: TypeId,
    pub error: TypeId,
}

/// The table of all types of one compilation.
#[derive(Debug, Clone)]
pub struct Types {
    kinds: IndexVec<TypeId, TypeKind>,
    ids: FastMap<TypeKind, TypeId>,
    structs: IndexVec<StructId, StructDef>,
    enums: IndexVec<EnumId, EnumDef>,
    /// Size and alignment in bytes of the sealed structs.
    layouts: FastMap<StructId, (u64, u64)>,
    common: Common,
}

impl Default for Types {
    fn default() -> Self {
        Types::new()
    }
}

impl Types {
    /// Creates a table with the [`Common`] types.
    pub fn new() -> Types {
        let mut kinds = IndexVec::new();
        let mut ids = FastMap::default();
        let mut add = |kind: TypeKind| {
            let id = kinds.push(kind.clone());
            ids.insert(kind, id);
            id
        };
        let int = |bits, signed| TypeKind::Int(IntType { bits, signed });
        let common = Common {
            void: add(TypeKind::Void),
            bool: add(TypeKind::Bool),
            char: add(TypeKind::Char),
            u8: add(int(8, false)),
            u16: add(int(16, false)),
            u32: add(int(32, false)),
            u64: add(int(64, false)),
            i8: add(int(8, true)),
            i16: add(int(16, true)),
            i32: add(int(32, true)),
            i64: add(int(64, true)),
            program: add(TypeKind::Program),
            null: add(TypeKind::Null),
            error: add(TypeKind::Error),
        };
        Types {
            kinds,
            ids,
            structs: IndexVec::new(),
            enums: IndexVec::new(),
            layouts: FastMap::default(),
            common,
        }
    }

    /// Returns the types that need no table.
    pub fn common(&self) -> Common {
        self.common
    }

    /// Returns the id of a type, which is created on first use.
    pub fn intern(&mut self, kind: TypeKind) -> TypeId {
        if let Some(id) = self.ids.get(&kind) {
            return *id;
        }
        let id = self.kinds.push(kind.clone());
        self.ids.insert(kind, id);
        id
    }

    /// Returns the kind of a type.
    pub fn kind(&self, id: TypeId) -> &TypeKind {
        &self.kinds[id]
    }

    /// Adds a struct. Its fields may be set later with [`Types::struct_mut`].
    pub fn add_struct(&mut self, def: StructDef) -> StructId {
        self.structs.push(def)
    }

    /// Returns a struct by its id.
    pub fn struct_def(&self, id: StructId) -> &StructDef {
        &self.structs[id]
    }

    /// Whether one of the structs belongs to the kernel.
    pub fn has_kernel_structs(&self) -> bool {
        self.structs.iter().any(|def| def.origin == StructOrigin::Kernel)
    }

    /// Returns a struct whose fields are to be set.
    pub fn struct_mut(&mut self, id: StructId) -> &mut StructDef {
        self.layouts.remove(&id);
        &mut self.structs[id]
    }

    /// Returns the struct if a type is that of statistics, `stats`.
    pub fn stats(&self, id: TypeId) -> Option<StructId> {
        let TypeKind::Struct(def) = *self.kind(id) else { return None };
        self.is_stats(def).then_some(def)
    }

    /// Whether a struct is that of statistics.
    pub fn is_stats(&self, id: StructId) -> bool {
        let def = self.struct_def(id);
        def.origin == StructOrigin::Predeclared && def.name == STATS
    }

    /// Adds an enum and returns its id.
    pub fn add_enum(&mut self, def: EnumDef) -> EnumId {
        self.enums.push(def)
    }

    /// Returns an enum by its id.
    pub fn enum_def(&self, id: EnumId) -> &EnumDef {
        &self.enums[id]
    }

    /// Returns the type of a struct.
    pub fn struct_type(&mut self, id: StructId) -> TypeId {
        self.intern(TypeKind::Struct(id))
    }

    /// Returns the type `str(size)`; `size` includes the terminator.
    pub fn str_type(&mut self, size: u32) -> TypeId {
        self.intern(TypeKind::Str(size))
    }

    /// Returns the integer that represents a scalar: itself, an enum's integer, one byte for bool and char,
    /// 64 bits for a pointer, 32 for a program handle. `None` for other types.
    pub fn scalar(&self, id: TypeId) -> Option<IntType> {
        match self.kind(id) {
            TypeKind::Int(int) => Some(*int),
            TypeKind::Enum(def) => Some(self.enum_def(*def).repr),
            TypeKind::Bool | TypeKind::Char => Some(IntType { bits: 8, signed: false }),
            TypeKind::Ptr(_) | TypeKind::Fn(..) | TypeKind::Null => Some(IntType { bits: 64, signed: false }),
            TypeKind::Program => Some(IntType { bits: 32, signed: false }),
            _ => None,
        }
    }

    /// Returns an integer type; `None` for an enum.
    pub fn int(&self, id: TypeId) -> Option<IntType> {
        match self.kind(id) {
            TypeKind::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// Returns the struct if a type is a struct of the kernel.
    pub fn kernel_struct(&self, id: TypeId) -> Option<StructId> {
        let TypeKind::Struct(def) = *self.kind(id) else { return None };
        (self.struct_def(def).origin == StructOrigin::Kernel).then_some(def)
    }

    /// Whether a type is a pointer to a program's context.
    pub fn is_context_pointer(&self, id: TypeId) -> bool {
        let TypeKind::Ptr(to) = self.kind(id) else { return false };
        let TypeKind::Struct(def) = self.kind(*to) else { return false };
        let def = self.struct_def(*def);
        // The record of a tracepoint is a struct of the kernel.
        def.origin == StructOrigin::Context
            || (def.origin == StructOrigin::Kernel && def.name.starts_with("trace_event_raw_"))
    }

    /// Returns the struct that a pointer points to.
    pub fn pointee_struct(&self, id: TypeId) -> Option<StructId> {
        let TypeKind::Ptr(to) = self.kind(id) else { return None };
        let TypeKind::Struct(def) = self.kind(*to) else { return None };
        Some(*def)
    }

    /// Whether a type is a struct in the kernel's memory: a context, or one of the kernel's.
    pub fn is_kernels_own(&self, id: TypeId) -> bool {
        match self.kind(id) {
            TypeKind::Struct(def) => {
                matches!(self.struct_def(*def).origin, StructOrigin::Context | StructOrigin::Kernel)
            }
            _ => false,
        }
    }

    /// Whether it is the type of an error that was already reported.
    pub fn is_error(&self, id: TypeId) -> bool {
        id == self.common.error
    }

    /// Returns the spelling of a type in a script.
    pub fn name(&self, id: TypeId) -> String {
        match self.kind(id) {
            TypeKind::Void => "void".into(),
            TypeKind::Bool => "bool".into(),
            TypeKind::Char => "char".into(),
            TypeKind::Int(int) => int.to_string(),
            TypeKind::Str(size) => format!("str({size})"),
            TypeKind::Array(element, len) => format!("{}[{len}]", self.name(*element)),
            TypeKind::Ptr(to) => format!("*{}", self.name(*to)),
            TypeKind::Fn(params, ret) => {
                let params: Vec<_> = params.iter().map(|param| self.name(*param)).collect();
                format!("fn({}) -> {}", params.join(", "), self.name(*ret))
            }
            TypeKind::Enum(def) => self.enum_def(*def).name.clone(),
            TypeKind::Struct(def) => self.struct_def(*def).name.clone(),
            TypeKind::Program => "program handle".into(),
            TypeKind::Null => "null".into(),
            TypeKind::Error => "unknown".into(),
        }
    }
}

//! Types: interned, so that equal types have equal ids; aliases are gone.
//!
//! Sizes, alignments and offsets are computed once, in `layout.rs`, for both halves. Not here: which conversions the
//! language allows (`check`).

mod layout;

use crate::id_type;
use crate::index::{FastMap, IndexVec};

id_type! {
    /// A type. Equal ids are equal types.
    TypeId,
    /// A struct, user's or predeclared.
    StructId,
    /// An enum, user's or predeclared.
    EnumId,
}

/// An integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntType {
    /// 8, 16, 32 or 64.
    pub bits: u8,
    /// Two's complement.
    pub signed: bool,
}

impl IntType {
    /// Size in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.bits / 8)
    }

    /// `bits` cut to this width, the other bits zero.
    pub fn truncate(self, bits: u64) -> u64 {
        if self.bits == 64 { bits } else { bits & ((1 << self.bits) - 1) }
    }

    /// The number that the low bits of `bits` mean in this type.
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

/// What a type is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// No value.
    Void,
    /// One byte, 0 or 1.
    Bool,
    /// One byte of text.
    Char,
    /// An integer.
    Int(IntType),
    /// N bytes: text of at most N-1 bytes, then zeros.
    Str(u32),
    /// So many elements, one behind the other.
    Array(TypeId, u64),
    /// A pointer. In the kernel half where it points is known by its origin.
    Ptr(TypeId),
    /// A function's type: parameters and result.
    Fn(Vec<TypeId>, TypeId),
    /// An enum: an integer of [`EnumDef::repr`].
    Enum(EnumId),
    /// A struct.
    Struct(StructId),
    /// What `load` gives. No spelling; 4 bytes, 0 is null.
    Program,
    /// The type of `null` until it meets another.
    Null,
    /// An error that was already reported; fits everything.
    Error,
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Its value where a literal or the command line gives none: as many bytes as the type has.
    pub default: Option<Vec<u8>>,
    /// The `///` lines above it; empty if there are none.
    pub docs: String,
}

/// Who lays a struct out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StructOrigin {
    /// The script: C layout of its fields.
    Script,
    /// The compiler: C layout of its fields.
    Predeclared,
    /// A context of a program, only ever behind a pointer: its members lie where `builtins` says.
    Context,
    /// The kernel, only ever behind a pointer: its members lie where BTF says. The fields are those that the script
    /// declares or uses.
    Kernel,
}

/// A struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructDef {
    /// Its name.
    pub name: String,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Who lays it out.
    pub origin: StructOrigin,
}

impl StructDef {
    /// The position of a field.
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }
}

/// An enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumDef {
    /// Its name.
    pub name: String,
    /// 32 bits, or 64 if a value needs it; signed if an enumerator is negative.
    pub repr: IntType,
    /// Names and values (as bits of [`EnumDef::repr`]) in order.
    pub enumerators: Vec<(String, u64)>,
}

/// Types that need no table: created first, in this order.
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

/// All types of one compilation.
#[derive(Debug, Clone)]
pub struct Types {
    kinds: IndexVec<TypeId, TypeKind>,
    ids: FastMap<TypeKind, TypeId>,
    structs: IndexVec<StructId, StructDef>,
    enums: IndexVec<EnumId, EnumDef>,
    /// Size and alignment of the structs that are sealed.
    layouts: FastMap<StructId, (u64, u64)>,
    common: Common,
}

impl Default for Types {
    fn default() -> Self {
        Types::new()
    }
}

impl Types {
    /// A table with the [`Common`] types.
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

    /// The types that need no table.
    pub fn common(&self) -> Common {
        self.common
    }

    /// The id of a type, made on first use.
    pub fn intern(&mut self, kind: TypeKind) -> TypeId {
        if let Some(id) = self.ids.get(&kind) {
            return *id;
        }
        let id = self.kinds.push(kind.clone());
        self.ids.insert(kind, id);
        id
    }

    /// What a type is.
    pub fn kind(&self, id: TypeId) -> &TypeKind {
        &self.kinds[id]
    }

    /// Adds a struct. Its fields may be set later with [`Types::struct_mut`].
    pub fn add_struct(&mut self, def: StructDef) -> StructId {
        self.structs.push(def)
    }

    /// A struct.
    pub fn struct_def(&self, id: StructId) -> &StructDef {
        &self.structs[id]
    }

    /// Whether one of the structs is the kernel's.
    pub fn has_kernel_structs(&self) -> bool {
        self.structs.iter().any(|def| def.origin == StructOrigin::Kernel)
    }

    /// A struct, to fill in its fields.
    pub fn struct_mut(&mut self, id: StructId) -> &mut StructDef {
        self.layouts.remove(&id);
        &mut self.structs[id]
    }

    /// Adds an enum.
    pub fn add_enum(&mut self, def: EnumDef) -> EnumId {
        self.enums.push(def)
    }

    /// An enum.
    pub fn enum_def(&self, id: EnumId) -> &EnumDef {
        &self.enums[id]
    }

    /// The type of a struct.
    pub fn struct_type(&mut self, id: StructId) -> TypeId {
        self.intern(TypeKind::Struct(id))
    }

    /// `str(size)`.
    pub fn str_type(&mut self, size: u32) -> TypeId {
        self.intern(TypeKind::Str(size))
    }

    /// The integer that a scalar is made of: itself, an enum's integer, one byte for bool and char, 64 bits for a
    /// pointer, 32 for a program handle. `None` for what is not a scalar.
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

    /// An integer type, not an enum.
    pub fn int(&self, id: TypeId) -> Option<IntType> {
        match self.kind(id) {
            TypeKind::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// Whether this is a pointer to a context of a program.
    pub fn is_context_pointer(&self, id: TypeId) -> bool {
        let TypeKind::Ptr(to) = self.kind(id) else { return false };
        let TypeKind::Struct(def) = self.kind(*to) else { return false };
        let def = self.struct_def(*def);
        // The record of a tracepoint is a struct of the kernel.
        def.origin == StructOrigin::Context
            || (def.origin == StructOrigin::Kernel && def.name.starts_with("trace_event_raw_"))
    }

    /// The struct that a pointer leads to.
    pub fn pointee_struct(&self, id: TypeId) -> Option<StructId> {
        let TypeKind::Ptr(to) = self.kind(id) else { return None };
        let TypeKind::Struct(def) = self.kind(*to) else { return None };
        Some(*def)
    }

    /// Whether this is a struct that lies where the kernel has it: a context, or one of the kernel's.
    pub fn is_kernels_own(&self, id: TypeId) -> bool {
        match self.kind(id) {
            TypeKind::Struct(def) => {
                matches!(self.struct_def(*def).origin, StructOrigin::Context | StructOrigin::Kernel)
            }
            _ => false,
        }
    }

    /// Whether this is a type already reported as wrong.
    pub fn is_error(&self, id: TypeId) -> bool {
        id == self.common.error
    }

    /// The spelling of a type in a script.
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

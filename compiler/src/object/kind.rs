//! `BTF_KIND_*` as numbers, which patterns can name.

use crate::btf::Kind;

pub const INT: u32 = Kind::Int as u32;
pub const PTR: u32 = Kind::Ptr as u32;
pub const ARRAY: u32 = Kind::Array as u32;
pub const STRUCT: u32 = Kind::Struct as u32;
pub const UNION: u32 = Kind::Union as u32;
pub const ENUM: u32 = Kind::Enum as u32;
pub const FWD: u32 = Kind::Fwd as u32;
pub const TYPEDEF: u32 = Kind::Typedef as u32;
pub const VOLATILE: u32 = Kind::Volatile as u32;
pub const CONST: u32 = Kind::Const as u32;
pub const RESTRICT: u32 = Kind::Restrict as u32;
pub const FUNC: u32 = Kind::Func as u32;
pub const FUNC_PROTO: u32 = Kind::FuncProto as u32;
pub const VAR: u32 = Kind::Var as u32;
pub const DATASEC: u32 = Kind::Datasec as u32;
pub const FLOAT: u32 = Kind::Float as u32;
pub const DECL_TAG: u32 = Kind::DeclTag as u32;
pub const TYPE_TAG: u32 = Kind::TypeTag as u32;
pub const ENUM64: u32 = Kind::Enum64 as u32;

//! `BTF_KIND_*` as constants for patterns.

use crate::object::btf::BtfKind;

pub const INT: u32 = BtfKind::Int as u32;
pub const PTR: u32 = BtfKind::Ptr as u32;
pub const ARRAY: u32 = BtfKind::Array as u32;
pub const STRUCT: u32 = BtfKind::Struct as u32;
pub const UNION: u32 = BtfKind::Union as u32;
pub const ENUM: u32 = BtfKind::Enum as u32;
pub const FWD: u32 = BtfKind::Fwd as u32;
pub const TYPEDEF: u32 = BtfKind::Typedef as u32;
pub const VOLATILE: u32 = BtfKind::Volatile as u32;
pub const CONST: u32 = BtfKind::Const as u32;
pub const RESTRICT: u32 = BtfKind::Restrict as u32;
pub const FUNC: u32 = BtfKind::Func as u32;
pub const FUNC_PROTO: u32 = BtfKind::FuncProto as u32;
pub const VAR: u32 = BtfKind::Var as u32;
pub const DATASEC: u32 = BtfKind::Datasec as u32;
pub const FLOAT: u32 = BtfKind::Float as u32;
pub const DECL_TAG: u32 = BtfKind::DeclTag as u32;
pub const TYPE_TAG: u32 = BtfKind::TypeTag as u32;
pub const ENUM64: u32 = BtfKind::Enum64 as u32;

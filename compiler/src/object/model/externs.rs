//! Symbols and settings of the kernel that an object refers to by name.

use super::super::name::Name;
use crate::object::btf::TypeId;

/// Behaviour if the kernel does not have a symbol or setting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Presence {
    /// Loading fails.
    Required,
    /// Address and value are 0; a call must not be reached.
    Optional,
}

/// A function or variable of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ksym {
    /// Name of the symbol.
    pub name: Name,
    /// Kind of symbol, with its type.
    pub kind: KsymKind,
    /// Behaviour if the kernel does not have it.
    pub presence: Presence,
}

/// Kind of a kernel symbol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KsymKind {
    /// A kfunc with this signature, which programs call.
    #[doc(alias = "kfunc")]
    Function(TypeId),
    /// A variable of this type, which programs read through its address.
    Variable(TypeId),
    /// A symbol without a type, of which only the address is used.
    Address,
}

/// A kernel setting: a line of the kernel's configuration (`CONFIG_HZ`), or a value that the loader supplies
/// (`LINUX_KERNEL_VERSION`, `LINUX_HAS_BPF_COOKIE`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kconfig {
    /// Name of the setting.
    pub name: Name,
    /// Type of the variable that receives it.
    pub ty: KconfigType,
    /// Behaviour if the kernel does not have it.
    pub presence: Presence,
}

/// Type of a kernel setting. Source: tools/lib/bpf/libbpf.c, `find_kcfg_type`, v1.7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KconfigType {
    /// `y` or `n`.
    Bool,
    /// `y`, `m` or `n`: `enum libbpf_tristate`.
    Tristate,
    /// A character, or a small number.
    Char {
        /// Whether the number is signed.
        signed: bool,
    },
    /// A number of 2, 4 or 8 bytes.
    Int {
        /// Size in bytes: 2, 4 or 8.
        bytes: u32,
        /// Whether the number is signed.
        signed: bool,
    },
    /// Text of a limited length.
    Text {
        /// Maximum size in bytes, with the final zero.
        bytes: u32,
    },
}

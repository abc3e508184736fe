//! What an object wants from the kernel by name.

use super::super::name::Name;
use crate::btf::TypeId;

/// What happens if the kernel does not have something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Presence {
    /// The object does not load.
    Required,
    /// Its address and value are 0; a call of it must not be reached.
    Optional,
}

/// A function or variable of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ksym {
    /// Its name.
    pub name: Name,
    /// What is known of it.
    pub kind: KsymKind,
    /// What happens without it.
    pub presence: Presence,
}

/// What is known of something of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KsymKind {
    /// A function with this signature: what programs call.
    #[doc(alias = "kfunc")]
    Function(TypeId),
    /// A variable of this type, which programs read through its address.
    Variable(TypeId),
    /// Only the address, as a number.
    Address,
}

/// A fact about the kernel: a line of its configuration (`CONFIG_HZ`), or what the loader knows of it
/// (`LINUX_KERNEL_VERSION`, `LINUX_HAS_BPF_COOKIE`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kconfig {
    /// Its name.
    pub name: Name,
    /// Its type.
    pub ty: KconfigType,
    /// What happens without it.
    pub presence: Presence,
}

/// The type of a fact about the kernel. Source: tools/lib/bpf/libbpf.c, `find_kcfg_type`, v1.7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KconfigType {
    /// `y` or not.
    Bool,
    /// `y`, `m` or not: `enum libbpf_tristate`.
    Tristate,
    /// A character, or a small number.
    Char {
        /// Whether it is a signed number.
        signed: bool,
    },
    /// A number of 2, 4 or 8 bytes.
    Int {
        /// Its size.
        bytes: u32,
        /// Whether it is signed.
        signed: bool,
    },
    /// Text of at most so many bytes, the final zero included.
    Text {
        /// Its size.
        bytes: u32,
    },
}

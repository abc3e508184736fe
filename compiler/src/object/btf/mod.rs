//! BTF, the kernel's type information: writing it for our objects, reading it from the kernel.
//!
//! ```text
//! types of a program  -> BtfBuilder -> .BTF      (types, strings)
//! lines, functions, \
//! CO-RE relocations  --> ext::write -> .BTF.ext  (per section and instruction offset; strings live in .BTF)
//! /sys/kernel/btf/vmlinux -> Btf::parse -> structs, members, functions, enumerators
//!                                 |  ^-- Btf::open_image <- file
//!                                 '----- Btf::to_image ----^
//! ```
//!
//! In: descriptions that are independent of scripts. Out: the same bytes for the same calls. The reader
//! accepts hostile bytes: it returns errors and never panics or loops. Of kernel modules (split BTF) only names
//! are read. Not here: floats, relocating.
//!
//! Sources: Documentation/bpf/btf.rst, include/uapi/linux/btf.h, kernel/bpf/btf.c (v6.12); libbpf v1.7 btf.c.

mod build;
pub(crate) mod ext;
mod image;
mod kind;
mod lookup;
mod names;
mod part;
mod read;
mod split;
mod table;

pub use build::{BtfBuilder, BtfError, DatasecEntry, Enumerator, FwdKind, IntEncoding, Member, Signedness};
pub use ext::{CoreRelo, CoreReloKind, Line};
pub use image::IMAGE_VERSION;
pub use kind::{BtfKind, FuncLinkage, VarLinkage};
pub use lookup::{BtfFunction, Field, LookupError};
pub use names::NamedEnumerator;
pub use part::PartError;
pub use read::{Btf, BtfReadError, DatasecEntries, Enumerators, Members, Params, Type};
pub use split::SplitBtf;

/// The id of a type in one BTF; 0 is `void`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TypeId(pub u32);

impl TypeId {
    /// The id of `void`.
    pub const VOID: TypeId = TypeId(0);
}

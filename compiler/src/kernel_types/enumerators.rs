//! Enumerators of the kernel's enums by name.

use super::KernelTypes;
use crate::object::btf::{NamedEnumerator, Signedness, Type};

/// An enumerator of an enum of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelEnumerator {
    /// Name of the enum; empty if it has none.
    pub owner: String,
    /// Value, in two's complement.
    pub value: i64,
    /// Size of the enum in bytes.
    pub bytes: u32,
    /// Whether the enum has values below zero.
    pub signed: bool,
}

impl KernelTypes {
    /// Returns the enumerator of a name; none without BTF, and if several enums give it different values.
    #[must_use]
    pub fn enumerator(&self, name: &str) -> Option<KernelEnumerator> {
        let btf = self.btf()?;
        let NamedEnumerator { owner, differs } = btf.find_enumerator(name)?;
        let Ok(Type::Enum { name: owner, bytes, sign, mut values }) = btf.get(owner) else { return None };
        let found = values.find_map(|one| one.ok().filter(|one| one.name == name))?;
        (!differs).then(|| KernelEnumerator {
            owner: owner.to_owned(),
            value: found.value,
            bytes,
            signed: sign == Signedness::Signed,
        })
    }

    /// Returns whether this is the name of an enum, or of an enumerator that [`enumerator`](Self::enumerator) finds.
    #[must_use]
    pub fn has_enum_of(&self, name: &str) -> bool {
        self.btf().is_some_and(|btf| btf.find_named_enum(name).is_some()) || self.enumerator(name).is_some()
    }
}

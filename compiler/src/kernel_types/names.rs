//! Suggestions for misspelled names, from the 60,000 of a kernel.

use super::{KernelTypes, struct_ops};
use crate::diag::nears;
use crate::object::btf::BtfKind;

/// Returns the names nearest to `wanted`, nearest first.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    nears(wanted, names).into_iter().map(str::to_owned).collect()
}

impl KernelTypes {
    /// Returns functions with a similar name.
    #[must_use]
    pub fn near_functions(&self, name: &str) -> Vec<String> {
        nearest(name, self.names(BtfKind::Func))
    }

    /// Returns structs with a similar name.
    #[must_use]
    pub fn near_structures(&self, name: &str) -> Vec<String> {
        nearest(name, self.names(BtfKind::Struct))
    }

    /// Returns LSM hooks with a similar name, for `@lsm` (11.8).
    #[must_use]
    pub fn near_lsm_hooks(&self, name: &str) -> Vec<String> {
        nearest(name, self.names(BtfKind::Func).filter_map(|name| name.strip_prefix("bpf_lsm_")))
    }

    /// Returns struct_ops types with a similar name (4.9).
    #[must_use]
    pub fn near_struct_ops(&self, name: &str) -> Vec<String> {
        let all = self.struct_ops_names();
        nearest(name, all.iter().map(String::as_str))
    }

    /// Returns all struct_ops types of this kernel, by name.
    #[must_use]
    pub fn struct_ops_names(&self) -> Vec<String> {
        let Some(btf) = self.btf() else {
            return struct_ops::BUNDLED.iter().map(|(name, _)| (*name).to_owned()).collect();
        };
        let wrapped = self.names(BtfKind::Struct).filter_map(|name| name.strip_prefix("bpf_struct_ops_"));
        let mut names: Vec<_> =
            wrapped.filter(|name| struct_ops::is_registrable(btf, name)).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Returns the names of all types of a kind; none without BTF.
    pub(super) fn names(&self, kind: BtfKind) -> impl Iterator<Item = &str> {
        self.btf().into_iter().flat_map(move |btf| btf.named(kind).map(|(_, name)| name))
    }
}

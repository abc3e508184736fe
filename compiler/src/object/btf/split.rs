//! BTF of kernel modules (split BTF): types whose ids and strings continue those of the kernel.
//!
//! Source: tools/lib/bpf/btf.c, `btf_new_empty` and `btf__type_by_id`, v1.7.

use super::read::{Btf, BtfReadError};
use super::{BtfKind, TypeId};

/// The types that a module adds to those of the kernel. Only names and kinds are read.
#[derive(Debug)]
pub struct SplitBtf<'base> {
    own: Btf,
    base: &'base Btf,
}

impl<'base> SplitBtf<'base> {
    /// Parses the header and finds the records; `base` are the kernel's types.
    ///
    /// # Errors
    /// As [`Btf::parse`].
    pub fn parse(bytes: impl Into<Vec<u8>>, base: &'base Btf) -> Result<SplitBtf<'base>, BtfReadError> {
        Ok(SplitBtf { own: Btf::parse_split(bytes.into())?, base })
    }

    /// Returns name and kind of one of the module's own types; none for those of the kernel, and for ids without
    /// a type. The name may be a string that the kernel has, too.
    #[must_use]
    pub fn name_and_kind(&self, id: TypeId) -> Option<(&str, BtfKind)> {
        let own = TypeId(id.0.checked_sub(self.base.len())?);
        let (name, kind) = self.own.name_and_kind(own)?;
        let name = match name.checked_sub(self.base.string_len()) {
            Some(name) => self.own.string(name),
            None => self.base.string(name),
        };
        Some((name.ok()?, kind?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BtfBuilder, FuncLinkage};
    use super::*;

    fn base() -> Btf {
        let mut builder = BtfBuilder::new();
        let proto = builder.func_proto(TypeId::VOID, &[]);
        builder.func("of_kernel", proto, FuncLinkage::Static);
        Btf::parse(builder.finish().expect("it is small")).expect("it is sound")
    }

    /// Returns the BTF of a module with one function, whose strings begin without an empty one.
    fn module(base: &Btf, name: &str) -> Vec<u8> {
        let strings = [name.as_bytes(), &[0]].concat();
        let mut bytes = Vec::new();
        let words = |bytes: &mut Vec<u8>, words: &[u32]| {
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        };
        // The header; a function (kind 12) with the signature of the kernel's, type 1.
        words(&mut bytes, &[0x0001_eb9f, 24, 0, 12, 12, strings.len() as u32]);
        words(&mut bytes, &[base.string_len(), 12 << 24, 1]);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn ids_and_strings_continue_those_of_the_kernel() {
        let base = base();
        let split = SplitBtf::parse(module(&base, "of_module"), &base).expect("it is sound");
        let first = base.len() + 1;
        assert_eq!(split.name_and_kind(TypeId(first)), Some(("of_module", BtfKind::Func)));
        // A name that is among the kernel's strings: the function's of the kernel.
        let mut named_alike = module(&base, "of_module");
        let Some((of_kernel, _)) = base.name_and_kind(TypeId(base.len())) else { panic!("it has a name") };
        named_alike[24..28].copy_from_slice(&of_kernel.to_le_bytes());
        let alike = SplitBtf::parse(named_alike, &base).expect("it is sound");
        assert_eq!(alike.name_and_kind(TypeId(first)), Some(("of_kernel", BtfKind::Func)));
        for id in [0, 1, base.len(), first + 1, u32::MAX] {
            assert_eq!(split.name_and_kind(TypeId(id)), None, "{id}");
        }
        assert!(Btf::parse(module(&base, "of_module")).is_err(), "its strings continue others");
        assert!(SplitBtf::parse(vec![0; 10], &base).is_err());
    }
}

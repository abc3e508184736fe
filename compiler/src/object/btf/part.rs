//! A part of a BTF: some types and what lies within them, for who relocates accesses to a few types of a kernel and would
//! otherwise read all.
//!
//! Pointers lead nowhere, and modifiers and the typedefs of members are left out: relocations look through both. Source:
//! tools/lib/bpf/relo_core.c, `bpf_core_match_member` and `bpf_core_fields_are_compat`, v1.7.

use super::build::{BtfBuilder, BtfError};
use super::lookup::LookupError;
use super::read::{Btf, BtfReadError, Members, Type};
use super::{Enumerator, Member, TypeId};
use crate::index::FastMap;

/// Maximum nesting of types within types. Those of real kernels stay below twenty.
const MAX_NESTING: usize = 64;

/// Reasons why a part cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartError {
    /// A type that cannot be read.
    #[error(transparent)]
    Read(#[from] BtfReadError),
    /// A type that contains itself.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A type that no record of a struct describes.
    #[error("type {} cannot be part of a struct", _0.0)]
    NotData(TypeId),
    /// More than the format holds.
    #[error(transparent)]
    Write(#[from] BtfError),
}

impl Btf {
    /// Returns BTF of these types, each a struct, union, enum or a typedef of one, with what lies within them.
    ///
    /// # Errors
    /// Types that cannot be read, are no data, or contain themselves.
    pub fn part(&self, roots: &[TypeId]) -> Result<Vec<u8>, PartError> {
        let mut part = Part { whole: self, builder: BtfBuilder::new(), done: FastMap::default() };
        for &root in roots {
            let ty = part.of(root, 0)?;
            if let Type::Typedef { name, .. } = self.get(root)? {
                part.builder.typedef(name, ty);
            }
        }
        Ok(part.builder.finish()?)
    }
}

struct Part<'a> {
    whole: &'a Btf,
    builder: BtfBuilder,
    /// The types that are there, by their ids in the whole.
    done: FastMap<TypeId, TypeId>,
}

impl<'a> Part<'a> {
    fn of(&mut self, id: TypeId, nesting: usize) -> Result<TypeId, PartError> {
        let id = self.whole.resolve(id)?;
        if let Some(done) = self.done.get(&id) {
            return Ok(*done);
        }
        if nesting > MAX_NESTING {
            return Err(LookupError::TooDeep(id).into());
        }
        let made = match self.whole.get(id)? {
            Type::Int { name, bytes, encoding } => self.builder.int(name, bytes, encoding),
            Type::Ptr(_) => self.builder.ptr(TypeId::VOID),
            Type::Array { element, len } => {
                let element = self.of(element, nesting + 1)?;
                self.builder.array(element, len)
            }
            Type::Struct { name, bytes, members } => {
                let members = self.members(members, nesting)?;
                self.builder.structure(name, bytes, &members)
            }
            Type::Union { name, bytes, members } => {
                let members = self.members(members, nesting)?;
                self.builder.union(name, bytes, &members)
            }
            Type::Enum { name, bytes, sign, values } => {
                let values: Result<Vec<Enumerator<'_>>, BtfReadError> = values.collect();
                self.builder.enumeration(name, bytes, sign, &values?)
            }
            _ => return Err(PartError::NotData(id)),
        };
        self.done.insert(id, made);
        Ok(made)
    }

    fn members(&mut self, members: Members<'a>, nesting: usize) -> Result<Vec<Member<'a>>, PartError> {
        members
            .map(|member| {
                let member = member?;
                Ok(Member { ty: self.of(member.ty, nesting + 1)?, ..member })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BtfKind, IntEncoding};
    use super::*;

    /// `struct inner { u32 low : 4; u32 high : 28; }`, `struct outer { struct outer *next; const inner_t list[3]; }`.
    fn types() -> Btf {
        let mut builder = BtfBuilder::new();
        let word = builder.int("u32", 4, IntEncoding::Unsigned);
        builder.structure("other", 4, &[Member::at("word", word, 0)]);
        let low = Member { name: "low", ty: word, bit_offset: 0, bitfield_bits: 4 };
        let high = Member { name: "high", ty: word, bit_offset: 4, bitfield_bits: 28 };
        let inner = builder.structure("inner", 4, &[low, high]);
        let alias = builder.typedef("inner_t", inner);
        let alias = builder.constant(alias);
        let list = builder.array(alias, 3);
        let outer = builder.declare_struct("outer");
        let next = builder.ptr(outer);
        builder.define_struct(outer, 24, &[Member::at("next", next, 0), Member::at("list", list, 8)]);
        Btf::parse(builder.finish().expect("it is small")).expect("it is sound")
    }

    #[test]
    fn a_part_has_a_type_and_what_lies_within_it() {
        let whole = types();
        let outer = whole.find_struct("outer").expect("it is there");
        let part = Btf::parse(whole.part(&[outer]).expect("it is data")).expect("it is sound");
        let found = part.find_struct("outer").expect("it is there");
        assert_eq!(part.field(found, "list").expect("readable").expect("there").bit_offset, 64);
        let inner = part.find_struct("inner").expect("it is there");
        let high = part.field(inner, "high").expect("readable").expect("there");
        assert_eq!((high.bit_offset, high.bitfield_bits), (4, 28));
        assert_eq!((part.find_struct("other"), part.find("inner_t", BtfKind::Typedef)), (None, None));
    }

    #[test]
    fn a_typedef_that_is_asked_for_stays() {
        let whole = types();
        let alias = whole.find("inner_t", BtfKind::Typedef).expect("it is there");
        let part = Btf::parse(whole.part(&[alias]).expect("it is data")).expect("it is sound");
        assert!(part.find("inner_t", BtfKind::Typedef).is_some());
    }

    #[test]
    fn what_is_no_data_is_no_part() {
        let mut builder = BtfBuilder::new();
        let nothing = builder.func_proto(TypeId::VOID, &[]);
        let whole = Btf::parse(builder.finish().expect("it is small")).expect("it is sound");
        assert_eq!(whole.part(&[nothing]), Err(PartError::NotData(nothing)));
    }
}

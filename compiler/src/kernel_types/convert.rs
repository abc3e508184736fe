//! Conversion of BTF records to [`KernelType`]. Every traversal is bounded: hostile types may contain
//! themselves.

use super::types::{BitField, KernelType, Member, Param, Pointee, Proto, Spelling};
use crate::object::btf::{Btf, BtfKind, IntEncoding, Members, Signedness, Type, TypeId};

/// Maximum chain of typedefs and modifiers, maximum nesting of arrays and anonymous members.
const MAX_DEPTH: usize = 32;
/// Maximum number of members of one struct, with anonymous ones expanded: the largest of a kernel has about
/// 300.
const MAX_MEMBERS: usize = 20_000;

/// A type without its typedefs and modifiers, and the name that they gave it.
struct UnderlyingType<'a> {
    ty: Type<'a>,
    /// Innermost typedef: the name of a struct that is itself anonymous.
    typedef: &'a str,
    /// Whether one of the typedefs was `size_t`.
    size_t: bool,
}

fn underlying_type(btf: &Btf, id: TypeId) -> Option<UnderlyingType<'_>> {
    let mut found = UnderlyingType { ty: Type::Void, typedef: "", size_t: false };
    let mut current = id;
    for _ in 0..MAX_DEPTH {
        match btf.get(current).ok()? {
            Type::Typedef { name, ty } => {
                found.typedef = name;
                found.size_t |= name == "size_t";
                current = ty;
            }
            Type::Modifier(ty) => current = ty,
            ty => return Some(UnderlyingType { ty, ..found }),
        }
    }
    None
}

/// Returns the type of an id; [`KernelType::Unknown`] if its records cannot be read.
pub(super) fn kernel_type(btf: &Btf, id: TypeId) -> KernelType {
    nested_type(btf, id, 0)
}

fn nested_type(btf: &Btf, id: TypeId, depth: usize) -> KernelType {
    let Some(UnderlyingType { ty, typedef, size_t }) = underlying_type(btf, id) else {
        return KernelType::Unknown;
    };
    let named = |name: &str| if name.is_empty() { typedef.to_owned() } else { name.to_owned() };
    match ty {
        Type::Void => KernelType::Void,
        Type::Int { encoding: IntEncoding::Bool, .. } => KernelType::Bool,
        Type::Int { name, bytes, encoding } => {
            let spelling = match name {
                _ if size_t => Spelling::Size,
                "char" => Spelling::Char,
                _ => Spelling::Number,
            };
            // A plain `char` is written `i8` (9.3), whatever its signedness on the architecture.
            let signed = encoding == IntEncoding::Signed || spelling == Spelling::Char;
            KernelType::Int { bytes, signed, spelling }
        }
        Type::Ptr(to) => KernelType::Pointer(pointee(btf, to, depth)),
        Type::Array { element, len } if depth < MAX_DEPTH => {
            KernelType::Array { element: Box::new(nested_type(btf, element, depth + 1)), len }
        }
        Type::Struct { name, bytes, .. } => KernelType::Struct { name: named(name), bytes },
        Type::Union { name, bytes, .. } => KernelType::Union { name: named(name), bytes },
        Type::Enum { name, bytes, sign, .. } => {
            KernelType::Enum { name: named(name), bytes, signed: sign == Signedness::Signed }
        }
        Type::FuncProto { .. } => KernelType::Function,
        _ => KernelType::Unknown,
    }
}

fn pointee(btf: &Btf, id: TypeId, depth: usize) -> Pointee {
    let Some(UnderlyingType { ty, typedef, .. }) = underlying_type(btf, id) else { return Pointee::Other };
    match ty {
        Type::Void => Pointee::Void,
        Type::Int { name: "char", .. } => Pointee::Char,
        Type::Int { bytes, encoding, .. } => Pointee::Int { bytes, signed: encoding == IntEncoding::Signed },
        Type::Enum { bytes, sign, .. } => Pointee::Int { bytes, signed: sign == Signedness::Signed },
        Type::Struct { name, .. } | Type::Union { name, .. } | Type::Fwd { name, .. } => {
            match if name.is_empty() { typedef } else { name } {
                "" => Pointee::Other,
                name => Pointee::Struct(name.to_owned()),
            }
        }
        Type::FuncProto { .. } => Pointee::Function,
        Type::Ptr(to) if depth < MAX_DEPTH => Pointee::Pointer(Box::new(pointee(btf, to, depth + 1))),
        Type::Array { element, len } if len > 0 && depth < MAX_DEPTH => {
            Pointee::Array { element: Box::new(nested_type(btf, element, depth + 1)), len }
        }
        _ => Pointee::Other,
    }
}

/// Returns the signature of a `FUNC_PROTO`, through typedefs and one pointer; none if the type is not a
/// function.
pub(super) fn proto(btf: &Btf, id: TypeId) -> Option<Proto> {
    let (result, params) = raw_proto(btf, id)?;
    let mut proto = Proto { params: Vec::new(), result: kernel_type(btf, result), variadic: false };
    for (name, ty) in params {
        if name.is_empty() && ty == TypeId::VOID {
            proto.variadic = true;
            continue;
        }
        let name = if name.is_empty() { format!("arg{}", proto.params.len()) } else { name.to_owned() };
        proto.params.push(Param { name, ty: kernel_type(btf, ty) });
    }
    Some(proto)
}

/// Returns result and parameters of a `FUNC`, a `FUNC_PROTO` or a pointer to one, as ids.
pub(super) fn raw_proto(btf: &Btf, id: TypeId) -> Option<(TypeId, Vec<(&str, TypeId)>)> {
    let mut current = id;
    // FUNC -> FUNC_PROTO, or typedef -> pointer -> FUNC_PROTO.
    for _ in 0..3 {
        match underlying_type(btf, current)?.ty {
            Type::Ptr(to) => current = to,
            Type::Func { proto, .. } => current = proto,
            Type::FuncProto { result, params } => {
                return Some((result, params.collect::<Result<_, _>>().ok()?));
            }
            _ => return None,
        }
    }
    None
}

/// Returns the struct or union with a name, which may be that of a typedef. One without either is the type of
/// a member, or of its elements, and is named by it: `in6_addr.in6_u`.
pub(super) fn find_composite(btf: &Btf, name: &str) -> Option<TypeId> {
    if let Some((owner, member)) = name.rsplit_once('.') {
        let field = btf.field(find_composite(btf, owner)?, member).ok()??;
        return composite_of_elements(btf, field.ty);
    }
    let tagged = btf.find_struct(name).or_else(|| btf.find(name, BtfKind::Union));
    tagged.or_else(|| {
        let id = btf.resolve(btf.find(name, BtfKind::Typedef)?).ok()?;
        matches!(btf.get(id), Ok(Type::Struct { .. } | Type::Union { .. })).then_some(id)
    })
}

/// Returns the struct or union that a type is, or an array of.
fn composite_of_elements(btf: &Btf, mut id: TypeId) -> Option<TypeId> {
    for _ in 0..MAX_DEPTH {
        id = btf.resolve(id).ok()?;
        match btf.get(id).ok()? {
            Type::Array { element, .. } => id = element,
            Type::Struct { .. } | Type::Union { .. } => return Some(id),
            _ => return None,
        }
    }
    None
}

/// Returns the type of a member: a struct or union without a name is named by the member.
pub(super) fn member_type(btf: &Btf, owner: &str, member: &str, id: TypeId) -> KernelType {
    let mut ty = kernel_type(btf, id);
    let mut element = &mut ty;
    while let KernelType::Array { element: inner, .. } = element {
        element = inner;
    }
    if let KernelType::Struct { name, .. } | KernelType::Union { name, .. } = element
        && name.is_empty()
    {
        *name = format!("{owner}.{member}");
    }
    ty
}

/// Returns whether a struct or union has only the name of a typedef.
pub(super) fn is_typedef(btf: &Btf, name: &str) -> bool {
    !name.contains('.')
        && btf.find_struct(name).is_none()
        && btf.find(name, BtfKind::Union).is_none()
        && find_composite(btf, name).is_some_and(|id| match btf.get(id) {
            Ok(Type::Struct { name, .. } | Type::Union { name, .. }) => name.is_empty(),
            _ => false,
        })
}

/// Returns the members of a struct or union with anonymous ones expanded, its size in bytes, and whether it
/// is a union.
pub(super) fn members(btf: &Btf, owner: &str, id: TypeId) -> Option<(Vec<Member>, u32, bool)> {
    let (members, bytes, is_union) = match btf.get(id).ok()? {
        Type::Struct { members, bytes, .. } => (members, bytes, false),
        Type::Union { members, bytes, .. } => (members, bytes, true),
        _ => return None,
    };
    let mut collector = MemberCollector { btf, owner, found: Vec::new(), budget: MAX_MEMBERS };
    collector.members(members, Enclosing { base: 0, in_union: false, depth: 0 })?;
    Some((collector.found, bytes, is_union))
}

/// Returns whether one of the anonymous members that contain a member is a union.
pub(super) fn through_union(btf: &Btf, structure: &str, path: &[u32]) -> bool {
    let mut current = find_composite(btf, structure);
    for &index in path.split_last().map_or(path, |(_, outer)| outer) {
        let Some(UnderlyingType {
            ty: Type::Struct { mut members, .. } | Type::Union { mut members, .. },
            ..
        }) = current.and_then(|id| underlying_type(btf, id))
        else {
            return false;
        };
        let inner = members.nth(index as usize).and_then(Result::ok).map(|member| member.ty);
        if inner
            .and_then(|id| underlying_type(btf, id))
            .is_some_and(|inner| matches!(inner.ty, Type::Union { .. }))
        {
            return true;
        }
        current = inner;
    }
    false
}

/// The anonymous members around members.
#[derive(Clone, Copy)]
struct Enclosing {
    /// The first bit of the innermost one in the named struct or union.
    base: u32,
    /// Whether one of them is a union.
    in_union: bool,
    /// The number of them.
    depth: usize,
}

struct MemberCollector<'a> {
    btf: &'a Btf,
    /// The name of the struct or union.
    owner: &'a str,
    found: Vec<Member>,
    budget: usize,
}

impl MemberCollector<'_> {
    fn members(&mut self, members: Members<'_>, around: Enclosing) -> Option<()> {
        if around.depth > MAX_DEPTH {
            return None;
        }
        for member in members {
            self.budget = self.budget.checked_sub(1)?;
            let member = member.ok()?;
            let first_bit = around.base.checked_add(member.bit_offset)?;
            if member.name.is_empty() {
                let inner = Enclosing { base: first_bit, depth: around.depth + 1, ..around };
                match underlying_type(self.btf, member.ty).map(|found| found.ty) {
                    Some(Type::Struct { members, .. }) => self.members(members, inner)?,
                    Some(Type::Union { members, .. }) => {
                        self.members(members, Enclosing { in_union: true, ..inner })?;
                    }
                    // Padding: a bit-field without a name; or a member of a kind that is newer than this
                    // reader.
                    _ => {}
                }
                continue;
            }
            let bits = member.bitfield_bits;
            self.found.push(Member {
                name: member.name.to_owned(),
                ty: member_type(self.btf, self.owner, member.name, member.ty),
                offset: first_bit / 8,
                bitfield: (bits != 0).then_some(BitField { first_bit, bits }),
                in_union: around.in_union,
            });
        }
        Some(())
    }
}

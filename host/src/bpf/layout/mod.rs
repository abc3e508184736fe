//! Memory layouts of keys, values, variables and records, flattened to their scalars, from an object's BTF.
//!
//! In: the ELF file of an object, which is untrusted. Not here: whether a plugin's types agree with them.

mod btf;
#[cfg(test)]
mod tests;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _};

use btf::{Btf, BtfKind, Type};

/// Upper limit of members that a layout lists. Guards the memory of the plugin and the host against nested
/// arrays of structs.
const MAX_MEMBERS: usize = 1024;

/// Upper limit of visited types per layout. Guards the host's time against nested structs without scalars.
const MAX_STEPS: usize = 16 * MAX_MEMBERS;

/// Upper limit of nested types. In hostile BTF a type may contain itself.
const MAX_DEPTH: usize = 32;

/// The section that defines the maps, as variables.
const MAPS: &str = ".maps";

/// A type as a list of its scalars, in the order of the type's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The name in C syntax; empty for an anonymous type.
    pub name: String,
    /// Size in bytes, padding included.
    pub size: u32,
    /// The scalars, at most 1024.
    pub members: Vec<Member>,
}

/// A scalar within a type, or the first element of an array of scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The member's name, qualified by the members around it: `outer.inner`.
    pub path: String,
    /// Offset from the start of the type in bytes.
    pub offset: u32,
    /// Size of the scalar in bytes.
    pub size: u32,
    /// Interpretation of the bytes.
    pub kind: Scalar,
    /// Length and stride in bytes of each array around the scalar, the outermost first.
    pub arrays: Vec<(u32, u32)>,
}

/// Kind of a scalar; `wit/layouts.wit` describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "those of the contract")]
pub enum Scalar {
    Unsigned,
    Signed,
    Boolean,
    Character,
    Enumeration,
    Pointer,
    Opaque,
}

/// The type whose layout is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The keys of the map of this name.
    Key(&'a str),
    /// The values of the map of this name.
    Value(&'a str),
    /// The variable of this name.
    Variable(&'a str),
    /// The struct, union or typedef of this name.
    Type(&'a str),
}

/// Computes a layout from the BTF of an object. None if the subject is not in it or has no layout.
pub(super) fn of(elf: &[u8], subject: Subject<'_>) -> Option<Layout> {
    let file = ElfFile64::<LittleEndian>::parse(elf).ok()?;
    let btf = Btf::parse(file.section_by_name(".BTF")?.data().ok()?)?;
    let id = match subject {
        Subject::Key(map) => {
            let map = definition(&btf, map)?;
            if let Some(inner) = inner_map(&btf, map) {
                return of_both_keys(&btf, map, inner);
            }
            of_map(&btf, map, "key")?
        }
        Subject::Value(map) => {
            let map = definition(&btf, map)?;
            of_map(&btf, inner_map(&btf, map).unwrap_or(map), "value")?
        }
        Subject::Variable(name) => variable(&btf, name, |section| section != MAPS)?,
        Subject::Type(name) => {
            let is_named = |ty: Type<'_>| {
                matches!(ty.kind, BtfKind::Struct | BtfKind::Union | BtfKind::Typedef) && btf.name(ty) == name
            };
            btf.types().find(|(_, ty)| is_named(*ty))?.0
        }
    };
    let mut builder = LayoutBuilder { btf: &btf, members: Vec::new(), steps: 0 };
    builder.add(id, &mut MemberPosition::default())?;
    Some(Layout { name: name(&btf, id), size: size(&btf, id)?, members: builder.members })
}

/// Returns the type of a variable in one of the matching sections.
fn variable(btf: &Btf<'_>, name: &str, section: impl Fn(&str) -> bool) -> Option<u32> {
    let sections = btf.types().filter(|(_, ty)| ty.kind == BtfKind::Section && section(btf.name(*ty)));
    let found = sections.flat_map(|(_, ty)| btf.variables(ty)).find(|ty| btf.name(*ty) == name);
    found.map(Type::target)
}

/// Returns the struct that defines a map: a variable whose members point to its types (`__type(key, ..)` of libbpf's
/// bpf_helpers.h).
fn definition<'a>(btf: &Btf<'a>, map: &str) -> Option<Type<'a>> {
    Some(resolve(btf, variable(btf, map, |section| section == MAPS)?)?.1)
}

fn of_map(btf: &Btf<'_>, definition: Type<'_>, what: &str) -> Option<u32> {
    let pointer = btf.members(definition).find(|member| member.name == what)?;
    pointee(btf, pointer.ty)
}

fn pointee(btf: &Btf<'_>, id: u32) -> Option<u32> {
    let (_, pointer) = resolve(btf, id)?;
    (pointer.kind == BtfKind::Pointer).then(|| pointer.target())
}

/// Returns the struct that defines the inner maps of a map of maps (`__array(values, ..)` of libbpf's bpf_helpers.h).
fn inner_map<'a>(btf: &Btf<'a>, definition: Type<'_>) -> Option<Type<'a>> {
    let values = btf.members(definition).find(|member| member.name == "values")?;
    let (_, values) = resolve(btf, values.ty)?;
    let (element, _) = values.array()?;
    Some(resolve(btf, pointee(btf, element)?)?.1)
}

/// The key of a map of maps as plugins give it: `outer` and `inner`, each filled up to a multiple of 8 bytes.
fn of_both_keys(btf: &Btf<'_>, outer: Type<'_>, inner: Type<'_>) -> Option<Layout> {
    let mut builder = LayoutBuilder { btf, members: Vec::new(), steps: 0 };
    let mut end = 0_u32;
    for (name, map) in [("outer", outer), ("inner", inner)] {
        let id = of_map(btf, map, "key")?;
        builder
            .add(id, &mut MemberPosition { path: name.into(), offset: end, ..MemberPosition::default() })?;
        end = end.checked_add(size(btf, id)?.checked_next_multiple_of(8)?)?;
    }
    Some(Layout { name: String::new(), size: end, members: builder.members })
}

/// Resolves typedefs and modifiers.
fn resolve<'a>(btf: &Btf<'a>, mut id: u32) -> Option<(u32, Type<'a>)> {
    for _ in 0..MAX_DEPTH {
        let ty = btf.get(id)?;
        match ty.kind {
            BtfKind::Typedef | BtfKind::Modifier => id = ty.target(),
            _ => return Some((id, ty)),
        }
    }
    None
}

fn size(btf: &Btf<'_>, id: u32) -> Option<u32> {
    let (mut id, mut count) = (id, 1_u32);
    for _ in 0..MAX_DEPTH {
        let (_, ty) = resolve(btf, id)?;
        let one = match ty.kind {
            BtfKind::Int | BtfKind::Struct | BtfKind::Union | BtfKind::Enum | BtfKind::Float => ty.size(),
            BtfKind::Pointer => 8,
            BtfKind::Array => {
                let (element, len) = ty.array()?;
                count = count.checked_mul(len)?;
                id = element;
                continue;
            }
            BtfKind::Typedef | BtfKind::Modifier | BtfKind::Variable | BtfKind::Section | BtfKind::Other => {
                return None;
            }
        };
        return one.checked_mul(count);
    }
    None
}

/// Returns the name of a type in C syntax.
fn name(btf: &Btf<'_>, id: u32) -> String {
    let mut id = id;
    for _ in 0..MAX_DEPTH {
        let Some(ty) = btf.get(id) else { break };
        let prefix = match ty.kind {
            BtfKind::Modifier => {
                id = ty.target();
                continue;
            }
            BtfKind::Struct => "struct ",
            BtfKind::Union => "union ",
            BtfKind::Enum => "enum ",
            _ => "",
        };
        let own = btf.name(ty);
        return if own.is_empty() { String::new() } else { format!("{prefix}{own}") };
    }
    String::new()
}

/// Position of a type within the requested one.
#[derive(Debug, Clone, Default)]
struct MemberPosition {
    path: String,
    offset: u32,
    arrays: Vec<(u32, u32)>,
    depth: usize,
}

impl MemberPosition {
    /// Returns the position of a member of the struct at this position.
    fn member(&self, name: &str, bit: u32) -> Option<MemberPosition> {
        let path = match (self.path.as_str(), name) {
            ("", name) => name.to_owned(),
            (path, name) => format!("{path}.{name}"),
        };
        let offset = self.offset.checked_add(bit / 8)?;
        Some(MemberPosition { path, offset, arrays: self.arrays.clone(), depth: self.depth + 1 })
    }
}

struct LayoutBuilder<'a> {
    btf: &'a Btf<'a>,
    members: Vec<Member>,
    steps: usize,
}

impl LayoutBuilder<'_> {
    /// Appends the scalars of a type. None if the type has no layout in memory or exceeds a limit.
    fn add(&mut self, id: u32, position: &mut MemberPosition) -> Option<()> {
        let (id, ty) = resolve(self.btf, id)?;
        self.steps += 1;
        if position.depth > MAX_DEPTH || self.steps > MAX_STEPS {
            return None;
        }
        match ty.kind {
            BtfKind::Struct => self.add_struct(ty, position),
            BtfKind::Array => {
                let (element, len) = ty.array()?;
                position.arrays.push((len, size(self.btf, element)?));
                position.depth += 1;
                // A flexible array has no bytes.
                if len == 0 { Some(()) } else { self.add(element, position) }
            }
            _ => self.push(position, size(self.btf, id)?, scalar(self.btf, ty)?),
        }
    }

    fn add_struct(&mut self, ty: Type<'_>, position: &MemberPosition) -> Option<()> {
        let btf = self.btf;
        // Adjacent bit-fields are reported as one opaque member: the bytes that contain them.
        let mut fields: Option<(MemberPosition, u32)> = None;
        for member in btf.members(ty) {
            let end = member.bit.checked_add(member.bits)?;
            match &mut fields {
                Some((_, last)) if member.bits > 0 => *last = end,
                None if member.bits > 0 => fields = Some((position.member(member.name, member.bit)?, end)),
                _ => {
                    self.push_fields(fields.take(), position)?;
                    self.add_member(&member, position)?;
                }
            }
        }
        self.push_fields(fields, position)
    }

    fn add_member(&mut self, member: &btf::Member<'_>, position: &MemberPosition) -> Option<()> {
        let mut at = position.member(member.name, member.bit)?;
        let (_, ty) = resolve(self.btf, member.ty)?;
        if member.name.is_empty() && ty.kind == BtfKind::Struct {
            // Members of an anonymous struct belong to the namespace of the enclosing struct.
            at.path.clone_from(&position.path);
        }
        self.add(member.ty, &mut at)
    }

    /// Appends the bytes of adjacent bit-fields; `u32` is the end of the last one, in bits of the struct.
    fn push_fields(&mut self, fields: Option<(MemberPosition, u32)>, within: &MemberPosition) -> Option<()> {
        let Some((position, end)) = fields else { return Some(()) };
        let end = within.offset.checked_add(end.div_ceil(8))?;
        self.push(&position, end.checked_sub(position.offset)?, Scalar::Opaque)
    }

    fn push(&mut self, position: &MemberPosition, size: u32, kind: Scalar) -> Option<()> {
        if size == 0 {
            return Some(());
        }
        let MemberPosition { path, offset, arrays, .. } = position.clone();
        self.members.push(Member { path, offset, size, kind, arrays });
        (self.members.len() <= MAX_MEMBERS).then_some(())
    }
}

fn scalar(btf: &Btf<'_>, ty: Type<'_>) -> Option<Scalar> {
    match ty.kind {
        BtfKind::Int => {
            let int = ty.int()?;
            let is_whole = matches!(ty.size(), 1 | 2 | 4 | 8) && int.bits == ty.size() * 8;
            Some(match (is_whole, ty.size()) {
                (true, 1) if int.is_bool => Scalar::Boolean,
                (true, 1) if btf.name(ty) == "char" => Scalar::Character,
                (true, _) if int.is_signed => Scalar::Signed,
                (true, _) if !int.is_bool => Scalar::Unsigned,
                _ => Scalar::Opaque,
            })
        }
        BtfKind::Enum => Some(Scalar::Enumeration),
        BtfKind::Pointer => Some(Scalar::Pointer),
        BtfKind::Union | BtfKind::Float => Some(Scalar::Opaque),
        _ => None,
    }
}

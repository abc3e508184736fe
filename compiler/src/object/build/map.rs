//! BTF-defined maps: each is a variable of `.maps` whose struct type describes the map.
//!
//! Numbers are encoded as in libbpf's `bpf_helpers.h`: `__uint(max_entries, 16)` is a member `int
//! (*max_entries)[16]`, and `__type(key, T)` is a member `T *key`.

use super::{BuildError, to_u32};
use crate::bpf::FunctionRef;
use crate::object::btf::{BtfBuilder, DatasecEntry, IntEncoding, Member, TypeId, VarLinkage};

/// Type of a map's keys or values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapSide {
    /// The map has none (ring buffers).
    None,
    /// A type of the object's BTF.
    Type(TypeId),
    /// Only a size in bytes, for map kinds that the kernel rejects types for, such as stack traces.
    Bytes(u32),
}

/// Whether a map outlives the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pinning {
    /// The map is destroyed with the object.
    None,
    /// The loader pins the map under its name in its pin directory, and reuses an existing pin.
    #[doc(alias = "LIBBPF_PIN_BY_NAME")]
    ByName,
}

/// A map to be added to an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapDef {
    /// Name: a C identifier, unique in the object. The kernel shows its first 15 bytes.
    pub name: String,
    /// Map kind. Source: include/uapi/linux/bpf.h, `enum bpf_map_type` (1 is a hash, 2 an array).
    pub map_type: u32,
    /// Type of the keys.
    pub key: MapSide,
    /// Type of the values.
    pub value: MapSide,
    /// Maximum number of entries; the size in bytes of a ring buffer; 0 if the loader chooses.
    pub max_entries: u32,
    /// `BPF_F_*` flags of map creation.
    pub flags: u32,
    /// NUMA node of its memory; requires the flag BPF_F_NUMA_NODE.
    pub numa_node: Option<u32>,
    /// Whether the map outlives the object.
    pub pinning: Pinning,
    /// Initial values of an array of programs, which the loader stores in order.
    pub programs: Vec<FunctionRef>,
    /// The inner maps of a map of maps, by whose shape the verifier checks programs; its name is not used.
    pub inner: Option<Box<MapDef>>,
}

/// The final `.maps` section.
pub(super) struct Maps {
    /// Offset and size in bytes of each map's variable.
    pub placements: Vec<(u32, u32)>,
    pub bytes: u32,
}

const POINTER_BYTES: u32 = 8;

pub(super) fn lay_out(btf: &mut BtfBuilder, maps: &[MapDef]) -> Result<Maps, BuildError> {
    let mut placements = Vec::with_capacity(maps.len());
    let mut entries = Vec::with_capacity(maps.len());
    let mut end = 0u32;
    for map in maps {
        let (ty, bytes) = describe(btf, map)?;
        // The elements of the flexible last member follow the struct.
        let filled = to_u32(map.programs.len())?.checked_mul(POINTER_BYTES).ok_or(BuildError::TooLarge)?;
        let size = bytes.checked_add(filled).ok_or(BuildError::TooLarge)?;
        let var = btf.var(&map.name, ty, VarLinkage::Global);
        entries.push(DatasecEntry { var, offset: end, size });
        placements.push((end, size));
        end = end.checked_add(size).ok_or(BuildError::TooLarge)?;
    }
    if !entries.is_empty() {
        btf.datasec(".maps", end, &entries);
    }
    Ok(Maps { placements, bytes: end })
}

/// Returns the struct type of a map's variable, and its size.
fn describe(btf: &mut BtfBuilder, map: &MapDef) -> Result<(TypeId, u32), BuildError> {
    let mut members = vec![("type", number(btf, map.map_type))];
    members.extend(side(btf, map.key, "key", "key_size"));
    members.extend(side(btf, map.value, "value", "value_size"));
    let optional = [("max_entries", map.max_entries), ("map_flags", map.flags)];
    for (name, value) in optional {
        if value != 0 {
            members.push((name, number(btf, value)));
        }
    }
    if let Some(node) = map.numa_node {
        members.push(("numa_node", number(btf, node)));
    }
    if map.pinning == Pinning::ByName {
        members.push(("pinning", number(btf, LIBBPF_PIN_BY_NAME)));
    }
    let bytes = to_u32(members.len())? * POINTER_BYTES;
    if !map.programs.is_empty() {
        let proto = btf.func_proto(TypeId::VOID, &[]);
        let pointer = btf.ptr(proto);
        members.push(("values", btf.array(pointer, 0)));
    }
    if let Some(inner) = &map.inner {
        let (inner, _) = describe(btf, inner)?;
        let pointer = btf.ptr(inner);
        members.push(("values", btf.array(pointer, 0)));
    }
    let members: Vec<Member<'_>> = (0u32..)
        .zip(&members)
        .map(|(index, &(name, ty))| Member::at(name, ty, index * POINTER_BYTES))
        .collect();
    Ok((btf.structure("", bytes, &members), bytes))
}

/// Source: libbpf v1.7 libbpf.h, `enum libbpf_pin_type`.
const LIBBPF_PIN_BY_NAME: u32 = 1;

fn side(
    btf: &mut BtfBuilder,
    side: MapSide,
    by_type: &'static str,
    by_size: &'static str,
) -> Option<(&'static str, TypeId)> {
    match side {
        MapSide::None => None,
        MapSide::Type(ty) => Some((by_type, btf.ptr(ty))),
        MapSide::Bytes(bytes) => Some((by_size, number(btf, bytes))),
    }
}

/// Returns a pointer to an array of `value` integers.
fn number(btf: &mut BtfBuilder, value: u32) -> TypeId {
    let int = btf.int("int", 4, IntEncoding::Signed);
    let array = btf.array(int, value);
    btf.ptr(array)
}

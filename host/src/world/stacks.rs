//! Stack counts of the plugin's programs, read from its maps at the end of the run.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use ks_wit::manifest::{Holds, KeyPart, Manifest};

use crate::bpf::{BpfError, Cursor, CursorContent, Map, Object};
use crate::host_bytes::{Charge, HostBytes};
use crate::stacks::{CountedStack, CountedStacks, StackAddresses};

/// Size in bytes of a read of entries.
const AT_ONCE: usize = 1 << 20;

/// -EFAULT of bpf_get_stackid: there is no stack of this kind. Source: kernel/bpf/stackmap.c, v6.12.
pub(super) const NO_STACK: i64 = -14;

/// A map whose keys contain stack ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackMap {
    name: String,
    parts: Vec<KeyPart>,
}

/// A request for the stacks of a map at the end of the run.
#[derive(Debug, Clone)]
pub struct StackRequest {
    /// The map to read.
    pub map: StackMap,
    /// Receives the stacks or the error, once, if the plugin's object was loaded; otherwise it is only
    /// closed.
    pub to: Sender<Result<CountedStacks, String>>,
}

impl StackMap {
    /// Returns the maps that count stacks, according to the manifests. Their values are integers.
    pub fn all(manifests: &[Manifest]) -> Vec<StackMap> {
        let maps = manifests.iter().flat_map(|manifest| &manifest.maps);
        let counts = maps.filter(|map| !map.key_parts.is_empty() && is_integer(&map.value));
        counts.map(|map| StackMap { name: map.name.clone(), parts: map.key_parts.clone() }).collect()
    }

    /// Returns the map's name in the script.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the map, and the stacks that its keys refer to.
    ///
    /// # Errors
    /// If the object does not match the manifest, a system call fails, or the result exceeds the host's
    /// memory for the plugin.
    pub(super) fn read(
        &self,
        object: &mut Object,
        host_bytes: &HostBytes,
    ) -> Result<CountedStacks, BpfError> {
        let map = object.map(&self.name)?;
        let mut stacks = Stacks { object, known: BTreeMap::new(), charge: host_bytes.start() };
        let (key_size, value_size) = (map.shape().key_size as usize, map.shape().value_size as usize);
        let mut cursor = Cursor::new(Arc::clone(&map), CursorContent::KeysAndValues, host_bytes)?;
        let mut found: BTreeMap<CountedStack, u64> = BTreeMap::new();
        // In per-CPU kinds an entry has one value per possible CPU.
        let entry_size = key_size + value_size * map.slots();
        loop {
            let entries = cursor.next(AT_ONCE)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries.chunks_exact(entry_size) {
                let (key, values) = entry.split_at(key_size);
                let weight = values
                    .chunks_exact(value_size)
                    .fold(0, |sum: u64, value| sum.saturating_add(unsigned(value)));
                if weight > 0 {
                    let stack = stacks.of_key(key, &self.parts)?;
                    stacks.charge.grow(counted_bytes(&stack))?;
                    let sum = found.entry(stack).or_default();
                    *sum = sum.saturating_add(weight);
                }
            }
        }
        let stacks = found.into_iter().map(|(stack, weight)| CountedStack { weight, ..stack }).collect();
        Ok(CountedStacks { map: self.name.clone(), stacks })
    }
}

/// Cache of stacks that were read.
struct Stacks<'a> {
    object: &'a mut Object,
    known: BTreeMap<(String, i64), StackAddresses>,
    /// Charge for the cache and the counted stacks.
    charge: Charge,
}

impl Stacks<'_> {
    fn of_key(&mut self, key: &[u8], parts: &[KeyPart]) -> Result<CountedStack, BpfError> {
        let mut stacks = vec![CountedStack::default()];
        let mut kinds = Vec::new();
        for part in parts {
            let kind = discriminant(&part.holds);
            if has_two_stacks(parts) && stacks.len() == 1 && kinds.contains(&kind) {
                stacks.push(CountedStack::default());
            }
            kinds.push(kind);
            let stack = stacks.last_mut().expect("there is one");
            let start = part.offset as usize;
            let Some(bytes) = key.get(start..start.saturating_add(part.bytes as usize)) else {
                return Err(BpfError::Unsound(format!("its keys have no `{}`", part.name)));
            };
            let small = || i32::try_from(signed(bytes)).ok();
            match &part.holds {
                Holds::Process => stack.task.process = small(),
                Holds::Thread => stack.task.thread = small(),
                Holds::Cpu => stack.task.cpu = small(),
                Holds::Cgroup => stack.task.cgroup = Some(unsigned(bytes)),
                Holds::Command => stack.task.command = Some(text(bytes)),
                Holds::KernelStack { map } => stack.kernel = self.addresses(map, signed(bytes))?,
                Holds::ProcessStack { map } => {
                    let both = signed(bytes);
                    if both >= 0 {
                        stack.task.process = i32::try_from(both >> 32).ok();
                    }
                    // An errno has the same lower half.
                    stack.user = self.addresses(map, i64::from(both as i32))?;
                }
                Holds::UserStack { map } => stack.user = self.addresses(map, signed(bytes))?,
            }
        }
        let other = if stacks.len() == 2 { stacks.pop().map(Box::new) } else { None };
        let first = stacks.pop().unwrap_or_default();
        Ok(CountedStack { other, ..first })
    }

    fn addresses(&mut self, map: &str, id: i64) -> Result<StackAddresses, BpfError> {
        if id < 0 {
            return Ok(if id == NO_STACK { StackAddresses::None } else { StackAddresses::Lost });
        }
        let name = (map.to_owned(), id);
        if let Some(known) = self.known.get(&name) {
            return Ok(known.clone());
        }
        let found = addresses(self.object.map(map), u32::try_from(id).unwrap_or(u32::MAX))?;
        self.charge.grow(KNOWN_BYTES + name.0.len() as u64 + address_bytes(&found))?;
        self.known.insert(name, found.clone());
        Ok(found)
    }
}

/// Returns the stack that a map has under a number.
pub(super) fn addresses(map: Result<Arc<Map>, BpfError>, id: u32) -> Result<StackAddresses, BpfError> {
    Ok(match map?.lookup(&id.to_ne_bytes())? {
        Some(bytes) => {
            StackAddresses::Known(bytes.chunks_exact(8).map(unsigned).take_while(|one| *one != 0).collect())
        }
        None => StackAddresses::Lost,
    })
}

/// Whether a key has stacks of two tasks. The second one begins with the first part of a kind that there was before.
fn has_two_stacks(parts: &[KeyPart]) -> bool {
    let count = |is_wanted: fn(&Holds) -> bool| parts.iter().filter(|part| is_wanted(&part.holds)).count();
    count(|holds| matches!(holds, Holds::KernelStack { .. })) > 1
        || count(|holds| matches!(holds, Holds::UserStack { .. } | Holds::ProcessStack { .. })) > 1
}

/// Size in bytes of a stack in the host, in addition to its addresses and texts.
const KNOWN_BYTES: u64 = 128;

fn address_bytes(addresses: &StackAddresses) -> u64 {
    match addresses {
        StackAddresses::Known(all) => size_of_val(all.as_slice()) as u64,
        StackAddresses::None | StackAddresses::Lost => 0,
    }
}

/// Returns the size of a counted stack in the host in bytes.
fn counted_bytes(stack: &CountedStack) -> u64 {
    let command = stack.task.command.as_ref().map_or(0, String::len) as u64;
    size_of::<CountedStack>() as u64
        + KNOWN_BYTES
        + command
        + address_bytes(&stack.kernel)
        + address_bytes(&stack.user)
        + stack.other.as_deref().map_or(0, counted_bytes)
}

fn is_integer(ty: &str) -> bool {
    ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"].contains(&ty)
}

/// Decodes a little-endian integer of at most 8 bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(value)
}

/// Decodes a little-endian integer of at most 8 bytes, sign-extended.
fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned(bytes) << unused).cast_signed() >> unused
}

/// Decodes text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_sign_of_their_width() {
        assert_eq!(signed(&(-14_i32).to_le_bytes()), NO_STACK);
        assert_eq!(signed(&(-17_i64).to_le_bytes()), -17);
        assert_eq!(signed(&7_u32.to_le_bytes()), 7);
        assert_eq!(unsigned(&u32::MAX.to_le_bytes()), u64::from(u32::MAX));
    }

    #[test]
    fn text_ends_with_a_zero_or_where_it_ends() {
        assert_eq!((text(b"sh\0x").as_str(), text(b"full").as_str()), ("sh", "full"));
    }
}

//! Names by files: of processes that have ended, or do not have mapped any more what they had.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::{FrameKind, Frames, Place, in_file, named};
use crate::perf::{Identity, Mapping, Mappings};

/// Gives those that have no frames those of the file that was mapped there.
pub(super) fn by_mappings(
    symbolizer: &Symbolizer,
    mappings: &Mappings,
    pid: u32,
    places: &[Place],
    frames: &mut [Frames],
) {
    let Ok(pid) = i32::try_from(pid) else { return };
    let mut files: BTreeMap<&Path, Vec<(usize, &Mapping, u64)>> = BTreeMap::new();
    for (index, place) in places.iter().enumerate().filter(|(index, _)| frames[*index].is_empty()) {
        if let Some(mapping) = mappings.find(pid, place.inside()) {
            let offset = place.inside() - mapping.start + mapping.offset;
            files.entry(&mapping.path).or_default().push((index, mapping, offset));
        }
    }
    for (path, wanted) in files {
        // Of two files of one name that a process had, at most one is there now.
        let (known, others): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(_, mapping, _)| is_still(path, &mapping.identity));
        let offsets: Vec<u64> = known.iter().map(|(.., offset)| *offset).collect();
        let found = look_up(symbolizer, path, &offsets);
        for ((index, _, offset), found) in known.into_iter().zip(found) {
            let address = places[index].address;
            frames[index] = match found {
                Symbolized::Sym(symbol) => named(symbol, address, FrameKind::User),
                Symbolized::Unknown(_) => vec![Arc::new(in_file(path, None, offset, address))],
            };
        }
        for (index, mapping, offset) in others {
            let build_id = match &mapping.identity {
                Identity::BuildId(id) => Some(id.as_slice()),
                Identity::Inode { .. } => None,
            };
            frames[index] = vec![Arc::new(in_file(path, build_id, offset, places[index].address))];
        }
    }
}

/// What is known of offsets into a file, in their order.
fn look_up<'s>(symbolizer: &'s Symbolizer, path: &Path, offsets: &[u64]) -> Vec<Symbolized<'s>> {
    let source = |debug_syms| Source::Elf(Elf { debug_syms, ..Elf::new(path) });
    let input = || Input::FileOffset(offsets);
    // As for processes that live: what debuggers read may be of a kind that is not understood here.
    let found = symbolizer.symbolize(&source(true), input());
    let found = found.or_else(|_| symbolizer.symbolize(&source(false), input()));
    let unknown = || offsets.iter().map(|_| Symbolized::Unknown(blazesym::symbolize::Reason::MissingSyms));
    found.unwrap_or_else(|_| unknown().collect())
}

/// Whether the file of this name is the one that was mapped.
fn is_still(path: &Path, identity: &Identity) -> bool {
    match identity {
        Identity::BuildId(id) => read_elf_build_id(path)
            .is_ok_and(|found| found.is_some_and(|found| found.as_ref() == id.as_slice())),
        Identity::Inode { major, minor, inode } => std::fs::metadata(path).is_ok_and(|file| {
            let device = (nix::sys::stat::major(file.dev()), nix::sys::stat::minor(file.dev()));
            device == (u64::from(*major), u64::from(*minor)) && file.ino() == *inode
        }),
    }
}

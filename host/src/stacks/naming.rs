//! Addresses of stacks to frames: all addresses of one place are looked up at once.
//!
//! A process that lives is asked itself. What it does not have mapped any more, and all of one that has ended, is looked
//! for in what was written down of its mappings; there a file of the same name counts only if it is the same file.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use blazesym::Pid;
use blazesym::normalize::{Normalizer, UserMeta};
use blazesym::symbolize::{Reason, Sym, Symbolized, Symbolizer};

use super::{Addresses, CountedStack, Frame, FrameKind};
use crate::perf::Mappings;
use crate::symbols::{self, SymbolError};

/// The word of a stack that has neither part.
pub(super) const NO_STACK: &str = "[no stack]";
/// The word in the place of a stack that collided with another.
const LOST: &str = "[stack lost]";
/// The word of an address about which nothing is known.
const UNKNOWN: &str = "[unknown]";

/// An address, and whether a call returns to it: the call itself is what stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    address: u64,
    returns: bool,
}

impl Place {
    /// What is looked up.
    fn inside(self) -> u64 {
        self.address.wrapping_sub(u64::from(self.returns))
    }
}

/// The frames of one address, the outermost first: a function, and what is inlined into it there.
type Frames = Vec<Arc<Frame>>;

/// The names of functions, of the kernel and of processes.
#[derive(Default)]
pub struct Names {
    symbolizer: Option<Symbolizer>,
    /// By process; none: the kernel.
    known: BTreeMap<Option<u32>, BTreeMap<Place, Frames>>,
    /// What was mapped by processes that may have ended.
    mappings: Mappings,
    /// What could not be looked up, in words.
    warnings: BTreeSet<String>,
}

impl Names {
    /// Nothing is read yet. Of processes that have ended it is known what is written here.
    pub fn new(mappings: Mappings) -> Names {
        Names { mappings, ..Names::default() }
    }

    /// What could not be looked up, and what to do about it; each thing once.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().map(String::as_str)
    }

    /// Looks up the addresses of all these stacks.
    pub(super) fn prepare(&mut self, stacks: &[CountedStack]) {
        let mut wanted: BTreeMap<Option<u32>, BTreeSet<Place>> = BTreeMap::new();
        for stack in stacks {
            wanted.entry(None).or_default().extend(places(&stack.kernel));
            if let Some(process) = process(stack) {
                wanted.entry(Some(process)).or_default().extend(places(&stack.user));
            }
        }
        for (process, places) in wanted {
            let known = self.known.entry(process).or_default();
            let places: Vec<Place> = places.into_iter().filter(|place| !known.contains_key(place)).collect();
            if !places.is_empty() {
                let frames = self.look_up(process, &places);
                self.known.entry(process).or_default().extend(places.into_iter().zip(frames));
            }
        }
    }

    /// The frames of a stack, the outermost first.
    pub(super) fn frames(&self, stack: &CountedStack) -> Frames {
        let process = process(stack);
        let mut frames = Vec::new();
        self.part(&stack.user, process, process.is_some(), &mut frames);
        self.part(&stack.kernel, None, true, &mut frames);
        if frames.is_empty() {
            frames.push(Arc::new(Frame::note(NO_STACK)));
        }
        frames
    }

    fn part(&self, addresses: &Addresses, process: Option<u32>, has_names: bool, frames: &mut Frames) {
        if *addresses == Addresses::Lost {
            frames.push(Arc::new(Frame::note(LOST)));
        }
        let known = self.known.get(&process).filter(|_| has_names);
        let outermost_first: Vec<Place> = places(addresses).collect();
        for place in outermost_first.into_iter().rev() {
            match known.and_then(|known| known.get(&place)) {
                Some(found) => frames.extend(found.iter().cloned()),
                None => frames.push(Arc::new(unknown(place.address, FrameKind::User))),
            }
        }
        // A row of addresses without names says no more than one.
        frames.dedup_by(|next, last| next.function == UNKNOWN && last.function == UNKNOWN);
    }

    /// The frames of each place.
    fn look_up(&mut self, process: Option<u32>, places: &[Place]) -> Vec<Frames> {
        let symbolizer = self.symbolizer.get_or_insert_with(Symbolizer::new);
        let addresses: Vec<u64> = places.iter().map(|place| place.inside()).collect();
        let found = match process {
            None => symbols::kernel_frames(symbolizer, &addresses),
            Some(pid) => symbols::task_frames(symbolizer, pid, &addresses),
        };
        let found = found.unwrap_or_else(|error| {
            self.warnings.insert(error.to_string());
            Vec::new()
        });
        let is_hidden = |one: &Symbolized<'_>| matches!(one, Symbolized::Unknown(Reason::MissingSyms));
        if process.is_none() && !found.is_empty() && found.iter().all(is_hidden) {
            self.warnings.insert(SymbolError::Hidden.to_string());
        }
        let kind = if process.is_none() { FrameKind::Kernel } else { FrameKind::User };
        let mut frames: Vec<Frames> = found
            .into_iter()
            .zip(places)
            .map(|(found, place)| match found {
                Symbolized::Sym(symbol) if kind == FrameKind::User || !symbols::is_far(&symbol) => {
                    named(symbol, place.address, kind)
                }
                _ => Vec::new(),
            })
            .collect();
        frames.resize(places.len(), Vec::new());
        if let Some(pid) = process {
            by_files(pid, places, &mut frames);
            files::by_mappings(symbolizer, &self.mappings, pid, places, &mut frames);
        }
        for (frames, place) in frames.iter_mut().zip(places) {
            if frames.is_empty() {
                frames.push(Arc::new(unknown(place.address, kind)));
            }
        }
        frames
    }
}

/// Gives those that have no symbol the name of their file and the offset into it.
fn by_files(pid: u32, places: &[Place], frames: &mut [Frames]) {
    let mut missing: Vec<(usize, u64)> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        if frames[index].is_empty() {
            missing.push((index, place.inside()));
        }
    }
    missing.sort_by_key(|(_, address)| *address);
    let addresses: Vec<u64> = missing.iter().map(|(_, address)| *address).collect();
    let normalizer = Normalizer::builder().enable_build_ids(false).build();
    let Ok(output) = normalizer.normalize_user_addrs(Pid::from(pid), &addresses) else { return };
    for ((index, _), (offset, meta)) in missing.into_iter().zip(&output.outputs) {
        if let Some(UserMeta::Elf(elf)) = output.meta.get(*meta) {
            frames[index].push(Arc::new(in_file(&elf.path, None, *offset, places[index].address)));
        }
    }
}

/// The offset into a file that has no symbol there; of one that is another now, or gone, with its build id.
fn in_file(path: &Path, build_id: Option<&[u8]>, offset: u64, address: u64) -> Frame {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let build_id: String =
        build_id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()).unwrap_or_default();
    let build_id = if build_id.is_empty() { build_id } else { format!("[{build_id}]") };
    Frame {
        function: format!("{name}{build_id}+{offset:#x}"),
        module: Some(path.to_string_lossy().into_owned()),
        file: None,
        line: None,
        address,
        kind: FrameKind::User,
    }
}

fn unknown(address: u64, kind: FrameKind) -> Frame {
    Frame { address, kind, ..Frame::note(UNKNOWN) }
}

/// The function of a symbol, then what is inlined there.
fn named(symbol: Sym<'_>, address: u64, kind: FrameKind) -> Frames {
    let words = |words: &OsStr| words.to_string_lossy().into_owned();
    let module = symbol.module.as_deref().map(words);
    let frame = |function: &str, code: Option<&blazesym::symbolize::CodeInfo<'_>>, kind| {
        Arc::new(Frame {
            function: function.to_owned(),
            module: module.clone(),
            file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
            line: code.and_then(|code| code.line),
            address,
            kind,
        })
    };
    let inlined = symbol
        .inlined
        .iter()
        .map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), FrameKind::Inlined));
    let outer = frame(&symbol.name, symbol.code_info.as_deref(), kind);
    std::iter::once(outer).chain(inlined).collect()
}

/// The process whose addresses they are.
fn process(stack: &CountedStack) -> Option<u32> {
    let id = stack.task.process.or(stack.task.thread)?;
    u32::try_from(id).ok().filter(|id| *id > 0)
}

/// All but the first are where calls return to.
fn places(addresses: &Addresses) -> impl Iterator<Item = Place> {
    let known: &[u64] = if let Addresses::Known(known) = addresses { known } else { &[] };
    known.iter().enumerate().map(|(index, address)| Place { address: *address, returns: index > 0 })
}

#[cfg(test)]
mod tests {
    use super::super::{Counted, Task};
    use super::*;

    #[inline(never)]
    fn marker() -> u64 {
        std::hint::black_box(7)
    }

    fn own(user: Addresses, kernel: Addresses) -> Vec<String> {
        let process = i32::try_from(std::process::id()).ok();
        let task = Task { process, ..Task::default() };
        let stacks = vec![CountedStack { task, kernel, user, weight: 1 }];
        let profile = Counted { map: "seen".into(), stacks }.named(&mut Names::default());
        profile.samples[0].frames.iter().map(|frame| frame.function.clone()).collect()
    }

    #[test]
    fn the_outermost_function_comes_first() {
        let start = marker as fn() -> u64 as usize as u64;
        let frames = own(Addresses::Known(vec![start, 1]), Addresses::None);
        assert!(frames[0] == UNKNOWN && frames[1].contains("marker"), "{frames:?}");
        assert_eq!(marker(), 7);
    }

    #[test]
    fn a_return_address_belongs_to_the_call_before_it() {
        let start = marker as fn() -> u64 as usize as u64;
        let frames = own(Addresses::Known(vec![1, start]), Addresses::None);
        assert!(!frames[0].contains("marker"), "{frames:?}");
    }

    #[test]
    fn what_is_not_there_is_said() {
        assert_eq!(own(Addresses::None, Addresses::None), [NO_STACK]);
        assert_eq!(own(Addresses::Lost, Addresses::None), [LOST]);
        assert_eq!(own(Addresses::None, Addresses::Known(vec![1])), [UNKNOWN]);
    }
}

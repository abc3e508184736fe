//! Addresses of stacks to frames: all addresses of one place are looked up at once.
//!
//! Those of processes are named by another process ([`crate::naming`]). A process that lives is asked itself for its files.
//! What it does not have mapped any more, and all of one that has ended, is looked for in what was written down of its
//! mappings; there a file of the same name counts only if it is the same file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use blazesym::symbolize::{Reason, Symbolized, Symbolizer};

use super::{Addresses, CountedStack, Frame, FrameKind};
use crate::naming::{
    self, MAX_PLACES, MAX_TEXT_BYTES, NamedFrame, NamedPlace, Naming, NamingProcess, PlaceInFile, Wanted,
    WantedPlace,
};
use crate::perf::Mappings;
use crate::symbols::{self, SymbolError};
use crate::text::visible;

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

/// Most warnings that are kept: one bad file may be mapped by every process.
const MAX_WARNINGS: usize = 20;

/// Most bytes of the names and frames of processes that are kept: a process chooses how many it has, and how long they are.
const MAX_BYTES: usize = 256 << 20;

/// Most frames of one stack with what is inlined; of callers beyond, what is inlined into them is left out.
const MAX_FRAMES: usize = 1024;

/// How many naming threads may be left behind, each waiting for a file system that does not answer.
const MAX_STUCK: usize = 3;

/// The names of functions, of the kernel and of processes.
#[derive(Default)]
pub struct Names {
    kernel: Option<Symbolizer>,
    /// How to name functions of processes; none: they have no names.
    process: Option<NamingProcess>,
    naming: Option<Naming>,
    stuck: usize,
    /// Texts that frames of processes share.
    texts: HashSet<Arc<str>>,
    /// Bytes of these texts and frames.
    bytes: usize,
    /// By process; none: the kernel.
    known: BTreeMap<Option<u32>, BTreeMap<Place, Frames>>,
    /// What was mapped by processes that may have ended.
    mappings: Mappings,
    /// When the last of the stacks was counted, since the machine was started.
    until: Option<Duration>,
    /// What could not be looked up, in words.
    warnings: BTreeSet<String>,
    /// How many more there are.
    unsaid: usize,
}

impl Names {
    /// Nothing is read yet. Of processes that have ended it is known what is written here; those that begin from now on have
    /// no part in stacks. Without a naming process functions of processes have no names.
    pub fn new(mappings: Mappings, process: Option<NamingProcess>) -> Names {
        let until = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok().map(Duration::from);
        Names { mappings, process, until, ..Names::default() }
    }

    /// What could not be looked up, and what to do about it; each thing once.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let more = (self.unsaid > 0).then(|| format!("{} more files or tasks without names", self.unsaid));
        self.warnings.iter().cloned().chain(more)
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.insert(warning);
        } else if !self.warnings.contains(&warning) {
            self.unsaid += 1;
        }
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
                Some(found) if frames.len() + found.len() > MAX_FRAMES => {
                    frames.extend(found.first().cloned())
                }
                Some(found) => frames.extend(found.iter().cloned()),
                None => frames.push(Arc::new(unknown(place.address, FrameKind::User))),
            }
        }
        // A row of addresses without names says no more than one.
        frames.dedup_by(|next, last| *next.function == *UNKNOWN && *last.function == *UNKNOWN);
    }

    /// The frames of each place.
    fn look_up(&mut self, process: Option<u32>, places: &[Place]) -> Vec<Frames> {
        let mut frames = match process {
            None => self.of_kernel(places),
            Some(pid) => {
                places.chunks(MAX_PLACES).flat_map(|places| self.of_process(pid, places)).collect::<Vec<_>>()
            }
        };
        let kind = if process.is_none() { FrameKind::Kernel } else { FrameKind::User };
        for (frames, place) in frames.iter_mut().zip(places) {
            if frames.is_empty() {
                frames.push(Arc::new(unknown(place.address, kind)));
            }
        }
        frames
    }

    fn of_kernel(&mut self, places: &[Place]) -> Vec<Frames> {
        let symbolizer = self.kernel.get_or_insert_with(Symbolizer::new);
        let addresses: Vec<u64> = places.iter().map(|place| place.inside()).collect();
        let (found, failed) = match symbols::kernel_frames(symbolizer, &addresses) {
            Ok(found) => (found, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let is_hidden = |one: &Symbolized<'_>| matches!(one, Symbolized::Unknown(Reason::MissingSyms));
        let hidden = !found.is_empty() && found.iter().all(is_hidden);
        let mut frames: Vec<Frames> = found
            .into_iter()
            .zip(places)
            .map(|(found, place)| match found {
                Symbolized::Sym(symbol) if !symbols::is_far(&symbol) => {
                    let name = naming::demangled(&symbol.name);
                    let function = visible(name.as_deref().unwrap_or(&symbol.name), MAX_TEXT_BYTES).into();
                    vec![Arc::new(Frame { function, ..unknown(place.address, FrameKind::Kernel) })]
                }
                _ => Vec::new(),
            })
            .collect();
        frames.resize(places.len(), Vec::new());
        let failed = failed.or_else(|| hidden.then_some(SymbolError::Hidden));
        failed.into_iter().for_each(|error| self.warn(error.to_string()));
        frames
    }

    fn of_process(&mut self, pid: u32, places: &[Place]) -> Vec<Frames> {
        if self.bytes > MAX_BYTES {
            let most = MAX_BYTES >> 20;
            self.warn(format!(
                "names of functions of processes take more than {most} MiB: others are not shown"
            ));
            return vec![Vec::new(); places.len()];
        }
        let id = i32::try_from(pid).unwrap_or_default();
        let wanted = Wanted {
            pid,
            places: places
                .iter()
                .map(|place| WantedPlace {
                    address: place.inside(),
                    recorded: self.mappings.find(id, place.inside()).cloned(),
                })
                .collect(),
            in_detail: true,
            lives: !self.mappings.has_ended(id),
            until: self.until,
            began: self.mappings.began(id),
        };
        let Some(found) = self.ask(wanted) else { return vec![Vec::new(); places.len()] };
        if found.denied {
            self.warn(SymbolError::Denied(id).to_string());
        }
        found.warnings.into_iter().for_each(|warning| self.warn(warning));
        places.iter().zip(found.places).map(|(place, found)| self.frames_of(found, place.address)).collect()
    }

    /// What is known of a process; none if nobody can be asked, which is said.
    fn ask(&mut self, wanted: Wanted) -> Option<naming::Named> {
        let pid = wanted.pid;
        let Some(process) = &self.process else {
            self.warn(SymbolError::NoProcess.to_string());
            return None;
        };
        if self.stuck >= MAX_STUCK {
            self.warn(SymbolError::Silent(pid).to_string());
            return None;
        }
        if self.naming.is_none() {
            self.naming = Naming::start(process.clone()).ok();
        }
        let answer = self.naming.as_ref().and_then(|naming| naming.name(wanted));
        if answer.is_none() {
            // Its thread waits for a file system, and ends when that answers.
            self.naming = None;
            self.stuck += 1;
            self.warn(SymbolError::Silent(pid).to_string());
        }
        answer
    }

    /// The functions at an address; without one the file and the offset into it.
    fn frames_of(&mut self, found: NamedPlace, address: u64) -> Frames {
        let module = found.file.as_ref().map(|file| self.text(&file.path));
        let frames: Frames = match (&found.file, found.frames.is_empty()) {
            (Some(file), true) => {
                let function = self.text(&in_file(file));
                vec![Arc::new(Frame { function, module, ..unknown(address, FrameKind::User) })]
            }
            _ => {
                let frame = |named: NamedFrame| {
                    let kind = if named.inlined { FrameKind::Inlined } else { FrameKind::User };
                    let function = self.text(&named.function);
                    let file = named.file.map(|file| self.text(&file));
                    Arc::new(Frame {
                        function,
                        module: module.clone(),
                        file,
                        line: named.line,
                        address,
                        kind,
                    })
                };
                found.frames.into_iter().map(frame).collect()
            }
        };
        self.bytes += frames.len() * size_of::<Frame>();
        frames
    }

    /// The text, shared with all frames that have the same.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.bytes += new.len() + size_of::<Arc<str>>();
        self.texts.insert(Arc::clone(&new));
        new
    }
}

/// The offset into a file that has no symbol there; of one that is another now, or gone, with its build id.
fn in_file(file: &PlaceInFile) -> String {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let build_id = file.build_id.as_ref().filter(|id| !id.is_empty());
    let build_id = build_id.map(|id| format!("[{id}]")).unwrap_or_default();
    format!("{name}{build_id}+{:#x}", file.offset)
}

fn unknown(address: u64, kind: FrameKind) -> Frame {
    Frame { address, kind, ..Frame::note(UNKNOWN) }
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
        let profile = Counted { map: "seen".into(), stacks }
            .named(&mut Names::new(Mappings::default(), Some(NamingProcess::in_a_thread())));
        profile.samples[0].frames.iter().map(|frame| frame.function.to_string()).collect()
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

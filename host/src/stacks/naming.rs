//! Resolves the addresses of stacks to frames: all addresses of one process are looked up at once.
//!
//! Addresses of processes are named by a separate process ([`crate::naming`]). For a live process, its files
//! are inspected. Recorded mappings serve for addresses that it no longer maps, and for processes that have
//! ended. A file found by a recorded path is only used if it is the same file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use blazesym::symbolize::{Reason, Symbolized, Symbolizer};

use super::{CountedStack, FrameKind, StackAddresses, StackFrame};
use crate::naming::{
    self, FileLocation, MAX_LOCATIONS, MAX_TEXT_BYTES, NamedFrame, NamedLocation, Naming, NamingProcess,
    WantedLocation, WantedLocations,
};
use crate::perf::Mappings;
use crate::symbols::{self, SymbolError};
use crate::text::visible;

/// The label of a stack without a kernel part and a user part.
pub(crate) const NO_STACK: &str = "[no stack]";
/// The label of a stack that collided with another one in the map.
pub(crate) const LOST: &str = "[stack lost]";
/// The label of an address without a name.
const UNKNOWN: &str = "[unknown]";

/// An address, and whether it is a return address: the call is the instruction before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CodeLocation {
    address: u64,
    returns: bool,
}

impl CodeLocation {
    /// Returns the address to look up, which lies inside the calling instruction for a return address.
    fn inside(self) -> u64 {
        self.address.wrapping_sub(u64::from(self.returns))
    }
}

/// The frames of one address, the outermost first: a function, and the functions inlined there.
type Frames = Vec<Arc<StackFrame>>;

/// Limit of the stored warnings: every process may map the same bad file.
const MAX_WARNINGS: usize = 20;

/// Limit of the stored names and frames of processes, in bytes: a process chooses their number and length.
const MAX_BYTES: usize = 256 << 20;

/// Limit of the frames of one stack with inlined ones; beyond it, functions inlined into callers are left
/// out.
const MAX_FRAMES: usize = 1024;

/// Limit of abandoned naming threads, each of which waits for a file system that does not answer.
const MAX_STUCK: usize = 3;

/// Resolves names of functions, of the kernel and of processes, and caches them.
#[derive(Default)]
pub struct FunctionNames {
    kernel: Option<Symbolizer>,
    /// How to start the naming process; None leaves functions of processes without names.
    process: Option<NamingProcess>,
    naming: Option<Naming>,
    stuck: usize,
    /// Texts, shared by the frames of processes.
    texts: HashSet<Arc<str>>,
    /// Size of these texts and frames, in bytes.
    bytes: usize,
    /// Frames by process and address; the process is None for the kernel.
    known: BTreeMap<Option<u32>, BTreeMap<CodeLocation, Frames>>,
    /// Recorded mappings, also of processes that have ended.
    mappings: Mappings,
    /// A time since boot after which no stack was counted; processes that started later are not in the
    /// stacks.
    until: Option<Duration>,
    /// Failed lookups, as messages.
    warnings: BTreeSet<String>,
    /// Number of further warnings that were not stored.
    omitted_warnings: usize,
}

impl FunctionNames {
    /// Returns an empty cache. `mappings` serves for processes that have ended. Processes that start after
    /// this call are not looked up. Without a naming process, functions of processes have no names.
    pub fn new(mappings: Mappings, process: Option<NamingProcess>) -> FunctionNames {
        let until = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok().map(Duration::from);
        FunctionNames { mappings, process, until, ..FunctionNames::default() }
    }

    /// Returns the failed lookups with their remedies, each once.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let omitted = self.omitted_warnings;
        let more = (omitted > 0).then(|| format!("{omitted} more files or tasks without names"));
        self.warnings.iter().cloned().chain(more)
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.insert(warning);
        } else if !self.warnings.contains(&warning) {
            self.omitted_warnings += 1;
        }
    }

    /// Looks up the addresses of all these stacks.
    pub(super) fn prepare(&mut self, stacks: &[CountedStack]) {
        let mut wanted: BTreeMap<Option<u32>, BTreeSet<CodeLocation>> = BTreeMap::new();
        for stack in stacks.iter().flat_map(CountedStack::parts) {
            wanted.entry(None).or_default().extend(locations(&stack.kernel));
            if let Some(process) = process(stack) {
                wanted.entry(Some(process)).or_default().extend(locations(&stack.user));
            }
        }
        for (process, locations) in wanted {
            let known = self.known.entry(process).or_default();
            let locations: Vec<CodeLocation> =
                locations.into_iter().filter(|location| !known.contains_key(location)).collect();
            if !locations.is_empty() {
                let frames = self.look_up(process, &locations);
                self.known.entry(process).or_default().extend(locations.into_iter().zip(frames));
            }
        }
    }

    /// Returns the frames of a stack, the outermost first. Those of the other task follow, the innermost first: the two
    /// stacks meet where one task acted on the other.
    pub(super) fn frames(&self, stack: &CountedStack) -> Frames {
        let mut frames = self.frames_of_task(stack);
        if let Some(other) = &stack.other {
            let label = other.task.label().unwrap_or_default();
            frames.push(Arc::new(StackFrame::note(&format!("[by {label}]"))));
            frames.extend(self.frames_of_task(other).into_iter().rev());
        }
        frames
    }

    fn frames_of_task(&self, stack: &CountedStack) -> Frames {
        let process = process(stack);
        let mut frames = Vec::new();
        let known_user = process.and_then(|process| self.known.get(&Some(process)));
        add_part(&stack.user, known_user, &mut frames);
        add_part(&stack.kernel, self.known.get(&None), &mut frames);
        if frames.is_empty() {
            frames.push(Arc::new(StackFrame::note(NO_STACK)));
        }
        frames
    }

    /// Looks up the frames of each location.
    fn look_up(&mut self, process: Option<u32>, locations: &[CodeLocation]) -> Vec<Frames> {
        let mut frames = match process {
            None => self.of_kernel(locations),
            Some(pid) => locations
                .chunks(MAX_LOCATIONS)
                .flat_map(|locations| self.of_process(pid, locations))
                .collect::<Vec<_>>(),
        };
        let kind = if process.is_none() { FrameKind::Kernel } else { FrameKind::User };
        for (frames, location) in frames.iter_mut().zip(locations) {
            if frames.is_empty() {
                frames.push(Arc::new(unknown(location.address, kind)));
            }
        }
        frames
    }

    fn of_kernel(&mut self, locations: &[CodeLocation]) -> Vec<Frames> {
        let symbolizer = self.kernel.get_or_insert_with(Symbolizer::new);
        let addresses: Vec<u64> = locations.iter().map(|location| location.inside()).collect();
        let (found, failed) = match symbols::kernel_frames(symbolizer, &addresses) {
            Ok(found) => (found, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let is_hidden = |one: &Symbolized<'_>| matches!(one, Symbolized::Unknown(Reason::MissingSyms));
        let hidden = !found.is_empty() && found.iter().all(is_hidden);
        let mut frames: Vec<Frames> = found
            .into_iter()
            .zip(locations)
            .map(|(found, location)| match found {
                Symbolized::Sym(symbol) if !symbols::is_below(&symbol) => {
                    let name = naming::demangled(&symbol.name);
                    let function = visible(name.as_deref().unwrap_or(&symbol.name), MAX_TEXT_BYTES).into();
                    vec![Arc::new(StackFrame { function, ..unknown(location.address, FrameKind::Kernel) })]
                }
                _ => Vec::new(),
            })
            .collect();
        frames.resize(locations.len(), Vec::new());
        let failed = failed.or_else(|| hidden.then_some(SymbolError::Hidden));
        failed.into_iter().for_each(|error| self.warn(error.to_string()));
        frames
    }

    fn of_process(&mut self, pid: u32, locations: &[CodeLocation]) -> Vec<Frames> {
        if self.bytes > MAX_BYTES {
            let most = MAX_BYTES >> 20;
            self.warn(format!(
                "names of functions of processes take more than {most} MiB: others are not shown"
            ));
            return vec![Vec::new(); locations.len()];
        }
        let id = i32::try_from(pid).unwrap_or_default();
        let wanted = WantedLocations {
            pid,
            locations: locations
                .iter()
                .map(|location| WantedLocation {
                    address: location.inside(),
                    recorded: self.mappings.find(id, location.inside()).cloned(),
                })
                .collect(),
            in_detail: true,
            lives: !self.mappings.has_ended(id),
            until: self.until,
            began: self.mappings.began(id),
        };
        let Some(found) = self.ask(wanted) else { return vec![Vec::new(); locations.len()] };
        if found.denied {
            self.warn(SymbolError::Denied(id).to_string());
        }
        found.warnings.into_iter().for_each(|warning| self.warn(warning));
        locations
            .iter()
            .zip(found.locations)
            .map(|(location, found)| self.frames_of(found, location.address))
            .collect()
    }

    /// Asks the naming thread. None if that fails, which adds a warning.
    fn ask(&mut self, wanted: WantedLocations) -> Option<naming::NamedLocations> {
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
            // The abandoned thread waits for a file system, and ends when that answers.
            self.naming = None;
            self.stuck += 1;
            self.warn(SymbolError::Silent(pid).to_string());
        }
        answer
    }

    /// Returns the functions at an address; without any, a frame with the file and the offset in it.
    fn frames_of(&mut self, found: NamedLocation, address: u64) -> Frames {
        let module = found.file.as_ref().map(|file| self.text(&file.path));
        let frames: Frames = match (&found.file, found.frames.is_empty()) {
            (Some(file), true) => {
                let function = self.text(&in_file(file));
                vec![Arc::new(StackFrame { function, module, ..unknown(address, FrameKind::User) })]
            }
            _ => {
                let frame = |named: NamedFrame| {
                    let kind = if named.inlined { FrameKind::Inlined } else { FrameKind::User };
                    let function = self.text(&named.function);
                    let file = named.file.map(|file| self.text(&file));
                    Arc::new(StackFrame {
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
        self.bytes += frames.len() * size_of::<StackFrame>();
        frames
    }

    /// Returns the text, shared by all frames that contain it.
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

/// Formats an offset in a file without a symbol there; with the build id if the file is gone or was replaced.
fn in_file(file: &FileLocation) -> String {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let build_id = file.build_id.as_ref().filter(|id| !id.is_empty());
    let build_id = build_id.map(|id| format!("[{id}]")).unwrap_or_default();
    format!("{name}{build_id}+{:#x}", file.offset)
}

fn unknown(address: u64, kind: FrameKind) -> StackFrame {
    StackFrame { address, kind, ..StackFrame::note(UNKNOWN) }
}

/// Returns the id of the process that the user addresses belong to.
fn process(stack: &CountedStack) -> Option<u32> {
    let id = stack.task.process.or(stack.task.thread)?;
    u32::try_from(id).ok().filter(|id| *id > 0)
}

/// Returns the code locations of a stack; all but the first are return addresses.
fn locations(addresses: &StackAddresses) -> impl Iterator<Item = CodeLocation> {
    let known: &[u64] = if let StackAddresses::Known(known) = addresses { known } else { &[] };
    known.iter().enumerate().map(|(index, address)| CodeLocation { address: *address, returns: index > 0 })
}

/// Adds the frames of one part of a stack, of a process or of the kernel. Without `known` frames, all of its
/// addresses are unknown.
fn add_part(addresses: &StackAddresses, known: Option<&BTreeMap<CodeLocation, Frames>>, frames: &mut Frames) {
    if *addresses == StackAddresses::Lost {
        frames.push(Arc::new(StackFrame::note(LOST)));
    }
    let outermost_first: Vec<CodeLocation> = locations(addresses).collect();
    for location in outermost_first.into_iter().rev() {
        match known.and_then(|known| known.get(&location)) {
            Some(found) if frames.len() + found.len() > MAX_FRAMES => frames.extend(found.first().cloned()),
            Some(found) => frames.extend(found.iter().cloned()),
            None => frames.push(Arc::new(unknown(location.address, FrameKind::User))),
        }
    }
    // A run of unknown addresses is shown as one.
    frames.dedup_by(|next, last| *next.function == *UNKNOWN && *last.function == *UNKNOWN);
}

#[cfg(test)]
mod tests {
    use super::super::{CountedStacks, Task};
    use super::*;

    #[inline(never)]
    fn marker() -> u64 {
        std::hint::black_box(7)
    }

    fn frames_of_this_process(user: StackAddresses, kernel: StackAddresses) -> Vec<String> {
        let process = i32::try_from(std::process::id()).ok();
        let task = Task { process, ..Task::default() };
        let stacks = vec![CountedStack { task, kernel, user, weight: 1, other: None }];
        let profile = CountedStacks { map: "seen".into(), stacks }
            .named(&mut FunctionNames::new(Mappings::default(), Some(NamingProcess::in_a_thread())));
        profile.samples[0].frames.iter().map(|frame| frame.function.to_string()).collect()
    }

    #[test]
    fn the_outermost_function_comes_first() {
        let start = marker as fn() -> u64 as usize as u64;
        let frames = frames_of_this_process(StackAddresses::Known(vec![start, 1]), StackAddresses::None);
        assert!(frames[0] == UNKNOWN && frames[1].contains("marker"), "{frames:?}");
        assert_eq!(marker(), 7);
    }

    #[test]
    fn a_return_address_belongs_to_the_call_before_it() {
        let start = marker as fn() -> u64 as usize as u64;
        let frames = frames_of_this_process(StackAddresses::Known(vec![1, start]), StackAddresses::None);
        assert!(!frames[0].contains("marker"), "{frames:?}");
    }

    #[test]
    fn the_stack_of_another_task_follows_from_the_inside() {
        let addresses = |all: &[u64]| StackAddresses::Known(all.to_vec());
        let other = CountedStack {
            task: Task { command: Some("waker".into()), ..Task::default() },
            kernel: StackAddresses::None,
            user: addresses(&[3]),
            weight: 0,
            other: None,
        };
        let first = CountedStack {
            user: StackAddresses::Lost,
            kernel: addresses(&[1]),
            other: Some(Box::new(other)),
            ..CountedStack::default()
        };
        let profile = CountedStacks { map: "us".into(), stacks: vec![first] }
            .named(&mut FunctionNames::new(Mappings::default(), Some(NamingProcess::in_a_thread())));
        let names: Vec<&str> = profile.samples[0].frames.iter().map(|frame| &*frame.function).collect();
        assert_eq!(names, [LOST, UNKNOWN, "[by waker]", UNKNOWN]);
    }

    #[test]
    fn missing_stacks_and_names_have_labels() {
        assert_eq!(frames_of_this_process(StackAddresses::None, StackAddresses::None), [NO_STACK]);
        assert_eq!(frames_of_this_process(StackAddresses::Lost, StackAddresses::None), [LOST]);
        assert_eq!(frames_of_this_process(StackAddresses::None, StackAddresses::Known(vec![1])), [UNKNOWN]);
    }
}

//! From addresses of a process to names: finds the file of each address, and asks the naming process about
//! it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::child::{Child, Lost, NamingProcess};
use super::open::{FileKey, MAX_PROGRAM_BYTES, OpenRefusal, OpenedFile, Root};
use super::process::{self, Process};
use super::protocol::{Answer, DebugFile, MAX_LOCATIONS, MAX_TEXT_BYTES, NamedFrame, Request};
use super::{
    FILE_TIME, FOREIGN_TIME, FileLocation, NamedLocation, NamedLocations, WantedLocations, confine,
    debug_files,
};
use crate::maps::{self, MapsEntry};
use crate::perf::{Identity, Mapping, VDSO};
use crate::text::visible;

/// Limit of the debug files that are fetched for one program: its own, and the one that several programs
/// share.
const DEBUG_FILES: usize = 2;

/// Queries the naming process, and starts it on demand.
pub(super) struct Namer {
    how: NamingProcess,
    child: Option<Running>,
    /// Files on which the naming process failed or timed out.
    failed: HashMap<FileKey, Failed>,
    /// Remaining time for files that are not root's.
    foreign: Duration,
    progress: Arc<AtomicU64>,
}

/// A naming process, and the ids of the files that it was passed.
struct Running {
    child: Child,
    files: HashMap<FileKey, u32>,
}

/// The requests about a file that are not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// Requests for lines and inlined functions.
    Lines,
    /// All requests.
    All,
}

/// The reason why a file has no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoNames {
    /// The file cannot be opened.
    Refused(OpenRefusal),
    /// The file is not the one that was mapped.
    OtherFile,
    /// The file is not an ELF file that can be parsed.
    NoProgram,
    /// The naming process failed on the file.
    Lost(Lost),
    /// The time for files that are not root's is used up.
    NoTime,
    /// The naming process cannot be started.
    NoProcess,
}

/// The pass over the files of a request, by owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilePass {
    /// Files of root.
    First,
    /// All other files.
    Later,
}

/// The origin of the code at an address; the key of a [`Group`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin<'a> {
    /// A file that the process has mapped now: major and minor device number, inode, and path.
    Live((u32, u32, u64), &'a [u8]),
    /// A file from a recorded mapping: its path, and the index of its identity.
    Recorded(&'a [u8], usize),
    /// The vDSO.
    Vdso,
}

/// The wanted locations in one file.
struct Group<'a> {
    /// The file's first live mapping, and its first recorded one.
    live: Option<&'a MapsEntry>,
    recorded: Option<&'a Mapping>,
    path: &'a [u8],
    /// Index into the wanted locations, and the offset in the file.
    locations: Vec<(usize, u64)>,
}

impl Namer {
    pub(super) fn new(how: NamingProcess, progress: Arc<AtomicU64>) -> Namer {
        Namer { how, child: None, failed: HashMap::new(), foreign: FOREIGN_TIME, progress }
    }

    /// Finds all names of a request.
    pub(super) fn name(&mut self, wanted: &WantedLocations) -> NamedLocations {
        let mut named = NamedLocations {
            locations: vec![NamedLocation::default(); wanted.locations.len()],
            ..NamedLocations::default()
        };
        let process = match self.process(wanted) {
            Ok(process) => process,
            Err(refusal) => {
                self.refuse(&mut named, wanted.pid, refusal);
                None
            }
        };
        let live = process.as_ref().map(|process| live(process, wanted)).transpose();
        let live = live.unwrap_or_else(|refusal| {
            self.refuse(&mut named, wanted.pid, refusal);
            None
        });
        let live = live.unwrap_or_else(|| vec![None; wanted.locations.len()]);
        self.tick();
        let groups = groups(wanted, &live);
        let mut unnamed: Vec<usize> = Vec::new();
        // Files of root first; then the others, those with most locations first.
        let mut later = Vec::new();
        for group in &groups {
            match self.program(group, process.as_ref(), wanted, FilePass::First, &mut named) {
                Some(NoNames::NoTime) => later.push(group),
                Some(_) => unnamed.extend(group.locations.iter().map(|(location, _)| *location)),
                None => {}
            }
        }
        later.sort_by_key(|group| std::cmp::Reverse(group.locations.len()));
        for group in later {
            if self.program(group, process.as_ref(), wanted, FilePass::Later, &mut named).is_some() {
                unnamed.extend(group.locations.iter().map(|(location, _)| *location));
            }
        }
        if wanted.in_detail {
            let is_anonymous = |location: &usize| match (&process, live[*location].as_ref()) {
                (Some(_), live) => {
                    live.is_some_and(|mapping| !mapping.name.starts_with(b"/") && mapping.name != VDSO)
                }
                (None, _) => wanted.locations[*location].recorded.is_none(),
            };
            unnamed.extend((0..live.len()).filter(is_anonymous));
            unnamed.sort_unstable();
            unnamed.dedup();
            self.perf_map(process.as_ref(), wanted, &unnamed, &mut named);
        }
        named
    }

    /// Opens the observed process. None if only recorded mappings may be used, or if the pid was reused.
    fn process(&self, wanted: &WantedLocations) -> Result<Option<Process>, OpenRefusal> {
        if !wanted.lives {
            return Ok(None);
        }
        let process = Process::open(wanted.pid)?;
        Ok(process.filter(|process| wanted.until.is_none_or(|until| process.began_before(until))))
    }

    fn refuse(&self, named: &mut NamedLocations, pid: u32, refusal: OpenRefusal) {
        match refusal {
            OpenRefusal::Missing => {}
            OpenRefusal::Denied => named.denied = true,
            other => {
                named.warnings.push(format!("cannot name functions of task {pid}: /proc/{pid}: {other}"))
            }
        }
    }

    /// Names the locations in one file, or returns the reason why they have no names. In the first pass,
    /// files that are not root's are skipped (`NoTime`).
    fn program(
        &mut self,
        group: &Group<'_>,
        process: Option<&Process>,
        wanted: &WantedLocations,
        pass: FilePass,
        named: &mut NamedLocations,
    ) -> Option<NoNames> {
        let opened = open(group, process);
        self.tick();
        let (opened, build_id) = match opened {
            Ok((opened, _)) if pass == FilePass::First && opened.owner != 0 => return Some(NoNames::NoTime),
            Ok(opened) => opened,
            Err(reason) => return self.unnamed(group, wanted, reason, named),
        };
        let offsets: Vec<u64> = group.locations.iter().map(|(_, offset)| *offset).collect();
        match self.functions(&opened, &build_id, &offsets, group.path, wanted.in_detail) {
            Ok((frames, lost)) => {
                let file = in_file(group);
                for ((location, offset), frames) in group.locations.iter().zip(frames) {
                    let location = &mut named.locations[*location];
                    location.frames = frames;
                    location.file = Some(FileLocation { offset: *offset, ..file.clone() });
                }
                if let Some(lost) = lost {
                    let line = "functions have the names of its symbol table, without source lines";
                    named.warnings.push(warning(wanted.pid, group.path, &lost.to_string(), line));
                }
                None
            }
            Err(reason) => self.unnamed(group, wanted, reason, named),
        }
    }

    fn unnamed(
        &self,
        group: &Group<'_>,
        wanted: &WantedLocations,
        reason: NoNames,
        named: &mut NamedLocations,
    ) -> Option<NoNames> {
        let is_gone = matches!(reason, NoNames::OtherFile | NoNames::Refused(OpenRefusal::Missing));
        let file = if is_gone { in_gone_file(group) } else { in_file(group) };
        for (location, offset) in &group.locations {
            named.locations[*location].file = Some(FileLocation { offset: *offset, ..file.clone() });
        }
        let effect = "its functions are shown as offsets";
        let because = match reason {
            NoNames::Refused(OpenRefusal::Missing | OpenRefusal::NotRegular)
            | NoNames::OtherFile
            | NoNames::NoProgram => None,
            NoNames::Refused(refusal) => Some(refusal.to_string()),
            NoNames::Lost(lost) => Some(lost.to_string()),
            NoNames::NoTime => {
                Some(format!("files that are not root's have taken {} s together", FOREIGN_TIME.as_secs()))
            }
            NoNames::NoProcess => Some("the naming process cannot be started".into()),
        };
        named.warnings.extend(because.map(|because| warning(wanted.pid, group.path, &because, effect)));
        Some(reason)
    }

    /// Returns the frames at offsets in a file, and the reason if source lines are missing.
    fn functions(
        &mut self,
        opened: &OpenedFile,
        build_id: &[u8],
        offsets: &[u64],
        path: &[u8],
        in_detail: bool,
    ) -> Result<(Vec<Vec<NamedFrame>>, Option<Lost>), NoNames> {
        let mut lines = in_detail;
        let mut lost = None;
        match self.failed.get(&opened.key) {
            Some(Failed::All) => return Err(NoNames::Lost(Lost::Ended)),
            Some(Failed::Lines) if lines => lines = false,
            _ => {}
        }
        loop {
            let is_foreign = opened.owner != 0;
            if is_foreign && self.foreign.is_zero() {
                return Err(NoNames::NoTime);
            }
            let began = Instant::now();
            let time = if is_foreign { FILE_TIME.min(self.foreign) } else { FILE_TIME };
            // A process that has already read a lot may lack memory for this file.
            let was_fresh = self.child.as_ref().is_none_or(|running| running.files.is_empty());
            let answer = self.ask_program(opened, build_id, offsets, path, lines, began + time);
            if is_foreign {
                self.foreign = self.foreign.saturating_sub(began.elapsed());
            }
            self.tick();
            match answer {
                Ok(frames) => return Ok((frames, lost)),
                Err(NoNames::Lost(why)) => {
                    self.child = None;
                    match (was_fresh, lines) {
                        (false, _) if why == Lost::Ended => {}
                        (_, true) => {
                            self.failed.insert(opened.key, Failed::Lines);
                            lines = false;
                            lost = Some(why);
                        }
                        _ => {
                            self.failed.insert(opened.key, Failed::All);
                            return Err(NoNames::Lost(why));
                        }
                    }
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn ask_program(
        &mut self,
        opened: &OpenedFile,
        build_id: &[u8],
        offsets: &[u64],
        path: &[u8],
        lines: bool,
        deadline: Instant,
    ) -> Result<Vec<Vec<NamedFrame>>, NoNames> {
        let progress = Arc::clone(&self.progress);
        let running = self.running()?;
        let (id, mut file) = match running.files.get(&opened.key) {
            Some(id) => (*id, None),
            None => {
                let id = u32::try_from(running.files.len()).unwrap_or(u32::MAX);
                running.files.insert(opened.key, id);
                (id, Some(opened.file.as_fd()))
            }
        };
        let mut frames = Vec::with_capacity(offsets.len());
        let mut debug_files = 0;
        while let Some(offsets) = offsets.get(frames.len()..).filter(|rest| !rest.is_empty()) {
            let offsets = offsets[..offsets.len().min(MAX_LOCATIONS)].to_vec();
            let locations = offsets.len();
            let request = Request::Program { id, build_id: build_id.to_vec(), lines, offsets };
            let answer =
                running.child.ask(&request, file.take(), locations, deadline).map_err(NoNames::Lost)?;
            progress.fetch_add(1, Ordering::Relaxed);
            match answer {
                Answer::Frames(found) => frames.extend(found.into_iter().map(clean)),
                Answer::OtherFile => return Err(NoNames::OtherFile),
                Answer::NoProgram => return Err(NoNames::NoProgram),
                Answer::Needs(wanted) if debug_files < DEBUG_FILES => {
                    debug_files += 1;
                    give_debug_file(&mut running.child, id, &wanted, path, deadline)?;
                }
                Answer::Needs(_) | Answer::Taken => return Err(NoNames::Lost(Lost::Unsound)),
            }
        }
        Ok(frames)
    }

    /// Names locations from the perf map that a just-in-time compiler wrote.
    fn perf_map(
        &mut self,
        process: Option<&Process>,
        wanted: &WantedLocations,
        locations: &[usize],
        named: &mut NamedLocations,
    ) {
        if locations.is_empty() {
            return;
        }
        let map = match (process, wanted.began) {
            (Some(process), _) => process.perf_map(),
            (None, Some(began)) => process::perf_map_of_ended(wanted.pid, began),
            (None, None) => Ok(None),
        };
        let map = match map {
            Ok(Some(map)) => map,
            Ok(None) => return,
            Err(refusal) => {
                let because = format!("its perf map cannot be read: {refusal}");
                named.warnings.push(format!("cannot name functions of task {}: {because}", wanted.pid));
                return;
            }
        };
        let mut by_address: Vec<usize> = locations.to_vec();
        by_address.sort_unstable_by_key(|location| wanted.locations[*location].address);
        let lost =
            |lost: Lost| format!("cannot name functions of task {} by its perf map: {lost}", wanted.pid);
        if self.failed.contains_key(&map.key) {
            return;
        }
        for locations in by_address.chunks(MAX_LOCATIONS) {
            let addresses = locations.iter().map(|location| wanted.locations[*location].address).collect();
            let began = Instant::now();
            let deadline = began + FILE_TIME.min(self.foreign);
            let Ok(running) = self.running() else { return };
            let request = Request::PerfMap { addresses };
            let answer = running.child.ask(&request, Some(map.file.as_fd()), locations.len(), deadline);
            self.foreign = self.foreign.saturating_sub(began.elapsed());
            self.tick();
            match answer {
                Ok(Answer::Frames(frames)) => {
                    for (location, frames) in locations.iter().zip(frames) {
                        named.locations[*location].frames = clean(frames);
                    }
                }
                answer => {
                    self.child = None;
                    self.failed.insert(map.key, Failed::All);
                    named.warnings.push(lost(answer.err().unwrap_or(Lost::Unsound)));
                    return;
                }
            }
        }
    }

    /// Returns the running naming process. Starts a new one if there is none, or if it has reached its limit
    /// of files.
    fn running(&mut self) -> Result<&mut Running, NoNames> {
        let most = usize::try_from(confine::MAX_FILES / 4).unwrap_or(usize::MAX);
        if self.child.as_ref().is_some_and(|running| running.files.len() >= most) {
            self.child = None;
        }
        match &mut self.child {
            Some(running) => Ok(running),
            none => {
                let child = Child::start(&self.how).map_err(|_| NoNames::NoProcess)?;
                Ok(none.insert(Running { child, files: HashMap::new() }))
            }
        }
    }

    /// Reports progress to the waiting caller.
    fn tick(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Ended => out.write_str("the naming process did not survive the file"),
            Lost::Late => write!(out, "the naming process took longer than {} s", FILE_TIME.as_secs()),
            Lost::Unsound => out.write_str("the naming process sent a malformed answer"),
        }
    }
}

/// Returns one line that contains no text from inside the file.
fn warning(pid: u32, path: &[u8], because: &str, effect: &str) -> String {
    let path = String::from_utf8_lossy(path);
    format!("task {pid}: {}: {because}: {effect}", visible(&path, 200))
}

fn give_debug_file(
    child: &mut Child,
    id: u32,
    wanted: &DebugFile,
    program: &[u8],
    deadline: Instant,
) -> Result<(), NoNames> {
    let found = debug_files::find(wanted, program);
    let file = found.as_ref().map(|found| found.file.as_fd());
    match child.ask(&Request::Debug { id }, file, 0, deadline).map_err(NoNames::Lost)? {
        Answer::Taken => Ok(()),
        _ => Err(NoNames::Lost(Lost::Unsound)),
    }
}

/// Returns the live mapping at each wanted location.
fn live(process: &Process, wanted: &WantedLocations) -> Result<Vec<Option<Arc<MapsEntry>>>, OpenRefusal> {
    let mut order: Vec<usize> = (0..wanted.locations.len()).collect();
    order.sort_by_key(|location| wanted.locations[*location].address);
    let addresses: Vec<u64> = order.iter().map(|location| wanted.locations[*location].address).collect();
    let mut found = vec![None; order.len()];
    for (location, mapping) in order.into_iter().zip(process.mappings(&addresses)?) {
        found[location] = mapping;
    }
    Ok(found)
}

/// Groups the locations by file. Recorded mappings say what was mapped during the recording; a live mapping
/// is another path to the same file, or the only source.
fn groups<'a>(wanted: &'a WantedLocations, live: &'a [Option<Arc<MapsEntry>>]) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<Origin<'a>, Group<'a>> = BTreeMap::new();
    let mut identities: Vec<&'a Identity> = Vec::new();
    for (location, (wanted, live)) in wanted.locations.iter().zip(live).enumerate() {
        let live = live.as_deref();
        let live_offset = live.map(|live| wanted.address - live.start + live.offset);
        let recorded = wanted.recorded.as_ref();
        let recorded_offset = recorded
            .map(|recorded| wanted.address.wrapping_sub(recorded.start).wrapping_add(recorded.offset));
        let is_same = |live: &MapsEntry, recorded: &Mapping| {
            recorded_offset == live_offset && plain(&live.name) == recorded.path.as_os_str().as_bytes()
        };
        let (origin, live, recorded, path, offset) = match (live, recorded) {
            (Some(live), None) if live.name == VDSO => (Origin::Vdso, Some(live), None, VDSO, live_offset),
            (Some(live), recorded)
                if live.name.starts_with(b"/") && recorded.is_none_or(|recorded| is_same(live, recorded)) =>
            {
                let path = plain(&live.name);
                (
                    Origin::Live((live.major, live.minor, live.inode), path),
                    Some(live),
                    recorded,
                    path,
                    live_offset,
                )
            }
            (live, Some(recorded)) if recorded.path.as_os_str().as_bytes() == VDSO => {
                (Origin::Vdso, live, Some(recorded), VDSO, recorded_offset)
            }
            (_, Some(recorded)) => {
                let path = recorded.path.as_os_str().as_bytes();
                let known = identities.iter().position(|known| **known == recorded.identity);
                let identity = known.unwrap_or_else(|| {
                    identities.push(&recorded.identity);
                    identities.len() - 1
                });
                (Origin::Recorded(path, identity), None, Some(recorded), path, recorded_offset)
            }
            _ => continue,
        };
        let group =
            groups.entry(origin).or_insert_with(|| Group { live, recorded, path, locations: Vec::new() });
        group.locations.push((location, offset.unwrap_or_default()));
    }
    groups.into_values().collect()
}

/// Removes the suffix that the kernel appends to the path of a deleted file.
fn plain(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// Opens the file of a group. Returns it with the build id that it must have; empty if the file is known to
/// be right.
fn open(group: &Group<'_>, process: Option<&Process>) -> Result<(OpenedFile, Vec<u8>), NoNames> {
    if group.path == VDSO {
        return Ok((vdso(group)?, Vec::new()));
    }
    if let (Some(process), Some(live)) = (process, group.live) {
        match process.mapped_file(live) {
            Ok(opened) => return Ok((opened, Vec::new())),
            Err(refusal) if group.recorded.is_none() => return Err(NoNames::Refused(refusal)),
            Err(_) => {}
        }
    }
    let recorded = group.recorded.ok_or(NoNames::Refused(OpenRefusal::Missing))?;
    // The root of an ended process is unknown: the file at this path here may be another one.
    let root = process.map_or_else(Root::own, Process::root).map_err(NoNames::Refused)?;
    let found = root.find(group.path).map_err(NoNames::Refused)?;
    let build_id = match &recorded.identity {
        // Only the contents have it: the naming process compares it.
        Identity::BuildId(id) => id.clone(),
        Identity::Inode { major, minor, inode } => {
            if !process::is_file(&found.key(), *major, *minor, *inode) {
                return Err(NoNames::OtherFile);
            }
            Vec::new()
        }
    };
    Ok((found.open(MAX_PROGRAM_BYTES).map_err(NoNames::Refused)?, build_id))
}

/// Copies the vDSO from this process's memory: it is the same in all processes of one kind.
fn vdso(group: &Group<'_>) -> Result<OpenedFile, NoNames> {
    let refused = |_: std::io::Error| NoNames::Refused(OpenRefusal::Missing);
    let theirs = match (group.recorded, group.live) {
        (Some(recorded), _) => recorded.start..recorded.end,
        (None, Some(live)) => live.start..live.end,
        (None, None) => return Err(NoNames::Refused(OpenRefusal::Missing)),
    };
    let mut ours = None;
    let maps = std::fs::File::open("/proc/self/maps").map_err(refused)?;
    maps::each_line(maps, |line| {
        ours = maps::entry(line).filter(|mapping| mapping.name == VDSO);
        ours.is_none()
    })
    .map_err(refused)?;
    // 32-bit programs have another vDSO, which lies below 4 GiB.
    let is_long = |address: u64| address > u64::from(u32::MAX);
    let is_same_kind = |ours: &MapsEntry| {
        ours.end - ours.start == theirs.end.wrapping_sub(theirs.start)
            && is_long(ours.start) == is_long(theirs.start)
    };
    let ours = ours.filter(is_same_kind);
    let ours = ours.ok_or(NoNames::Refused(OpenRefusal::Missing))?;
    copied(&ours).map_err(|_| NoNames::Refused(OpenRefusal::Missing))
}

fn copied(mapping: &MapsEntry) -> std::io::Result<OpenedFile> {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use nix::sys::memfd::{MFdFlags, memfd_create};
    let mut bytes = vec![0; usize::try_from(mapping.end - mapping.start).unwrap_or_default()];
    std::fs::File::open("/proc/self/mem")?.read_exact_at(&mut bytes, mapping.start)?;
    let memory: OwnedFd = memfd_create(c"vdso", MFdFlags::MFD_CLOEXEC)?;
    let file = std::fs::File::from(memory);
    file.write_all_at(&bytes, 0)?;
    let length = file.metadata()?.size();
    // The same key for all processes: each copy is a new file, but its contents are the same.
    let key = FileKey { device: u64::MAX, inode: mapping.start, length, changed: (0, 0) };
    Ok(OpenedFile { file, key, owner: 0, links: 0 })
}

/// Returns the location of the file's start.
fn in_file(group: &Group<'_>) -> FileLocation {
    let path = OsStr::from_bytes(group.path).to_string_lossy();
    FileLocation { path: visible(&path, MAX_TEXT_BYTES).into(), offset: 0, build_id: None }
}

/// Returns the location of the start of a file that is gone, with the recorded build id.
fn in_gone_file(group: &Group<'_>) -> FileLocation {
    let build_id = group.recorded.and_then(|recorded| match &recorded.identity {
        Identity::BuildId(id) => Some(id.iter().map(|byte| format!("{byte:02x}")).collect()),
        Identity::Inode { .. } => None,
    });
    FileLocation { build_id, ..in_file(group) }
}

/// Makes the texts of frames visible. Drops frames without a function name, and all frames if the outermost
/// has none.
fn clean(frames: Vec<NamedFrame>) -> Vec<NamedFrame> {
    let visible_text = |text: String| match visible(&text, MAX_TEXT_BYTES) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(text) => text,
    };
    if frames.first().is_none_or(|outer| outer.function.is_empty()) {
        return Vec::new();
    }
    let named = frames.into_iter().filter(|frame| !frame.function.is_empty());
    named
        .map(|frame| NamedFrame {
            function: visible_text(frame.function),
            file: frame.file.map(visible_text),
            ..frame
        })
        .collect()
}

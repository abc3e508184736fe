//! The facts about this process that its filter compares with, at the time when the filter is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::unistd::{SysconfVar, sysconf};

use super::filter::Surroundings;
use super::sys;

/// Bytes below the start of the first stack that belong to it: the default of RLIMIT_STACK, which the kernel
/// leaves free at least.
const STACK_BYTES: u64 = 8 << 20;

/// Folder of links to the open descriptors of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The descriptors that a plugin's thread may write to, and may not replace: files, pipes, sockets and
/// terminals.
#[derive(Debug, Clone)]
pub struct Outputs(BTreeMap<u32, PathBuf>);

/// Numbers of descriptors that one plugin's thread alone writes to.
static OF_ONE_PLUGIN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A file that is no output of plugins, but of the one that [`Outputs::with`] adds it for.
#[derive(Debug)]
pub(crate) struct FileOfOne {
    file: File,
    number: u32,
}

impl FileOfOne {
    /// Keeps the file that this opens. Meanwhile nobody looks which outputs there are.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<FileOfOne> {
        let mut of_one = OF_ONE_PLUGIN.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open()?;
        let number = file.as_raw_fd().unsigned_abs();
        of_one.insert(number);
        Ok(FileOfOne { file, number })
    }
}

impl Deref for FileOfOne {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for FileOfOne {
    fn drop(&mut self) {
        OF_ONE_PLUGIN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Outputs {
    /// Returns those that are open for writing now. Without procfs, the three standard ones.
    pub fn open_now() -> Outputs {
        // Until all are listed.
        let of_one = OF_ONE_PLUGIN.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(listed) = fs::read_dir(DESCRIPTORS) else {
            return Outputs((0..3).map(|number| (number, PathBuf::new())).collect());
        };
        let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers = numbers.filter(|number| !of_one.contains(number) && sys::is_writable(*number));
        let outputs = numbers.filter_map(|number| {
            let link = link(number)?;
            // Events, maps and the like, and memory: libbpf reserves descriptors for maps so.
            let is_kernels = ["anon_inode:", "/memfd:"].iter().any(|kind| starts_with(&link, kind));
            (!is_kernels).then_some((number, link))
        });
        Outputs(outputs.collect())
    }

    /// Adds a descriptor that was opened since.
    #[must_use]
    pub fn with(mut self, descriptor: Option<BorrowedFd<'_>>) -> Outputs {
        let number = descriptor.map(|one| one.as_raw_fd().unsigned_abs());
        self.0.extend(number.and_then(|number| Some((number, link(number)?))));
        self
    }

    /// Returns the numbers, ascending, without those that belong to another file by now.
    fn numbers(&self) -> Vec<u32> {
        let is_same = |(number, file): &(&u32, &PathBuf)| link(**number).unwrap_or_default() == **file;
        self.0.iter().filter(is_same).map(|(number, _)| *number).collect()
    }
}

fn starts_with(link: &Path, text: &str) -> bool {
    link.as_os_str().as_encoded_bytes().starts_with(text.as_bytes())
}

/// Returns the link of an open descriptor, which names its file.
fn link(number: u32) -> Option<PathBuf> {
    fs::read_link(format!("{DESCRIPTORS}/{number}")).ok()
}

/// Returns the facts at this moment.
pub(super) fn now(outputs: &Outputs) -> Surroundings {
    Surroundings {
        process: std::process::id(),
        outputs: runs(&outputs.numbers()),
        image: disjoint(sys::loaded_objects().into_iter().chain(first_stack()).collect()),
    }
}

/// Returns the range of the first stack, with all above it: the kernel puts nothing there but its own pages.
///
/// Source: arch/x86/mm/mmap.c and mm/util.c, `mmap_base`, v6.18.
fn first_stack() -> Option<Range<u64>> {
    sys::first_stack().map(|address| address.saturating_sub(STACK_BYTES)..1 << 62)
}

/// Joins ascending, consecutive numbers to ranges, the last number included.
fn runs(numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    runs
}

/// Extends ranges of addresses to whole pages, sorts them, and joins those that overlap.
fn disjoint(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok());
    let within = page.unwrap_or(1) - 1;
    for range in &mut ranges {
        *range = range.start & !within..range.end.saturating_add(within) & !within;
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut disjoint: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match disjoint.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => disjoint.push(range),
        }
    }
    disjoint
}

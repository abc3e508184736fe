//! Compiles a script in a process without rights. It has the text, and the files of the kernel, which are opened before it
//! drops its rights; a file that the script names and that it has not is its answer, and the next process has it.
//!
//! Input and answer are a header of JSON, its length before it, and then the bytes that the header counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ks_compiler::source::{Disk, Files, MAX_FILE_BYTES};
use ks_host::apart::{self, Apart, Bounds};
use ks_host::confine::ReaderFiles;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::kept::Fresh;
use super::{Compiled, KernelFiles, Request, built};
use crate::apart::SELF;

/// First argument of a process that compiles a script.
pub(crate) const COMPILE: &str = "compile-script-for-host";

/// Limits for compiling one script.
const COMPILING: Bounds =
    Bounds { memory: 8 << 30, time: Duration::from_secs(600), threads: 4, answer: 256 << 20 };

/// Files that one script may name, and the bytes of all of them.
const MOST_FILES: usize = 1000;
const MOST_BYTES: u64 = 4 * MAX_FILE_BYTES as u64;

/// The input: the text of the script follows, then those of the files that could be read.
#[derive(Serialize, Deserialize)]
struct Input {
    request: Request,
    text: usize,
    /// The size of each file; none for one that cannot be read.
    files: BTreeMap<String, Option<usize>>,
}

/// The answer: the plugin follows, if there is one.
#[derive(Serialize, Deserialize)]
enum Answer {
    Compiled(Compiled),
    /// The script names these files, too.
    Needs(BTreeSet<String>),
}

/// Compiles a script whose files lie in this folder, with the kernel's types of the cache in that one.
///
/// # Errors
/// Of the process; for a script of too many files.
pub(super) fn compiled(
    request: &Request,
    text: &[u8],
    folder: &Disk,
    cache: Option<&Path>,
) -> anyhow::Result<Fresh> {
    let mut process = Apart::new(PathBuf::from(SELF));
    if let Some(cache) = cache {
        process = process.with_argument(std::path::absolute(cache)?);
    }
    let mut files: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    loop {
        let sizes = files.iter().map(|(path, file)| (path.clone(), file.as_ref().map(Vec::len))).collect();
        let input = Input { request: request.clone(), text: text.len(), files: sizes };
        let rest = [text].into_iter().chain(files.values().flatten().map(Vec::as_slice));
        let input = framed(&input, rest)?;
        let answer = process.ask(COMPILE, input, COMPILING)?;
        let (answer, plugin): (Answer, _) = unframed(&answer).context("its answer is not understood")?;
        let needs = match answer {
            Answer::Compiled(compiled) => {
                return Ok(Fresh { compiled, plugin: plugin.to_vec(), names_files: !files.is_empty() });
            }
            Answer::Needs(needs) => needs,
        };
        let before = files.len();
        for path in needs {
            let file = folder.read(&path);
            files.entry(path).or_insert(file);
        }
        let bytes: usize = files.values().flatten().map(Vec::len).sum();
        if files.len() == before || files.len() > MOST_FILES || bytes as u64 > MOST_BYTES {
            bail!("it names more files than a script may: {MOST_FILES}, and {MOST_BYTES} bytes");
        }
    }
}

/// Runs the process.
///
/// # Errors
/// As [`apart::serve`].
pub(crate) fn serve(arguments: &[OsString]) -> io::Result<()> {
    // After the two arguments that are those of every such process.
    let kernel = KernelFiles::open(arguments.get(2).map(Path::new));
    let most = MOST_BYTES + (MAX_FILE_BYTES as u64) + (1 << 20);
    apart::serve(arguments, most, ReaderFiles::Nothing, |input| {
        compile(&input, kernel).map_err(|error| error.to_string())
    })
}

fn compile(input: &[u8], kernel: KernelFiles) -> anyhow::Result<Vec<u8>> {
    let (input, mut rest): (Input, _) = unframed(input)?;
    let mut take = |size: usize| {
        let (taken, after) = rest.split_at_checked(size).context("it ends early")?;
        rest = after;
        Ok::<_, anyhow::Error>(taken.to_vec())
    };
    let text = take(input.text)?;
    let mut files = BTreeMap::new();
    for (path, size) in input.files {
        files.insert(path, size.map(&mut take).transpose()?);
    }
    let files = Arc::new(PassedFiles { files, missing: Mutex::default() });
    let named: Arc<dyn Files> = files.clone();
    let (compiled, plugin) = built(&input.request, &text, named, kernel);
    let missing = std::mem::take(&mut *files.missing.lock().unwrap_or_else(PoisonError::into_inner));
    if missing.is_empty() {
        framed(&Answer::Compiled(compiled), [plugin.as_slice()])
    } else {
        framed(&Answer::Needs(missing), [])
    }
}

/// The files of the input.
#[derive(Debug)]
struct PassedFiles {
    files: BTreeMap<String, Option<Vec<u8>>>,
    missing: Mutex<BTreeSet<String>>,
}

impl Files for PassedFiles {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        if let Some(file) = self.files.get(path) {
            return file.clone();
        }
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        None
    }
}

pub(super) fn framed<'a>(
    header: &impl Serialize,
    rest: impl IntoIterator<Item = &'a [u8]>,
) -> anyhow::Result<Vec<u8>> {
    let header = serde_json::to_vec(header)?;
    let mut all = u32::try_from(header.len())?.to_le_bytes().to_vec();
    all.extend(header);
    rest.into_iter().for_each(|part| all.extend(part));
    Ok(all)
}

pub(super) fn unframed<T: DeserializeOwned>(all: &[u8]) -> anyhow::Result<(T, &[u8])> {
    let (len, rest) = all.split_first_chunk().context("it is empty")?;
    let (header, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).context("it ends early")?;
    Ok((serde_json::from_slice(header)?, rest))
}

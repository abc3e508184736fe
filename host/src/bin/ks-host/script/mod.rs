//! `ks-host SCRIPT.ks`: compiles a script to a plugin in memory, for this machine and its running kernel.

mod kept;
pub(crate) mod process;

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail, ensure};
use ks_compiler::diag::render::{self, Style};
use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::object::btf::Btf;
use ks_compiler::pipeline::{self, Options, Target};
use ks_compiler::source::{Disk, Files, MAX_FILE_BYTES};
use ks_host::bpf::KERNEL_TYPES;
use ks_host::plugin::Cache;
use ks_wit::command_output::shown;
use ks_wit::section::Arch;

use serde::{Deserialize, Serialize};

use crate::apart::{Compiling, Isolation};
use crate::{EntryPoint, output};

/// Event lists of tracefs at its usual mount points; usually readable for root only.
const EVENT_LISTS: [&str; 2] =
    ["/sys/kernel/tracing/available_events", "/sys/kernel/debug/tracing/available_events"];

/// The compiler failed, and not because of the script.
#[derive(Debug, thiserror::Error)]
#[error("{name} could not be compiled because of a defect of the compiler")]
pub(crate) struct CompilerDefect {
    name: String,
}

/// What a script is compiled with.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Request {
    /// The path, for messages.
    name: String,
    project: String,
    tests: bool,
    /// Nanoseconds after which a script without `main` prints what it keeps.
    refresh: Option<u64>,
    /// Whether messages have colours.
    coloured: bool,
}

/// The result of compiling.
#[derive(Debug, Serialize, Deserialize)]
struct Compiled {
    messages: Vec<Message>,
    outcome: CompileOutcome,
    /// Whether it took the kernel's types, and no cache had them.
    has_read_types: bool,
}

/// An error or warning of the script, as text.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    is_error: bool,
    text: String,
}

#[derive(Debug, Serialize, Deserialize)]
enum CompileOutcome {
    /// The plugin's bytes are apart.
    Plugin,
    Errors,
    Defect,
    /// It cannot be read as a script, for this reason.
    Unreadable(String),
}

/// Name of the project of a script that has no file.
const UNNAMED_PROJECT: &str = "script";

/// Compiles a script to the bytes of a plugin: in a process without rights if plugins run in processes. Errors and
/// warnings of the script are shown on standard error.
pub(crate) fn compile(script: &Path, entry: EntryPoint, compiling: Compiling<'_>) -> anyhow::Result<Vec<u8>> {
    let text = ks_wit::files::read(script, MAX_FILE_BYTES as u64)
        .with_context(|| format!("cannot read {}", shown(script)))?;
    let project = script.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    ensure!(!project.is_empty(), "{} has no name that is text", shown(script));
    let folder = script.parent().unwrap_or(Path::new("")).to_owned();
    compile_in(&request(script, project, entry), &text, Disk { folder }, compiling)
}

/// As [`compile`], for a script that has no file; the files that it names lie in the current folder.
pub(crate) fn compile_text(
    name: &Path,
    text: &[u8],
    entry: EntryPoint,
    compiling: Compiling<'_>,
) -> anyhow::Result<Vec<u8>> {
    compile_in(&request(name, UNNAMED_PROJECT, entry), text, Disk::default(), compiling)
}

fn request(name: &Path, project: &str, entry: EntryPoint) -> Request {
    Request {
        name: name.display().to_string(),
        project: project.to_owned(),
        tests: entry == EntryPoint::Tests,
        refresh: match entry {
            EntryPoint::Refreshed(period) => u64::try_from(period.as_nanos()).ok(),
            EntryPoint::Main | EntryPoint::Tests => None,
        },
        coloured: !output::is_json() && is_coloured(),
    }
}

fn compile_in(
    request: &Request,
    text: &[u8],
    files: Disk,
    Compiling { isolation, cache }: Compiling<'_>,
) -> anyhow::Result<Vec<u8>> {
    let script = Path::new(&request.name);
    let folder = cache.map(Cache::path);
    let (compiled, plugin) = match isolation {
        Isolation::Thread => built(request, text, Arc::new(files), KernelFiles::open(folder)),
        Isolation::Process => kept::or_compiled(request, text, cache, || {
            process::compiled(request, text, &files, folder)
                .with_context(|| format!("{} is not compiled", shown(script)))
        })?,
    };
    if compiled.has_read_types
        && let Some(Err(error)) = cache.map(Cache::keep_types)
    {
        tracing::debug!(target: "ks_host", "{error}");
    }
    show(&compiled.messages);
    match compiled.outcome {
        CompileOutcome::Plugin => Ok(plugin),
        CompileOutcome::Defect => Err(CompilerDefect { name: shown(script) }.into()),
        CompileOutcome::Errors => bail!("{} has errors", shown(script)),
        CompileOutcome::Unreadable(reason) => bail!(reason),
    }
}

/// Compiles a script. Returns the result, and the plugin's bytes.
fn built(request: &Request, text: &[u8], files: Arc<dyn Files>, kernel: KernelFiles) -> (Compiled, Vec<u8>) {
    let has_read_types = kernel.has_read_types.clone();
    let options = Options {
        files,
        kernel: Arc::new(kernel.types()),
        tests: request.tests,
        refresh: request.refresh,
        ..Options::new(&request.project)
    };
    let mut checked = match pipeline::parse(&request.name, text, options) {
        Ok(parsed) => parsed.check(),
        Err(error) => {
            let outcome = CompileOutcome::Unreadable(error.to_string());
            return (Compiled { messages: Vec::new(), outcome, has_read_types: false }, Vec::new());
        }
    };
    let built = checked.build(Arch::HOST.map_or(Target::default(), Target::from).for_users());
    let style = if request.coloured { Style::Coloured } else { Style::Plain };
    let message = |diagnostic: &Diagnostic| Message {
        is_error: diagnostic.severity == Severity::Error,
        text: render::render(diagnostic, &checked.sources, style),
    };
    let messages = checked.diagnostics.sorted().into_iter().map(message).collect();
    let (outcome, plugin) = match built {
        Ok(built) => (CompileOutcome::Plugin, built.plugin),
        Err(_) if checked.diagnostics.has_defect() => (CompileOutcome::Defect, Vec::new()),
        Err(_) => (CompileOutcome::Errors, Vec::new()),
    };
    let has_read_types = has_read_types.load(Ordering::Relaxed);
    (Compiled { messages, outcome, has_read_types }, plugin)
}

/// The running kernel's types and events, as files that are read when the script needs them.
struct KernelFiles {
    /// The types in the cache.
    image: Option<Btf>,
    types: Option<File>,
    events: Vec<File>,
    /// Whether the types were read that are not in the cache.
    has_read_types: Arc<AtomicBool>,
}

impl KernelFiles {
    /// Opens the files; `cache` is the folder of the cache.
    fn open(cache: Option<&Path>) -> KernelFiles {
        let events = EVENT_LISTS.iter().filter_map(|path| File::open(path).ok()).collect();
        let image = cache.and_then(Cache::types_in);
        let types = if image.is_some() { None } else { File::open(KERNEL_TYPES).ok() };
        KernelFiles { image, types, events, has_read_types: Arc::default() }
    }

    fn types(self) -> KernelTypes {
        let KernelFiles { image, types, events, has_read_types } = self;
        let types = move || {
            if let Some(image) = image {
                return Some(Ok(image));
            }
            let mut bytes = Vec::new();
            types?.read_to_end(&mut bytes).ok()?;
            has_read_types.store(true, Ordering::Relaxed);
            Some(Btf::parse(bytes))
        };
        let events = move || {
            let mut lists = events.into_iter().filter_map(|file| io::read_to_string(file).ok());
            lists.find(|list| !list.is_empty())
        };
        KernelTypes::opened(types).with_events(events)
    }
}

fn is_coloured() -> bool {
    io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn show(messages: &[Message]) {
    let mut stderr = io::stderr().lock();
    for Message { is_error, text } in messages {
        match (output::is_json(), is_error) {
            (true, true) => output::report("ks-host", text),
            (true, false) => output::warn("ks-host", text),
            // If standard error is closed, only the exit code can report the failure.
            (false, _) => _ = writeln!(stderr, "{text}\n"),
        }
    }
}

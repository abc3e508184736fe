//! `ks-host SCRIPT.ks`: compiles a script to a plugin in memory, for this machine and its running kernel.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ks_compiler::diag::Severity;
use ks_compiler::diag::render::{self, Style};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{self, Checked, Options, Target};
use ks_compiler::source::{Files, MAX_FILE_BYTES};
use ks_wit::command_output::shown;
use ks_wit::section::Arch;

use crate::{EntryPoint, output};

/// File of the running kernel's BTF types.
const OWN_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Event lists of tracefs at its usual mount points; usually readable for root only.
const EVENT_LISTS: [&str; 2] =
    ["/sys/kernel/tracing/available_events", "/sys/kernel/debug/tracing/available_events"];

/// The compiler failed, and not because of the script.
#[derive(Debug, thiserror::Error)]
#[error("{name} could not be compiled because of a defect of the compiler")]
pub(crate) struct CompilerDefect {
    name: String,
}

/// Compiles a script to the bytes of a plugin. Errors and warnings of the script are shown on standard error.
pub(crate) fn compile(script: &Path, entry: EntryPoint) -> anyhow::Result<Vec<u8>> {
    let name = script.display().to_string();
    let text = std::fs::read(script).with_context(|| format!("cannot read {}", shown(script)))?;
    let project = script.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    ensure!(!project.is_empty(), "{} has no name that is text", shown(script));
    let kernel = KernelTypes::fetched(|| std::fs::read(OWN_BTF).ok()).with_events(own_events);
    let options = Options {
        files: Arc::new(ScriptFolder { folder: script.parent().unwrap_or(Path::new("")).to_owned() }),
        kernel: Arc::new(kernel),
        tests: entry == EntryPoint::Tests,
        ..Options::new(project)
    };
    let mut checked = pipeline::parse(&name, &text, options)?.check();
    let built = checked.build(Arch::HOST.map_or(Target::default(), Target::from).for_users());
    show(&checked);
    match built {
        Ok(built) => Ok(built.plugin),
        Err(_) if checked.diagnostics.has_defect() => Err(CompilerDefect { name: shown(script) }.into()),
        Err(_) => bail!("{} has errors", shown(script)),
    }
}

/// The folder of a script: modules and headers are looked up by their paths relative to it.
#[derive(Debug)]
struct ScriptFolder {
    folder: PathBuf,
}

impl Files for ScriptFolder {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = self.folder.join(path);
        let small = std::fs::metadata(&path)
            .is_ok_and(|found| found.is_file() && found.len() <= MAX_FILE_BYTES as u64);
        // An unreadable file counts as missing: the diagnostic points to the line that names it.
        small.then(|| std::fs::read(path).ok()).flatten()
    }
}

fn own_events() -> Option<String> {
    let mut lists = EVENT_LISTS.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    lists.find(|list| !list.is_empty())
}

fn show(checked: &Checked) {
    if output::is_json() {
        for diagnostic in checked.diagnostics.sorted() {
            let text = render::render(diagnostic, &checked.sources, Style::Plain);
            match diagnostic.severity {
                Severity::Error => output::report("ks-host", &text),
                Severity::Warning => output::warn("ks-host", &text),
            }
        }
        return;
    }
    let mut stderr = io::stderr().lock();
    let plain = !stderr.is_terminal()
        || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let style = if plain { Style::Plain } else { Style::Coloured };
    for diagnostic in checked.diagnostics.sorted() {
        // If standard error is closed, only the exit code can report the failure.
        let _ = writeln!(stderr, "{}\n", render::render(diagnostic, &checked.sources, style));
    }
}

//! Locations of scripts and of the kernel's types on this machine, and atomic writing of files.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{self, Options, Parsed};
use ks_compiler::source::{Disk, MAX_FILE_BYTES};
use ks_wit::command_output::{shown, write_stdout};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::report;

/// The BTF of the running kernel.
const OWN_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Event lists in the usual mount points of tracefs; readable for root only.
const EVENT_LISTS: [&str; 2] =
    ["/sys/kernel/tracing/available_events", "/sys/kernel/debug/tracing/available_events"];

/// The script and its options.
#[derive(Clone, Debug, clap::Args)]
pub struct ScriptArgs {
    /// The script
    pub file: PathBuf,
    #[command(flatten)]
    pub options: ScriptOptions,
}

/// Options of the compilation of scripts.
#[derive(Clone, Debug, clap::Args)]
pub struct ScriptOptions {
    /// Reject everything that is not part of KernelScript 0.1.1
    #[arg(long)]
    strict_011: bool,
    /// Also search this folder for headers, after the folder of the file that includes them
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// The name of the plugin and of the folder of its pins; by default the script's name
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Compile the `@test` functions instead of `main`
    #[arg(long)]
    test: bool,
    /// Report the files that were read, and the numbers of functions and maps
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

impl ScriptArgs {
    /// Returns the same arguments for compiling the `@test` functions.
    pub fn tests(&self) -> ScriptArgs {
        ScriptArgs { file: self.file.clone(), options: ScriptOptions { test: true, ..self.options.clone() } }
    }

    /// Reads and parses the script.
    pub fn parse(&self) -> Result<Parsed> {
        self.options.parse(&self.file)
    }

    /// Returns the project's name.
    pub fn project(&self) -> Result<String> {
        self.options.project(&self.file)
    }
}

/// Bytes of a component, or of a file with types of a kernel.
pub const MOST_PLUGIN_BYTES: u64 = 256 << 20;

impl ScriptOptions {
    /// Whether the `@test` functions are compiled.
    pub fn is_test(&self) -> bool {
        self.test
    }

    /// Reads and parses a script.
    pub fn parse(&self, file: &Path) -> Result<Parsed> {
        let text = ks_wit::files::read(file, MAX_FILE_BYTES as u64)
            .with_context(|| format!("cannot read {}", shown(file)))?;
        self.parse_text(file, &text)
    }

    /// Parses the text of a script, which need not be in a file of this name.
    pub fn parse_text(&self, file: &Path, text: &[u8]) -> Result<Parsed> {
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        let options = Options {
            strict_011: self.strict_011,
            tests: self.test,
            files: Arc::new(Disk { folder }),
            include: self.include.iter().map(|folder| whole(folder)).collect::<Result<_>>()?,
            kernel: Arc::new(self.kernel.types()?),
            ..Options::new(self.project(file)?)
        };
        Ok(pipeline::parse(&file.display().to_string(), text, options)?)
    }

    /// Returns the project's name: the one given, else the script's without its extension.
    fn project(&self, file: &Path) -> Result<String> {
        if let Some(name) = &self.project {
            // The name becomes a folder's name.
            let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
            ensure!(plain, "a project's name is not empty and has no `/`");
            return Ok(name.clone());
        }
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        ensure!(!name.is_empty(), "{} has no name that is text", shown(file));
        Ok(name.to_owned())
    }
}

/// Returns the absolute path of a folder, which is relative to the current folder, not to the script.
pub fn whole(folder: &Path) -> Result<String> {
    let path = std::path::absolute(folder).with_context(|| format!("cannot use {}", shown(folder)))?;
    path.into_os_string().into_string().map_err(|path| anyhow!("{} is not text", shown(path)))
}

/// The kernel that scripts are compiled for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KernelArgs {
    /// The BTF file with the kernel's types; by default that of the running kernel, /sys/kernel/btf/vmlinux
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// KernelScript 0.1.1's spelling of `--btf`
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "btf")]
    btf_vmlinux_path: Option<PathBuf>,
}

impl KernelArgs {
    /// Returns the types of that kernel. A file on the command line must be valid BTF. The running kernel's
    /// BTF is read when the script first needs it, and may be missing.
    pub fn types(&self) -> Result<KernelTypes> {
        if self.btf_vmlinux_path.is_some() {
            report::old_spelling("--btf-vmlinux-path FILE", "write `--btf FILE`");
        }
        match self.btf.as_ref().or(self.btf_vmlinux_path.as_ref()) {
            Some(file) => from_file(file),
            None => {
                let kernel = KernelTypes::fetched(|| std::fs::read(OWN_BTF).ok());
                Ok(kernel.with_events(own_events))
            }
        }
    }
}

fn from_file(file: &Path) -> Result<KernelTypes> {
    let bytes = ks_wit::files::read(file, MOST_PLUGIN_BYTES)
        .with_context(|| format!("cannot read {}", shown(file)))?;
    KernelTypes::from_btf(bytes).with_context(|| format!("{} cannot be used as BTF", shown(file)))
}

/// Returns the events of the running kernel, if its tracefs can be read.
fn own_events() -> Option<String> {
    let mut lists = EVENT_LISTS.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    lists.find(|list| !list.is_empty())
}

/// Whether a file's name means standard output.
pub fn is_standard_output(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Writes a plugin to a file, or to standard output, but not to a terminal.
pub fn write_output(file: &Path, plugin: &[u8]) -> Result<()> {
    if !is_standard_output(file) {
        return write_whole(file, plugin);
    }
    ensure!(
        !io::stdout().is_terminal(),
        "a plugin is not text for a terminal: send it on (`| ks-host inspect /dev/stdin`), or to a file (-o \
         FILE)"
    );
    Ok(write_stdout(plugin)?)
}

/// Writes a file so that a reader sees the old content or the new one, never a part. A device or a pipe is
/// written directly: a rename would replace it by a regular file.
pub fn write_whole(file: &Path, bytes: &[u8]) -> Result<()> {
    if file.metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(file, bytes).with_context(|| format!("cannot write {}", shown(file)));
    }
    let mut name = file.file_name().map(std::ffi::OsStr::to_owned).unwrap_or_default();
    name.push(format!(".{}.part", std::process::id()));
    let part = file.with_file_name(name);
    let written = write_part(&part, bytes).and_then(|()| std::fs::rename(&part, file));
    if written.is_err() {
        // Removes the partial file; the caller reports the first error.
        let _ = std::fs::remove_file(&part);
    }
    written.with_context(|| format!("cannot write {}", shown(file)))
}

/// Writes a new file that gets its name only when it is complete, so that a killed process leaves none. On
/// file systems without unnamed files (NFS) it has the name from the start.
///
/// Source: open(2), `O_TMPFILE`, and its example with linkat(2).
fn write_part(part: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = part.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(unnamed) = rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) else {
        return std::fs::write(part, bytes);
    };
    let mut unnamed = File::from(unnamed);
    unnamed.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
    match rustix::fs::linkat(CWD, path, CWD, part, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(()),
        // There is no /proc, or an earlier process with this process id was killed here.
        Err(_) => std::fs::write(part, bytes),
    }
}

//! `ks init`: a folder with a script to start from.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ks_compiler::init::{self, KINDS, Options};

use crate::files::KernelArgs;

#[derive(clap::Args)]
#[command(after_help = kinds_help())]
pub struct Args {
    /// The kind of program, as in the list below
    kind: String,
    /// The folder to make; its last part names the script
    name: PathBuf,
    #[command(flatten)]
    kernel: KernelArgs,
    /// Also declare the kernel functions that such programs may call, as far as the BTF tells
    #[arg(long)]
    kfuncs: bool,
}

fn kinds_help() -> String {
    let width = KINDS.iter().map(|(kind, _)| kind.len()).max().unwrap_or_default();
    let lines = KINDS.iter().map(|(kind, what)| format!("  {kind:width$}  {what}\n"));
    format!(
        "Kinds:\n{}  and the name of any other struct_ops type of the kernel\n\nExamples:\n  ks init xdp packets\n  \
         ks init probe/vfs_read reads",
        lines.collect::<String>()
    )
}

/// Writes the files of a new script.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = &args.name;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let options = Options { kfuncs: args.kfuncs };
    let files = init::starter(&args.kind, name, &args.kernel.types()?, options)?;
    make_empty(folder)?;
    for (path, text) in &files {
        let path = folder.join(path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder, or takes one that is there and empty: nothing of the user's is overwritten.
fn make_empty(folder: &Path) -> Result<()> {
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                bail!("{} is not empty: name another folder", folder.display());
            }
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))
        }
        Err(error) => Err(error).with_context(|| format!("cannot use {}", folder.display())),
    }
}

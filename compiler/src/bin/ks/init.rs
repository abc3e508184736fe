//! `ks init`: creates a folder with a new script, or with a plugin in Rust.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use ks_compiler::init::{self, KINDS, Options};
use ks_wit::command_output::{shown, write_lines};

use crate::files::KernelArgs;

#[derive(clap::Args)]
#[command(after_help = kinds_help())]
pub struct Args {
    /// The kind of program, from the list below, or `rust` for a plugin in Rust
    kind: String,
    /// The folder to create; its last component is the name of the script
    name: PathBuf,
    #[command(flatten)]
    kernel: KernelArgs,
    /// Also declare the kernel functions that such programs may call, as far as the BTF marks them
    #[arg(long)]
    kfuncs: bool,
    /// For `rust`: the folder of the crate `ks-guest`; by default the one in the source tree that this
    /// command was built from
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
}

/// The path of the crate `ks-guest` when this command was built.
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk");

fn kinds_help() -> String {
    let width = KINDS.iter().map(|kind| kind.form.len()).max().unwrap_or_default();
    let lines = KINDS.iter().map(|kind| format!("  {:width$}  {}\n", kind.form, kind.description));
    format!(
        "Kinds:\n{}  and the name of any other struct_ops type of the kernel\n\nExamples:\n  ks init xdp \
         packets\n  \
         ks init probe/vfs_read reads\n  ks init rust hello",
        lines.collect::<String>()
    )
}

/// Writes the files of a new script.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = &args.name;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let files = if args.kind == "rust" {
        init::rust::project(name, &sdk(args.sdk.as_deref())?)?
    } else {
        if args.sdk.is_some() {
            bail!("--sdk says where the crate of plugins in Rust is: `ks init rust NAME --sdk FOLDER`");
        }
        let options = Options { kfuncs: args.kfuncs };
        init::starter(&args.kind, name, &args.kernel.types()?, options)?
    };
    make_empty(folder)?;
    for (path, text) in &files {
        let path = folder.join(path);
        if let Some(inside) = path.parent() {
            let created = fs::create_dir_all(inside);
            created.with_context(|| format!("cannot make the folder {}", shown(inside)))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", shown(&path)))?;
        write_lines(&format!("{}\n", shown(path)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the absolute path of the crate `ks-guest`, as text for a manifest.
fn sdk(named: Option<&Path>) -> Result<String> {
    let folder = named.unwrap_or(Path::new(SDK));
    let found = folder.canonicalize().ok().filter(|folder| folder.join("Cargo.toml").exists());
    let Some(found) = found else {
        bail!("the crate ks-guest is not in {}: name its folder with --sdk", shown(folder));
    };
    found.into_os_string().into_string().map_err(|found| {
        anyhow!("a manifest cannot name the folder {}: its path is not text", found.to_string_lossy())
    })
}

/// Creates the folder, or accepts an empty one: no file of the user is overwritten.
fn make_empty(folder: &Path) -> Result<()> {
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                bail!("{} is not empty: name another folder", shown(folder));
            }
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", shown(folder)))
        }
        Err(error) => Err(error).with_context(|| format!("cannot use {}", shown(folder))),
    }
}

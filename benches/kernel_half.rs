//! The kernel half beside C with the same results, compiled by `clang -O2 -mcpu=v3`.
//!
//! For every program of `benches/c`, with the script of the same name:
//!
//! - instructions of the object;
//! - nanoseconds of a run on demand (BPF_PROG_TEST_RUN), the best of several rounds in turn;
//! - what a first run of both left in maps and global variables, and its result: `same`, or what differs;
//!   `same but times` where both keep what the clock said;
//! - the time to compile, as a part of clang's from the start of its process to its exit with one object written, the
//!   shortest of several each: `half` is the script to one object in process, the work that clang does; `lib` is the whole
//!   plugin in process, so also the userspace half, the component and the manifest, for which the C file has nothing;
//!   `ks` is the command from start to exit, whole plugin and file included. All for one architecture, and as users
//!   compile, without the checks that tests add. The headers that clang reads count for clang: no such C does without.
//!   Both write a new file each time: how long it takes to free the blocks of an old one is the disk's. Both are
//!   installed: `ks` is a copy, as a program that the linker has written through a mapping lies in memory page by page and
//!   runs a fifth longer. The last line has the largest of each.
//!
//! `-` where the kernel has no runs on demand for the kind of program, or the program looks at a context of its own kind.
//! Needs root for the runs, and clang with the headers of libbpf (`scripts/packages clang libbpf`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ks_benches::commands;
use ks_benches::machine::Machine;
use ks_benches::object_pair::{self, ObjectPair};
use ks_benches::record::{self, Record};
use ks_compiler::kernel::{self, Checks, Listings};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{Options, Target, parse};
use ks_compiler::split::split;
use ks_wit::section::Arch;

/// The running kernel's types.
const OWN_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Compilations of which the shortest counts.
const COMPILATIONS: usize = 20;

fn main() -> Result<()> {
    println!("machine: {}\n", Machine::here());
    println!(
        "{:<16} {:>6} {:>6} {:>5}  {:>7} {:>7} {:>5}  {:>8} {:>6} {:>6} {:>6}  results",
        "script", "ks", "clang", "ratio", "ks ns", "clang", "ratio", "compile", "half", "lib", "ks"
    );
    // What a load that fails says is in the table.
    libbpf_rs::set_print(None);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let work = tempfile::tempdir().context("cannot make a temporary folder")?;
    write_header(work.path())?;
    std::fs::copy(commands::path("ks")?, work.path().join("ks")).context("cannot copy ks")?;
    all(&root, work.path())
}

fn all(root: &Path, work: &Path) -> Result<()> {
    let mut sums = (0, 0);
    let mut ratios = Vec::new();
    let mut records = Vec::new();
    let mut largest = [0.0f64; 3];
    let wanted = std::env::var("KS_TWIN").unwrap_or_default();
    for c in object_pair::sources(root)? {
        let name = c.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        if !name.contains(&wanted) {
            continue;
        }
        let script = object_pair::script(root, &name)?;
        let output = |iteration, extension| work.join(format!("{name}.{iteration}.{extension}"));
        let (elf, half) = best(|_| kernel_half(&script))?;
        let ((), lib) = best(|_| plugin(&script))?;
        let (object, clang) = best(|iteration| clang(&c, work, output(iteration, "o")))?;
        let ((), command) = best(|iteration| ks(&script, work, &output(iteration, "wasm")))?;
        let clang_elf = std::fs::read(object).context("clang has left no object")?;
        let times = object_pair::times(&c)?;
        let pair = ObjectPair { elf: &elf, clang: &clang_elf, times: &times };
        let (ours, theirs) = pair.instructions()?;
        sums = (sums.0 + ours, sums.1 + theirs);
        let times = [("half", half), ("in-process", lib), ("process", command), ("clang", clang)];
        let figure = |(who, time): (&str, Duration)| {
            Record::new(format!("compile/{name}/{who}"), time.as_secs_f64() * 1e3, "ms")
        };
        records.extend(times.map(figure));
        let parts = [half, lib, command].map(|time| 100.0 * time.as_secs_f64() / clang.as_secs_f64());
        largest.iter_mut().zip(parts).for_each(|(largest, part)| *largest = largest.max(part));
        let [half, lib, command] = parts;
        let measured = pair.measure()?;
        let times = match measured.times {
            Some((ours, theirs)) => {
                ratios.push(ours / theirs);
                format!("{ours:>7.1} {theirs:>7.1} {:>5.2}", ours / theirs)
            }
            None => format!("{:>7} {:>7} {:>5}", "-", "-", "-"),
        };
        println!(
            "{name:<16} {ours:>6} {theirs:>6} {:>5.2}  {times}  {:>6.0}ms {half:>5.2}% {lib:>5.2}% {command:>5.2}%  {}",
            ours as f64 / theirs as f64,
            clang.as_secs_f64() * 1e3,
            measured.comparison,
        );
    }
    let mean = (ratios.iter().map(|ratio: &f64| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    println!(
        "{:<16} {:>6} {:>6} {:>5.2}  {:>7} {:>7} {mean:>5.2}  {:>8} {:>5.2}% {:>5.2}% {:>5.2}%",
        "sum",
        sums.0,
        sums.1,
        f64::from(sums.0) / f64::from(sums.1),
        "",
        "",
        "",
        largest[0],
        largest[1],
        largest[2],
    );
    println!("sums of instructions, geometric mean of runs, the largest part of clang's time to compile");
    record::leave("kernel_half", &records)
}

/// The result of the last run and the shortest time. A run knows how many were before it.
fn best<T>(mut run: impl FnMut(usize) -> Result<T>) -> Result<(T, Duration)> {
    let mut shortest = Duration::MAX;
    let mut result = None;
    for iteration in 0..COMPILATIONS {
        let start = Instant::now();
        result = Some(run(iteration)?);
        shortest = shortest.min(start.elapsed());
    }
    Ok((result.context("it was run")?, shortest))
}

/// As `ks` compiles: the kernel's types are read if the script asks about them.
fn options() -> Options {
    let kernel = KernelTypes::fetched(|| std::fs::read(OWN_TYPES).ok());
    Options { kernel: Arc::new(kernel), ..Options::new("script") }
}

/// What C with `#include "vmlinux.h"` reads of the kernel's types.
fn write_header(work: &Path) -> Result<()> {
    let output = Command::new("bpftool")
        .args(["btf", "dump", "file", OWN_TYPES, "format", "c"])
        .output()
        .context("cannot run bpftool: `scripts/packages bpftool` installs it")?;
    ensure!(output.status.success(), "bpftool: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(work.join("vmlinux.h"), output.stdout).context("cannot write vmlinux.h")
}

/// The script to its object, as clang makes one of C.
fn kernel_half(script: &Path) -> Result<Vec<u8>> {
    let text = std::fs::read(script)?;
    let checked = parse("script.ks", &text, options())?.check();
    let hir = checked.hir.with_context(|| format!("{}: {:?}", script.display(), checked.diagnostics))?;
    let arch = Arch::HOST.context("the machine is none that plugins run on")?;
    let machine = kernel::Machine { checks: Checks::LastStage, listings: Listings::None, ..arch.into() };
    let object = kernel::compile(&hir, &split(&hir), &checked.sources, machine);
    match object {
        Ok(object) => Ok(object.elf().to_vec()),
        Err(reasons) => bail!("{}: {reasons:?}", script.display()),
    }
}

/// The script to its plugin.
fn plugin(script: &Path) -> Result<()> {
    let text = std::fs::read(script)?;
    let mut checked = parse("script.ks", &text, options())?.check();
    if checked.build(Arch::HOST.map_or(Target::default(), Target::from).for_users()).is_err() {
        bail!("{}: {:?}", script.display(), checked.diagnostics);
    }
    Ok(())
}

/// A C file to its object, whose path is the answer.
fn clang(source: &Path, work: &Path, object: PathBuf) -> Result<PathBuf> {
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let status = Command::new("clang")
        .args(["-g", "-O2", "-mcpu=v3", "-target", "bpf", &headers, "-I"])
        .arg(work)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .context("cannot run clang: `scripts/packages clang libbpf` installs it")?;
    ensure!(status.success(), "clang refuses {}", source.display());
    Ok(object)
}

fn ks(script: &Path, work: &Path, plugin: &Path) -> Result<()> {
    let output = Command::new(work.join("ks"))
        .args(["build", "--arch", std::env::consts::ARCH])
        .arg(script)
        .arg("-o")
        .arg(plugin)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

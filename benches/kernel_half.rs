//! The kernel half compared with C of the same results, compiled by `clang -O2 -mcpu=v3`.
//!
//! For every program of `benches/c` and the script of the same name:
//!
//! - instructions of the object;
//! - instructions that the running kernel's verifier follows to accept it (`verified`);
//! - nanoseconds of a test run (BPF_PROG_TEST_RUN), the best of several alternating measurements;
//! - the comparison of the result, the maps and the global variables after a first run of both: `same`, or
//!   the differences; `same but times` where both store clock readings;
//! - the compile time relative to clang's, from the start of its process to its exit with one object written;
//!   the shortest of several for each. `half` compiles the script to one object in process, which is the work
//!   that clang does. `lib` compiles the whole plugin in process, including the userspace half, the component
//!   and the manifest, which the C file does not have. `ks` is the command from start to exit, including the
//!   plugin and its file. Each compiles for one architecture, and as users compile, without the checks that
//!   tests add. clang's time includes the headers that it reads, because no such C does without them. Each
//!   run writes a new file: the time to free the blocks of an old one belongs to the disk. Both are
//!   installed: `ks` is a copy, because a program that the linker has written through a mapping is fragmented
//!   in memory and runs a fifth longer. The last line has the largest of each.
//!
//! `-` where the kernel has no test runs for the program kind, or the program uses a context of its own kind.
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

/// BTF of the running kernel.
const OWN_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Compilations per measurement, of which the shortest counts.
const COMPILATIONS: usize = 20;

fn main() -> Result<()> {
    println!("machine: {}\n", Machine::here());
    println!(
        "{:<16} {:>6} {:>6} {:>5}  {:>8} {:>7} {:>5}  {:>7} {:>7} {:>5}  {:>8} {:>6} {:>6} {:>6}  results",
        "script",
        "ks",
        "clang",
        "ratio",
        "verified",
        "clang",
        "ratio",
        "ks ns",
        "clang",
        "ratio",
        "compile",
        "half",
        "lib",
        "ks"
    );
    // The table reports load failures.
    libbpf_rs::set_print(None);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let work = tempfile::tempdir().context("cannot make a temporary folder")?;
    write_header(work.path())?;
    std::fs::copy(commands::path("ks")?, work.path().join("ks")).context("cannot copy ks")?;
    all(&root, work.path())
}

fn all(root: &Path, work: &Path) -> Result<()> {
    let mut sums = (0, 0);
    let mut all_verified = (0, 0);
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
        let verified = match measured.verified {
            Some((ours, theirs)) => {
                all_verified = (all_verified.0 + ours, all_verified.1 + theirs);
                format!("{ours:>8} {theirs:>7} {:>5.2}", f64::from(ours) / f64::from(theirs))
            }
            None => format!("{:>8} {:>7} {:>5}", "-", "-", "-"),
        };
        println!(
            "{name:<16} {ours:>6} {theirs:>6} {:>5.2}  {verified}  {times}  {:>6.0}ms {half:>5.2}% {lib:>5.2}% \
             {command:>5.2}%  {}",
            ours as f64 / theirs as f64,
            clang.as_secs_f64() * 1e3,
            measured.comparison,
        );
    }
    let mean = (ratios.iter().map(|ratio: &f64| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    println!(
        "{:<16} {:>6} {:>6} {:>5.2}  {:>8} {:>7} {:>5.2}  {:>7} {:>7} {mean:>5.2}  {:>8} {:>5.2}% {:>5.2}% {:>5.2}%",
        "sum",
        sums.0,
        sums.1,
        f64::from(sums.0) / f64::from(sums.1),
        all_verified.0,
        all_verified.1,
        f64::from(all_verified.0) / f64::from(all_verified.1),
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

/// Returns the last run's result and the shortest time. Each run receives its number, from 0.
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

/// The options of `ks`: reads the kernel's types if the script needs them.
fn options() -> Options {
    let kernel = KernelTypes::fetched(|| std::fs::read(OWN_TYPES).ok());
    Options { kernel: Arc::new(kernel), ..Options::new("script") }
}

/// Writes the `vmlinux.h` that C includes for the kernel's types.
fn write_header(work: &Path) -> Result<()> {
    let output = Command::new("bpftool")
        .args(["btf", "dump", "file", OWN_TYPES, "format", "c"])
        .output()
        .context("cannot run bpftool: `scripts/packages bpftool` installs it")?;
    ensure!(output.status.success(), "bpftool: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(work.join("vmlinux.h"), output.stdout).context("cannot write vmlinux.h")
}

/// Compiles a script to its object, which is what clang does with C.
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

/// Compiles a script to its plugin.
fn plugin(script: &Path) -> Result<()> {
    let text = std::fs::read(script)?;
    let mut checked = parse("script.ks", &text, options())?.check();
    if checked.build(Arch::HOST.map_or(Target::default(), Target::from).for_users()).is_err() {
        bail!("{}: {:?}", script.display(), checked.diagnostics);
    }
    Ok(())
}

/// Compiles a C file to an object, and returns the object's path.
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

//! How the verifier's work and the compiler's time grow with a script (`ks_tests::growing_scripts`).
//!
//! For each size: instructions of the object, instructions that the running kernel's verifier follows, and the time to
//! compile the kernel half in process, the best of several. The last two columns compare what each unit costs with what
//! it costs in the second size: 1.0 means linear growth. Needs root.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ks_benches::machine::Machine;
use ks_benches::object_pair;
use ks_benches::record::{self, Record};
use ks_compiler::kernel::{self, Checks, Listings};
use ks_compiler::pipeline::{Options, parse};
use ks_compiler::split::split;
use ks_tests::growing_scripts::GROWING;
use ks_tests::runs;
use ks_wit::section::Arch;
use libbpf_rs::ObjectBuilder;

/// Compilations per size, of which the shortest counts.
const COMPILATIONS: usize = 5;

fn main() -> Result<()> {
    println!("machine: {}\n", Machine::here());
    println!(
        "{:<8} {:>5} {:>12} {:>10} {:>10} {:>9} {:>9}",
        "script", "size", "instructions", "verified", "compile", "verified", "compile"
    );
    let mut records = Vec::new();
    for kind in &GROWING {
        let mut figures = Vec::new();
        for size in kind.sizes {
            let script = (kind.script)(size);
            let (elf, time) = best(&script)?;
            let object = ObjectBuilder::default().open_memory(&elf)?.load()?;
            let instructions = object_pair::instructions(&elf)?;
            let verified = runs::verified(&object)?;
            figures.push((size, instructions, verified, time));
        }
        let (size, _, verified, time) = figures[1];
        let unit = (f64::from(verified) / size as f64, time.as_secs_f64() / size as f64);
        for (size, instructions, verified, time) in figures {
            let milliseconds = time.as_secs_f64() * 1e3;
            let growth =
                (f64::from(verified) / size as f64 / unit.0, time.as_secs_f64() / size as f64 / unit.1);
            println!(
                "{:<8} {size:>5} {instructions:>12} {verified:>10} {milliseconds:>7.1} ms {:>8.2}x {:>8.2}x",
                kind.name, growth.0, growth.1
            );
            let case = format!("{}/{size}", kind.name);
            records.push(Record::new(format!("{case}/verified"), f64::from(verified), "instructions"));
            records.push(Record::new(format!("{case}/compile"), milliseconds, "ms"));
        }
    }
    record::leave("growth", &records)
}

fn best(script: &str) -> Result<(Vec<u8>, Duration)> {
    let (mut elf, mut best) = compile(script)?;
    for _ in 1..COMPILATIONS {
        let (again, time) = compile(script)?;
        (elf, best) = (again, best.min(time));
    }
    Ok((elf, best))
}

/// Compiles the kernel half to one object, as users do: without the checks that tests add.
fn compile(script: &str) -> Result<(Vec<u8>, Duration)> {
    let start = Instant::now();
    let checked = parse("growth.ks", script.as_bytes(), Options::new("growth"))?.check();
    let hir = checked.hir.context("the script has no errors")?;
    let machine =
        kernel::Machine { checks: Checks::LastStage, listings: Listings::None, ..Arch::X86_64.into() };
    match kernel::compile(&hir, &split(&hir), &checked.sources, machine) {
        Ok(object) => Ok((object.elf().to_vec(), start.elapsed())),
        Err(errors) => bail!("{}", errors.first().map_or("", |error| error.message.as_str())),
    }
}

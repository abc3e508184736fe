//! Reads of the kernel half's state: an array map that native code has mapped, and the same read inside a
//! plugin.
//!
//! - `native`: an atomic load from the pages of an array map, as C does it after mmap(2);
//! - `shared-variable`, `shared-element`: a global variable, an array's element in a script;
//! - `sdk-variable`, `sdk-element`: the same in a plugin in Rust, with `ks-guest`, after `ks share`;
//! - `called-variable`, `called-element`: the same script with `--no-shared-memory`;
//! - `lookup`: the system call that reads an element, from native code.
//!
//! A second group iterates over a hash map, where one measured iteration covers the whole map: `for (k, v in
//! counts)` in a script compared with a native batch lookup of all entries in one system call.
//!
//! A third group compares what a plugin does by calls of the host in a process of its own (`process`) and on a thread of
//! the host (`thread`), alternately: lookups in a hash map and updates of it, and the walk over one.
//!
//! The loop and the clock of the plugin's benches are inside the plugin; loading and starting are not
//! measured.

use std::path::Path;

use anyhow::Result;
use criterion::Criterion;
use ks_benches::baseline::hash::Hash;
use ks_benches::baseline::map::Array;
use ks_benches::machine::Machine;
use ks_benches::plugin::{Isolation, Subject};
use ks_benches::report::{self, Report};
use ks_compiler::plugin::share;
use ks_host::worker;
use ks_tests::guests;

fn main() -> Result<()> {
    worker::serve_if_asked();
    let script = Subject::of_script("map_read.ks", include_str!("map_read.ks"))?;
    let array = Array::new()?;
    let mut criterion = report::criterion();
    let mut report = Report::default();
    report.bench(&mut criterion, "map/read/native", |iterations| {
        array.read(iterations).check_calls(iterations)
    });
    for (how, shared) in [("shared", true), ("called", false)] {
        for (what, elements) in [("variable", false), ("element", true)] {
            report.bench(&mut criterion, &format!("map/read/{how}-{what}"), |iterations| {
                let arguments = [format!("--iterations={iterations}"), format!("--elements={elements}")];
                script.run_with(&arguments, |options| options.share_memory = shared)?.check_calls(iterations)
            });
        }
    }
    let guest = guests::rust(&Path::new(env!("CARGO_MANIFEST_DIR")).join("guest"), "reads.wasm", None);
    let guest = Subject::of_plugin("reads", share::share(&guest, share::DEFAULT_BYTES)?)?;
    for what in ["variable", "element"] {
        report.bench(&mut criterion, &format!("map/read/sdk-{what}"), |iterations| {
            guest.run(&[format!("--iterations={iterations}"), format!("--{what}")])?.check_calls(iterations)
        });
    }
    report.bench(&mut criterion, "map/read/lookup", |iterations| {
        array.look_up(iterations)?.check_calls(iterations)
    });
    iterate(&mut criterion, &mut report)?;
    access(&mut report)?;
    criterion.final_summary();
    println!("\nmachine: {}\n\n{report}", Machine::here());
    report.leave("map_read")
}

/// Measures iterations over all entries of a hash map.
fn iterate(criterion: &mut Criterion, report: &mut Report) -> Result<()> {
    let script = Subject::of_script("map_iteration.ks", include_str!("map_iteration.ks"))?;
    let mut hash = Hash::new()?;
    report
        .bench(criterion, "map/walk/native", |iterations| hash.iterate(iterations)?.check_calls(iterations));
    report.bench(criterion, "map/walk/plugin", |iterations| {
        script.run(&[format!("--iterations={iterations}")])?.check_calls(iterations)
    });
    Ok(())
}

/// Measures calls of the host on maps, on a thread and in a process alternately.
fn access(report: &mut Report) -> Result<()> {
    let in_both = |name, text| {
        anyhow::Ok([
            Subject::of_script_in(Isolation::Thread, name, text)?,
            Subject::of_script_in(Isolation::Process, name, text)?,
        ])
    };
    let access = in_both("map_access.ks", include_str!("map_access.ks"))?;
    let iteration = in_both("map_iteration.ks", include_str!("map_iteration.ks"))?;
    for (what, subjects, more) in [
        ("lookup", &access, Some("--updates=false")),
        ("update", &access, Some("--updates=true")),
        ("walk", &iteration, None),
    ] {
        report.bench_alternately(&format!("map/{what}"), ["thread", "process"], |form, iterations| {
            let arguments = [format!("--iterations={iterations}")].into_iter().chain(more.map(str::to_owned));
            subjects[form].run(&arguments.collect::<Vec<_>>())?.check_calls(iterations)
        })?;
    }
    Ok(())
}

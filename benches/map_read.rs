//! Reads of what the kernel half keeps: an array map that native code has mapped, and the same from inside a plugin.
//!
//! - `native`: an atomic load from the pages of an array map, as C does it after mmap(2);
//! - `shared-variable`, `shared-element`: a global variable, an array's element in a script;
//! - `sdk-variable`, `sdk-element`: the same in a plugin in Rust, with `ks-guest`, after `ks share`;
//! - `called-variable`, `called-element`: the same script with `--no-shared-memory`;
//! - `lookup`: the system call that reads an element, from native code.
//!
//! And walks over a hash map, a turn being a whole walk: `for (k, v in counts)` in a script beside a native batch lookup of
//! all entries in one system call.
//!
//! The loop and the clock of the plugin's benches are inside the plugin; loading and starting are not measured.

use std::path::Path;

use anyhow::Result;
use criterion::Criterion;
use ks_benches::baseline::hash::Hash;
use ks_benches::baseline::map::Array;
use ks_benches::machine::Machine;
use ks_benches::plugin::Subject;
use ks_benches::report::{self, Report};
use ks_compiler::plugin::share;
use ks_tests::guests;

fn main() -> Result<()> {
    let script = Subject::of_script("map_read.ks", include_str!("map_read.ks"))?;
    let array = Array::new()?;
    let mut criterion = report::criterion();
    let mut report = Report::default();
    report.bench(&mut criterion, "map/read/native", |turns| array.read(turns).check_calls(turns));
    for (how, shared) in [("shared", true), ("called", false)] {
        for (what, elements) in [("variable", false), ("element", true)] {
            report.bench(&mut criterion, &format!("map/read/{how}-{what}"), |turns| {
                let words = [format!("--turns={turns}"), format!("--elements={elements}")];
                script.run_with(&words, |options| options.share_memory = shared)?.check_calls(turns)
            });
        }
    }
    let guest = guests::rust(&Path::new(env!("CARGO_MANIFEST_DIR")).join("guest"), "reads.wasm", None);
    let guest = Subject::of_plugin("reads", share::share(&guest, share::DEFAULT_BYTES)?)?;
    for what in ["variable", "element"] {
        report.bench(&mut criterion, &format!("map/read/sdk-{what}"), |turns| {
            guest.run(&[format!("--turns={turns}"), format!("--{what}")])?.check_calls(turns)
        });
    }
    report.bench(&mut criterion, "map/read/lookup", |turns| array.look_up(turns)?.check_calls(turns));
    walk(&mut criterion, &mut report)?;
    criterion.final_summary();
    println!("\nmachine: {}\n\n{report}", Machine::here());
    report.leave("map_read")
}

/// Walks over all entries of a hash map.
fn walk(criterion: &mut Criterion, report: &mut Report) -> Result<()> {
    let script = Subject::of_script("map_walk.ks", include_str!("map_walk.ks"))?;
    let mut hash = Hash::new()?;
    report.bench(criterion, "map/walk/native", |turns| hash.walk(turns)?.check_calls(turns));
    report.bench(criterion, "map/walk/plugin", |turns| {
        script.run(&[format!("--turns={turns}")])?.check_calls(turns)
    });
    Ok(())
}

//! The read path: `read(2)` of a perf group from native code, and the same read from inside a plugin, on one thread.
//!
//! - `native`: the bare system call on the leader's descriptor;
//! - `plugin-scalar`: `read(leader).raw` in a script: one counter;
//! - `plugin-snapshot`: `read(leader).values[0]` in a script: all members, as scripts get them.
//!
//! `perf/call/empty/plugin` is a host call that does nearly nothing: what crossing the boundary costs by itself.
//!
//! The loop and the clock of the plugin's benches are inside the plugin; opening the group and starting the plugin are
//! not measured.

use anyhow::Result;
use criterion::Criterion;
use ks_benches::baseline::perf::Group;
use ks_benches::machine::Machine;
use ks_benches::plugin::Script;
use ks_benches::report::{self, Report};

/// Sizes of the groups.
const MEMBERS: [u32; 3] = [1, 4, 16];

fn main() -> Result<()> {
    let script = Script::compile("perf_read.ks", include_str!("perf_read.ks"))?;
    let mut criterion = report::criterion();
    let mut report = Report::default();
    for members in MEMBERS {
        read_natively(&mut criterion, &mut report, members)?;
        read_in_plugin(&mut criterion, &mut report, &script, members, false);
        read_in_plugin(&mut criterion, &mut report, &script, members, true);
    }
    report.bench(&mut criterion, "perf/call/empty/plugin", |turns| {
        script.run(&[format!("--turns={turns}"), "--call".into()])?.check_calls(turns)
    });
    criterion.final_summary();
    println!("\n{}\n\n{report}", Machine::here());
    report.leave("perf_read")
}

fn read_natively(criterion: &mut Criterion, report: &mut Report, members: u32) -> Result<()> {
    let mut group = Group::open(members)?;
    report.bench(criterion, &format!("perf/read/{members}-members/native"), |turns| {
        group.measure(turns)?.check_reads(turns, members)
    });
    Ok(())
}

fn read_in_plugin(
    criterion: &mut Criterion,
    report: &mut Report,
    script: &Script,
    members: u32,
    snapshot: bool,
) {
    let form = if snapshot { "snapshot" } else { "scalar" };
    report.bench(criterion, &format!("perf/read/{members}-members/plugin-{form}"), |turns| {
        let words = [
            ("turns", turns.to_string()),
            ("members", members.to_string()),
            ("snapshot", snapshot.to_string()),
        ];
        script.run(&words.map(|(name, value)| format!("--{name}={value}")))?.check_reads(turns, members)
    });
}

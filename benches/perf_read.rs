//! The read path: `read(2)` of a perf group from native code, and the same read from inside a plugin, on one
//! thread.
//!
//! - `native`: the bare system call on the leader's descriptor;
//! - `native-alone`, `native-filtered`: the same in a process of one thread, without and with a worker's filter of
//!   system calls: the baseline of what runs in a worker;
//! - `perf-event2`: the crate, which finds and checks entries, in a program that is not a plugin;
//! - `plugin-scalar`: `read(leader).raw` in a script: one counter;
//! - `plugin-snapshot`: `read(leader).values[0]` in a script: all members;
//! - `thread-scalar`, `thread-snapshot`, `process-scalar`, `process-snapshot`: the same, confined, on a thread and in a
//!   process of the plugin's own;
//! - `sdk-scalar`, `sdk-snapshot`: the same in a plugin in Rust, with `ks-guest`.
//!
//! Cases: a group of the own task; a group of another CPU, which the kernel reads by an interrupt; and many
//! groups of one event: `sdk-each` reads each by its own host call, `sdk-many` reads all by one.
//! `perf/call/empty/plugin` is a host call that does nearly nothing: the cost of crossing the boundary.
//!
//! The loop and the clock of the plugin's benches are inside the plugin; opening the group and starting the
//! plugin are not measured.

use std::path::Path;

use anyhow::Result;
use criterion::Criterion;
use ks_benches::baseline::alone;
use ks_benches::baseline::crate_group::CrateGroup;
use ks_benches::baseline::perf::{self, Group, Observed};
use ks_benches::machine::{self, Machine};
use ks_benches::plugin::{Isolation, Subject};
use ks_benches::report::{self, Report};
use ks_host::worker;
use ks_tests::guests;

/// Group sizes, including the leader.
const MEMBERS: [u32; 3] = [1, 4, 16];
/// Number of groups for the benches of many groups.
const GROUPS: u32 = 64;
/// The CPU that the thread is pinned to, and the other CPU, as in the script.
const OWN_CPU: usize = 0;
const OTHER_CPU: i32 = 1;

const SCRIPT: &str = include_str!("perf_read.ks");

struct Subjects {
    script: Subject,
    rust: Subject,
    in_thread: Subject,
    in_process: Subject,
}

fn main() -> Result<()> {
    worker::serve_if_asked();
    if alone::serve_if_asked()? {
        return Ok(());
    }
    let guest = guests::rust(&Path::new(env!("CARGO_MANIFEST_DIR")).join("guest"), "reads.wasm", None);
    let subjects = Subjects {
        script: Subject::of_script("perf_read.ks", SCRIPT)?,
        in_thread: Subject::of_script_in(Isolation::Thread, "perf_read.ks", SCRIPT)?,
        in_process: Subject::of_script_in(Isolation::Process, "perf_read.ks", SCRIPT)?,
        rust: Subject::of_plugin("reads", guest)?,
    };
    let machine = Machine::here();
    let mut criterion = report::criterion();
    let mut report = Report::default();
    for members in MEMBERS {
        let case = format!("perf/read/{members}-members");
        read_natively(&mut criterion, &mut report, &case, members, Observed::OwnTask)?;
        for (name, filtered) in [("native-alone", false), ("native-filtered", true)] {
            report.bench(&mut criterion, &format!("{case}/{name}"), |iterations| {
                alone::measure(members, iterations, filtered)?.check_reads(iterations, members)
            });
        }
        let all = [
            ("plugin", &subjects.script),
            ("thread", &subjects.in_thread),
            ("process", &subjects.in_process),
            ("sdk", &subjects.rust),
        ];
        for (who, subject) in all {
            for (form, arguments) in [("scalar", &[][..]), ("snapshot", &["--snapshot"])] {
                let name = format!("{case}/{who}-{form}");
                read_in_plugin(&mut criterion, &mut report, &name, subject, members, arguments);
            }
        }
    }
    read_many(&mut criterion, &mut report, &subjects.rust)?;
    report.bench(&mut criterion, "perf/call/empty/plugin", |iterations| {
        subjects.script.run(&[format!("--iterations={iterations}"), "--call".into()])?.check_calls(iterations)
    });
    // Last, because the thread stays pinned to that CPU.
    machine::stay_on(OWN_CPU)?;
    // Its process inherits that from its start.
    let in_process = Subject::of_script_in(Isolation::Process, "perf_read.ks", SCRIPT)?;
    for members in MEMBERS {
        let case = format!("perf/read-other-cpu/{members}-members");
        read_natively(&mut criterion, &mut report, &case, members, Observed::Cpu(OTHER_CPU))?;
        let all = [("plugin", &subjects.script), ("thread", &subjects.in_thread), ("process", &in_process)];
        for (who, subject) in all {
            let name = format!("{case}/{who}-scalar");
            read_in_plugin(&mut criterion, &mut report, &name, subject, members, &["--other"]);
        }
    }
    criterion.final_summary();
    println!("\nmachine: {machine}\n\n{report}");
    report.leave("perf_read")
}

fn read_natively(
    criterion: &mut Criterion,
    report: &mut Report,
    case: &str,
    members: u32,
    observed: Observed,
) -> Result<()> {
    let mut group = Group::open(members, observed)?;
    report.bench(criterion, &format!("{case}/native"), |iterations| {
        group.measure(iterations)?.check_reads(iterations, members)
    });
    drop(group);
    let mut group = CrateGroup::open(members, observed)?;
    report.bench(criterion, &format!("{case}/perf-event2"), |iterations| {
        group.measure(iterations)?.check_reads(iterations, members)
    });
    Ok(())
}

fn read_in_plugin(
    criterion: &mut Criterion,
    report: &mut Report,
    name: &str,
    subject: &Subject,
    members: u32,
    arguments: &[&str],
) {
    report.bench(criterion, name, |iterations| {
        let mut given = vec![format!("--iterations={iterations}"), format!("--members={members}")];
        given.extend(arguments.iter().map(|argument| argument.to_string()));
        subject.run(&given)?.check_reads(iterations, members)
    });
}

/// Measures many groups of one event; an iteration reads all of them.
fn read_many(criterion: &mut Criterion, report: &mut Report, rust: &Subject) -> Result<()> {
    let case = format!("perf/read-many/{GROUPS}-groups");
    let mut groups = (0..GROUPS).map(|_| Group::open(1, Observed::OwnTask)).collect::<Result<Vec<_>>>()?;
    report.bench(criterion, &format!("{case}/native"), |iterations| {
        perf::measure_all(&mut groups, iterations)?.check_reads(iterations, GROUPS)
    });
    drop(groups);
    for form in ["each", "many"] {
        let name = format!("{case}/sdk-{form}");
        read_in_plugin(criterion, report, &name, rust, GROUPS, &[&format!("--{form}")]);
    }
    Ok(())
}

//! The loops of `perf_read.ks` in Rust, with `ks-guest`, and reads of many attachments. Prints as that script does.

use std::time::Duration;

use ks_guest::args::Options;
use ks_guest::{Attachment, Event, Group, PerfOptions, Result, clock, println, read_many};

#[ks_guest::main]
fn main() -> Result<()> {
    let mut options = Options::new();
    let turns = options.unsigned("turns", 64, 1000, "turns of the loop");
    let members = options.unsigned("members", 32, 4, "events of the group, or groups with `many`");
    let snapshot = options.flag("snapshot", "read all members instead of one");
    let many = options.flag("many", "read so many groups of one event by one call");
    let each = options.flag("each", "read so many groups of one event by a call for each");
    let given = options.parse();
    let (turns, members) = (given.unsigned(turns), given.unsigned(members));
    match (given.flag(snapshot), given.flag(many) || given.flag(each)) {
        (_, true) => groups(turns, members, given.flag(many)),
        (snapshot, false) => group(turns, members, snapshot),
    }
}

fn mine() -> PerfOptions {
    PerfOptions::new().own_thread()
}

fn group(turns: u64, members: u64, snapshot: bool) -> Result<()> {
    let group = Group::open(&Event::named("task_clock")?, &mine())?;
    let faults = Event::named("page_faults")?;
    let _members = (1..members).map(|_| group.join(&faults, &mine())).collect::<Result<Vec<_>>>()?;
    let (elapsed, right) = match snapshot {
        true => measure(turns, || Ok(group.snapshot()?.entries[0].raw)),
        false => measure(turns, || Ok(group.read()?.raw)),
    }?;
    let last = group.snapshot()?;
    println!("{} {right} {} {}", elapsed.as_nanos(), last.entries.len(), last.time_enabled.as_nanos());
    Ok(())
}

fn groups(turns: u64, groups: u64, at_once: bool) -> Result<()> {
    let clock = Event::named("task_clock")?;
    let all = (0..groups).map(|_| Attachment::open(&clock, &mine())).collect::<Result<Vec<_>>>()?;
    let all: Vec<&Attachment> = all.iter().collect();
    let (elapsed, right) = match at_once {
        true => measure(turns, || Ok(read_many(&all)?.iter().map(|reading| reading.raw).sum())),
        false => measure(turns, || all.iter().map(|one| Ok(one.read()?.raw)).sum()),
    }?;
    let last = all[0].read()?;
    println!("{} {right} {} {}", elapsed.as_nanos(), all.len(), last.time_enabled.as_nanos());
    Ok(())
}

/// The time of the turns, and those in which the count had gone on.
fn measure(turns: u64, read: impl Fn() -> Result<u64>) -> Result<(Duration, u64)> {
    let (mut last, mut right) = (read()?, 0);
    let start = clock::now();
    for _ in 0..turns {
        let count = read()?;
        right += u64::from(count > last);
        last = count;
    }
    Ok((clock::now() - start, right))
}

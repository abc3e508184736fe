//! The loops of `perf_read.ks` and `map_read.ks` in Rust, with `ks-guest`, and reads of many attachments. The
//! output has the format of those scripts' output.

use std::time::Duration;

use ks_guest::args::Options;
use ks_guest::{Attachment, Event, Global, Group, Map, PerfOptions, Result, clock, println, read_many};

mod kept {
    ks_guest::kernel!("../../map_read.ks");
}

#[ks_guest::main]
fn main() -> Result<()> {
    let mut options = Options::new();
    let iterations = options.unsigned("iterations", 64, 1000, "iterations of the loop");
    let members = options.unsigned("members", 32, 4, "events of the group, or groups with `many`");
    let snapshot = options.flag("snapshot", "read all members instead of one");
    let many = options.flag("many", "read `members` groups of one event by one call");
    let each = options.flag("each", "read `members` groups of one event by a call for each");
    let variable = options.flag("variable", "read a variable of the kernel half");
    let element = options.flag("element", "read the elements of an array of the kernel half");
    let given = options.parse();
    let (iterations, members) = (given.unsigned(iterations), given.unsigned(members));
    if given.flag(variable) || given.flag(element) {
        return kept(iterations, given.flag(element));
    }
    match (given.flag(snapshot), given.flag(many) || given.flag(each)) {
        (_, true) => groups(iterations, members, given.flag(many)),
        (snapshot, false) => group(iterations, members, snapshot),
    }
}

fn mine() -> PerfOptions {
    PerfOptions::new().own_thread()
}

fn group(iterations: u64, members: u64, snapshot: bool) -> Result<()> {
    let group = Group::open(&Event::named("task_clock")?, &mine())?;
    let faults = Event::named("page_faults")?;
    let _members = (1..members).map(|_| group.join(&faults, &mine())).collect::<Result<Vec<_>>>()?;
    let (elapsed, right) = match snapshot {
        true => measure(iterations, || Ok(group.snapshot()?.entries[0].raw)),
        false => measure(iterations, || Ok(group.read()?.raw)),
    }?;
    let last = group.snapshot()?;
    println!("{} {right} {} {}", elapsed.as_nanos(), last.entries.len(), last.time_enabled.as_nanos());
    Ok(())
}

fn groups(iterations: u64, groups: u64, at_once: bool) -> Result<()> {
    let clock = Event::named("task_clock")?;
    let all = (0..groups).map(|_| Attachment::open(&clock, &mine())).collect::<Result<Vec<_>>>()?;
    let all: Vec<&Attachment> = all.iter().collect();
    let (elapsed, right) = match at_once {
        true => measure(iterations, || Ok(read_many(&all)?.iter().map(|reading| reading.raw).sum())),
        false => measure(iterations, || all.iter().map(|one| Ok(one.read()?.raw)).sum()),
    }?;
    let last = all[0].read()?;
    println!("{} {right} {} {}", elapsed.as_nanos(), all.len(), last.time_enabled.as_nanos());
    Ok(())
}

/// Returns the time of the loop, and the number of iterations in which the count had grown.
fn measure(iterations: u64, read: impl Fn() -> Result<u64>) -> Result<(Duration, u64)> {
    let (mut last, mut right) = (read()?, 0);
    let start = clock::now();
    for _ in 0..iterations {
        let count = read()?;
        right += u64::from(count > last);
        last = count;
    }
    Ok((clock::now() - start, right))
}

/// Reads state of the kernel half: array elements or a global variable.
fn kept(iterations: u64, elements: bool) -> Result<()> {
    let _program = kept::keep()?;
    let (word, slots) = (kept::word()?, kept::slots()?);
    for index in 0..16 {
        slots.insert(&index, &7)?;
    }
    let start = clock::now();
    let right = if elements { elements_right(&slots, iterations)? } else { globals_right(&word, iterations) };
    println!("{} {right} 0 0", (clock::now() - start).as_nanos());
    Ok(())
}

/// Returns the number of iterations that read the right value. The loop is unrolled four times, as `ks`
/// unrolls loops of scripts: at each back edge the engine checks whether the plugin is to stop.
fn globals_right(word: &Global<u64>, iterations: u64) -> u64 {
    let right = || u64::from(word.get() == 7);
    let mut count = 0;
    for _ in 0..iterations / 4 {
        count += right() + right() + right() + right();
    }
    count + (0..iterations % 4).map(|_| right()).sum::<u64>()
}

/// Returns the number of iterations that read the right array element, unrolled like [`globals_right`].
fn elements_right(slots: &Map<u32, u64>, iterations: u64) -> Result<u64> {
    let mut count = 0;
    for iteration in 0..iterations / 4 {
        let first = (iteration as u32 * 4) & 15;
        count += u64::from(slots.get(&first)? == Some(7));
        count += u64::from(slots.get(&(first + 1))? == Some(7));
        count += u64::from(slots.get(&(first + 2))? == Some(7));
        count += u64::from(slots.get(&(first + 3))? == Some(7));
    }
    for iteration in 0..iterations % 4 {
        count += u64::from(slots.get(&(iteration as u32))? == Some(7));
    }
    Ok(count)
}

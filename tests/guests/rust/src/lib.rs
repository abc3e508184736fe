//! The plugin of `tests/tests/toolchains/guest_rust.rs`: each argument selects a use of `ks-guest`, which
//! prints its results.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use ks_guest::{
    Attachment, ErrorKind, Event, Global, Group, Map, Nested, PerCpuMap, PerfOptions, Plain, Program, Queue, Ring,
    args, clock, list_events, losses, println, read_many, system,
};

/// The record of the test's script.
#[derive(Plain, Debug, PartialEq)]
struct Seen {
    cpu: u32,
    number: u64,
}

mod misfits;

// The object that the test compiled.
ks_guest::include_bpf_object!(env!("KS_GUEST_OBJECT"));

#[ks_guest::main]
fn main() -> Result<i32, Box<dyn Error>> {
    match args::words().first().map(String::as_str) {
        Some("count") => count()?,
        Some("kernel") => kernel()?,
        Some("options") => options()?,
        Some("losses") => lose()?,
        Some("misfits") => misfits()?,
        Some("fail") => {
            Event::named("page_fault")?;
        }
        Some("code") => return Ok(7),
        argument => return Err(format!("no way to use it: {argument:?}").into()),
    }
    Ok(0)
}

/// Touches this many fresh pages of memory, each a page fault of this thread.
fn touch(pages: usize) {
    let mut memory = vec![0_u8; pages * 4096];
    memory.chunks_mut(4096).for_each(|page| page[0] = 1);
    black_box(memory);
}

fn mine() -> PerfOptions {
    // Every user may count this.
    PerfOptions::new().own_thread().exclude_kernel(true)
}

fn count() -> Result<(), Box<dyn Error>> {
    let event = Event::named("page_faults")?;
    println!("event {} 100%", event.name());
    let group = Group::open(&event, &mine())?;
    let clock = group.join(&Event::named("task_clock")?, &PerfOptions::new().own_thread())?;
    touch(64);
    let both = group.snapshot()?;
    println!("group {} {} {}", both.entries.len(), both.own, clock.snapshot()?.own);
    group.disable()?;
    let faults = group.read()?;
    println!("faults {} {:?} {:?}", faults.raw, faults.scaled == Some(faults.raw), faults.state);
    let many = read_many(&[&*clock, &*group, &*group])?;
    println!("many {} {} {}", many[0] == clock.read()?, many[1] == faults, many[2] == faults);
    println!("time {}", clock.read()?.raw);
    clock.detach();
    group.enable()?;
    group.reset()?;
    println!("left {}", group.snapshot()?.entries.len());
    let before = clock::now();
    clock::sleep(Duration::from_millis(2))?;
    println!("slept {}", clock::now() - before >= Duration::from_millis(2));
    println!("cpus {}", system::cpu_count());
    Ok(())
}

fn kernel() -> Result<(), Box<dyn Error>> {
    let counted = Global::<u64>::open("counted")?;
    counted.set(&100)?;
    let pair = Global::<[u32; 3]>::open("triple")?;
    println!("triple {:?}", pair.get());
    pair.set(&[7, 8, 9])?;
    println!("triple {:?}", pair.get());
    let by_mark = Map::<Nested<u32, u64>, u64>::open("by_mark")?;
    by_mark.create_inner(&[3, 4])?;
    by_mark.insert(&Nested { outer: 4, inner: 1 }, &40)?;
    let program = Program::load("guest_fault")?;
    println!("program {} {}", program.info()?.name, program.info()?.instructions > 0);
    let faults = Attachment::open_with(&Event::named("page_faults")?, &mine().period(1), &program)?;
    touch(64);
    faults.disable()?;
    println!("faults {} counted {}", faults.read()?.raw, counted.get());
    faults.detach();

    let marked = by_mark.get(&Nested { outer: 3, inner: 9 })? == Some(counted.get() - 100);
    let entries: Vec<_> = by_mark.iter()?.flatten().filter(|(key, _)| key.outer == 4).collect();
    println!("marked {marked} {entries:?}");
    println!("inner {} {} {}", by_mark.has_inner(&3)?, by_mark.remove_inner(&3)?, by_mark.has_inner(&3)?);
    println!("flat {:?}", Map::<u32, u64>::open("by_mark").map_err(|error| error.kind()).err());

    let map = Map::<u32, Seen>::open("seen")?;
    let Some(seen) = map.get(&1)? else { return Err("the program wrote no entry".into()) };
    println!("seen {}", seen.number);
    for key in 10..500 {
        map.insert(&key, &Seen { cpu: key, number: u64::from(key) * 3 })?;
    }
    let whole = map.iter()?.filter(|entry| {
        entry
            .as_ref()
            .is_ok_and(|(key, seen)| *key < 10 || *seen == Seen { cpu: *key, number: u64::from(*key) * 3 })
    });
    println!("entries {} keys {} count {}", whole.count(), map.keys()?.count(), map.count()?);
    println!("again {:?}", map.insert_new(&10, &seen).map_err(|error| error.kind()));
    println!("removed {} {}", map.remove(&10)?, map.remove(&10)?);
    println!("absent {:?}", map.replace(&10, &seen).map_err(|error| error.kind()));
    println!("taken {:?} {:?}", map.take(&11)?.map(|seen| seen.number), map.take(&11)?.is_none());
    let entries: Vec<(u32, Seen)> =
        (500..700).map(|key| (key, Seen { cpu: key, number: u64::from(key) })).collect();
    println!("written {} of {}", map.insert_all(&entries)?, map.get(&699)?.map_or(0, |seen| seen.number));
    let keys: Vec<u32> = entries.iter().map(|(key, _)| *key).collect();
    println!("removed {} then {}", map.remove_all(&keys)?, map.remove_all(&keys)?);
    map.clear()?;
    println!("cleared {}", map.count()?);
    map.insert(&1, &seen)?;
    map.freeze()?;
    map.freeze()?;
    println!("frozen {:?} {:?}", map.get(&1)? == Some(seen), map.remove(&1).map_err(|error| error.kind()));

    let cells = PerCpuMap::<u32, u64>::open("cells")?;
    let values = cells.get(&0)?.unwrap_or_default();
    println!("cells {} {}", values.len() == system::cpu_count() as usize, values.iter().sum::<u64>());
    cells.insert_sum(&0, &7)?;
    let values = cells.get(&0)?.unwrap_or_default();
    println!("sum {} {}", values[0], values.iter().sum::<u64>());
    println!("one of all {:?}", cells.insert(&0, &[7]).map_err(|error| error.kind()));

    let queue = Queue::<u32>::open("line")?;
    queue.push(&5)?;
    queue.push(&6)?;
    println!("queue {:?} {:?} {:?} {:?}", queue.peek()?, queue.pop()?, queue.pop()?, queue.pop()?);

    let mut ring = Ring::<Seen>::open("records")?;
    let first = ring.poll(Some(Duration::ZERO))?.next().map(|seen| seen.number);
    // Records that the loop did not reach are still there.
    let records: Vec<u64> = ring.poll(Some(Duration::ZERO))?.map(|seen| seen.number).collect();
    println!("records {first:?} {:?} {}", records.first(), records.len());
    println!("in order {}", records.windows(2).all(|two| two[0] + 1 == two[1]));
    let none = ring.poll(Some(Duration::from_millis(1)))?.count();
    println!("none {none} lost {:?}", ring.lost());
    Ok(())
}

fn options() -> Result<(), Box<dyn Error>> {
    let event = Event::named("page_faults")?;
    // The own thread is the default.
    let waits = Attachment::open(&event, &PerfOptions::new().exclude_kernel(true).start_disabled(true))?;
    touch(64);
    println!("waits {}", waits.read()?.raw);
    waits.enable()?;
    // More than the allocator has back.
    touch(192);
    println!("runs {}", waits.read()?.raw);
    let group = Group::open(&event, &mine())?;
    let member = group.join(&Event::named("task_clock")?, &PerfOptions::new())?;
    let entries = group.snapshot()?.entries;
    println!("ids {}", entries.iter().map(|entry| entry.id).eq([group.id(), member.id()]));
    let kernel_ids = [group.kernel_id()?, member.kernel_id()?];
    println!("kernel ids {}", entries.iter().map(|entry| entry.kernel_id).eq(kernel_ids));
    println!("no program {:?}", group.set_period(7).map_err(|error| error.kind()));

    let counted = Global::<u64>::open("counted")?;
    let program = Program::load("guest_fault")?;
    let samples = Attachment::open_with(&event, &mine().period(1), &program)?;
    samples.set_period(4)?;
    samples.reset()?;
    counted.set(&0)?;
    touch(512);
    samples.disable()?;
    let faults = samples.read()?.raw;
    // The kernel begins a new period at once.
    println!("quarter {}", faults >= 256 && (faults / 4).abs_diff(counted.get()) <= 2);
    println!("no period {:?}", samples.set_period(0).map_err(|error| error.kind()));

    let listed = list_events("page*faults")?;
    println!("listed {:?}", listed.iter().find(|event| event.name == "page_faults"));
    let deadline = clock::now() + Duration::from_millis(2);
    clock::sleep_until(deadline)?;
    println!("slept until {}", clock::now() >= deadline);
    println!("wall clock {}", clock::wall_clock().as_secs());
    Ok(())
}

fn lose() -> Result<(), Box<dyn Error>> {
    let program = Program::load("guest_fault")?;
    let event = Event::named("page_faults")?;
    let faults = Attachment::open_with(&event, &mine().period(1), &program)?;
    // More records than the ring buffer has room for.
    touch(4096);
    faults.disable()?;
    let ring = Ring::<Seen>::open("records")?;
    for loss in losses::list() {
        let is_of_event = loss.attachment == Some(faults.id());
        println!("{:?} {} {is_of_event} {:?}", loss.cause, loss.what, loss.count);
    }
    println!("ring {:?}", ring.lost());
    Ok(())
}

fn misfits() -> Result<(), Box<dyn Error>> {
    let mut refused = Vec::new();
    refused.extend(Map::<u64, Seen>::open("seen").err());
    refused.extend(Map::<i32, Seen>::open("seen").err());
    refused.extend(Map::<u32, u32>::open("seen").err());
    refused.extend(Map::<u32, u64>::open("cells").err());
    refused.extend(PerCpuMap::<u32, Seen>::open("seen").err());
    refused.extend(Global::<u32>::open("counted").err());
    refused.extend(Global::<[u16; 6]>::open("triple").err());
    // The map's BTF has only sizes.
    refused.extend(Queue::<u64>::open("line").err());
    refused.extend(misfits::of_flows());
    refused.extend(Ring::<misfits::Other>::open("records").err());
    refused.extend(Ring::<misfits::Unseen>::open("records").err());
    for error in &refused {
        println!("{:?}: {error}", error.kind());
    }
    println!("flow {}", Map::<u32, misfits::Flow>::open("flows").is_ok());
    let program = Program::load("guest_fault")?;
    let _faults = Attachment::open_with(&Event::named("page_faults")?, &mine().period(1), &program)?;
    touch(4);
    let wrong = Ring::<u32>::open("records")?.poll(None).err().map(|error| error.kind());
    println!("ring {}", wrong == Some(ErrorKind::Invalid));
    println!("kept {}", Ring::<Seen>::open("records")?.poll(None)?.count() >= 4);
    Ok(())
}

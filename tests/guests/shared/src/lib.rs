//! The plugin of `tests/tests/toolchains/shared_rust.rs`: it prints the same whether memory is shared or not.

use ks_guest::{Attachment, Error, Event, Global, PerfOptions, Program, Result, args, println};

mod probe {
    ks_guest::kernel!("probe.ks");
}

#[ks_guest::main]
fn main() -> Result<()> {
    match args::words().first().map(String::as_str) {
        Some("everything") => everything(),
        Some("wait") => wait(),
        Some("spin") => spin(),
        _ => dropped(),
    }
}

/// Runs a program each time this thread has run for this many nanoseconds.
fn every(program: &Program, period: u64) -> Result<Attachment> {
    let options = PerfOptions::new().own_thread().period(period);
    Attachment::open_with(&Event::named("task_clock")?, &options, program)
}

fn show(what: &str) -> Result<()> {
    println!(
        "{what} {} {} {} {}",
        probe::a8()?.get(),
        probe::b8()?.get(),
        probe::a16()?.get(),
        probe::b16()?.get()
    );
    println!(
        "{} {} {} {}",
        probe::a32()?.get(),
        probe::b32()?.get(),
        probe::a64()?.get(),
        probe::b64()?.get()
    );
    println!("{} {:?} {:?}", probe::yes()?.get(), probe::numbers()?.get(), probe::outer()?.get());
    let (slots, counts) = (probe::slots()?, probe::counts()?);
    println!("{:?} {:?}", slots.get(&4)?, slots.get(&5)?);
    println!("{:?} {:?} {:?}", counts.get(&1)?, counts.get(&2)?, counts.get(&u32::MAX)?);
    println!("{:?}", probe::pages()?.get(&1)?.map(|page| page.words));
    println!("{:?}", probe::limits()?.get(&0)?);
    Ok(())
}

fn everything() -> Result<()> {
    // A variable that was opened before the object is loaded has an address after the load.
    let early = probe::a64()?;
    early.set(&(early.get() + 5))?;
    println!("early {}", early.get());
    let program = probe::change()?;
    probe::limits()?.insert(&0, &probe::Limits { small: 200, wide: -5 })?;
    let pace = probe::pace()?;
    println!("{:?}", pace.get()?);
    pace.set(&probe::pace { step: 1 << 40, marks: [9; 3], low: -100 })?;
    println!("{:?}", probe::pace()?.get()?);
    show("loaded")?;
    let attached = every(&program, 1_000_000)?;
    let runs = probe::runs()?;
    while runs.get() == 0 {}
    attached.detach();
    println!("early {}", early.get());
    println!("paced {}", probe::paced()?.get() - (1 << 40));
    show("changed")?;

    early.set(&7)?;
    probe::a8()?.set(&3)?;
    probe::b8()?.set(&-128)?;
    probe::a16()?.set(&65535)?;
    probe::b16()?.set(&-1)?;
    probe::a32()?.set(&77)?;
    probe::b32()?.set(&-77)?;
    probe::b64()?.set(&i64::MIN)?;
    probe::yes()?.set(&false)?;
    probe::numbers()?.set(&[9, 8, 7, 6, 5])?;
    let mut whole = probe::outer()?.get();
    whole.list[0].wide = u64::MAX;
    whole.name[0] = b'x';
    probe::outer()?.set(&whole)?;
    let slots = probe::slots()?;
    slots.insert(&4, &whole)?;
    slots.replace(&3, &whole)?;
    probe::counts()?.insert(&2, &-300)?;
    let mut words = probe::pages()?.get(&1)?.map(|page| page.words).unwrap_or_default();
    words[0] = 1;
    probe::pages()?.insert(&1, &probe::Page { words })?;
    let limits = probe::limits()?;
    limits.insert(&0, &probe::Limits { small: 1, wide: -2 })?;
    show("written")?;

    let refused = |result: Result<()>| println!("{:?}", result.map_err(|error: Error| error.kind()));
    refused(slots.insert(&5, &whole));
    refused(slots.insert_new(&0, &whole));
    refused(probe::counts()?.insert(&u32::MAX, &1));
    refused(probe::counts()?.remove(&1).map(drop));
    println!("{:?}", probe::hashed()?.get(&1)?);
    println!("{}", slots.iter()?.count());
    Ok(())
}

/// Loops without a call in them end when the kernel half changes the variable that they wait for.
fn wait() -> Result<()> {
    let attached = every(&probe::tick()?, 100_000)?;
    let (ticks, last) = (probe::ticks()?, probe::last()?);
    while ticks.get() < 50 {}
    while last.get(&1)?.is_some_and(|last| last < 100) {}
    attached.detach();
    println!("{}", Some(ticks.get()) == last.get(&1)?);
    Ok(())
}

/// Reads in a loop, without a host call if memory is shared.
fn spin() -> Result<()> {
    let _program = probe::tick()?;
    let (ticks, last) = (probe::ticks()?, probe::last()?);
    while ticks.get() == 0 && last.get(&0)? == Some(0) {}
    Ok(())
}

/// One handle reads the values that another wrote, after the first is dropped, and after others were opened
/// in between.
fn dropped() -> Result<()> {
    let _program = probe::change()?;
    for iteration in 0..200 {
        probe::counts()?.insert(&0, &iteration)?;
        probe::last()?.insert(&0, &(u64::MAX - 1))?;
        probe::a16()?.set(&(iteration as u16))?;
        drop(Global::<u64>::open("a64")?);
        let same = probe::counts()?.get(&0)? == Some(iteration) && probe::a16()?.get() == iteration as u16;
        if !same || probe::last()?.get(&0)? != Some(u64::MAX - 1) {
            println!("round {iteration}");
        }
    }
    println!("done");
    Ok(())
}

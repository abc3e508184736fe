//! A plugin with both halves in one project: its kernel half is KernelScript and is compiled with it.

use std::hint::black_box;

use ks_guest::{Attachment, Event, PerfOptions, Result, println};

mod probe {
    ks_guest::kernel!("probe.ks");
}

#[ks_guest::main]
fn main() -> Result<()> {
    probe::every()?.set(&2)?;
    let pace = probe::pace()?;
    let first = pace.get()?;
    println!("pace {} {:?} {}", first.step, first.marks, first.quiet);
    pace.set(&probe::pace { step: 2 * first.step, ..first })?;
    let options = PerfOptions::new().own_thread().exclude_kernel(true).period(1);
    let faults = Attachment::open_with(&Event::named("page_faults")?, &options, &probe::on_fault()?)?;
    touch(64);
    faults.disable()?;
    println!("faults {}", faults.read()?.raw);
    println!("counted {}", probe::cells()?.get(&0)?.unwrap_or_default().iter().sum::<u64>());
    println!("paced {}", probe::paced()?.get());
    println!("last {:?}", probe::faults()?.get(&7)?.map(|fault| (fault.cpu, fault.kind)));
    let mut records = probe::records()?;
    for record in records.poll(None)?.take(2) {
        println!("record {record:?}");
    }
    println!("first {}", probe::Kind::FIRST.0);
    Ok(())
}

/// Touches this many fresh pages of memory, each a page fault of this thread.
fn touch(pages: usize) {
    let mut memory = vec![0_u8; pages * 4096];
    memory.chunks_mut(4096).for_each(|page| page[0] = 1);
    black_box(memory);
}

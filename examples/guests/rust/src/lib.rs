//! What a CPU switches between, once a second until it is stopped; `../ks/switches.ks` says more.

use std::time::Duration;

use ks_guest::{Event, Group, PerfOptions, Plain, Program, Result, Ring, clock, println};

const SECOND: Duration = Duration::from_secs(1);

/// A record of the ring buffer, as the kernel half makes it.
#[derive(Plain)]
struct Seen {
    pid: u32,
    cpu: u32,
}

/// What was taken out of the ring buffer up to now.
#[derive(Default)]
struct Sampled {
    number: u32,
    last: u32,
}

#[ks_guest::main]
fn main() -> Result<()> {
    let program = Program::load("on_switches")?;
    let options = || PerfOptions::new().every_task().cpu(0);
    let switches = Group::open_with(&Event::numbered(1, 3)?, &options().period(64), &program)?;
    let faults = switches.join(&Event::numbered(1, 2)?, &options())?;
    let moves = switches.join(&Event::numbered(1, 4)?, &options())?;
    println!("second   switches     faults migrations    sampled       last");
    let mut seen = Ring::open("seen")?;
    let mut sampled = Sampled::default();
    sampled.take(&mut seen)?;
    let mut second = 0;
    while !clock::stopping() {
        second += 1;
        let [switches, faults, moves] = [switches.read()?.raw, faults.read()?.raw, moves.read()?.raw];
        let Sampled { number, last } = sampled;
        println!("{second:6} {switches:10} {faults:10} {moves:10} {number:10} {last:10}");
        sampled.take(&mut seen)?;
    }
    Ok(())
}

impl Sampled {
    /// Takes records out for a second, or until the plugin is asked to stop.
    fn take(&mut self, seen: &mut Ring<Seen>) -> Result<()> {
        let deadline = clock::now() + SECOND;
        loop {
            match seen.poll(Some(deadline.saturating_sub(clock::now()))) {
                Ok(records) => records.for_each(|record| {
                    self.number += 1;
                    self.last = record.pid;
                }),
                Err(error) if error.kind() == ks_guest::ErrorKind::Interrupted => return Ok(()),
                Err(error) => return Err(error),
            }
            if clock::now() >= deadline {
                return Ok(());
            }
        }
    }
}

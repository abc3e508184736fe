//! The plugin of `tests/tests/emulated/sdk_cost.rs`: the instructions of one read, through `ks-guest` or by a
//! direct call of the contract. Both open the counter at the same point of the program.

use ks_guest::bindings::kernelscript::host::perf;
use ks_guest::{Attachment, Event, PerfOptions, Result, args, println};

/// Reads in the first loop; the second loop has twice as many.
const READS: u32 = 20_000;

#[ks_guest::main]
fn main() -> Result<i32> {
    let instructions = Event::named("instructions")?;
    let counters = Counters {
        user: Attachment::open(&instructions, &PerfOptions::new().own_thread().exclude_kernel(true))?,
        all: Attachment::open(&instructions, &PerfOptions::new().own_thread())?,
    };
    match args::words().first().map(String::as_str) {
        Some("sdk") => {
            let read = Attachment::open(&instructions, &PerfOptions::new().own_thread())?;
            counters.around(|| Ok(read.read()?.raw))?;
        }
        Some("raw") => {
            let options = perf::Options::new();
            let read = perf::open(&perf::Event::named("instructions")?, &options, None, None)?;
            let id = read.id();
            counters.around(|| Ok(perf::read_by_id(id)?.raw))?;
        }
        _ => return Ok(1),
    }
    Ok(0)
}

struct Counters {
    user: Attachment,
    all: Attachment,
}

impl Counters {
    /// Prints the instructions of two loops of reads, in user code alone and with the kernel.
    fn around(&self, read: impl Fn() -> Result<u64>) -> Result<()> {
        let start = (self.user.read()?.raw, self.all.read()?.raw);
        repeat(READS, &read)?;
        let middle = (self.user.read()?.raw, self.all.read()?.raw);
        repeat(2 * READS, &read)?;
        let end = (self.user.read()?.raw, self.all.read()?.raw);
        println!("user {} {}", middle.0 - start.0, end.0 - middle.0);
        println!("all {} {}", middle.1 - start.1, end.1 - middle.1);
        Ok(())
    }
}

fn repeat(times: u32, read: impl Fn() -> Result<u64>) -> Result<()> {
    let mut sum = 0_u64;
    for _ in 0..times {
        sum = sum.wrapping_add(read()?);
    }
    // Keeps the compiler from removing reads.
    std::hint::black_box(sum);
    Ok(())
}

//! The plugin of `tests/tests/emulated/sdk_cost.rs`: instructions of one read, by its word through `ks-guest` or by the same
//! call of the contract without it. What is read is opened at the same place in both.

use ks_guest::bindings::kernelscript::host::perf;
use ks_guest::{Attachment, Event, PerfOptions, Result, args, println};

/// Reads in the first loop; the second makes twice as many.
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
            options.set_pid(0);
            options.set_cpu(-1);
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
    /// Prints what two loops of a read took, in user code and with the kernel.
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
    // So that no read is left out.
    std::hint::black_box(sum);
    Ok(())
}

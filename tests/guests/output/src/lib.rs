//! The plugin of `tests/tests/toolchains/outputs.rs`: attaches opensnoop of libbpf-tools to one process, and
//! counts its records, which come by `bpf_perf_event_output`. Arguments: the process, the bytes of a ring, and
//! how long it takes nothing out, in milliseconds.

use std::time::Duration;

use ks_guest::bindings::kernelscript::host::ring::{Ring, poll};
use ks_guest::{Global, Program, args, clock, losses, println};

/// The tracepoints of the two system calls whose records are counted.
const PROGRAMS: [&str; 2] = ["tracepoint__syscalls__sys_enter_openat", "tracepoint__syscalls__sys_exit_openat"];

/// Sizes of the header of an entry and of its alignment in bytes.
const HEADER: usize = 8;

#[ks_guest::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [process, bytes, wait] = &args::words()[..] else { return Err("three words".into()) };
    let number = |text: &str| text.parse::<u32>();
    Global::<i32>::open("targ_tgid")?.set(&process.parse()?)?;
    let ring = Ring::open_perf_event_array("events", number(bytes)?).map_err(ks_guest::Error::from)?;
    let mut attached = Vec::new();
    for name in PROGRAMS {
        let program = Program::load(name)?;
        attached.push((program.attach(0)?, program));
    }
    println!("ready {} {}", ring.size(), ring.waiting());
    if clock::sleep(Duration::from_millis(number(wait)?.into())).is_ok() {
        println!("waiting {}", ring.waiting());
    }
    let (mut taken, mut marked) = (0, 0);
    loop {
        let batch = match poll(&[&ring], Some(100_000_000), 64 << 10) {
            Ok((batch, records)) => (batch, records),
            Err(_) => break,
        };
        let mut rest = &batch.1[..];
        while let Some(header) = rest.get(..HEADER) {
            let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            let record = &rest[HEADER..HEADER + len];
            taken += 1;
            marked += u32::from(record.windows(6).any(|window| window == b"marker"));
            rest = &rest[HEADER + len.next_multiple_of(8)..];
        }
    }
    // What came between the last poll and now is counted, too: nothing opens any more.
    let lost = ring.lost();
    println!("taken {taken} {marked}");
    println!("lost {}", lost.unwrap_or(u64::MAX));
    for loss in losses::list().into_iter().filter(|loss| loss.what == "events") {
        println!("loss {:?} {}", loss.cause, loss.count.unwrap_or(u64::MAX));
    }
    Ok(())
}

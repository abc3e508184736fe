use ks_guest::{Plain, Result, Ring};

#[derive(Plain)]
struct Opened {
    pid: u32,
}

struct Unplain {
    name: String,
}

fn field(ring: &mut Ring<Opened>) -> Result<Option<u32>> {
    Ok(ring.poll(None)?.next().map(|opened| opened.tid))
}

fn take(_: Option<u64>) {}

fn record(ring: &mut Ring<Opened>) -> Result<()> {
    take(ring.poll(None)?.next());
    Ok(())
}

fn not_plain() -> Result<Ring<Unplain>> {
    Ring::open("opened")
}

fn main() {
    let _ = (field, record, not_plain);
}

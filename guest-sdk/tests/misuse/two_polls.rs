use ks_guest::{Result, Ring};

fn records(ring: &mut Ring<u64>) -> Result<Option<u64>> {
    let mut first = ring.poll(None)?;
    let mut second = ring.poll(None)?;
    Ok(second.next().or(first.next()))
}

fn main() {
    let _ = records;
}

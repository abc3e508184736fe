use ks_guest::{Map, Result};

fn key(counts: &Map<u32, u64>) -> Result<Option<u64>> {
    counts.get(&7_u64)
}

fn value(counts: &Map<u32, u64>) -> Result<()> {
    counts.insert(&7, &"text")
}

fn not_plain() -> Result<Map<u32, String>> {
    Map::open("counts")
}

fn main() {
    let _ = (key, value, not_plain);
}

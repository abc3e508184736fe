#[ks_guest::main]
fn start(words: Vec<String>) {}

fn main() {}

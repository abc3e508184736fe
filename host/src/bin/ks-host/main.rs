//! The host, not yet joined.

fn main() {}

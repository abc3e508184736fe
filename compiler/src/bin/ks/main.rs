//! The compiler, not yet joined.

fn main() {}

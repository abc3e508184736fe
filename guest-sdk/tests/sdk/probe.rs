//! The kernel half, next to its script.

ks_guest::kernel!("probe.ks");

//! The kernel half, beside its script.

ks_guest::kernel!("probe.ks");

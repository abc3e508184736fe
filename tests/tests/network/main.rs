//! Tests that have network namespaces of their own. They need root and `ip`.

mod faults;
mod net;
mod net_killed;

//! Tests with their own network namespaces. They need root and `ip`.

mod faults;
mod net;
mod net_killed;

//! Tests that also run in emulated machines with other kernels, or only there; see [`ks_tests::emulated`].
//! They need root.

mod absent_pages;
mod attached;
mod called_loops;
mod checking;
mod clsact;
mod counters;
mod externs;
mod far_reads;
mod foreign_loads;
mod held_pointers;
mod hotplug;
mod inner_maps;
mod kernel_data;
mod kernel_structs;
mod kernel_variables;
mod killed;
mod killed_workers;
mod known_results;
mod large;
mod locks;
mod map_iteration;
mod map_memory;
mod modules;
mod pointers;
mod policy_cost;
mod random_kernels;
mod registering;
mod sdk_cost;
mod storage;
mod taken_over;
mod test_bed;
mod timers;
mod tools;
mod tools_beside_perf;
mod trace;

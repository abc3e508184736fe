//! Names in a plugin's BPF object that the compiler and the host agree on.

/// The variable of the object, 64 bits, in which the kernel half counts what a ring buffer or map of this name had no
/// room for. The host reads it when the plugin ends; an object without it lost nothing, or does not count.
pub fn lost_variable(map: &str) -> String {
    format!("__lost_{map}")
}

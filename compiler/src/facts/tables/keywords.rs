//! Documentation of event names and reserved words.

use crate::builtins::perf::{EVENTS, EventName};
use crate::lex::Keyword;

/// For each event, its meaning and its name in `perf list`. The kernel's constant follows from the language's
/// name.
const COUNTED: &[(&str, &str, &str)] = &[
    ("cpu_cycles", "cpu-cycles", "Cycles of the CPU."),
    ("instructions", "instructions", "Retired instructions."),
    ("cache_references", "cache-references", "Accesses of the last level cache."),
    ("cache_misses", "cache-misses", "Accesses that missed the last level cache."),
    ("branch_instructions", "branch-instructions", "Retired branches."),
    ("branch_misses", "branch-misses", "Mispredicted branches."),
    ("bus_cycles", "bus-cycles", "Cycles of the bus."),
    ("stalled_cycles_frontend", "stalled-cycles-frontend", "Cycles in which no instruction could be issued."),
    ("stalled_cycles_backend", "stalled-cycles-backend", "Cycles in which no instruction could retire."),
    ("ref_cpu_cycles", "ref-cycles", "Cycles at a fixed frequency."),
    ("cpu_clock", "cpu-clock", "Nanoseconds of a CPU's clock."),
    ("task_clock", "task-clock", "Nanoseconds for which the task ran."),
    ("page_faults", "page-faults", "Page faults."),
    ("context_switches", "context-switches", "Switches to another task. Happens in the kernel only."),
    ("cpu_migrations", "cpu-migrations", "Moves to another CPU. Happens in the kernel only."),
    ("page_faults_min", "minor-faults", "Page faults that needed no disk."),
    ("page_faults_maj", "major-faults", "Page faults that needed the disk."),
    ("alignment_faults", "alignment-faults", "Unaligned accesses that the kernel had to carry out."),
    ("emulation_faults", "emulation-faults", "Instructions that the kernel had to carry out."),
    ("dummy", "dummy", "Counts nothing."),
    ("bpf_output", "bpf-output", "What programs put out."),
    (
        "cgroup_switches",
        "cgroup-switches",
        "Switches to a task of another cgroup. Happens in the kernel only.",
    ),
];

/// Returns the documentation of an event, with its names in other tools.
pub fn event_docs(event: &EventName) -> String {
    let (ty, config) = (event.value >> 32, event.value & 0xffff_ffff);
    let (class, prefix) = if ty == 0 { ("hardware", "HW") } else { ("software", "SW") };
    let Some((_, perf, counted)) = COUNTED.iter().find(|(name, ..)| *name == event.name) else {
        return String::new();
    };
    let constant = kernel_constant(event.name, prefix);
    format!(
        "{counted}\n\nIn `perf list`: `{perf}`. In the kernel: `{constant}` ({class}, type {ty}, config \
         {config})."
    )
}

/// Returns the kernel's constant, see `include/uapi/linux/perf_event.h`.
fn kernel_constant(name: &str, prefix: &str) -> String {
    format!("PERF_COUNT_{prefix}_{}", name.to_ascii_uppercase())
}

/// The documentation of reserved words, for those that have a meaning of their own.
const KEYWORDS: &[(&str, &str)] = &[
    ("fn", "Declares a function. Without an attribute it runs in userspace."),
    ("extern", "Declares a function that the kernel provides: `extern bpf_ktime_get_ns() -> u64`."),
    ("include", "Takes over the declarations of a header: `include \"xdp.kh\"`."),
    (
        "import",
        "Makes the functions of a module callable: `import name from \"module.ks\"`, then `name.function()`.",
    ),
    ("pin", "Keeps a map, ring buffer or variable in the BPF file system beyond the end of the script."),
    ("local", "A variable of the kernel half alone."),
    ("config", "Values that userspace and `ks-host --config` set and the kernel half reads."),
    ("type", "Another name for a type: `type Name = u32`."),
    ("struct", "Declares a struct, laid out as in C."),
    ("enum", "Declares constants that count up by one."),
    ("impl", "The functions and fields of a struct of the kernel: `@struct_ops(\"name\") impl x { }`."),
    ("var", "Declares a variable; at top level one that both halves see, or a map."),
    ("const", "Declares a constant."),
    ("for", "`for (i in 0..n) { }`: from the first up to, not including, the last. `for (k, v in map) { }`."),
    ("while", "`while (condition) { }`"),
    ("new", "`new T()`: a zeroed object; gives `*T`."),
    ("delete", "`delete map[key]` removes an entry, `delete pointer` frees an object."),
    ("try", "`try { } catch 3 { } catch _ { }`: runs the clause of the code that was thrown."),
    ("catch", "`catch code { }`: a number, an enumerator, `_` for every code, or a new name for the code."),
    ("throw", "`throw code`: goes to the nearest `catch` that takes the code, also in a caller."),
    ("defer", "`defer call()`: the call happens when the function is left; the arguments are evaluated now."),
    ("match", "`match (value) { 1: a, 2: b, default: c }`: gives the result of the first arm that fits."),
    ("default", "The arm of a `match` for all other values."),
    ("null", "No entry, no object, no handle."),
    ("u8", "Unsigned, 1 byte; wraps around."),
    ("u16", "Unsigned, 2 bytes; wraps around."),
    ("u32", "Unsigned, 4 bytes; wraps around."),
    ("u64", "Unsigned, 8 bytes; wraps around."),
    ("i8", "Signed, 1 byte; wraps around."),
    ("i16", "Signed, 2 bytes; wraps around."),
    ("i32", "Signed, 4 bytes; wraps around."),
    ("i64", "Signed, 8 bytes; wraps around."),
    ("bool", "`true` or `false`; never mixes with integers."),
    ("char", "One byte of text; never mixes with integers."),
    ("void", "No value: the result of a function that returns nothing, or what a `*void` points to."),
    ("str", "`str(N)`: text of at most N - 1 bytes, zeros behind it."),
];

/// Returns the reserved words that are types, or begin one.
pub fn type_keywords() -> impl Iterator<Item = Keyword> {
    Keyword::SCALARS.iter().copied().chain([Keyword::Str])
}

/// Returns the documentation of a reserved word; none if it has none.
pub fn keyword_docs(text: &str) -> Option<&'static str> {
    KEYWORDS.iter().find(|(name, _)| *name == text).map(|(_, docs)| *docs)
}

/// Returns every event with its documentation.
pub fn events() -> impl Iterator<Item = (&'static EventName, String)> {
    EVENTS.iter().map(|event| (event, event_docs(event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_described() {
        for (event, docs) in events() {
            assert!(docs.contains("PERF_COUNT_"), "{} has no description", event.name);
        }
        assert_eq!(COUNTED.len(), EVENTS.len());
    }

    #[test]
    fn every_entry_is_a_keyword() {
        for (text, _) in KEYWORDS {
            assert!(Keyword::ALL.iter().any(|keyword| keyword.text() == *text), "{text}");
        }
    }
}

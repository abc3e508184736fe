//! Documentation of event names and reserved words.

use ks_wit::event::{HARDWARE, NamedEvent};

use crate::lex::Keyword;

/// Returns the documentation of an event, with its names in other tools.
pub fn event_docs(event: &NamedEvent) -> String {
    let (class, prefix) = match event.type_ {
        HARDWARE => ("hardware", "HW"),
        _ => ("software", "SW"),
    };
    // The kernel's constant follows from the language's name.
    format!(
        "{}\n\nIn `perf list`: `{}`. In the kernel: `PERF_COUNT_{prefix}_{}` ({class}, type {}, config {}).",
        event.docs,
        event.perf_name(),
        event.name.to_ascii_uppercase(),
        event.type_,
        event.config
    )
}

/// The documentation of reserved words, for those that have a meaning of their own.
const KEYWORDS: &[(&str, &str)] = &[
    ("fn", "Declares a function. Without an attribute it runs in userspace."),
    (
        "extern",
        "Declares a function or variable of the kernel: `extern bpf_ktime_get_ns() -> u64`, `extern total_forks: u64`.",
    ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_a_keyword() {
        for (text, _) in KEYWORDS {
            assert!(Keyword::ALL.iter().any(|keyword| keyword.text() == *text), "{text}");
        }
    }
}

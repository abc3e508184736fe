//! Snippets: text with placeholders.

/// A text with placeholders.
pub(super) struct Snippet {
    /// The word that the user types to get it.
    pub keyword: &'static str,
    /// A description for the list of completions.
    pub detail: &'static str,
    /// The text, with placeholders `${1:word}`.
    pub text: &'static str,
}

const fn snippet(keyword: &'static str, detail: &'static str, text: &'static str) -> Snippet {
    Snippet { keyword, detail, text }
}

/// Declarations that begin with a keyword. Those that begin with an attribute are in the table of attributes.
pub(super) const DECLARATIONS: &[Snippet] = &[
    snippet("main", "fn main() -> i32", "fn main() -> i32 {\n    $0\n    return 0\n}"),
    snippet(
        "main with arguments",
        "fn main(args: Args) -> i32",
        "struct Args { ${1:name}: ${2:u32} }\n\nfn main(args: Args) -> i32 {\n    $0\n    return 0\n}",
    ),
    snippet(
        "count an event",
        "attach, read, detach",
        "fn main() -> i32 {\n    var ${1:count} = attach(perf_options { event: ${2:page_faults}, pid: 0, \
         cpu: -1 })\n    \
         if (${1:count} == null) {\n        return 1\n    }\n    $0\n    print(\"%lld\", \
         read(${1:count}).scaled)\n    \
         detach(${1:count})\n    return 0\n}",
    ),
    snippet("fn", "function", "fn ${1:name}($2) -> ${3:u32} {\n    $0\n}"),
    snippet("struct", "struct", "struct ${1:Name} {\n    ${2:field}: ${3:u32},\n}"),
    snippet("enum", "enum", "enum ${1:Name} {\n    ${2:FIRST},\n}"),
    snippet("config", "config block", "config ${1:name} {\n    ${2:field}: ${3:u32} = ${4:0},\n}"),
    snippet("var map", "map", "var ${1:name} : hash<${2:u32}, ${3:u64}>(${4:1024})"),
    snippet("var ringbuf", "ring buffer", "var ${1:name} : ringbuf<${2:Event}>(${3:4096})"),
    snippet("var", "global variable", "var ${1:name} : ${2:u64} = ${3:0}"),
    snippet("percpu var", "variable with a value for each CPU", "percpu var ${1:name} : ${2:u64}"),
    snippet("counter", "counter of both halves", "counter ${1:name} : ${2:cpu_cycles}"),
    snippet("include", "header", "include \"${1:header.kh}\""),
    snippet("import", "module", "import ${1:name} from \"${2:module.ks}\""),
    snippet("type", "type alias", "type ${1:Name} = ${2:u32}"),
    snippet("extern", "kernel function", "extern ${1:name}($2) -> ${3:u64}"),
    snippet("extern variable", "variable of the kernel", "extern ${1:name}: ${2:u64}"),
];

/// Snippets of statements in function bodies.
pub(super) const STATEMENTS: &[Snippet] = &[
    snippet("if", "if", "if (${1:condition}) {\n    $0\n}"),
    snippet("if var", "if there is such an entry", "if (var ${1:value} = ${2:map}[${3:key}]) {\n    $0\n}"),
    snippet("while", "while", "while (${1:condition}) {\n    $0\n}"),
    snippet("for", "for", "for (${1:i} in ${2:0}..${3:10}) {\n    $0\n}"),
    snippet("for each", "for each entry", "for (${1:key}, ${2:value} in ${3:map}) {\n    $0\n}"),
    snippet(
        "lock",
        "lock an entry",
        "if (var ${1:value} = ${2:map}[${3:key}]) {\n    lock (${1:value}) {\n        $0\n    }\n}",
    ),
    snippet("try", "try", "try {\n    $0\n} catch ${1:_} {\n}"),
    snippet("var", "variable", "var ${1:name} = $0"),
    snippet("const", "constant", "const ${1:NAME} = $0"),
    snippet("match", "match", "match (${1:value}) {\n    ${2:1}: $0,\n    default: ${3:0},\n}"),
];

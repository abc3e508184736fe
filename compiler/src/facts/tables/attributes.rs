//! Attributes: the program kinds with their signatures, and the others.

/// An attribute and its documentation.
pub struct Attribute {
    /// The name after `@`.
    pub name: &'static str,
    /// The attribute as it is written, with its argument.
    pub form: &'static str,
    /// The head of the function after it, as far as it is fixed.
    pub signature: &'static str,
    /// The documentation in Markdown.
    pub docs: &'static str,
    /// A declaration with it as a snippet, with placeholders `${1:word}`; empty if it declares no program.
    pub snippet: &'static str,
}

const fn plain(name: &'static str, form: &'static str, docs: &'static str) -> Attribute {
    Attribute { name, form, signature: "fn name(..)", docs, snippet: "" }
}

/// All attributes of the language.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute {
        name: "xdp",
        form: "@xdp",
        signature: "fn name(ctx: *xdp_md) -> xdp_action",
        docs: "The kernel enters the function for every packet that an interface receives, before its own \
               network \
               code. Attach it to an interface by name.",
        snippet: "@xdp\nfn ${1:name}(ctx: *xdp_md) -> xdp_action {\n    $0\n    return XDP_PASS\n}",
    },
    Attribute {
        name: "tc",
        form: "@tc(\"ingress\") or @tc(\"egress\")",
        signature: "fn name(ctx: *__sk_buff) -> i32",
        docs: "The kernel enters the function for every packet that comes in or goes out. Attach it to an \
               interface \
               by name.",
        snippet: "@tc(\"${1|ingress,egress|}\")\nfn ${2:name}(ctx: *__sk_buff) -> \
                  i32 {\n    $0\n    return TC_ACT_OK\n}",
    },
    Attribute {
        name: "probe",
        form: "@probe(\"function\") or @probe(\"function+offset\")",
        signature: "fn name(the function's parameters) -> i32",
        docs: "The kernel enters the function whenever it calls its own function of that name. The \
               parameters are \
               those of the kernel's function, at most 6.",
        snippet: "@probe(\"${1:function}\")\nfn ${2:name}($3) -> i32 {\n    $0\n    return 0\n}",
    },
    Attribute {
        name: "retprobe",
        form: "@retprobe(\"function\")",
        signature: "fn name(the function's parameters, its result) -> i32",
        docs: "The kernel enters the function whenever its own function of that name returns.",
        snippet: "@retprobe(\"${1:function}\")\nfn ${2:name}($3) -> i32 {\n    $0\n    return 0\n}",
    },
    Attribute {
        name: "tracepoint",
        form: "@tracepoint(\"category/event\")",
        signature: "fn name(ctx: *trace_event_raw_EVENT) -> i32",
        docs: "The kernel enters the function at a tracepoint.",
        snippet: "@tracepoint(\"${1:category}/${2:event}\")\nfn ${3:name}(ctx: *trace_event_raw_${2:event}) \
                  -> i32 {\n    \
                  $0\n    return 0\n}",
    },
    Attribute {
        name: "raw_tracepoint",
        form: "@raw_tracepoint(\"event\")",
        signature: "fn name(the event's arguments) -> i32",
        docs: "The kernel enters the function at a tracepoint, with the typed arguments of the event.",
        snippet: "@raw_tracepoint(\"${1:event}\")\nfn ${2:name}($3) -> i32 {\n    $0\n    return 0\n}",
    },
    Attribute {
        name: "perf_event",
        form: "@perf_event",
        signature: "fn name(ctx: *bpf_perf_event_data) -> i32",
        docs: "The kernel enters the function on each overflow of a performance event: every `period` \
               events. Attach \
               it with `perf_options`.",
        snippet: "@perf_event\nfn ${1:name}(ctx: *bpf_perf_event_data) -> i32 {\n    $0\n    return 0\n}",
    },
    Attribute {
        name: "helper",
        form: "@helper",
        signature: "fn name(..)",
        docs: "A function of the kernel half that programs and other helpers call. Userspace cannot call it.",
        snippet: "@helper\nfn ${1:name}($2) -> ${3:u32} {\n    $0\n}",
    },
    plain(
        "kfunc",
        "@kfunc",
        "A function of the kernel half that programs call like a helper. It may allocate with `new T(FLAG)`.",
    ),
    plain(
        "private",
        "@private",
        "A function of the kernel half that only `@kfunc` and `@private` functions call.",
    ),
    Attribute {
        name: "test",
        form: "@test",
        signature: "fn name() -> i32",
        docs: "A test: `ks test` runs it in userspace, 0 is success. `test(program, context)` may be called \
               in it.",
        snippet: "@test\nfn ${1:name}() -> i32 {\n    $0\n    return 0\n}",
    },
    Attribute {
        name: "struct_ops",
        form: "@struct_ops(\"kernel struct\")",
        signature: "impl name { .. }",
        docs: "The functions of the impl block become the members of a struct of the kernel. `register` \
               hands it over.",
        snippet: "@struct_ops(\"${1:tcp_congestion_ops}\")\nimpl ${2:name} {\n    $0\n}",
    },
    Attribute {
        name: "uprobe",
        form: "@uprobe(\"path:symbol\")",
        signature: "fn name(up to 6 integers or pointers) -> i32",
        docs: "The kernel enters the function whenever a program in user space calls a function of its own.",
        snippet: "",
    },
    Attribute {
        name: "uretprobe",
        form: "@uretprobe(\"path:symbol\")",
        signature: "fn name(the result) -> i32",
        docs: "The kernel enters the function whenever a function of a program in user space returns.",
        snippet: "",
    },
    Attribute {
        name: "lsm",
        form: "@lsm(\"hook\")",
        signature: "fn name(the hook's parameters) -> i32",
        docs: "Decides at a security hook: 0 allows, a negative error number denies.",
        snippet: "",
    },
    Attribute {
        name: "cgroup",
        form: "@cgroup(\"ingress\"), @cgroup(\"connect4\"), ...",
        signature: "fn name(ctx: *__sk_buff) -> i32",
        docs: "Decides for the tasks of a cgroup: 1 allows, 0 denies.",
        snippet: "",
    },
    Attribute {
        name: "socket_filter",
        form: "@socket_filter",
        signature: "fn name(ctx: *__sk_buff) -> i32",
        docs: "Says how many bytes of each packet a socket gets.",
        snippet: "",
    },
    Attribute {
        name: "timer",
        form: "@timer(\"10ms\")",
        signature: "fn name() -> void",
        docs: "The kernel enters the function again and again, from the load on.",
        snippet: "",
    },
    Attribute {
        name: "syscall_enter",
        form: "@syscall_enter(\"name\")",
        signature: "fn name(the call's parameters) -> i32",
        docs: "The kernel enters the function at the entry of a system call.",
        snippet: "",
    },
    Attribute {
        name: "syscall_exit",
        form: "@syscall_exit(\"name\")",
        signature: "fn name(the call's result) -> i32",
        docs: "The kernel enters the function when a system call returns.",
        snippet: "",
    },
    Attribute {
        name: "flags",
        form: "@flags(flag | flag)",
        signature: "var name : kind<K, V>(N)",
        docs: "Flags of the map below: `no_prealloc`, `no_common_lru`, `numa_node(n)`, `rdonly`, `wronly`, \
               `clone`.",
        snippet: "",
    },
];

/// Returns the attribute of a name; none for an unknown name.
pub fn attribute(name: &str) -> Option<&'static Attribute> {
    ATTRIBUTES.iter().find(|attribute| attribute.name == name)
}

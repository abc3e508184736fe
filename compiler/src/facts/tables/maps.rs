//! Kinds and flags of maps.

/// A map kind and its documentation.
pub struct MapKind {
    /// The name of the kind in a script.
    pub name: &'static str,
    /// The type as it is written.
    pub form: &'static str,
    /// The documentation in Markdown.
    pub docs: &'static str,
    /// A snippet of the text after its name, with placeholders.
    pub snippet: &'static str,
}

const fn keyed(name: &'static str, form: &'static str, docs: &'static str) -> MapKind {
    MapKind { name, form, docs, snippet: "<${1:u32}, ${2:u64}>(${3:1024})" }
}

const fn of_values(name: &'static str, form: &'static str, docs: &'static str) -> MapKind {
    MapKind { name, form, docs, snippet: "<${1:u64}>(${2:1024})" }
}

/// All kinds of maps.
pub const KINDS: &[MapKind] = &[
    keyed("hash", "hash<K, V>(N)", "At most N entries by key."),
    keyed("array", "array<K, V>(N)", "N entries by index; all of them are always present."),
    keyed(
        "percpu_hash",
        "percpu_hash<K, V>(N)",
        "As `hash`, with a value for each CPU. Userspace reads the sum.",
    ),
    keyed(
        "percpu_array",
        "percpu_array<K, V>(N)",
        "As `array`, with a value for each CPU. Userspace reads the sum.",
    ),
    keyed(
        "lru_hash",
        "lru_hash<K, V>(N)",
        "As `hash`; a full map forgets the entry that was not used for longest.",
    ),
    keyed("lru_percpu_hash", "lru_percpu_hash<K, V>(N)", "As `lru_hash`, with a value for each CPU."),
    keyed(
        "lpm_trie",
        "lpm_trie<K, V>(N)",
        "The entry with the longest prefix of the key, which starts with `prefix: u32`.",
    ),
    MapKind {
        name: "ringbuf",
        form: "ringbuf<T>(bytes)",
        docs: "A ring buffer: the kernel half reserves, fills and submits records, userspace gets them in \
               `dispatch`. The size is a power of two from 4096.",
        snippet: "<${1:Event}>(${2:4096})",
    },
    of_values("queue", "queue<V>(N)", "First in, first out: `push`, `pop`, `peek`."),
    of_values("stack", "stack<V>(N)", "Last in, first out: `push`, `pop`, `peek`."),
    of_values("bloom", "bloom<V>(N)", "May say yes to what was never added: `add`, `has`."),
    MapKind {
        name: "stack_trace",
        form: "stack_trace(N)",
        docs: "At most N call stacks, by the number that `stack_id` gives.",
        snippet: "(${1:16384})",
    },
    MapKind {
        name: "task_storage",
        form: "task_storage<V>",
        docs: "A value for each task, by a pointer to it, in the kernel half: \
               `m[bpf_get_current_task_btf()]`.",
        snippet: "<${1:u64}>",
    },
    MapKind {
        name: "inode_storage",
        form: "inode_storage<V>",
        docs: "A value for each inode, by a pointer to it, in `@lsm` programs: `m[file->f_inode]`.",
        snippet: "<${1:u64}>",
    },
    MapKind {
        name: "sk_storage",
        form: "sk_storage<V>",
        docs: "A value for each socket, by a pointer to it, in the kernel half: `m[ctx->sk]`.",
        snippet: "<${1:u64}>",
    },
    MapKind {
        name: "cgroup_storage",
        form: "cgroup_storage<V>",
        docs: "A value for each cgroup, by a pointer to it, in the kernel half: \
               `m[task->cgroups->dfl_cgrp]`.",
        snippet: "<${1:u64}>",
    },
];

/// The flags of maps, each with its documentation.
pub const FLAGS: &[(&str, &str)] = &[
    ("no_prealloc", "Entries are allocated when they are made, not all at the start."),
    ("no_common_lru", "Each CPU forgets its own entries (`lru_hash`)."),
    ("numa_node", "`numa_node(n)`: the map's memory lies on that node."),
    ("rdonly", "Userspace may only read."),
    ("wronly", "Userspace may only write."),
    ("clone", "The values go to a socket that is cloned."),
];

/// The methods of a ring buffer: name, signature, meaning.
pub const RING_METHODS: &[(&str, &str, &str)] = &[
    ("reserve", "reserve() -> *T", "Kernel half: a zeroed record, or null if the buffer is full."),
    ("submit", "submit(record: *T) -> i32", "Kernel half: hands the record to userspace."),
    ("discard", "discard(record: *T) -> i32", "Kernel half: gives the record back."),
    (
        "on_event",
        "on_event(handler: fn(*T) -> i32) -> u32",
        "Userspace: the function that `dispatch` calls for each record. A negative result ends `dispatch`.",
    ),
];

/// The methods of other map kinds: kind, name, signature, meaning.
pub const METHODS: &[(&str, &str, &str, &str)] = &[
    ("queue", "push", "push(value: V) -> i32", "Puts a value at the end."),
    ("queue", "pop", "pop() -> V", "Takes the first value; null if there is none."),
    ("queue", "peek", "peek() -> V", "The first value, which stays; null if there is none."),
    ("stack", "push", "push(value: V) -> i32", "Puts a value on top."),
    ("stack", "pop", "pop() -> V", "Takes the value on top; null if there is none."),
    ("stack", "peek", "peek() -> V", "The value on top, which stays; null if there is none."),
    ("bloom", "add", "add(value: V) -> i32", "Adds a value."),
    ("bloom", "has", "has(value: V) -> bool", "Whether the value may have been added."),
];

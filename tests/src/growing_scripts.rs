//! Scripts of any size: the verifier's work and the compiler's should grow with a script, and no faster.

use std::fmt::Write as _;

/// A kind of script.
pub struct Growing {
    /// Name in tables.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The sizes to compare, ascending.
    pub sizes: [usize; 4],
    /// Returns the script of a size.
    pub script: fn(usize) -> String,
}

/// The kinds of scripts.
pub const GROWING: [Growing; 5] = [
    Growing {
        name: "text",
        unit: "comparisons of a string",
        sizes: [10, 50, 100, 200],
        script: comparisons_of_text,
    },
    Growing {
        name: "packet",
        unit: "comparisons of bytes of a packet",
        sizes: [10, 50, 100, 200],
        script: comparisons_in_packets,
    },
    Growing { name: "fields", unit: "fields of a parser", sizes: [1, 10, 30, 60], script: parser },
    Growing {
        name: "offsets",
        unit: "lines that read a packet and an array at three unknown offsets",
        sizes: [1, 5, 20, 60],
        script: unknown_offsets,
    },
    Growing {
        name: "records",
        unit: "fields compared of three records at unknown offsets of a packet",
        sizes: [1, 8, 16, 48],
        script: records_in_packets,
    },
];

fn comparisons_of_text(count: usize) -> String {
    let mut script = format!(
        "var counts : u64[{count}] = [0]\n@tracepoint(\"sched/sched_switch\") {{\n    var name = comm()\n"
    );
    for number in 0..count {
        let _ = writeln!(script, "    if (name == \"daemon{number:03}\") {{ counts[{number}] += 1 }}");
    }
    script + "}\n"
}

/// Compares each line of a text in a packet with words.
fn comparisons_in_packets(count: usize) -> String {
    let mut script = format!("var counts : u64[{count}] = [0]\n{IS}");
    for number in 0..count {
        let start = if number == 0 { "        " } else { " else " };
        let _ = write!(script, "{start}if (is(p, at, \"header{number:03}\", 9)) {{ counts[{number}] += 1 }}");
    }
    script + "\n        at = line_end(p, at, len) + 2\n    }\n    return XDP_PASS\n}\n"
}

const IS: &str = r#"
@helper
fn is(p: *u8, at: u32, word: str(12), size: u32) -> bool {
    for (i in 0..11) {
        if (i >= size) { break }
        if (p[at + i] != (word[i] as u8)) { return false }
    }
    return true
}

@helper
fn line_end(p: *u8, start: u32, end: u32) -> u32 {
    var at = start
    while (at + 1 < end) {
        if (p[at] == 13 && p[at + 1] == 10) { return at }
        at += 1
    }
    return end
}

@xdp
fn lines(ctx: *xdp_md) -> xdp_action {
    var p = ctx->data
    var len = (ctx->data_end - ctx->data) as u32
    var at: u32 = 54
    for (line in 0..64) {
        if (at >= len) { break }
"#;

/// Fields that may be there one after the other, each with a tag, the number of its bytes, and these.
fn parser(fields: usize) -> String {
    let mut script = String::from("struct Parsed { size: u32");
    for number in 0..fields {
        let _ = write!(script, ", field{number}: u32");
    }
    script += " }\nvar out : ringbuf<Parsed>(65536)\n@xdp\nfn parse(ctx: *xdp_md) -> xdp_action {\n";
    script += "    var r = out.reserve()\n    if (r == null) { return XDP_PASS }\n    var p = ctx->data\n";
    script += "    var len = (ctx->data_end - ctx->data) as u32\n    r->size = len\n    var at: u32 = 14\n";
    for number in 0..fields {
        let _ = write!(
            script,
            "    if (at + 6 <= len && p[at] == {number}) {{
        var size = p[at + 1] as u32
        if (size < 4) {{
            out.discard(r)
            return XDP_DROP
        }}
        r->field{number} = ntohl(*((p + at + 2) as *u32))
        at += 2 + size
    }}
"
        );
    }
    script + "    out.submit(r)\n    return XDP_PASS\n}\n"
}

/// Adds what is at three offsets and the same distances from them, as filters and checksums do.
fn unknown_offsets(lines: usize) -> String {
    let mut script = String::from(
        "struct Offsets { x: u32, y: u16, z: u8 }\nvar table : u32[64]\nvar sum : u64 = 0\n@xdp\n\
         fn add(ctx: *xdp_md) -> xdp_action {\n    var p = ctx->data\n    var w = p as *Offsets\n    \
         var x = w->x\n    var y: u32 = w->y\n    var z: u32 = w->z\n    var s: u64 = 0\n",
    );
    for at in 0..lines {
        let _ = writeln!(script, "    s += (p[x + {at}] ^ p[y + {at}]) + table[x + {at}] * table[z + {at}]");
    }
    script + "    sum += s\n    return XDP_PASS\n}\n"
}

/// Compares three records field by field, as a vote does.
fn records_in_packets(fields: usize) -> String {
    let mut script = String::from("struct Record { size: u32");
    for number in 0..fields {
        let _ = write!(script, ", field{number}: u32");
    }
    script +=
        " }\nvar different : u64 = 0\n@xdp\nfn vote(ctx: *xdp_md) -> xdp_action {\n    var p = ctx->data\n";
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        let _ = writeln!(script, "    var {name} = (p + p[{}]) as *Record", 14 + at);
    }
    for number in 0..fields {
        let field = format!("field{number}");
        let _ = writeln!(
            script,
            "    if (a->{field} != b->{field} && a->{field} != c->{field}) {{ different += 1 }}"
        );
    }
    script + "    return XDP_PASS\n}\n"
}

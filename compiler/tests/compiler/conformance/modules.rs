//! Chapter 9: imports and includes.

use crate::conformance::scripts::{accepts_files, refuses_files};

const TOOLS: &str = "var table : hash<u32, u32>(8)\nstruct Inner { a: u32 }\n\
                     fn add(a: u32, b: u32) -> u32 { table[a] = b\nreturn a + b }\n\
                     fn announce() { print(\"hello\") }\n\
                     @private\nfn secret() -> u32 { return 1 }\n\
                     @helper\nfn small(n: u64) -> bool { return n < 64 }\n";

fn main_with(body: &str) -> String {
    format!("import tools from \"./lib/tools.ks\"\nfn main() -> i32 {{\n{body}\nreturn 0\n}}\n")
}

#[test]
fn lf_124_modules() {
    let with_tools = |body: &str| main_with(body);
    let accepted = with_tools("var x: u32 = tools.add(1, 2)\ntools.announce()");
    accepts_files(&[("main.ks", &accepted), ("lib/tools.ks", TOOLS)]);
    for (wrong, codes) in [
        ("var x = tools.table[1]", "KS0304"),
        ("tools.missing()", "KS0305"),
        ("tools.secret()", "KS0306"),
        ("tools.add(1)", "KS0404"),
        ("tools.add(1, \"x\")", "KS0401"),
        ("var x = tools", "KS0301|KS0304|KS0401|KS0608"),
        ("tools.small(5)", "KS0306"),
    ] {
        refuses_files(&[("main.ks", &with_tools(wrong)), ("lib/tools.ks", TOOLS)], codes);
    }
    let program =
        "@xdp\nfn p(ctx: *xdp_md) -> xdp_action { if (tools.small(3)) { return XDP_DROP } return XDP_PASS }";
    accepts_files(&[("main.ks", &format!("{program}\n{}", main_with(""))), ("lib/tools.ks", TOOLS)]);
    let plain = with_tools("");
    refuses_files(&[("main.ks", &plain), ("lib/tools.ks", "fn main() -> i32 { return 0 }")], "KS0802");
    refuses_files(
        &[
            ("main.ks", &plain),
            ("lib/tools.ks", "@xdp\nfn p(ctx: *xdp_md) -> xdp_action { return XDP_PASS }"),
        ],
        "KS0802",
    );
    refuses_files(&[("main.ks", &plain)], "KS0801");
    refuses_files(&[("main.ks", "import a from \"a.txt\"\nfn main() -> i32 { return 0 }\n")], "KS0801");
    refuses_files(
        &[
            ("main.ks", &plain),
            ("lib/tools.ks", "import o from \"o.ks\""),
            ("lib/o.ks", "import t from \"tools.ks\""),
        ],
        "KS0803",
    );
    // Paths are relative to the importing file; the names of a module are separate.
    accepts_files(&[
        (
            "main.ks",
            &with_tools("var n = tools.twice(2) + twice(3)\n")
                .replace("fn main", "fn twice(n: u32) -> u32 { return n }\nfn main"),
        ),
        ("lib/tools.ks", "import o from \"o.ks\"\nfn twice(n: u32) -> u32 { return o.twice(n) }"),
        ("lib/o.ks", "fn twice(n: u32) -> u32 { return n * 2 }"),
    ]);
    accepts_files(&[(
        "main.ks",
        "import py from \"gone.py\"\nfn main() -> i32 {\nvar x: u64 = py.score()\nreturn 0\n}\n",
    )]);
}

#[test]
fn lf_125_headers() {
    let header = "// generated\nstruct S { type: u32, flags: u32, list: u32, key: u32, exit: u32, data: \
    u32 }\n\
                  enum Wide { Big = 18446744073709551615 }\ntype Word = u32\n\
                  extern later(a: u32) -> u64\nfn declared(a: u32) -> u32 { }\n";
    let script = |includes: &str| {
        format!("{includes}\nfn main() -> i32 {{\nvar s: S\ns.flags = 1\nvar w: Word = s.key\nreturn 0\n}}\n")
    };
    let once = script("include \"lib/s.kh\"");
    accepts_files(&[("main.ks", &once), ("lib/s.kh", header)]);
    let twice = script("include \"lib/s.kh\"\ninclude \"./lib/s.kh\"\ninclude \"lib/o.kh\"");
    accepts_files(&[("main.ks", &twice), ("lib/s.kh", header), ("lib/o.kh", "include \"s.kh\"")]);
    refuses_files(&[("main.ks", "include \"gone.kh\"\nfn main() -> i32 { return 0 }\n")], "KS0804");
    refuses_files(
        &[("main.ks", "include \"a.ks\"\nfn main() -> i32 { return 0 }\n"), ("a.ks", "")],
        "KS0804",
    );
    for wrong in ["fn f() -> u32 { return 1 }", "var m : hash<u32, u64>(8)", "var g: u32 = 1"] {
        refuses_files(
            &[("main.ks", "include \"s.kh\"\nfn main() -> i32 { return 0 }\n"), ("s.kh", wrong)],
            "KS0805",
        );
    }
    refuses_files(
        &[
            ("main.ks", "include \"a.kh\"\nfn main() -> i32 { return 0 }\n"),
            ("a.kh", "include \"b.kh\""),
            ("b.kh", "include \"a.kh\""),
        ],
        "KS0803",
    );
    for built_in in [
        "xdp.kh",
        "tc.kh",
        "probe.kh",
        "tracepoint.kh",
        "perf_event.kh",
        "xdp_kfuncs.kh",
        "common_kfuncs.kh",
        "tcp_congestion_ops.kh",
        "sched_ext_ops.kh",
    ] {
        accepts_files(&[("main.ks", &format!("include \"{built_in}\"\nfn main() -> i32 {{ return 0 }}\n"))]);
    }
}

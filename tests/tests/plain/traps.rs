//! Trap reports: the position in the script, and the functions that were running.

use ks_tests::{Outcome, run_script};

/// Runs a script that must end by a trap; returns the lines of standard error, without the plugin's name.
fn trap(script: &str) -> Vec<String> {
    let outcome: Outcome = run_script("traps", script, &[] as &[&str]);
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    let text = outcome.stderr.strip_prefix("traps.wasm: ").expect("the plugin's name comes first");
    text.lines().map(str::to_owned).collect()
}

/// Returns a script with two functions around the innermost one, whose statement is in line 4.
fn nested(declarations: &str, statement: &str) -> String {
    format!(
        "{declarations}\nfn inner(n: i32) -> u32 {{\n    var p = nothing(n)\n    {statement}\n    return \
         0\n}}\n\
         fn outer(n: i32) -> u32 {{\n    return\n        1 + inner(n)\n}}\nfn main() -> i32 {{\n    \
         defer print(\"never\")\n    print(\"%u\",\n        outer(7))\n    return 0\n}}\n\
         fn nothing(n: i32) -> *u64 {{\n    return null\n}}\n"
    )
}

#[test]
fn a_trap_names_the_functions_that_were_running() {
    let cases = [
        ("var a : u32[4]", "return a[n]", "4:14: KS-TRAP index: 7 is outside the array of 4 elements"),
        ("var a : u32[4]", "a[n] = 1", "4:7: KS-TRAP index: 7 is outside the array of 4 elements"),
        ("", "return *p", "4:13: KS-TRAP null: this pointer is null"),
        ("", "*p = 1", "4:6: KS-TRAP null: this pointer is null"),
        (
            "",
            "return *(p + 100000000000)",
            "4:14: KS-TRAP pointer: this pointer, 800000000000, is outside the memory of the plugin",
        ),
        (
            "struct S { a: u32 }",
            "var s: S   delete &s",
            "4:23: KS-TRAP delete: this is not an object of `new`, or it was deleted before",
        ),
        (
            "type F = fn(i32) -> u32",
            "var f: F = null   return f(n)",
            "4:30: KS-TRAP null: this function value is null",
        ),
    ];
    for (declarations, statement, message) in cases {
        let found = trap(&nested(declarations, statement));
        let expected = [
            format!("traps.ks:{message}"),
            "  in inner at traps.ks:4".into(),
            "  in outer at traps.ks:9".into(),
            "  in main at traps.ks:14".into(),
        ];
        assert_eq!(found, expected, "{statement}");
    }
}

#[test]
fn division_by_zero_is_defined_and_no_trap() {
    let script = "fn main() -> i32 {\n    var zero: i64 = 0\n    var least: i64 = 1\n    \
                  least = least << 63\n    \
                  print(\"%d %d %d %d\", 7 / zero, 7 % zero, least / (zero - 1), least % (zero - 1))\n    \
                  return 0\n}\n";
    let outcome = run_script("division", script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "0 7 -9223372036854775808 0\n"));
}

#[test]
fn a_full_stack_is_reported_however_it_fills() {
    let local = "fn deep(n: u64) -> u64 {\n    var a: u64[1000]\n    a[0] = n\n    var b = deep(n + 1)\n    \
                 return a[0] + b\n}\n";
    let bare = "fn deep(n: u64) -> u64 {\n\n\n    return deep(n + 1) + 1\n}\n";
    let mutual = "fn other(n: u64) -> u64 { return deep(n) }\nfn deep(n: u64) -> u64 {\n\n    \
                  return other(n + 1) * 3 + n\n}\n";
    let many = "fn deep(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64) -> u64 {\n\n\n    \
                return deep(b, c, d, e, f, g, h, a + 1) * a + deep(a, b, c, d, e, f, g, h) * (b + c * (d + e \
                * (f + g * (h + deep(h, g, f, e, d, c, b, a)))))\n}\n";
    for (text, call, line) in [
        (local, "deep(0)", "1:4"),
        (bare, "deep(0)", "1:4"),
        (mutual, "deep(0)", "1:4"),
        (many, "deep(1, 2, 3, 4, 5, 6, 7, 8)", "1:4"),
    ] {
        let found = trap(&format!("{text}fn main() -> i32 {{ print(\"%u\", {call})   return 0 }}\n"));
        assert!(
            found[0].contains("KS-TRAP stack: the stack of the plugin (1 MiB) is full in `"),
            "{found:#?}"
        );
        assert!(found[0].starts_with(&format!("traps.ks:{line}")) || text == mutual, "{found:#?}");
        assert!(found.contains(&"  in deep at traps.ks:4".to_owned()), "{found:#?}");
        assert_eq!(found.last().map(String::as_str), Some("  .."));
        assert!(found.len() <= 18, "{} lines", found.len());
    }
}

#[test]
fn full_memory_is_reported() {
    let objects = "struct Node { next: *Node, bytes: u8[100000] }\nfn grow() {\n    \
                   var first: *Node = null\n    \
                   while (true) {\n        var one = new Node()\n        one->next = first\n        \
                   first = one\n    }\n}\nfn main() -> i32 {\n    grow()\n    return 0\n}\n";
    let found = trap(objects);
    assert_eq!(
        found,
        [
            "traps.ks:5:19: KS-TRAP memory: the memory of the plugin is full",
            "  in grow at traps.ks:5",
            "  in main at traps.ks:11",
            "  because: the limit `memory_bytes` of the plugin is 134217728",
            "  do: --limit memory_bytes=.. allows more"
        ]
    );
}

#[test]
fn as_many_variables_as_the_compiler_takes_fit_the_plugin() {
    // 54 MiB; the stack and the constants precede them.
    let script = "var a : u8[16777216]\nvar b : u8[16777216]\nvar c : u8[16777216]\nvar d : u8[6291456]\n\
                  fn main() -> i32 {\n    a[0] = 1\n    b[0] = 2\n    c[0] = 3\n    d[6291455] = 9\n    \
                  print(\"%u\", a[0] + b[0] + c[0] + d[6291455])\n    return 0\n}\n";
    let outcome = run_script("large", script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "15\n"), "{}", outcome.stderr);
}

#[test]
fn a_deferred_call_that_traps_names_who_deferred_it() {
    let script = "var a : u32[2]\nfn note(n: u32) {\n    a[n] = 1\n}\nfn work() {\n    defer note(5)\n    \
                  print(\"work\")\n}\nfn main() -> i32 {\n    work()\n    return 0\n}\n";
    let expected = [
        "traps.ks:3:7: KS-TRAP index: 5 is outside the array of 2 elements",
        "  in note at traps.ks:3",
        "  in deferred by work at traps.ks:6",
        "  in work at traps.ks:8",
        "  in main at traps.ks:10",
    ];
    assert_eq!(trap(script), expected);
}

#[test]
fn a_module_is_named_by_its_own_file() {
    use ks_tests::{Folder, command, finish};
    let folder = Folder::new();
    folder.write("lists.ks", "var a : u32[3]\n\nfn at(n: i32) -> u32 {\n    return a[n]\n}\n");
    let main = "import lists from \"lists.ks\"\nfn main() -> i32 {\n    print(\"%u\", lists.at(-1))\n    \
                return 0\n}\n";
    let (script, plugin) = (folder.write("user.ks", main), folder.path("user.wasm"));
    let built =
        finish(command("ks").args(["build".as_ref(), script.as_os_str(), "-o".as_ref(), plugin.as_os_str()]));
    assert_eq!(built.code, 0, "{}", built.stderr);
    let outcome = finish(command("ks-host").arg(&plugin));
    let expected = "user.wasm: lists.ks:4:14: KS-TRAP index: -1 is outside the array of 3 elements\n  \
                    in lists.at at lists.ks:4\n  in main at user.ks:3\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (125, expected));
}

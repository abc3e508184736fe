//! The published scripts are formatted by `ks fmt`.

use ks_compiler::diag::Diagnostics;
use ks_compiler::source::SourceMap;
use ks_compiler::{fmt, lex, parse};

#[test]
fn every_example_is_formatted() {
    let mut wrong = Vec::new();
    for path in examples() {
        let name = path.display().to_string();
        let text = std::fs::read(&path).expect("readable");
        let file = SourceMap::default().add(name.clone(), text.clone()).expect("short");
        let mut diagnostics = Diagnostics::default();
        let tokens = lex::scan(file, &text);
        let ast = parse::parse(&tokens, &text, &mut diagnostics);
        assert!(!diagnostics.has_errors(), "{name}: {:?}", diagnostics.sorted());
        if fmt::format(&tokens, &text, &ast).expect("it has no errors") != text {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "run `ks fmt` on {wrong:?}");
}

fn examples() -> Vec<std::path::PathBuf> {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"));
    let mut open = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "ks") {
                found.push(path);
            }
        }
    }
    assert!(found.len() >= 3, "the examples are there");
    found
}

fn formatted(text: &str) -> String {
    let file = SourceMap::default().add("t.ks", text).expect("short");
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text.as_bytes());
    let ast = parse::parse(&tokens, text.as_bytes(), &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{text}: {:?}", diagnostics.sorted());
    let new = fmt::format(&tokens, text.as_bytes(), &ast).expect("it has no errors");
    String::from_utf8(new).expect("text")
}

#[test]
fn semicolons_go_where_they_mean_nothing() {
    let text = "var a = 1; var b : u32;\nfn f() {\n    a = b; b = 1;; // both\n    \
                if (a == 1) { return; };\n    return;\n}\n";
    let wanted = "var a = 1\nvar b : u32\nfn f() {\n    a = b\n    b = 1 // both\n    \
                  if (a == 1) { return }\n    return\n}\n";
    assert_eq!(formatted(text), wanted);
    // Without it the next line would continue the statement.
    for kept in ["a = b;\n    -c", "a = b;\n    (c)", "a = b;\n    [1, 2]", "return;\n    g()"] {
        let text = format!("fn f() {{\n    {kept}\n}}\n");
        assert_eq!(formatted(&text), text);
    }
    assert_eq!(formatted("fn f() {\n    a = b; *p = c;\n}\n"), "fn f() {\n    a = b\n    *p = c\n}\n");
}

#[test]
fn a_byte_order_mark_goes_and_a_line_for_the_shell_stays() {
    let text = "\u{feff}#!/usr/bin/env ks-host\nfn  main() { }\n";
    assert_eq!(formatted(text), "#!/usr/bin/env ks-host\nfn main() {}\n");
}

#[test]
fn programs_without_a_head_and_their_attributes() {
    let text = "@begin{print(\"x\")}\n@perf_event( \"cpu_clock\" ,freq:99,pid : args.pid ) {n[cpu()]+=1\nm.add(1)}\n\
                @tc(\"egress\",args.device) fn f(ctx:*__sk_buff)->i32{return 0}\n\
                local var s:hash<u32,u64>\nvar h:linear_hist( 0,10 ,4)\n";
    let expected = "@begin { print(\"x\") }\n@perf_event(\"cpu_clock\", freq: 99, pid: args.pid) {\n    \
                    n[cpu()] += 1\n    m.add(1)\n}\n@tc(\"egress\", args.device)\n\
                    fn f(ctx: *__sk_buff) -> i32 { return 0 }\nlocal var s : hash<u32, u64>\n\
                    var h : linear_hist(0, 10, 4)\n";
    assert_eq!(formatted(text), expected);
}

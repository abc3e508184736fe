//! LF-001 to LF-028, as far as tokens and syntax decide them.

use ks_compiler::ast::{Expr, ExprKind, Item, ItemKind, StmtKind, UnaryOp};

use crate::front_end::support::{accepts, body, only_ours, read, refuses};

/// Parses the value of `var x = text`.
fn value(text: &str) -> Expr {
    let read = read(&format!("var x = {text}"));
    assert_eq!(read.errors(), [""; 0], "{text}");
    match read.ast.items.into_iter().next() {
        Some(Item { kind: ItemKind::Global(global), .. }) => global.init.expect("written"),
        _ => panic!("{text} is not a value"),
    }
}

/// Formats an expression with every operation in parentheses.
fn sexpr(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Paren(inner) => sexpr(inner),
        ExprKind::Binary(op, left, right) => format!("({} {} {})", sexpr(left), op.text(), sexpr(right)),
        ExprKind::Unary(op, operand) => {
            let op = match op {
                UnaryOp::Neg => "-",
                UnaryOp::Not => "!",
                UnaryOp::Deref => "*",
                UnaryOp::AddrOf => "&",
                UnaryOp::BitNot => "~",
            };
            format!("({op}{})", sexpr(operand))
        }
        ExprKind::Field { base, arrow, name } => {
            format!("{}{}{}", sexpr(base), if *arrow { "->" } else { "." }, name.name)
        }
        ExprKind::Index(base, index) => format!("{}[{}]", sexpr(base), sexpr(index)),
        ExprKind::Call { callee, args } => {
            format!("{}({})", sexpr(callee), args.iter().map(sexpr).collect::<Vec<_>>().join(", "))
        }
        ExprKind::Cast(inner, _) => format!("({} as T)", sexpr(inner)),
        other => panic!("no words for {other:?}"),
    }
}

#[track_caller]
fn groups(text: &str, expected: &str) {
    assert_eq!(sexpr(&value(text)), expected, "{text}");
}

#[test]
fn lf_001_line_ends_and_blanks_do_not_change_the_program() {
    let plain = read("@xdp fn f(a: *xdp_md) -> u32 { var b = a->x + 1 return b }").ast;
    let broken =
        read("@xdp\r\nfn\tf\r(\na:*\r\nxdp_md\n)->\nu32\n{\nvar\nb\n=\na\n->\nx\n+\n1\nreturn\tb\n}\n");
    assert_eq!(broken.errors(), [""; 0]);
    assert!(ks_compiler::ast::without_spans::same(&plain, &broken.ast));
    let other = read("@xdp fn f(a: *xdp_md) -> u32 { var b = a->x + 2 return b }").ast;
    assert!(!ks_compiler::ast::without_spans::same(&plain, &other));
}

#[test]
fn lf_002_semicolons_separate() {
    only_ours(&body("var a = 1;"), "KS0101");
    only_ours("var a = 1;", "KS0101");
    only_ours(";", "KS0101");
    only_ours(&body("return; g()"), "KS0101");
    refuses(&body("g(1; 2)"), "KS0201");
    refuses("struct S { a: u32; b: u32 }", "KS0201");
    accepts(&body("print(\"a;b\") // c;d"));
}

#[test]
fn lf_003_radixes() {
    for (text, number) in [("0x1F", 31), ("0X1f", 31), ("0b101", 5), ("0B101", 5), ("007", 7)] {
        assert_eq!(value(text).kind, ExprKind::Int(number), "{text}");
    }
}

#[test]
fn lf_004_no_octal_separators_or_fractions() {
    for text in ["0o7", "1_000", "1.5", "10u32"] {
        refuses(&body(&format!("var a = {text}\nreturn")), "KS0201");
    }
}

#[test]
fn lf_005_integers_have_64_bits() {
    refuses("var a = 18446744073709551616", "KS0102");
    refuses("var a = 0x10000000000000000", "KS0102");
    assert_eq!(value("18446744073709551615").kind, ExprKind::Int(u64::MAX));
}

#[test]
fn lf_006_characters() {
    for (text, byte) in [("'a'", b'a'), (r"'\n'", b'\n'), (r"'\x41'", b'A'), (r"'\''", b'\'')] {
        assert_eq!(value(text).kind, ExprKind::Char(byte), "{text}");
    }
    refuses("var a = ''", "KS0103");
    for text in ["'ab'", "'\u{e9}'", r"'\q'"] {
        refuses(&format!("var a = {text}"), "KS0104");
    }
}

#[test]
fn lf_007_escapes() {
    assert_eq!(
        value(r#""\\ \' \" \n \t \r \0 \x41""#).kind,
        ExprKind::Str(b"\\ ' \" \n \t \r \0 A".to_vec())
    );
    assert_eq!(value(r#""\q""#).kind, ExprKind::Str(br"\q".to_vec()));
    assert_eq!(value("\"\u{e9}\"").kind, ExprKind::Str("\u{e9}".into()));
}

#[test]
fn lf_008_strings_end() {
    refuses("var a = \"open\nfn f() {", "KS0105");
    assert_eq!(value("\"a\r\nb\"").kind, ExprKind::Str(b"a\nb".to_vec()));
}

#[test]
fn lf_009_keywords() {
    let keywords = "fn extern include import from pin local config type struct enum impl var const if else \
                    for while return break continue in new delete try catch throw defer match default u8 u16 \
                    u32 u64 i8 i16 i32 i64 bool char void str true false null";
    assert_eq!(keywords.split_whitespace().count(), 45);
    for keyword in keywords.split_whitespace() {
        refuses(&body(&format!("var {keyword} = 1")), "KS0201");
    }
    for keyword in
        ["loop", "pub", "hash", "print", "flags", "kernel", "size_t", "xdp", "let", "as", "counter", "_"]
    {
        accepts(&body(&format!("var {keyword} = 1\n{keyword} += 2\nreturn {keyword}")));
    }
}

#[test]
fn lf_010_a_field_may_be_called_type() {
    accepts(
        "struct S { type: u32 } fn f(p: *S) -> u32 { var s = S { type: 1 } s.type = 2 return s.type + \
         p->type }",
    );
    refuses("struct S { in: u32 }", "KS0201");
    // Behind a dot all of them are, for the members of kernel structs.
    only_ours(&body("return x.default"), "KS0201");
}

#[test]
fn lf_011_precedence() {
    groups("1 + 2 * 3 == 7 && !false", "(((1 + (2 * 3)) == 7) && (!false))");
    groups("10 - 3 - 2", "((10 - 3) - 2)");
    groups("!a == b", "((!a) == b)");
    groups("a < b < c", "((a < b) < c)");
    groups("a | b ^ c & d << e + f", "(a | (b ^ (c & (d << (e + f)))))");
    groups("a < b | c || d", "((a < (b | c)) || d)");
    groups("-a as u8 * b", "(((-a) as T) * b)");
}

#[test]
fn lf_012_postfix_binds_tighter_than_prefix() {
    groups("-v[0]", "(-v[0])");
    groups("*p->f", "(*p->f)");
    groups("&v[i]", "(&v[i])");
}

#[test]
fn lf_013_a_line_goes_on_before_an_operator() {
    let read = read(&body("var a = b\n-c\nvar d = e\n(f)(1)\nreturn\ng()"));
    assert_eq!(read.errors(), [""; 0]);
    assert_eq!(read.warnings(), ["3:1 KS0214", "5:1 KS0214", "7:1 KS0214"]);
    let ItemKind::Function(function) = &read.ast.items[0].kind else { panic!("a function") };
    assert_eq!(function.body.stmts.len(), 3);
    refuses(&body("var h = k\n[1, 2]"), "KS0201");
}

#[test]
fn a_line_that_stores_through_a_pointer_is_a_statement() {
    for store in ["*p = e", "*p += e", "**p = e", "*p.q[i](j)->k -= e", "*(p + 1) = e", "*p <<= e"] {
        let read = read(&body(&format!("var a = b\n{store}")));
        let ItemKind::Function(function) = &read.ast.items[0].kind else { panic!("a function") };
        assert_eq!(function.body.stmts.len(), 2, "{store}");
        assert!(matches!(function.body.stmts[1].kind, StmtKind::Assign { .. }), "{store}");
        assert_eq!(read.warnings(), [""; 0], "{store}");
    }
    let product = read(&body("var a = b\n*p\n*q == e"));
    assert_eq!(product.warnings(), ["3:1 KS0214", "4:1 KS0214"]);
    accepts(&body("return\n*p = e"));
}

#[test]
fn lf_014_comments() {
    refuses(&body("/* no */"), "KS0201");
    accepts("var a = 1 // the end");
}

#[test]
fn lf_015_trailing_commas() {
    accepts("enum E { A, B = -2, } struct S { a: u32, b: u8, } config c { d: u32 = 1, e: bool, }");
    accepts(
        "fn f(a: u32, b: u32,) -> u32 { g(a, b,) return match (a) { 1: S { a: 1, b: 2, }.a, default: 3, } }",
    );
    refuses(&body("var a = [1, 2,]"), "KS0201");
    refuses("enum E { A,, B }", "KS0201");
}

#[test]
fn lf_016_fields_need_commas() {
    refuses("struct S { a: u32\n b: u32 }", "KS0201");
    accepts("struct S {} enum E {} config c {}");
}

#[test]
fn lf_017_flags_stand_before_pin() {
    accepts("@flags(rdonly) pin var m : hash<u32, u64>(8)");
    refuses("pin @flags(rdonly) var m : hash<u32, u64>(8)", "KS0201");
    refuses("@xdp var m : hash<u32, u64>(8)", "KS0203");
}

#[test]
fn lf_018_a_map_has_a_literal_size() {
    refuses("var m : hash<u32, u64>", "KS0204");
    refuses("var m : hash<u32, u64>(N + 1)", "KS0204");
    refuses("var m : hash<u32, u64>()", "KS0204");
    refuses("var m : hash<u32, u64>(-1)", "KS0204");
    refuses("var m : map<u32, u64>(8)", "KS0202");
}

#[test]
fn lf_019_several_flags() {
    accepts("@flags(no_prealloc | numa_node(0)) var m : hash<u32, u64>(8)");
    refuses("@flags(no_prealloc | rdonly |) var m : hash<u32, u64>(8)", "KS0201");
}

#[test]
fn lf_020_an_attribute_takes_one_string() {
    for attribute in ["@tc()", "@probe(\"a\",)", "@tc(ingress) struct S {}", "@tc(a: 1) impl i {}"] {
        refuses(&format!("{attribute}\nfn f() {{\n}}\n"), "KS0208");
    }
    // The checker accepts those that say a place, in scripts without `main`.
    for attribute in ["@tc(ingress)", "@probe(\"a\", \"b\")", "@tc(1)", "@tc(a: 1)"] {
        only_ours(&format!("{attribute}\nfn f() {{\n}}\n"), "KS0208");
    }
    accepts("@flags(\"x\") fn f() {}");
    accepts("@a @b(\"c\") fn f() {} @struct_ops(\"s\") struct S {}");
}

#[test]
fn lf_021_no_statements_at_top_level() {
    for statement in ["x = 1", "f()", "return 1", "if (true) {\n    return 1\n}", "while (x) { }"] {
        refuses(statement, "KS0201");
    }
}

#[test]
fn lf_022_externs() {
    accepts("extern f(a: u32) -> u64 extern g()");
    refuses("extern fn f()", "KS0201");
    refuses("extern f() -> r: u64", "KS0201");
}

#[test]
fn lf_023_a_call_is_a_primary() {
    accepts(&body("f().x = g()->y\nfor (i in 0..f()) { }\nvar s = read(a).scaled\nm.f(1).g()\nh()()"));
}

#[test]
fn lf_024_members_of_entries() {
    groups("m[k].f", "m[k].f");
    accepts(&body("m[k].f = e\nm[k].f += e\nv[i](x)\nv[i]->f = 1\nS { x: 1 }.x\nv[1][2] = 3"));
}

#[test]
fn lf_025_syntax_of_other_languages() {
    refuses(&body("{ var a = 1 }"), "KS0201");
    refuses(&body("var a = b ? c : d"), "KS0101");
    refuses(&body("do { a = 1 } while (a < 2)\nreturn"), "KS0201");
    refuses(&body("do {\n    a = 1\n} while (a < 2)"), "KS0201");
    refuses(&body("loop {\n    break\n}"), "KS0201");
    refuses(&body("switch (a) { b: c }"), "KS0201");
    refuses(&body("if (a) return 1"), "KS0201");
    refuses(&body("if (a)\n    return 1\nreturn 2"), "KS0201");
    refuses(&body("if a { return 1 }"), "KS0201");
    refuses(&body("while (var a = b) { }"), "KS0201");
    refuses(&body("if (var a: u32 = b) { }"), "KS0201");
    refuses(&body("if (a && var b = c) { }"), "KS0201");
    refuses(&body("var a, b"), "KS0201");
    refuses(&body("a = b = c"), "KS0201");
    refuses(&body("a++\nreturn"), "KS0201");
    refuses(&body("let a = 1"), "KS0201");
    refuses(&body("    fn g() { }"), "KS0201");
    refuses(&body("fn g() { }"), "KS0201");
    refuses(&body("match (a) { }"), "KS0201");
    refuses(&body("match (a) { f(): 1 }"), "KS0201");
}

#[test]
fn lf_026_declarations_in_conditions() {
    accepts(&body("if (var v = m[k]) { } else if (var w = n[k]) { } else { }"));
}

#[test]
fn lf_027_array_suffixes_stand_on_the_line_of_their_type() {
    accepts("struct S { a: str(16)[4], b: u32[2][3], c: *u8[16] } type Name = str(16) var names : Name[4]");
    let read = read(&body("var a: u32\n[4]"));
    let ItemKind::Function(function) = &read.ast.items[0].kind else { panic!("a function") };
    assert_eq!(function.body.stmts.len(), 2);
}

#[test]
fn lf_028_array_literals() {
    for (text, len) in [("[]", 0), ("[7]", 1), ("[1, -2]", 2), ("[A, B, C]", 3), ("[\"a\", [1]]", 2)] {
        assert!(matches!(value(text).kind, ExprKind::Array(elements) if elements.len() == len), "{text}");
    }
    refuses("var a = [1 + 1]", "KS0201");
    refuses("var a = [f()]", "KS0201");
}

#[test]
fn declarations_of_ours() {
    accepts(
        "counter cyc : cpu_cycles\ncounter miss : hw_cache(\"ll\", \"read\", \"miss\") group cyc\nconst N = \
         4 * 2",
    );
    accepts(
        "const N: u32 = 8 var a : u8[N] var m : hash<u32, u64>(N) var q : queue<u32>(N) var s : stack<u8>(4)",
    );
    accepts("var t : stack_trace(64) var b : bloom<u64>(9) var l : task_storage<u64> var p : sk_storage<u8>");
    accepts(
        "import m from \"m.ks\" fn f(a: m.T, b: *m.U) -> u32 { var x = m.S { a: 1 } return sizeof(*u8) }",
    );
    accepts("struct Args { limit: u32 = 10, level: i32 = -1 } config c { d: i32 = -3, e: u16[2] = [1, 2] }");
    accepts(&body(
        "for (k, v in m) { }\ntry { } catch E { } catch _ { }\nvar x = match (a) { -1: 2, default: 3 }",
    ));
    accepts("@struct_ops(\"s\") impl i { flags: -1, fn a() { } type: 3, fn b() -> r: u32 { } name: \"n\" }");
    refuses("@struct_ops(\"s\") impl i { a: 1 + 1, }", "KS0206");
    refuses("@struct_ops(\"s\") impl i { @helper fn a() { } }", "KS0201");
    refuses("impl i { a: 1, }", "KS0201");
    refuses("config c { d: u32 = 1 + 1 }", "KS0201");
    refuses(&body("try { } catch -1 { }"), "KS0201");
}

#[test]
fn docs_belong_to_what_stands_below() {
    let text = "/// A struct.\n///\n///  Indented.\nstruct S {\n    /// Its field.\n    \
                a: u32, /// no doc\n    b: u32,\n}\n\
                /// lost\n\n// plain\n/// Adds.\n@helper\nfn f() {}\n//// no doc\nvar x = 1\n";
    let items = read(text).ast.items;
    assert_eq!(items[0].docs.as_deref(), Some("A struct.\n\n Indented."));
    let ItemKind::Struct { fields, .. } = &items[0].kind else { panic!("a struct") };
    assert_eq!(fields[0].docs.as_deref(), Some("Its field."));
    assert_eq!(fields[1].docs, None);
    let ItemKind::Function(function) = &items[1].kind else { panic!("a function") };
    assert_eq!(function.docs.as_deref(), Some("Adds."));
    assert_eq!(items[2].docs, None);
}

//! Hover texts of the word under the pointer.

use crate::lsp::client::Client;

fn hover(text: &str) -> String {
    let mut client = Client::new();
    let spot = client.open("a.ks", text);
    let hover_text = client.at("textDocument/hover", &spot);
    hover_text["contents"]["value"].as_str().unwrap_or_default().to_owned()
}

fn first_line(text: &str) -> String {
    let hover_text = hover(text);
    hover_text
        .strip_prefix("```kernelscript\n")
        .and_then(|rest| rest.split("\n```").next())
        .unwrap_or(&hover_text)
        .to_owned()
}

#[test]
fn names_show_their_declaration() {
    assert_eq!(
        first_line(
            "/// Adds.\n@helper\nfn add(a: u32, b: u32) -> u32 { return a + b }\n@helper\nfn two() -> \
             u32 { return a<|>dd(1, 1) }\n"
        ),
        "@helper fn add(a: u32, b: u32) -> u32"
    );
    assert_eq!(
        first_line("var seen : hash<u32, u64>(16)\nfn main() -> i32 { se<|>en[1] = 2\nreturn 0 }\n"),
        "var seen: hash<u32, u64>(16)"
    );
    assert_eq!(first_line("struct S { a: u8[4] }\nfn f(s: S) { print(s.<|>a[0]) }\n"), "a: u8[4]");
    assert_eq!(first_line("fn f() { var n = 5\nprint(n<|>) }\n"), "var n: u32");
    assert!(hover("/// How many.\nvar n : u64 = 0\nfn f() { n<|> += 1 }\n").contains("How many."));
}

#[test]
fn types_show_what_they_hold() {
    let hover_text = first_line("struct Pair { left: u32, right: *u8 }\nfn f(p: Pa<|>ir) { }\n");
    assert_eq!(hover_text, "struct Pair {\n    left: u32,\n    right: *u8,\n}");
    let hover_text = hover("fn f(r: perf_<|>read) { }\n");
    assert!(hover_text.contains("values: i64[16]"), "{hover_text}");
}

#[test]
fn builtins_events_attributes_and_map_kinds_are_explained() {
    let hover_text = hover("fn main() -> i32 { sle<|>ep(5)\nreturn 0 }\n");
    assert!(
        hover_text.contains("sleep(ms: u32) -> u32") && hover_text.contains("milliseconds"),
        "{hover_text}"
    );
    let hover_text = hover("fn f() { var o = perf_options { event: cache_mis<|>ses } }\n");
    assert!(
        hover_text.contains("`cache-misses`") && hover_text.contains("PERF_COUNT_HW_CACHE_MISSES"),
        "{hover_text}"
    );
    let hover_text = hover("@xd<|>p\nfn f(ctx: *xdp_md) -> xdp_action { return XDP_PASS }\n");
    assert!(hover_text.contains("(ctx: *xdp_md) -> xdp_action"), "{hover_text}");
    let hover_text = hover("var m : lru_h<|>ash<u32, u64>(4)\n");
    assert!(hover_text.contains("lru_hash<K, V>(N)"), "{hover_text}");
    let hover_text = hover("@flags(no_pre<|>alloc) var m : hash<u32, u64>(4)\n");
    assert!(hover_text.contains("allocated when they are made"), "{hover_text}");
    let hover_text = hover("fn f() { de<|>fer print(1) }\n");
    assert!(hover_text.contains("when the function is left"), "{hover_text}");
}

#[test]
fn a_function_that_is_not_finished_is_still_known() {
    assert_eq!(
        first_line("fn f(limit: u32) {\n    var twice = limit\n    if (twi<|>ce > \n"),
        "var twice: u32"
    );
}

#[test]
fn blanks_and_comments_have_no_hover() {
    assert_eq!(hover("fn f() { <|>  }\n"), "");
    assert_eq!(hover("// fn pri<|>nt\nfn f() { }\n"), "");
}

#[test]
fn hover_on_an_error_explains_its_rule() {
    let mut client = Client::new();
    let spot = client.open(
        "a.ks",
        "fn main() -> i32 {\n    var a = attach(perf_options { event: page_f<|>ault })\n    return 0\n}\n",
    );
    let version = client.version();
    client.diagnostics(&spot.uri, version);
    let hover_text = client.at("textDocument/hover", &spot)["contents"]["value"].to_string();
    assert!(hover_text.contains("**KS0417**") && hover_text.contains("`ks-host events`"), "{hover_text}");
}

#[test]
fn bundled_headers_are_known_without_files() {
    let mut client = Client::new();
    let head = "include \"xdp_kfuncs.kh\"\n";
    let body = "@xdp\nfn f(ctx: *xdp_md) -> xdp_action {\n    \
                bpf_xdp_metadata_rx_ha<|>sh(ctx, null, null)\n    return XDP_PASS\n}\n";
    let spot = client.open("a.ks", &format!("{head}{body}"));
    let hover_text = client.at("textDocument/hover", &spot)["contents"]["value"].to_string();
    assert!(hover_text.contains("extern bpf_xdp_metadata_rx_hash"), "{hover_text}");
    assert!(client.at("textDocument/definition", &spot).is_null());
}

#[test]
fn hover_includes_what_only_the_checker_knows_after_a_check() {
    let mut client = Client::new();
    let text = "fn main() -> i32 {\n    var big = match (1) { 1: { 5000000000 }, default: { 1 } }\n    \
                print(\"%u\", bi<|>g)\n    return 0\n}\n";
    let spot = client.open("a.ks", text);
    let version = client.version();
    client.diagnostics(&spot.uri, version);
    let hover_text = client.at("textDocument/hover", &spot)["contents"]["value"].to_string();
    assert!(hover_text.contains("var big: u64"), "{hover_text}");
}

//! Completion at the cursor, in complete and broken texts; and the parameters of a call.

use serde_json::Value;

use crate::lsp::client::Client;

fn items(text: &str) -> Vec<Value> {
    let mut client = Client::new();
    let spot = client.open("a.ks", text);
    let list = client.at("textDocument/completion", &spot);
    list["items"].as_array().cloned().unwrap_or_default()
}

fn labels(text: &str) -> Vec<String> {
    items(text).iter().map(|item| item["label"].as_str().expect("a label").to_owned()).collect()
}

fn offers(text: &str, wanted: &[&str], unwanted: &[&str]) {
    let found = labels(text);
    for name in wanted {
        assert!(found.iter().any(|label| label == name), "no `{name}` among {found:?}");
    }
    for name in unwanted {
        assert!(!found.iter().any(|label| label == name), "`{name}` among {found:?}");
    }
}

#[test]
fn names_in_scope_are_offered() {
    offers(
        "var shared : u64 = 0\nfn other() { var hidden = 1 }\nfn f(param: u32) {\n    var before = 1\n    \
         if (param == 1) { var inner = 2 }\n    be<|>\n    var after = 3\n}\n",
        &["shared", "other", "param", "before", "print", "attach", "return", "if", "null"],
        &["hidden", "inner", "after", "include", "u32"],
    );
}

#[test]
fn members_are_offered_after_dot_and_arrow() {
    let head = "struct In { deep: u8 }\nstruct S { a: u32, n: In[3] }\nvar m : hash<u32, S>(4)\nvar ring : \
                ringbuf<S>(4096)\nconfig c { limit: u32 = 1 }\n";
    let exactly = |body: &str, wanted: &[&str]| {
        let mut found = labels(&format!("{head}{body}"));
        found.sort_unstable();
        assert_eq!(found, wanted, "{body}");
    };
    exactly("fn f(p: *S) { p-><|> }\n", &["a", "n"]);
    exactly("fn f(p: *S) { print(p->n[1].<|>) }\n", &["deep"]);
    exactly("fn f() {\n    if (m[1].<|>\n}\n", &["a", "n"]);
    exactly("fn f() {\n    var s = S { a: 1, n: [] }\n    s.<|>\n    print(1)\n}\n", &["a", "n"]);
    exactly("@helper\nfn f() { ring.<|> }\n", &["discard", "on_event", "reserve", "submit"]);
    exactly("@helper\nfn f() -> u32 { return c.<|> }\n", &["limit"]);
    exactly(
        "@xdp\nfn f(ctx: *xdp_md) -> xdp_action { return ctx-><|> }\n",
        &["data", "data_end", "data_meta", "egress_ifindex", "ingress_ifindex", "rx_queue_index"],
    );
    offers(
        &format!("{head}fn main() -> i32 {{ return read(attach(perf_options {{ event: dummy }})).<|> }}\n"),
        &["raw", "scaled", "values"],
        &["a"],
    );
    exactly("fn f(p: *S) { (*p).n[0].<|> }\n", &["deep"]);
    exactly(
        "fn f() { for (i in 0..<|>) { } }\n",
        &labels_sorted(&format!("{head}fn f() {{ for (i in 0..<|>) {{ }} }}\n")),
    );
}

fn labels_sorted(text: &str) -> Vec<&'static str> {
    let mut found = labels(text);
    assert!(found.len() > 20, "a range may end with any name: {found:?}");
    found.sort_unstable();
    found.into_iter().map(|label| &*label.leak()).collect()
}

#[test]
fn events_are_offered_after_event() {
    offers(
        "fn main() -> i32 {\n    var a = attach(perf_options { event: <|>\n",
        &["page_faults", "cache_misses", "raw_event", "hw_cache"],
        &["main", "XDP_PASS", "if"],
    );
    offers("counter cycles : <|>\n", &["cpu_cycles"], &["fn"]);
}

#[test]
fn fields_of_options_are_offered_once() {
    let text =
        "fn main() -> i32 {\n    var a = attach(perf_options { event: dummy, p<|> })\n    return 0\n}\n";
    offers(text, &["pid", "cpu", "period", "group"], &["event", "print"]);
    let pid = items(text).into_iter().find(|item| item["label"] == "pid").expect("offered");
    assert_eq!(pid["insertText"], "pid: ");
    offers("fn f() { var o = perf_options { event: dummy, cpu: <|> } }\n", &["all"], &["wakeup"]);
    offers("fn f() { var o = perf_options { inherit: <|> } }\n", &["true", "false"], &["dummy"]);
}

#[test]
fn attributes_come_with_the_function_they_need() {
    let found = items("@<|>\n");
    let xdp = found.iter().find(|item| item["label"] == "xdp").expect("offered");
    assert!(xdp["insertText"].as_str().expect("a text").contains("(ctx: *xdp_md) -> xdp_action {"), "{xdp}");
    assert_eq!(xdp["insertTextFormat"], 2);
    offers("@tc(\"<|>\")\n", &["ingress", "egress"], &["xdp"]);
    offers("@flags(<|>) var m : hash<u32, u64>(4)\n", &["no_prealloc", "rdonly"], &["xdp"]);
}

#[test]
fn types_are_offered_where_a_type_stands() {
    let head = "struct Mine { a: u32 }\ntype Alias = u32\n";
    let wanted = ["u32", "str", "Mine", "Alias", "perf_options"];
    for body in [
        "fn f(a: <|>) { }\n",
        "fn f(a: *<|>) { }\n",
        "fn f() -> <|>",
        "fn f() { var a: <|> = 1 }\n",
        "struct S { a: <|> }\n",
        "var m : hash<u32, <|>\n",
        "fn f() { var a = 1 as <|> }\n",
        "fn f() { var p = new <|>() }\n",
    ] {
        offers(&format!("{head}{body}"), &wanted, &["print", "f"]);
    }
    offers("var m : <|>\n", &["hash", "ringbuf", "u64"], &["print"]);
    offers("fn f(a: <|>) { }\n", &["u32"], &["hash"]);
}

#[test]
fn declarations_are_offered_at_top_level() {
    offers(
        "var a : u32 = 1\n<|>\n",
        &["fn", "struct", "main", "@xdp", "@perf_event", "var map"],
        &["if", "return", "a"],
    );
}

#[test]
fn nothing_is_offered_where_a_new_name_or_a_text_stands() {
    for text in [
        "fn <|>\n",
        "fn f() { var <|>\n",
        "struct <|>\n",
        "// pri<|>\n",
        "fn f() { print(\"pri<|>\") }\n",
        "fn f(<|>) { }\n",
        "include \"<|>\"\n",
    ] {
        assert_eq!(labels(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_text_that_is_broken_elsewhere_does_not_matter() {
    let before = "fn broken( {\n    var x = = 1\n\nfn f(param: u32) {\n    var mine = param\n    pr<|>\n\n\
                  fn later() { }\n";
    offers(before, &["param", "mine", "later", "print"], &["x"]);
    offers(
        "struct S { a: u32 }\nfn f(s: S) {\n    while (s.<|>\n\n@helper\nfn g() { }\n",
        &["a"],
        &["print"],
    );
    offers("fn f(s: u32) {\n    var t = s\n    }}}\n    <|>\n", &["fn"], &["t"]);
}

#[test]
fn signature_help_lists_the_parameters_of_a_call() {
    let help = |text: &str| {
        let mut client = Client::new();
        let spot = client.open("a.ks", text);
        let help = client.at("textDocument/signatureHelp", &spot);
        let active = help["activeSignature"].as_u64().unwrap_or_default() as usize;
        (
            help["signatures"][active]["label"].as_str().unwrap_or_default().to_owned(),
            help["activeParameter"].as_u64(),
        )
    };
    let own = "@helper\nfn add(a: u32, b: u32) -> u32 { return a + b }\n@helper\n";
    let label = "add(a: u32, b: u32) -> u32".to_owned();
    assert_eq!(help(&format!("{own}fn g() -> u32 {{ return add(<|>) }}\n")), (label.clone(), Some(0)));
    assert_eq!(help(&format!("{own}fn g() -> u32 {{ return add(add(1, 2), <|>\n")), (label, Some(1)));
    let (label, argument) =
        help("fn main() -> i32 {\n    var a = attach(p, perf_options { event: dummy }, <|>\n");
    assert_eq!(
        (label.as_str(), argument),
        ("attach(program, options: perf_options, flags: u32) -> perf_attachment", Some(2))
    );
    assert_eq!(help("fn main(<|>) -> i32 { return 0 }\n").0, "");
    assert_eq!(help("fn main() -> i32 { return (1 + <|>) }\n").0, "");
}

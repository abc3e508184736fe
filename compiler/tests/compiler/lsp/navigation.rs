//! Declarations, uses, renaming, and the tree of a file.

use serde_json::{Value, json};

use crate::lsp::client::{Client, Spot, line_range};

fn target(client: &mut Client, spot: &Spot) -> (String, u64, u64) {
    let found = client.at("textDocument/definition", spot);
    let uri = found["uri"].as_str().unwrap_or_else(|| panic!("a place: {found}"));
    let (line, from, _) = line_range(&found["range"]);
    (uri.rsplit('/').next().expect("a name").to_owned(), line, from)
}

fn lines(found: &Value) -> Vec<(String, u64, u64)> {
    let one = |location: &Value| {
        let (line, from, _) = line_range(&location["range"]);
        let uri = location["uri"].as_str().expect("a file");
        (uri.rsplit('/').next().expect("a name").to_owned(), line, from)
    };
    let mut found: Vec<_> = found.as_array().expect("a list").iter().map(one).collect();
    found.sort();
    found
}

#[test]
fn a_name_leads_to_its_declaration() {
    let mut client = Client::new();
    let spot = client.open(
        "a.ks",
        "var n : u64 = 0\nfn f() {\n    var n = 1\n    if (n == 1) {\n        n<|> = 2\n    }\n}\n",
    );
    assert_eq!(target(&mut client, &spot), ("a.ks".into(), 2, 8));
    let spot = client.open("b.ks", "struct S { first: u32 }\nfn f() -> S { return S { fir<|>st: 1 } }\n");
    assert_eq!(target(&mut client, &spot), ("b.ks".into(), 0, 11));
    let spot = client.open("c.ks", "fn f() { pri<|>nt(1) }\n");
    assert_eq!(client.at("textDocument/definition", &spot), Value::Null);
}

#[test]
fn a_name_leads_into_headers_and_modules() {
    let mut client = Client::new();
    client.file("types.kh", "enum Mode { SLOW = 1 }\n");
    client.file("outer.kh", "include \"types.kh\"\nextern now() -> u64\n");
    client.file("m.ks", "fn half(a: u32) -> u32 {\n    return a / 2\n}\n");
    let head = "include \"outer.kh\"\nimport m from \"m.ks\"\n";
    let spot = client.open("a.ks", &format!("{head}fn main() -> i32 {{ return m.ha<|>lf(4) }}\n"));
    assert_eq!(target(&mut client, &spot), ("m.ks".into(), 0, 3));
    let spot = client.open("b.ks", &format!("{head}fn main() -> i32 {{ return SL<|>OW }}\n"));
    assert_eq!(target(&mut client, &spot), ("types.kh".into(), 0, 12));
    let spot = client.open("c.ks", "include \"out<|>er.kh\"\n");
    assert_eq!(target(&mut client, &spot), ("outer.kh".into(), 0, 0));
    let spot = client.open("d.ks", "include \"abs<|>ent.kh\"\n");
    assert_eq!(client.at("textDocument/definition", &spot), Value::Null);
}

#[test]
fn an_open_text_counts_and_not_its_file() {
    let mut client = Client::new();
    client.file("m.ks", "fn old() -> u32 { return 1 }\n");
    client.open("m.ks", "// new\n\nfn fresh() -> u32 { return 1 }\n");
    let spot = client.open("a.ks", "import m from \"m.ks\"\nfn main() -> i32 { return m.fre<|>sh() }\n");
    assert_eq!(target(&mut client, &spot), ("m.ks".into(), 2, 3));
}

#[test]
fn uses_are_found_in_every_open_text() {
    let mut client = Client::new();
    client.open("other.ks", "import m from \"m.ks\"\nfn main() -> i32 { return m.half(2) + m.half(3) }\n");
    let spot = client.open(
        "m.ks",
        "fn ha<|>lf(a: u32) -> u32 { return a / 2 }\nfn quarter(half: u32) -> u32 { return half }\n",
    );
    let params = |own: bool| {
        let mut params = spot.params();
        params["context"] = json!({ "includeDeclaration": own });
        params
    };
    let found = client.request("textDocument/references", params(true));
    let other = |from| ("other.ks".to_owned(), 1, from);
    assert_eq!(lines(&found), [("m.ks".into(), 0, 3), other(28), other(40)]);
    let found = client.request("textDocument/references", params(false));
    assert_eq!(lines(&found).len(), 2);
}

#[test]
fn a_new_name_reaches_every_use_and_nothing_else() {
    let mut client = Client::new();
    let spot = client.open("a.ks", "var n : u64 = 0\nfn f(n: u32) { print(n) }\nfn g() { n<|> += n }\n");
    let asked = client.at("textDocument/prepareRename", &spot);
    assert_eq!(asked["placeholder"], "n");
    let rename = |client: &mut Client, name: &str| {
        let mut params = spot.params();
        params["newName"] = json!(name);
        client.ask("textDocument/rename", params)
    };
    let answer = rename(&mut client, "count_of_all");
    let edits = answer["result"]["changes"][&spot.uri].as_array().expect("edits").clone();
    let ranges: Vec<_> = edits.iter().map(|edit| line_range(&edit["range"])).collect();
    assert_eq!(ranges, [(0, 4, 5), (2, 9, 10), (2, 14, 15)]);
    for (name, why) in [("a b", "cannot be a name"), ("for", "cannot be a name"), ("g", "is a function")] {
        let refused = rename(&mut client, name);
        assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains(why)), "{refused}");
    }
    let spot = client.open("b.ks", "fn f() { pri<|>nt(1) }\n");
    assert_eq!(client.at("textDocument/prepareRename", &spot), Value::Null);
}

#[test]
fn uses_in_the_text_are_marked() {
    let mut client = Client::new();
    let spot = client.open("a.ks", "fn f(a: u32) -> u32 { return a<|> + a }\n");
    let found = client.at("textDocument/documentHighlight", &spot);
    let ranges: Vec<_> =
        found.as_array().expect("a list").iter().map(|one| line_range(&one["range"])).collect();
    assert_eq!(ranges, [(0, 5, 6), (0, 29, 30), (0, 33, 34)]);
}

#[test]
fn document_symbols_form_a_tree() {
    let mut client = Client::new();
    let spot = client.open(
        "a.ks",
        "struct S { a: u32 }\nenum E { ONE, TWO }\nvar m : hash<u32, S>(4)\n@helper\n\
         fn f(p: u32) { var local = p }\n\
         @struct_ops(\"x\")\nimpl i { size: 1, fn go(s: *u8) { } }\n",
    );
    let tree = client.request("textDocument/documentSymbol", json!({ "textDocument": { "uri": spot.uri } }));
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&tree), ["S", "E", "m", "f", "i"]);
    assert_eq!(names(&tree[1]["children"]), ["ONE", "TWO"]);
    assert_eq!(names(&tree[3]["children"]), Vec::<String>::new());
    assert_eq!(names(&tree[4]["children"]), ["go", "size"]);
    assert_eq!(tree[3]["detail"], "@helper fn f(p: u32)");
    assert_eq!(line_range(&tree[3]["selectionRange"]), (4, 3, 4));
}

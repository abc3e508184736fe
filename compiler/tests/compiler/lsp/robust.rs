//! The server answers for any text and any position.

use ks_compiler::lsp::Server;
use ks_compiler::pipeline::Options;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::lsp::client::{Client, Spot};

const QUESTIONS: &[&str] = &[
    "textDocument/hover",
    "textDocument/definition",
    "textDocument/documentHighlight",
    "textDocument/prepareRename",
    "textDocument/signatureHelp",
    "textDocument/completion",
];

const SCRIPT: &str = include_str!("../scripts/robust.ks");

#[test]
fn every_position_of_a_text_and_of_each_prefix_has_an_answer() {
    let mut client = Client::new();
    let uri = client.open("a.ks", SCRIPT).uri;
    for end in (0..SCRIPT.len()).filter(|end| SCRIPT.is_char_boundary(*end)).step_by(7) {
        let part = &SCRIPT[..end];
        client.change(&uri, json!([{ "text": part }]));
        let line = part.matches('\n').count() as u32;
        let character = part.rsplit('\n').next().unwrap_or_default().encode_utf16().count() as u32;
        let spot = Spot { uri: uri.clone(), line, character };
        for question in QUESTIONS {
            client.at(question, &spot);
        }
    }
    client.change(&uri, json!([{ "text": SCRIPT }]));
    for (line, text) in SCRIPT.lines().enumerate() {
        for character in (0..=text.len() as u32).step_by(3) {
            let spot = Spot { uri: uri.clone(), line: line as u32, character };
            QUESTIONS.iter().for_each(|question| {
                client.at(question, &spot);
            });
        }
    }
}

#[test]
fn positions_outside_the_text_are_clamped() {
    let mut client = Client::new();
    let uri = client.open("a.ks", "fn f() { }\n").uri;
    for (line, character) in [(0, u32::MAX), (u32::MAX, 0), (99, 99)] {
        let spot = Spot { uri: uri.clone(), line, character };
        for question in QUESTIONS {
            client.at(question, &spot);
        }
    }
    let far = json!({ "line": 999, "character": 5 });
    client.change(&uri, json!([{ "range": { "start": far, "end": far }, "text": "var n : u32 = 1\n" }]));
    let tree = client.request("textDocument/documentSymbol", json!({ "textDocument": { "uri": uri } }));
    assert_eq!(tree[1]["name"], "n", "it was put at the end");
}

#[test]
fn columns_count_in_the_negotiated_encoding() {
    let text = "fn f() { print(\"\u{1f600}\u{e9}\", value) var value = 1 }\nvar value : u32 = 1\n";
    let at = |capabilities: Value, character: u32| {
        let mut client = Client::with(capabilities);
        let uri = client.open("a.ks", text).uri;
        let spot = Spot { uri, line: 0, character };
        client.at("textDocument/hover", &spot)["range"]["start"]["character"].as_u64()
    };
    let bytes = json!({ "general": { "positionEncodings": ["utf-8"] } });
    assert_eq!(at(json!({}), 23), Some(22));
    assert_eq!(at(bytes, 27), Some(25));
}

#[test]
fn unsaved_texts_are_checked() {
    let mut client = Client::new();
    let uri = "untitled:Untitled-1";
    let text = "include \"x.kh\"\nfn f() { f() }\n";
    let item = json!({ "uri": uri, "languageId": "kernelscript", "version": 1, "text": text });
    client.notify("textDocument/didOpen", json!({ "textDocument": item }));
    client.diagnostics(uri, 1);
    let spot = Spot { uri: uri.into(), line: 1, character: 9 };
    assert_eq!(client.at("textDocument/definition", &spot)["uri"], uri);
}

#[test]
fn modules_that_import_each_other_do_no_harm() {
    let mut client = Client::new();
    client.file("b.ks", "import a from \"a.ks\"\nfn g() { }\n");
    client.file("x.kh", "include \"x.kh\"\ninclude \"y.kh\"\n");
    client.file("y.kh", "include \"x.kh\"\nenum E { DEEP }\n");
    let spot =
        client.open("a.ks", "include \"x.kh\"\nimport b from \"b.ks\"\nfn f() { b.g() print(DE<|>EP) }\n");
    assert!(
        client.at("textDocument/definition", &spot)["uri"].as_str().is_some_and(|uri| uri.ends_with("y.kh"))
    );
}

/// Pieces of texts that are nearly scripts.
const PIECES: &[&str] = &[
    "fn ",
    "f",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ".",
    "->",
    ",",
    ":",
    "=",
    "@",
    "\n",
    " ",
    "\"",
    "'",
    "*",
    "&",
    "var ",
    "x",
    "struct ",
    "S",
    "enum ",
    "impl ",
    "config ",
    "match ",
    "if ",
    "for ",
    "in ",
    "as ",
    "new ",
    "import m from \"m.ks\"",
    "hash<u32, ",
    "u64",
    "event",
    "perf_options ",
    "// c",
    "0",
    "\u{1f600}",
    "\r\n",
    "try ",
    "catch ",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_and_any_position_has_an_answer_and_no_defect(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60),
        line in 0u32..6,
        character in 0u32..40,
    ) {
        let mut server = Server::new(Options::new("none"));
        let mut ask = |method: &str, params: Value| {
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
            server.handle(message.to_string().as_bytes()).remove(0)
        };
        ask("initialize", json!({ "capabilities": {} }));
        let (uri, text) = ("file:///a.ks", pieces.concat());
        let item = json!({ "uri": uri, "languageId": "kernelscript", "version": 1, "text": text });
        let params = json!({ "textDocument": item });
        let open = json!({ "jsonrpc": "2.0", "method": "textDocument/didOpen", "params": params });
        server.handle(open.to_string().as_bytes());
        let spot = Spot { uri: "file:///a.ks".into(), line, character };
        for question in QUESTIONS.iter().chain(&["textDocument/documentSymbol", "textDocument/formatting"]) {
            let mut params = spot.params();
            params["options"] = json!({ "tabSize": 4, "insertSpaces": true });
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": question, "params": params });
            let answer = server.handle(message.to_string().as_bytes()).remove(0);
            prop_assert!(answer.get("error").is_none(), "{question}: {answer}");
        }
        let published = server.idle().expect("the text is checked");
        prop_assert_eq!(published.len(), 1, "a check gives an answer");
    }
}

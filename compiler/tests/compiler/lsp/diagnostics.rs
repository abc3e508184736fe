//! Errors while typing, and the changes that fix them.

use ks_compiler::lsp::Server;
use ks_compiler::pipeline::Options;
use serde_json::{Value, json};

use crate::lsp::client::{Client, line_range};

const WRONG: &str =
    "fn main() -> i32 {\n    var a = attach(perf_options { event: page_fault })\n    return 0\n}\n";

#[test]
fn an_error_appears_and_goes_as_the_text_changes() {
    let mut client = Client::new();
    let spot = client.open("a.ks", WRONG);
    let version = client.version();
    let published = client.diagnostics(&spot.uri, version);
    assert_eq!(published.len(), 1, "{published:?}");
    assert_eq!(published[0]["code"], "KS0417");
    assert_eq!(published[0]["severity"], 1);
    assert_eq!(published[0]["source"], "ks");
    assert_eq!(line_range(&published[0]["range"]), (1, 41, 51));

    let end = json!({ "line": 1, "character": 51 });
    let version = client.change(&spot.uri, json!([{ "range": { "start": end, "end": end }, "text": "s" }]));
    let errors: Vec<_> =
        client.diagnostics(&spot.uri, version).into_iter().filter(|one| one["severity"] == 1).collect();
    assert_eq!(errors, Vec::<Value>::new());

    client.notify("textDocument/didClose", json!({ "textDocument": { "uri": spot.uri } }));
    let gone = client.receive(|message| {
        message["method"] == "textDocument/publishDiagnostics" && message["params"].get("version").is_none()
    });
    assert_eq!(gone["params"]["diagnostics"], json!([]));
}

#[test]
fn errors_of_the_back_ends_are_reported_too() {
    let mut client = Client::new();
    let script = include_str!("../../cases/diagnostics/KS1004_two_megabytes.ks");
    let spot = client.open("a.ks", script);
    let published = client.receive(|message| {
        let codes = message["params"]["diagnostics"].as_array().into_iter().flatten().map(|one| &one["code"]);
        message["method"] == "textDocument/publishDiagnostics"
            && codes.into_iter().any(|code| code == "KS1004")
    });
    assert_eq!(published["params"]["uri"], spot.uri.as_str(), "{published}");
    // They are not shown for a text that was fixed meanwhile.
    let version = client.change(&spot.uri, json!([{ "text": "fn main() -> i32 {\n    return 0\n}\n" }]));
    assert_eq!(client.diagnostics(&spot.uri, version), Vec::<Value>::new());
}

#[test]
fn several_errors_are_reported_at_once() {
    let mut client = Client::new();
    let spot = client.open("a.ks", "fn main() -> i32 {\n    var = 1\n    return 0\n}\nstruct S { a }\n");
    let version = client.version();
    let published = client.diagnostics(&spot.uri, version);
    let lines: Vec<_> = published.iter().map(|one| line_range(&one["range"]).0).collect();
    assert_eq!(lines, [1, 4], "{published:?}");
}

#[test]
fn an_error_in_a_module_is_reported_where_the_module_is_named() {
    let mut client = Client::new();
    client.file("m.ks", "fn half(a: u32) -> u32 {\n    var = 1\n    return a\n}\n");
    let spot = client.open("a.ks", "\nimport m from \"m.ks\"\nfn main() -> i32 { return 0 }\n");
    let version = client.version();
    let published = client.diagnostics(&spot.uri, version);
    let error = published.iter().find(|one| one["severity"] == 1).expect("an error");
    assert_eq!(line_range(&error["range"]), (1, 14, 20), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.starts_with("in m.ks: expected")), "{error}");
    let there = &error["relatedInformation"][0]["location"];
    assert_eq!((&there["uri"], line_range(&there["range"]).0), (&json!(client.uri("m.ks")), 1));

    client.open("m.ks", "fn half(a: u32) -> u32 {\n    return a / 2\n}\n");
    let published = client.diagnostics(&spot.uri, version);
    let syntax = |one: &Value| one["code"] == "KS0201";
    assert!(!published.iter().any(syntax), "the open text counts, not its file: {published:?}");
}

#[test]
fn modules_and_headers_need_nothing_that_starts() {
    let mut client = Client::new();
    let texts =
        [("m.ks", "fn half(a: u32) -> u32 {\n    return a / 2\n}\n"), ("h.kh", "enum Way { In, Out }\n")];
    for (name, text) in texts {
        let spot = client.open(name, text);
        let version = client.version();
        assert_eq!(client.diagnostics(&spot.uri, version), Vec::<Value>::new(), "{name}");
    }
    let spot = client.open("h2.kh", "enum Way { In Out }\n");
    let version = client.version();
    assert_eq!(client.diagnostics(&spot.uri, version).len(), 1);
}

#[test]
fn formatting_replaces_only_the_lines_that_differ() {
    let mut client = Client::new();
    let options = json!({ "tabSize": 8, "insertSpaces": false });
    let format = |client: &mut Client, uri: &str| {
        let params = json!({ "textDocument": { "uri": uri }, "options": options });
        client.request("textDocument/formatting", params)
    };
    let uri = client.open("a.ks", "fn f() {\n    print(1)\n}\n\nfn g() {\n  print( 2 )\n}\n").uri;
    let edits = format(&mut client, &uri);
    assert_eq!(edits.as_array().map(Vec::len), Some(1), "{edits}");
    assert_eq!(edits[0]["newText"], "    print(2)\n");
    assert_eq!(
        (&edits[0]["range"]["start"]["line"], &edits[0]["range"]["end"]["line"]),
        (&json!(5), &json!(6))
    );
    client.change(&uri, json!([{ "text": "fn f() {\n    print(1)\n}\n" }]));
    assert_eq!(format(&mut client, &uri), json!([]));
    client.change(&uri, json!([{ "text": "fn f( {\n  print(1)\n}\n" }]));
    assert_eq!(format(&mut client, &uri), Value::Null, "a broken text is left alone");
}

/// Without pipes, so that the pending messages are known.
#[test]
fn of_several_changes_in_a_row_only_the_last_is_checked() {
    let mut server = Server::new(Options::new("none"));
    let mut send = |method: &str, params: Value| {
        let id = if method == "initialize" { json!(1) } else { Value::Null };
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if !id.is_null() {
            message["id"] = id;
        }
        server.handle(message.to_string().as_bytes())
    };
    send("initialize", json!({ "capabilities": {} }));
    let item = json!({ "uri": "file:///a.ks", "languageId": "kernelscript", "version": 1, "text": "" });
    assert_eq!(send("textDocument/didOpen", json!({ "textDocument": item })), Vec::<Value>::new());
    for version in 2..5 {
        let params = json!({
            "textDocument": { "uri": "file:///a.ks", "version": version },
            "contentChanges": [{ "text": format!("{} fn", "x".repeat(version)) }],
        });
        assert_eq!(send("textDocument/didChange", params), Vec::<Value>::new());
    }
    let published = server.idle().expect("a text to check");
    assert_eq!(published.len(), 1);
    assert_eq!(published[0]["params"]["version"], 4);
    assert!(server.idle().is_none(), "nothing is left");
}

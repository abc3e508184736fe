//! Initialisation and shutdown, and invalid messages.

use serde_json::{Value, json};

use crate::lsp::client::Client;

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("an error: {answer}"))
}

#[test]
fn capabilities_are_reported_and_the_position_encoding_is_negotiated() {
    let mut client = Client::silent();
    let result = client.request("initialize", json!({ "capabilities": {} }));
    assert_eq!(result["capabilities"]["positionEncoding"], "utf-16");
    assert_eq!(result["capabilities"]["textDocumentSync"]["change"], 2, "changes are ranges");
    assert_eq!(result["capabilities"]["hoverProvider"], true);
    assert_eq!(result["serverInfo"]["name"], "ks");

    let mut client = Client::silent();
    let general = json!({ "general": { "positionEncodings": ["utf-16", "utf-8"] } });
    let result = client.request("initialize", json!({ "capabilities": general }));
    assert_eq!(result["capabilities"]["positionEncoding"], "utf-8");
}

#[test]
fn shutdown_and_exit_end_it_with_success() {
    let mut client = Client::new();
    assert_eq!(client.request("shutdown", Value::Null), Value::Null);
    let late = client.ask("textDocument/hover", json!({}));
    assert_eq!(code(&late), -32600);
    client.notify("exit", Value::Null);
    assert_eq!(client.exit_code(), Some(0));
}

#[test]
fn exit_without_shutdown_is_a_failure() {
    let mut client = Client::new();
    client.notify("exit", Value::Null);
    assert_eq!(client.exit_code(), Some(1));
}

#[test]
fn a_client_that_is_gone_ends_it() {
    let mut client = Client::new();
    client.hang_up();
    assert_eq!(client.exit_code(), Some(1));
}

#[test]
fn questions_before_initialize_are_refused() {
    let mut client = Client::silent();
    let answer = client.ask("textDocument/hover", json!({}));
    assert_eq!(code(&answer), -32002);
    client.request("initialize", json!({ "capabilities": {} }));
    let again = client.ask("initialize", json!({ "capabilities": {} }));
    assert_eq!(code(&again), -32600);
}

#[test]
fn malformed_messages_are_reported_and_harmless() {
    let mut client = Client::new();
    client.raw(b"Content-Length: 7\r\n\r\nnot {js");
    let answer = client.receive(|message| message["id"].is_null() && message.get("error").is_some());
    assert_eq!(code(&answer), -32700);
    client.send(&json!([1, 2]));
    let answer = client.receive(|message| message["id"].is_null() && message.get("error").is_some());
    assert_eq!(code(&answer), -32600);
    client.send(&json!({ "jsonrpc": "2.0", "id": "x" }));
    let answer = client.receive(|message| message["id"] == "x");
    assert_eq!(code(&answer), -32600);
    client.raw(b"Nonsense: 1\r\n\r\nContent-Length: many\r\n\r\n\r\n");
    assert_eq!(code(&client.ask("no/such", json!({}))), -32601);
}

#[test]
fn wrong_parameters_are_refused() {
    let mut client = Client::new();
    let answer = client.ask("textDocument/hover", json!({ "textDocument": 7 }));
    assert_eq!(code(&answer), -32602);
    client.notify("textDocument/didOpen", json!({ "textDocument": { "uri": "no uri at all" } }));
    let log = client.receive(|message| message["method"] == "window/logMessage");
    assert!(log["params"]["message"].as_str().expect("text").contains("didOpen"), "{log}");
}

#[test]
fn unknown_notifications_and_cancellations_are_passed_over() {
    let mut client = Client::new();
    client.notify("$/cancelRequest", json!({ "id": 99 }));
    client.notify("$/setTrace", json!({ "value": "off" }));
    client.notify("some/other", json!(null));
    client.send(&json!({ "jsonrpc": "2.0", "id": 7, "result": null }));
    let uri = client.uri("absent.ks");
    let params = json!({ "textDocument": { "uri": uri }, "position": { "line": 0, "character": 0 } });
    assert_eq!(client.request("textDocument/hover", params), Value::Null);
}

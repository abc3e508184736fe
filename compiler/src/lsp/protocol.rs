//! Messages of JSON-RPC: what comes in, and the answers to it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The text is no JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The JSON is no message, or it comes at the wrong time.
pub const INVALID_REQUEST: i32 = -32600;
/// There is no such request.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The request is known and its parameters are not.
pub const INVALID_PARAMS: i32 = -32602;
/// A defect of the server.
pub const INTERNAL_ERROR: i32 = -32603;
/// A request before `initialize`.
pub const NOT_INITIALIZED: i32 = -32002;

/// What a client sends.
#[derive(Debug)]
pub enum Incoming {
    /// Wants an answer.
    Request { id: Value, method: String, params: Value },
    /// Wants none.
    Notification { method: String, params: Value },
    /// Answers a request of the server.
    Response,
}

/// Why a request has no result.
#[derive(Debug)]
pub struct Refusal {
    /// The protocol's number.
    pub code: i32,
    /// In words.
    pub message: String,
}

impl Refusal {
    /// With a number and words.
    pub fn new(code: i32, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// Reads a message.
///
/// # Errors
/// The answer to send, if it is none.
pub fn read(body: &[u8]) -> Result<Incoming, Value> {
    let message: Value = serde_json::from_slice(body)
        .map_err(|error| refuse(&Value::Null, &Refusal::new(PARSE_ERROR, format!("no JSON: {error}"))))?;
    let Value::Object(mut fields) = message else {
        return Err(refuse(&Value::Null, &Refusal::new(INVALID_REQUEST, "a message is an object")));
    };
    let params = fields.remove("params").unwrap_or(Value::Null);
    match (fields.remove("id"), fields.remove("method")) {
        (Some(id), Some(Value::String(method))) => Ok(Incoming::Request { id, method, params }),
        (None, Some(Value::String(method))) => Ok(Incoming::Notification { method, params }),
        (Some(_), None) if fields.contains_key("result") || fields.contains_key("error") => {
            Ok(Incoming::Response)
        }
        (id, _) => {
            let refusal = Refusal::new(INVALID_REQUEST, "a message names its method");
            Err(refuse(&id.unwrap_or(Value::Null), &refusal))
        }
    }
}

/// The parameters of a request.
///
/// # Errors
/// If they are others.
pub fn params<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    serde_json::from_value(params).map_err(|error| Refusal::new(INVALID_PARAMS, error.to_string()))
}

/// The answer to a request.
pub fn answer(id: &Value, result: Result<Value, Refusal>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => refuse(id, &refusal),
    }
}

/// A message that wants no answer.
pub fn notification(method: &str, params: impl Serialize) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn refuse(id: &Value, refusal: &Refusal) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": refusal.code, "message": refusal.message } })
}

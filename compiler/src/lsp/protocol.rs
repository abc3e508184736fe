//! JSON-RPC messages: parsing requests and building answers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Error code: the text is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// Error code: the JSON is not a message, or not allowed in this phase.
pub const INVALID_REQUEST: i32 = -32600;
/// Error code: there is no such request.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// Error code: the parameters do not fit the request.
pub const INVALID_PARAMS: i32 = -32602;
/// Error code: a defect of the server.
pub const INTERNAL_ERROR: i32 = -32603;
/// Error code: a request before `initialize`.
pub const NOT_INITIALIZED: i32 = -32002;

/// A message from the client.
#[derive(Debug)]
pub enum Incoming {
    /// A request, which needs an answer.
    Request { id: Value, method: String, params: Value },
    /// A notification, which needs none.
    Notification { method: String, params: Value },
    /// The answer to a request of the server.
    Response,
}

/// An error as the answer to a request.
#[derive(Debug)]
pub struct Refusal {
    /// The protocol's error code.
    pub code: i32,
    /// The text for the user.
    pub message: String,
}

impl Refusal {
    /// Creates an error from its code and text.
    pub fn new(code: i32, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// Parses a message.
///
/// # Errors
/// The answer to send, if it is not a message.
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

/// Parses the parameters of a request.
///
/// # Errors
/// If they do not fit the request.
pub fn params<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    serde_json::from_value(params).map_err(|error| Refusal::new(INVALID_PARAMS, error.to_string()))
}

/// Builds the answer to a request.
pub fn answer(id: &Value, result: Result<Value, Refusal>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => refuse(id, &refusal),
    }
}

/// Builds a notification from its method and parameters.
pub fn notification(method: &str, params: impl Serialize) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn refuse(id: &Value, refusal: &Refusal) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": refusal.code, "message": refusal.message } })
}

//! A client of the protocol: frames, request numbers, and texts with a mark at the cursor.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

/// Marks the cursor in a text.
pub const MARK: &str = "<|>";

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, and its temporary folder.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    incoming: Receiver<Value>,
    /// Notifications that no test has requested yet.
    kept: VecDeque<Value>,
    next_id: u32,
    version: i32,
    folder: PathBuf,
}

/// A cursor in an open text.
pub struct Spot {
    pub uri: String,
    pub line: u32,
    pub character: u32,
}

impl Client {
    /// Starts a server without sending anything to it.
    pub fn silent() -> Client {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks-lsp-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let mut child = Command::new(env!("CARGO_BIN_EXE_ks"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ks starts");
        let output = child.stdout.take().expect("a pipe");
        let (sender, incoming) = mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(message) = read(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Client { child, input, incoming, kept: VecDeque::new(), next_id: 0, version: 0, folder }
    }

    /// Starts and initialises a server; columns count UTF-16.
    pub fn new() -> Client {
        Client::with(json!({}))
    }

    /// Starts and initialises a server for a client with these capabilities.
    pub fn with(capabilities: Value) -> Client {
        let mut client = Client::silent();
        client.request(
            "initialize",
            json!({ "processId": null, "rootUri": null, "capabilities": capabilities }),
        );
        client.notify("initialized", json!({}));
        client
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the pipe is open");
        input.write_all(bytes).and_then(|()| input.flush()).expect("the server reads");
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Value) {
        let body = message.to_string();
        self.raw(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and waits for the whole answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.receive(|message| message["id"] == id)
    }

    /// Sends a request and waits for its result.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Returns the next message for which `wanted` holds; earlier messages are kept.
    pub fn receive(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&wanted) {
            return self.kept.remove(at).expect("it is there");
        }
        loop {
            let message = self.incoming.recv_timeout(PATIENCE).expect("the server answers");
            if wanted(&message) {
                return message;
            }
            self.kept.push_back(message);
        }
    }

    /// Writes a file into the folder.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).expect("the folder can be written");
    }

    pub fn uri(&self, name: &str) -> String {
        format!("file://{}/{name}", self.folder.display())
    }

    /// Opens a text. Returns the position of its mark, which the server does not see.
    pub fn open(&mut self, name: &str, text: &str) -> Spot {
        let (before, after) = text.split_once(MARK).unwrap_or((text, ""));
        self.version += 1;
        let uri = self.uri(name);
        let item = json!({
            "uri": uri,
            "languageId": "kernelscript",
            "version": self.version,
            "text": format!("{before}{after}"),
        });
        self.notify("textDocument/didOpen", json!({ "textDocument": item }));
        let line = before.matches('\n').count() as u32;
        let column = before.rsplit('\n').next().unwrap_or_default();
        Spot { uri, line, character: column.encode_utf16().count() as u32 }
    }

    /// Changes a text; returns its new version number.
    pub fn change(&mut self, uri: &str, changes: Value) -> i32 {
        self.version += 1;
        let document = json!({ "uri": uri, "version": self.version });
        self.notify("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
        self.version
    }

    /// Sends a request about a position.
    pub fn at(&mut self, method: &str, spot: &Spot) -> Value {
        self.request(method, spot.params())
    }

    /// Returns the diagnostics for a version of a text.
    pub fn diagnostics(&mut self, uri: &str, version: i32) -> Vec<Value> {
        let message = self.receive(|message| {
            let params = &message["params"];
            message["method"] == "textDocument/publishDiagnostics"
                && params["uri"] == uri
                && params["version"] == version
        });
        message["params"]["diagnostics"].as_array().expect("a list").clone()
    }

    pub fn version(&self) -> i32 {
        self.version
    }

    /// Closes the pipe to the server.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// Waits for the exit code of the server.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A failed test leaves a running server, and a passed one a folder.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Spot {
    pub fn params(&self) -> Value {
        json!({
            "textDocument": { "uri": self.uri },
            "position": { "line": self.line, "character": self.character },
        })
    }
}

/// Returns line, start and end of a range, for tests on one line.
pub fn line_range(range: &Value) -> (u64, u64, u64) {
    let number = |end: &str, field: &str| range[end][field].as_u64().expect("a number");
    (number("start", "line"), number("start", "character"), number("end", "character"))
}

fn read(output: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        output.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", number)) => length = number.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    output.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

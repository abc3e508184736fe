//! The language server: messages in, messages out.
//!
//! [`Server::handle`] takes one message and returns the answers to it. [`Server::idle`] checks changed texts,
//! so that after several changes in a row only the last is checked, and a request never waits for a check.
//! Requests are answered from the syntax tree ([`crate::facts`]). Errors come from the checker, and after it
//! from the back ends: [`Server::uncompiled`] returns a text for another thread to compile,
//! [`Server::compiled`] takes the result.
//!
//! Not here: pipes and files. The open texts are kept; all others are read through [`Options::files`].

mod answer;
mod complete;
mod cursor;
mod diagnose;
mod document;
mod hover;
mod layout;
mod navigate;
mod position;
mod protocol;
mod signature;
mod snippets;
mod symbols;
mod uri;
mod workspace;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lsp_types::{
    DidChangeTextDocumentParams, DidCloseTextDocumentParams, DidOpenTextDocumentParams, InitializeParams,
    PositionEncodingKind, Uri,
};
use serde_json::{Value, json};

use crate::diag::Diagnostic;
use crate::options::Options;
use crate::source::Span;
pub use diagnose::Compilation;
use diagnose::Report;
use document::Document;
use position::Encoding;
use protocol::{
    INTERNAL_ERROR, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, NOT_INITIALIZED, Refusal, params,
};
use workspace::Workspace;

/// The state of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the client sent `initialize`.
    New,
    /// The server is initialised and answers requests.
    Ready,
    /// Requests are rejected after `shutdown`.
    ShutDown,
    /// The session ended with `exit`.
    Over { code: u8 },
}

/// A language server for one client.
pub struct Server {
    phase: Phase,
    workspace: Workspace,
    /// Paths of texts to check when there is no message; the last one first.
    unchecked: Vec<String>,
    /// Checked texts that the back ends have not compiled.
    uncompiled: Vec<Compilation>,
    /// Results of each text's last check, by path.
    reports: HashMap<String, Report>,
}

impl Server {
    /// Creates a server with no text open. Texts are checked with these options; files are read by their
    /// absolute paths.
    pub fn new(options: Options) -> Server {
        Server {
            phase: Phase::New,
            workspace: Workspace::new(options),
            unchecked: Vec::new(),
            uncompiled: Vec::new(),
            reports: HashMap::new(),
        }
    }

    /// Returns the exit code after `exit`: 0 if `shutdown` came before it.
    pub fn exit_code(&self) -> Option<u8> {
        match self.phase {
            Phase::Over { code } => Some(code),
            _ => None,
        }
    }

    /// Handles a message, the bytes of one JSON object, and returns the answers.
    pub fn handle(&mut self, body: &[u8]) -> Vec<Value> {
        match protocol::read(body) {
            Err(refusal) => vec![refusal],
            Ok(Incoming::Response) => Vec::new(),
            Ok(Incoming::Request { id, method, params }) => {
                let result = self.request(&method, params);
                vec![protocol::answer(&id, result)]
            }
            Ok(Incoming::Notification { method, params }) => self.notification(&method, params),
        }
    }

    /// Checks one of the changed texts. Returns the messages to send; none if there is nothing to do.
    pub fn idle(&mut self) -> Option<Vec<Value>> {
        let path = self.unchecked.pop()?;
        Some(self.check(&path).into_iter().collect())
    }

    /// Returns a text to compile on another thread, for [`Server::compiled`] afterwards; none while texts
    /// wait for their check.
    pub fn uncompiled(&mut self) -> Option<Compilation> {
        if self.unchecked.is_empty() { self.uncompiled.pop() } else { None }
    }

    /// Takes a compiled text. Returns the message to send; none if the text has changed meanwhile, or the
    /// back ends reported nothing.
    pub fn compiled(&mut self, text: &Compilation) -> Option<Value> {
        let report = text.report(&self.workspace)?;
        let uri = self.workspace.document(&text.path)?.uri.clone();
        let known = self.report(&text.path).is_some_and(|known| known.published == report.published);
        (!known).then(|| self.show(&text.path, &uri, report))
    }

    fn request(&mut self, method: &str, given: Value) -> Result<Value, Refusal> {
        match (self.phase, method) {
            (Phase::New, "initialize") => Ok(self.initialize(&params(given)?)),
            (Phase::New, _) => Err(Refusal::new(NOT_INITIALIZED, "the first request is `initialize`")),
            (Phase::Ready, "initialize") => Err(Refusal::new(INVALID_REQUEST, "it is initialized already")),
            (Phase::Ready, "shutdown") => {
                self.phase = Phase::ShutDown;
                Ok(Value::Null)
            }
            (Phase::Ready, _) => self.question(method, given),
            (Phase::ShutDown | Phase::Over { .. }, _) => {
                Err(Refusal::new(INVALID_REQUEST, "it is shut down"))
            }
        }
    }

    fn question(&mut self, method: &str, given: Value) -> Result<Value, Refusal> {
        match answer::QUESTIONS.iter().find(|(name, _)| *name == method) {
            // A defect of ours in one answer does not end the server: it can only leave incomplete caches.
            Some((_, answer)) => {
                catch_unwind(AssertUnwindSafe(|| answer(self, given))).unwrap_or_else(|_| {
                    Err(Refusal::new(INTERNAL_ERROR, format!("`{method}` failed for a defect of the server")))
                })
            }
            None => Err(Refusal::new(METHOD_NOT_FOUND, format!("there is no request `{method}`"))),
        }
    }

    fn notification(&mut self, method: &str, given: Value) -> Vec<Value> {
        if method == "exit" {
            self.phase = Phase::Over { code: u8::from(self.phase != Phase::ShutDown) };
        }
        if self.phase != Phase::Ready {
            return Vec::new();
        }
        let handled = match method {
            "textDocument/didOpen" => params(given).map(|params| self.did_open(params)),
            "textDocument/didChange" => params(given).map(|params| self.did_change(params)),
            "textDocument/didClose" => {
                return params(given).map(|params| self.did_close(params)).unwrap_or_default();
            }
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => {
                self.check_all("");
                Ok(())
            }
            _ => Ok(()),
        };
        // A notification has no answer, so an error in one goes to the editor's log.
        handled.err().map(|refusal| log(method, &refusal)).into_iter().collect()
    }

    fn initialize(&mut self, params: &InitializeParams) -> Value {
        let offered =
            params.capabilities.general.as_ref().and_then(|general| general.position_encodings.as_ref());
        let bytes = offered.is_some_and(|kinds| kinds.contains(&PositionEncodingKind::UTF8));
        self.workspace.encoding = if bytes { Encoding::Utf8 } else { Encoding::Utf16 };
        self.phase = Phase::Ready;
        json!({
            "capabilities": answer::capabilities(self.workspace.encoding),
            "serverInfo": { "name": "ks", "version": env!("CARGO_PKG_VERSION") },
        })
    }

    fn did_open(&mut self, params: DidOpenTextDocumentParams) {
        let text = params.text_document;
        let document = Document::new(text.uri.clone(), text.version, text.text, self.workspace.encoding);
        let path = uri::path(&text.uri);
        self.workspace.open(path.clone(), document);
        self.check_all(&path);
    }

    fn did_change(&mut self, params: DidChangeTextDocumentParams) {
        let path = uri::path(&params.text_document.uri);
        if let Some(document) = self.workspace.document_mut(&path) {
            document.change(params.text_document.version, params.content_changes);
            self.check_all(&path);
        }
    }

    fn did_close(&mut self, params: DidCloseTextDocumentParams) -> Vec<Value> {
        let path = uri::path(&params.text_document.uri);
        self.workspace.close(&path);
        self.uncompiled.retain(|one| one.path != path);
        self.check_all("");
        match self.reports.remove(&path) {
            Some(_) => vec![diagnose::publish(&params.text_document.uri, None, Vec::new())],
            None => Vec::new(),
        }
    }

    /// Schedules checks of all open texts, since any may use the changed one. The text at `first` is checked
    /// before the others.
    fn check_all(&mut self, first: &str) {
        self.workspace.forget_analyses();
        self.unchecked = self.workspace.open_paths();
        self.unchecked.sort_by_key(|path| path == first);
    }

    fn check(&mut self, path: &str) -> Option<Value> {
        let uri = self.workspace.document(path)?.uri.clone();
        let workspace = &self.workspace;
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let text = diagnose::check(workspace, path)?;
            let report = text.report(workspace)?;
            Some((text, report))
        }));
        let (text, report) = checked.ok().flatten()?;
        self.uncompiled.retain(|one| one.path != path);
        if text.is_waiting() {
            self.uncompiled.push(text);
        }
        Some(self.show(path, &uri, report))
    }

    fn show(&mut self, path: &str, uri: &Uri, report: Report) -> Value {
        let message = diagnose::publish(uri, Some(report.version), report.published.clone());
        self.reports.insert(path.to_owned(), report);
        message
    }

    /// Returns the results of a text's last check, if the text is still the same.
    fn report(&self, path: &str) -> Option<&Report> {
        let version = self.workspace.document(path)?.version;
        self.reports.get(path).filter(|report| report.version == version)
    }

    /// Returns the type that the last check found for a source range.
    fn type_of(&self, path: &str, span: Span) -> Option<&str> {
        let report = self.report(path)?;
        report.types.as_ref()?.type_of(Span { file: report.file, ..span })
    }

    /// Returns the type that the last check found for the smallest expression around a byte.
    fn type_at(&self, path: &str, offset: u32) -> Option<&str> {
        let report = self.report(path)?;
        report.types.as_ref()?.type_at(report.file, offset).map(|(_, text)| text)
    }

    /// Returns the diagnostics of the last check at a byte of a text.
    fn found_at(&self, path: &str, offset: u32) -> impl Iterator<Item = &Diagnostic> {
        let found = self.report(path).map(|report| report.found.as_slice()).unwrap_or_default();
        found.iter().filter(move |one| one.primary.span.start <= offset && offset <= one.primary.span.end)
    }
}

fn log(method: &str, refusal: &Refusal) -> Value {
    let text = format!("{method}: {}", refusal.message);
    protocol::notification("window/logMessage", json!({ "type": 1, "message": text }))
}

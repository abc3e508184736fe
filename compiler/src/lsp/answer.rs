//! Requests that are answered, and the capabilities announced for them.

use lsp_types::{
    CodeActionKind, CodeActionOptions, CodeActionProviderCapability, CompletionOptions,
    HoverProviderCapability, OneOf, PositionEncodingKind, RenameOptions, SaveOptions, ServerCapabilities,
    SignatureHelpOptions, TextDocumentPositionParams, TextDocumentSyncCapability, TextDocumentSyncKind,
    TextDocumentSyncOptions, TextDocumentSyncSaveOptions, WorkDoneProgressOptions,
};
use serde::Serialize;
use serde_json::Value;

use super::position::Encoding;
use super::protocol::{Refusal, params};
use super::{Server, complete, diagnose, hover, layout, navigate, signature, symbols, uri};

/// Handler of a request.
type Answer = fn(&mut Server, Value) -> Result<Value, Refusal>;

/// Handlers of all requests by method name.
pub(super) const QUESTIONS: &[(&str, Answer)] = &[
    ("textDocument/hover", |server, given| at(server, given, hover::hover)),
    ("textDocument/definition", |server, given| at(server, given, navigate::definition)),
    ("textDocument/documentHighlight", |server, given| at(server, given, navigate::highlight)),
    ("textDocument/prepareRename", |server, given| at(server, given, navigate::prepare_rename)),
    ("textDocument/signatureHelp", |server, given| at(server, given, signature::help)),
    ("textDocument/completion", completion),
    ("textDocument/references", references),
    ("textDocument/rename", rename),
    ("textDocument/documentSymbol", document_symbols),
    ("textDocument/codeAction", code_actions),
    ("textDocument/formatting", formatting),
];

/// Returns the server's capabilities.
pub(super) fn capabilities(encoding: Encoding) -> ServerCapabilities {
    let encoding = match encoding {
        Encoding::Utf8 => PositionEncodingKind::UTF8,
        Encoding::Utf16 => PositionEncodingKind::UTF16,
    };
    ServerCapabilities {
        position_encoding: Some(encoding),
        text_document_sync: Some(TextDocumentSyncCapability::Options(TextDocumentSyncOptions {
            open_close: Some(true),
            change: Some(TextDocumentSyncKind::INCREMENTAL),
            save: Some(TextDocumentSyncSaveOptions::SaveOptions(SaveOptions { include_text: Some(false) })),
            ..TextDocumentSyncOptions::default()
        })),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some([".", ">", "@", ":", "\"", "("].map(String::from).to_vec()),
            ..CompletionOptions::default()
        }),
        signature_help_provider: Some(SignatureHelpOptions {
            trigger_characters: Some(vec!["(".into(), ",".into()]),
            ..SignatureHelpOptions::default()
        }),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_highlight_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(CodeActionProviderCapability::Options(CodeActionOptions {
            code_action_kinds: Some(vec![CodeActionKind::QUICKFIX]),
            ..CodeActionOptions::default()
        })),
        document_formatting_provider: Some(OneOf::Left(true)),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: WorkDoneProgressOptions::default(),
        })),
        ..ServerCapabilities::default()
    }
}

/// A position in a text that the server knows.
pub(super) struct TextPosition {
    /// The path of the text.
    pub path: String,
    /// The byte offset in the text.
    pub offset: u32,
}

impl Server {
    /// Converts a position to a byte offset; none if the text is not open and cannot be read.
    fn position(&mut self, given: &TextDocumentPositionParams) -> Option<TextPosition> {
        let path = uri::path(&given.text_document.uri);
        let source = self.workspace.source(&path)?;
        let offset = source.lines.offset(&source.unit.text, given.position);
        Some(TextPosition { path, offset })
    }
}

fn at<T: Serialize>(
    server: &mut Server,
    given: Value,
    answer: fn(&mut Server, &TextPosition) -> Option<T>,
) -> Result<Value, Refusal> {
    let given: TextDocumentPositionParams = params(given)?;
    Ok(server.position(&given).and_then(|position| answer(server, &position)).map_or(Value::Null, value))
}

fn completion(server: &mut Server, given: Value) -> Result<Value, Refusal> {
    let given: lsp_types::CompletionParams = params(given)?;
    let position = server.position(&given.text_document_position);
    Ok(position.map_or(Value::Null, |position| value(complete::complete(server, &position))))
}

fn references(server: &mut Server, given: Value) -> Result<Value, Refusal> {
    let given: lsp_types::ReferenceParams = params(given)?;
    let position = server.position(&given.text_document_position);
    let include = given.context.include_declaration;
    Ok(position.map_or(Value::Null, |position| value(navigate::references(server, &position, include))))
}

fn rename(server: &mut Server, given: Value) -> Result<Value, Refusal> {
    let given: lsp_types::RenameParams = params(given)?;
    match server.position(&given.text_document_position) {
        Some(position) => navigate::rename(server, &position, &given.new_name).map(value),
        None => Ok(Value::Null),
    }
}

fn document_symbols(server: &mut Server, given: Value) -> Result<Value, Refusal> {
    let given: lsp_types::DocumentSymbolParams = params(given)?;
    let path = uri::path(&given.text_document.uri);
    Ok(server.workspace.analysis(&path).map_or(Value::Null, |analysis| value(symbols::of(&analysis))))
}

fn code_actions(server: &mut Server, given: Value) -> Result<Value, Refusal> {
    let given: lsp_types::CodeActionParams = params(given)?;
    let path = uri::path(&given.text_document.uri);
    let (Some(report), Some(document)) = (server.report(&path), server.workspace.document(&path)) else {
        return Ok(value(Vec::<lsp_types::CodeAction>::new()));
    };
    let (text, lines) = (&document.text, &document.lines);
    let start = lines.offset(text, given.range.start);
    let end = lines.offset(text, given.range.end);
    let touched =
        report.found.iter().filter(|one| one.primary.span.start <= end && start <= one.primary.span.end);
    let actions = touched.flat_map(|one| diagnose::actions(&document.uri, text, lines, one));
    Ok(value(actions.collect::<Vec<_>>()))
}

/// There is one style, whatever options the editor sends.
fn formatting(server: &mut Server, given: Value) -> Result<Value, Refusal> {
    let given: lsp_types::DocumentFormattingParams = params(given)?;
    let path = uri::path(&given.text_document.uri);
    Ok(server.workspace.source(&path).and_then(|source| layout::edits(&source)).map_or(Value::Null, value))
}

/// Converts the protocol's data to JSON, which cannot fail.
fn value(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or(Value::Null)
}

//! Completion items in the form of the protocol.

use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionItemLabelDetails, Documentation, InsertTextFormat,
    MarkupContent, MarkupKind,
};

use crate::facts::tables::attributes::{self, Attribute};
use crate::facts::tables::{keywords, maps};
use crate::facts::{DefKind, Definition};
use crate::lex::Keyword;
use crate::lsp::cursor::Cursor;
use crate::lsp::snippets::Snippet;

/// The sort order of completions, first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Names of the kind that the context needs.
    Wanted,
    /// Names of the function.
    Near,
    /// Names of the file.
    Own,
    /// Names of the language.
    Language,
}

impl Rank {
    fn sort_text(self, label: &str) -> String {
        format!("{}{label}", self as u8)
    }
}

fn item(label: &str, kind: CompletionItemKind, rank: Rank) -> CompletionItem {
    CompletionItem {
        label: label.to_owned(),
        kind: Some(kind),
        sort_text: Some(rank.sort_text(label)),
        ..CompletionItem::default()
    }
}

fn docs(text: &str) -> Option<Documentation> {
    let markup = MarkupContent { kind: MarkupKind::Markdown, value: text.to_owned() };
    (!text.is_empty()).then_some(Documentation::MarkupContent(markup))
}

/// Completes the name of a definition.
pub(super) fn definition(one: &Definition, rank: Rank) -> CompletionItem {
    let ty = one.ty.is_known().then(|| one.ty.to_string());
    CompletionItem {
        detail: one.detail.lines().next().map(str::to_owned),
        documentation: docs(&one.docs),
        label_details: Some(CompletionItemLabelDetails { detail: None, description: ty }),
        ..item(&one.name, kind(one.kind), rank)
    }
}

/// Completes a field in a literal: its name and the separator before the value.
pub(super) fn field(one: &Definition) -> CompletionItem {
    CompletionItem { insert_text: Some(format!("{}: ", one.name)), ..definition(one, Rank::Wanted) }
}

/// Completes a reserved word.
pub(super) fn keyword(keyword: Keyword) -> CompletionItem {
    let documentation = keywords::keyword_docs(keyword.text()).and_then(docs);
    CompletionItem { documentation, ..item(keyword.text(), CompletionItemKind::KEYWORD, Rank::Language) }
}

/// Completes a snippet with placeholders.
pub(super) fn snippet(one: &Snippet) -> CompletionItem {
    CompletionItem { detail: Some(one.detail.to_owned()), ..filled(one.keyword, one.text) }
}

fn filled(label: &str, text: &str) -> CompletionItem {
    CompletionItem {
        insert_text: Some(text.to_owned()),
        insert_text_format: Some(InsertTextFormat::SNIPPET),
        ..item(label, CompletionItemKind::SNIPPET, Rank::Own)
    }
}

/// Completes attributes, with the function after them where that is fixed.
pub(super) fn attributes(cursor: &Cursor<'_>) -> Vec<CompletionItem> {
    // Another attribute before `@` on the line already has a function: then only the name is wanted.
    let whole = cursor.before.last().is_none_or(|at| cursor.begins_line(at.span.start));
    attributes::attributes().map(if whole { with_function } else { attribute }).collect()
}

/// Completes the name of an attribute.
fn attribute(one: Attribute) -> CompletionItem {
    CompletionItem {
        detail: Some(format!("{} {}", one.form, one.signature)),
        documentation: docs(one.docs),
        ..item(one.name, CompletionItemKind::PROPERTY, Rank::Wanted)
    }
}

/// Completes an attribute and the function after it, where that is fixed.
fn with_function(one: Attribute) -> CompletionItem {
    let Some(text) = one.snippet.strip_prefix('@') else { return attribute(one) };
    CompletionItem {
        insert_text: Some(text.to_owned()),
        insert_text_format: Some(InsertTextFormat::SNIPPET),
        ..attribute(one)
    }
}

/// Completes programs of every kind at the start of a line.
pub(super) fn programs() -> Vec<CompletionItem> {
    let with_text = attributes::attributes().filter(|one| !one.snippet.is_empty());
    let whole = with_text.map(|one| CompletionItem {
        detail: Some(one.signature.to_owned()),
        documentation: docs(one.docs),
        ..filled(&format!("@{}", one.name), one.snippet)
    });
    whole.collect()
}

/// Completes the argument of an attribute.
pub(super) fn arguments(attribute: &str) -> Vec<CompletionItem> {
    let texts: &[&str] = match attribute {
        "tc" | "cgroup" => &["ingress", "egress"],
        "struct_ops" => &["tcp_congestion_ops", "sched_ext_ops"],
        _ => &[],
    };
    texts.iter().map(|text| item(text, CompletionItemKind::VALUE, Rank::Wanted)).collect()
}

/// Completes the keyword for every CPU in `cpu: all`.
pub(super) fn every_cpu() -> CompletionItem {
    let documentation = docs("Each CPU by itself; `read` gives the sum.");
    CompletionItem { documentation, ..item("all", CompletionItemKind::KEYWORD, Rank::Wanted) }
}

/// Completes the flags of maps.
pub(super) fn flags() -> Vec<CompletionItem> {
    let flag = |(name, text): &(&str, &str)| CompletionItem {
        documentation: docs(text),
        ..item(name, CompletionItemKind::CONSTANT, Rank::Wanted)
    };
    maps::FLAGS.iter().map(flag).collect()
}

/// Completes the kinds of maps, with the text after their names.
pub(super) fn map_kinds() -> Vec<CompletionItem> {
    let kind = |one: &maps::MapKind| CompletionItem {
        detail: Some(one.form.to_owned()),
        documentation: docs(one.docs),
        insert_text: Some(format!("{}{}", one.name, one.snippet)),
        insert_text_format: Some(InsertTextFormat::SNIPPET),
        ..item(one.name, CompletionItemKind::CLASS, Rank::Own)
    };
    maps::KINDS.iter().map(kind).collect()
}

fn kind(kind: DefKind) -> CompletionItemKind {
    match kind {
        DefKind::Function | DefKind::Program | DefKind::Helper | DefKind::Extern | DefKind::Builtin => {
            CompletionItemKind::FUNCTION
        }
        DefKind::Method => CompletionItemKind::METHOD,
        DefKind::Type => CompletionItemKind::TYPE_PARAMETER,
        DefKind::Struct => CompletionItemKind::STRUCT,
        DefKind::Enum => CompletionItemKind::ENUM,
        DefKind::Enumerator => CompletionItemKind::ENUM_MEMBER,
        DefKind::Event | DefKind::Counter => CompletionItemKind::EVENT,
        DefKind::Field => CompletionItemKind::FIELD,
        DefKind::Global | DefKind::Param | DefKind::Variable => CompletionItemKind::VARIABLE,
        DefKind::Map | DefKind::Ring | DefKind::MapKind | DefKind::Config | DefKind::Impl => {
            CompletionItemKind::CLASS
        }
        DefKind::Module => CompletionItemKind::MODULE,
        DefKind::Constant => CompletionItemKind::CONSTANT,
        DefKind::Attribute => CompletionItemKind::PROPERTY,
    }
}

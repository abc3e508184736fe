//! Completion. Works in a text with errors: the tokens before the cursor determine what may follow, and the
//! names are those of the text with all open brackets closed.

mod context;
mod items;

use std::rc::Rc;

use lsp_types::{CompletionItem, CompletionList, CompletionResponse};

use super::Server;
use super::answer::TextPosition;
use super::cursor::{Cursor, members};
use super::snippets;
use super::workspace::Analysis;
use crate::facts::syntactic::Unit;
use crate::facts::tables::keywords;
use crate::facts::{DefId, DefKind, Definition};
use crate::lex::Keyword;
use context::Context;
use items::{Rank, definition, keyword, snippet};

/// Maximum number of completions; if there are more, the client asks again when more is written.
const MOST: usize = 400;

/// Keywords that begin an expression or stand in one.
const EXPRESSION_KEYWORDS: &[Keyword] =
    &[Keyword::True, Keyword::False, Keyword::Null, Keyword::New, Keyword::Match];

/// Keywords of statements that are one word or a word and an expression.
const STATEMENT_KEYWORDS: &[Keyword] = &[
    Keyword::Return,
    Keyword::Break,
    Keyword::Continue,
    Keyword::Delete,
    Keyword::Throw,
    Keyword::Defer,
    Keyword::Else,
    Keyword::Catch,
];

/// Returns the completions at a position.
pub(super) fn complete(server: &mut Server, position: &TextPosition) -> Option<CompletionResponse> {
    let source = server.workspace.source(&position.path)?;
    let cursor = Cursor::new(&source.unit, position.offset);
    let context = Context::at(&cursor);
    let analysis = names(server, position, &source.unit, &cursor, &context)?;
    let written =
        source.unit.text.get(cursor.ident_start as usize..position.offset as usize).unwrap_or_default();
    let items = Choice { analysis: &analysis, cursor: &cursor, items: Vec::new() }.of(&context);
    Some(CompletionResponse::List(cut(items, &String::from_utf8_lossy(written))))
}

/// Returns the facts of the text, as far as it stands before the cursor.
fn names(
    server: &mut Server,
    position: &TextPosition,
    unit: &Unit,
    cursor: &Cursor<'_>,
    context: &Context,
) -> Option<Rc<Analysis>> {
    if !unit.broken || cursor.open.is_empty() {
        return server.workspace.analysis(&position.path);
    }
    let cut = match context {
        Context::Member { start, .. } => {
            cursor.token(Some(*start)).map_or(cursor.ident_start, |token| token.span.start)
        }
        _ => cursor.ident_start,
    };
    server.workspace.analysis_of(&position.path, cursor.repaired(cut)).map(Rc::new)
}

/// Selects the completions that fit the written part, if they are too many to send all.
fn cut(items: Vec<CompletionItem>, written: &str) -> CompletionList {
    if items.len() <= MOST {
        return CompletionList { is_incomplete: false, items };
    }
    let fitting = items.into_iter().filter(|item| fits(&item.label, written));
    CompletionList { is_incomplete: true, items: fitting.take(MOST).collect() }
}

/// Whether the letters of `written` occur in `label` in their order.
fn fits(label: &str, written: &str) -> bool {
    let mut letters = label.chars().map(|letter| letter.to_ascii_lowercase());
    written.chars().all(|wanted| letters.any(|letter| letter == wanted.to_ascii_lowercase()))
}

/// The completions collected so far.
struct Choice<'a> {
    analysis: &'a Analysis,
    cursor: &'a Cursor<'a>,
    items: Vec<CompletionItem>,
}

impl Choice<'_> {
    fn of(mut self, context: &Context) -> Vec<CompletionItem> {
        match context {
            Context::Nothing => {}
            Context::Member { start, end } => {
                let base = self.cursor.value(&self.analysis.facts, *start, *end);
                let ids = members(&self.analysis.facts, &base).to_vec();
                self.definitions(ids, Rank::Near);
            }
            Context::Attribute => self.items.extend(items::attributes(self.cursor)),
            Context::Argument { attribute } => self.items.extend(items::arguments(attribute)),
            Context::Flag => self.items.extend(items::flags()),
            Context::Type { top } => {
                self.types();
                if *top {
                    self.items.extend(items::map_kinds());
                }
            }
            Context::Field { of, given } => {
                let ids: Vec<DefId> = self.analysis.facts.members_of(of).to_vec();
                let named =
                    |id: &DefId| self.name(*id).is_some_and(|name| !given.iter().any(|one| one == name));
                let ids: Vec<DefId> = ids.into_iter().filter(named).collect();
                let fields =
                    ids.iter().filter_map(|id| self.definition(*id)).map(items::field).collect::<Vec<_>>();
                self.items.extend(fields);
            }
            Context::FieldValue { of, field } => self.value(of, field),
            Context::Event => self.events(),
            Context::Declaration => {
                self.items.extend(snippets::DECLARATIONS.iter().map(snippet));
                self.items.extend(items::programs());
                self.items.extend([Keyword::Pin, Keyword::Local].iter().map(|one| keyword(*one)));
            }
            Context::Body { begins } => {
                self.values();
                if *begins {
                    self.items.extend(snippets::STATEMENTS.iter().map(snippet));
                    self.items.extend(STATEMENT_KEYWORDS.iter().map(|one| keyword(*one)));
                }
            }
        }
        self.items
    }

    fn definition(&self, id: DefId) -> Option<&Definition> {
        self.analysis.facts.definition(id)
    }

    fn name(&self, id: DefId) -> Option<&str> {
        self.definition(id).map(|one| one.name.as_str())
    }

    fn definitions(&mut self, ids: Vec<DefId>, rank: Rank) {
        let items: Vec<_> =
            ids.iter().filter_map(|id| self.definition(*id)).map(|one| definition(one, rank)).collect();
        self.items.extend(items);
    }

    fn visible(&self) -> Vec<DefId> {
        self.analysis.facts.visible_at(self.analysis.main.unit.file, self.cursor.offset)
    }

    fn types(&mut self) {
        self.items.extend(keywords::type_keywords().map(keyword));
        let is_type = |id: &DefId| {
            self.definition(*id).is_some_and(|one| one.kind.is_type() || one.kind == DefKind::Module)
        };
        let ids: Vec<DefId> = self.visible().into_iter().filter(is_type).collect();
        self.definitions(ids, Rank::Near);
    }

    /// Completes the value of a field: for an enum its enumerators first.
    fn value(&mut self, of: &str, field: &str) {
        let fields = self.analysis.facts.members_of(of);
        let id = fields.iter().copied().find(|id| self.name(*id) == Some(field));
        let ty = id.and_then(|id| self.definition(id)).map(|one| one.ty.clone()).unwrap_or_default();
        if (of, field) == ("perf_options", "cpu") {
            self.items.push(items::every_cpu());
        }
        match ty.name() {
            Some("perf_event") => self.events(),
            Some("bool") => {
                self.items.extend([Keyword::True, Keyword::False].iter().map(|one| keyword(*one)))
            }
            Some(name) => {
                let ids = match self
                    .analysis
                    .facts
                    .type_named(name)
                    .and_then(|id| Some((id, self.definition(id)?)))
                {
                    Some((id, one)) if one.kind == DefKind::Enum => self.analysis.facts.children(id).to_vec(),
                    _ => Vec::new(),
                };
                self.definitions(ids, Rank::Wanted);
                self.values();
            }
            None => self.values(),
        }
    }

    fn events(&mut self) {
        let ids = self.analysis.facts.members_of("perf_event").to_vec();
        self.definitions(ids, Rank::Wanted);
        let visible = self.visible();
        let fits = |id: &DefId| {
            self.definition(*id).is_some_and(|one| {
                one.ty.name() == Some("perf_event")
                    && !matches!(one.kind, DefKind::Event | DefKind::Enumerator)
            })
        };
        let others = visible.into_iter().filter(fits).collect();
        self.definitions(others, Rank::Near);
    }

    /// Completes an expression.
    fn values(&mut self) {
        let value = |id: &DefId| {
            self.definition(*id).is_some_and(|one| one.kind != DefKind::Type && one.kind != DefKind::Enum)
        };
        let ids: Vec<DefId> = self.visible().into_iter().filter(value).collect();
        for id in ids {
            let item = self.definition(id).map(|one| {
                let rank = match (one.scope.is_some(), one.span.is_some()) {
                    (true, _) => Rank::Near,
                    (false, true) => Rank::Own,
                    (false, false) => Rank::Language,
                };
                definition(one, rank)
            });
            self.items.extend(item);
        }
        self.items.extend(EXPRESSION_KEYWORDS.iter().map(|one| keyword(*one)));
    }
}

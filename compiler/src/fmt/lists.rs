//! Formats lists in braces, and blocks.

use super::layout::Break;
use super::writer::{Brackets, Writer};
use crate::ast::{Block, Stmt, StmtKind};

impl Writer<'_> {
    /// Writes `{ a, b, }`: on one line if the author did so and it fits; `otherwise` breaks it if there is no
    /// source.
    pub(super) fn braces<T>(&mut self, elements: &[T], otherwise: Break, write: impl FnMut(&mut Self, &T)) {
        self.same_line("{");
        let when = if elements.is_empty() { Break::IfTooLong } else { self.written_break(otherwise) };
        self.group(when, |writer| {
            writer.list(elements, Brackets::Curly, write);
            writer.token("}");
        });
    }

    /// Writes `{ ... }`: a single plain statement stays on the line if the author wrote it there.
    pub(super) fn block(&mut self, block: &Block) {
        self.same_line("{");
        if block.stmts.is_empty() {
            self.indent();
            self.element(0);
            self.last_comments();
            self.dedent();
            self.token("}");
            return;
        }
        let when = match block.stmts.as_slice() {
            [stmt] if is_plain(stmt) => self.written_break(Break::Always),
            _ => Break::Always,
        };
        self.group(when, |writer| {
            writer.indent();
            for (at, stmt) in block.stmts.iter().enumerate() {
                if at == 0 {
                    writer.line()
                } else {
                    writer.separator(&block.stmts[at - 1], stmt);
                    writer.hard()
                }
                writer.element(at);
                writer.stmt(stmt);
            }
            writer.element(block.stmts.len());
            writer.last_comments();
            writer.dedent();
            writer.line();
            writer.token("}");
        });
    }
}

/// Whether a statement contains no block.
fn is_plain(stmt: &Stmt) -> bool {
    !matches!(
        stmt.kind,
        StmtKind::If(_)
            | StmtKind::While { .. }
            | StmtKind::For { .. }
            | StmtKind::ForEach { .. }
            | StmtKind::Lock { .. }
            | StmtKind::Try { .. }
    )
}

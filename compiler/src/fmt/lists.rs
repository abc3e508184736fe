//! Formats lists in braces, and blocks.

use super::writer::Writer;
use crate::ast::{Block, Stmt, StmtKind};

impl Writer<'_> {
    /// Writes `{ a, b, }`: on one line if the author did so and it fits. Without a source, `long` breaks it.
    pub(super) fn braces<T>(&mut self, elements: &[T], long: bool, write: impl FnMut(&mut Self, &T)) {
        self.same_line("{");
        let broken = !elements.is_empty() && self.breaks_here(long);
        self.group(broken, |writer| {
            writer.list(elements, Writer::line, true, write);
            writer.token("}");
        });
    }

    /// Writes `{ ... }`: a single plain statement stays on the line if the author wrote it there.
    pub(super) fn block(&mut self, block: &Block) {
        self.same_line("{");
        if block.stmts.is_empty() {
            self.indent();
            self.element(true);
            self.last_comments();
            self.dedent();
            self.token("}");
            return;
        }
        let short = matches!(block.stmts.as_slice(), [stmt] if is_plain(stmt)) && !self.breaks_here(true);
        self.group(!short, |writer| {
            writer.indent();
            for (at, stmt) in block.stmts.iter().enumerate() {
                if at == 0 {
                    writer.line()
                } else {
                    writer.separator(&block.stmts[at - 1], stmt);
                    writer.hard()
                }
                writer.element(at == 0);
                writer.stmt(stmt);
            }
            writer.element(false);
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
            | StmtKind::Try { .. }
    )
}

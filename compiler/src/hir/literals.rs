//! Moves text that a helper or kfunc takes by address into a variable: `bpf_trace_printk("text", 5)`.
//!
//! ```text
//! f("text", ..)  ->  var t: str(5) = "text"   at the start of the function
//!                    f(&t, ..)
//! ```

use super::visit_mut::{self, VisitorMut};
use super::{Expr, ExprKind, Half, Hir, Local, LocalId, Lvalue, LvalueKind, Stmt, StmtKind};
use crate::index::IndexVec;
use crate::types::{TypeKind, Types};

/// Rewrites the functions of the kernel half.
pub fn rewrite(hir: &mut Hir) {
    for function in hir.functions.iter_mut().filter(|one| one.kind.half() == Half::Kernel) {
        let mut rewriter =
            Rewriter { types: &mut hir.types, locals: &mut function.locals, texts: Vec::new() };
        visit_mut::block(&mut rewriter, &mut function.body);
        let texts = rewriter.texts;
        function.body.splice(0..0, texts);
    }
}

struct Rewriter<'a> {
    types: &'a mut Types,
    locals: &'a mut IndexVec<LocalId, Local>,
    /// Declarations of the variables, one for each text.
    texts: Vec<Stmt>,
}

impl VisitorMut for Rewriter<'_> {
    fn expr(&mut self, expr: &mut Expr) {
        let ExprKind::Bytes(bytes) = &mut expr.kind else { return };
        if !matches!(self.types.kind(expr.ty), TypeKind::Ptr(_)) {
            return;
        }
        let bytes = std::mem::take(bytes);
        let (span, ty) = (expr.span, self.types.str_type(bytes.len() as u32 + 1));
        let local = self.locals.push(Local::hidden(ty, span));
        let init = Some(Expr { kind: ExprKind::Bytes(bytes), ty, span });
        self.texts.push(Stmt { kind: StmtKind::Let { local, init }, span });
        expr.kind = ExprKind::AddrOf(Lvalue { kind: LvalueKind::Local(local), ty, span });
    }
}

//! `exec` and functions of Python modules. The contract has no such call: a plugin runs nothing outside of its
//! sandbox. One line on standard error says so, and the script goes on; a function yields 0.

use super::cx::{Lower, base_name};
use super::func::FnCx;
use crate::hir::Expr;
use crate::plugin::contract::import;
use crate::source::Span;

impl FnCx<'_, '_> {
    /// Lowers `exec("x.py")`.
    pub fn exec(&mut self, file: &[u8], span: Span) {
        let file = String::from_utf8_lossy(file).escape_default().to_string();
        self.refused(&format!("run `{file}`"), span);
    }

    /// Lowers `MODULE.f(..)` and pushes the result.
    pub fn python(&mut self, (module, function): (&str, &str), args: &[Expr], span: Span) -> Lower<()> {
        // The arguments may have effects.
        self.printed(b"", args)?;
        // The path on the build machine is not disclosed.
        let module = base_name(module).escape_default().to_string();
        self.refused(&format!("call `{function}` of the Python module `{module}`"), span);
        self.code.i64(0);
        Ok(())
    }

    fn refused(&mut self, what: &str, span: Span) {
        let warn = self.cx.host(import::console::WARN);
        let text = format!(
            "{}cannot {what}\n  because: a plugin runs nothing outside of its sandbox\n  \
             do: start it yourself, next to the plugin; pinned maps are the data that both can see",
            self.cx.line_prefix(span)
        );
        let text = self.cx.text(text);
        self.push_text(text);
        self.code.call(warn);
    }
}

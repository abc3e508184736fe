//! Helpers of the kernel that need no `extern` (language reference, 6.12). `safety` checks which programs may
//! call them.

use ks_wit::helper::{self, HELPERS, HelperType};

use super::function::Body;
use crate::bpf::helper_number;
use crate::diag::Diagnostic;
use crate::hir::{Extern, ExternId, Half};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

impl Body<'_, '_> {
    /// Returns the helper of this name, declared on first use; `None` outside the kernel half, and for an
    /// unknown name.
    pub(super) fn helper_named(&mut self, name: &str) -> Option<ExternId> {
        if self.half() != Half::Kernel {
            return None;
        }
        let number = helper_number(name)?;
        let signature = helper::numbered(number)?.signature?;
        let is_this = |one: &Extern| one.span.is_none() && one.helper == Some(number);
        let declared = self.checker.externs.iter_enumerated().find(|(_, one)| is_this(one));
        if let Some((id, _)) = declared {
            return Some(id);
        }
        let params = signature.params.iter().map(|param| self.helper_type(*param)).collect();
        let ret = self.helper_type(signature.ret);
        Some(self.checker.externs.push(Extern {
            name: name.into(),
            span: None,
            params,
            ret,
            helper: Some(number),
            optional: false,
        }))
    }

    /// Reports a call of a helper that is not allowed here: in userspace, or without a declaration.
    pub(super) fn misplaced_helper(&mut self, name: &str, span: Span) -> bool {
        if helper_number(name).is_none() {
            return false;
        }
        let diagnostic = match self.half() {
            Half::User => Diagnostic::error(306, span, format!("`{name}` belongs to the kernel half")),
            Half::Kernel => Diagnostic::error(305, span, format!("no function `{name}`"))
                .note(
                    "the kernel has a helper of this name, whose parameters and result a script must declare",
                )
                .help(format!("declare it: `extern {name}(..) -> ..`")),
        };
        self.report(diagnostic);
        true
    }

    fn helper_type(&mut self, ty: HelperType) -> TypeId {
        let (common, known) = (self.common(), self.checker.known);
        let to = match ty {
            HelperType::Void => return common.void,
            HelperType::U16 => return common.u16,
            HelperType::U32 => return common.u32,
            HelperType::U64 => return common.u64,
            HelperType::I32 => return common.i32,
            HelperType::I64 => return common.i64,
            HelperType::Memory => common.void,
            HelperType::Text => common.u8,
            HelperType::PerfContext => known.perf_context,
            HelperType::Xdp => known.xdp_context,
            HelperType::Skb => known.skb_context,
            HelperType::Task => self.checker.struct_named("task_struct"),
            HelperType::Registers => self.checker.struct_named("pt_regs"),
        };
        self.checker.types.intern(TypeKind::Ptr(to))
    }
}

/// The helpers that a half can call by name.
pub(super) fn names(half: Half) -> impl Iterator<Item = &'static str> {
    let of_scripts = HELPERS.iter().filter(|helper| helper.signature.is_some());
    of_scripts.filter(move |_| half == Half::Kernel).map(|helper| helper.name)
}

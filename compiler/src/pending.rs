//! What the language has and a back end has not yet: one walk before anything is compiled, so that a back end only meets
//! what it knows.

use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Expr, ExprKind, FuncId, Function, Half, Hir, KernelBuiltin, Map, SharedBuiltin, Stmt, StmtKind,
    UserBuiltin, Walk,
};
use crate::source::Span;
use crate::split::Split;
use crate::types::{StructOrigin, TypeId, TypeKind};

/// What of a program cannot be compiled yet, each thing once.
pub fn check(hir: &Hir, split: &Split) -> Vec<Diagnostic> {
    let mut walk = Pending { hir, half: Half::Kernel, found: Vec::new() };
    split.maps.iter().for_each(|id| walk.map_item(&hir.maps[*id]));
    walk.functions(&split.kernel);
    walk.half = Half::User;
    walk.functions(&split.user);
    walk.found
}

struct Pending<'a> {
    hir: &'a Hir,
    half: Half,
    found: Vec<Diagnostic>,
}

impl Pending<'_> {
    fn later(&mut self, span: Span, what: &str) {
        self.found.push(Diagnostic::not_yet(span, what));
    }

    fn functions(&mut self, ids: &[FuncId]) {
        for id in ids {
            let function = &self.hir.functions[*id];
            self.function_item(function);
            visit::block(self, &function.body);
        }
    }

    fn function_item(&mut self, function: &Function) {
        for local in function.locals.iter() {
            if !self.has_values(local.ty) && !self.has_addresses(local.ty) {
                self.later(local.span, &format!("a variable of type `{}` is", self.hir.types.name(local.ty)));
            }
        }
        if !self.has_values(function.ret) && !self.has_addresses(function.ret) {
            self.later(
                function.span,
                &format!("a result of type `{}` is", self.hir.types.name(function.ret)),
            );
        }
    }

    /// Whether values of a type can be kept: in the kernel half no pointers but those to the context of a program.
    fn has_values(&self, ty: TypeId) -> bool {
        match self.hir.types.kind(ty) {
            _ if self.half == Half::User => true,
            TypeKind::Ptr(_) => self.hir.types.is_context_pointer(ty),
            TypeKind::Array(element, _) => self.has_values(*element),
            TypeKind::Struct(id) => {
                self.hir.types.struct_def(*id).fields.iter().all(|field| self.has_values(field.ty))
            }
            _ => true,
        }
    }

    /// Whether a local of the kernel half may be of a pointer or function type: if it points to memory of its own kind.
    fn has_addresses(&self, ty: TypeId) -> bool {
        let types = &self.hir.types;
        match types.kind(ty) {
            TypeKind::Ptr(to) => match types.kind(*to) {
                TypeKind::Struct(id) => types.struct_def(*id).origin != StructOrigin::Context,
                TypeKind::Void => false,
                _ => true,
            },
            TypeKind::Fn(..) => true,
            _ => false,
        }
    }

    fn map_item(&mut self, map: &Map) {
        if matches!(self.hir.types.kind(map.value), TypeKind::Ptr(_)) {
            self.later(map.span, &format!("a map of pointers of the kind `{}` is", map.kind.name()));
        } else if map.objects && !self.has_values(map.value) {
            // An address means nothing to the other half.
            self.later(map.span, "a map of pointers to what has pointers in it is");
        }
    }

    fn may_be_entry(&self, pointer: TypeId) -> bool {
        let TypeKind::Ptr(object) = *self.hir.types.kind(pointer) else { return false };
        self.hir.maps.iter().any(|map| map.objects && map.value == object)
    }

    /// Whether a pointer that may be an entry becomes one of another type. A write through that one would not reach the map.
    fn casts_entry(&self, from: &Expr, to: &Expr) -> bool {
        let is_pointer = matches!(self.hir.types.kind(to.ty), TypeKind::Ptr(_));
        is_pointer && from.ty != to.ty && self.may_be_entry(from.ty)
    }

    fn kernel_builtin(&self, builtin: &KernelBuiltin) -> bool {
        matches!(
            builtin,
            KernelBuiltin::TimeNs
                | KernelBuiltin::Pid
                | KernelBuiltin::Tid
                | KernelBuiltin::Uid
                | KernelBuiltin::Cpu
                | KernelBuiltin::Comm
                | KernelBuiltin::CgroupId
                | KernelBuiltin::StackId { .. }
                | KernelBuiltin::AttachmentId(_)
                | KernelBuiltin::ReadCounter(_)
                | KernelBuiltin::Reserve(_)
                | KernelBuiltin::Submit(..)
                | KernelBuiltin::Discard(..)
        )
    }

    fn user_builtin(&self, builtin: &UserBuiltin) -> bool {
        matches!(
            builtin,
            UserBuiltin::Load { .. }
                | UserBuiltin::Attach { .. }
                | UserBuiltin::AttachTarget { .. }
                | UserBuiltin::Read { .. }
                | UserBuiltin::ReadCpu(_)
                | UserBuiltin::ShowCounter(..)
                | UserBuiltin::Events(_)
                | UserBuiltin::Histogram { .. }
                | UserBuiltin::Detach(_)
                | UserBuiltin::DetachProgram(_)
                | UserBuiltin::Enable(_)
                | UserBuiltin::Disable(_)
                | UserBuiltin::Reset(_)
                | UserBuiltin::Sleep(_)
                | UserBuiltin::TimeNs
                | UserBuiltin::Stopping
                | UserBuiltin::Exit(_)
                | UserBuiltin::Daemon
                | UserBuiltin::Exec(_)
                | UserBuiltin::Test { .. }
                | UserBuiltin::Python { .. }
                | UserBuiltin::PidOf(_)
                | UserBuiltin::CommOf(_)
                | UserBuiltin::Symbol { .. }
                | UserBuiltin::CpuCount
                | UserBuiltin::Id(_)
                | UserBuiltin::PerCpu { .. }
                | UserBuiltin::Clear(_)
                | UserBuiltin::Count(_)
                | UserBuiltin::OnEvent(..)
                | UserBuiltin::Dispatch { .. }
                | UserBuiltin::Register(_)
        )
    }

    fn known_expr(&self, expr: &Expr) -> bool {
        let types = &self.hir.types;
        match &expr.kind {
            ExprKind::Const(_)
            | ExprKind::Load(_)
            | ExprKind::Unary(..)
            | ExprKind::Logic(..)
            | ExprKind::Present { .. }
            | ExprKind::Bound(_)
            | ExprKind::Binary(..)
            | ExprKind::Truth(_)
            | ExprKind::IsNull(_)
            | ExprKind::AddrOf(_)
            | ExprKind::Offset(..)
            | ExprKind::Distance(..)
            | ExprKind::Concat(..)
            | ExprKind::Match(_)
            | ExprKind::Function(_)
            | ExprKind::Call { .. }
            | ExprKind::CallValue { .. }
            | ExprKind::CallExtern { .. }
            | ExprKind::Shared(
                SharedBuiltin::Len(_)
                | SharedBuiltin::SwapBytes(_)
                | SharedBuiltin::Log2Slot(_)
                | SharedBuiltin::LinearSlot(_),
            )
            | ExprKind::Struct(_)
            | ExprKind::Array(_)
            | ExprKind::Repeat(_)
            | ExprKind::TailCall(_)
            | ExprKind::Context { .. } => true,
            ExprKind::Bytes(_) => !matches!(types.kind(expr.ty), TypeKind::Ptr(_)),
            ExprKind::Convert(from) => match (types.kind(from.ty), types.kind(expr.ty)) {
                _ if self.half == Half::User => true,
                (_, TypeKind::Str(_)) | (TypeKind::Ptr(_), TypeKind::Ptr(_)) => true,
                // Of a packet: the back end knows.
                (TypeKind::Ptr(_), TypeKind::Int(_)) => true,
                (TypeKind::Ptr(_), _) | (_, TypeKind::Ptr(_)) => false,
                _ => types.scalar(from.ty).is_some() && types.scalar(expr.ty).is_some(),
            },
            ExprKind::Take { .. }
            | ExprKind::Taken { .. }
            | ExprKind::Shared(
                SharedBuiltin::Print { .. }
                | SharedBuiltin::Push(..)
                | SharedBuiltin::Add(..)
                | SharedBuiltin::Has(..),
            ) => true,
            ExprKind::New => true,
            ExprKind::Event(_) | ExprKind::Shared(SharedBuiltin::Ratio(_) | SharedBuiltin::Rate(_)) => {
                self.half == Half::User
            }
            ExprKind::Kernel(builtin) => self.kernel_builtin(builtin),
            ExprKind::User(builtin) => self.user_builtin(builtin),
        }
    }
}

impl Visitor for Pending<'_> {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Convert(from) = &expr.kind
            && self.half == Half::User
            && self.casts_entry(from, expr)
        {
            let what = "in userspace, another type for a pointer that may be an entry of a map is";
            return self.later(expr.span, what);
        }
        if !self.known_expr(expr) {
            self.later(expr.span, expr.kind.describe());
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let known = match &stmt.kind {
            // Of which entry is not known here.
            StmtKind::Free(pointer) if self.half == Half::Kernel && self.may_be_entry(pointer.ty) => {
                return self.later(
                    stmt.span,
                    "in the kernel half, `delete` of a pointer that came from elsewhere and may be an entry of a map is",
                );
            }
            StmtKind::ForEach { walk: Walk::PerCpu { .. }, .. } => self.half == Half::User,
            _ => true,
        };
        if !known {
            self.later(stmt.span, stmt.kind.describe());
        }
    }
}

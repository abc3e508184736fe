//! Rejects programs that the checker accepts but one of the halves cannot compile: one traversal of the
//! compiled code, with the reason for each error and an alternative. After it a back end only meets
//! constructs that it supports.

use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Expr, ExprKind, FuncId, Half, Hir, HirFunction, KernelBuiltin, Local, Lvalue, LvalueKind, Stmt, StmtKind,
};
use crate::kernel::{MAX_HELD, held_pointers};
use crate::source::Span;
use crate::split::Split;
use crate::types::{StructOrigin, TypeId, TypeKind, Types};

/// Returns an error for each construct that its half cannot compile.
pub fn check(hir: &Hir, split: &Split) -> Vec<Diagnostic> {
    let mut visitor = Refused { hir, split, half: Half::Kernel, found: Vec::new() };
    visitor.functions(&split.kernel);
    visitor.half = Half::User;
    visitor.functions(&split.user);
    visitor.found
}

/// Reports variables and results of the kernel half that contain more pointers than it tracks.
pub fn hidden_pointers(hir: &Hir, split: &Split) -> Vec<Diagnostic> {
    split.kernel.iter().flat_map(|id| kept_pointers(hir, &hir.functions[*id])).collect()
}

fn kept_pointers(hir: &Hir, function: &HirFunction) -> Vec<Diagnostic> {
    let locals = function.locals.iter().map(|Local { ty, span, .. }| ("variable", *ty, *span));
    let kept = locals.chain([("result", function.ret, function.span)]);
    let refused = |(what, ty, span)| {
        let name = hir.types.name(ty);
        Diagnostic::error(623, span, format!("a {what} holds more than {MAX_HELD} pointers: `{name}`"))
            .note(
                "the kernel half knows of each pointer what it leads to, and compares an index with the \
                   place of each",
            )
            .help("keep fewer pointers, or numbers: positions in an array or keys of a map")
    };
    kept.filter(|(_, ty, _)| held_pointers(&hir.types, *ty).len() > MAX_HELD).map(refused).collect()
}

struct Refused<'a> {
    hir: &'a Hir,
    split: &'a Split,
    half: Half,
    found: Vec<Diagnostic>,
}

impl Refused<'_> {
    fn functions(&mut self, ids: &[FuncId]) {
        let hir = self.hir;
        for id in ids {
            visit::block(self, &hir.functions[*id].body);
        }
    }

    /// Returns the name of a map whose objects are of this type.
    fn map_of(&self, object: TypeId) -> Option<&str> {
        let map = self.hir.maps.iter().find(|map| map.objects && map.value == object)?;
        Some(&map.name)
    }

    /// Returns the map that may contain the pointee of a pointer.
    fn pointee_map(&self, pointer: TypeId) -> Option<&str> {
        match *self.hir.types.kind(pointer) {
            TypeKind::Ptr(object) => self.map_of(object),
            _ => None,
        }
    }

    /// Checks `&lvalue` in userspace.
    fn address(&mut self, lvalue: &Lvalue, span: Span) {
        let mut root = lvalue;
        while let LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } = &root.kind {
            root = base;
        }
        let is_part = !std::ptr::eq(root, lvalue);
        let refused = match &root.kind {
            LvalueKind::Global(id) if self.split.kernel_globals.contains(id) => {
                let name = &self.hir.globals[*id].name;
                Diagnostic::error(611, span, format!("`{name}` has no address in userspace"))
                    .note(
                        "the kernel half uses it too, so it lives in the kernel; a pointer would lead to \
                           a copy",
                    )
                    .help("read it into a variable, change that, and store it back")
            }
            LvalueKind::Element { .. } if is_part => part_of_entry(span),
            LvalueKind::Deref(pointer) if is_part => match self.pointee_map(pointer.ty) {
                Some(map) => {
                    part_of_entry(span).note(format!("what the pointer leads to may lie in `{map}`"))
                }
                None => return,
            },
            _ => return,
        };
        self.found.push(refused);
    }

    /// Checks `&lvalue` in the kernel half. A pointer to a struct of the kernel points to kernel memory,
    /// where members have other offsets than in a copy.
    fn address_of_copy(&mut self, lvalue: &Lvalue, span: Span) {
        if !is_kernels(&self.hir.types, lvalue.ty) {
            return;
        }
        let mut root = lvalue;
        while let LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } = &root.kind {
            root = base;
        }
        let leads_to_kernel =
            matches!(root.kind, LvalueKind::Deref(_)) && is_kernels(&self.hir.types, root.ty);
        if !leads_to_kernel {
            let name = self.hir.types.name(lvalue.ty);
            self.found.push(
                Diagnostic::error(407, span, format!("a copy of the kernel's `{name}` has no address"))
                    .note(format!(
                        "a `*{name}` leads to the kernel's memory, where the members lie elsewhere"
                    ))
                    .help(format!(
                        "pass the copy itself, or the address of what it is a copy of, or declare \
                         `struct {name}` with the members that you need"
                    )),
            );
        }
    }

    /// Rejects an object or record of the kernel half whose type is a struct of the kernel.
    fn created(&mut self, pointer: TypeId, span: Span) {
        if let TypeKind::Ptr(to) = *self.hir.types.kind(pointer)
            && is_kernels(&self.hir.types, to)
        {
            let name = self.hir.types.name(to);
            self.found.push(
                Diagnostic::error(613, span, format!("the kernel's `{name}` cannot be made here"))
                    .note("only the kernel makes its structs; in one of your own it can be a field")
                    .help(format!("declare a struct with a field of type `{name}`")),
            );
        }
    }

    /// Checks a cast between pointer types in userspace.
    fn cast(&mut self, from: &Expr, to: &Expr) {
        let is_pointer = matches!(self.hir.types.kind(to.ty), TypeKind::Ptr(_));
        if let Some(map) = self.pointee_map(from.ty).filter(|_| is_pointer && from.ty != to.ty) {
            let name = self.hir.types.name(from.ty);
            self.found.push(
                Diagnostic::error(611, to.span, format!("a `{name}` cannot be cast in userspace"))
                    .note(format!(
                        "what it leads to may lie in `{map}`: only this type reads and writes the entry"
                    ))
                    .help("copy what it leads to into a variable, and take the address of that"),
            );
        }
    }

    /// Rejects a dereference, in userspace, of a pointer to a struct of the kernel or of a context.
    fn followed(&mut self, lvalue: &Lvalue) {
        let TypeKind::Struct(id) = self.hir.types.kind(lvalue.ty) else { return };
        let def = self.hir.types.struct_def(*id);
        if matches!(def.origin, StructOrigin::Context | StructOrigin::Kernel) {
            self.found.push(kernels_own(&def.name, lvalue.span));
        }
    }
}

fn is_kernels(types: &Types, ty: TypeId) -> bool {
    match types.kind(ty) {
        TypeKind::Struct(id) => types.struct_def(*id).origin == StructOrigin::Kernel,
        _ => false,
    }
}

fn part_of_entry(span: Span) -> Diagnostic {
    Diagnostic::error(611, span, "a part of a map entry has no address in userspace")
        .note("the entry lives in the kernel; a pointer would lead to a copy")
        .help("use the pointer to the whole, or copy the part into a variable and store it back")
}

fn kernels_own(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error(306, span, format!("`{name}` belongs to the kernel half"))
        .note("userspace has memory of its own and reaches none of the kernel's")
        .help("read it in the program, and share the value: by a map, a ring buffer or a variable")
}

impl Visitor for Refused<'_> {
    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let (LvalueKind::Deref(_), Half::User) = (&lvalue.kind, self.half) {
            self.followed(lvalue);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match (&expr.kind, self.half) {
            (ExprKind::AddrOf(lvalue), Half::User) => self.address(lvalue, expr.span),
            (ExprKind::AddrOf(lvalue), Half::Kernel) => self.address_of_copy(lvalue, expr.span),
            (ExprKind::New | ExprKind::Kernel(KernelBuiltin::Reserve(_)), Half::Kernel) => {
                self.created(expr.ty, expr.span);
            }
            (ExprKind::Convert(from), Half::User) => self.cast(from, expr),
            (ExprKind::Context { ctx, .. }, Half::User) => {
                let name = self.hir.types.name(ctx.ty);
                self.found.push(kernels_own(name.trim_start_matches('*'), expr.span));
            }
            (ExprKind::Event(_), Half::Kernel) => self.found.push(
                Diagnostic::error(306, expr.span, "this event belongs to the userspace half")
                    .note("the host opens it from its description")
                    .help("set it where it is attached"),
            ),
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if let (StmtKind::Free(pointer), Half::Kernel) = (&stmt.kind, self.half)
            && let Some(map) = self.pointee_map(pointer.ty)
        {
            let text = "this pointer does not tell which entry to delete";
            let refused = Diagnostic::error(613, stmt.span, text)
                .note(format!(
                    "it came from elsewhere and may lead into `{map}`; in the kernel half an address says \
                     nothing of the entry"
                ))
                .help(format!("delete the entry by its key: `delete {map}[key]`"));
            self.found.push(refused);
        }
    }
}

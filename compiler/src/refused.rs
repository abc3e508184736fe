//! What the checker accepts and one of the halves cannot have: one walk over what is compiled, with the reason for each and
//! what to write instead. Behind it a back end only meets what it knows.

use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Function, Half, Hir, Local, Place, PlaceKind, Stmt, StmtKind};
use crate::source::Span;
use crate::split::Split;
use crate::types::{StructOrigin, TypeId, TypeKind, Types};

/// What of a program is refused.
pub fn check(hir: &Hir, split: &Split) -> Vec<Diagnostic> {
    let mut walk = Refused { hir, split, half: Half::Kernel, found: Vec::new() };
    walk.functions(&split.kernel);
    walk.half = Half::User;
    walk.functions(&split.user);
    walk.found
}

/// Variables and results of the kernel half that no back end can keep. The language has them, so that they are refused where
/// code is made only.
pub fn hidden_pointers(hir: &Hir, split: &Split) -> Vec<Diagnostic> {
    split.kernel.iter().flat_map(|id| kept_pointers(hir, &hir.functions[*id])).collect()
}

fn kept_pointers(hir: &Hir, function: &Function) -> Vec<Diagnostic> {
    let locals = function.locals.iter().map(|Local { ty, span, .. }| ("variable", *ty, *span));
    let kept = locals.chain([("result", function.ret, function.span)]);
    let refused = |(what, ty, span)| {
        let text = format!("a {what} of the kernel half holds pointers: `{}`", hir.types.name(ty));
        Diagnostic::error(623, span, text)
            .note(
                "what a pointer leads to is followed from variable to variable, not through structs and arrays",
            )
            .help("keep the pointer in a variable of its own")
    };
    kept.filter(|(_, ty, _)| hides_pointers(&hir.types, *ty)).map(refused).collect()
}

/// Whether a struct or an array has pointers in it.
fn hides_pointers(types: &Types, ty: TypeId) -> bool {
    let is_pointer = |ty| matches!(types.kind(ty), TypeKind::Ptr(_));
    match types.kind(ty) {
        TypeKind::Array(element, _) => is_pointer(*element) || hides_pointers(types, *element),
        TypeKind::Struct(id) => {
            let fields = &types.struct_def(*id).fields;
            fields.iter().any(|field| is_pointer(field.ty) || hides_pointers(types, field.ty))
        }
        _ => false,
    }
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

    /// The name of a map whose objects are of this type.
    fn map_of(&self, object: TypeId) -> Option<&str> {
        let map = self.hir.maps.iter().find(|map| map.objects && map.value == object)?;
        Some(&map.name)
    }

    /// The map in which the object that a pointer leads to may lie.
    fn map_behind(&self, pointer: TypeId) -> Option<&str> {
        match *self.hir.types.kind(pointer) {
            TypeKind::Ptr(object) => self.map_of(object),
            _ => None,
        }
    }

    /// `&place` in userspace.
    fn address(&mut self, place: &Place, span: Span) {
        let mut root = place;
        while let PlaceKind::Field { base, .. } | PlaceKind::Index { base, .. } = &root.kind {
            root = base;
        }
        let is_part = !std::ptr::eq(root, place);
        let refused = match &root.kind {
            PlaceKind::Global(id) if self.split.kernel_globals.contains(id) => {
                let name = &self.hir.globals[*id].name;
                Diagnostic::error(611, span, format!("`{name}` has no address in userspace"))
                    .note("the kernel half uses it too, so it lives in the kernel; a pointer would lead to a copy")
                    .help("read it into a variable, change that, and store it back")
            }
            PlaceKind::Element { .. } if is_part => part_of_entry(span),
            PlaceKind::Deref(pointer) if is_part => match self.map_behind(pointer.ty) {
                Some(map) => {
                    part_of_entry(span).note(format!("what the pointer leads to may lie in `{map}`"))
                }
                None => return,
            },
            _ => return,
        };
        self.found.push(refused);
    }

    /// A pointer of userspace becomes one of another type.
    fn cast(&mut self, from: &Expr, to: &Expr) {
        let is_pointer = matches!(self.hir.types.kind(to.ty), TypeKind::Ptr(_));
        if let Some(map) = self.map_behind(from.ty).filter(|_| is_pointer && from.ty != to.ty) {
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

    /// What userspace follows a pointer to.
    fn followed(&mut self, place: &Place) {
        let TypeKind::Struct(id) = self.hir.types.kind(place.ty) else { return };
        let def = self.hir.types.struct_def(*id);
        if matches!(def.origin, StructOrigin::Context | StructOrigin::Kernel) {
            self.found.push(kernels_own(&def.name, place.span));
        }
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
    fn place(&mut self, place: &Place) {
        if let (PlaceKind::Deref(_), Half::User) = (&place.kind, self.half) {
            self.followed(place);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match (&expr.kind, self.half) {
            (ExprKind::AddrOf(place), Half::User) => self.address(place, expr.span),
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
            && let Some(map) = self.map_behind(pointer.ty)
        {
            let text = "this pointer does not tell which entry to delete";
            let refused = Diagnostic::error(613, stmt.span, text)
                .note(format!(
                    "it came from elsewhere and may lead into `{map}`; in the kernel half an address says nothing of the entry"
                ))
                .help(format!("delete the entry by its key: `delete {map}[key]`"));
            self.found.push(refused);
        }
    }
}

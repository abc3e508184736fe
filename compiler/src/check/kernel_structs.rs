//! Structs of the kernel: their members come from its BTF when they are used (language reference, 4.7).
//!
//! A struct that the script declares becomes the kernel's (origin `Kernel`) once a pointer of the kernel
//! points to it. If the script has values of it, and no pointers to it in the kernel half, it stays the
//! script's own: a value of the kernel's struct of that name converts to it, member by member.

use std::collections::HashSet;

use super::Checker;
use super::expr::Typed;
use super::function::Body;
use super::kernel_facts::KernelFact;
use super::names::Symbol;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Half, KernelMember, Lvalue, LvalueKind};
use crate::kernel_types::{KernelType, Member, Pointee, Spelling};
use crate::source::Span;
use crate::types::{Field, IntType, StructDef, StructId, StructOrigin, TypeId, TypeKind};

/// What the names of tracepoints' records begin with.
pub(super) const RECORD: &str = "trace_event_raw_";

impl Checker<'_> {
    /// Returns the struct of the kernel of this name, which the script does not declare.
    pub(super) fn kernel_struct(&mut self, name: &str) -> TypeId {
        let id = match self.kernel_structs.get(name) {
            Some(id) => *id,
            None => {
                let def =
                    StructDef { name: name.to_owned(), fields: Vec::new(), origin: StructOrigin::Kernel };
                let id = self.types.add_struct(def);
                self.kernel_structs.insert(name.to_owned(), id);
                id
            }
        };
        self.types.struct_type(id)
    }

    /// Warns of values of structs that look like the kernel's.
    pub(super) fn check_values_of_kernel_structs(&mut self) {
        // If nobody chose a kernel and the script uses none of its structs, its types are not worth reading.
        let named = self.kernel().is_chosen() || self.types.has_kernel_structs();
        let mut found: Vec<_> = self.by_value.drain().collect();
        found.sort_by_key(|(_, span)| *span);
        for (id, span) in found {
            let def = self.types.struct_def(id);
            let meant = match def.origin {
                _ if self.copied.contains(&id) => false,
                // A part of another struct of the kernel is only a description.
                StructOrigin::Kernel => self.own_values.contains(&id),
                // A struct that has no member in common with the kernel's is unrelated to it.
                StructOrigin::Script => {
                    named
                        && def
                            .fields
                            .iter()
                            .any(|field| self.kernel().member(&def.name, &field.name).is_some())
                }
                StructOrigin::Context | StructOrigin::Predeclared | StructOrigin::NestedKey => false,
            };
            if meant {
                let text = format!("`{}` is a kernel struct; its layout is the kernel's", def.name);
                self.report(
                    Diagnostic::warning(512, span, text)
                        .help("declare a struct of another name for data of your own"),
                );
            }
        }
    }

    /// Returns the position of a member of a struct of the kernel that is read; `None` if an error was
    /// reported. Members that the script does not declare come from BTF.
    pub(super) fn kernel_member(&mut self, id: StructId, name: &ast::Ident) -> Option<usize> {
        let def = self.types.struct_def(id);
        let (structure, declared) = (def.name.clone(), def.field(&name.name));
        if structure.starts_with(RECORD) && name.name == "ent" {
            self.report(hidden_entry(name));
            return None;
        }
        let real = self.kernel().member(&structure, &name.name);
        if self.kernel().is_union(&structure) {
            self.kernel_members.unions.insert(id);
        }
        if self.kernel().is_typedef(&structure) {
            self.kernel_members.typedefs.insert(id);
        }
        if !self.kernel_members.internal.contains_key(&id) {
            let internal = self.kernel().is_internal(&structure);
            self.kernel_members.internal.insert(id, internal);
        }
        match (declared, real) {
            (Some(index), Some(real)) => self.declared_member(id, index, &real, name.span).then_some(index),
            (Some(index), None) if !self.kernel().has_structure(&structure) => Some(index),
            (Some(index), None) if self.is_existing(id, name) => Some(index),
            (None, Some(real)) => self.add_member(id, &real, name.span),
            (declared, None) => {
                if self.is_existing(id, name) {
                    let text = format!("the type of `{}` in other kernels is not known", name.name);
                    self.report(
                        Diagnostic::error(511, name.span, text)
                            .note(format!(
                                "`{structure}` has no such member in the kernel that this is compiled for"
                            ))
                            .help(format!("declare it: `struct {structure} {{ {}: TYPE }}`", name.name)),
                    );
                } else {
                    self.report_no_member(&structure, name, declared.is_some());
                }
                None
            }
        }
    }

    /// Whether the running kernel may have a member that the one of the build lacks: an `exists` asks for it,
    /// or has found it.
    fn is_existing(&self, id: StructId, name: &ast::Ident) -> bool {
        self.asked_member == Some(name.span)
            || self.existing.contains(&KernelFact::Member(id, name.name.clone()))
    }

    /// Checks every member of a struct that is copied from the kernel: a copy also reads members that the
    /// script only declares.
    fn copied_struct(&mut self, id: StructId, span: Span) {
        if !self.copied.insert(id) {
            return;
        }
        for index in 0..self.types.struct_def(id).fields.len() {
            let field = &self.types.struct_def(id).fields[index];
            let (name, ty) = (field.name.clone(), field.ty);
            if !self.kernel_members.members.contains_key(&(id, index)) {
                self.kernel_member(id, &ast::Ident { name, span });
            }
            if let TypeKind::Struct(inner) = *self.types.kind(ty) {
                self.copied_struct(inner, span);
            }
        }
    }

    /// Whether a struct that the script declares describes the kernel's of its name, or a part of it, in the kernel of
    /// the build or in one with the members that an `exists` asks for.
    fn describes_kernels(&self, id: StructId) -> bool {
        let def = self.types.struct_def(id);
        let is_there = |field: &Field| self.kernel().member(&def.name, &field.name).is_some();
        let is_asked = |field: &Field| self.asked_members.contains(&field.name);
        !def.fields.is_empty()
            && self.kernel().has_structure(&def.name)
            && def.fields.iter().all(|field| is_there(field) || is_asked(field))
    }

    /// Makes the structs with members that an `exists` asks for the kernel's, wherever pointers to them come from.
    pub(super) fn give_asked_structs_to_kernel(&mut self) {
        if self.asked_members.is_empty() {
            return;
        }
        let is_asked = |id: &StructId| {
            let def = self.types.struct_def(*id);
            def.origin == StructOrigin::Script
                && def.fields.iter().any(|field| self.asked_members.contains(&field.name))
                && !self.own_values.contains(id)
                && self.describes_kernels(*id)
        };
        let found: Vec<StructId> = self.pointed_to.iter().copied().filter(is_asked).collect();
        found.into_iter().for_each(|id| self.give_to_kernel(id));
    }

    /// Makes a struct that the script declares a struct of the kernel. The same applies to the structs of its
    /// members and their pointees, where the kernel's members have structs of the same names.
    pub(super) fn give_to_kernel(&mut self, id: StructId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let def = self.types.struct_mut(id);
            if def.origin != StructOrigin::Script {
                continue;
            }
            def.origin = StructOrigin::Kernel;
            let def = self.types.struct_def(id);
            for field in &def.fields {
                let Some(inner) = self.underlying_struct(field.ty) else { continue };
                let is_kernels = match self.kernel().member(&def.name, &field.name) {
                    Some(real) => struct_name(&real.ty) == Some(&self.types.struct_def(inner).name),
                    // Without the kernel's types only the declaration is known.
                    None => !self.kernel().has_btf(),
                };
                if is_kernels {
                    open.push(inner);
                }
            }
        }
    }

    /// Returns the struct of a type, through arrays and pointers.
    fn underlying_struct(&self, mut ty: TypeId) -> Option<StructId> {
        loop {
            match self.types.kind(ty) {
                TypeKind::Ptr(inner) | TypeKind::Array(inner, _) => ty = *inner,
                TypeKind::Struct(id) => return Some(*id),
                _ => return None,
            }
        }
    }

    /// Checks that the script's declaration of a member fits the kernel's.
    fn declared_member(&mut self, id: StructId, index: usize, real: &Member, span: Span) -> bool {
        let ty = self.types.struct_def(id).fields[index].ty;
        let scalar = self.types.scalar(ty).is_some();
        let real_scalar = real.ty.scalar().is_some() || matches!(real.ty, KernelType::Pointer(_));
        if scalar == real_scalar {
            let int = real.ty.scalar().and_then(|(bytes, signed)| self.int_of(bytes, signed));
            let int = int.and_then(|ty| self.types.int(ty));
            self.keep_member(id, index, real, int);
            return true;
        }
        let (declared, found) = (self.types.name(ty), describe(real));
        let text = format!("member `{}` differs from the kernel's", real.name);
        self.report(
            Diagnostic::error(511, span, text)
                .label(format!("declared as `{declared}` but is {found}"))
                .help("run `ks init` again, or remove the declaration"),
        );
        false
    }

    fn add_member(&mut self, id: StructId, real: &Member, span: Span) -> Option<usize> {
        // The verifier wants plain loads of the records of tracepoints.
        let is_record = self.types.struct_def(id).name.starts_with(RECORD);
        let ty = if is_record && real.bitfield.is_some() { None } else { self.member_type(&real.ty) };
        let Some(ty) = ty else {
            let text = format!("member `{}` cannot be read", real.name);
            self.report(
                Diagnostic::error(511, span, text).label(format!("in the kernel this is {}", describe(real))),
            );
            return None;
        };
        let fields = &mut self.types.struct_mut(id).fields;
        fields.push(Field::new(&real.name, ty));
        let index = fields.len() - 1;
        self.keep_member(id, index, real, None);
        Some(index)
    }

    /// Records the kernel's type of a member. `int` is its integer type if the script may have declared
    /// another.
    fn keep_member(&mut self, id: StructId, index: usize, real: &Member, int: Option<IntType>) {
        let mut element = &real.ty;
        while let KernelType::Array { element: inner, .. } = element {
            element = inner;
        }
        let member = KernelMember {
            int,
            is_enum: matches!(element, KernelType::Enum { .. }),
            is_pointer: matches!(element, KernelType::Pointer(_) | KernelType::Function),
            is_bitfield: real.bitfield.is_some(),
            in_union: real.in_union,
        };
        self.kernel_members.members.insert((id, index), member);
    }

    fn report_no_member(&mut self, structure: &str, name: &ast::Ident, declared: bool) {
        let kernel = self.kernel();
        let error = if declared {
            let text = format!("member `{}` differs from the kernel's", name.name);
            Diagnostic::error(511, name.span, text)
                .label(format!("the kernel's `{structure}` has no such member"))
                .help(format!(
                    "read it where another kernel has it: `if (exists(p->{})) {{ .. }}`",
                    name.name
                ))
        } else {
            Diagnostic::error(304, name.span, format!("`{structure}` has no member `{}`", name.name))
        };
        let error = match kernel.structure(structure) {
            Some(real) => {
                let members = real.members.iter().map(|member| member.name.as_str());
                error.suggest_near(name.span, "member", &name.name, members)
            }
            None if kernel.has_btf() => error.note(format!("the kernel describes no struct `{structure}`")),
            None => error
                .note(format!("its members are not known: {}", kernel.no_btf()))
                .help("give the kernel's types with `--btf FILE`"),
        };
        self.report(error);
    }

    /// Returns the language's type for a member of a struct of the kernel; `None` if it has none.
    fn member_type(&mut self, ty: &KernelType) -> Option<TypeId> {
        let common = self.types.common();
        match ty {
            KernelType::Bool => Some(common.bool),
            KernelType::Int { bytes, signed, .. } | KernelType::Enum { bytes, signed, .. } => {
                self.int_of(*bytes, *signed)
            }
            KernelType::Pointer(to) => {
                let to = self.pointee_type(to);
                Some(self.types.intern(TypeKind::Ptr(to)))
            }
            KernelType::Array { element, len } => {
                let element = match **element {
                    KernelType::Int { spelling: Spelling::Char, .. } => common.char,
                    ref element => self.member_type(element)?,
                };
                Some(self.types.intern(TypeKind::Array(element, u64::from(*len))))
            }
            KernelType::Struct { name, .. } | KernelType::Union { name, .. } if !name.is_empty() => {
                Some(self.struct_named(name))
            }
            _ => None,
        }
    }

    /// Returns the pointee type of a pointer of the kernel. Where the language has no type for it, it is void
    /// and cannot be read: elements of a guessed type would be wrong values.
    fn pointee_type(&mut self, to: &Pointee) -> TypeId {
        let common = self.types.common();
        match to {
            Pointee::Struct(name) => self.struct_named(name),
            Pointee::Int { bytes, signed } => self.int_of(*bytes, *signed).unwrap_or(common.void),
            Pointee::Void | Pointee::Char | Pointee::Function => common.u8,
            Pointee::Pointer(inner) => {
                let inner = self.pointee_type(inner);
                self.types.intern(TypeKind::Ptr(inner))
            }
            Pointee::Array { element, len } => {
                let array = KernelType::Array { element: element.clone(), len: *len };
                self.member_type(&array).unwrap_or(common.void)
            }
            Pointee::Other => common.void,
        }
    }

    fn int_of(&mut self, bytes: u32, signed: bool) -> Option<TypeId> {
        let bits = match bytes {
            1 => 8,
            2 => 16,
            4 => 32,
            8 => 64,
            _ => return None,
        };
        Some(self.types.intern(TypeKind::Int(IntType { bits, signed })))
    }

    /// Returns the kernel's struct of a name: the one that a header or the script declares, if there is one
    /// and the script has no values of it.
    pub(super) fn struct_named(&mut self, name: &str) -> TypeId {
        if let Some(Symbol::Type(ty)) = self.names.get(name)
            && let TypeKind::Struct(id) = *self.types.kind(ty)
        {
            match self.types.struct_def(id).origin {
                StructOrigin::Kernel | StructOrigin::Context => return ty,
                StructOrigin::Script if !self.is_own(id, ty) && self.describes_kernels(id) => {
                    self.give_to_kernel(id);
                    return ty;
                }
                StructOrigin::Script | StructOrigin::Predeclared | StructOrigin::NestedKey => {}
            }
        }
        self.kernel_struct(name)
    }

    /// Whether a struct that the script declares is used for values of its own, even if pointers point to it.
    fn is_own(&self, id: StructId, ty: TypeId) -> bool {
        let is_record = self.rings.iter().any(|ring| ring.record == ty);
        is_record || (self.own_values.contains(&id) && !self.pointed_to.contains(&id))
    }
}

impl Body<'_, '_> {
    /// Checks the members of a struct whose value is copied from the kernel's memory.
    pub(super) fn check_copy(&mut self, lvalue: &Lvalue) {
        if let TypeKind::Array(_, 0) = self.checker.types.kind(lvalue.ty) {
            self.report(
                Diagnostic::error(511, lvalue.span, "a flexible array cannot be copied")
                    .note("its length is not part of its type")
                    .help("read its elements: `[0]`"),
            );
            return;
        }
        let TypeKind::Struct(id) = *self.checker.types.kind(lvalue.ty) else { return };
        let mut root = lvalue;
        while let LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } = &root.kind {
            root = base;
        }
        if matches!(root.kind, LvalueKind::Deref(_)) && self.is_kernels_struct(root.ty) {
            self.checker.copied_struct(id, lvalue.span);
        }
    }

    pub(super) fn is_kernels_struct(&self, ty: TypeId) -> bool {
        self.checker.types.kernel_struct(ty).is_some()
    }

    /// Converts a value of the kernel's struct to the script's struct of the same name; none if there is no
    /// such pair.
    pub(super) fn convert_kernels(&mut self, from: &Typed, to: TypeId) -> Option<Expr> {
        let types = &self.checker.types;
        let (&TypeKind::Struct(source), &TypeKind::Struct(target)) =
            (types.kind(from.expr.ty), types.kind(to))
        else {
            return None;
        };
        let (kernels, scripts) = (types.struct_def(source), types.struct_def(target));
        let is_pair = kernels.origin == StructOrigin::Kernel
            && scripts.origin == StructOrigin::Script
            && kernels.name == scripts.name
            && self.checker.describes_kernels(target);
        if !is_pair || self.half() != Half::Kernel {
            return None;
        }
        let span = from.expr.span;
        if !self.checker.members_convert(source, target, span, &mut HashSet::new()) {
            return Some(Expr { ty: self.checker.types.common().error, ..from.expr.clone() });
        }
        self.checker.copied.insert(target);
        Some(Expr { kind: ExprKind::Convert(Box::new(from.expr.clone())), ty: to, span })
    }
}

impl Checker<'_> {
    /// Whether every member that the script's struct declares can be converted from the kernel's; reports
    /// those that cannot.
    fn members_convert(
        &mut self,
        kernels: StructId,
        scripts: StructId,
        span: Span,
        seen: &mut HashSet<StructId>,
    ) -> bool {
        if !seen.insert(scripts) {
            return true;
        }
        let fields = self.types.struct_def(scripts).fields.clone();
        fields.iter().all(|field| {
            let name = ast::Ident { name: field.name.clone(), span };
            let Some(index) = self.kernel_member(kernels, &name) else { return false };
            let real = self.types.struct_def(kernels).fields[index].ty;
            if real == field.ty
                || (self.types.scalar(real).is_some() && self.types.scalar(field.ty).is_some())
            {
                return true;
            }
            if let (&TypeKind::Struct(inner), &TypeKind::Struct(wanted)) =
                (self.types.kind(real), self.types.kind(field.ty))
                && self.types.struct_def(inner).name == self.types.struct_def(wanted).name
            {
                return self.members_convert(inner, wanted, span, seen);
            }
            let text = format!("member `{}` differs from the kernel's", field.name);
            let (declared, found) = (self.types.name(field.ty), self.types.name(real));
            self.report(
                Diagnostic::error(511, span, text)
                    .label(format!("declared as `{declared}` but is `{found}`"))
                    .help("declare it as the kernel's, or leave it out"),
            );
            false
        })
    }
}

/// Reports the first member of a tracepoint's record, which programs cannot read. Source:
/// kernel/trace/bpf_trace.c, `tp_prog_is_valid_access`, v6.12.
fn hidden_entry(name: &ast::Ident) -> Diagnostic {
    Diagnostic::error(304, name.span, "`ent` cannot be read here")
        .note("the kernel keeps the first 8 bytes of a record to itself")
        .help("the thread is `tid()`, the process `pid()`")
}

/// Returns the struct name of a kernel type, through arrays and pointers.
fn struct_name(ty: &KernelType) -> Option<&String> {
    match ty {
        KernelType::Struct { name, .. } | KernelType::Union { name, .. } => Some(name),
        KernelType::Array { element, .. } => struct_name(element),
        KernelType::Pointer(to) => pointee_name(to),
        _ => None,
    }
}

fn pointee_name(to: &Pointee) -> Option<&String> {
    match to {
        Pointee::Struct(name) => Some(name),
        Pointee::Pointer(inner) => pointee_name(inner),
        Pointee::Array { element, .. } => struct_name(element),
        _ => None,
    }
}

/// Describes a member, for messages.
fn describe(member: &Member) -> String {
    match &member.bitfield {
        Some(bits) => format!("a bit-field of {}", super::count_of(usize::from(bits.bits), "bit")),
        None => format!("`{}`", member.ty),
    }
}

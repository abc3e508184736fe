//! Structs of the kernel: their members come from its BTF, when they are asked for (language reference, 4.7).

use super::Checker;
use super::names::Symbol;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::KernelMember;
use crate::kernel_types::{KernelType, Member, Pointee, Spelling};
use crate::types::{Field, IntType, StructDef, StructId, StructOrigin, TypeId, TypeKind};

impl Checker<'_> {
    /// The struct of the kernel of this name, which the script does not declare.
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
        // A script without anything of a kernel that nobody named is no reason to read the kernel's types.
        let named = self.kernel().is_chosen() || self.types.has_kernel_structs();
        let mut found: Vec<_> = self.by_value.drain().collect();
        found.sort_by_key(|(_, span)| *span);
        for (id, span) in found {
            let def = self.types.struct_def(id);
            let meant = match def.origin {
                StructOrigin::Kernel => true,
                // One that has nothing but the name in common is another thing.
                StructOrigin::Script => {
                    named
                        && def
                            .fields
                            .iter()
                            .any(|field| self.kernel().member(&def.name, &field.name).is_some())
                }
                StructOrigin::Context | StructOrigin::Predeclared => false,
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

    /// The position of a member of a struct of the kernel, to read it; `None` if it was reported. What the script does
    /// not declare comes from BTF.
    pub(super) fn kernel_member(&mut self, id: StructId, name: &ast::Ident) -> Option<usize> {
        let def = self.types.struct_def(id);
        let (structure, declared) = (def.name.clone(), def.field(&name.name));
        let real = self.kernel().member(&structure, &name.name);
        if self.kernel().is_union(&structure) {
            self.kernel_members.unions.insert(id);
        }
        if self.kernel().is_typedef(&structure) {
            self.kernel_members.typedefs.insert(id);
        }
        match (declared, real) {
            (Some(index), Some(real)) => self.declared_member(id, index, &real, name).then_some(index),
            (Some(index), None) if !self.kernel().has_structure(&structure) => Some(index),
            (None, Some(real)) => self.add_member(id, &real, name),
            (declared, None) => {
                self.report_no_member(&structure, name, declared.is_some());
                None
            }
        }
    }

    /// Whether what the script says of a member fits what it is.
    fn declared_member(&mut self, id: StructId, index: usize, real: &Member, name: &ast::Ident) -> bool {
        let ty = self.types.struct_def(id).fields[index].ty;
        let scalar = self.types.scalar(ty).is_some();
        let real_scalar = real.ty.scalar().is_some() || matches!(real.ty, KernelType::Pointer(_));
        if real.bitfield.is_none() && scalar == real_scalar {
            let int = real.ty.scalar().and_then(|(bytes, signed)| self.int_of(bytes, signed));
            let int = int.and_then(|ty| self.types.int(ty));
            self.keep_member(id, index, real, int);
            return true;
        }
        let (declared, found) = (self.types.name(ty), describe(real));
        let text = format!("member `{}` differs from the kernel's", name.name);
        self.report(
            Diagnostic::error(511, name.span, text)
                .label(format!("declared as `{declared}` but is {found}"))
                .help("run `ks init` again, or remove the declaration"),
        );
        false
    }

    fn add_member(&mut self, id: StructId, real: &Member, name: &ast::Ident) -> Option<usize> {
        let ty = if real.bitfield.is_some() { None } else { self.member_type(&real.ty) };
        let Some(ty) = ty else {
            let text = format!("member `{}` cannot be read", name.name);
            self.report(
                Diagnostic::error(511, name.span, text)
                    .label(format!("in the kernel this is {}", describe(real))),
            );
            return None;
        };
        let fields = &mut self.types.struct_mut(id).fields;
        fields.push(Field { name: name.name.clone(), ty, default: None, docs: String::new() });
        let index = fields.len() - 1;
        self.keep_member(id, index, real, None);
        Some(index)
    }

    /// `int`: what it is if the script may have declared another integer.
    fn keep_member(&mut self, id: StructId, index: usize, real: &Member, int: Option<IntType>) {
        let mut element = &real.ty;
        while let KernelType::Array { element: inner, .. } = element {
            element = inner;
        }
        let member = KernelMember {
            int,
            is_enum: matches!(element, KernelType::Enum { .. }),
            is_pointer: matches!(element, KernelType::Pointer(_) | KernelType::Function),
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
                .note("its members are not known: no BTF")
                .help("give the kernel's types with `--btf FILE`"),
        };
        self.report(error);
    }

    /// The language's type for a member of a struct of the kernel; `None` if it has none.
    fn member_type(&mut self, ty: &KernelType) -> Option<TypeId> {
        let common = self.types.common();
        match ty {
            KernelType::Bool => Some(common.bool),
            KernelType::Int { bytes, signed, .. } | KernelType::Enum { bytes, signed, .. } => {
                self.int_of(*bytes, *signed)
            }
            KernelType::Pointer(to) => {
                let to = match to {
                    Pointee::Struct(name) => self.struct_named(name),
                    Pointee::Int { bytes, signed } => self.int_of(*bytes, *signed).unwrap_or(common.u8),
                    Pointee::Void | Pointee::Char | Pointee::Function | Pointee::Other => common.u8,
                };
                Some(self.types.intern(TypeKind::Ptr(to)))
            }
            KernelType::Array { element, len } if *len > 0 => {
                let element = match **element {
                    KernelType::Int { spelling: Spelling::Char, .. } => common.char,
                    ref element
                        if element.scalar().is_some() || matches!(element, KernelType::Pointer(_)) =>
                    {
                        self.member_type(element)?
                    }
                    _ => return None,
                };
                Some(self.types.intern(TypeKind::Array(element, u64::from(*len))))
            }
            KernelType::Struct { name, .. } if !name.is_empty() => Some(self.struct_named(name)),
            _ => None,
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

    /// The kernel's struct of a name: the one that a header declares, if one does.
    fn struct_named(&mut self, name: &str) -> TypeId {
        let declared = match self.names.get(name) {
            Some(Symbol::Type(ty)) => match self.types.kind(ty) {
                TypeKind::Struct(id) => {
                    let origin = self.types.struct_def(*id).origin;
                    matches!(origin, StructOrigin::Kernel | StructOrigin::Context).then_some(ty)
                }
                _ => None,
            },
            _ => None,
        };
        declared.unwrap_or_else(|| self.kernel_struct(name))
    }
}

/// What a member is, in words.
fn describe(member: &Member) -> String {
    match &member.bitfield {
        Some(bits) => format!("a bit-field of {}", super::count_of(usize::from(bits.bits), "bit")),
        None => format!("`{}`", member.ty),
    }
}

//! Declarations: types first, then maps, globals and the signatures of functions; bodies come later.

use super::names::{Symbol, Taken};
use super::types::Position;
use super::{Checker, Signature};
use crate::ast::{self, IntLit, Item, ItemKind, TypeExpr, TypeExprKind};
use crate::diag::{Diagnostic, near};
use crate::hir::{FuncId, FunctionKind, Global, Map, MapKind};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{EnumDef, Field, IntType, StructDef, TypeId, TypeKind};

/// Most bytes of a map's key (kernel/bpf/hashtab.c, MAX_BPF_STACK).
const MAX_KEY_BYTES: u64 = 512;
/// Most bytes of a value in per-CPU kinds (mm/percpu.c, PCPU_MIN_UNIT_SIZE).
const MAX_PER_CPU_VALUE_BYTES: u64 = 32 << 10;
/// Most bytes of a global or of a value elsewhere: far above what makes sense, far below what overflows.
pub(super) const MAX_OBJECT_BYTES: u64 = 16 << 20;

const BPF_F_NUMA_NODE: u32 = 4;

/// A flag of a map.
struct MapFlag {
    word: &'static str,
    /// Its bit (`include/uapi/linux/bpf.h`, BPF_F_...).
    bit: u32,
    /// A number in parentheses follows.
    numbered: bool,
    /// The kinds that take it.
    fits: fn(MapKind) -> bool,
}

const fn flag(word: &'static str, bit: u32, fits: fn(MapKind) -> bool) -> MapFlag {
    MapFlag { word, bit, numbered: false, fits }
}

const FLAGS: &[MapFlag] = &[
    flag("no_prealloc", 1, |kind| matches!(kind, MapKind::Hash | MapKind::PercpuHash)),
    flag("no_common_lru", 2, |kind| kind == MapKind::LruHash),
    MapFlag { numbered: true, ..flag("numa_node", BPF_F_NUMA_NODE, |kind| !kind.is_per_cpu()) },
    flag("rdonly", 8, |_| true),
    flag("wronly", 16, |_| true),
    flag("clone", 0x200, |_| false),
];

impl Checker<'_> {
    /// Declares all items. Gives the functions whose bodies are to be checked.
    pub(super) fn declare<'a>(&mut self, file: &'a ast::File) -> Vec<(FuncId, &'a ast::Function)> {
        for item in &file.items {
            self.declare_type_name(item);
        }
        self.declare_aliases(file);
        for item in &file.items {
            self.fill_struct(item);
        }
        self.check_struct_cycles(file);
        let mut functions = Vec::new();
        for item in &file.items {
            match &item.kind {
                ItemKind::Global(global) => self.declare_global(global),
                ItemKind::Function(function) => functions.push((self.declare_function(function), function)),
                _ => self.report_unsupported(item),
            }
        }
        functions
    }

    fn report_unsupported(&mut self, item: &Item) {
        let what = match &item.kind {
            ItemKind::Include(_) => "`include` is",
            ItemKind::Import { .. } => "`import` is",
            ItemKind::Config { .. } => "`config` blocks are",
            ItemKind::Extern { .. } => "`extern` is",
            ItemKind::Impl { .. } => "`impl` blocks are",
            _ => return,
        };
        let head = Span { end: item.span.end.min(item.span.start + 6), ..item.span };
        self.report(Diagnostic::not_yet(head, what));
    }

    fn declare_name(&mut self, name: &ast::Ident, symbol: Symbol) {
        match self.names.declare(&name.name, symbol, name.span) {
            Ok(()) => {}
            Err(Taken::Predeclared) => self.report(
                Diagnostic::error(310, name.span, format!("`{}` is predeclared", name.name))
                    .help("choose another name"),
            ),
            Err(Taken::At(first)) => self.report_duplicate(name, first),
        }
    }

    pub(super) fn report_duplicate(&mut self, name: &ast::Ident, first: Span) {
        self.report(
            Diagnostic::error(302, name.span, format!("`{}` is already defined", name.name))
                .also(first, "first defined here"),
        );
    }

    fn declare_type_name(&mut self, item: &Item) {
        match &item.kind {
            ItemKind::Struct { name, attributes, .. } => {
                if let Some(attribute) = attributes.first() {
                    self.report(Diagnostic::not_yet(attribute.span, "an attribute on a struct is"));
                }
                let def = StructDef { name: name.name.clone(), fields: Vec::new(), predeclared: false };
                let id = self.types.add_struct(def);
                let ty = self.types.struct_type(id);
                self.declare_name(name, Symbol::Type(ty));
            }
            ItemKind::Enum { name, enumerators } => self.declare_enum(name, enumerators),
            _ => {}
        }
    }

    fn declare_enum(&mut self, name: &ast::Ident, enumerators: &[(ast::Ident, Option<IntLit>)]) {
        let mut next = 0i128;
        let mut values = Vec::new();
        for (enumerator, value) in enumerators {
            if let Some(value) = value {
                next = i128::from(value.value) * if value.negative { -1 } else { 1 };
            }
            values.push((enumerator, next));
            next += 1;
        }
        let repr = self.enum_repr(&values);
        let listed = values.iter().map(|(name, value)| (name.name.clone(), repr.truncate(*value as u64)));
        let def = EnumDef { name: name.name.clone(), repr, enumerators: listed.collect() };
        let id = self.types.add_enum(def);
        let ty = self.types.intern(TypeKind::Enum(id));
        self.declare_name(name, Symbol::Type(ty));
        for (enumerator, value) in values {
            self.declare_name(enumerator, Symbol::Enumerator(ty, repr.truncate(value as u64)));
        }
    }

    fn enum_repr(&mut self, values: &[(&ast::Ident, i128)]) -> IntType {
        let least = values.iter().map(|(_, value)| *value).min().unwrap_or(0);
        let most = values.iter().map(|(_, value)| *value).max().unwrap_or(0);
        let signed = least < 0;
        let fits = |bits: u32| {
            let (low, high) =
                if signed { (-1i128 << (bits - 1), 1i128 << (bits - 1)) } else { (0, 1i128 << bits) };
            least >= low && most < high
        };
        if !fits(64)
            && let Some((name, _)) = values.iter().find(|(_, value)| *value == most)
        {
            let text = format!("`{}` has a value that does not fit 64 bits", name.name);
            self.report(Diagnostic::error(416, name.span, text));
        }
        IntType { bits: if fits(32) { 32 } else { 64 }, signed }
    }

    /// Aliases may stand in any order: those whose target is not known yet wait for a round in which one was resolved.
    fn declare_aliases(&mut self, file: &ast::File) {
        let mut waiting: Vec<_> = file
            .items
            .iter()
            .filter_map(|item| match &item.kind {
                ItemKind::Alias { name, ty } => Some((name, ty)),
                _ => None,
            })
            .collect();
        while !waiting.is_empty() {
            let names: Vec<_> = waiting.iter().map(|(name, _)| name.name.as_str()).collect();
            let (blocked, ready): (Vec<_>, Vec<_>) = waiting.iter().partition(|(_, ty)| mentions(ty, &names));
            if ready.is_empty() {
                for (name, _) in blocked {
                    let text = format!("type `{}` contains itself", name.name);
                    self.report(Diagnostic::error(419, name.span, text));
                }
                return;
            }
            for (name, ty) in ready {
                let target = self.type_expr(ty, Position::Value);
                self.declare_name(name, Symbol::Type(target));
            }
            waiting = blocked;
        }
    }

    fn fill_struct(&mut self, item: &Item) {
        let ItemKind::Struct { name, fields, .. } = &item.kind else { return };
        let Some(Symbol::Type(ty)) = self.names.own(&name.name) else { return };
        let &TypeKind::Struct(id) = self.types.kind(ty) else { return };
        if !self.types.struct_def(id).fields.is_empty() {
            return;
        }
        let mut filled: Vec<Field> = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        for field in fields {
            if let Some(first) = filled.iter().position(|one| one.name == field.name.name) {
                self.report_duplicate(&field.name, spans[first]);
            }
            if let Some(default) = &field.default {
                self.report(Diagnostic::not_yet(default.span, "the default of a field is"));
            }
            let ty = self.type_expr(&field.ty, Position::Value);
            filled.push(Field { name: field.name.name.clone(), ty });
            spans.push(field.name.span);
        }
        self.types.struct_mut(id).fields = filled;
    }

    fn check_struct_cycles(&mut self, file: &ast::File) {
        for item in &file.items {
            let ItemKind::Struct { name, .. } = &item.kind else { continue };
            let Some(Symbol::Type(ty)) = self.names.own(&name.name) else { continue };
            let &TypeKind::Struct(id) = self.types.kind(ty) else { continue };
            let fields = self.types.struct_def(id).fields.iter().map(|field| field.ty).collect();
            if self.contains(fields, ty) {
                let text = format!("type `{}` contains itself", name.name);
                self.report(Diagnostic::error(419, name.span, text).note("its size would have no end"));
                // Layout must end although the program is refused.
                self.types.struct_mut(id).fields.clear();
            }
        }
    }

    fn contains(&self, mut open: Vec<TypeId>, wanted: TypeId) -> bool {
        let mut seen = std::collections::HashSet::new();
        while let Some(ty) = open.pop() {
            if ty == wanted {
                return true;
            }
            match self.types.kind(ty) {
                TypeKind::Array(element, _) => open.push(*element),
                TypeKind::Struct(id) if seen.insert(*id) => {
                    open.extend(self.types.struct_def(*id).fields.iter().map(|field| field.ty));
                }
                _ => {}
            }
        }
        false
    }

    fn declare_global(&mut self, global: &ast::Global) {
        if let Some(pin) = global.pin {
            self.report(Diagnostic::not_yet(pin, "`pin` is"));
        }
        if let Some(TypeExpr { kind: TypeExprKind::Map { kind, key, value, size }, .. }) = &global.ty {
            self.declare_map(global, kind, (key, value), *size);
            return;
        }
        if let Some(flags) = &global.flags {
            self.report(Diagnostic::error(203, flags.span, "only a map takes @flags"));
        }
        if let Some(TypeExpr { kind: TypeExprKind::Ring(..), span }) = &global.ty {
            self.report(Diagnostic::not_yet(*span, "a ring buffer is"));
            return;
        }
        self.declare_variable(global);
    }

    fn declare_variable(&mut self, global: &ast::Global) {
        let written = global.ty.as_ref().map(|ty| self.type_expr(ty, Position::Value));
        let (ty, init) = self.global_init(global, written);
        if self.types.size(ty) > MAX_OBJECT_BYTES {
            let text = format!("size must be at most {MAX_OBJECT_BYTES} bytes");
            self.report(Diagnostic::error(606, global.name.span, text));
            return;
        }
        let id = self.globals.push(Global {
            name: global.name.name.clone(),
            ty,
            span: global.name.span,
            kernel_only: global.local.is_some(),
            init,
        });
        self.declare_name(&global.name, Symbol::Global(id));
    }

    fn declare_map(
        &mut self,
        global: &ast::Global,
        kind: &ast::Ident,
        (key, value): (&TypeExpr, &TypeExpr),
        size: IntLit,
    ) {
        if let Some(local) = global.local {
            self.report(Diagnostic::error(604, local, "`local` stands before a variable, not before a map"));
        }
        if let Some(init) = &global.init {
            self.report(Diagnostic::error(619, init.span, "a map has no initial value"));
        }
        let key_ty = self.type_expr(key, Position::Value);
        let value_ty = self.type_expr(value, Position::Value);
        let Some(kind) = self.map_kind(&kind.name, kind.span) else { return };
        let max_entries = u32::try_from(size.value).unwrap_or(0);
        if max_entries == 0 {
            self.report(Diagnostic::error(606, size.span, format!("size must be 1 to {}", u32::MAX)));
        }
        self.check_map_types(kind, (key_ty, key.span), (value_ty, value.span));
        let (flags, numa_node) = self.map_flags(global.flags.as_ref(), kind);
        let map = Map {
            name: global.name.name.clone(),
            span: global.name.span,
            kind,
            key: key_ty,
            value: value_ty,
            max_entries,
            flags,
            numa_node,
        };
        let id = self.maps.push(map);
        self.declare_name(&global.name, Symbol::Map(id));
    }

    fn check_map_types(&mut self, kind: MapKind, key: (TypeId, Span), value: (TypeId, Span)) {
        if self.types.is_error(key.0) || self.types.is_error(value.0) {
            return;
        }
        let integer = matches!(self.types.kind(key.0), TypeKind::Int(_) | TypeKind::Enum(_));
        if kind.is_array() && !integer {
            let text =
                format!("the key of `{}` must be an integer, not `{}`", kind.name(), self.types.name(key.0));
            self.report(Diagnostic::error(602, key.1, text));
        }
        let value_limit = if kind.is_per_cpu() { MAX_PER_CPU_VALUE_BYTES } else { MAX_OBJECT_BYTES };
        for ((ty, span), limit) in [(key, MAX_KEY_BYTES), (value, value_limit)] {
            let size = self.types.size(ty);
            if size > limit {
                let text = format!("`{}` has {size} bytes; at most {limit} fit here", self.types.name(ty));
                self.report(Diagnostic::error(602, span, text));
            }
            if size == 0 || !self.sharable(ty) {
                let text = format!("`{}` cannot be shared between the halves", self.types.name(ty));
                self.report(Diagnostic::error(602, span, text));
            }
        }
    }

    /// Whether values of a type may lie in a map or global: no pointers and no handles in them.
    pub(super) fn sharable(&self, ty: TypeId) -> bool {
        match self.types.kind(ty) {
            TypeKind::Array(element, _) => self.sharable(*element),
            TypeKind::Struct(id) => {
                self.types.struct_def(*id).fields.iter().all(|field| self.sharable(field.ty))
            }
            TypeKind::Ptr(_) | TypeKind::Fn(..) | TypeKind::Program | TypeKind::Null | TypeKind::Void => {
                false
            }
            _ => true,
        }
    }

    fn map_flags(&mut self, flags: Option<&ast::MapFlags>, kind: MapKind) -> (u32, u32) {
        let (mut bits, mut node) = (0, 0);
        for (name, number) in flags.into_iter().flat_map(|flags| &flags.flags) {
            let Some(flag) = FLAGS.iter().find(|flag| flag.word == name.name) else {
                let help = near(&name.name, FLAGS.iter().map(|flag| flag.word))
                    .map(|near| format!("a similar flag exists: `{near}`"));
                let text = format!("there is no map flag `{}`", name.name);
                self.report(Diagnostic::error(203, name.span, text).maybe_help(help));
                continue;
            };
            if number.is_some() != flag.numbered {
                let text = if flag.numbered { "needs a number in parentheses" } else { "takes no number" };
                self.report(Diagnostic::error(203, name.span, format!("map flag `{}` {text}", name.name)));
            }
            if !(flag.fits)(kind) {
                let text = format!("`{}` does not take the flag `{}`", kind.name(), name.name);
                self.report(Diagnostic::error(602, name.span, text));
            }
            bits |= flag.bit;
            if let Some(number) = number {
                node = u32::try_from(number.value).unwrap_or(u32::MAX);
            }
        }
        (bits, node)
    }

    fn declare_function(&mut self, function: &ast::Function) -> FuncId {
        let kind = self.attribute_kind(function);
        let (params, ret) = match kind {
            // Its types may be ones that only its kind knows.
            None => (Vec::new(), self.types.common().error),
            Some(_) => (
                function.params.iter().map(|param| self.type_expr(&param.ty, Position::Value)).collect(),
                self.result_type(function),
            ),
        };
        let signature = Signature { params, ret, kind, span: function.name.span };
        self.check_signature(function, &signature);
        let id = self.signatures.push(signature);
        self.declare_name(&function.name, Symbol::Function(id));
        id
    }

    /// `main`, if the file can run at all.
    pub(super) fn check_entries(
        &mut self,
        file: &ast::File,
        functions: &[(FuncId, &ast::Function)],
    ) -> Option<FuncId> {
        let main = functions.iter().find(|(_, function)| function.name.name == "main");
        let kind = |id: &FuncId| self.signatures[*id].kind;
        let plain = functions.iter().find(|(id, _)| kind(id) == Some(FunctionKind::Plain));
        let program = functions.iter().any(|(id, _)| kind(id).is_none_or(FunctionKind::is_program));
        match (main, plain) {
            (Some((id, function)), _) => {
                self.check_main(*id, function);
                Some(*id)
            }
            (None, Some((_, function))) => {
                self.report(
                    Diagnostic::error(
                        307,
                        function.name.span,
                        "a file with userspace functions needs `main`",
                    )
                    .help("add `fn main() -> i32 { ... }`, or mark the function `@helper`"),
                );
                None
            }
            (None, None) if !program => {
                let span = file.items.first().map_or(file.end, |item| item.span);
                self.report(Diagnostic::error(309, span, "nothing to run: no program and no `main`"));
                None
            }
            (None, None) => None,
        }
    }

    fn check_main(&mut self, id: FuncId, function: &ast::Function) {
        let signature = &self.signatures[id];
        let params = signature.params.clone();
        let common = self.types.common();
        let struct_param =
            |ty: &TypeId| matches!(self.types.kind(*ty), TypeKind::Struct(_) | TypeKind::Error);
        let fits = signature.kind == Some(FunctionKind::Plain)
            && (signature.ret == common.i32 || self.types.is_error(signature.ret))
            && params.len() <= 1
            && params.iter().all(struct_param);
        if !fits {
            let text = "main must be `fn main() -> i32` or take one struct";
            self.report(Diagnostic::error(307, function.name.span, text));
            return;
        }
        if let Some(&TypeKind::Struct(def)) = params.first().map(|ty| self.types.kind(*ty)) {
            self.check_options(def, function.params[0].ty.span);
        }
    }

    fn check_options(&mut self, def: crate::types::StructId, span: Span) {
        for field in self.types.struct_def(def).fields.clone() {
            let option = matches!(
                self.types.kind(field.ty),
                TypeKind::Int(_) | TypeKind::Bool | TypeKind::Char | TypeKind::Str(_) | TypeKind::Error
            );
            if !option {
                let name = self.types.name(field.ty);
                self.report(
                    Diagnostic::error(308, span, "this field type cannot be a command-line option")
                        .note(format!("`{}` is of type `{name}`", field.name))
                        .help("use integers, bool, char or str(N)"),
                );
            }
        }
    }

    /// No function of the kernel half may reach itself: the kernel's stack has an end.
    pub(super) fn check_recursion(&mut self, functions: &IndexVec<FuncId, crate::hir::Function>) {
        for (id, function) in functions.iter_enumerated() {
            if function.kind != FunctionKind::Plain && super::flow::reaches(functions, id, id) {
                let text = format!("recursion in the kernel half: `{}` reaches itself", function.name);
                self.report(Diagnostic::error(717, function.span, text));
            }
        }
    }
}

/// Whether a type as written mentions one of these names.
fn mentions(ty: &TypeExpr, names: &[&str]) -> bool {
    match &ty.kind {
        TypeExprKind::Name(name) => names.contains(&name.as_str()),
        TypeExprKind::Str(_) => false,
        TypeExprKind::Array(element, _) | TypeExprKind::Ptr(element) | TypeExprKind::Ring(element, _) => {
            mentions(element, names)
        }
        TypeExprKind::Fn(params, ret) => {
            params.iter().any(|param| mentions(param, names)) || mentions(ret, names)
        }
        TypeExprKind::Map { key, value, .. } => mentions(key, names) || mentions(value, names),
    }
}

//! Impl blocks: tables of functions that the kernel calls (language reference, 4.9).

use std::collections::{BTreeMap, HashMap};

use super::arguments::parameters;
use super::configs::not_literal;
use super::names::Symbol;
use super::prescan::strip;
use super::{Checker, Signature, count_of};
use crate::ast::{self, Attribute, Expr, ExprKind, FieldDecl};
use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    FuncId, FunctionKind, HirFunction, Impl, ImplId, StaticField, StaticLayout, StaticValue, Target,
};
use crate::index::IndexVec;
use crate::kernel_types::{KernelType, OpsMemberKind, Proto, Spelling, StructOps};
use crate::source::Span;
use crate::types::{IntType, StructDef, TypeId, TypeKind};

/// Maximum length of a default name in bytes, without the terminator.
const NAME_BYTES: usize = 15;
/// The structs that 0.1.1 registers on every kernel; the kernel's BTF may have others.
const KNOWN_TABLES: &[&str] = &["tcp_congestion_ops", "bpf_iter_ops", "bpf_struct_ops_test", "sched_ext_ops"];

/// Members that are functions, but which the kernel does not accept as programs.
///
/// Source: net/ipv4/bpf_tcp_ca.c, `unsupported_ops`, v6.12.
const KERNEL_ONLY: &[(&str, &str)] = &[("tcp_congestion_ops", "get_info")];

const U8: IntType = IntType { bits: 8, signed: false };

/// Number of registers that hold arguments of a BPF function.
const MAX_PARAMS: usize = 5;

impl Checker<'_> {
    pub(super) fn declare_impl<'f>(
        &mut self,
        (attributes, name): (&[Attribute], &ast::Ident),
        methods: &'f [ast::AstFunction],
        fields: &[(ast::Ident, Expr)],
        functions: &mut Vec<(FuncId, &'f ast::AstFunction)>,
    ) {
        let ops = self.impl_attribute(attributes, name.span);
        let table = ops.as_ref().and_then(|(ops, span)| self.ops_table(ops, *span));
        let ops = ops.map(|(ops, _)| ops).unwrap_or_default();
        let declared = self.declared_struct(&ops);
        let id = self.impls.push(Impl {
            name: name.name.clone(),
            span: name.span,
            ops,
            methods: Vec::new(),
            entries: BTreeMap::new(),
            fields: Vec::new(),
        });
        self.methods.push(HashMap::new());
        self.declare_name(name, Symbol::Impl(id));
        for method in methods {
            let function = self.declare_method(id, method, table.as_ref(), declared.as_ref());
            functions.push((function, method));
        }
        self.static_fields(id, fields, table.as_ref(), declared.as_ref());
        // If the struct has no declaration, every method may be a member: the kernel decides.
        let is_member = |name: &str| match (&table, &declared) {
            (None, None) => true,
            (table, declared) => {
                table.as_ref().is_some_and(|table| table.member(name).is_some())
                    || declared.as_ref().is_some_and(|def| def.field(name).is_some())
            }
        };
        let methods = self.methods[id].iter().filter(|(name, _)| is_member(name));
        self.impls[id].entries = methods.map(|(name, function)| (*function, name.clone())).collect();
    }

    /// Returns the name in `@struct_ops("name")`.
    fn impl_attribute(&mut self, attributes: &[Attribute], name: Span) -> Option<(String, Span)> {
        let Some((first, others)) = attributes.split_first() else {
            self.report(
                Diagnostic::error(501, name, "an impl block needs `@struct_ops`")
                    .help("write `@struct_ops(\"tcp_congestion_ops\")` before it"),
            );
            return None;
        };
        if let Some(other) = others.first() {
            self.report(Diagnostic::error(502, other.span, "an impl block takes one attribute"));
        }
        if first.name.name != "struct_ops" {
            let text = format!("`@{}` does not stand before an impl block", first.name.name);
            self.report(Diagnostic::error(501, first.span, text).help("write `@struct_ops(\"...\")`"));
            return None;
        }
        match &first.argument {
            Some(argument) if !argument.bytes.is_empty() => {
                Some((String::from_utf8_lossy(&argument.bytes).into_owned(), argument.span))
            }
            _ => {
                self.report(
                    Diagnostic::error(501, first.span, "`@struct_ops` needs the name of a kernel struct")
                        .help("for example `@struct_ops(\"tcp_congestion_ops\")`"),
                );
                None
            }
        }
    }

    fn ops_table(&mut self, ops: &str, span: Span) -> Option<StructOps> {
        let kernel = self.kernel();
        let table = kernel.struct_ops(ops);
        if table.is_none() {
            let why = if kernel.has_btf() { "this kernel has none".to_owned() } else { kernel.no_btf() };
            let warning =
                Diagnostic::warning(806, span, format!("struct `{ops}` could not be checked: {why}"))
                    .note("the load will fail where the kernel has no such struct");
            let near = kernel.near_struct_ops(ops);
            let message = "a similar one exists";
            self.report(
                near.iter()
                    .fold(warning, |warning, name| warning.suggest(span, format!("\"{name}\""), message)),
            );
        }
        table
    }

    /// Reports an impl block of a struct that the kernel does not register.
    pub(super) fn check_registrable(&mut self, block: ImplId, span: Span) {
        let ops = self.impls[block].ops.as_str();
        let known = KNOWN_TABLES.contains(&ops)
            || self.kernel().struct_ops(ops).is_some_and(|table| table.registrable);
        if known || ops.is_empty() {
            return;
        }
        let text = format!("`register` takes an impl block of a known struct_ops, which `{ops}` is not");
        let names = self.kernel().struct_ops_names();
        let declared = self.impls[block].span;
        let mut error = Diagnostic::error(513, span, text).also(declared, "declared here");
        if names.len() <= 10 {
            error = error.note(format!("known are {}", names.join(", ")));
        }
        self.report(error);
    }

    /// Returns the struct of a name as the script or a header declares it.
    fn declared_struct(&self, name: &str) -> Option<StructDef> {
        let Some(Symbol::Type(ty)) = self.names.own(name) else { return None };
        match self.types.kind(ty) {
            TypeKind::Struct(id) => Some(self.types.struct_def(*id).clone()),
            _ => None,
        }
    }

    fn declare_method(
        &mut self,
        id: ImplId,
        method: &ast::AstFunction,
        table: Option<&StructOps>,
        declared: Option<&StructDef>,
    ) -> FuncId {
        let signature = self.signature(method, Some((FunctionKind::Method(id), Target::None)));
        let name = &method.name;
        if self.methods[id].contains_key(&name.name) {
            // Duplicates are reported below; only the first is compared.
        } else if let Some(param) = method.params.get(MAX_PARAMS) {
            let text = format!("a method takes at most {MAX_PARAMS} parameters");
            self.report(Diagnostic::error(515, param.name.span, text));
        } else if KERNEL_ONLY.contains(&(self.impls[id].ops.as_str(), name.name.as_str())) {
            let text = format!("the kernel takes no program as `{}`", name.name);
            self.report(Diagnostic::error(515, name.span, text).help("leave the method out"));
        } else {
            match table.and_then(|table| table.member(&name.name)).map(|member| &member.kind) {
                Some(OpsMemberKind::Function(proto)) => self.compare_method(method, &signature, proto),
                Some(OpsMemberKind::Data(ty)) => {
                    let text = format!("method does not fit the member `{}`", name.name);
                    self.report(
                        Diagnostic::error(515, name.span, text).label(format!("the member is `{ty}`")),
                    );
                }
                None if table.is_none() => self.refuse_pointer_result(method, &signature),
                None => {}
            }
            self.compare_declared(method, &signature, declared);
        }
        let function = self.signatures.push(signature);
        if let Some(first) = self.methods[id].insert(name.name.clone(), function) {
            let first = self.signatures[first].span;
            self.report_duplicate(name, first);
        }
        self.impls[id].methods.push(function);
        function
    }

    /// Compares a method with the member of the kernel's struct.
    fn compare_method(&mut self, method: &ast::AstFunction, signature: &Signature, proto: &Proto) {
        let name = &method.name.name;
        let form =
            format!("fn {name}{}", parameters(&proto.params, &super::arguments::spelling(&proto.result)));
        let text = format!("method does not fit the member `{name}`");
        let help = format!("the kernel's is `{form}`");
        if signature.params.is_empty() && !proto.params.is_empty() {
            let text = format!("method `{name}` takes none of the member's parameters");
            self.report(Diagnostic::warning(515, method.name.span, text).help(help.clone()));
        } else if signature.params.len() != proto.params.len() {
            let label = format!("{} given", count_of(signature.params.len(), "parameter"));
            let span = Self::params_span(method);
            self.report(Diagnostic::error(515, span, text).label(label).help(help));
            return;
        }
        for ((param, ty), real) in method.params.iter().zip(&signature.params).zip(&proto.params) {
            if !self.types.is_error(*ty) && !self.accepts(*ty, &real.ty) {
                let label = format!("this is `{}`, the member's is `{}`", self.types.name(*ty), real.ty);
                self.report(Diagnostic::error(515, param.ty.span, text).label(label).help(help));
                return;
            }
        }
        self.compare_result(method, signature, &proto.result, help);
    }

    fn compare_result(
        &mut self,
        method: &ast::AstFunction,
        signature: &Signature,
        real: &KernelType,
        help: String,
    ) {
        let name = &method.name.name;
        let span = method.ret.as_ref().map_or(method.name.span, |returns| returns.ty.span);
        // Without `->` the script declares no result, so the kernel's may be void.
        let void = method.ret.is_none() || signature.ret == self.types.common().void;
        if self.types.is_error(signature.ret) || (void && *real == KernelType::Void) {
            return;
        }
        if *real == KernelType::Void && self.types.int(signature.ret).is_some() {
            let text = format!("the kernel ignores what `{name}` returns");
            self.report(Diagnostic::warning(515, span, text).help(help));
        } else if void || !self.accepts(signature.ret, real) {
            let text = format!("method does not fit the member `{name}`");
            let label = format!("it returns `{}`, the member `{real}`", self.types.name(signature.ret));
            self.report(Diagnostic::error(515, span, text).label(label).help(help));
        } else {
            self.refuse_pointer_result(method, signature);
        }
    }

    /// Rejects a method that returns a pointer. The kernel accepts a pointer only if it is null or owns an
    /// object of the member's own type, and a script cannot own one. Source: kernel/bpf/verifier.c,
    /// `check_return_code`, v6.18.
    fn refuse_pointer_result(&mut self, method: &ast::AstFunction, signature: &Signature) {
        let TypeKind::Ptr(_) = self.types.kind(signature.ret) else { return };
        let span = method.ret.as_ref().map_or(method.name.span, |returns| returns.ty.span);
        let text = format!("`{}` gives the kernel a pointer", method.name.name);
        self.report(
            Diagnostic::error(515, span, text)
                .note(
                    "the kernel takes only an object that the method owns, such as a packet taken off a \
                       queue",
                )
                .note("a script owns no objects of the kernel"),
        );
    }

    /// Compares a method with the member as the script declares it, where it declares a function.
    fn compare_declared(
        &mut self,
        method: &ast::AstFunction,
        signature: &Signature,
        declared: Option<&StructDef>,
    ) {
        let name = &method.name;
        let Some(declared) = declared else { return };
        let Some(index) = declared.field(&name.name) else { return };
        let ty = declared.fields[index].ty;
        if let TypeKind::Fn(params, ret) = self.types.kind(ty)
            && (*params != signature.params || *ret != signature.ret)
        {
            let text = format!("method does not fit the member `{}`", name.name);
            let help = format!("`{}` declares it as `{}`", declared.name, self.types.name(ty));
            self.report(Diagnostic::error(515, name.span, text).help(help));
        }
    }

    fn static_fields(
        &mut self,
        id: ImplId,
        fields: &[(ast::Ident, Expr)],
        table: Option<&StructOps>,
        declared: Option<&StructDef>,
    ) {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for (name, value) in fields {
            if let Some(first) = seen.insert(&name.name, name.span) {
                self.report(
                    Diagnostic::error(409, name.span, format!("field `{}` given twice", name.name))
                        .also(first, "first given here"),
                );
                continue;
            }
            if let Some(method) = self.methods[id].get(&name.name) {
                let method = self.signatures[*method].span;
                self.report_duplicate(name, method);
                continue;
            }
            let Some(value) = self.static_value(value) else { continue };
            if self.check_static_field(&self.impls[id].ops.clone(), name, &value, table, declared) {
                self.add_static_field(id, name.name.clone(), value, table, declared);
            }
        }
        let named = table.is_some_and(|table| table.member("name").is_some())
            || declared.is_some_and(|declared| declared.field("name").is_some());
        if named && !seen.contains_key("name") && !self.methods[id].contains_key("name") {
            let name = self.impls[id].name.as_bytes();
            let text = StaticValue::Text(name[..name.len().min(NAME_BYTES)].to_vec());
            self.add_static_field(id, "name".to_owned(), text, table, declared);
        }
    }

    fn add_static_field(
        &mut self,
        id: ImplId,
        name: String,
        value: StaticValue,
        table: Option<&StructOps>,
        declared: Option<&StructDef>,
    ) {
        let known = table.and_then(|table| match &table.member(&name)?.kind {
            OpsMemberKind::Function(_) => Some(StaticLayout::Pointer),
            OpsMemberKind::Data(ty) => static_layout(ty),
        });
        let declared = || {
            let field = &declared?.fields[declared?.field(&name)?];
            self.declared_layout(field.ty)
        };
        let layout = known.or_else(declared).unwrap_or_else(|| layout_of_value(&value));
        self.impls[id].fields.push(StaticField { name, value, layout });
    }

    fn declared_layout(&self, ty: TypeId) -> Option<StaticLayout> {
        Some(match *self.types.kind(ty) {
            TypeKind::Ptr(_) | TypeKind::Fn(..) => StaticLayout::Pointer,
            TypeKind::Str(len) => StaticLayout::Array { element: U8, len },
            TypeKind::Array(element, len) => {
                StaticLayout::Array { element: self.types.scalar(element)?, len: u32::try_from(len).ok()? }
            }
            _ => StaticLayout::Number(self.types.scalar(ty)?),
        })
    }

    fn static_value(&mut self, value: &Expr) -> Option<StaticValue> {
        if let Some(span) = not_literal(value) {
            self.report(Diagnostic::error(206, span, "a static field needs a literal"));
            return None;
        }
        match literal(value) {
            Some(value) => Some(value),
            None => {
                self.report(Diagnostic::error(
                    206,
                    value.span,
                    "a static field needs one literal, or an array of numbers",
                ));
                None
            }
        }
    }

    /// Checks that the struct has the member, and that the value fits it.
    fn check_static_field(
        &mut self,
        ops: &str,
        name: &ast::Ident,
        value: &StaticValue,
        table: Option<&StructOps>,
        declared: Option<&StructDef>,
    ) -> bool {
        if name.name == "owner" && *value == StaticValue::Null {
            return true;
        }
        let missing = match (table, declared) {
            (Some(table), _) if table.from_btf => table.member(&name.name).is_none(),
            (_, Some(declared)) => declared.field(&name.name).is_none(),
            _ => false,
        };
        if missing {
            let members =
                table.into_iter().flat_map(|table| &table.members).map(|member| member.name.as_str());
            let fields = declared.into_iter().flat_map(|def| &def.fields).map(|field| field.name.as_str());
            let error = Diagnostic::error(514, name.span, format!("`{ops}` has no member `{}`", name.name))
                .suggest_near(name.span, "member", &name.name, members.chain(fields));
            self.report(error);
            return false;
        }
        let Some(member) = table.and_then(|table| table.member(&name.name)) else { return true };
        if let Some(wanted) = misfit(&member.kind, value) {
            let text = format!("the member `{}` of `{ops}` takes {wanted}", name.name);
            self.report(Diagnostic::error(401, name.span, text));
            return false;
        }
        if let OpsMemberKind::Data(ty) = &member.kind
            && static_layout(ty).is_some_and(|layout| !has_room(layout, value))
        {
            let text = format!("this does not fit the member `{}` of `{ops}`", name.name);
            self.report(Diagnostic::error(401, name.span, text).label(format!("the member is `{ty}`")));
            return false;
        }
        true
    }

    /// Reports methods that neither the kernel nor another method calls.
    pub(super) fn check_unused_methods(&mut self, functions: &IndexVec<FuncId, HirFunction>) {
        for id in self.impls.ids() {
            let Some(table) = self.kernel().struct_ops(&self.impls[id].ops) else { continue };
            let declared = self.declared_struct(&self.impls[id].ops);
            for method in self.impls[id].methods.clone() {
                let function = &functions[method];
                let own_name = function.name.rsplit('.').next().unwrap_or_default();
                let member = table.member(own_name).is_some()
                    || declared.as_ref().is_some_and(|def| def.field(own_name).is_some());
                let called = || self.impls[id].methods.iter().any(|other| calls(&functions[*other], method));
                if !member && !called() {
                    let text = format!("unused method `{own_name}`");
                    let note =
                        format!("it is not a member of `{}`, and no other method calls it", table.name);
                    let warning = Diagnostic::warning(312, function.span, text).note(note);
                    let members = table.members.iter().map(|member| member.name.as_str());
                    let warning = warning.suggest_near(function.span, "member", own_name, members);
                    self.report(warning);
                }
            }
        }
    }

    /// Compares `@struct_ops("name") struct S` with the kernel's struct.
    pub(super) fn check_struct_attributes(
        &mut self,
        attributes: &[Attribute],
        name: &ast::Ident,
        fields: &[FieldDecl],
    ) {
        for attribute in attributes {
            if attribute.name.name != "struct_ops" {
                let text = format!("`@{}` does not stand before a struct", attribute.name.name);
                self.report(Diagnostic::error(501, attribute.span, text));
                continue;
            }
            let Some(argument) = &attribute.argument else {
                let text = "`@struct_ops` without a name has no effect";
                self.report(Diagnostic::warning(501, attribute.span, text));
                continue;
            };
            let ops = String::from_utf8_lossy(&argument.bytes).into_owned();
            self.compare_struct(&ops, argument.span, name, fields);
        }
    }

    fn compare_struct(&mut self, ops: &str, span: Span, name: &ast::Ident, fields: &[FieldDecl]) {
        let kernel = self.kernel();
        if !kernel.has_btf() {
            let text = format!("struct `{ops}` could not be checked: {}", kernel.no_btf());
            self.report(Diagnostic::warning(806, span, text));
            return;
        }
        let Some(table) = kernel.struct_ops(ops) else {
            self.report(Diagnostic::error(514, span, format!("this kernel has no struct `{ops}`")));
            return;
        };
        let missing =
            table.members.iter().find(|member| fields.iter().all(|field| field.name.name != member.name));
        if let Some(missing) = missing {
            let text = format!("`{}` has no member `{}`", name.name, missing.name);
            self.report(Diagnostic::error(514, name.span, text).note(format!("the kernel's `{ops}` has it")));
        }
    }
}

/// The value of a literal.
fn literal(expr: &Expr) -> Option<StaticValue> {
    match &expr.kind {
        ExprKind::Str(bytes) => Some(StaticValue::Text(bytes.clone())),
        ExprKind::Null => Some(StaticValue::Null),
        ExprKind::Array(elements) => {
            elements.iter().map(number).collect::<Option<_>>().map(StaticValue::Numbers)
        }
        _ => number(expr).map(StaticValue::Number),
    }
}

fn number(expr: &Expr) -> Option<i128> {
    match &expr.kind {
        ExprKind::Int(value) => Some(i128::from(*value)),
        ExprKind::Bool(value) => Some(i128::from(*value)),
        ExprKind::Char(value) => Some(i128::from(*value)),
        ExprKind::Unary(_, digits) => number(strip(digits)).map(|value| -value),
        _ => None,
    }
}

/// Returns the layout of a member; none if no literal can initialise it.
fn static_layout(ty: &KernelType) -> Option<StaticLayout> {
    let int = |ty: &KernelType| {
        let (bytes, signed) = ty.scalar().filter(|(bytes, _)| *bytes <= 8)?;
        Some(IntType { bits: u8::try_from(bytes * 8).ok()?, signed })
    };
    Some(match ty {
        KernelType::Enum { .. } => StaticLayout::Enum(int(ty)?),
        KernelType::Array { element, len } => StaticLayout::Array { element: int(element)?, len: *len },
        KernelType::Pointer(_) => StaticLayout::Pointer,
        _ => StaticLayout::Number(int(ty)?),
    })
}

/// Returns the layout of a member without a declaration, derived from its value.
fn layout_of_value(value: &StaticValue) -> StaticLayout {
    let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let u64 = IntType { bits: 64, signed: false };
    match value {
        StaticValue::Number(_) => StaticLayout::Number(u64),
        StaticValue::Text(text) => StaticLayout::Array { element: U8, len: len(text.len() + 1) },
        StaticValue::Numbers(numbers) => StaticLayout::Array { element: u64, len: len(numbers.len()) },
        StaticValue::Null => StaticLayout::Pointer,
    }
}

/// Whether a value fits a member.
fn has_room(layout: StaticLayout, value: &StaticValue) -> bool {
    // A negative number may denote the bits of an unsigned one: `-1` for all.
    let fits = |int: IntType, number: i128| {
        let int = IntType { signed: int.signed || number < 0, ..int };
        int.value(number as u64) == number
    };
    match (layout, value) {
        (StaticLayout::Number(int) | StaticLayout::Enum(int), StaticValue::Number(number)) => {
            fits(int, *number)
        }
        // The terminator needs a byte, too.
        (StaticLayout::Array { len, .. }, StaticValue::Text(text)) => text.len() < len as usize,
        (StaticLayout::Array { element, len }, StaticValue::Numbers(numbers)) => {
            numbers.len() <= len as usize && numbers.iter().all(|number| fits(element, *number))
        }
        _ => true,
    }
}

/// Returns a description of the values that a member accepts, if it does not accept this one.
fn misfit(member: &OpsMemberKind, value: &StaticValue) -> Option<&'static str> {
    let ty = match member {
        OpsMemberKind::Function(_) => return (*value != StaticValue::Null).then_some("a method, or `null`"),
        OpsMemberKind::Data(ty) => ty,
    };
    let text = matches!(ty, KernelType::Array { element, .. }
        if matches!(**element, KernelType::Int { spelling: Spelling::Char, .. }));
    match (ty, value) {
        (KernelType::Array { .. }, StaticValue::Text(_)) if text => None,
        (KernelType::Array { .. }, StaticValue::Numbers(_)) if !text => None,
        (KernelType::Array { .. }, _) if text => Some("a string"),
        (KernelType::Array { .. }, _) => Some("an array"),
        (KernelType::Pointer(_), StaticValue::Null) => None,
        (KernelType::Pointer(_), _) => Some("`null`"),
        (_, StaticValue::Number(_)) if ty.scalar().is_some() => None,
        (_, _) if ty.scalar().is_some() => Some("a number"),
        _ => None,
    }
}

/// Whether a function calls another.
fn calls(function: &HirFunction, wanted: FuncId) -> bool {
    struct Finder {
        wanted: FuncId,
        found: bool,
    }
    impl Visitor for Finder {
        fn function(&mut self, id: FuncId) {
            self.found |= id == self.wanted;
        }
    }
    let mut finder = Finder { wanted, found: false };
    visit::block(&mut finder, &function.body);
    finder.found
}

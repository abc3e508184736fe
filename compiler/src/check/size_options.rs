//! Maps whose size is an option of the script: `var seen : hash<K, V>(args.entries)`. The object has the size of
//! the option's default; userspace sets another one before anything is loaded, and the host judges it like the
//! size of any object.

use super::Checker;
use super::names::Symbol;
use crate::ast::{self, Ident, Size};
use crate::diag::Diagnostic;
use crate::hir::{FuncId, MapKind};
use crate::types::TypeKind;

impl Checker<'_> {
    /// Notes a map whose size is an option, which [`find_size_options`](Self::find_size_options) looks up.
    pub(super) fn note_size_option(&mut self, global: &ast::Global, kind: MapKind, size: Option<&Size>) {
        let Some(size @ Size::Option { .. }) = size else { return };
        if kind.is_array() {
            let text = format!("the size of an `{}` is known when the script is compiled", kind.name());
            self.report(
                Diagnostic::error(606, size.span(), text)
                    .note("both halves check indices against it")
                    .help("write a literal or a constant, or use a `hash`"),
            );
        } else if let Some(Symbol::Map(map)) = self.names.get(&global.name.name) {
            self.sized_by_option.push((map, size.clone()));
        }
    }

    /// Looks up the options of the current unit's maps among the fields of `main`'s parameter.
    pub(super) fn find_size_options(&mut self, main: Option<(FuncId, &ast::AstFunction)>) {
        for (map, size) in std::mem::take(&mut self.sized_by_option) {
            let Size::Option { options, field } = size else { continue };
            if let Some((position, entries)) = self.size_option(main, &options, &field) {
                self.maps[map].size_option = Some(position);
                self.maps[map].max_entries = entries;
            }
        }
    }

    /// Returns the position of an option's field, and its default; `None` if an error was reported.
    fn size_option(
        &mut self,
        main: Option<(FuncId, &ast::AstFunction)>,
        options: &Ident,
        field: &Ident,
    ) -> Option<(usize, u32)> {
        let main = main.filter(|(_, function)| {
            function.params.first().is_some_and(|param| param.name.name == options.name)
        });
        let ty = main.and_then(|(main, _)| self.signatures[main].params.first().copied());
        let Some(&TypeKind::Struct(id)) = ty.map(|ty| self.types.kind(ty)) else {
            let text = format!("`{}` is not the parameter of `main`", options.name);
            self.report(
                Diagnostic::error(204, options.span, text)
                    .note("a size is a literal, a constant of the top level, or an option of the script")
                    .help(
                        "write `fn main(args: Args) -> i32`; a script without `main` has `struct Args` as `args`",
                    ),
            );
            return None;
        };
        let fields = &self.types.struct_def(id).fields;
        let Some(position) = fields.iter().position(|one| one.name == field.name) else {
            let names = fields.iter().map(|one| one.name.as_str());
            let text = format!("no option `{}`", field.name);
            let error = Diagnostic::error(304, field.span, text).suggest_near(
                field.span,
                "option",
                &field.name,
                names,
            );
            self.report(error);
            return None;
        };
        let found = &fields[position];
        if found.ty != self.types.common().u32 {
            let text = format!("the option `{}` must be a `u32`", field.name);
            let label = format!("this is `{}`", self.types.name(found.ty));
            self.report(Diagnostic::error(606, field.span, text).label(label));
            return None;
        }
        let default = found.default.as_deref().and_then(|bytes| bytes.try_into().ok());
        let entries = default.map_or(0, u32::from_le_bytes);
        if entries == 0 {
            self.report(
                Diagnostic::error(606, field.span, format!("the option `{}` has no default", field.name))
                    .note("it is the size of the map where the option is not given")
                    .help(format!("write `{}: u32 = 10240` in its struct", field.name)),
            );
        }
        (entries > 0).then_some((position, entries))
    }
}

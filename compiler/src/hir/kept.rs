//! Lowers `print_map(m)` to a table of a map, and `print_kept()` to a table for each thing that a script keeps
//! and does not read: its shared maps, its shared arrays, and one with the other shared variables.
//!
//! ```text
//! print_kept()
//!     -> a call of a function:
//!        table = new table("calls", ["key", "value"])
//!        for (key, value in calls) { append(table, key, value) }
//!        write(table, sorted by the column "value")
//! ```
//!
//! What a function of userspace names is left to that function, and `local` variables are the kernel half's.

mod columns;
mod stacks;

use std::collections::{BTreeMap, BTreeSet};

use self::stacks::stack_columns;
use super::stacks::Stacks;
use super::statistics::Statistic;
use super::visit::{self, Visitor};
use super::visit_mut::{self, VisitorMut};
use super::{
    BinaryOp, Block, Expr, ExprKind, FuncId, GlobalId, Half, Hir, HirFunction, HistogramScale, Local,
    LocalId, Lvalue, LvalueKind, Map, MapId, MapIteration, MapKind, SharedBuiltin, Stmt, StmtKind,
    UserBuiltin,
};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{ColumnLabel, TypeId, TypeKind};
use columns::{
    Column, Step, array_columns, element, key_columns, labels, statistics_in, value_columns, variable_columns,
};
pub use columns::{headings, is_printed, is_printed_key, is_sorted, value_headings};

/// The functions that print; no name in a script can contain a colon.
const NAME: &str = "ks:print_kept";
const MAP_NAME: &str = "ks:print_map";

/// Rewrites the functions of the userspace half: calls of `print_kept` and `print_map` become calls of
/// functions that print.
pub fn rewrite(hir: &mut Hir) {
    let is_user = |function: &&HirFunction| function.kind.half() == Half::User;
    let mut first = FirstCalls::default();
    let mut named = Named::default();
    for function in hir.functions.iter().filter(is_user) {
        visit::block(&mut first, &function.body);
        visit::block(&mut named, &function.body);
    }
    let mut printers = Printers::default();
    if let Some(span) = first.kept {
        let kept = Kept::of(hir, &named);
        let print = |printer: &mut Printer<'_>| printer.prints(&kept, span);
        printers.kept = Some(function(hir, NAME.to_owned(), span, print));
    }
    for (form, span) in first.maps {
        let MapForm { map, by, has_top, headings } = form;
        let by_column = by.map(|by| format!(":{by}")).unwrap_or_default();
        let top = if has_top { ":top" } else { "" };
        let texts = headings.map(|ty| format!(":{}", hir.types.name(ty))).unwrap_or_default();
        let name = format!("{MAP_NAME}:{}{by_column}{top}{texts}", hir.maps[map].name);
        let mut params = Vec::new();
        let print = |printer: &mut Printer<'_>| {
            let mut block = Vec::new();
            let top = has_top.then(|| printer.local(printer.hir.types.common().u32, span));
            let headings = headings.map(|ty| printer.local(ty, span));
            params.extend([top, headings].into_iter().flatten());
            printer.print_map(map, MapOptions { by, top, headings }, span, &mut block);
            block
        };
        let id = function(hir, name, span, print);
        hir.functions[id].params = params;
        printers.maps.insert(form, id);
    }
    for function in hir.functions.iter_mut().filter(|one| one.kind.half() == Half::User) {
        visit_mut::block(&mut printers, &mut function.body);
    }
}

/// Adds a function that prints.
fn function(
    hir: &mut Hir,
    name: String,
    span: Span,
    prints: impl FnOnce(&mut Printer<'_>) -> Block,
) -> FuncId {
    let mut locals = IndexVec::new();
    let stack_text = hir.types.str_type(stacks::TEXT_BYTES);
    let body = prints(&mut Printer { hir: &*hir, locals: &mut locals, stack_text });
    hir.functions.push(HirFunction::synthetic((name, span), hir.types.common().void, locals, body))
}

/// The source ranges of the first calls.
#[derive(Default)]
struct FirstCalls {
    kept: Option<Span>,
    maps: BTreeMap<MapForm, Span>,
}

/// A map and the form in which it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MapForm {
    map: MapId,
    by: Option<u32>,
    has_top: bool,
    /// The type of the headings of values; none: they are those of the script.
    headings: Option<TypeId>,
}

impl MapForm {
    /// Returns the form of a call of `print_map`.
    fn of(builtin: &UserBuiltin) -> Option<MapForm> {
        match builtin {
            UserBuiltin::PrintMap { map, top, by, headings } => Some(MapForm {
                map: *map,
                by: *by,
                has_top: top.is_some(),
                headings: headings.as_ref().map(|headings| headings.ty),
            }),
            _ => None,
        }
    }
}

/// How the entries of a map are printed.
#[derive(Debug, Clone, Copy, Default)]
struct MapOptions {
    /// The column that they are sorted by; none: the first one of the value.
    by: Option<u32>,
    /// The variable with how many are printed at most.
    top: Option<LocalId>,
    /// The variable with the headings of the first columns of the values.
    headings: Option<LocalId>,
}

impl Visitor for FirstCalls {
    fn expr(&mut self, expr: &Expr) {
        let ExprKind::User(builtin) = &expr.kind else { return };
        if matches!(builtin, UserBuiltin::PrintKept) {
            self.kept.get_or_insert(expr.span);
        } else if let Some(form) = MapForm::of(builtin) {
            self.maps.entry(form).or_insert(expr.span);
        }
    }
}

/// The functions that print, by which calls are replaced.
#[derive(Default)]
struct Printers {
    kept: Option<FuncId>,
    maps: BTreeMap<MapForm, FuncId>,
}

impl VisitorMut for Printers {
    fn expr(&mut self, expr: &mut Expr) {
        let ExprKind::User(builtin) = &expr.kind else { return };
        let func = match builtin {
            UserBuiltin::PrintKept => self.kept,
            builtin => MapForm::of(builtin).and_then(|form| self.maps.get(&form).copied()),
        };
        let Some(func) = func else { return };
        let args = match builtin {
            UserBuiltin::PrintMap { top, headings, .. } => {
                top.iter().chain(headings).map(|argument| (**argument).clone()).collect()
            }
            _ => Vec::new(),
        };
        expr.kind = ExprKind::Call { func, args };
    }
}

/// Maps and variables that userspace names.
#[derive(Default)]
struct Named {
    maps: BTreeSet<MapId>,
    globals: BTreeSet<GlobalId>,
}

impl Visitor for Named {
    fn map(&mut self, map: MapId) {
        self.maps.insert(map);
    }

    fn global(&mut self, global: GlobalId) {
        self.globals.insert(global);
    }
}

/// Maps from which programs remove entries. Those that nothing declares hold what is under way.
struct Removed(BTreeSet<MapId>);

impl Removed {
    fn of(hir: &Hir) -> Removed {
        let mut removed = Removed(BTreeSet::new());
        for function in hir.functions.iter().filter(|one| one.kind.half() == Half::Kernel) {
            visit::block(&mut removed, &function.body);
        }
        removed
    }
}

impl Visitor for Removed {
    fn stmt(&mut self, stmt: &Stmt) {
        if let StmtKind::Remove { map, .. } = stmt.kind {
            self.0.insert(map);
        }
    }
}

/// A variable that is printed in the row of variables.
#[derive(Clone, Copy)]
enum Variable {
    Shared(GlobalId),
    /// One with a value for each CPU, whose sum is printed.
    PerCpu(MapId),
}

/// A variable of that row, with its columns.
struct ShownVariable {
    name: String,
    lvalue: Lvalue,
    columns: Vec<Column>,
}

/// What a script keeps and does not read, in the order of the declarations.
struct Kept {
    maps: Vec<MapId>,
    histograms: Vec<GlobalId>,
    arrays: Vec<GlobalId>,
    others: Vec<Variable>,
}

impl Kept {
    fn of(hir: &Hir, named: &Named) -> Kept {
        let removed = Removed::of(hir);
        let seconds: Vec<MapId> = hir.maps.iter().filter_map(|map| Some(map.double_buffer?.second)).collect();
        let maps = hir.maps.iter_enumerated().filter(|(id, map)| {
            let is_kept = map.kind.is_keyed() && !map.objects && !map.kernel_only && !named.maps.contains(id);
            is_kept
                && !seconds.contains(id)
                && !(hir.implied.contains(id) && removed.0.contains(id))
                && is_printed_key(&hir.types, map.key)
                && (is_printed(&hir.types, map.value) || scale(hir, map.value).is_some())
        });
        let is_in_row = |map: &Map| {
            map.is_variable && element(&hir.types, map.value).is_none() && scale(hir, map.value).is_none()
        };
        let (variables, maps): (Vec<_>, Vec<_>) = maps.partition(|(_, map)| is_in_row(map));
        let maps = maps.into_iter().map(|(id, _)| id).collect();
        let globals = hir.globals.iter_enumerated();
        let globals = globals.filter(|(id, global)| !global.kernel_only && !named.globals.contains(id));
        let (histograms, others): (Vec<_>, Vec<_>) =
            globals.map(|(id, global)| (id, global.ty)).partition(|(_, ty)| scale(hir, *ty).is_some());
        let shown = others.into_iter().filter(|(_, ty)| is_printed(&hir.types, *ty));
        let (arrays, others): (Vec<_>, Vec<_>) =
            shown.partition(|(_, ty)| element(&hir.types, *ty).is_some());
        let ids = |found: Vec<(GlobalId, TypeId)>| -> Vec<GlobalId> {
            found.into_iter().map(|(id, _)| id).collect()
        };
        let others = ids(others).into_iter().map(Variable::Shared);
        let others = others.chain(variables.into_iter().map(|(id, _)| Variable::PerCpu(id))).collect();
        Kept { maps, histograms: ids(histograms), arrays: ids(arrays), others }
    }
}

/// Returns the scale of a type that is a histogram.
fn scale(hir: &Hir, ty: TypeId) -> Option<HistogramScale> {
    match hir.types.kind(ty) {
        TypeKind::Struct(id) => hir.histograms.get(id).copied(),
        _ => None,
    }
}

/// Makes the statements that print.
struct Printer<'a> {
    hir: &'a Hir,
    locals: &'a mut IndexVec<LocalId, Local>,
    /// The type of a text with the functions of a stack.
    stack_text: TypeId,
}

impl Printer<'_> {
    fn prints(&mut self, kept: &Kept, span: Span) -> Block {
        let mut block = Vec::new();
        self.print_variables(&kept.others, span, &mut block);
        for id in &kept.arrays {
            let global = &self.hir.globals[*id];
            let lvalue = Lvalue { kind: LvalueKind::Global(*id), ty: global.ty, span };
            let columns = array_columns(&self.hir.types, global);
            let table = self.table(&global.name, labels([&columns]), span, &mut block);
            let rows = self.elements(table, Vec::new(), &columns, lvalue, span);
            block.push(rows);
            block.push(self.write(table, None, None, span));
        }
        for id in &kept.histograms {
            let global = &self.hir.globals[*id];
            let lvalue = Lvalue { kind: LvalueKind::Global(*id), ty: global.ty, span };
            let handle = self.histograms(&global.name, global.ty, span, &mut block);
            block.push(self.append_histogram(handle, Vec::new(), lvalue, span));
            block.push(self.write_histograms(handle, None, span));
        }
        for id in &kept.maps {
            self.print_map(*id, MapOptions::default(), span, &mut block);
        }
        block
    }

    /// Prints the variables that are not arrays as the columns of one row.
    fn print_variables(&mut self, others: &[Variable], span: Span, block: &mut Block) {
        if others.is_empty() {
            return;
        }
        let variables: Vec<ShownVariable> = others.iter().map(|one| self.shown(*one, span)).collect();
        let shown = variables.iter().flat_map(|one| one.columns.iter().cloned()).collect();
        let part = |one: &ShownVariable, column| self.part(one.lvalue.clone(), column, span);
        let values = variables.iter().flat_map(|one| one.columns.iter().map(move |column| (one, column)));
        let values = values.map(|(one, column)| part(one, column)).collect();
        let table = self.table("", labels([&shown]), span, block);
        block.push(self.append(table, values, span));
        block.push(self.write(table, None, None, span));
        for ShownVariable { name, lvalue, columns } in &variables {
            let Some(overflowed) = self.overflowed(columns, span, block) else { continue };
            block.extend(self.count_overflows(overflowed, lvalue, columns, span));
            block.push(self.report_overflows(overflowed, name, span));
        }
    }

    fn shown(&self, variable: Variable, span: Span) -> ShownVariable {
        let (name, column, ty, kind) = match variable {
            Variable::Shared(id) => {
                let global = &self.hir.globals[id];
                (&global.name, &global.column, global.ty, LvalueKind::Global(id))
            }
            Variable::PerCpu(id) => {
                let (map, ty) = (&self.hir.maps[id], self.hir.types.common().u32);
                let key = Box::new(Expr { kind: ExprKind::Const(0), ty, span });
                (&map.name, &map.column, map.value, LvalueKind::Element { map: id, key })
            }
        };
        let columns = variable_columns(&self.hir.types, name, column.as_ref(), ty);
        ShownVariable { name: name.clone(), lvalue: Lvalue { kind, ty, span }, columns }
    }

    fn print_map(&mut self, id: MapId, options: MapOptions, span: Span, block: &mut Block) {
        let map = &self.hir.maps[id];
        if scale(self.hir, map.value).is_some() {
            return self.print_histograms(id, options.top, span, block);
        }
        let (keys, values) = (key_columns(&self.hir.types, map.key), value_columns(&self.hir.types, map));
        let table = self.table(&map.name, labels([&keys, &values]), span, block);
        block.extend(
            options.headings.into_iter().flat_map(|texts| self.set_headings(table, keys.len(), texts, span)),
        );
        let [key, value] = [map.key, map.value].map(|ty| self.local(ty, span));
        let overflowed = self.overflowed(&values, span, block);
        let shown: Vec<Expr> =
            keys.iter().map(|column| self.part(self.of_local(key, span), column, span)).collect();
        let shown = self.with_stacks(id, &keys, shown, table, block);
        let are_counts = matches!(self.hir.types.kind(map.value), TypeKind::Int(_));
        if shown.iter().any(|part| part.ty == self.stack_text) && are_counts {
            // Stacks of the same functions at other instructions.
            let merge = UserBuiltin::MergeRows {
                table: Box::new(self.load(self.of_local(table, span))),
                keys: keys.len() as u32,
            };
            block.push(self.effect(merge, span));
        }
        let body = if element(&self.hir.types, map.value).is_some() {
            vec![self.elements(table, shown, &values, self.of_local(value, span), span)]
        } else {
            let parts = values.iter().map(|column| self.part(self.of_local(value, span), column, span));
            let row = shown.into_iter().chain(parts).collect();
            let mut body = vec![self.append(table, row, span)];
            if let Some(overflowed) = overflowed {
                let value = self.of_local(value, span);
                body.extend(self.count_overflows(overflowed, &value, &values, span));
            }
            body
        };
        let iteration = MapIteration::Map(id);
        block.push(Stmt { kind: StmtKind::ForEach { key, value, iteration, body }, span });
        let sorted = is_sorted(&self.hir.types, map.value).then_some(options.by.unwrap_or(keys.len() as u32));
        block.push(self.write(table, sorted, options.top, span));
        block.extend(overflowed.map(|overflowed| self.report_overflows(overflowed, &map.name, span)));
    }

    /// Gives the columns of values the headings in an array of texts.
    fn set_headings(&self, table: LocalId, keys: usize, texts: LocalId, span: Span) -> Vec<Stmt> {
        let TypeKind::Array(text, count) = *self.hir.types.kind(self.locals[texts].ty) else {
            unreachable!("headings are an array of texts")
        };
        let set = |at: u64| {
            let base = Box::new(self.of_local(texts, span));
            let index = Box::new(Expr { kind: ExprKind::Const(at), ty: self.hir.types.common().u32, span });
            let element = Lvalue { kind: LvalueKind::Index { base, index }, ty: text, span };
            let set = UserBuiltin::SetHeading {
                table: Box::new(self.load(self.of_local(table, span))),
                column: keys as u32 + at as u32,
                heading: Box::new(self.load(element)),
            };
            self.effect(set, span)
        };
        (0..count).map(set).collect()
    }

    /// Returns the values of a key with the functions of stacks in the place of their numbers, and makes lines of them in the
    /// table.
    fn with_stacks(
        &self,
        id: MapId,
        keys: &[Column],
        values: Vec<Expr>,
        table: LocalId,
        block: &mut Block,
    ) -> Vec<Expr> {
        if self.hir.maps.iter().all(|map| map.kind != MapKind::StackTrace) {
            return values;
        }
        let functions = self.hir.functions.iter_enumerated();
        let kernel = functions.filter(|(_, one)| one.kind.half() == Half::Kernel).map(|(id, _)| id);
        let parts = Stacks::of(self.hir, kernel).key_parts(id);
        let columns = stack_columns(self.hir, self.hir.maps[id].key, keys, &parts);
        let shown = columns.iter().enumerate().map(|(at, column)| {
            let Some(column) = column else { return values[at].clone() };
            let span = values[at].span;
            let table = Box::new(self.load(self.of_local(table, span)));
            block.push(self.effect(UserBuiltin::SetLines { table, column: at as u32 }, span));
            column.text(self.hir, self.stack_text, &values, at)
        });
        shown.collect()
    }

    /// Declares the variable with the number of sums that do not fit; none if the columns show no statistics.
    fn overflowed(&mut self, columns: &[Column], span: Span, block: &mut Block) -> Option<LocalId> {
        if statistics_in(columns).is_empty() {
            return None;
        }
        let local = self.local(self.hir.types.common().u32, span);
        block.push(Stmt { kind: StmtKind::Let { local, init: None }, span });
        Some(local)
    }

    fn count_overflows(
        &self,
        overflowed: LocalId,
        value: &Lvalue,
        columns: &[Column],
        span: Span,
    ) -> Vec<Stmt> {
        let u32 = self.hir.types.common().u32;
        let counted = statistics_in(columns).into_iter().map(|path| {
            let part = self.part_at(value.clone(), &path, span);
            let overflow = Box::new(Statistic::Overflow.of(&self.hir.types, &part));
            let value = Expr { kind: ExprKind::Convert(overflow), ty: u32, span };
            let lvalue = self.of_local(overflowed, span);
            Stmt { kind: StmtKind::Compound { lvalue, op: BinaryOp::Add, value }, span }
        });
        counted.collect()
    }

    /// Prints how many sums do not fit, if there are any.
    fn report_overflows(&self, overflowed: LocalId, name: &str, span: Span) -> Stmt {
        let common = self.hir.types.common();
        let load = || self.load(self.of_local(overflowed, span));
        let cond = Expr { kind: ExprKind::Truth(Box::new(load())), ty: common.bool, span };
        let format = format!("{name}: %u sums do not fit 64 bits, nor do their means");
        let print = SharedBuiltin::Print { format: format.into_bytes(), args: vec![load()] };
        let print = Expr { kind: ExprKind::Shared(print), ty: common.u32, span };
        let then = vec![Stmt { kind: StmtKind::Expr(print), span }];
        Stmt { kind: StmtKind::If { cond, then, otherwise: Vec::new() }, span }
    }

    /// Prints a map of histograms, one for each key.
    fn print_histograms(&mut self, id: MapId, top: Option<LocalId>, span: Span, block: &mut Block) {
        let map = &self.hir.maps[id];
        let handle = self.histograms(&map.name, map.value, span, block);
        let [key, value] = [map.key, map.value].map(|ty| self.local(ty, span));
        let keys = key_columns(&self.hir.types, map.key);
        let keys = keys.iter().map(|column| self.part(self.of_local(key, span), column, span)).collect();
        let body = vec![self.append_histogram(handle, keys, self.of_local(value, span), span)];
        let iteration = MapIteration::Map(id);
        block.push(Stmt { kind: StmtKind::ForEach { key, value, iteration, body }, span });
        block.push(self.write_histograms(handle, top, span));
    }

    fn histograms(&mut self, name: &str, ty: TypeId, span: Span, block: &mut Block) -> LocalId {
        let scale = scale(self.hir, ty).expect("only histograms have a scale");
        self.handle(UserBuiltin::NewHistograms { name: name.to_owned(), scale }, span, block)
    }

    fn append_histogram(&self, handle: LocalId, key: Vec<Expr>, histogram: Lvalue, span: Span) -> Stmt {
        let TypeKind::Struct(id) = self.hir.types.kind(histogram.ty) else {
            unreachable!("a histogram is a struct")
        };
        let field = |field: usize| {
            let ty = self.hir.types.struct_def(*id).fields[field].ty;
            let base = Box::new(histogram.clone());
            Box::new(self.load(Lvalue { kind: LvalueKind::Field { base, field }, ty, span }))
        };
        let histograms = Box::new(self.load(self.of_local(handle, span)));
        let [counts, below_zero, sum] = [0, 1, 2].map(field);
        self.effect(UserBuiltin::AppendHistogram { histograms, key, below_zero, sum, counts }, span)
    }

    fn write_histograms(&self, handle: LocalId, top: Option<LocalId>, span: Span) -> Stmt {
        let histograms = Box::new(self.load(self.of_local(handle, span)));
        let top = top.map(|top| Box::new(self.load(self.of_local(top, span))));
        self.effect(UserBuiltin::WriteHistograms { histograms, top }, span)
    }

    /// Appends a row for each element of an array that is not zero, with these values before it.
    fn elements(
        &mut self,
        table: LocalId,
        before: Vec<Expr>,
        columns: &[Column],
        array: Lvalue,
        span: Span,
    ) -> Stmt {
        let u32 = self.hir.types.common().u32;
        let ty = element(&self.hir.types, array.ty).expect("only arrays have elements");
        let [index, value] = [u32, ty].map(|ty| self.local(ty, span));
        let mut row = before;
        row.push(self.load(self.of_local(index, span)));
        row.extend(columns[1..].iter().map(|column| self.part(self.of_local(value, span), column, span)));
        let append = self.append(table, row, span);
        let body = match self.hir.types.kind(ty) {
            TypeKind::Int(_) => {
                let value = Box::new(self.load(self.of_local(value, span)));
                let cond = Expr { kind: ExprKind::Truth(value), ty: self.hir.types.common().bool, span };
                let kind = StmtKind::If { cond, then: vec![append], otherwise: Vec::new() };
                vec![Stmt { kind, span }]
            }
            _ => vec![append],
        };
        let iteration = MapIteration::Array(array);
        Stmt { kind: StmtKind::ForEach { key: index, value, iteration, body }, span }
    }

    fn local(&mut self, ty: TypeId, span: Span) -> LocalId {
        self.locals.push(Local::hidden(ty, span))
    }

    fn of_local(&self, local: LocalId, span: Span) -> Lvalue {
        Lvalue { kind: LvalueKind::Local(local), ty: self.locals[local].ty, span }
    }

    fn load(&self, lvalue: Lvalue) -> Expr {
        let (ty, span) = (lvalue.ty, lvalue.span);
        Expr { kind: ExprKind::Load(lvalue), ty, span }
    }

    /// Returns the part of a value that a column shows.
    fn part(&self, whole: Lvalue, column: &Column, span: Span) -> Expr {
        let part = self.part_at(whole, &column.path, span);
        match column.statistic {
            Some(statistic) => statistic.of(&self.hir.types, &part),
            None => {
                debug_assert_eq!(part.ty, column.ty, "a column shows a part of its type");
                self.load(part)
            }
        }
    }

    fn part_at(&self, whole: Lvalue, path: &[Step], span: Span) -> Lvalue {
        let mut lvalue = whole;
        let types = &self.hir.types;
        for step in path {
            let (kind, ty) = (types.kind(lvalue.ty), lvalue.ty);
            let base = Box::new(lvalue);
            lvalue = match (*step, kind) {
                (Step::Field(field), TypeKind::Struct(id)) => {
                    let ty = types.struct_def(*id).fields[field].ty;
                    Lvalue { kind: LvalueKind::Field { base, field }, ty, span }
                }
                (Step::Element(at), TypeKind::Array(element, _)) => {
                    let index = Box::new(Expr { kind: ExprKind::Const(at), ty: types.common().u32, span });
                    Lvalue { kind: LvalueKind::Index { base, index }, ty: *element, span }
                }
                _ => unreachable!("a path has the steps of the type {ty:?}"),
            };
        }
        lvalue
    }

    fn table(&mut self, title: &str, columns: Vec<ColumnLabel>, span: Span, block: &mut Block) -> LocalId {
        self.handle(UserBuiltin::NewTable { title: title.to_owned(), columns }, span, block)
    }

    /// Stores the handle that a builtin returns in a variable.
    fn handle(&mut self, new: UserBuiltin, span: Span, block: &mut Block) -> LocalId {
        let u32 = self.hir.types.common().u32;
        let local = self.local(u32, span);
        let init = Some(Expr { kind: ExprKind::User(new), ty: u32, span });
        block.push(Stmt { kind: StmtKind::Let { local, init }, span });
        local
    }

    fn append(&self, table: LocalId, row: Vec<Expr>, span: Span) -> Stmt {
        let table = Box::new(self.load(self.of_local(table, span)));
        self.effect(UserBuiltin::AppendRow { table, row }, span)
    }

    fn write(&self, table: LocalId, sorted: Option<u32>, top: Option<LocalId>, span: Span) -> Stmt {
        let table = Box::new(self.load(self.of_local(table, span)));
        let top = top.map(|top| Box::new(self.load(self.of_local(top, span))));
        self.effect(UserBuiltin::WriteTable { table, sorted, top }, span)
    }

    fn effect(&self, builtin: UserBuiltin, span: Span) -> Stmt {
        let ty = self.hir.types.common().void;
        Stmt { kind: StmtKind::Expr(Expr { kind: ExprKind::User(builtin), ty, span }), span }
    }
}

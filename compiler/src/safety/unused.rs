//! KS0312: declarations that are never used. A name that starts with `_` is declared as unused.

use std::collections::{BTreeMap, BTreeSet};

use super::{Program, locals};
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    CatchPattern, ConfigId, CounterId, Expr, ExprKind, FuncId, FunctionKind, GlobalId, Hir, HirFunction,
    LocalId, Lvalue, LvalueKind, MapId, RingId, Stmt, StmtKind,
};
use crate::source::Span;

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    for function in program.hir.functions.iter() {
        variables(function, diagnostics);
    }
    functions(program, diagnostics);
    shared(program.hir, diagnostics);
}

/// Whether a name may be unused: it starts with `_`, or other files may use it.
fn exempt(name: &str) -> bool {
    name.starts_with('_') || name.contains('.')
}

fn warning(span: Span, what: &str, name: &str) -> Diagnostic {
    Diagnostic::warning(312, span, format!("unused {what} `{name}`"))
}

/// Reports functions that nothing reaches. Functions of modules are for the files that import them.
fn functions(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let hir = program.hir;
    let handlers: BTreeSet<FuncId> = hir.rings.iter().filter_map(|ring| ring.default_handler).collect();
    let needed = hir.functions.iter_enumerated().filter(|(id, function)| {
        let entered =
            !matches!(function.kind, FunctionKind::Plain | FunctionKind::Helper | FunctionKind::Private);
        entered || hir.main == Some(*id) || handlers.contains(id) || exempt(&function.name)
    });
    let mut reached = BTreeSet::new();
    let mut open: Vec<FuncId> = needed.map(|(id, _)| id).collect();
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            let mut mentioned = Mentioned::default();
            visit::block(&mut mentioned, &hir.functions[id].body);
            open.extend(mentioned.functions);
        }
    }
    for (_, function) in hir.functions.iter_enumerated().filter(|(id, _)| !reached.contains(id)) {
        diagnostics
            .report(warning(function.span, "function", &function.name).label("nothing that runs gets here"));
    }
}

/// Reports maps, globals and the like that no function mentions.
fn shared(hir: &Hir, diagnostics: &mut Diagnostics) {
    let mut used = Mentioned::default();
    hir.functions.iter().for_each(|function| visit::block(&mut used, &function.body));
    for counter in hir.counters.iter() {
        visit::expr(&mut used, &counter.options);
        used.counters.extend(counter.leader);
    }
    let maps =
        hir.maps.iter_enumerated().map(|(id, one)| ("map", &one.name, one.span, used.maps.contains(&id)));
    let rings = hir.rings.iter_enumerated();
    let rings = rings.map(|(id, one)| ("ring buffer", &one.name, one.span, used.rings.contains(&id)));
    let globals = hir.globals.iter_enumerated();
    let globals =
        globals.map(|(id, one)| ("global variable", &one.name, one.span, used.globals.contains(&id)));
    let configs = hir.configs.iter_enumerated();
    let configs = configs.map(|(id, one)| ("config", &one.name, one.span, used.configs.contains(&id)));
    let counters = hir.counters.iter_enumerated();
    let counters = counters.map(|(id, one)| ("counter", &one.name, one.span, used.counters.contains(&id)));
    let all = maps.chain(rings).chain(globals).chain(configs).chain(counters);
    for (what, name, span, used) in all {
        if !used && !exempt(name) {
            diagnostics.report(warning(span, what, name));
        }
    }
}

#[derive(Default)]
struct Mentioned {
    functions: Vec<FuncId>,
    maps: BTreeSet<MapId>,
    rings: BTreeSet<RingId>,
    globals: BTreeSet<GlobalId>,
    configs: BTreeSet<ConfigId>,
    counters: BTreeSet<CounterId>,
}

impl Visitor for Mentioned {
    fn function(&mut self, id: FuncId) {
        self.functions.push(id);
    }
    fn map(&mut self, id: MapId) {
        self.maps.insert(id);
    }
    fn ring(&mut self, id: RingId) {
        self.rings.insert(id);
    }
    fn global(&mut self, id: GlobalId) {
        self.globals.insert(id);
    }
    fn config(&mut self, id: ConfigId) {
        self.configs.insert(id);
    }
    fn counter(&mut self, id: CounterId) {
        self.counters.insert(id);
    }
}

/// Reports variables that are never read.
fn variables(function: &HirFunction, diagnostics: &mut Diagnostics) {
    let mut uses = Uses {
        function,
        declared: BTreeSet::new(),
        copies: BTreeSet::new(),
        tests: BTreeSet::new(),
        carriers: BTreeMap::new(),
        mentions: BTreeMap::new(),
        writes: BTreeMap::new(),
    };
    visit::block(&mut uses, &function.body);
    for local in uses.declared.union(&uses.copies) {
        let writes = uses.writes.get(local).copied().unwrap_or(0);
        let is_copy = uses.copies.contains(local);
        let is_tested = uses.tests.contains(local) && (writes == 0 || !is_copy)
            || uses.carriers.get(local).is_some_and(|carrier| uses.tests.contains(carrier));
        let is_read = uses.mentions.get(local).copied().unwrap_or(0) > writes || is_tested;
        let Local { name, span } = named(function, *local);
        if is_read || exempt(name) || (writes == 0 && !uses.declared.contains(local)) {
            continue;
        }
        let unread =
            || Diagnostic::warning(312, span, format!("unused variable `{name}`: assigned and never read"));
        diagnostics.report(match writes {
            0 => {
                warning(span, "variable", name).suggest(span, format!("_{name}"), "say that this is intended")
            }
            _ if is_copy => unread().help(format!(
                "`{name}` is a copy of what is in the map: assign to the entry itself, as in `map[key] += 1`"
            )),
            _ => unread(),
        });
    }
}

struct Local<'a> {
    name: &'a str,
    span: Span,
}

fn named(function: &HirFunction, local: LocalId) -> Local<'_> {
    let local = &function.locals[local];
    Local { name: &local.name, span: local.span }
}

/// The variable whose value an expression is, converted or not.
fn copied(expr: &Expr) -> Option<LocalId> {
    match &expr.kind {
        ExprKind::Convert(from) => copied(from),
        ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => Some(*local),
        _ => None,
    }
}

struct Uses<'a> {
    function: &'a HirFunction,
    /// Variables declared in the body; loop variables, parameters and the named result may be unused.
    declared: BTreeSet<LocalId>,
    /// Variables with the value of an entry; loop variables too.
    copies: BTreeSet<LocalId>,
    /// Variables of which the presence bit is used.
    tests: BTreeSet<LocalId>,
    /// Variables of which another one has the presence bit.
    carriers: BTreeMap<LocalId, LocalId>,
    /// Number of uses as an lvalue.
    mentions: BTreeMap<LocalId, u32>,
    /// Number of uses that only set it or a part of it.
    writes: BTreeMap<LocalId, u32>,
}

impl Visitor for Uses<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            // The declaration of the named result precedes the body and has no `var`.
            StmtKind::Let { local, init: None } if self.function.locals[*local].span == stmt.span => {}
            StmtKind::Let { local, init } => {
                self.declared.insert(*local);
                let carrier =
                    init.as_ref().and_then(copied).filter(|from| self.function.locals[*from].binding);
                self.carriers.extend(carrier.map(|carrier| (*local, carrier)));
            }
            StmtKind::Take { local, .. } => {
                self.declared.insert(*local);
            }
            StmtKind::Bind { local, .. } => {
                self.declared.insert(*local);
                self.copies.insert(*local);
            }
            StmtKind::ForEach { value, .. } => {
                self.copies.insert(*value);
            }
            StmtKind::Try { catches, .. } => {
                self.declared.extend(catches.iter().filter_map(|catch| match catch.pattern {
                    CatchPattern::Bind(local) => Some(local),
                    _ => None,
                }));
            }
            StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } => {
                // A part of a bound variable is a part of the map entry: setting it has an effect.
                if let Some(local) = locals::root(lvalue)
                    && (matches!(lvalue.kind, LvalueKind::Local(_))
                        || !(self.function.locals[local].binding || self.copies.contains(&local)))
                {
                    *self.writes.entry(local).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let LvalueKind::Local(local) = lvalue.kind {
            *self.mentions.entry(local).or_default() += 1;
        }
    }

    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Bound(local) = expr.kind {
            self.tests.insert(local);
        }
    }
}

//! Construction of the plugin's manifest from the tree.

use std::collections::BTreeMap;

use ks_wit::event::{EVENTS, HARDWARE, HW_CACHE, SOFTWARE};
use ks_wit::manifest::{
    Config, ConfigField, Event, FORMAT, Global, Manifest, Map, Program, Source, StructOps, Test,
};
use sha2::{Digest, Sha256};

use crate::builtins::perf::options;
use crate::hir::stacks::Stacks;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    EventSpec, Expr, ExprKind, FuncId, FunctionKind, Hir, LocalId, Stmt, StmtKind, UnaryOp, UserBuiltin,
};
use crate::source::{FileId, SourceMap};
use crate::split::Split;
use crate::types::TypeKind;

/// Builds the manifest of a program. `main_file` is the file that the user named.
pub fn build(hir: &Hir, split: &Split, sources: &SourceMap, main_file: FileId) -> Manifest {
    let file = sources.file(main_file);
    Manifest {
        format: FORMAT,
        compiler: concat!("ks ", env!("CARGO_PKG_VERSION")).to_owned(),
        project: hir.project.clone(),
        source: Source { file: base_name(file.name()).to_owned(), sha256: sha256(file.text()) },
        programs: programs(hir, split),
        struct_ops: split.impls.iter().map(|id| struct_ops(&hir.impls[*id])).collect(),
        maps: maps(hir, split),
        globals: split.shared_globals(hir).iter().map(|id| global(hir, &hir.globals[*id])).collect(),
        events: events(hir, split, sources),
        tests: hir.tests.iter().map(|id| test(&hir.functions[*id], sources)).collect(),
        configs: hir.configs.iter().map(|one| config(hir, one)).collect(),
    }
}

fn test(function: &crate::hir::HirFunction, sources: &SourceMap) -> Test {
    let (_, line, _) = sources.position(function.span);
    Test { name: function.name.clone(), line }
}

fn programs(hir: &Hir, split: &Split) -> Vec<Program> {
    let functions = split.kernel.iter().map(|id| &hir.functions[*id]);
    let kind = |kind| match kind {
        FunctionKind::Program(kind) => Some(kind.name()),
        _ => None,
    };
    let attached = attached(hir, split);
    let program = |function: &crate::hir::HirFunction| {
        let targets = attached.as_ref().and_then(|all| all.get(&function.name).cloned().flatten());
        Some(Program { name: function.name.clone(), kind: kind(function.kind)?.to_owned(), targets })
    };
    functions.filter_map(program).collect()
}

/// Returns the constant targets of each attached program; none for a program if one of its targets is known only
/// at run time. None at all if the program of an `attach` is known only at run time.
fn attached(hir: &Hir, split: &Split) -> Option<AttachedTargets> {
    let mut found = Some(AttachedTargets::new());
    for id in &split.user {
        let body = &hir.functions[*id].body;
        let constants = Constants::of(hir, body);
        visit::block(&mut Targets { constants: &constants, found: &mut found }, body);
    }
    found.map(|mut found| {
        for function in split.kernel.iter().map(|id| &hir.functions[*id]) {
            found.entry(function.name.clone()).or_insert_with(|| Some(Vec::new()));
        }
        found
    })
}

/// Constant targets by the name of the program.
type AttachedTargets = BTreeMap<String, Option<Vec<String>>>;

struct Targets<'a> {
    constants: &'a Constants<'a>,
    found: &'a mut Option<AttachedTargets>,
}

impl Visitor for Targets<'_> {
    fn expr(&mut self, expr: &Expr) {
        let ExprKind::User(UserBuiltin::AttachTarget { program, target, .. }) = &expr.kind else { return };
        let Some(found) = self.found else { return };
        let Some(id) = self.constants.program(program) else {
            *self.found = None;
            return;
        };
        let name = &self.constants.hir.functions[id].name;
        let targets = found.entry(name.clone()).or_insert_with(|| Some(Vec::new()));
        match (targets.as_mut(), self.constants.text(target)) {
            (Some(targets), Some(text)) => targets.push(text),
            _ => *targets = None,
        }
    }
}

fn struct_ops(block: &crate::hir::Impl) -> StructOps {
    let methods = block.entries.values().cloned().collect();
    StructOps { name: block.name.clone(), ops: block.ops.clone(), methods }
}

fn maps(hir: &Hir, split: &Split) -> Vec<Map> {
    let stacks = Stacks::of(hir, split.kernel.iter().copied());
    let map = |id, map: &crate::hir::Map| Map {
        name: map.name.clone(),
        kind: match map.outer {
            Some(outer) => format!("{} of {}", outer.kind.name(), map.kind.name()),
            None => map.kind.name().to_owned(),
        },
        key: match map.nested_keys(&hir.types) {
            Some((outer, inner)) => format!("{}, {}", hir.types.name(outer), hir.types.name(inner)),
            None => hir.types.name(map.key),
        },
        value: hir.types.name(map.value),
        max_entries: map.max_entries.saturating_mul(map.outer.map_or(1, |outer| outer.max_entries)),
        // Of two maps that are exchanged none has all stacks.
        key_parts: if hir.maps[id].double_buffer.is_none() { stacks.key_parts(id) } else { Vec::new() },
    };
    split.maps.iter().map(|id| map(*id, &hir.maps[*id])).collect()
}

fn global(hir: &Hir, global: &crate::hir::Global) -> Global {
    Global { name: global.name.clone(), ty: hir.types.name(global.ty) }
}

fn config(hir: &Hir, config: &crate::hir::Config) -> Config {
    let TypeKind::Struct(id) = *hir.types.kind(config.ty) else { panic!("a config block is a struct") };
    let field = |(position, field): (usize, &crate::types::Field)| ConfigField {
        name: field.name.clone(),
        ty: hir.types.name(field.ty),
        offset: hir.types.field_offset(id, position) as u32,
        docs: field.docs.clone(),
    };
    let fields = hir.types.struct_def(id).fields.iter().enumerate().map(field).collect();
    Config { name: config.name.clone(), fields }
}

fn events(hir: &Hir, split: &Split, sources: &SourceMap) -> Vec<Event> {
    let mut found = Vec::new();
    for id in &split.user {
        let body = &hir.functions[*id].body;
        let constants = Constants::of(hir, body);
        visit::block(&mut Attaches { constants: &constants, sources, found: &mut found }, body);
    }
    found
}

/// Locals of one function that are assigned only by their declaration.
struct Constants<'a> {
    hir: &'a Hir,
    locals: Vec<(LocalId, Option<Expr>)>,
}

impl<'a> Constants<'a> {
    fn of(hir: &'a Hir, body: &crate::hir::Block) -> Constants<'a> {
        let mut constants = Constants { hir, locals: Vec::new() };
        visit::block(&mut constants, body);
        constants
    }

    /// Returns the initialiser of a constant local; else the expression itself.
    fn resolve<'e>(&'e self, expr: &'e Expr) -> &'e Expr {
        let ExprKind::Load(lvalue) = &expr.kind else { return expr };
        let crate::hir::LvalueKind::Local(id) = lvalue.kind else { return expr };
        let mut set = self.locals.iter().filter(|(local, _)| *local == id);
        match (set.next(), set.next()) {
            (Some((_, Some(init))), None) => init,
            _ => expr,
        }
    }

    fn number(&self, expr: &Expr) -> Option<i128> {
        let expr = self.resolve(expr);
        let int = self.hir.types.scalar(expr.ty)?;
        match &expr.kind {
            ExprKind::Const(bits) => Some(int.value(*bits)),
            ExprKind::Convert(operand) => self.number(operand).map(|value| int.value(value as u64)),
            ExprKind::Unary(UnaryOp::Neg, operand) => {
                self.number(operand).map(|value| int.value((-value) as u64))
            }
            _ => None,
        }
    }

    fn text(&self, expr: &Expr) -> Option<String> {
        match &self.resolve(expr).kind {
            ExprKind::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
            ExprKind::Convert(operand) => self.text(operand),
            _ => None,
        }
    }

    fn program(&self, handle: &Expr) -> Option<FuncId> {
        match &self.resolve(handle).kind {
            ExprKind::User(UserBuiltin::Load { program, .. }) => Some(*program),
            _ => None,
        }
    }
}

impl Visitor for Constants<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { local, init } => self.locals.push((*local, init.clone())),
            StmtKind::Bind { local, .. } | StmtKind::For { local, .. } => self.locals.push((*local, None)),
            StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } => {
                self.locals.extend(base_local(lvalue).map(|local| (local, None)));
            }
            _ => {}
        }
    }
}

/// Returns the local that an lvalue is, or is a part of.
fn base_local(lvalue: &crate::hir::Lvalue) -> Option<LocalId> {
    use crate::hir::LvalueKind;
    match &lvalue.kind {
        LvalueKind::Local(id) => Some(*id),
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => base_local(base),
        _ => None,
    }
}

struct Attaches<'a> {
    constants: &'a Constants<'a>,
    sources: &'a SourceMap,
    found: &'a mut Vec<Event>,
}

impl Visitor for Attaches<'_> {
    fn expr(&mut self, expr: &Expr) {
        let ExprKind::User(UserBuiltin::Attach { program, options, .. }) = &expr.kind else { return };
        let field = |position: usize| match &self.constants.resolve(options).kind {
            ExprKind::Struct(fields) => fields.get(position),
            _ => None,
        };
        let option = |position: usize| self.constants.number(field(position)?);
        let (event, family) = field(options::EVENT).map_or((None, None), |event| self.event(event));
        let every_cpu = option(options::EVERY_CPU).is_some_and(|value| value != 0);
        let cpu = option(options::CPU).filter(|_| !every_cpu);
        let program = program.as_deref().and_then(|handle| self.constants.program(handle));
        let (_, line, _) = self.sources.position(expr.span);
        self.found.push(Event {
            event,
            family: family.map(str::to_owned),
            scope: self.scope(&field).map(str::to_owned),
            pid: option(options::PID).and_then(|value| i32::try_from(value).ok()),
            cpu: cpu.and_then(|value| i32::try_from(value).ok()),
            every_cpu,
            program: program.map(|id| self.constants.hir.functions[id].name.clone()),
            line,
        });
    }
}

impl Attaches<'_> {
    /// Returns name and family of an event as policies spell them, as far as they are constant.
    fn event(&self, event: &Expr) -> (Option<String>, Option<&'static str>) {
        let event = self.constants.resolve(event);
        if let ExprKind::Event(spec) = &event.kind {
            return match &**spec {
                EventSpec::Raw { .. } | EventSpec::Named(_) => (None, None),
                EventSpec::Tracepoint(name) => (Some(name.clone()), Some("tracepoint")),
                EventSpec::Breakpoint { .. } => (None, Some("breakpoint")),
                // The family of a PMU depends on the machine.
                EventSpec::Pmu(name) => (Some(name.clone()), None),
                EventSpec::Kprobe(function) => (Some(format!("kprobe:{function}")), Some("kprobe")),
                EventSpec::Uprobe(location) => (Some(format!("uprobe:{location}")), Some("uprobe")),
            };
        }
        let packed = self.constants.number(event).and_then(|value| u64::try_from(value).ok());
        let family = packed.and_then(|packed| match u32::try_from(packed >> 32).ok()? {
            HARDWARE => Some("hardware"),
            SOFTWARE => Some("software"),
            HW_CACHE => Some("cache"),
            _ => None,
        });
        let event = packed.and_then(|packed| EVENTS.iter().find(|event| event.packed() == packed));
        (event.map(|event| event.name.to_owned()), family)
    }

    /// Returns whose events are counted, if the options are constant.
    fn scope<'e>(&self, field: &impl Fn(usize) -> Option<&'e Expr>) -> Option<&'static str> {
        let number = |position| self.constants.number(field(position)?);
        let text = |position| self.constants.text(field(position)?);
        let command = number(options::COMMAND)? != 0;
        let (process, cgroup) = (text(options::PROCESS)?, text(options::CGROUP)?);
        Some(match number(options::PID)? {
            0 => "own",
            _ if command => "command",
            _ if !process.is_empty() => "process",
            _ if !cgroup.is_empty() => "cgroup",
            -1 => "all",
            _ => "task",
        })
    }
}

fn sha256(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

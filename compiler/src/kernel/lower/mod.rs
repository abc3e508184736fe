//! Lowers the typed tree to MIR, one function at a time.
//!
//! In: a tree without errors. Out: MIR that keeps the rules of `mir::verify`, or a diagnostic for a construct
//! that no kernel program can have. This stage emits every check that the kernel's verifier requires (bounds,
//! null, initialised stack), with the language's outcome of a failed check: a read is 0, a write does
//! nothing.
//!
//! - Scalar locals are variables of the builder; strings, arrays and structs are stack slots, reserved for
//!   the block that declares them. A struct or array that may be bound to a map entry also has a pointer: to
//!   the entry or to the slot.
//! - A helper takes strings, arrays and structs by the address of a copy in the caller's frame, and returns
//!   them through an address that the caller passes first.
//! - A loop whose end the verifier could not see otherwise runs under an iterator of the kernel (`loops`).
//! - A helper that may throw, or end the program because a loop reached its limit, reports it in a status
//!   word (`errors`).

mod activation;
mod aggregate;
mod arithmetic;
mod call;
mod context;
mod counter;
mod defer;
mod errors;
mod expr;
mod external;
mod histogram;
mod inline;
mod kernel_memory;
mod linear;
mod lock;
mod loops;
mod lvalue;
mod map;
mod map_iteration;
mod matching;
mod memory;
mod path;
mod pointer;
pub(super) mod print;
mod program;
mod queue;
mod raise;
mod ring;
mod sink;
mod specialize;
mod stmt;
mod storage;
mod strings;
mod tail;
mod text;
mod values;

pub use pointer::{MAX_HELD, held_pointers};

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::machine::Machine;
use super::mir::builder::{Builder, Variable};
use super::mir::{self, FunctionOrigin, Origin, Type, Value};
use super::scratch::callees;
use crate::bpf::{changes_packet, helper_number, needs_stack};
use crate::builtins::context_members::ContextStruct;
use crate::defect;
use crate::diag::Diagnostic;
use crate::hir::{
    DoubleBuffer, ExternId, FuncId, FunctionKind, Hir, HirFunction, LocalId, Map, MapId, MapKind,
    ProgramKind, Target,
};
use crate::index::{Id, IndexVec};
use crate::source::Span;
use crate::split::Split;
use crate::types::{IntType, TypeId, TypeKind, Types};
use activation::{Activation, Exit, Outside};
use errors::Status;
use memory::Base;
use pointer::{PointerHome, Pointers, SeenKinds};
use ring::Records;
use specialize::{CallDecisions, Shared, Specialization};

/// The result of lowering: a diagnostic ends the lowering of its function.
type Lower<T> = Result<T, Box<Diagnostic>>;

const U64: IntType = IntType { bits: 64, signed: false };

/// The diagnostic for a tree that the front end should have refused: a bug of this compiler and no fault of
/// the script.
fn impossible<T>(span: Span, what: &str) -> Lower<T> {
    Err(Box::new(Diagnostic::mistake(span, format!("the kernel half was to have {what}"))))
}

/// Lowers the kernel half. In the functions of `small`, locals that are numbers are in memory.
///
/// # Errors
/// Reports one diagnostic for each function that has a construct no kernel program can have.
pub fn lower(
    hir: &Hir,
    split: &Split,
    machine: Machine,
    small: &BTreeSet<FuncId>,
) -> Result<mir::Program, Vec<Diagnostic>> {
    let inlined = inline::inlined(hir, split);
    let program = Context {
        shared: specialize::shared(hir, split, machine.inlining, |id| inlined.contains(&id)),
        specializations: RefCell::default(),
        hir,
        machine,
        small,
        faulting: loops::faulting_functions(hir, split),
        with_defers: defer::rewritten(hir, split),
        inlined,
        values: values::of(hir, split),
        arrays: tail::arrays(hir, split),
        prints: print::table(hir, split, None).1,
        needs_objects: needs_objects(hir, split),
        double_buffers: double_buffers(hir, split),
    };
    let mut output = Output::default();
    for id in split.kernel.iter().filter(|id| program.is_function(**id)) {
        output.lower(&program, Wanted::Function(*id));
    }
    let Output { functions, fault_results, errors, .. } = output;
    if !errors.is_empty() {
        return Err(errors);
    }
    let packet_changers = externs(hir, |helper| helper.is_some_and(changes_packet));
    let changes_packets = !packet_changers.is_empty() || functions.iter().any(linear::linearizes_packet);
    let next_id = FuncId::new(hir.functions.len() + program.specializations.borrow().len());
    Ok(mir::Program {
        fault_results,
        loops: mir::Loops { called: machine.calls_loops(), ..mir::Loops::default() },
        arrays: program.arrays.clone(),
        packet_changers,
        changes_packets,
        need_stack: externs(hir, |helper| helper.is_none_or(needs_stack)),
        given_pointers: returning_pointers(hir),
        context_has_pointers: hir.functions.iter().any(has_pointers_in_context),
        sleeping: sleeping(&program, split),
        keys: key_sizes(hir),
        ..mir::Program::of(functions, next_id)
    })
}

/// The bytes of the keys of maps; 0 for local storage.
fn key_sizes(hir: &Hir) -> BTreeMap<MapId, u32> {
    let bytes = |map: &Map| if map.kind.is_storage() { 0 } else { hir.types.size(map.key) };
    let sizes = hir.maps.iter_enumerated().map(|(id, map)| (id, u32::try_from(bytes(map))));
    sizes.filter_map(|(id, bytes)| Some((id, bytes.ok()?))).collect()
}

/// The programs that the kernel lets sleep, which are probes of user programs, and what they may use then. A program of
/// an array is of the kind of all others in it.
fn sleeping(context: &Context<'_>, split: &Split) -> mir::Sleeping {
    let hir = context.hir;
    let is_entered_by_others = |id: &FuncId| context.arrays.iter().flatten().any(|one| one == id);
    let may = |id: &&FuncId| {
        let function = &hir.functions[**id];
        let is_probe = matches!(function.kind, FunctionKind::Program(_));
        is_probe && matches!(function.target, Target::User { .. }) && !is_entered_by_others(id)
    };
    // Of two maps that userspace exchanges one is complete when no run of a program that began before is left: the
    // kernel does not wait for those that sleep.
    let is_allowed = |map: &Map| {
        use MapKind::{Array, Hash, LruHash, LruPercpuHash, PercpuArray, PercpuHash, TaskStorage};
        let kinds = [Hash, LruHash, Array, PercpuHash, PercpuArray, LruPercpuHash, TaskStorage];
        kinds.contains(&map.kind) && map.flags == 0 && map.outer.is_none() && map.double_buffer.is_none()
    };
    let programs = split.kernel.iter().filter(may).filter(|_| context.machine.lets_probes_sleep());
    let current_task = helper_number("bpf_get_current_task_btf");
    mir::Sleeping {
        programs: programs.copied().collect(),
        not_with_maps: split.maps.iter().filter(|map| !is_allowed(&hir.maps[**map])).copied().collect(),
        with_externs: externs(hir, |helper| helper.is_some() && helper == current_task),
    }
}

/// The maps of programs that userspace exchanges.
fn double_buffers(hir: &Hir, split: &Split) -> Vec<(MapId, DoubleBuffer)> {
    let buffers = split.maps.iter().filter_map(|map| Some((*map, hir.maps[*map].double_buffer?)));
    buffers.filter(|(_, buffer)| split.kernel_globals.contains(&buffer.active)).collect()
}

/// The kernel functions named by the script that satisfy a predicate. It gets the number of a helper, `None`
/// for a kfunc.
fn externs(hir: &Hir, is: impl Fn(Option<u32>) -> bool) -> BTreeSet<ExternId> {
    hir.externs.iter_enumerated().filter(|(_, one)| is(one.helper)).map(|(id, _)| id).collect()
}

/// The kernel functions named by the script that return a pointer.
fn returning_pointers(hir: &Hir) -> BTreeSet<ExternId> {
    let is_pointer = |ret| matches!(hir.types.kind(ret), TypeKind::Ptr(_));
    hir.externs.iter_enumerated().filter(|(_, one)| is_pointer(one.ret)).map(|(id, _)| id).collect()
}

/// Whether the context of a function has pointers to kernel structs: the parameters of a traced function, or
/// a socket.
fn has_pointers_in_context(function: &HirFunction) -> bool {
    match function.kind {
        FunctionKind::Method(_) => true,
        FunctionKind::Program(kind) => kind.row().has_object_pointers,
        _ => false,
    }
}

/// Whether a map or a function of the kernel takes pointers to kernel structs that are no numbers.
fn needs_objects(hir: &Hir, split: &Split) -> bool {
    let is_struct = |ty: &TypeId| match hir.types.kind(*ty) {
        TypeKind::Ptr(to) => hir.types.kernel_struct(*to).is_some(),
        _ => false,
    };
    let mut called = hir.externs.iter().flat_map(|function| &function.params);
    split.maps.iter().any(|map| hir.maps[*map].kind.is_storage()) || called.any(is_struct)
}

/// The contexts that the verifier also accepts as arguments of global functions. Source: kernel/bpf/btf.c,
/// `btf_is_prog_ctx_type`, v6.12.
const CONTEXTS: &[&str] = &["bpf_perf_event_data", "xdp_md", "__sk_buff", "bpf_sock_addr"];

/// The struct of a function's context, if it is one of [`CONTEXTS`].
fn context_of(hir: &Hir, function: &HirFunction) -> Option<&'static str> {
    let mut types = function.params.iter().map(|param| function.locals[*param].ty);
    let context = types.find(|ty| hir.types.is_context_pointer(*ty))?;
    let TypeKind::Ptr(to) = hir.types.kind(context) else { return None };
    let TypeKind::Struct(id) = hir.types.kind(*to) else { return None };
    passable_context(&hir.types.struct_def(*id).name)
}

fn passable_context(name: &str) -> Option<&'static str> {
    CONTEXTS.iter().copied().find(|one| *one == name)
}

/// A function to be lowered.
#[derive(Clone)]
enum Wanted {
    Function(FuncId),
    Specialization(Rc<Specialization>),
}

impl Wanted {
    /// The function of the script.
    fn source(&self) -> FuncId {
        match self {
            Wanted::Function(id) => *id,
            Wanted::Specialization(one) => one.helper,
        }
    }

    /// The function in MIR.
    fn id(&self) -> FuncId {
        match self {
            Wanted::Function(id) => *id,
            Wanted::Specialization(one) => one.id,
        }
    }
}

/// The functions that were lowered, each after those that it calls.
#[derive(Default)]
struct Output {
    functions: Vec<mir::MirFunction>,
    /// The results of those programs among them that end by a fault.
    fault_results: BTreeMap<FuncId, u64>,
    errors: Vec<Diagnostic>,
    /// These, and those that they call and that call them.
    begun: BTreeSet<FuncId>,
}

impl Output {
    /// Lowers a function that is not there yet, and before it those that it calls.
    fn lower(&mut self, program: &Context<'_>, wanted: Wanted) {
        if !self.begun.insert(wanted.id()) {
            return;
        }
        defect::at(program.hir.functions[wanted.source()].span);
        match Lowerer::function(program, &wanted) {
            Ok(Lowered { function, fault_result }) => {
                for id in callees(&function) {
                    match program.specialization(id) {
                        Some(one) => self.lower(program, Wanted::Specialization(one)),
                        None => self.lower(program, Wanted::Function(id)),
                    }
                }
                if function.is_program {
                    self.fault_results.insert(function.id, fault_result);
                }
                self.functions.push(function);
            }
            // Other callers of a specialization meet its error again.
            Err(diagnostic) if self.errors.contains(&diagnostic) => {}
            Err(diagnostic) => self.errors.push(*diagnostic),
        }
    }
}

/// A lowered function, and its result if it ends by a fault.
struct Lowered {
    function: mir::MirFunction,
    fault_result: u64,
}

/// Facts about the whole program.
struct Context<'a> {
    hir: &'a Hir,
    machine: Machine,
    /// The functions in which locals that are numbers are in memory.
    small: &'a BTreeSet<FuncId>,
    /// Functions in which a loop may reach its limit, which ends the program.
    faulting: BTreeSet<FuncId>,
    /// Functions that defer calls, as [`defer::rewritten`] returns them.
    with_defers: BTreeMap<FuncId, HirFunction>,
    /// Functions that are inlined into their callers. Methods among them may also be programs.
    inlined: BTreeSet<FuncId>,
    /// Those that are specialized instead, where that can be done.
    shared: BTreeMap<FuncId, Shared>,
    /// The specializations that calls asked for so far.
    specializations: RefCell<Vec<Rc<Specialization>>>,
    /// Functions that are used as values, with their types.
    values: BTreeSet<(TypeId, FuncId)>,
    /// The targets of tail calls, grouped by the program array that holds them.
    arrays: Vec<Vec<FuncId>>,
    /// The `print` sites of the kernel half.
    prints: print::Sites,
    /// Whether pointers to kernel structs are used where the verifier has to track them: as keys of local
    /// storage, and as arguments of functions of the kernel.
    needs_objects: bool,
    /// The maps of programs that userspace exchanges.
    double_buffers: Vec<(MapId, DoubleBuffer)>,
}

impl<'a> Context<'a> {
    /// The function as it is lowered: rewritten if it defers calls.
    fn function(&'a self, id: FuncId) -> &'a HirFunction {
        self.with_defers.get(&id).unwrap_or(&self.hir.functions[id])
    }

    /// Whether a function of the kernel half is one in MIR, too: methods that are inlined may also be programs.
    fn is_function(&self, id: FuncId) -> bool {
        self.hir.is_entry(id) || !self.inlined.contains(&id)
    }

    /// The specialization that is this function in MIR.
    fn specialization(&self, id: FuncId) -> Option<Rc<Specialization>> {
        self.specializations.borrow().iter().find(|one| one.id == id).map(Rc::clone)
    }
}

/// The home of a local.
#[derive(Clone, Copy)]
enum Home {
    /// A scalar in a variable.
    Scalar(Variable),
    /// The only value of a scalar that is set once.
    Fixed(Value),
    /// A pointer into memory.
    Pointer(PointerHome),
    /// Memory: a slot, or the pointee of a parameter.
    Memory(Base),
    /// An entry of a map, or private memory.
    Alias(Alias),
}

/// The home of a struct or array that may be bound to an entry of a map.
#[derive(Clone, Copy)]
struct Alias {
    /// The address of the value.
    pointer: Variable,
    /// The entry, or null where the value is in private memory.
    entry: Variable,
    /// The private memory, used while unbound.
    own: Base,
}

/// The home of a declared local, with its presence bit.
#[derive(Clone, Copy)]
struct LocalHome {
    home: Home,
    /// The presence bit, if the local is a binding.
    present: Option<Variable>,
}

/// Facts about a MIR function that are known only after all of it was lowered once.
#[derive(Default, PartialEq, Eq)]
struct FunctionFacts {
    kinds: SeenKinds,
    scopes: ring::Scopes,
    early: ring::Early,
}

struct Lowerer<'a> {
    program: &'a Context<'a>,
    hir: &'a Hir,
    /// The function whose statements are being lowered.
    active: Activation<'a>,
    /// Whether locals that are numbers are in memory, those of inlined functions too.
    keeps_locals: bool,
    /// What the MIR function is a specialization of.
    specialization: Option<Rc<Specialization>>,
    /// Which calls share a specialization.
    decisions: Rc<RefCell<CallDecisions>>,
    builder: Builder,
    loops: Vec<loops::EnclosingLoop>,
    status: Status,
    pointers: Pointers,
    records: Records,
    /// The null pointer, one constant for the whole function.
    null: Value,
    /// The program's context, for tail calls.
    entry_context: Option<Value>,
    /// The context that the MIR function was passed.
    given_context: Option<Value>,
    /// Which of two maps that userspace exchanges this run uses, by the first map.
    active_buffers: BTreeMap<MapId, Value>,
    /// The kind of program that the MIR function is; `None` if it is none.
    kind: Option<ProgramKind>,
    /// The context that the MIR function was passed, if its members are known.
    context: Option<(Value, &'static ContextStruct)>,
}

impl<'a> Lowerer<'a> {
    fn function(program: &'a Context<'a>, wanted: &Wanted) -> Lower<Lowered> {
        let mut known = FunctionFacts::default();
        let decisions = Rc::new(RefCell::new(CallDecisions::default()));
        loop {
            let before = decisions.borrow().inlined();
            let lowered = Self::with_known(program, wanted, &known, &decisions);
            if decisions.borrow().inlined() > before {
                // The facts are about other calls, pointers and records by now.
                decisions.borrow_mut().start_again();
                known = FunctionFacts::default();
                continue;
            }
            let (function, found) = lowered?;
            if found == known {
                return Ok(function);
            }
            known = found;
        }
    }

    fn with_known(
        program: &'a Context<'a>,
        wanted: &Wanted,
        known: &FunctionFacts,
        decisions: &Rc<RefCell<CallDecisions>>,
    ) -> Lower<(Lowered, FunctionFacts)> {
        let id = wanted.source();
        let specialization = match wanted {
            Wanted::Function(_) => None,
            Wanted::Specialization(one) => Some(Rc::clone(one)),
        };
        let source = program.function(id);
        let is_program = program.hir.is_entry(id);
        let ret = program.hir.types.scalar(source.ret).map_or(Type::I32, int_type);
        let mut builder = Builder::new(mir::MirFunction {
            id: wanted.id(),
            origin: match wanted {
                Wanted::Function(_) => FunctionOrigin::Script,
                Wanted::Specialization(one) => FunctionOrigin::Specialization(one.helper),
            },
            name: specialization.as_ref().map_or(&source.name, |one| &one.name).clone(),
            span: source.span,
            is_program,
            is_called: !is_program || matches!(source.target, Target::Period { .. }),
            returns_bool: is_program && Self::program_kind(source.kind) == Some(ProgramKind::Cgroup),
            missing_first: false,
            context: specialization
                .as_ref()
                .and_then(|one| passable_context(one.context?.name))
                .or_else(|| context_of(program.hir, source)),
            params: Vec::new(),
            ret,
            values: IndexVec::new(),
            blocks: IndexVec::new(),
            slots: IndexVec::new(),
            slot_bytes: 0,
        });
        builder.set_divides_signed(program.machine.divides_signed());
        let null = builder.constant(Type::Ptr(Origin::MemoryOrNull), 0);
        let keeps_locals = program.small.contains(&wanted.id());
        let outside = Outside { loops: 0, scope: 1 };
        let mut lowerer = Lowerer {
            program,
            hir: program.hir,
            active: Activation::new(program.hir, source, id, Exit::Return, outside, keeps_locals),
            keeps_locals,
            specialization,
            decisions: Rc::clone(decisions),
            builder,
            loops: Vec::new(),
            status: Status::None,
            pointers: Pointers::new(known.kinds.clone()),
            records: Records::new(known.scopes.clone()),
            null,
            kind: Self::program_kind(source.kind),
            entry_context: None,
            given_context: None,
            active_buffers: BTreeMap::new(),
            context: None,
        };
        lowerer.parameters(id)?;
        lowerer.linearize_packet(id)?;
        lowerer.load_active_buffers();
        lowerer.start_records(&known.early);
        lowerer.whole_body()?;
        let fault_result = lowerer.fault_result();
        let function = lowerer.builder.finish();
        let early = lowerer.records.early(&known.early);
        let found = FunctionFacts { kinds: lowerer.pointers.found, scopes: lowerer.records.found, early };
        Ok((Lowered { function, fault_result }, found))
    }

    fn types(&self) -> &'a Types {
        &self.hir.types
    }

    /// The integer type of a scalar; an error if kernel code cannot compute with the type.
    fn int(&self, ty: TypeId, span: Span) -> Lower<IntType> {
        match self.types().kind(ty) {
            TypeKind::Int(_) | TypeKind::Enum(_) | TypeKind::Bool | TypeKind::Char | TypeKind::Fn(..) => {
                self.types().scalar(ty).map_or_else(|| impossible(span, "this type"), Ok)
            }
            TypeKind::Ptr(_) if self.is_kernel_pointer(ty) => Ok(U64),
            _ => impossible(span, &format!("a number of type `{}`", self.types().name(ty))),
        }
    }

    /// Whether values of the type are held in registers.
    fn is_scalar(&self, ty: TypeId) -> bool {
        self.types().scalar(ty).is_some() || *self.types().kind(ty) == TypeKind::Void
    }

    /// The type of a scalar's values in MIR.
    fn scalar_type(&self, ty: TypeId, span: Span) -> Lower<Type> {
        if self.is_context(ty) {
            return Ok(Type::Ptr(Origin::Context));
        }
        Ok(int_type(self.int(ty, span)?))
    }

    fn is_context(&self, ty: TypeId) -> bool {
        self.types().is_context_pointer(ty)
    }

    /// The size of a type in bytes, which must fit the frame and BPF's offsets.
    fn size(&self, ty: TypeId, span: Span) -> Lower<u32> {
        u32::try_from(self.types().size(ty)).or_else(|_| impossible(span, "a value of this size"))
    }

    /// Assigns a home to a local where it is declared, if it has none yet.
    fn declare(&mut self, id: LocalId) -> Lower<LocalHome> {
        if let Some(home) = self.active.locals[id] {
            return Ok(home);
        }
        let local = &self.active.source.locals[id];
        let home = if self.is_pointer(local.ty) {
            self.pointer_home(id)?
        } else if self.is_function(local.ty) && self.active.fixed.contains(&id) {
            Home::Fixed(self.builder.constant(Type::I64, 0))
        } else if self.is_scalar(local.ty) && !self.active.exposed.contains(&id) {
            let ty = self.scalar_type(local.ty, local.span)?;
            Home::Scalar(self.builder.variable(ty))
        } else {
            let size = self.size(local.ty, local.span)?;
            let (ty, span) = (local.ty, local.span);
            let slot = self.local_slot(id, size);
            let home = self.memory_home(id, Base::Slot(slot));
            if let Home::Memory(_) = home {
                let active = &self.active;
                let is_kept = active.escaping.contains(&id) && !active.exposed.contains(&id);
                let scope = if is_kept { active.scope } else { self.records.depth };
                self.hold(slot, ty, scope, span)?;
            }
            home
        };
        Ok(self.set_home(id, home))
    }

    fn memory_home(&mut self, id: LocalId, own: Base) -> Home {
        let local = &self.active.source.locals[id];
        let is_copied = self.is_scalar(local.ty) || matches!(self.types().kind(local.ty), TypeKind::Str(_));
        if local.binding && !is_copied {
            let pointer = self.builder.variable(Type::Ptr(Origin::Memory));
            let entry = self.builder.variable(Type::Ptr(Origin::MemoryOrNull));
            Home::Alias(Alias { pointer, entry, own })
        } else {
            Home::Memory(own)
        }
    }

    fn set_home(&mut self, id: LocalId, home: Home) -> LocalHome {
        let local = &self.active.source.locals[id];
        let present = local.may_be_null().then(|| self.builder.variable(Type::I32));
        let home = LocalHome { home, present };
        self.active.locals[id] = Some(home);
        home
    }

    /// Sets the presence bit of a local, if it has one.
    fn set_present(&mut self, home: LocalHome, present: bool) {
        if let Some(variable) = home.present {
            let bit = self.builder.constant(Type::I32, u64::from(present));
            self.builder.set(variable, bit);
        }
    }
}

/// The MIR type of an integer.
fn int_type(int: IntType) -> Type {
    if int.bits == 64 { Type::I64 } else { Type::I32 }
}

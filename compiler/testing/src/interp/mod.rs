//! MIR interpreter, the reference for passes.
//!
//! In: a program, a function's arguments, the [`Environment`] and results of kernel helpers ([`Answers`]).
//! Out: the result and the final contents of global variables and maps ([`Outcome`]), or why execution cannot
//! continue. It is stricter than a machine: accesses out of bounds, reads of uninitialised bytes, pointers
//! read as numbers and broken promises ([`Op::Below`], [`Op::NonNull`]) are faults. It makes no difference
//! between CPUs. It has no kernel objects: operations on them and on values that belong to them are not
//! supported.

mod arithmetic;
mod kernel;
mod kinds;
mod map_iters;
mod memory;

use std::collections::{BTreeMap, BTreeSet};

pub use kernel::{Answers, Plain};
use ks_wit::object;
use memory::Memory;
pub use memory::{Datum, Pointer};

use arithmetic::{compare, compute, narrow, swap_bytes};
use ks_compiler::hir::{ConfigId, FuncId, GlobalId, Hir, MapId, MapKind};
use ks_compiler::index::{Id, IndexVec};
use ks_compiler::kernel::mir::{
    Block, Callee, Count, Helper, Lost, MirFunction, Op, Program, Size, Target, TaskId, Terminator, Type,
    Value,
};

/// Why a run ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpError {
    /// It exceeded the limit of steps.
    #[error("out of fuel")]
    Fuel,
    /// It did something that no function may do; the text says what.
    #[error("{0}")]
    Fault(String),
}

fn fault<T>(what: impl Into<String>) -> Result<T, InterpError> {
    Err(InterpError::Fault(what.into()))
}

/// Type and sizes of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapShape {
    /// The map's type; in arrays every index below the number of entries exists.
    pub kind: MapKind,
    /// Size of a key in bytes.
    pub key: usize,
    /// Size of a value in bytes.
    pub value: usize,
    /// Limit on the number of entries.
    pub entries: u64,
}

/// The environment of a function at its start.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Initial contents of global variables.
    pub globals: Vec<Vec<u8>>,
    /// Contents of config blocks.
    pub configs: Vec<Vec<u8>>,
    /// The maps, all empty.
    pub maps: Vec<MapShape>,
    /// Limit on the iterations of an iterator; lower than the kernel's, so that an endless loop ends soon.
    pub max_iterations: i32,
}

impl Environment {
    /// Creates the environment that a script declares.
    pub fn of(hir: &Hir, max_iterations: i32) -> Environment {
        // Programs only look into an outer map, and it is empty: its inner maps are userspace's.
        let map = |map: &ks_compiler::hir::Map| {
            let key = map.nested_keys(&hir.types).map_or(map.key, |(outer, _)| outer);
            let (kind, entries) = map.outer.map_or((map.kind, map.max_entries), |outer| (outer.kind, 0));
            MapShape {
                kind,
                key: if kind.is_array() { 4 } else { hir.types.size(key) as usize },
                value: map.stored_value(&hir.types).bytes as usize,
                entries: u64::from(entries),
            }
        };
        let content = |global: &ks_compiler::hir::Global| {
            let mut bytes = global.init.clone();
            bytes.resize(hir.types.size(global.ty) as usize, 0);
            bytes
        };
        Environment {
            globals: hir.globals.iter().map(content).collect(),
            configs: hir.configs.iter().map(|config| config.init.clone()).collect(),
            maps: hir.maps.iter().map(map).collect(),
            max_iterations,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The returned number; 32 bits, if the function's type has that many.
    pub result: u64,
    /// Final contents of global variables.
    pub globals: Vec<Vec<u8>>,
    /// Entries of maps, by map and key; of arrays, in which every entry exists, only non-zero ones.
    pub entries: BTreeMap<(MapId, Vec<u8>), Vec<u8>>,
}

/// Runs a function; `args` are numbers, `None` stands for a context of zeros.
///
/// # Errors
/// See [`InterpError`].
pub fn run(
    program: &Program,
    function: FuncId,
    args: &[Option<u64>],
    environment: &Environment,
    answers: &mut dyn Answers,
    fuel: u64,
) -> Result<Outcome, InterpError> {
    let mut memory = Memory::default();
    let globals: Vec<_> = environment.globals.iter().map(|content| memory.alloc_with(content)).collect();
    let configs: Vec<_> = environment.configs.iter().map(|content| memory.alloc_with(content)).collect();
    let [faults, cuts] = [(); 2].map(|()| memory.alloc_with(&[0; 8]));
    let mut machine = Machine {
        program,
        environment,
        answers,
        memory,
        globals,
        configs,
        faults,
        cuts,
        namespace: None,
        entries: BTreeMap::new(),
        num_iters: BTreeMap::new(),
        map_iters: BTreeMap::new(),
        records: BTreeSet::new(),
        lost: BTreeMap::new(),
        slots: BTreeMap::new(),
        fuel,
    };
    let context = machine.memory.alloc_with(&[0; kernel::CONTEXT_BYTES]);
    let args = args.iter().map(|arg| arg.map_or(Datum::Pointer(context), Datum::Bits)).collect();
    let Datum::Bits(result) = machine.function(function, args)? else {
        return fault("the result is a pointer");
    };
    if !machine.records.is_empty() {
        return fault("a record of a ring buffer is kept");
    }
    let globals = machine.globals.iter().map(|start| machine.memory.content(*start)).collect();
    let is_zero = |content: &[u8]| content.iter().all(|byte| *byte == 0);
    let entries = machine.entries.iter();
    let mut entries: BTreeMap<_, _> =
        entries.map(|(name, start)| (name.clone(), machine.memory.content(*start))).collect();
    entries.retain(|(map, _), content| !(environment.maps[map.index()].kind.is_array() && is_zero(content)));
    Ok(Outcome { result, globals, entries })
}

struct Machine<'a> {
    program: &'a Program,
    environment: &'a Environment,
    answers: &'a mut dyn Answers,
    memory: Memory,
    globals: Vec<Pointer>,
    configs: Vec<Pointer>,
    /// The counter of faults.
    faults: Pointer,
    /// The counter of loops that reached their limit.
    cuts: Pointer,
    /// The PID namespace that the host reports.
    namespace: Option<Pointer>,
    entries: BTreeMap<(MapId, Vec<u8>), Pointer>,
    /// Running iterators over numbers, by their address: the next number and the end.
    num_iters: BTreeMap<Pointer, (i32, i32)>,
    /// Running map iterations, by their address.
    map_iters: BTreeMap<Pointer, map_iters::ActiveMapIter>,
    /// Ring buffer records that are reserved and neither submitted nor discarded.
    records: BTreeSet<Pointer>,
    /// Counters of lost records and output.
    lost: BTreeMap<Lost, Pointer>,
    /// Scratch slots, by their numbers.
    slots: BTreeMap<Vec<u8>, Pointer>,
    fuel: u64,
}

/// A running function.
struct CallFrame<'a> {
    function: &'a MirFunction,
    values: IndexVec<Value, Option<Datum>>,
    slots: Pointer,
}

impl CallFrame<'_> {
    fn get(&self, value: Value) -> Result<Datum, InterpError> {
        self.values[value].map_or_else(|| fault(format!("v{} has no value", value.index())), Ok)
    }

    fn bits(&self, value: Value) -> Result<u64, InterpError> {
        self.get(value)?.bits().map_or_else(|| fault("a pointer is used as a number"), Ok)
    }

    fn pointer(&self, value: Value) -> Result<Pointer, InterpError> {
        match self.get(value)? {
            Datum::Pointer(pointer) => Ok(pointer),
            other => fault(format!("access through {other:?}")),
        }
    }

    fn width(&self, value: Value) -> u32 {
        self.function.values[value].bits().unwrap_or(64)
    }
}

impl<'a> Machine<'a> {
    pub(super) fn function(&mut self, id: FuncId, args: Vec<Datum>) -> Result<Datum, InterpError> {
        let Some(function) = self.program.functions.iter().find(|one| one.id == id) else {
            return fault("a call to no function");
        };
        let slots = self.memory.reserve(function.slot_bytes as usize);
        let values = function.values.iter().map(|_| None).collect();
        let mut frame = CallFrame { function, values, slots };
        let result = self.blocks(&mut frame, args);
        self.memory.release(slots);
        result
    }

    fn blocks(&mut self, frame: &mut CallFrame<'a>, args: Vec<Datum>) -> Result<Datum, InterpError> {
        let mut block = frame.function.entry();
        let mut args = args;
        loop {
            let data = &frame.function.blocks[block];
            for (param, arg) in data.params.iter().zip(&args) {
                frame.values[*param] = Some(*arg);
            }
            for inst in &data.insts {
                self.spend()?;
                let datum = self.op(frame, &inst.op, inst.result)?;
                if let Some(result) = inst.result {
                    let Some(datum) = datum else { return fault("an instruction without its result") };
                    frame.values[result] = Some(datum);
                }
            }
            self.spend()?;
            let target = match &data.term {
                Terminator::Return(value) => return frame.get(*value),
                Terminator::Jump(target) => target,
                Terminator::Branch { cond, then, otherwise } => {
                    if frame.bits(*cond)? != 0 {
                        then
                    } else {
                        otherwise
                    }
                }
            };
            (block, args) = follow(frame, target)?;
        }
    }

    fn spend(&mut self) -> Result<(), InterpError> {
        self.fuel = self.fuel.checked_sub(1).ok_or(InterpError::Fuel)?;
        Ok(())
    }

    fn op(
        &mut self,
        frame: &CallFrame<'a>,
        op: &Op,
        result: Option<Value>,
    ) -> Result<Option<Datum>, InterpError> {
        let bits = match op {
            Op::Const(bits) => *bits,
            Op::Binary(op, a, b) => compute(*op, frame.width(*a), frame.bits(*a)?, frame.bits(*b)?)?,
            Op::Compare(condition, a, b) => {
                u64::from(compare(*condition, frame.width(*a), frame.bits(*a)?, frame.bits(*b)?))
            }
            Op::IsNull(value) => u64::from(frame.get(*value)? == Datum::Bits(0)),
            Op::Narrow { value, bits, signed } => narrow(frame.bits(*value)?, *bits, *signed),
            Op::SignExtend(value) => frame.bits(*value)? as u32 as i32 as i64 as u64,
            Op::ZeroExtend(value) => frame.bits(*value)?,
            Op::Truncate(value) => frame.bits(*value)? & 0xffff_ffff,
            Op::Below { value, bound } => match frame.bits(*value)? {
                bits if bits < *bound => bits,
                bits => return fault(format!("{bits} is not below {bound}")),
            },
            Op::SwapBytes { value, bits } => swap_bytes(frame.bits(*value)?, *bits),
            Op::NonNull(value) => return Ok(Some(Datum::Pointer(frame.pointer(*value)?))),
            Op::Opaque { value, zero } => match frame.bits(*zero)? {
                0 => frame.bits(*value)?,
                other => return fault(format!("{other} is added to make a number unknown")),
            },
            Op::Call { callee, args } => return self.call(frame, *callee, args, result),
            _ => return self.memory_op(frame, op),
        };
        Ok(Some(Datum::Bits(bits)))
    }

    /// Addresses and accesses.
    fn memory_op(&mut self, frame: &CallFrame<'a>, op: &Op) -> Result<Option<Datum>, InterpError> {
        let moved = |start: Pointer, by: i64| Pointer { offset: start.offset.wrapping_add(by), ..start };
        let at = |base: Value, offset: i16| Ok(moved(frame.pointer(base)?, i64::from(offset)));
        let pointer = match op {
            Op::StackAddr { slot, offset } => {
                moved(frame.slots, i64::from(frame.function.slots[*slot].position) + i64::from(*offset))
            }
            // No memory lies there: reads fail, as where the kernel refuses them.
            Op::KernelAddr(_) => return Ok(Some(Datum::Bits(u64::MAX << 47))),
            Op::GlobalAddr { global, offset } => moved(self.global(*global)?, i64::from(*offset)),
            Op::MapAddr(map) => return Ok(Some(Datum::Map(*map))),
            Op::FunctionAddr(id) => return Ok(Some(Datum::FuncPtr(*id))),
            Op::CountAddr(Count::Faults(_)) => self.faults,
            Op::CountAddr(Count::CutLoop(_) | Count::CutList(_) | Count::Unraised) => self.cuts,
            // All zeros: the initial PID namespace.
            Op::CountAddr(Count::PidNamespace) => {
                let memory = &mut self.memory;
                *self.namespace.get_or_insert_with(|| memory.alloc_with(&[0; object::PID_NAMESPACE_BYTES]))
            }
            Op::CountAddr(Count::Lost(lost)) => {
                let memory = &mut self.memory;
                *self.lost.entry(*lost).or_insert_with(|| memory.alloc_with(&[0; 8]))
            }
            Op::PtrDiff(a, b) => {
                let (a, b) = (frame.pointer(*a)?, frame.pointer(*b)?);
                return Ok(Some(Datum::Bits(a.address().wrapping_sub(b.address()))));
            }
            Op::PtrAdd(base, offset) => moved(frame.pointer(*base)?, frame.bits(*offset)? as i64),
            Op::Load { size, base, offset } => {
                return self.memory.load(at(*base, *offset)?, bytes(*size)).map(Some);
            }
            Op::Store { size, base, offset, value } => {
                self.memory.store(at(*base, *offset)?, bytes(*size), frame.get(*value)?)?;
                return Ok(None);
            }
            Op::AtomicAdd { size, base, offset, value } => {
                let address = at(*base, *offset)?;
                let Datum::Bits(old) = self.memory.load(address, bytes(*size))? else {
                    return fault("a number is added to a pointer");
                };
                let new = old.wrapping_add(frame.bits(*value)?);
                self.memory.store(address, bytes(*size), Datum::Bits(new))?;
                return Ok(None);
            }
            Op::AtomicExchange { base, offset, value } => {
                let address = at(*base, *offset)?;
                let old = self.memory.load(address, bytes(Size::DW))?;
                self.memory.store(address, bytes(Size::DW), frame.get(*value)?)?;
                return Ok(Some(old));
            }
            Op::Address(pointer) => {
                let address = match frame.get(*pointer)? {
                    Datum::Pointer(pointer) => pointer.address(),
                    Datum::Bits(null) => null,
                    other => return fault(format!("the address of {other:?}")),
                };
                return Ok(Some(Datum::Bits(address)));
            }
            Op::Core(..) | Op::LoadField { .. } => {
                return fault("the interpreter has no types of a kernel");
            }
            // Passes load edges of the packet where nobody looks at them.
            Op::PacketEdge { .. } => return Ok(Some(Datum::Bits(0))),
            Op::InPacket { .. } | Op::Within { .. } => {
                return fault("the interpreter runs no programs on packets");
            }
            _ => return fault("an instruction that the interpreter does not know"),
        };
        Ok(Some(Datum::Pointer(pointer)))
    }

    fn global(&self, global: GlobalId) -> Result<Pointer, InterpError> {
        self.globals.get(global.index()).copied().map_or_else(|| fault("no such global variable"), Ok)
    }

    /// Returns a scratch slot that no other run uses. The bytes after its mark are uninitialised at first, as
    /// another run left them.
    fn scratch(&mut self, key: Pointer) -> Result<Datum, InterpError> {
        let key = self.memory.read(key, 4)?;
        if let Some(slot) = self.slots.get(&key) {
            return Ok(Datum::Pointer(*slot));
        }
        let slot = self.memory.reserve(self.program.scratch_bytes as usize);
        self.memory.write(slot, &[0; 8])?;
        self.slots.insert(key, slot);
        Ok(Datum::Pointer(slot))
    }

    /// Returns an id of the running task in the initial namespace.
    fn task_id(&mut self, id: TaskId) -> Result<Datum, InterpError> {
        Ok(match (self.helper(Helper::GetCurrentPidTgid, &[])?, id) {
            (Datum::Bits(both), TaskId::Process) => Datum::Bits(both >> 32),
            (both, _) => both,
        })
    }

    /// Returns the address of a config block.
    fn config(&self, config: ConfigId) -> Result<Datum, InterpError> {
        let start = self.configs.get(config.index()).copied();
        start.map_or_else(|| fault("no such config block"), |start| Ok(Datum::Pointer(start)))
    }

    fn call(
        &mut self,
        frame: &CallFrame<'a>,
        callee: Callee,
        args: &[Value],
        result: Option<Value>,
    ) -> Result<Option<Datum>, InterpError> {
        let args: Vec<_> = args.iter().map(|arg| frame.get(*arg)).collect::<Result<_, _>>()?;
        let datum = match callee {
            Callee::Function(id) => Some(self.function(id, args)?),
            Callee::Helper(helper) => Some(self.helper(helper, &args)?),
            Callee::Kfunc(kfunc) => self.kfunc(kfunc, &args)?,
            Callee::MapIter(iter_op) => self.map_iter(iter_op, &args)?,
            Callee::TaskId(id) => Some(match args.get(1) {
                Some(initial) => *initial,
                None => self.task_id(id)?,
            }),
            Callee::External(_) => return fault("what a function of the kernel does is not known here"),
        };
        let narrow = result.is_some_and(|result| frame.function.values[result] == Type::I32);
        Ok(datum.map(|datum| match datum {
            Datum::Bits(bits) if narrow => Datum::Bits(bits & 0xffff_ffff),
            other => other,
        }))
    }
}

fn follow(frame: &CallFrame<'_>, target: &Target) -> Result<(Block, Vec<Datum>), InterpError> {
    let args = target.args.iter().map(|arg| frame.get(*arg)).collect::<Result<_, _>>()?;
    Ok((target.block, args))
}

fn bytes(size: Size) -> usize {
    size.bytes() as usize
}

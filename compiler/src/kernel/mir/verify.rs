//! Verifier of MIR. It runs after the last pass; with `Checks::EveryStage`, after lowering and after every
//! pass.
//!
//! For every reachable block:
//!
//! 1. Every referenced block, value and slot exists; no jump targets the entry; a branch has two targets.
//! 2. Every value is defined once, and its definition dominates every use (within a block: comes before it).
//! 3. A jump passes one argument for each parameter, of the parameter's type. Pointers into memory may be
//!    passed where the parameter is any memory.
//! 4. Operands and results have the types that [`Op`] documents; a 32-bit constant has a zero upper half.
//! 5. Loads, stores and atomics: 8 bytes exactly with 64-bit values and pointers; through a checked pointer;
//!    only loads through an iterator's counter; no atomics through the context and into packets; constant
//!    offsets within a stack slot.
//! 6. Only pointers into memory and packets are moved, by a 64-bit number; the result may be a pointer to any
//!    memory.
//! 7. Calls have the callee's result type, and at most [`MAX_ARGS`] arguments; calls of functions only from
//!    `pass::pack` on.
//! 8. A program has the context as its only parameter; a function has at most [`MAX_ARGS`] parameters from
//!    `pass::pack` on. A return has the type of the function's result.

use super::dominators::Dominators;
use super::{Block, Callee, Inst, MAX_ARGS, MirFunction, Op, Origin, Size, Target, Terminator, Type, Value};
use crate::index::{Id, IndexVec};

/// A violated rule, in terms of blocks and values as the printer names them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MIR of `{function}`, b{block}: {what}")]
pub struct VerifyError {
    /// The name of the function.
    pub function: String,
    /// The index of the block.
    pub block: usize,
    /// The violated rule, as text.
    pub what: String,
}

/// Verifies a function.
///
/// # Errors
/// Reports the first violated rule.
pub fn verify(function: &MirFunction) -> Result<(), VerifyError> {
    let order = function.reverse_postorder();
    let mut checker = Checker { function, definitions: function.values.iter().map(|_| None).collect() };
    let at = |block: Block| move |what| error(function, block, what);
    signature(function).map_err(at(function.entry()))?;
    for block in &order {
        checker.collect(*block).map_err(at(*block))?;
    }
    let dominators = Dominators::new(function, &order);
    for block in &order {
        checker.block(*block, &dominators).map_err(at(*block))?;
    }
    Ok(())
}

/// Verifies the parts of rules 7 and 8 that apply from `pass::pack` on.
///
/// # Errors
/// Reports the first violated rule.
pub fn verify_packed(function: &MirFunction) -> Result<(), VerifyError> {
    let entry = function.entry();
    let fits = function.blocks[entry].params.len() <= MAX_ARGS;
    require(fits, || "more than five parameters".into()).map_err(|what| error(function, entry, what))?;
    for (block, data) in function.blocks.iter_enumerated() {
        let fits = |inst: &Inst| !matches!(&inst.op, Op::Call { args, .. } if args.len() > MAX_ARGS);
        require(data.insts.iter().all(fits), || "a call has at most five arguments".into())
            .map_err(|what| error(function, block, what))?;
    }
    Ok(())
}

fn error(function: &MirFunction, block: Block, what: String) -> VerifyError {
    VerifyError { function: function.name.clone(), block: block.index(), what }
}

type Check = Result<(), String>;

fn require(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

fn signature(function: &MirFunction) -> Check {
    let entry = function.blocks.get(function.entry()).ok_or("no entry block")?;
    let types: Vec<_> = entry.params.iter().map(|value| function.values.get(*value)).collect();
    require(!function.is_program || types == [Some(&Type::Ptr(Origin::Context))], || {
        "a program's parameter is the context".into()
    })
}

/// The location of a definition: the block, and the instruction's position or `None` for a parameter.
type DefinitionSite = (Block, Option<usize>);

struct Checker<'a> {
    function: &'a MirFunction,
    definitions: IndexVec<Value, Option<DefinitionSite>>,
}

impl Checker<'_> {
    fn collect(&mut self, block: Block) -> Check {
        let data = &self.function.blocks[block];
        let params = data.params.iter().map(|value| (*value, None));
        let results = data.insts.iter().enumerate().filter_map(|(at, inst)| Some((inst.result?, Some(at))));
        for (value, at) in params.chain(results) {
            require(self.definitions.get(value).is_some(), || format!("v{} has no type", value.index()))?;
            require(self.definitions[value].is_none(), || format!("v{} is made twice", value.index()))?;
            self.definitions[value] = Some((block, at));
        }
        Ok(())
    }

    fn block(&self, block: Block, dominators: &Dominators) -> Check {
        let data = &self.function.blocks[block];
        for (at, inst) in data.insts.iter().enumerate() {
            for operand in inst.op.operands() {
                self.available(operand, block, at, dominators)?;
            }
            self.inst(inst).map_err(|what| match inst.result {
                Some(value) => format!("v{}: {what}", value.index()),
                None => format!("instruction {at}: {what}"),
            })?;
        }
        for operand in data.term.operands() {
            self.available(operand, block, data.insts.len(), dominators)?;
        }
        self.terminator(&data.term)
    }

    fn available(&self, value: Value, block: Block, at: usize, dominators: &Dominators) -> Check {
        let site = self.definitions.get(value).copied().flatten();
        let (defined_in, defined_at) = site.ok_or_else(|| format!("v{} is never made", value.index()))?;
        let before = defined_at.is_none_or(|defined_at| defined_at < at);
        let holds = if defined_in == block { before } else { dominators.dominates(defined_in, block) };
        require(holds, || format!("v{} is not available here", value.index()))
    }

    fn ty(&self, value: Value) -> Type {
        self.function.values[value]
    }

    fn terminator(&self, term: &Terminator) -> Check {
        match term {
            Terminator::Return(value) => {
                return require(self.ty(*value) == self.function.ret, || "return of another type".into());
            }
            Terminator::Branch { cond, then, otherwise } => {
                require(self.ty(*cond) == Type::I32, || "a condition has 32 bits".into())?;
                require(then.block != otherwise.block, || "a branch has two targets".into())?;
            }
            Terminator::Jump(_) => {}
        }
        term.targets().into_iter().try_for_each(|target| self.target(target))
    }

    fn target(&self, target: &Target) -> Check {
        let data = self.function.blocks.get(target.block).ok_or("jump to no block")?;
        require(target.block != self.function.entry(), || "jump to the entry".into())?;
        require(target.args.len() == data.params.len(), || {
            format!("{} arguments for {} parameters", target.args.len(), data.params.len())
        })?;
        for (arg, param) in target.args.iter().zip(&data.params) {
            let (arg, param) = (self.ty(*arg), self.ty(*param));
            require(fits(arg, param), || format!("{arg} passed as {param}"))?;
        }
        Ok(())
    }

    fn inst(&self, inst: &Inst) -> Check {
        let result = inst.result.map(|value| self.ty(value));
        match &inst.op {
            Op::Const(bits) => require(
                match result {
                    Some(Type::I32) => *bits >> 32 == 0,
                    Some(Type::I64) => true,
                    // The value of a variable that was not set yet.
                    Some(Type::Ptr(_)) => *bits == 0,
                    None => false,
                },
                || "constant out of range".into(),
            ),
            Op::Binary(_, a, b) | Op::Opaque { value: a, zero: b } => {
                let ty = self.ty(*a);
                require(ty.bits().is_some() && self.ty(*b) == ty && result == Some(ty), mismatch)
            }
            Op::Compare(_, a, b) => require(
                self.ty(*a).bits().is_some() && self.ty(*a) == self.ty(*b) && result == Some(Type::I32),
                mismatch,
            ),
            Op::IsNull(value) => {
                require(self.checked_origin(*value).is_some() && result == Some(Type::I32), mismatch)
            }
            Op::NonNull(value) => {
                let checked = self.checked_origin(*value).map(Type::Ptr);
                require(checked.zip(result).is_some_and(|(checked, result)| fits(checked, result)), mismatch)
            }
            Op::Within { pointer, end, .. } => require(
                self.ty(*pointer) == Type::Ptr(Origin::Packet)
                    && matches!(self.ty(*end), Type::Ptr(Origin::Packet | Origin::PacketEnd))
                    && result == Some(Type::I32),
                mismatch,
            ),
            Op::InPacket { pointer, .. } => require(
                self.ty(*pointer) == Type::Ptr(Origin::Packet) && result == Some(Type::Ptr(Origin::InPacket)),
                mismatch,
            ),
            Op::PacketEdge { context, .. } => require(
                self.ty(*context) == Type::Ptr(Origin::Context)
                    && matches!(result, Some(Type::Ptr(Origin::Packet | Origin::PacketEnd))),
                mismatch,
            ),
            Op::SwapBytes { value, bits } => require(
                match self.ty(*value) {
                    Type::I32 => matches!(bits, 16 | 32),
                    Type::I64 => *bits == 64,
                    Type::Ptr(_) => false,
                } && result == Some(self.ty(*value)),
                mismatch,
            ),
            Op::Narrow { value, bits, .. } => require(
                matches!(bits, 8 | 16) && self.ty(*value) == Type::I32 && result == Some(Type::I32),
                mismatch,
            ),
            Op::SignExtend(value) | Op::ZeroExtend(value) => {
                require(self.ty(*value) == Type::I32 && result == Some(Type::I64), mismatch)
            }
            Op::Truncate(value) => {
                require(self.ty(*value) == Type::I64 && result == Some(Type::I32), mismatch)
            }
            Op::Below { value, bound } => {
                require(*bound > 0, || "nothing is below 0".into())?;
                require(self.ty(*value).bits().is_some() && result == Some(self.ty(*value)), mismatch)
            }
            Op::StackAddr { .. }
            | Op::GlobalAddr { .. }
            | Op::MapAddr(_)
            | Op::FunctionAddr(_)
            | Op::CountAddr(_)
            | Op::PtrAdd(..)
            | Op::PtrDiff(..) => self.address(&inst.op, result),
            Op::Core(..) | Op::KernelAddr(_) => require(result == Some(Type::I64), mismatch),
            Op::LoadField { size, base, .. } => {
                let wide = *size == Size::DW;
                let number = result == Some(if wide { Type::I64 } else { Type::I32 });
                let object = wide && result == Some(Type::Ptr(Origin::ObjectOrNull));
                require(
                    match self.ty(*base) {
                        Type::Ptr(Origin::Context) => number,
                        Type::Ptr(Origin::Object) => number || object,
                        _ => false,
                    },
                    mismatch,
                )
            }
            Op::Address(pointer) => {
                let is_pointer = matches!(self.ty(*pointer), Type::Ptr(_) | Type::I64);
                require(is_pointer && result == Some(Type::I64), mismatch)
            }
            Op::Load { .. } | Op::Store { .. } | Op::AtomicAdd { .. } | Op::AtomicExchange { .. } => {
                self.access(&inst.op, result)
            }
            Op::Call { callee, args } => self.call(*callee, args.len(), result),
        }
    }

    fn checked_origin(&self, value: Value) -> Option<Origin> {
        match self.ty(value) {
            // A pointer of a more specific origin needs no check, but may have one.
            Type::Ptr(origin) => origin.checked().or(origin.is_memory().then_some(origin)),
            _ => None,
        }
    }

    fn address(&self, op: &Op, result: Option<Type>) -> Check {
        let gives = |origin| result.is_some_and(|result| fits(Type::Ptr(origin), result));
        match op {
            Op::StackAddr { slot, offset } => {
                let data = self.function.slots.get(*slot).ok_or("no such slot")?;
                require(*offset <= data.size, || "address outside its slot".into())?;
                require(data.position.is_multiple_of(8), || "a slot is aligned to 8".into())?;
                require(gives(Origin::Stack), mismatch)
            }
            Op::GlobalAddr { .. } | Op::CountAddr(_) => require(gives(Origin::Global), mismatch),
            Op::MapAddr(_) => require(result == Some(Type::Ptr(Origin::Map)), mismatch),
            Op::FunctionAddr(_) => require(result == Some(Type::Ptr(Origin::Function)), mismatch),
            Op::PtrAdd(base, offset) => {
                let ty = self.ty(*base);
                let memory = matches!(ty, Type::Ptr(origin)
                    if origin.is_memory() || matches!(origin, Origin::Packet | Origin::Object));
                let moved = result.is_some_and(|result| fits(ty, result));
                require(memory && self.ty(*offset) == Type::I64 && moved, mismatch)
            }
            Op::PtrDiff(a, b) => {
                let pointers = [a, b].map(|one| matches!(self.ty(*one), Type::Ptr(_)));
                require(pointers == [true; 2] && result == Some(Type::I64), mismatch)
            }
            _ => Ok(()),
        }
    }

    fn access(&self, op: &Op, result: Option<Type>) -> Check {
        let (size, base, value) = match op {
            Op::Load { size, base, .. } => (*size, *base, result),
            Op::Store { size, base, value, .. } | Op::AtomicAdd { size, base, value, .. } => {
                (*size, *base, Some(self.ty(*value)))
            }
            Op::AtomicExchange { base, value, .. } => {
                require(result == Some(Type::I64), mismatch)?;
                (Size::DW, *base, Some(self.ty(*value)))
            }
            _ => return Ok(()),
        };
        let wide = value.is_some_and(|ty| ty != Type::I32);
        require(value.is_some() && wide == (size == Size::DW), || "access of another width".into())?;
        let Type::Ptr(origin) = self.ty(base) else {
            return Err("access through a number".into());
        };
        let is_load = matches!(op, Op::Load { .. });
        let atomic = matches!(op, Op::AtomicAdd { .. } | Op::AtomicExchange { .. });
        let allowed = match origin {
            Origin::Context => !atomic,
            Origin::IterCounter => is_load,
            Origin::InPacket => !atomic,
            _ => origin.is_memory(),
        };
        require(allowed, || format!("access through {origin:?}"))?;
        require(!atomic || matches!(size, Size::W | Size::DW), || "atomic on part of a word".into())
    }

    fn call(&self, callee: Callee, args: usize, result: Option<Type>) -> Check {
        let is_function = matches!(callee, Callee::Function(_));
        require(is_function || args <= MAX_ARGS, || "a call has at most five arguments".into())?;
        if let Callee::TaskId(_) = callee {
            require(matches!(args, 0 | 2), || "the running task, or one with its id".into())?;
        }
        let expected = match callee {
            Callee::Helper(helper) => Some(helper.result()),
            Callee::Kfunc(kfunc) => kfunc.result(),
            Callee::MapIter(map_iter) => map_iter.result(),
            Callee::TaskId(_) => Some(Type::I32),
            // The result of an external function is a word, a kernel object or nothing, as declared.
            Callee::External(_) if result == Some(Type::Ptr(Origin::ObjectOrNull)) => result,
            Callee::External(_) => Some(Type::I64),
            Callee::Function(_) => return require(result.is_some(), || "a function has a result".into()),
        };
        require(result.is_none() || result == expected, || "the callee has another result".into())
    }
}

fn mismatch() -> String {
    "operands or result of other types".into()
}

fn fits(arg: Type, param: Type) -> bool {
    match (arg, param) {
        (Type::Ptr(origin), Type::Ptr(Origin::Memory)) => origin.is_memory(),
        (Type::Ptr(origin), Type::Ptr(Origin::MemoryOrNull)) => {
            origin.is_memory() || origin.checked().is_some_and(Origin::is_memory)
        }
        (Type::Ptr(Origin::Object), Type::Ptr(Origin::ObjectOrNull)) => true,
        _ => arg == param,
    }
}

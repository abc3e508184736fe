//! The parameters of an outlined function: the scratch slot, the context and pointers to memory. The verifier
//! checks the function for any arguments, so it tests pointers that its caller knows not to be null.

use crate::hir::FuncId;
use crate::kernel::mir::{Block, Callee, Helper, MapSymbol, MirFunction, Op, Origin, Size, Type, Value};
use crate::kernel::pass::region::{Bases, BodyMaker, Entrance};
use crate::kernel::scratch::{NUMBER_OFFSET, PARAMETER};

/// The arguments of an outlined function, as values of its caller.
pub struct Parameters {
    /// The address of the scratch slot.
    pub base: Value,
    /// The context.
    pub context: Option<Value>,
    /// Pointers to memory.
    pub pointers: Vec<Pointer>,
    /// Whether the scratch slot is passed by its number: a callback may not be able to pass its address.
    pub by_number: bool,
}

/// A pointer to memory.
pub struct Pointer {
    pub value: Value,
    /// The size of the pointee.
    pub bytes: u32,
    /// Whether it may be null by its type, and is known not to be.
    pub is_tested: bool,
}

impl Parameters {
    /// How many there are.
    pub fn count(&self) -> usize {
        1 + usize::from(self.context.is_some()) + self.pointers.len()
    }

    /// The arguments of a call, if `arg` gives them for the values here.
    pub fn of_call(&self, arg: impl Fn(Value) -> Value) -> Parameters {
        let pointer = |one: &Pointer| Pointer { value: arg(one.value), ..*one };
        Parameters {
            base: arg(self.base),
            context: self.context.map(&arg),
            pointers: self.pointers.iter().map(pointer).collect(),
            ..*self
        }
    }

    /// Defines the parameters in a new function. It returns if one of the pointers is null, which none is.
    pub fn receive(&self, maker: &mut BodyMaker<'_>) -> Entrance {
        let names = [PARAMETER].into_iter().chain(self.context.map(|_| "__ctx")).map(str::to_owned);
        maker.body.params = names.chain((0..self.pointers.len()).map(|at| format!("__memory{at}"))).collect();
        let mut at = maker.block();
        let ty = if self.by_number { Type::I32 } else { Type::Ptr(Origin::EntryOrNull) };
        let slot = maker.param(at, ty);
        if let Some(context) = self.context {
            let own = maker.param(at, maker.source.values[context]);
            maker.values.insert(context, own);
        }
        let params: Vec<Value> =
            self.pointers.iter().map(|one| pointer_param(maker, at, one.value)).collect();
        let slot = if self.by_number { look_up(&mut maker.body, at, slot) } else { slot };
        at = leave_if_null(maker, at, slot);
        let base = maker.body.append(at, Type::Ptr(Origin::Entry), Op::NonNull(slot));
        maker.values.insert(self.base, base);
        for (pointer, param) in self.pointers.iter().zip(params) {
            let ty = maker.source.values[pointer.value];
            let is_same = maker.body.values[param] == ty;
            if !is_same || pointer.is_tested {
                at = leave_if_null(maker, at, param);
            }
            let own = if is_same { param } else { maker.body.append(at, ty, Op::NonNull(param)) };
            maker.values.insert(pointer.value, own);
        }
        Entrance { bases: Bases::one(base), block: at, zeros: None }
    }

    /// Appends a call with these arguments. Returns its result.
    pub fn call(&self, function: &mut MirFunction, block: Block, id: FuncId) -> Value {
        let slot = if self.by_number {
            let number = Op::Load { size: Size::W, base: self.base, offset: NUMBER_OFFSET };
            function.append(block, Type::I32, number)
        } else {
            self.base
        };
        let pointers = self.pointers.iter().map(|pointer| pointer.value);
        let args = [slot].into_iter().chain(self.context).chain(pointers).collect();
        function.append(block, Type::I32, Op::Call { callee: Callee::Function(id), args })
    }
}

fn leave_if_null(maker: &mut BodyMaker<'_>, at: Block, pointer: Value) -> Block {
    let is_null = maker.body.append(at, Type::I32, Op::IsNull(pointer));
    maker.leave_if(at, is_null, true)
}

/// Appends the parameter for a pointer.
fn pointer_param(maker: &mut BodyMaker<'_>, start: Block, pointer: Value) -> Value {
    let ty = match maker.source.values[pointer] {
        Type::Ptr(Origin::Entry) => Type::Ptr(Origin::EntryOrNull),
        Type::Ptr(Origin::Memory) => Type::Ptr(Origin::MemoryOrNull),
        other => other,
    };
    maker.param(start, ty)
}

/// Looks a scratch slot up by its number.
fn look_up(function: &mut MirFunction, block: Block, number: Value) -> Value {
    let slot = function.push_slot(4);
    let key = function.append(block, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
    function.append_store(block, number, key, 0);
    let map = function.append(block, Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Scratch));
    let callee = Callee::Helper(Helper::MapLookup);
    function.append(block, Type::Ptr(Origin::EntryOrNull), Op::Call { callee, args: vec![map, key] })
}

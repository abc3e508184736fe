//! Makes large helpers functions that the verifier looks at on their own: into others it goes at every call.
//!
//! ```text
//! helper(scratch, a, p):                  body(scratch, p):
//!     ...; return n                           a = load; ...; store n
//!                                     ->
//! n = helper(scratch, a, p)               store a; body(scratch, p); n = load
//! ```
//!
//! Numbers are handed over in the scratch slot, as with bodies of loops: of a parameter the verifier would
//! not even know that 32 of its bits are zero.

use super::maker::{Caller, Maker, load};
use super::plan::Allowed;
use super::reach::Reach;
use super::{Place, is_large};
use crate::hir::FuncId;
use crate::kernel::mir::{
    Block, Callee, FunctionOrigin, Helper, Inst, MAX_ARGS, MirFunction, Op, Origin, Program, Target,
    Terminator, Type, Value,
};
use crate::kernel::scratch::MAX_BYTES;

/// A large helper, and how it is called when it is a body. Its parameters are known by their positions.
struct LargeHelper {
    helper: FuncId,
    body: FuncId,
    /// The scratch slot's address.
    scratch: usize,
    context: Option<usize>,
    /// Pointers to memory, with how many bytes there are behind them.
    memory: Vec<(usize, u32)>,
    /// Numbers, and where they are.
    numbers: Vec<(usize, Place)>,
    /// Where the result is.
    result: Place,
    /// Bytes of the scratch slot that are in use.
    end: u32,
}

/// Makes a body of a helper if it is large, which those that come behind it call then. Gives whether it is
/// one now.
pub fn run(program: &mut Program, at: usize) -> bool {
    let function = &program.functions[at];
    if !is_large_helper(program, function) {
        return false;
    }
    let Some(apart) = LargeHelper::new(program, function) else { return false };
    let by_number = program.loops.called;
    program.use_id();
    program.scratch_bytes = apart.end;
    program.loops.pointee_bytes.insert(apart.body, apart.memory.iter().map(|(_, bytes)| *bytes).collect());
    program.functions[at] = apart.body(&program.functions[at], by_number);
    for caller in &mut program.functions[at + 1..] {
        apart.call_from(caller, by_number);
    }
    true
}

/// Whether a function is a large helper that is only called, and always comes back.
fn is_large_helper(program: &Program, function: &MirFunction) -> bool {
    let is_synthetic = matches!(function.origin, FunctionOrigin::Body | FunctionOrigin::Callback);
    let is_helper = !function.is_program && !is_synthetic;
    let is_named = |inst: &Inst| inst.op == Op::FunctionAddr(function.id);
    let leaves = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Helper(Helper::TailCall), .. });
    is_helper
        && is_large(program, function, &function.reverse_postorder())
        && !function.insts().any(leaves)
        && !program.functions.iter().flat_map(MirFunction::insts).any(is_named)
}

impl LargeHelper {
    /// `None` if a parameter, or the result, cannot be handed over.
    fn new(program: &Program, function: &MirFunction) -> Option<LargeHelper> {
        function.ret.bits()?;
        let pointee_bytes = &program.loops.pointee_bytes;
        let allowed = Allowed::of(program, function);
        let given = &function.blocks[function.entry()].params;
        let ops = function.definitions().iter().map(|op| op.cloned()).collect();
        let blocks = function.reverse_postorder().into_iter().collect();
        let reach = Reach { function, blocks: &blocks, ops: &ops, pointee_bytes };
        let mut apart = LargeHelper {
            helper: function.id,
            body: program.next_id,
            scratch: given.iter().position(|value| function.values[*value] == Type::Ptr(Origin::Entry))?,
            context: None,
            memory: Vec::new(),
            numbers: Vec::new(),
            result: program.scratch_bytes.next_multiple_of(8),
            end: program.scratch_bytes.next_multiple_of(8) + 8,
        };
        for (index, value) in given.iter().enumerate().filter(|(index, _)| *index != apart.scratch) {
            match function.values[*value] {
                Type::I32 | Type::I64 => {
                    apart.numbers.push((index, apart.end));
                    apart.end += 8;
                }
                Type::Ptr(Origin::Context) if allowed.context && apart.context.is_none() => {
                    apart.context = Some(index);
                }
                Type::Ptr(_) => {
                    apart.memory.push((index, reach.pointer(*value)?));
                }
            }
        }
        let args = 1 + usize::from(apart.context.is_some()) + apart.memory.len();
        (apart.end <= MAX_BYTES && args <= MAX_ARGS).then_some(apart)
    }

    /// The body.
    fn body(&self, function: &MirFunction, by_number: bool) -> MirFunction {
        let slots = function.slots.ids().collect();
        let given = &function.blocks[function.entry()].params;
        let context = self.context.map(|index| given[index]);
        let memory: Vec<(Value, bool)> =
            self.memory.iter().map(|(index, _)| (given[*index], false)).collect();
        let mut maker = Maker::new(function, (self.body, FunctionOrigin::Body), "apart", &slots);
        let (base, found, _) = maker.start(function, given[self.scratch], context, &memory, by_number);
        for (index, place) in &self.numbers {
            let own = maker.receive(found, function.values[given[*index]], base, *place, None);
            maker.values.insert(given[*index], own);
        }
        let order = function.reverse_postorder();
        for block in &order {
            let own = maker.block();
            maker.blocks.insert(*block, own);
        }
        for block in order {
            self.copy_block(function, block, base, &mut maker);
        }
        maker.body.blocks[found].term = Terminator::Jump(Target::to(maker.blocks[&function.entry()]));
        maker.body
    }

    fn copy_block(&self, function: &MirFunction, block: Block, base: Value, maker: &mut Maker) {
        let (data, own) = (&function.blocks[block], maker.blocks[&block]);
        if block != function.entry() {
            maker.body.blocks[own].params =
                data.params.iter().map(|value| maker.own(function, *value)).collect();
        }
        for inst in &data.insts {
            let copy = maker.copy(function, inst);
            maker.body.blocks[own].insts.push(copy);
        }
        maker.body.blocks[own].span = data.span;
        if let Terminator::Return(value) = data.term {
            let result = maker.own(function, value);
            maker.store(own, result, base, self.result);
            maker.leave(own, 0);
            return;
        }
        let mut term = data.term.clone();
        term.map_operands(&mut |value| maker.own(function, value));
        for target in term.targets_mut() {
            target.block = maker.blocks[&target.block];
        }
        maker.body.blocks[own].term = term;
    }

    /// Replaces the calls that a function makes.
    fn call_from(&self, function: &mut MirFunction, by_number: bool) {
        let span = function.span;
        let mut caller = Caller { function, span };
        for block in caller.function.blocks.ids() {
            let insts = std::mem::take(&mut caller.function.blocks[block].insts);
            for inst in insts {
                match &inst.op {
                    Op::Call { callee: Callee::Function(id), args } if *id == self.helper => {
                        caller.span = inst.span;
                        self.call(&mut caller, block, inst.result, args, by_number);
                    }
                    _ => caller.function.blocks[block].insts.push(inst),
                }
            }
        }
    }

    fn call(
        &self,
        caller: &mut Caller<'_>,
        block: Block,
        result: Option<Value>,
        args: &[Value],
        by_number: bool,
    ) {
        let base = args[self.scratch];
        for (index, place) in &self.numbers {
            caller.store(block, args[*index], base, *place);
        }
        let context = self.context.map(|index| args[index]);
        let memory = self.memory.iter().map(|(index, _)| args[*index]);
        caller.call(block, self.body, base, context.into_iter().chain(memory), by_number);
        if let Some(result) = result {
            let op = load(caller.function.values[result], base, self.result);
            caller.function.blocks[block].insts.push(Inst { result: Some(result), op, span: caller.span });
        }
    }
}

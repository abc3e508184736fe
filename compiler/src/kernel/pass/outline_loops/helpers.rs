//! Outlines large helpers as global functions: the verifier follows other functions at every call.
//!
//! ```text
//! helper(scratch, a, p):                  body(scratch, p):
//!     ...; return n                           a = load; ...; store n
//!                                     ->
//! n = helper(scratch, a, p)               store a; body(scratch, p); n = load
//! ```
//!
//! Numbers are passed in the scratch slot, as with loop bodies: of a parameter the verifier would not even know
//! that 32 of its bits are zero.

use super::parameters::{Parameters, Pointer};
use super::pointees::Pointees;
use crate::hir::FuncId;
use crate::kernel::mir::{
    Block, Callee, FunctionOrigin, Helper, Inst, MAX_ARGS, MirFunction, Op, Origin, Program, Terminator,
    Type, Value,
};
use crate::kernel::pass::region::{BodyMaker, Offset, SharedMemory};
use crate::kernel::scratch::{MAX_BYTES, scratch_slot};
use crate::kernel::verifier::code::Decisions;

/// A large helper, and how it is called as a body.
struct LargeHelper {
    helper: FuncId,
    body: FuncId,
    /// The parameters of the helper.
    given: Vec<Value>,
    parameters: Parameters,
    /// Numbers, and where they are passed.
    numbers: Vec<(Value, Offset)>,
    /// Where the result is passed.
    result: Offset,
    memory: SharedMemory,
}

/// Outlines a helper if it is large, and replaces its calls. Returns whether it did.
pub fn run(program: &mut Program, at: usize) -> bool {
    let function = &program.functions[at];
    if !is_large_helper(program, function) {
        return false;
    }
    let Some(helper) = LargeHelper::new(program, function) else { return false };
    program.use_id();
    program.scratch_bytes = helper.memory.end;
    let pointee_bytes = helper.parameters.pointers.iter().map(|pointer| pointer.bytes).collect();
    program.loops.pointee_bytes.insert(helper.body, pointee_bytes);
    program.functions[at] = helper.body(&program.functions[at]);
    program.functions[at + 1..].iter_mut().for_each(|caller| helper.replace_calls(caller));
    true
}

/// Whether a function is a large helper that is only called, and always returns.
fn is_large_helper(program: &Program, function: &MirFunction) -> bool {
    let is_synthetic = matches!(function.origin, FunctionOrigin::Body | FunctionOrigin::Callback);
    let is_helper = !function.is_program && !is_synthetic;
    let is_named = |inst: &Inst| inst.op == Op::FunctionAddr(function.id);
    let leaves = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Helper(Helper::TailCall), .. });
    is_helper
        && Decisions::new(program, function).are_too_many(&function.reverse_postorder())
        && !function.insts().any(leaves)
        && !program.functions.iter().flat_map(MirFunction::insts).any(is_named)
}

impl LargeHelper {
    /// `None` if a parameter, or the result, cannot be passed.
    fn new(program: &Program, function: &MirFunction) -> Option<LargeHelper> {
        function.ret.bits()?;
        let given = function.blocks[function.entry()].params.clone();
        let ops = function.definitions();
        let blocks = function.reverse_postorder().into_iter().collect();
        let pointee_bytes = &program.loops.pointee_bytes;
        let pointees = Pointees { function, blocks: &blocks, ops: &ops, pointee_bytes };
        let base = scratch_slot(function)?;
        let by_number = program.loops.called;
        let mut parameters = Parameters { base, context: None, pointers: Vec::new(), by_number };
        let mut memory = SharedMemory::after(program.scratch_bytes);
        let result = memory.allocate(function.ret);
        let mut numbers = Vec::new();
        for value in given.iter().copied().filter(|value| *value != base) {
            match function.values[value] {
                ty @ (Type::I32 | Type::I64) => numbers.push((value, memory.allocate(ty))),
                Type::Ptr(Origin::Context) if function.context.is_some() && parameters.context.is_none() => {
                    parameters.context = Some(value);
                }
                Type::Ptr(_) => {
                    let bytes = pointees.pointer(value)?;
                    parameters.pointers.push(Pointer { value, bytes, is_tested: false });
                }
            }
        }
        let fits = memory.end <= MAX_BYTES && parameters.count() <= MAX_ARGS;
        let (helper, body) = (function.id, program.next_id);
        fits.then_some(LargeHelper { helper, body, given, parameters, numbers, result, memory })
    }

    /// The body.
    fn body(&self, function: &MirFunction) -> MirFunction {
        let slots = function.slots.ids().collect();
        let mut maker = BodyMaker::new(function, (self.body, FunctionOrigin::Body), "apart", &slots);
        let entrance = self.parameters.receive(&mut maker);
        let (base, start) = (entrance.bases.numbers, entrance.block);
        for (value, offset) in &self.numbers {
            let own = maker.body.append_load(start, function.values[*value], base, *offset);
            maker.values.insert(*value, own);
        }
        maker.copy_blocks(
            &function.reverse_postorder(),
            |_| true,
            |_, _, _| {},
            |maker, block, exit, _| {
                if let Terminator::Return(value) = function.blocks[exit.0].term {
                    let result = maker.own(value);
                    maker.body.append_store(block, result, base, self.result);
                }
                maker.leave(block, 0);
            },
        );
        let first = maker.own_block(function.entry());
        maker.body.jump(start, first, Vec::new());
        maker.body
    }

    /// Replaces the calls that a function makes.
    fn replace_calls(&self, function: &mut MirFunction) {
        for block in function.blocks.ids() {
            let span = function.blocks[block].span;
            for inst in std::mem::take(&mut function.blocks[block].insts) {
                match &inst.op {
                    Op::Call { callee: Callee::Function(id), args } if *id == self.helper => {
                        function.blocks[block].span = inst.span;
                        self.call(function, block, inst.result, args);
                    }
                    _ => function.blocks[block].insts.push(inst),
                }
            }
            function.blocks[block].span = span;
        }
    }

    fn call(&self, function: &mut MirFunction, block: Block, result: Option<Value>, args: &[Value]) {
        let arg = |given: Value| {
            let at = self.given.iter().position(|one| *one == given);
            at.and_then(|at| args.get(at)).copied().unwrap_or(given)
        };
        let parameters = self.parameters.of_call(arg);
        for (value, offset) in &self.numbers {
            function.append_store(block, arg(*value), parameters.base, *offset);
        }
        parameters.call(function, block, self.body);
        if let Some(result) = result {
            let op = Op::load_whole(function.values[result], parameters.base, self.result);
            let data = &mut function.blocks[block];
            data.insts.push(Inst { result: Some(result), op, span: data.span });
        }
    }
}

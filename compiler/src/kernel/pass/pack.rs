//! Passes arguments through memory when there are more than five. The first four go in registers, the others
//! in a block of 8-byte words in the caller's frame, whose address is the fifth.
//!
//! Passes before this one see all parameters of a function and all arguments of its calls.

use super::new_insts::NewInsts;
use crate::kernel::mir::{Block, Inst, MAX_ARGS, MirFunction, Op, Origin, Program, Size, Slot, Type};

/// The name of the parameter with the address of the block.
pub const FURTHER: &str = "__further";

/// Runs the pass on all functions; returns whether anything changed. It must run only once.
pub fn run(program: &mut Program) -> bool {
    let mut changed = false;
    for function in &mut program.functions {
        changed |= receive(function);
        changed |= pass_all(function);
    }
    changed
}

/// Loads the parameters without a register from the block.
fn receive(function: &mut MirFunction) -> bool {
    let entry = function.entry();
    if function.blocks[entry].params.len() <= MAX_ARGS {
        return false;
    }
    let further = function.blocks[entry].params.split_off(MAX_ARGS - 1);
    function.params.truncate(MAX_ARGS - 1);
    function.params.push(FURTHER.to_owned());
    let base = function.values.push(Type::Ptr(Origin::Memory));
    function.blocks[entry].params.push(base);
    let mut received = NewInsts { insts: Vec::new(), span: function.span };
    for (offset, param) in offsets().zip(further) {
        let load = Op::Load { size: Size::DW, base, offset };
        match function.values[param] {
            Type::I32 => {
                let word = received.make(&mut function.values, Type::I64, load);
                received.push(Some(param), Op::Truncate(word));
            }
            _ => received.push(Some(param), load),
        }
    }
    function.blocks[entry].insts.splice(0..0, received.insts);
    true
}

/// The offset in bytes of each word of a block.
fn offsets() -> impl Iterator<Item = i16> {
    (0..i16::MAX).step_by(8)
}

/// Stores the arguments without a register in a block, which all calls of the function share.
fn pass_all(function: &mut MirFunction) -> bool {
    let further = |inst: &Inst| match &inst.op {
        Op::Call { args, .. } if args.len() > MAX_ARGS => args.len() + 1 - MAX_ARGS,
        _ => 0,
    };
    let words = function.insts().map(further).max().unwrap_or(0);
    if words == 0 {
        return false;
    }
    let slot = function.push_slot(8 * words as u32);
    for block in function.blocks.ids() {
        pass_from(function, block, slot);
    }
    true
}

fn pass_from(function: &mut MirFunction, block: Block, slot: Slot) {
    let insts = std::mem::take(&mut function.blocks[block].insts);
    let mut new_insts = NewInsts { insts: Vec::with_capacity(insts.len()), span: function.span };
    for mut inst in insts {
        if let Op::Call { args, .. } = &mut inst.op
            && args.len() > MAX_ARGS
        {
            new_insts.span = inst.span;
            let values = &mut function.values;
            let address = Op::StackAddr { slot, offset: 0 };
            let base = new_insts.make(values, Type::Ptr(Origin::Stack), address);
            for (offset, arg) in offsets().zip(args.split_off(MAX_ARGS - 1)) {
                let value = match values[arg] {
                    Type::I32 => new_insts.make(values, Type::I64, Op::ZeroExtend(arg)),
                    _ => arg,
                };
                new_insts.push(None, Op::Store { size: Size::DW, base, offset, value });
            }
            args.push(base);
        }
        new_insts.insts.push(inst);
    }
    function.blocks[block].insts = new_insts.insts;
}

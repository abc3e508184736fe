//! Tests of what concerns whole programs: parts of others, and scratch memory.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Checks, inline, run};
use super::{builder, ops, parameter, span};
use crate::hir::FuncId;
use crate::index::Id;
use crate::kernel::frames::Frames;
use crate::kernel::mir::{
    BinaryOp, Block, Callee, Helper, Inst, MapSymbol, MirFunction, Op, Origin, Program, Size, Terminator,
    Type, verify::verify,
};
use crate::kernel::scratch::move_slots;

#[test]
fn a_function_that_is_called_once_becomes_part_of_its_caller() {
    let mut callee = builder();
    let argument = parameter(&mut callee);
    let doubled = callee.binary(BinaryOp::Add, argument, argument);
    callee.ret(doubled);
    let mut caller = builder();
    let argument = parameter(&mut caller);
    let result = caller.call(Type::I64, Callee::Function(FuncId::new(0)), vec![argument]);
    caller.ret(result);
    let mut caller = caller.finish();
    caller.id = FuncId::new(1);
    caller.is_program = true;
    caller.is_called = false;
    // A program's parameter is the context.
    let context = caller.blocks[caller.entry()].params[0];
    caller.values[context] = Type::Ptr(Origin::Context);
    let seven = caller.values.push(Type::I64);
    let entry = caller.entry();
    let Op::Call { args, .. } = &mut caller.blocks[entry].insts[0].op else { panic!("a call") };
    args[0] = seven;
    let seven_inst = Inst { result: Some(seven), op: Op::Const(7), span: span() };
    caller.blocks[entry].insts.insert(0, seven_inst);
    let mut program = Program::of(vec![callee.finish(), caller], FuncId::new(2));
    run(&mut program, &BTreeSet::new(), Checks::EveryStage, &mut |_, _| {})
        .expect("the rules of MIR are kept");
    assert_eq!(program.functions.len(), 1);
    assert_eq!(ops(&program.functions[0]), [Op::Const(14)]);
}

#[test]
fn an_inlined_function_keeps_its_slots_while_it_calls_another() {
    let function = |id: usize, callee: Option<usize>| {
        let mut b = builder();
        let slot = b.slot(8);
        let kept = b.value(Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
        let number = b.constant(Type::I64, id as u64);
        b.effect(Op::Store { size: Size::DW, base: kept, offset: 0, value: number });
        if let Some(callee) = callee {
            b.call(Type::I64, Callee::Function(FuncId::new(callee)), Vec::new());
        }
        let result = b.value(Type::I64, Op::Load { size: Size::DW, base: kept, offset: 0 });
        b.ret(result);
        MirFunction { id: FuncId::new(id), ..b.finish() }
    };
    let mut program =
        Program::of(vec![function(0, None), function(1, Some(0)), function(2, Some(1))], FuncId::new(3));
    let calls = inline::calls(&program);
    assert!(inline::run(&mut program, 2, &calls));
    let outermost = &program.functions[2];
    let positions: BTreeSet<u32> = outermost.slots.iter().map(|slot| slot.position).collect();
    assert_eq!(positions, BTreeSet::from([0, 8, 16]));
}

#[test]
fn a_failed_tail_call_gives_its_scratch_slot_back_once() {
    let mut b = builder();
    let entry = b.entry();
    let context = b.param(entry, Type::Ptr(Origin::Context));
    let programs = b.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Programs(FuncId::new(0))));
    let index = b.constant(Type::I64, 0);
    b.call(Type::I64, Callee::Helper(Helper::TailCall), vec![context, programs, index]);
    let (second, third) = (b.block(), b.block());
    b.jump(second);
    b.switch_to_sealed(second);
    let result = b.constant(Type::I64, 7);
    b.jump(third);
    b.switch_to_sealed(third);
    b.ret(result);
    let program = MirFunction { is_program: true, is_called: false, ..b.finish() };
    let mut program = Program::of(vec![program], FuncId::new(1));
    move_slots(&mut program, &BTreeMap::from([(FuncId::new(0), Frames::Shared)]));
    let function = &program.functions[0];
    verify(function).expect("what the end returns is there");
    let leaves = |block: &&Block| {
        let calls =
            |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Helper(Helper::TailCall), .. });
        function.blocks[**block].insts.iter().any(calls)
    };
    let order = function.reverse_postorder();
    let leaving = order.iter().find(leaves).expect("the call is reached");
    let data = &function.blocks[*leaving];
    assert_eq!(data.insts.iter().filter(|inst| matches!(inst.op, Op::AtomicAdd { .. })).count(), 1);
    assert!(matches!(data.term, Terminator::Return(_)), "{data:?}");
}

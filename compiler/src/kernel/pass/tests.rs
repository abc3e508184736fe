//! What the passes make of small functions.

use super::run;
use crate::hir::FuncId;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::builder::Builder;
use crate::kernel::mir::{
    BinaryOp, Condition, Function, Op, Origin, Program, Size, Target, Terminator, Type, Value, verify::verify,
};
use crate::source::{SourceMap, Span};

fn span() -> Span {
    let mut sources = SourceMap::default();
    let file = sources.add("t.ks", "x").expect("short");
    Span { file, start: 0, end: 1 }
}

fn builder() -> Builder {
    Builder::new(Function {
        id: FuncId::new(0),
        name: "t".into(),
        span: span(),
        is_program: false,
        ret: Type::I64,
        values: IndexVec::new(),
        blocks: IndexVec::new(),
        slots: IndexVec::new(),
        slot_bytes: 0,
    })
}

fn optimised(function: Function) -> Function {
    let mut program = Program { functions: vec![function] };
    run(&mut program).expect("the rules of MIR are kept");
    program.functions.remove(0)
}

fn ops(function: &Function) -> Vec<Op> {
    let order = function.reverse_postorder();
    order.iter().flat_map(|block| &function.blocks[*block].insts).map(|inst| inst.op.clone()).collect()
}

fn parameter(builder: &mut Builder) -> Value {
    let entry = builder.entry();
    builder.param(entry, Type::I64)
}

#[test]
fn constants_are_worked_out() {
    let mut b = builder();
    let six = b.constant(Type::I64, 6);
    let product = b.binary_const(BinaryOp::Mul, six, 7);
    let shifted = b.binary_const(BinaryOp::Shl, product, 65);
    b.ret(shifted);
    assert_eq!(ops(&optimised(b.finish())), [Op::Const(84)]);
}

#[test]
fn a_branch_on_a_constant_is_no_branch() {
    let mut b = builder();
    let one = b.constant(Type::I64, 1);
    let holds = b.compare_const(Condition::Lt, one, 2);
    let (yes, no) = (b.block(), b.block());
    b.branch(holds, yes, no);
    for (block, value) in [(yes, 10), (no, 20)] {
        b.switch_to_sealed(block);
        let value = b.constant(Type::I64, value);
        b.ret(value);
    }
    let function = optimised(b.finish());
    assert_eq!(function.reverse_postorder().len(), 1);
    assert_eq!(ops(&function), [Op::Const(10)]);
}

#[test]
fn a_variable_that_a_loop_does_not_change_is_no_parameter() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let (same, turns) = (b.variable(Type::I64), b.variable(Type::I64));
    b.set(same, argument);
    b.set(turns, argument);
    let [header, body, leave] = std::array::from_fn(|_| b.block());
    b.jump(header);
    b.switch_to(header);
    let left = b.get(turns);
    let more = b.compare_const(Condition::Ne, left, 0);
    b.branch(more, body, leave);
    b.switch_to_sealed(body);
    let step = b.get(same);
    let next = b.binary(BinaryOp::Sub, left, step);
    b.set(turns, next);
    b.jump(header);
    b.seal(header);
    b.switch_to_sealed(leave);
    let result = b.get(same);
    b.ret(result);
    let function = optimised(b.finish());
    assert_eq!(function.blocks[header].params.len(), 1);
    assert_eq!(function.blocks[leave].term, Terminator::Return(argument));
}

#[test]
fn what_nobody_uses_goes_and_effects_stay() {
    let mut b = builder();
    let argument = parameter(&mut b);
    b.binary_const(BinaryOp::Mul, argument, 3);
    let slot = b.slot(8);
    let base = b.value(Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: argument });
    b.ret(argument);
    let left = ops(&optimised(b.finish()));
    assert!(matches!(left.as_slice(), [Op::StackAddr { .. }, Op::Store { .. }]), "{left:?}");
}

/// What the checker says about a function that breaks one rule.
fn refusal(change: impl FnOnce(&mut Builder, Value), then: impl FnOnce(&mut Function)) -> String {
    let mut b = builder();
    let argument = parameter(&mut b);
    change(&mut b, argument);
    b.ret(argument);
    let mut function = b.finish();
    then(&mut function);
    verify(&function).expect_err("a rule is broken").what
}

#[test]
fn broken_rules_are_found() {
    let nothing = |_: &mut Function| {};
    let mixed = refusal(
        |b, argument| {
            let narrow = b.constant(Type::I32, 1);
            b.binary(BinaryOp::Add, argument, narrow);
        },
        nothing,
    );
    assert!(mixed.contains("other types"), "{mixed}");
    let number = |b: &mut Builder, base: Value| {
        b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
    };
    assert!(refusal(number, nothing).contains("through a number"));
    let unchecked = |b: &mut Builder, _: Value| {
        let base = b.constant(Type::Ptr(Origin::EntryOrNull), 0);
        b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
    };
    assert!(refusal(unchecked, nothing).contains("EntryOrNull"));
    let used_before_made = |function: &mut Function| {
        let entry = function.entry();
        function.blocks[entry].insts.reverse();
    };
    let two = |b: &mut Builder, argument: Value| {
        let sum = b.binary(BinaryOp::Add, argument, argument);
        b.binary(BinaryOp::Add, sum, sum);
    };
    assert!(refusal(two, used_before_made).contains("not available"));
    let argument_too_many = |function: &mut Function| {
        let entry = function.entry();
        let argument = function.blocks[entry].params[0];
        let target = function.blocks.push(function.blocks[entry].clone());
        function.blocks[target].params.clear();
        function.blocks[entry].term = Terminator::Jump(Target { block: target, args: vec![argument] });
    };
    assert!(refusal(|_, _| {}, argument_too_many).contains("1 arguments for 0 parameters"));
}

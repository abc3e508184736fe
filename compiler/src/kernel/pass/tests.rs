//! Tests of the passes on small functions, and on programs of several (`programs`).

mod programs;

use std::collections::BTreeSet;

use super::{Checks, PASSES, Passes, improve, run};
use crate::hir::FuncId;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::builder::Builder;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{
    BinaryOp, Callee, Condition, FunctionOrigin, Helper, MapSymbol, MirFunction, Op, Origin, Program, Size,
    Slot, Target, TaskId, Terminator, Type, Value, verify::verify,
};
use crate::source::{SourceMap, Span};

fn span() -> Span {
    let mut sources = SourceMap::default();
    let file = sources.add("t.ks", "x").expect("short");
    Span { file, start: 0, end: 1 }
}

/// A function without parameters that returns 64 bits.
pub(super) fn builder() -> Builder {
    Builder::new(MirFunction {
        id: FuncId::new(0),
        origin: FunctionOrigin::Script,
        name: "t".into(),
        span: span(),
        is_program: false,
        is_called: true,
        returns_bool: false,
        missing_first: false,
        context: None,
        params: Vec::new(),
        ret: Type::I64,
        values: IndexVec::new(),
        blocks: IndexVec::new(),
        slots: IndexVec::new(),
        slot_bytes: 0,
    })
}

fn optimised(function: MirFunction) -> MirFunction {
    let mut program = Program::of(vec![function], FuncId::new(2));
    settles(program.clone());
    run(&mut program, &BTreeSet::new(), Checks::EveryStage, &mut |_, _| {})
        .expect("the rules of MIR are kept");
    let own = program.functions.iter().position(|one| one.origin == FunctionOrigin::Script);
    program.functions.remove(own.expect("no pass removes it"))
}

/// Checks that a pass which did not run again, because nothing that it depends on changed, would have found
/// nothing.
fn settles(mut program: Program) {
    improve(&mut program, 0, Passes::All, &mut 0, Checks::EveryStage, &mut |_, _| {})
        .expect("the rules of MIR are kept");
    for pass in PASSES {
        let mut function = program.functions[0].clone();
        let flow = Flow::new(&function);
        assert!(!(pass.run)(&mut function, &flow).any(), "{} finds more in the end", pass.name);
    }
}

fn ops(function: &MirFunction) -> Vec<Op> {
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
fn branches_on_constants_become_jumps() {
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
fn loop_invariant_variables_need_no_parameter() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let (same, remaining) = (b.variable(Type::I64), b.variable(Type::I64));
    b.set(same, argument);
    b.set(remaining, argument);
    let [header, body, leave] = std::array::from_fn(|_| b.block());
    b.jump(header);
    b.switch_to(header);
    let left = b.get(remaining);
    let more = b.compare_const(Condition::Ne, left, 0);
    b.branch(more, body, leave);
    b.switch_to_sealed(body);
    let step = b.get(same);
    let next = b.binary(BinaryOp::Sub, left, step);
    b.set(remaining, next);
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
fn unused_values_are_removed_and_effects_stay() {
    let mut b = builder();
    let argument = parameter(&mut b);
    b.binary_const(BinaryOp::Mul, argument, 3);
    let base = global(&mut b, 0);
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: argument });
    b.ret(argument);
    let left = ops(&optimised(b.finish()));
    assert!(matches!(left.as_slice(), [Op::GlobalAddr { .. }, Op::Store { .. }]), "{left:?}");
}

/// The verifier's error for a function that violates one rule.
fn refusal(change: impl FnOnce(&mut Builder, Value), then: impl FnOnce(&mut MirFunction)) -> String {
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
    let nothing = |_: &mut MirFunction| {};
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
    let used_before_defined = |function: &mut MirFunction| {
        let entry = function.entry();
        function.blocks[entry].insts.reverse();
    };
    let two = |b: &mut Builder, argument: Value| {
        let sum = b.binary(BinaryOp::Add, argument, argument);
        b.binary(BinaryOp::Add, sum, sum);
    };
    assert!(refusal(two, used_before_defined).contains("not available"));
    let argument_too_many = |function: &mut MirFunction| {
        let entry = function.entry();
        let argument = function.blocks[entry].params[0];
        let target = function.blocks.push(function.blocks[entry].clone());
        function.blocks[target].params.clear();
        function.blocks[entry].term = Terminator::Jump(Target { block: target, args: vec![argument] });
    };
    assert!(refusal(|_, _| {}, argument_too_many).contains("1 arguments for 0 parameters"));
}

const STACK: Type = Type::Ptr(Origin::Stack);

fn count(function: &MirFunction, wanted: impl Fn(&Op) -> bool) -> usize {
    ops(function).iter().filter(|op| wanted(op)).count()
}

fn stack(b: &mut Builder, slot: crate::kernel::mir::Slot, offset: u32) -> Value {
    b.value(STACK, Op::StackAddr { slot, offset })
}

fn global(b: &mut Builder, offset: u32) -> Value {
    b.value(Type::Ptr(Origin::Global), Op::GlobalAddr { global: crate::hir::GlobalId::new(0), offset })
}

#[test]
fn values_computed_in_dominators_are_reused() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let first = b.binary_const(BinaryOp::Mul, argument, 7);
    let (yes, no) = (b.block(), b.block());
    let odd = b.compare_const(Condition::Gt, first, 100);
    b.branch(odd, yes, no);
    b.switch_to_sealed(yes);
    let second = b.binary_const(BinaryOp::Mul, argument, 7);
    b.ret(second);
    b.switch_to_sealed(no);
    b.ret(argument);
    let function = optimised(b.finish());
    assert_eq!(count(&function, |op| matches!(op, Op::Binary(BinaryOp::Mul, ..))), 1);
}

/// Builds a function that checks an index against both bounds and loads with it; returns the number of
/// comparisons and the bounds of [`Op::Below`] that are left.
fn checks(outer: u64, inner: u64) -> (usize, Vec<u64>) {
    let mut b = builder();
    let index = parameter(&mut b);
    let slot = b.slot(64);
    let [first, second, out] = std::array::from_fn(|_| b.block());
    let within = b.compare_const(Condition::Lt, index, outer);
    b.branch(within, first, out);
    b.switch_to_sealed(first);
    b.effect(Op::Call { callee: Callee::Helper(Helper::KtimeGetNs), args: Vec::new() });
    let within = b.compare_const(Condition::Lt, index, inner);
    b.branch(within, second, out);
    b.switch_to_sealed(second);
    let checked = b.value(Type::I64, Op::Below { value: index, bound: inner });
    let start = stack(&mut b, slot, 0);
    let base = b.value(STACK, Op::PtrAdd(start, checked));
    let value = b.value(Type::I32, Op::Load { size: Size::B, base, offset: 0 });
    let wide = b.value(Type::I64, Op::ZeroExtend(value));
    b.ret(wide);
    b.switch_to_sealed(out);
    b.ret(index);
    let function = optimised(b.finish());
    let bounds = ops(&function).into_iter().filter_map(|op| match op {
        Op::Below { bound, .. } => Some(bound),
        _ => None,
    });
    (count(&function, |op| matches!(op, Op::Compare(..))), bounds.collect())
}

#[test]
fn a_check_within_a_narrower_one_goes_and_the_value_stays_checked() {
    assert_eq!(checks(8, 16), (1, vec![8]));
    assert_eq!(checks(16, 8), (2, vec![8]));
}

/// The numbers that [`compared_sum`] compares.
#[derive(PartialEq)]
enum Compared {
    Sum,
    TimeThenSum,
}

/// The 64-bit arithmetic that is left of a compared sum of the time and of a value derived from it.
fn compared_sum(
    numbers: Compared,
    added: impl FnOnce(&mut Builder, Value) -> Value,
) -> Vec<(BinaryOp, Option<u64>)> {
    let mut b = builder();
    let time = now(&mut b);
    let added = added(&mut b, time);
    let sum = b.binary(BinaryOp::Add, time, added);
    for (compared, result) in [(time, 1), (sum, 2)].into_iter().skip(usize::from(numbers == Compared::Sum)) {
        let (early, late) = (b.block(), b.block());
        let is_early = b.compare_const(Condition::Lt, compared, 100);
        b.branch(is_early, early, late);
        b.switch_to_sealed(early);
        let result = b.constant(Type::I64, result);
        b.ret(result);
        b.switch_to_sealed(late);
    }
    let result = b.constant(Type::I64, 3);
    b.ret(result);
    let function = optimised(b.finish());
    let constants = super::rewrite::constants(&function);
    let arithmetic = ops(&function).into_iter().filter_map(|op| match op {
        Op::Binary(op, _, b) => Some((op, constants[b])),
        _ => None,
    });
    arithmetic.collect()
}

fn now(b: &mut Builder) -> Value {
    b.value(Type::I64, Op::Call { callee: Callee::Helper(Helper::KtimeGetNs), args: Vec::new() })
}

#[test]
fn a_sum_is_no_sum_with_a_constant_for_the_verifier() {
    let four = |b: &mut Builder, _| b.constant(Type::I64, 4);
    let other = |b: &mut Builder, _| now(b);
    assert_eq!(compared_sum(Compared::Sum, four), [(BinaryOp::Sub, Some(4u64.wrapping_neg()))]);
    assert_eq!(compared_sum(Compared::TimeThenSum, other), [(BinaryOp::Sub, Some(0)), (BinaryOp::Add, None)]);
}

#[test]
fn a_sum_of_what_is_not_compared_is_left_alone() {
    let square = |b: &mut Builder, time| b.binary(BinaryOp::Mul, time, time);
    assert_eq!(compared_sum(Compared::Sum, square), [(BinaryOp::Mul, None), (BinaryOp::Add, None)]);
}

#[test]
fn a_masked_index_needs_no_check() {
    let mut b = builder();
    let index = parameter(&mut b);
    let masked = b.binary_const(BinaryOp::URem, index, 32);
    let within = b.compare_const(Condition::Lt, masked, 32);
    let (yes, no) = (b.block(), b.block());
    b.branch(within, yes, no);
    b.switch_to_sealed(yes);
    let checked = b.value(Type::I64, Op::Below { value: masked, bound: 32 });
    b.ret(checked);
    b.switch_to_sealed(no);
    b.ret(index);
    let left = ops(&optimised(b.finish()));
    assert!(matches!(left.as_slice(), [Op::Const(31), Op::Binary(BinaryOp::And, ..)]), "{left:?}");
}

#[test]
fn a_load_finds_what_was_stored_and_the_store_goes() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let slot = b.slot(16);
    let base = stack(&mut b, slot, 8);
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: argument });
    let again = stack(&mut b, slot, 0);
    let low = b.value(Type::I32, Op::Load { size: Size::W, base: again, offset: 8 });
    let wide = b.value(Type::I64, Op::ZeroExtend(low));
    b.ret(wide);
    let left = ops(&optimised(b.finish()));
    assert!(matches!(left.as_slice(), [Op::Truncate(_), Op::ZeroExtend(_)]), "{left:?}");
}

#[test]
fn a_load_finds_its_parts_where_the_others_are_zero() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let slot = b.slot(8);
    let base = stack(&mut b, slot, 0);
    let zero = b.constant(Type::I64, 0);
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: zero });
    let value = b.value(Type::I32, Op::Truncate(argument));
    b.effect(Op::Store { size: Size::W, base, offset: 0, value });
    let whole = b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
    b.ret(whole);
    let left = ops(&optimised(b.finish()));
    assert!(matches!(left.as_slice(), [Op::Truncate(_), Op::ZeroExtend(_)]), "{left:?}");
}

#[test]
fn a_load_of_two_constants_is_one() {
    let mut b = builder();
    let slot = b.slot(8);
    let base = stack(&mut b, slot, 0);
    let zero = b.constant(Type::I64, 0);
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: zero });
    let three = b.constant(Type::I32, 3);
    b.effect(Op::Store { size: Size::W, base, offset: 4, value: three });
    let whole = b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
    b.ret(whole);
    assert_eq!(ops(&optimised(b.finish())), [Op::Const(3 << 32)]);
}

#[test]
fn overlapping_slots_are_distinguished_by_their_bytes() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let mark = b.mark_stack();
    let one = b.slot(8);
    b.release_stack(mark);
    let other = b.slot(8);
    let base = stack(&mut b, one, 0);
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: argument });
    let seven = b.constant(Type::I64, 7);
    let overlap = stack(&mut b, other, 0);
    b.effect(Op::Store { size: Size::DW, base: overlap, offset: 0, value: seven });
    let value = b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
    b.ret(value);
    assert_eq!(ops(&optimised(b.finish())), [Op::Const(7)]);
}

#[test]
fn an_address_that_leads_elsewhere_may_change_what_was_stored() {
    let mut b = builder();
    let entry = b.entry();
    let pointer = b.param(entry, Type::Ptr(Origin::Memory));
    let base = global(&mut b, 0);
    let one = b.constant(Type::I64, 1);
    b.effect(Op::Store { size: Size::DW, base, offset: 0, value: one });
    let two = b.constant(Type::I64, 2);
    b.effect(Op::Store { size: Size::DW, base: pointer, offset: 0, value: two });
    let value = b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
    b.ret(value);
    assert_eq!(count(&optimised(b.finish()), |op| matches!(op, Op::Load { .. })), 1);
}

/// The number of stores that are left of three to a slot or a global variable, which one pointer points to. Its target is
/// read at one offset; `also` has the pointer, too.
fn merged_stores(also: impl FnOnce(&mut Builder, Value)) -> usize {
    let mut b = builder();
    let argument = parameter(&mut b);
    let (own, other, join) = (b.block(), b.block(), b.block());
    let merged = b.param(join, Type::Ptr(Origin::Memory));
    let is_five = b.compare_const(Condition::Eq, argument, 5);
    b.branch(is_five, own, other);
    b.switch_to_sealed(own);
    let slot = b.slot(24);
    let base = stack(&mut b, slot, 0);
    for offset in [0, 8, 16] {
        b.effect(Op::Store { size: Size::DW, base, offset, value: argument });
    }
    b.jump_with(join, base);
    b.switch_to_sealed(other);
    let variable = global(&mut b, 0);
    b.jump_with(join, variable);
    b.switch_to_sealed(join);
    let time = b.call(Type::I64, Callee::Helper(Helper::KtimeGetNs), Vec::new());
    also(&mut b, merged);
    let read = b.value(Type::I64, Op::Load { size: Size::DW, base: merged, offset: 8 });
    let sum = b.binary(BinaryOp::Add, read, time);
    b.ret(sum);
    count(&optimised(b.finish()), |op| matches!(op, Op::Store { .. }))
}

#[test]
fn stores_that_no_merged_pointer_leads_to_are_gone() {
    assert_eq!(merged_stores(|_, _| {}), 1);
    let comm = |b: &mut Builder, pointer: Value| {
        let bytes = b.constant(Type::I64, 16);
        b.call(Type::I64, Callee::Helper(Helper::GetCurrentComm), vec![pointer, bytes]);
    };
    assert_eq!(merged_stores(comm), 3);
    let elsewhere = |b: &mut Builder, pointer: Value| {
        let variable = global(b, 8);
        b.effect(Op::Store { size: Size::DW, base: variable, offset: 0, value: pointer });
    };
    assert_eq!(merged_stores(elsewhere), 4);
}

/// The number of lookups that are left of two with the same key and something between them.
fn lookups(between: impl FnOnce(&mut Builder, Value, Value)) -> usize {
    let mut b = builder();
    let (first, second) = (b.slot(4), b.slot(4));
    let map = b.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Map(crate::hir::MapId::new(0))));
    let mut found = Vec::new();
    let mut between = Some(between);
    for slot in [first, second] {
        let key = stack(&mut b, slot, 0);
        let one = b.constant(Type::I32, 1);
        b.effect(Op::Store { size: Size::W, base: key, offset: 0, value: one });
        let callee = Callee::Helper(Helper::MapLookup);
        let entry = b.call(Type::Ptr(Origin::EntryOrNull), callee, vec![map, key]);
        found.push(b.value(Type::I32, Op::IsNull(entry)));
        if let Some(between) = between.take() {
            between(&mut b, map, key);
        }
    }
    let both = b.binary(BinaryOp::Add, found[0], found[1]);
    let wide = b.value(Type::I64, Op::ZeroExtend(both));
    b.ret(wide);
    let is_lookup = |op: &Op| matches!(op, Op::Call { callee: Callee::Helper(Helper::MapLookup), .. });
    count(&optimised(b.finish()), is_lookup)
}

#[test]
fn one_key_is_looked_up_once_unless_entries_come_or_go() {
    assert_eq!(lookups(|_, _, _| {}), 1);
    let update = |b: &mut Builder, map: Value, key: Value| {
        let flags = b.constant(Type::I64, 0);
        let callee = Callee::Helper(Helper::MapUpdate);
        b.effect(Op::Call { callee, args: vec![map, key, key, flags] });
    };
    assert_eq!(lookups(update), 2);
}

/// The slots of which a function has addresses after the passes, and the number of its stores.
fn slots_and_stores(function: MirFunction) -> (BTreeSet<Slot>, usize) {
    let left = ops(&optimised(function));
    let slots = left.iter().filter_map(|op| match op {
        Op::StackAddr { slot, .. } => Some(*slot),
        _ => None,
    });
    (slots.collect(), left.iter().filter(|op| matches!(op, Op::Store { .. })).count())
}

/// An update with copies of two slots as key and value; `between` runs when they have been copied.
fn updated(between: impl FnOnce(&mut Builder, Value, [Slot; 2])) -> (BTreeSet<Slot>, usize) {
    let mut b = builder();
    let argument = parameter(&mut b);
    let half = b.value(Type::I32, Op::Truncate(argument));
    let originals = [b.slot(8), b.slot(8)];
    let copies = [b.slot(8), b.slot(8)];
    for (original, copy) in originals.into_iter().zip(copies) {
        let from = stack(&mut b, original, 0);
        // In two parts, so that the load is not one of a known value.
        b.effect(Op::Store { size: Size::W, base: from, offset: 0, value: half });
        b.effect(Op::Store { size: Size::W, base: from, offset: 4, value: half });
        let value = b.value(Type::I64, Op::Load { size: Size::DW, base: from, offset: 0 });
        let to = stack(&mut b, copy, 0);
        b.effect(Op::Store { size: Size::DW, base: to, offset: 0, value });
    }
    let map = b.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Map(crate::hir::MapId::new(0))));
    between(&mut b, map, originals);
    let [key, value] = copies.map(|copy| stack(&mut b, copy, 0));
    let flags = b.constant(Type::I64, 0);
    let done = b.call(Type::I64, Callee::Helper(Helper::MapUpdate), vec![map, key, value, flags]);
    b.ret(done);
    slots_and_stores(b.finish())
}

#[test]
fn a_helper_reads_what_its_arguments_are_copies_of() {
    let (slots, stores) = updated(|_, _, _| {});
    assert_eq!((slots.len(), stores), (2, 4));
    // The key was copied before it changed, for another call.
    let (slots, stores) = updated(|b, map, [key, _]| {
        let (key, other) = (stack(b, key, 0), b.constant(Type::I32, 7));
        b.effect(Op::Store { size: Size::W, base: key, offset: 0, value: other });
        b.effect(Op::Call { callee: Callee::Helper(Helper::MapDelete), args: vec![map, key] });
    });
    assert_eq!((slots.len(), stores), (3, 6));
}

/// A record with a copy of what a helper has written; `between` runs before it is copied.
fn recorded(between: impl FnOnce(&mut Builder, Value)) -> (BTreeSet<Slot>, usize) {
    let mut b = builder();
    let ring = b.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Ring(crate::hir::RingId::new(0))));
    let (bytes, flags) = (b.constant(Type::I64, 24), b.constant(Type::I64, 0));
    let reserve = Callee::Helper(Helper::RingReserve);
    let record = b.call(Type::Ptr(Origin::MemoryOrNull), reserve, vec![ring, bytes, flags]);
    let null = b.value(Type::I32, Op::IsNull(record));
    let [none, some] = std::array::from_fn(|_| b.block());
    b.branch(null, none, some);
    b.switch_to_sealed(none);
    b.ret(flags);
    b.switch_to_sealed(some);
    let record = b.value(Type::Ptr(Origin::Memory), Op::NonNull(record));
    for offset in [0, 8, 16] {
        b.effect(Op::Store { size: Size::DW, base: record, offset, value: flags });
    }
    let name = b.slot(16);
    let (to, bytes) = (stack(&mut b, name, 0), b.constant(Type::I64, 16));
    b.effect(Op::Call { callee: Callee::Helper(Helper::GetCurrentComm), args: vec![to, bytes] });
    between(&mut b, record);
    for offset in [0, 8] {
        let value = b.value(Type::I64, Op::Load { size: Size::DW, base: to, offset });
        b.effect(Op::Store { size: Size::DW, base: record, offset: 8 + offset, value });
    }
    b.effect(Op::Call { callee: Callee::Helper(Helper::RingSubmit), args: vec![record, flags] });
    b.ret(bytes);
    slots_and_stores(b.finish())
}

#[test]
fn a_helper_fills_the_memory_that_its_result_is_copied_to() {
    // The record's first word, and the words that the helper may leave as they are for all that is known.
    assert_eq!(recorded(|_, _| {}), (BTreeSet::new(), 3));
    // The name in the record is read before it is replaced.
    let (slots, stores) = recorded(|b, record| {
        let before = b.value(Type::I64, Op::Load { size: Size::DW, base: record, offset: 8 });
        b.effect(Op::Store { size: Size::DW, base: record, offset: 0, value: before });
    });
    assert_eq!(slots.len(), 1);
    assert!(stores >= 3);
}

#[test]
fn a_store_to_a_record_that_a_later_one_replaces_is_gone() {
    let (_, stores) = recorded(|b, record| {
        let number = b.call(Type::I64, Callee::Helper(Helper::KtimeGetNs), Vec::new());
        b.effect(Op::Store { size: Size::DW, base: record, offset: 0, value: number });
    });
    // All of the record is written once.
    assert_eq!(stores, 3);
}

#[test]
fn constants_of_an_address_are_the_accesss_own() {
    let mut b = builder();
    let entry = b.entry();
    let pointer = b.param(entry, Type::Ptr(Origin::Entry));
    let index = b.param(entry, Type::I64);
    let eight = b.constant(Type::I64, 8);
    let field = b.value(Type::Ptr(Origin::Entry), Op::PtrAdd(pointer, eight));
    let base = b.value(Type::Ptr(Origin::Entry), Op::PtrAdd(field, index));
    let value = b.value(Type::I64, Op::Load { size: Size::DW, base, offset: 4 });
    b.ret(value);
    let left = ops(&optimised(b.finish()));
    assert!(matches!(left.as_slice(), [Op::PtrAdd(..), Op::Load { offset: 12, .. }]), "{left:?}");
}

#[test]
fn arithmetic_in_two_steps_is_one() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let more = b.binary_const(BinaryOp::Sub, argument, 3);
    let even = b.binary_const(BinaryOp::Add, more, 10);
    let eighth = b.binary_const(BinaryOp::UDiv, even, 8);
    b.ret(eighth);
    let left = ops(&optimised(b.finish()));
    let is = |op: BinaryOp| left.iter().any(|one| matches!(one, Op::Binary(found, ..) if *found == op));
    // 7 is added as a subtraction.
    let is_seven_less = left.contains(&Op::Const(7u64.wrapping_neg()));
    assert!(is(BinaryOp::Sub) && is(BinaryOp::LShr) && is_seven_less, "{left:?}");
    assert_eq!(left.iter().filter(|op| !op.is_leaf()).count(), 2, "{left:?}");
}

#[test]
fn a_jump_with_a_constant_bypasses_the_branch_on_it() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let flag = b.variable(Type::I32);
    let big = b.compare_const(Condition::Gt, argument, 5);
    let [yes, no, join, then, otherwise] = std::array::from_fn(|_| b.block());
    b.branch(big, yes, no);
    for (block, value) in [(yes, 1), (no, 0)] {
        b.switch_to_sealed(block);
        let address = global(&mut b, 0);
        b.effect(Op::AtomicAdd { size: Size::DW, base: address, offset: 8 * value as i16, value: argument });
        let value = b.constant(Type::I32, value);
        b.set(flag, value);
        b.jump(join);
    }
    b.switch_to_sealed(join);
    let asked = b.get(flag);
    b.branch(asked, then, otherwise);
    for (block, value) in [(then, 10), (otherwise, 20)] {
        b.switch_to_sealed(block);
        let value = b.constant(Type::I64, value);
        b.ret(value);
    }
    let function = optimised(b.finish());
    assert_eq!(function.reverse_postorder().len(), 3);
}

#[test]
fn identical_blocks_are_merged() {
    let mut b = builder();
    let argument = parameter(&mut b);
    let [a, c, d] = std::array::from_fn(|_| b.block());
    let small = b.compare_const(Condition::Lt, argument, 5);
    b.branch(small, a, c);
    b.switch_to_sealed(c);
    let address = global(&mut b, 0);
    let large = b.value(Type::I32, Op::Load { size: Size::W, base: address, offset: 0 });
    let e = b.block();
    b.branch(large, d, e);
    for (block, value) in [(a, 1), (d, 1), (e, 2)] {
        b.switch_to_sealed(block);
        let value = b.constant(Type::I64, value);
        b.ret(value);
    }
    assert_eq!(optimised(b.finish()).reverse_postorder().len(), 4);
}

/// A function with two operations before a branch: the second one takes the first one's result. One path reads
/// the second; the other one reads the first if `other` is true. Returns how many stay before the branch.
fn left_before_a_branch(other: bool) -> usize {
    let mut b = builder();
    let argument = parameter(&mut b);
    let product = b.binary_const(BinaryOp::Mul, argument, 7);
    let mixed = b.binary_const(BinaryOp::Xor, product, 9);
    let [then, otherwise] = std::array::from_fn(|_| b.block());
    let small = b.compare_const(Condition::Lt, argument, 5);
    b.branch(small, then, otherwise);
    b.switch_to_sealed(then);
    b.ret(mixed);
    b.switch_to_sealed(otherwise);
    let zero = b.constant(Type::I64, 0);
    b.ret(if other { product } else { zero });
    let function = optimised(b.finish());
    let entry = &function.blocks[function.entry()];
    entry.insts.iter().filter(|inst| matches!(inst.op, Op::Binary(..))).count()
}

#[test]
fn an_operation_that_only_one_path_reads_is_executed_there() {
    assert_eq!([left_before_a_branch(false), left_before_a_branch(true)], [0, 1]);
}

#[test]
fn task_ids_are_read_once_in_a_run() {
    let mut b = builder();
    let kinds = [TaskId::Process, TaskId::Process, TaskId::Thread];
    let [first, again, thread] = kinds.map(|id| b.call(Type::I32, Callee::TaskId(id), Vec::new()));
    let mixed = b.binary(BinaryOp::Mul, first, again);
    let mixed = b.binary(BinaryOp::Xor, mixed, thread);
    let wide = b.value(Type::I64, Op::ZeroExtend(mixed));
    b.ret(wide);
    let ops = ops(&optimised(b.finish()));
    let calls = |callee: &dyn Fn(&Callee) -> bool| {
        ops.iter().filter(|op| matches!(op, Op::Call { callee: called, .. } if callee(called))).count()
    };
    assert_eq!(calls(&|callee| *callee == Callee::Helper(Helper::GetCurrentPidTgid)), 2);
    assert_eq!(calls(&|callee| matches!(callee, Callee::Function(_))), 2);
    assert_eq!(calls(&|callee| matches!(callee, Callee::TaskId(_))), 0);
}

/// Whether a byte, changed by an operation, is known to be below a limit.
fn is_known_below(op: BinaryOp, right: u64, limit: u64) -> bool {
    let mut b = builder();
    let number = parameter(&mut b);
    let byte = b.binary_const(BinaryOp::And, number, 0xff);
    let changed = b.binary_const(op, byte, right);
    let holds = b.compare_const(Condition::Lt, changed, limit);
    let wide = b.value(Type::I64, Op::ZeroExtend(holds));
    b.ret(wide);
    ops(&optimised(b.finish())) == [Op::Const(1)]
}

#[test]
fn bounds_follow_shifts_products_and_joined_bits() {
    for (op, right, most) in [
        (BinaryOp::Shl, 2, 0xff << 2),
        (BinaryOp::Shl, 55, 0xff << 55),
        (BinaryOp::Mul, 1000, 255_000),
        (BinaryOp::Or, 0x100, 0x1ff),
    ] {
        assert!(is_known_below(op, right, most + 1), "{op:?} {right}");
        assert!(!is_known_below(op, right, most), "{op:?} {right}");
    }
    // What may overflow has no bounds.
    assert!(!is_known_below(BinaryOp::Shl, 60, u64::MAX));
    assert!(!is_known_below(BinaryOp::Mul, (1 << 40) + 1, u64::MAX));
}

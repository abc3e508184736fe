//! Every rule, where it applies and where it must not; numbers compared with arithmetic of 128 bits.

use super::*;
use crate::hir::GlobalId;
use crate::index::Id as _;
use crate::kernel::mir::Origin;
use crate::kernel::mir::builder::Builder;

const ALL: [BinaryOp; 13] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::UDiv,
    BinaryOp::URem,
    BinaryOp::SDiv,
    BinaryOp::SRem,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::Shl,
    BinaryOp::LShr,
    BinaryOp::AShr,
];
const CONDITIONS: [Condition; 10] = [
    Condition::Eq,
    Condition::Ne,
    Condition::Lt,
    Condition::Le,
    Condition::Gt,
    Condition::Ge,
    Condition::SLt,
    Condition::SLe,
    Condition::SGt,
    Condition::SGe,
];
const NUMBERS: [u64; 17] = [
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    32,
    33,
    63,
    255,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 6,
];

/// Returns all pairs of numbers of a width.
fn pairs(width: u32) -> impl Iterator<Item = (u64, u64)> {
    let numbers = move || NUMBERS.into_iter().map(move |number| number & of_ones(width));
    numbers().flat_map(move |a| numbers().map(move |b| (a, b)))
}

fn of_ones(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

fn as_signed(width: u32, bits: u64) -> i128 {
    let number = i128::from(bits);
    if number >> (width - 1) == 0 { number } else { number - (1 << width) }
}

/// Returns the exact result; none for a divisor that no such operation has.
fn exact(op: BinaryOp, width: u32, a: u64, b: u64) -> Option<i128> {
    let (x, y) = (as_signed(width, a), as_signed(width, b));
    let (a, b) = (i128::from(a), i128::from(b));
    let amount = (b % i128::from(width)) as u32;
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        // The product of the unsigned numbers needs 128 bits without a sign.
        BinaryOp::Mul => x * y,
        BinaryOp::UDiv => a.checked_div(b).unwrap_or(0),
        BinaryOp::URem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::SDiv | BinaryOp::SRem if y == 0 || y == -1 => return None,
        BinaryOp::SDiv => x / y,
        BinaryOp::SRem => x % y,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << amount,
        BinaryOp::LShr => a >> amount,
        BinaryOp::AShr => x >> amount,
    })
}

#[test]
fn operations_on_constants_are_exact() {
    for (op, width) in ALL.into_iter().flat_map(|op| [(op, 32), (op, 64)]) {
        for (a, b) in pairs(width) {
            let Some(exact) = exact(op, width, a, b) else { continue };
            let expected = exact as u64 & of_ones(width);
            assert_eq!(evaluate(op, width, a, b), expected, "{op:?} {width} {a:#x} {b:#x}");
        }
    }
}

#[test]
fn comparisons_of_constants_are_exact() {
    for (condition, width) in CONDITIONS.into_iter().flat_map(|one| [(one, 32), (one, 64)]) {
        for (a, b) in pairs(width) {
            let (x, y) = (as_signed(width, a), as_signed(width, b));
            let expected = match condition {
                Condition::Eq => a == b,
                Condition::Ne => a != b,
                Condition::Lt => a < b,
                Condition::Le => a <= b,
                Condition::Gt => a > b,
                Condition::Ge => a >= b,
                Condition::SLt => x < y,
                Condition::SLe => x <= y,
                Condition::SGt => x > y,
                Condition::SGe => x >= y,
            };
            assert_eq!(holds(condition, width, a, b), expected, "{condition:?} {width} {a:#x} {b:#x}");
        }
    }
}

#[test]
fn numbers_are_narrowed_and_swapped_exactly() {
    for number in NUMBERS {
        let [low, high] = [number as u8, (number >> 8) as u8];
        assert_eq!(narrowed(number, 8, false), u64::from(low));
        assert_eq!(narrowed(number, 8, true), u64::from(low as i8 as i32 as u32));
        assert_eq!(narrowed(number, 16, false), u64::from(number as u16));
        assert_eq!(narrowed(number, 16, true), u64::from(number as i16 as i32 as u32));
        assert_eq!(swapped(number, 16), u64::from(u16::from_be_bytes([low, high])));
        assert_eq!(swapped(number, 32), u64::from((number as u32).swap_bytes()));
        assert_eq!(swapped(number, 64), number.swap_bytes());
    }
}

/// Values of a function: two parameters of 64 bits, one of 32 bits.
#[derive(Clone, Copy)]
struct Params {
    a: Value,
    b: Value,
    m: Value,
}

/// What a function returns after the pass.
#[derive(Debug, PartialEq, Eq)]
enum Returned {
    /// A value that existed before it: by its position among the parameters.
    Param(usize),
    Op(Op),
}

/// Builds a function that returns one expression, runs the pass, and returns what it returns then. Says whether the
/// pass reports a change.
fn folded_with(build: impl FnOnce(&mut Builder, Params) -> Value) -> (Returned, Params, bool) {
    let mut builder = super::super::tests::builder();
    let entry = builder.entry();
    let [a, b] = [Type::I64, Type::I64].map(|ty| builder.param(entry, ty));
    let m = builder.param(entry, Type::I32);
    let params = Params { a, b, m };
    let result = build(&mut builder, params);
    builder.ret(result);
    let mut function = builder.finish();
    let flow = Flow::new(&function);
    let changed = run(&mut function, &flow).any();
    let block = &function.blocks[entry];
    let crate::kernel::mir::Terminator::Return(value) = block.term else { panic!("it returns") };
    let defined = block.insts.iter().find(|inst| inst.result == Some(value));
    let returned = match defined {
        Some(inst) => Returned::Op(inst.op.clone()),
        None => Returned::Param([a, b, m].iter().position(|one| *one == value).expect("a parameter")),
    };
    (returned, params, changed)
}

fn folded(build: impl FnOnce(&mut Builder, Params) -> Value) -> Returned {
    folded_with(build).0
}

/// As [`folded`], for an operation on two operands.
fn binary(op: BinaryOp, operands: impl FnOnce(&mut Builder, Params) -> (Value, Value)) -> Returned {
    folded(|builder, params| {
        let (left, right) = operands(builder, params);
        let ty = builder.ty(left);
        builder.value(ty, Op::Binary(op, left, right))
    })
}

fn compared(condition: Condition, operands: impl FnOnce(&mut Builder, Params) -> (Value, Value)) -> Returned {
    folded(|builder, params| {
        let (left, right) = operands(builder, params);
        builder.value(Type::I32, Op::Compare(condition, left, right))
    })
}

fn constant(bits: u64) -> Returned {
    Returned::Op(Op::Const(bits))
}

#[test]
fn what_changes_nothing_is_not_reported() {
    let (returned, params, changed) =
        folded_with(|builder, Params { a, b, .. }| builder.value(Type::I64, Op::Binary(BinaryOp::Add, a, b)));
    assert_eq!(returned, Returned::Op(Op::Binary(BinaryOp::Add, params.a, params.b)));
    assert!(!changed);
    let (_, _, changed) = folded_with(|builder, Params { a, .. }| {
        let zero = builder.constant(Type::I64, 0);
        builder.value(Type::I64, Op::Binary(BinaryOp::Mul, a, zero))
    });
    assert!(changed);
    // A value that another one replaces is a change, too.
    let (_, _, changed) = folded_with(|builder, Params { a, .. }| {
        let zero = builder.constant(Type::I64, 0);
        builder.value(Type::I64, Op::Binary(BinaryOp::Add, a, zero))
    });
    assert!(changed);
}

#[test]
fn constants_are_computed_in_the_width_of_their_type() {
    let sum = |ty, left, right| {
        folded(|builder, _| {
            let (left, right) = (builder.constant(ty, left), builder.constant(ty, right));
            builder.value(ty, Op::Binary(BinaryOp::Add, left, right))
        })
    };
    assert_eq!(sum(Type::I32, 0xffff_ffff, 3), constant(2));
    assert_eq!(sum(Type::I64, 0xffff_ffff, 3), constant(0x1_0000_0002));
    let below = |ty, left, right| {
        folded(|builder, _| {
            let (left, right) = (builder.constant(ty, left), builder.constant(ty, right));
            builder.value(Type::I32, Op::Compare(Condition::SLt, left, right))
        })
    };
    assert_eq!(below(Type::I32, 0xffff_ffff, 3), constant(1));
    assert_eq!(below(Type::I64, 0xffff_ffff, 3), constant(0));
}

#[test]
fn neutral_operands_vanish_on_the_right_and_where_they_may_be_swapped_on_the_left() {
    let neutral: [(BinaryOp, u64, u64); 12] = [
        (BinaryOp::Add, 0, 1),
        (BinaryOp::Sub, 0, 1),
        (BinaryOp::Mul, 1, 2),
        (BinaryOp::UDiv, 1, 2),
        (BinaryOp::URem, 0, 1),
        (BinaryOp::SDiv, 1, 2),
        (BinaryOp::And, u64::MAX, u64::MAX - 1),
        (BinaryOp::Or, 0, 1),
        (BinaryOp::Xor, 0, 1),
        (BinaryOp::Shl, 64, 1),
        (BinaryOp::LShr, 0, 63),
        (BinaryOp::AShr, 128, 32),
    ];
    for (op, number, other) in neutral {
        let on_the_right =
            |number| binary(op, |builder, Params { a, .. }| (a, builder.constant(Type::I64, number)));
        assert_eq!(on_the_right(number), Returned::Param(0), "{op:?} {number}");
        assert!(
            matches!(on_the_right(other), Returned::Op(Op::Binary(kept, ..)) if kept == op),
            "{op:?} {other}"
        );
        let commutes =
            matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        let on_the_left = |number| {
            folded_with(|builder, Params { a, .. }| {
                let number = builder.constant(Type::I64, number);
                builder.value(Type::I64, Op::Binary(op, number, a))
            })
        };
        let (returned, params, _) = on_the_left(number);
        if commutes {
            assert_eq!(returned, Returned::Param(0), "{op:?} {number}");
            // A constant goes to the right.
            let (returned, params, _) = on_the_left(other);
            assert!(
                matches!(returned, Returned::Op(Op::Binary(kept, left, _)) if (kept, left) == (op, params.a)),
                "{op:?} {other}"
            );
        } else {
            assert!(
                matches!(returned, Returned::Op(Op::Binary(kept, _, right)) if (kept, right) == (op, params.a)),
                "{op:?} {number}"
            );
        }
    }
    // The amount of a shift counts modulo the width, and all ones are those of the width.
    let narrow =
        |op, number| binary(op, |builder, Params { m, .. }| (m, builder.constant(Type::I32, number)));
    assert_eq!(narrow(BinaryOp::Shl, 32), Returned::Param(2));
    assert!(matches!(narrow(BinaryOp::Shl, 33), Returned::Op(Op::Binary(BinaryOp::Shl, ..))));
    assert_eq!(narrow(BinaryOp::And, 0xffff_ffff), Returned::Param(2));
    assert!(matches!(narrow(BinaryOp::SRem, 0), Returned::Op(Op::Binary(BinaryOp::SRem, ..))));
}

#[test]
fn operations_on_one_value_twice_are_known() {
    for op in ALL {
        let expected = match op {
            BinaryOp::Sub | BinaryOp::Xor => constant(0),
            BinaryOp::And | BinaryOp::Or => Returned::Param(0),
            _ => {
                let twice = binary(op, |_, Params { a, .. }| (a, a));
                assert!(matches!(twice, Returned::Op(Op::Binary(kept, ..)) if kept == op), "{op:?}");
                continue;
            }
        };
        assert_eq!(binary(op, |_, Params { a, .. }| (a, a)), expected, "{op:?}");
        let of_two = binary(op, |_, Params { a, b, .. }| (a, b));
        assert!(matches!(of_two, Returned::Op(Op::Binary(kept, ..)) if kept == op), "{op:?}");
    }
}

#[test]
fn zero_absorbs_products_and_conjunctions_only() {
    for op in ALL {
        let with_zero = binary(op, |builder, Params { a, .. }| (a, builder.constant(Type::I64, 0)));
        let is_zero = with_zero == constant(0);
        assert_eq!(is_zero, matches!(op, BinaryOp::And | BinaryOp::Mul), "{op:?}");
    }
}

#[test]
fn a_mask_that_is_proven_vanishes() {
    let masked = |bits, mask| {
        folded(|builder, Params { m, .. }| {
            let value = builder.value(Type::I32, Op::Narrow { value: m, bits, signed: false });
            let mask = builder.constant(Type::I32, mask);
            builder.value(Type::I32, Op::Binary(BinaryOp::And, value, mask))
        })
    };
    let is_masked = |returned| matches!(returned, Returned::Op(Op::Binary(BinaryOp::And, ..)));
    let is_narrowed =
        |returned, wanted| matches!(returned, Returned::Op(Op::Narrow { bits, .. }) if bits == wanted);
    assert!(is_narrowed(masked(8, 0xff), 8));
    assert!(is_narrowed(masked(8, 0x3ff), 8));
    assert!(is_narrowed(masked(16, 0xffff), 16));
    assert!(is_masked(masked(8, 0x7f)));
    assert!(is_masked(masked(16, 0xff)));
    // Not one of the low bits alone, although it is large enough.
    assert!(is_masked(masked(8, 0x1fe)));
    // Another operation with the same numbers does something.
    let added = folded(|builder, Params { m, .. }| {
        let value = builder.value(Type::I32, Op::Narrow { value: m, bits: 8, signed: false });
        let number = builder.constant(Type::I32, 0xff);
        builder.value(Type::I32, Op::Binary(BinaryOp::Add, value, number))
    });
    assert!(matches!(added, Returned::Op(Op::Binary(BinaryOp::Add, ..))));
}

#[test]
fn a_test_is_negated_by_one_and_by_nothing_else() {
    let turned = |op, number| {
        folded(|builder, Params { a, b, .. }| {
            let test = builder.value(Type::I32, Op::Compare(Condition::Lt, a, b));
            let number = builder.constant(Type::I32, number);
            builder.value(Type::I32, Op::Binary(op, test, number))
        })
    };
    assert!(matches!(turned(BinaryOp::Xor, 1), Returned::Op(Op::Compare(Condition::Ge, ..))));
    assert!(matches!(turned(BinaryOp::Xor, 2), Returned::Op(Op::Binary(BinaryOp::Xor, ..))));
    assert!(matches!(turned(BinaryOp::Add, 1), Returned::Op(Op::Binary(BinaryOp::Add, ..))));
    let of_number = binary(BinaryOp::Xor, |builder, Params { m, .. }| (m, builder.constant(Type::I32, 1)));
    assert!(matches!(of_number, Returned::Op(Op::Binary(BinaryOp::Xor, ..))));
}

#[test]
fn a_value_compared_with_itself_is_known() {
    for condition in CONDITIONS {
        let equal = matches!(
            condition,
            Condition::Eq | Condition::Le | Condition::Ge | Condition::SLe | Condition::SGe
        );
        assert_eq!(
            compared(condition, |_, Params { a, .. }| (a, a)),
            constant(equal.into()),
            "{condition:?}"
        );
        let two = compared(condition, |_, Params { a, b, .. }| (a, b));
        assert!(matches!(two, Returned::Op(Op::Compare(kept, ..)) if kept == condition), "{condition:?}");
    }
}

#[test]
fn a_test_compared_with_a_bit_is_the_test_or_its_opposite() {
    let of_test = |condition, number| {
        folded(|builder, Params { a, b, .. }| {
            let test = builder.value(Type::I32, Op::Compare(Condition::Lt, a, b));
            let number = builder.constant(Type::I32, number);
            builder.value(Type::I32, Op::Compare(condition, test, number))
        })
    };
    let is = |returned: &Returned, wanted| matches!(returned, Returned::Op(Op::Compare(kept, ..)) if *kept == wanted);
    for (condition, number, expected) in [
        (Condition::Eq, 1, Condition::Lt),
        (Condition::Ne, 0, Condition::Lt),
        (Condition::Eq, 0, Condition::Ge),
        (Condition::Ne, 1, Condition::Ge),
        // None of these is about a bit.
        (Condition::Eq, 2, Condition::Eq),
        (Condition::Ne, 2, Condition::Ne),
        (Condition::Lt, 1, Condition::Lt),
        (Condition::Ge, 1, Condition::Ge),
        // Nothing is below zero: the same as to differ from it.
        (Condition::Gt, 0, Condition::Ne),
    ] {
        let returned = of_test(condition, number);
        assert!(is(&returned, expected), "{condition:?} {number}: {returned:?}");
    }
    // The comparison of two numbers stays, where the number is no test.
    let of_number = compared(Condition::Eq, |builder, Params { m, .. }| (m, builder.constant(Type::I32, 1)));
    assert!(is(&of_number, Condition::Eq));
    let null = folded(|builder, _| {
        let pointer = builder.param(builder.entry(), Type::Ptr(Origin::EntryOrNull));
        let test = builder.value(Type::I32, Op::IsNull(pointer));
        let zero = builder.constant(Type::I32, 0);
        builder.value(Type::I32, Op::Compare(Condition::Eq, test, zero))
    });
    // It has no opposite operation.
    assert!(is(&null, Condition::Eq));
}

#[test]
fn a_constant_goes_to_the_right_of_a_comparison() {
    for condition in CONDITIONS {
        let (returned, params, _) = folded_with(|builder, Params { m, .. }| {
            let number = builder.constant(Type::I32, 9);
            builder.value(Type::I32, Op::Compare(condition, number, m))
        });
        let Returned::Op(Op::Compare(swapped, left, _)) = returned else { panic!("{condition:?}") };
        assert_eq!((swapped, left), (condition.swapped(), params.m));
    }
    let above = |number| {
        compared(Condition::Gt, |builder, Params { m, .. }| (m, builder.constant(Type::I32, number)))
    };
    assert!(matches!(above(0), Returned::Op(Op::Compare(Condition::Ne, ..))));
    assert!(matches!(above(1), Returned::Op(Op::Compare(Condition::Gt, ..))));
    let at_least = compared(Condition::Ge, |builder, Params { m, .. }| (m, builder.constant(Type::I32, 0)));
    assert!(matches!(at_least, Returned::Op(Op::Compare(Condition::Ge, ..))));
}

#[test]
fn casts_of_constants_are_exact_and_casts_back_vanish() {
    let cast = |from, to, bits, op: fn(Value) -> Op| {
        folded(|builder, _| {
            let number = builder.constant(from, bits);
            builder.value(to, op(number))
        })
    };
    assert_eq!(cast(Type::I32, Type::I64, 0x8000_0001, Op::SignExtend), constant(0xffff_ffff_8000_0001));
    assert_eq!(cast(Type::I32, Type::I64, 0x8000_0001, Op::ZeroExtend), constant(0x8000_0001));
    assert_eq!(cast(Type::I64, Type::I32, 0x12_3456_7890, Op::Truncate), constant(0x3456_7890));
    assert_eq!(cast(Type::I64, Type::I64, 0x12_3456_7890, Op::Address), constant(0x12_3456_7890));
    let back = |extend: fn(Value) -> Op| {
        folded(|builder, Params { m, .. }| {
            let wide = builder.value(Type::I64, extend(m));
            builder.value(Type::I32, Op::Truncate(wide))
        })
    };
    assert_eq!(back(Op::ZeroExtend), Returned::Param(2));
    assert_eq!(back(Op::SignExtend), Returned::Param(2));
    let narrowed = |bits, signed, outer, outer_signed| {
        folded(|builder, Params { m, .. }| {
            let inner = builder.value(Type::I32, Op::Narrow { value: m, bits, signed });
            builder.value(Type::I32, Op::Narrow { value: inner, bits: outer, signed: outer_signed })
        })
    };
    let of = |returned: &Returned, params: Value| matches!(returned, Returned::Op(Op::Narrow { value, .. }) if *value == params);
    let (_, params, _) = folded_with(|_, Params { m, .. }| m);
    assert!(of(&narrowed(8, false, 8, false), params.m), "the inner one is enough");
    assert!(!of(&narrowed(8, false, 8, true), params.m));
    assert!(!of(&narrowed(16, false, 8, false), params.m));
    let number = folded(|builder, _| {
        let number = builder.constant(Type::I32, 0x1_80);
        builder.value(Type::I32, Op::Narrow { value: number, bits: 8, signed: true })
    });
    assert_eq!(number, constant(0xffff_ff80));
}

#[test]
fn swapped_bytes_are_narrow_if_they_are_two() {
    let swapped_and_narrowed = |swapped, bits, signed| {
        folded(|builder, Params { m, .. }| {
            let value = builder.value(Type::I32, Op::SwapBytes { value: m, bits: swapped });
            builder.value(Type::I32, Op::Narrow { value, bits, signed })
        })
    };
    assert!(matches!(swapped_and_narrowed(16, 16, false), Returned::Op(Op::SwapBytes { .. })));
    for (swapped, bits, signed) in [(16, 16, true), (16, 8, false), (32, 16, false)] {
        let returned = swapped_and_narrowed(swapped, bits, signed);
        assert!(matches!(returned, Returned::Op(Op::Narrow { .. })), "{swapped} {bits} {signed}");
    }
    let number = folded(|builder, _| {
        let number = builder.constant(Type::I32, 0x1234);
        builder.value(Type::I32, Op::SwapBytes { value: number, bits: 16 })
    });
    assert_eq!(number, constant(0x3412));
}

#[test]
fn a_bound_that_holds_vanishes() {
    let bounded = |number, bound| {
        folded(|builder, _| {
            let value = builder.constant(Type::I32, number);
            builder.value(Type::I32, Op::Below { value, bound })
        })
    };
    assert_eq!(bounded(6, 7), constant(6));
    assert!(matches!(bounded(7, 7), Returned::Op(Op::Below { .. })));
    assert!(matches!(bounded(8, 7), Returned::Op(Op::Below { .. })));
    let hidden = |zero| {
        folded(|builder, Params { a, .. }| {
            let zero = builder.constant(Type::I64, zero);
            builder.value(Type::I64, Op::Opaque { value: a, zero })
        })
    };
    assert_eq!(hidden(0), Returned::Param(0));
    assert!(matches!(hidden(1), Returned::Op(Op::Opaque { .. })));
}

#[test]
fn pointers_that_cannot_be_null_are_not_tested() {
    let tested = |origin, op: fn(Value) -> Op, ty| {
        folded_with(|builder, _| {
            let pointer = builder.param(builder.entry(), Type::Ptr(origin));
            let test = builder.value(ty, op(pointer));
            builder.value(Type::I64, Op::ZeroExtend(test))
        })
        .0
    };
    assert_eq!(tested(Origin::Entry, Op::IsNull, Type::I32), constant(0));
    assert!(matches!(tested(Origin::EntryOrNull, Op::IsNull, Type::I32), Returned::Op(Op::ZeroExtend(_))));
    let null = folded(|builder, _| {
        let pointer = builder.constant(Type::Ptr(Origin::EntryOrNull), 0);
        builder.value(Type::I32, Op::IsNull(pointer))
    });
    assert_eq!(null, constant(1));
    let other = folded(|builder, _| {
        let pointer = builder.constant(Type::Ptr(Origin::EntryOrNull), 8);
        builder.value(Type::I32, Op::IsNull(pointer))
    });
    assert!(matches!(other, Returned::Op(Op::IsNull(_))));
    let known = |origin| {
        folded(|builder, _| {
            let slot = builder.slot(8);
            let address = builder.value(Type::Ptr(origin), Op::StackAddr { slot, offset: 0 });
            builder.value(Type::Ptr(Origin::Memory), Op::NonNull(address))
        })
    };
    assert!(matches!(known(Origin::Stack), Returned::Op(Op::StackAddr { .. })));
    assert!(matches!(known(Origin::MemoryOrNull), Returned::Op(Op::NonNull(_))));
}

#[test]
fn addresses_move_within_their_memory() {
    let of_slot = |start, bytes| {
        folded(|builder, _| {
            let slot = builder.slot(16);
            let base = builder.value(Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: start });
            let bytes = builder.constant(Type::I64, bytes);
            builder.value(Type::Ptr(Origin::Stack), Op::PtrAdd(base, bytes))
        })
    };
    let slot_at = |returned| match returned {
        Returned::Op(Op::StackAddr { offset, .. }) => Some(offset),
        _ => None,
    };
    assert_eq!(slot_at(of_slot(4, 0)), Some(4));
    assert_eq!(slot_at(of_slot(4, 8)), Some(12));
    assert_eq!(slot_at(of_slot(4, 12)), Some(16));
    assert_eq!(slot_at(of_slot(4, 13)), None);
    assert_eq!(slot_at(of_slot(4, (-4_i64).cast_unsigned())), Some(0));
    assert_eq!(slot_at(of_slot(4, (-5_i64).cast_unsigned())), None);
    let of_global = |start, bytes| {
        folded(|builder, _| {
            let global = GlobalId::new(0);
            let base = builder.value(Type::Ptr(Origin::Global), Op::GlobalAddr { global, offset: start });
            let bytes = builder.constant(Type::I64, bytes);
            builder.value(Type::Ptr(Origin::Global), Op::PtrAdd(base, bytes))
        })
    };
    let global_at = |returned| match returned {
        Returned::Op(Op::GlobalAddr { offset, .. }) => Some(offset),
        _ => None,
    };
    assert_eq!(global_at(of_global(4, 100)), Some(104));
    assert_eq!(global_at(of_global(4, u64::from(u32::MAX))), None);
    let unknown = folded(|builder, Params { a, .. }| {
        let slot = builder.slot(16);
        let base = builder.value(Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
        builder.value(Type::Ptr(Origin::Stack), Op::PtrAdd(base, a))
    });
    assert!(matches!(unknown, Returned::Op(Op::PtrAdd(..))));
    let of_entry = folded(|builder, _| {
        let base = builder.param(builder.entry(), Type::Ptr(Origin::Entry));
        let bytes = builder.constant(Type::I64, 8);
        builder.value(Type::Ptr(Origin::Entry), Op::PtrAdd(base, bytes))
    });
    assert!(matches!(of_entry, Returned::Op(Op::PtrAdd(..))));
}

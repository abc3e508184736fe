//! Operators on two scalars. Both operands are on the stack, the right one on top, and both are normal.

use wasm_encoder::Instruction as I;

use super::code::{Var, WasmCode};
use super::scalar::{is_wide, normalise, push_const, val_type};
use crate::hir::BinaryOp;
use crate::types::IntType;

/// Scratch locals for the operands of a division.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// Local for the left operand.
    pub left: Var,
    /// Local for the right operand.
    pub right: Var,
}

/// Selects the 32-bit or the 64-bit instruction.
macro_rules! by_width {
    ($int:expr, $narrow:ident, $wide:ident) => {
        if is_wide($int) { I::$wide } else { I::$narrow }
    };
}

/// Selects the instruction by width and sign.
macro_rules! by_sign {
    ($int:expr, $u32:ident, $s32:ident, $u64:ident, $s64:ident) => {
        if $int.signed { by_width!($int, $s32, $s64) } else { by_width!($int, $u32, $u64) }
    };
}

/// Applies an operator. `operands` are two locals of the operands' type, which divisions need. The result is
/// normal.
pub fn binary(code: &mut WasmCode, op: BinaryOp, int: IntType, operands: Option<Operands>) {
    match (op, operands) {
        (BinaryOp::Div, Some(operands)) => return divide(code, int, operands),
        (BinaryOp::Rem, Some(operands)) => return remainder(code, int, operands),
        (BinaryOp::Max, Some(operands)) => return greater(code, int, operands),
        (BinaryOp::Div | BinaryOp::Rem | BinaryOp::Max, None) => {
            panic!("a division and a maximum have two locals for their operands")
        }
        (BinaryOp::Shl | BinaryOp::Shr, _) => reduce_amount(code, int),
        _ => {}
    }
    code.op(instruction(op, int));
    if !op.is_comparison() {
        normalise(code, int);
    }
}

/// Returns the bare instruction of an operator.
pub fn instruction(op: BinaryOp, int: IntType) -> I<'static> {
    match op {
        BinaryOp::Add => by_width!(int, I32Add, I64Add),
        BinaryOp::Sub => by_width!(int, I32Sub, I64Sub),
        BinaryOp::Mul => by_width!(int, I32Mul, I64Mul),
        BinaryOp::Div => by_sign!(int, I32DivU, I32DivS, I64DivU, I64DivS),
        BinaryOp::Rem => by_sign!(int, I32RemU, I32RemS, I64RemU, I64RemS),
        BinaryOp::And => by_width!(int, I32And, I64And),
        BinaryOp::Or => by_width!(int, I32Or, I64Or),
        BinaryOp::Xor => by_width!(int, I32Xor, I64Xor),
        BinaryOp::Shl => by_width!(int, I32Shl, I64Shl),
        BinaryOp::Shr => by_sign!(int, I32ShrU, I32ShrS, I64ShrU, I64ShrS),
        BinaryOp::Eq => by_width!(int, I32Eq, I64Eq),
        BinaryOp::Ne => by_width!(int, I32Ne, I64Ne),
        BinaryOp::Lt => by_sign!(int, I32LtU, I32LtS, I64LtU, I64LtS),
        BinaryOp::Le => by_sign!(int, I32LeU, I32LeS, I64LeU, I64LeS),
        BinaryOp::Gt => by_sign!(int, I32GtU, I32GtS, I64GtU, I64GtS),
        BinaryOp::Ge => by_sign!(int, I32GeU, I32GeS, I64GeU, I64GeS),
        BinaryOp::Max => panic!("the greater of two numbers is more than one instruction"),
    }
}

/// The greater of two numbers.
fn greater(code: &mut WasmCode, int: IntType, Operands { left, right }: Operands) {
    code.set(right).tee(left).get(right).get(left).get(right);
    code.op(instruction(BinaryOp::Gt, int)).op(I::Select);
}

/// Division by zero yields 0. The smallest number divided by -1 wraps, where Wasm traps, so division by -1 is
/// a negation.
fn divide(code: &mut WasmCode, int: IntType, Operands { left, right }: Operands) {
    let ty = val_type(int);
    code.set(right).set(left);
    push_is_zero(code, int, right);
    code.if_value(ty);
    push_const(code, int, 0);
    code.else_();
    if int.signed {
        code.get(right);
        push_const(code, int, u64::MAX);
        code.op(instruction(BinaryOp::Eq, int)).if_value(ty);
        push_const(code, int, 0);
        code.get(left).op(instruction(BinaryOp::Sub, int)).else_();
    }
    code.get(left).get(right).op(instruction(BinaryOp::Div, int));
    if int.signed {
        code.end();
    }
    code.end();
    normalise(code, int);
}

/// The remainder by zero is the left operand.
fn remainder(code: &mut WasmCode, int: IntType, Operands { left, right }: Operands) {
    code.set(right).set(left);
    push_is_zero(code, int, right);
    code.if_value(val_type(int));
    code.get(left).else_();
    code.get(left).get(right).op(instruction(BinaryOp::Rem, int)).end();
}

fn push_is_zero(code: &mut WasmCode, int: IntType, var: Var) {
    code.get(var).op(by_width!(int, I32Eqz, I64Eqz));
}

/// Wasm takes the amount modulo 32 or 64; narrower types need their own width.
fn reduce_amount(code: &mut WasmCode, int: IntType) {
    if int.bits < 32 {
        code.i32(i32::from(int.bits) - 1).op(I::I32And);
    }
}

#[cfg(test)]
mod tests {
    use wasmi::{Engine, Linker, Store, Val};

    use super::super::module::Module;
    use super::super::scalar::convert;
    use super::*;

    const OPS: [BinaryOp; 17] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Rem,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
        BinaryOp::Shl,
        BinaryOp::Shr,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
        BinaryOp::Gt,
        BinaryOp::Ge,
        BinaryOp::Max,
    ];

    fn int_types() -> impl Iterator<Item = IntType> {
        [8, 16, 32, 64].into_iter().flat_map(|bits| [false, true].map(|signed| IntType { bits, signed }))
    }

    /// Bit patterns of a type near the limits of its arithmetic.
    fn edges(int: IntType) -> Vec<u64> {
        let top = 1_u64 << (int.bits - 1);
        let near = [0, 1, 2, 3, 7, 31, 63, top - 1, top, top + 1, 0x55, 0xaaaa, u64::MAX - 1, u64::MAX];
        near.map(|bits| int.truncate(bits)).to_vec()
    }

    /// Computes the language's result in 128 bits.
    fn oracle(op: BinaryOp, int: IntType, left: u64, right: u64) -> u64 {
        let (a, b) = (int.value(left), int.value(right));
        let amount = right % u64::from(int.bits);
        let exact = match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => (a as u128).wrapping_mul(b as u128) as i128,
            BinaryOp::Div => a.checked_div(b).unwrap_or(0),
            BinaryOp::Rem => a.checked_rem(b).unwrap_or(a),
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::Shl => a << amount,
            BinaryOp::Shr => a >> amount,
            BinaryOp::Eq => (a == b).into(),
            BinaryOp::Ne => (a != b).into(),
            BinaryOp::Lt => (a < b).into(),
            BinaryOp::Le => (a <= b).into(),
            BinaryOp::Gt => (a > b).into(),
            BinaryOp::Ge => (a >= b).into(),
            BinaryOp::Max => a.max(b),
        };
        if op.is_comparison() { exact as u64 } else { int.truncate(exact as u64) }
    }

    /// Returns the normal value of these bits.
    fn normal(int: IntType, bits: u64) -> Val {
        let value = int.value(bits);
        if is_wide(int) { Val::I64(value as i64) } else { Val::I32(value as i32) }
    }

    /// Runs a function of one signature over pairs of values.
    fn check(
        code: WasmCode,
        params: [IntType; 2],
        result: IntType,
        cases: impl Iterator<Item = (u64, u64, u64)>,
    ) {
        let mut module = Module::new();
        let run = module.declare("run", &params.map(val_type), &[val_type(result)]);
        module.define(run, code, None);
        module.export("run", run);
        let engine = Engine::default();
        let module = wasmi::Module::new(&engine, module.finish()).expect("a valid module");
        let mut store = Store::new(&engine, ());
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module).expect("instantiates");
        let run = instance.get_func(&store, "run").expect("exported");
        for (left, right, expected) in cases {
            let mut out = [Val::I32(0)];
            let args = [normal(params[0], left), normal(params[1], right)];
            run.call(&mut store, &args, &mut out).expect("no operator traps");
            let (got, expected) = (format!("{:?}", out[0]), format!("{:?}", normal(result, expected)));
            assert_eq!(got, expected, "{params:?} -> {result}: {left:#x}, {right:#x}");
        }
    }

    #[test]
    fn operators_agree_with_the_language() {
        const BOOL: IntType = IntType { bits: 8, signed: false };
        for op in OPS {
            for int in int_types() {
                let mut code = WasmCode::new(2);
                let operands =
                    Some(Operands { left: code.local(val_type(int)), right: code.local(val_type(int)) });
                code.get(Var(0)).get(Var(1));
                binary(&mut code, op, int, operands);
                let pairs = edges(int).into_iter().flat_map(|left| {
                    edges(int).into_iter().map(move |right| (left, right, oracle(op, int, left, right)))
                });
                check(code, [int; 2], if op.is_comparison() { BOOL } else { int }, pairs);
            }
        }
    }

    #[test]
    fn conversions_agree_with_the_language() {
        for from in int_types() {
            for to in int_types() {
                let mut code = WasmCode::new(2);
                code.get(Var(0));
                convert(&mut code, from, to);
                let cases =
                    edges(from).into_iter().map(|bits| (bits, 0, to.truncate(from.value(bits) as u64)));
                check(code, [from; 2], to, cases);
            }
        }
    }
}

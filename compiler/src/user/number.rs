//! Arithmetic builtins: byte order, `ratio` and `rate`.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::{Var, WasmCode, mem};
use super::cx::Lower;
use super::func::FnCx;
use super::perf;
use super::runtime::Routine;
use super::scalar::{normalise, val_type};
use crate::builtins::perf::reading;
use crate::hir::Expr;

/// Number of nanoseconds per second.
const NS_PER_S: i64 = 1_000_000_000;

impl FnCx<'_, '_> {
    /// Pushes an integer with its bytes reversed.
    pub fn swap_bytes(&mut self, value: &Expr) -> Lower<()> {
        let int = self.int(value.ty);
        self.scalar(value)?;
        let var = self.temp(val_type(int));
        match int.bits {
            16 => {
                self.code.tee(var).i32(8).op(I::I32Shl);
                self.code.get(var).i32(0xff00).op(I::I32And).i32(8).ops_of([I::I32ShrU, I::I32Or]);
                normalise(&mut self.code, int);
            }
            32 => {
                self.code.tee(var).i32(8).op(I::I32Rotl).u32(0x00ff_00ff).op(I::I32And);
                self.code.get(var).i32(8).op(I::I32Rotr).u32(0xff00_ff00).ops_of([I::I32And, I::I32Or]);
            }
            _ => {
                self.swap_neighbours(var, 8, 0x00ff_00ff_00ff_00ff);
                self.swap_neighbours(var, 16, 0x0000_ffff_0000_ffff);
                self.code.i64(32).op(I::I64Rotl);
            }
        }
        Ok(())
    }

    /// Swaps neighbouring groups of `bits` bits in the 64 bits on the stack; `low` masks the lower ones.
    fn swap_neighbours(&mut self, var: Var, bits: i64, low: i64) {
        self.code.tee(var).i64(low).op(I::I64And).i64(bits).op(I::I64Shl);
        self.code.get(var).i64(bits).op(I::I64ShrU).i64(low).ops_of([I::I64And, I::I64Or]);
    }

    /// Lowers `ratio(a, b, scale)`.
    pub fn ratio(&mut self, args: &[Expr; 3]) -> Lower<()> {
        let ratio = self.cx.routine(Routine::Ratio);
        args.iter().try_for_each(|arg| self.scalar(arg))?;
        self.code.call(ratio);
        Ok(())
    }

    /// Lowers `rate(before, now)`: also 0 if the count decreased, as after a reset of the counter.
    pub fn rate(&mut self, [before, now]: &[Expr; 2]) -> Lower<()> {
        let ratio = self.cx.routine(Routine::Ratio);
        let read = self.cx.hir.known.perf_read;
        let scaled = perf::field(self.cx, read, reading::SCALED);
        let time = perf::field(self.cx, read, reading::TIME_ENABLED);
        let from = self.stable_addr(before, std::slice::from_ref(now))?;
        let to = self.aggregate_addr(now)?;
        let counted = self.temp(ValType::I64);
        self.push_difference(to, from, scaled);
        self.code.tee(counted).i64(0).get(counted).i64(0).ops_of([I::I64GtS, I::Select]);
        self.push_difference(to, from, time);
        self.code.i64(NS_PER_S).call(ratio);
        Ok(())
    }

    fn push_difference(&mut self, to: Addr, from: Addr, offset: u32) {
        self.push_addr(to);
        self.code.op(I::I64Load(mem(offset)));
        self.push_addr(from);
        self.code.op(I::I64Load(mem(offset))).op(I::I64Sub);
    }
}

/// Emits the body of [`Routine::Ratio`]. The product has 128 bits; the quotient is truncated to 64.
pub fn ratio(code: &mut WasmCode) {
    let (left, divisor, scale) = (Var(0), Var(1), Var(2));
    let [low, high] = [(); 2].map(|()| code.local(ValType::I64));
    code.get(divisor).op(I::I64Eqz).if_();
    code.i64(0).op(I::Return).end();
    multiply_high(code, left, scale, high);
    code.get(left).get(scale).op(I::I64Mul).set(low);
    code.get(high).op(I::I64Eqz).if_();
    code.get(low).get(divisor).op(I::I64DivU).op(I::Return).end();
    divide_long(code, high, low, divisor);
}

/// Sets `high` to the upper 64 bits of the product of two numbers.
fn multiply_high(code: &mut WasmCode, left: Var, right: Var, high: Var) {
    const LOW: i64 = 0xffff_ffff;
    let [middle, product] = [(); 2].map(|()| code.local(ValType::I64));
    let low = |code: &mut WasmCode, var| {
        code.get(var).i64(LOW).op(I::I64And);
    };
    let upper = |code: &mut WasmCode, var| {
        code.get(var).i64(32).op(I::I64ShrU);
    };
    low(code, left);
    low(code, right);
    code.op(I::I64Mul).set(product);
    upper(code, left);
    low(code, right);
    code.op(I::I64Mul);
    upper(code, product);
    code.op(I::I64Add).set(middle);
    low(code, left);
    upper(code, right);
    code.op(I::I64Mul);
    low(code, middle);
    code.op(I::I64Add).set(product);
    upper(code, left);
    upper(code, right);
    code.op(I::I64Mul);
    upper(code, middle);
    upper(code, product);
    code.ops_of([I::I64Add, I::I64Add]).set(high);
}

/// Pushes the low 64 bits of a quotient, by long division.
fn divide_long(code: &mut WasmCode, rest: Var, low: Var, divisor: Var) {
    let [quotient, carry] = [(); 2].map(|()| code.local(ValType::I64));
    let left = code.local(ValType::I32);
    code.get(rest).get(divisor).op(I::I64RemU).set(rest);
    code.i32(64).set(left);
    let next = code.loop_();
    code.get(rest).i64(63).op(I::I64ShrU).set(carry);
    code.get(rest).i64(1).op(I::I64Shl).get(low).i64(63).ops_of([I::I64ShrU, I::I64Or]).set(rest);
    code.get(low).i64(1).op(I::I64Shl).set(low);
    code.get(quotient).i64(1).op(I::I64Shl).set(quotient);
    code.get(carry).ops_of([I::I32WrapI64]).get(rest).get(divisor).ops_of([I::I64GeU, I::I32Or]).if_();
    code.get(rest).get(divisor).op(I::I64Sub).set(rest);
    code.get(quotient).i64(1).op(I::I64Or).set(quotient).end();
    code.get(left).i32(1).op(I::I32Sub).tee(left).br_if(next).end();
    code.get(quotient);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wasmi::{Engine, Linker, Store};

    use super::super::module::Module;
    use super::*;

    /// Runs `ratio` in an interpreter.
    fn machine() -> impl Fn(u64, u64, u64) -> u64 {
        let mut code = WasmCode::new(3);
        ratio(&mut code);
        let mut module = Module::new();
        let run = module.declare("run", &[ValType::I64; 3], &[ValType::I64]);
        module.define(run, code, None);
        module.export("run", run);
        let engine = Engine::default();
        let module = wasmi::Module::new(&engine, module.finish()).expect("a valid module");
        move |a, b, scale| {
            let mut store = Store::new(&engine, ());
            let linker = Linker::new(&engine);
            let instance = linker.instantiate_and_start(&mut store, &module).expect("instantiates");
            let run = instance.get_typed_func::<(u64, u64, u64), u64>(&store, "run").expect("exported");
            run.call(&mut store, (a, b, scale)).expect("it does not trap")
        }
    }

    fn expected(a: u64, b: u64, scale: u64) -> u64 {
        let product = u128::from(a) * u128::from(scale);
        product.checked_div(b.into()).map_or(0, |quotient| quotient as u64)
    }

    #[test]
    fn ratio_is_worked_out_in_128_bits() {
        let run = machine();
        let edges = [0, 1, 2, 3, 1_000_000_007, 1 << 32, (1 << 32) - 1, 1 << 63, u64::MAX - 1, u64::MAX];
        for a in edges {
            for b in edges {
                for scale in edges {
                    assert_eq!(run(a, b, scale), expected(a, b, scale), "{a} * {scale} / {b}");
                }
            }
        }
        proptest!(|(a: u64, b: u64, shift in 0u32..64, scale: u64)| {
            prop_assert_eq!(run(a, b >> shift, scale), expected(a, b >> shift, scale));
        });
    }
}

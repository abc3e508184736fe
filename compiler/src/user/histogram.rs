//! Histograms: the slot of a value, and printing of the counts in the slots.

use wasm_encoder::{Instruction as I, ValType};

use super::cx::Lower;
use super::func::FnCx;
use super::runtime::{push_failed, reset_arena};
use crate::hir::{Expr, HistogramScale};
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::TypeKind;

impl FnCx<'_, '_> {
    /// Lowers `log2_slot(value)`: the number of significant bits.
    pub fn log2_slot(&mut self, value: &Expr) -> Lower<()> {
        self.code.i64(64);
        self.scalar(value)?;
        self.code.ops_of([I::I64Clz, I::I64Sub, I::I32WrapI64]);
        Ok(())
    }

    /// Lowers `linear_slot(value, low, step, slots)`: 0 below `low`, at most `slots - 1`. A step of 0 covers
    /// all numbers.
    pub fn linear_slot(&mut self, args: &[Expr; 4]) -> Lower<()> {
        let [value, low, step, last] = [(); 4].map(|()| self.temp(ValType::I64));
        for (arg, var) in args.iter().zip([value, low, step, last]) {
            self.scalar(arg)?;
            self.code.set(var);
        }
        let slot = self.temp(ValType::I64);
        self.code.get(last).i64(1).op(I::I64Sub).set(last);
        self.code.get(value).get(low).op(I::I64LtU).if_value(ValType::I64);
        self.code.i64(0).else_();
        self.code.get(step).op(I::I64Eqz).if_value(ValType::I64);
        self.code.i64(0).else_();
        self.code.get(value).get(low).op(I::I64Sub).get(step).op(I::I64DivU).end();
        // A quotient of 64 ones would wrap to 0.
        self.code.tee(slot).get(last).get(slot).get(last).ops_of([I::I64LtU, I::Select]);
        self.code.tee(slot).get(last).op(I::I64LtU).op(I::I64ExtendI32U).get(slot).op(I::I64Add).end();
        self.code.op(I::I32WrapI64);
        Ok(())
    }

    /// Lowers `print_log2_hist(title, counts)` and `print_linear_hist(title, counts, low, step)`.
    pub fn print_histogram(&mut self, title: &Expr, counts: &Expr, linear: Option<&[Expr; 2]>) -> Lower<()> {
        let print = self.cx.host(import::console::HISTOGRAM);
        let later: Vec<Expr> = std::iter::once(counts).chain(linear.into_iter().flatten()).cloned().collect();
        let text = self.stable_addr(title, &later)?;
        let slots = self.stable_addr(counts, &later[1..])?;
        self.push_text_at(text, title.ty);
        let scale = self.cx.abi.named("console", "scale");
        let (case, _) = scale.case(if linear.is_some() { "linear" } else { "log2" });
        self.code.u32(case);
        match linear {
            Some(numbers) => numbers.iter().try_for_each(|number| self.scalar(number))?,
            None => {
                self.code.i64(0).i64(0);
            }
        }
        self.push_addr(slots);
        self.code.u32(self.slots(counts)).call(print);
        Ok(())
    }

    /// Pushes the handle of new histograms.
    pub fn new_histograms(&mut self, name: &str, scale: HistogramScale) {
        let new = self.cx.host(import::console::HISTOGRAMS_NEW);
        let shape = self.cx.abi.named("console", "scale");
        let (case, low, step) = match scale {
            HistogramScale::Log2 => ("log2", 0, 0),
            HistogramScale::Linear { low, step, .. } => ("linear", low, step),
        };
        let (case, _) = shape.case(case);
        let name = self.cx.text(name);
        self.push_text(name);
        self.code.u32(case).i64(low as i64).i64(step as i64).call(new);
    }

    /// Appends a histogram, and warns if the host has no room for it.
    pub fn append_histogram(
        &mut self,
        histograms: &Expr,
        key: &[Expr],
        numbers: [&Expr; 2],
        counts: &Expr,
        span: Span,
    ) -> Lower<()> {
        let append = self.cx.host(import::console::HISTOGRAMS_APPEND);
        let err = self.cx.abi.result(import::console::HISTOGRAMS_APPEND).err().offset;
        let handle = self.temp(ValType::I32);
        self.scalar(histograms)?;
        self.code.set(handle);
        let values = self.printed(b"", key)?;
        let slots = self.aggregate_addr(counts)?;
        reset_arena(&mut self.code);
        self.code.get(handle);
        self.push_addr(values);
        self.code.u32(key.len() as u32);
        numbers.into_iter().try_for_each(|number| self.scalar(number))?;
        self.push_addr(slots);
        self.code.u32(self.slots(counts)).u32(self.cx.returned).call(append);
        push_failed(self.cx, &mut self.code);
        self.code.if_();
        self.warn_refused(err, span);
        self.code.end();
        Ok(())
    }

    /// Prints histograms, and drops their handle.
    pub fn write_histograms(&mut self, histograms: &Expr, top: Option<&Expr>) -> Lower<()> {
        let drop = self.cx.drop_handle(import::console::HISTOGRAMS);
        let handle = self.temp(ValType::I32);
        self.scalar(histograms)?;
        self.code.tee(handle);
        let write = if let Some(top) = top {
            self.scalar(top)?;
            import::console::HISTOGRAMS_WRITE_TOP
        } else {
            import::console::HISTOGRAMS_WRITE
        };
        let write = self.cx.host(write);
        self.code.call(write).get(handle).call(drop);
        Ok(())
    }

    fn slots(&self, counts: &Expr) -> u32 {
        match *self.cx.hir.types.kind(counts.ty) {
            TypeKind::Array(_, slots) => slots as u32,
            _ => 0,
        }
    }
}

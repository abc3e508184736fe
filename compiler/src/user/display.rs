//! Text of numbers and addresses of the kernel, which the host makes: `ipv4`, `syscall_name`, `ksym`, `strftime`.

use ks_wit::object::DisplayForm;
use wasm_encoder::Instruction as I;

use super::addr::Addr;
use super::code::{Var, mem};
use super::cx::Lower;
use super::func::FnCx;
use super::runtime::{Routine, reset_arena};
use super::scalar::val_type;
use crate::hir::Expr;
use crate::plugin::contract::{HostFunction, import};
use crate::types::TypeId;

/// An evaluated operand.
enum Operand {
    Number(Var),
    /// An address of a network, with its size in bytes.
    Bytes(Addr, u32),
}

impl FnCx<'_, '_> {
    /// Lowers a builtin of type `ty`, a string, and stores the result at `to`.
    pub fn display(&mut self, form: &DisplayForm, args: &[Expr], ty: TypeId, to: Addr) -> Lower<()> {
        let function = self.cx.host(host_function(form));
        let copy = self.cx.routine(Routine::CopyAnswer);
        let operands = args.iter().map(|arg| self.operand(arg)).collect::<Lower<Vec<Operand>>>()?;
        // The operands are complete: no other call of the host comes between.
        reset_arena(&mut self.code);
        let first: Option<&[u8]> = match form {
            DisplayForm::TimeOfDay(format) => Some(format),
            DisplayForm::Enumerator(of) => Some(of.as_bytes()),
            DisplayForm::KernelStack(map) | DisplayForm::ProcessStack(map) => Some(map.as_bytes()),
            _ => None,
        };
        if let Some(text) = first {
            let text = self.cx.text(text);
            self.push_text(text);
        }
        for operand in operands {
            match (operand, form) {
                (Operand::Number(number), _) => {
                    self.code.get(number);
                }
                (Operand::Bytes(address, _), DisplayForm::Ipv4) => {
                    self.push_addr(address);
                    self.code.op(I::I32Load(mem(0)));
                }
                (Operand::Bytes(address, bytes), _) => {
                    self.push_addr(address);
                    self.code.u32(bytes);
                }
            }
        }
        self.code.u32(self.cx.returned).call(function);
        self.push_addr(to);
        let size = self.cx.hir.types.size(ty) as u32;
        self.code.u32(size).call(copy);
        Ok(())
    }

    fn operand(&mut self, arg: &Expr) -> Lower<Operand> {
        match self.cx.hir.types.scalar(arg.ty) {
            Some(int) => {
                let var = self.temp(val_type(int));
                self.scalar(arg)?;
                self.code.set(var);
                Ok(Operand::Number(var))
            }
            None => {
                let bytes = self.cx.hir.types.size(arg.ty) as u32;
                Ok(Operand::Bytes(self.aggregate_addr(arg)?, bytes))
            }
        }
    }
}

/// Returns the function of the host that makes a text.
fn host_function(form: &DisplayForm) -> HostFunction {
    match form {
        DisplayForm::Ipv4 => import::display::IPV4,
        DisplayForm::Ipv6 => import::display::IPV6,
        DisplayForm::Mac => import::display::MAC,
        DisplayForm::SystemCall => import::display::SYSTEM_CALL,
        DisplayForm::Errno => import::display::ERRNO,
        DisplayForm::Signal => import::display::SIGNAL,
        DisplayForm::Capability => import::display::CAPABILITY,
        DisplayForm::Enumerator(_) => import::display::ENUMERATOR,
        DisplayForm::KernelFunction => import::symbols::KERNEL_FUNCTION,
        DisplayForm::ProcessFunction => import::symbols::PROCESS_FUNCTION,
        DisplayForm::KernelStack(_) => import::symbols::KERNEL_STACK,
        DisplayForm::ProcessStack(_) => import::symbols::PROCESS_STACK,
        DisplayForm::TimeOfDay(_) => import::display::TIME_OF_DAY,
        DisplayForm::Bytes => import::display::BYTES,
        DisplayForm::Duration => import::display::DURATION,
    }
}

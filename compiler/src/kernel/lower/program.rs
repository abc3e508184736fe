//! Lowers the parameters of programs: the context itself, or 64-bit words that the kernel passes in it, in
//! registers, on the stack, or through a pointer.

use ks_wit::section::Arch;

use super::super::mir::{BinaryOp, Condition, Op, Size, Type, Value};
use super::kernel_memory::Source;
use super::storage::KernelObject;
use super::{Lower, Lowerer, impossible, int_type};
use crate::defect::narrow;
use crate::hir::{FunctionKind, LocalId, ProgramKind, SystemCall, Target};
use crate::types::IntType;

/// The passing convention of a program's parameters other than the context.
enum Passing<'a> {
    /// There are none.
    Context,
    /// Words of the context, from this offset in bytes on.
    Words(i16),
    /// The arguments of a function at its entry: in registers, saved in the context, and on the stack.
    Registers,
    /// The result register of a function, saved in the context.
    Result,
    /// The registers at entry of a system call, reached through the first argument of its wrapper.
    SystemCall(&'a SystemCall),
}

/// Offsets in `struct pt_regs` of the arguments of functions and of system calls, and of results, on x86-64.
///
/// Source: arch/x86/include/asm/ptrace.h, arch/x86/include/asm/syscall_wrapper.h (`SC_X86_64_REGS_TO_ARGS`),
/// v6.12.
const X86_ARGUMENTS: [i16; 6] = [112, 104, 96, 88, 72, 64];
const X86_CALL_ARGUMENTS: [i16; 6] = [112, 104, 96, 56, 72, 64];
const X86_RESULT: i16 = 80;
const X86_STACK_POINTER: i16 = 152;

/// Offsets of the arguments and of the stack pointer on arm64: `x0` to `x7` come first.
///
/// Source: arch/arm64/include/uapi/asm/ptrace.h, `struct user_pt_regs`, v6.12; Procedure Call Standard for the
/// Arm 64-bit Architecture, 6.8.2.
const ARM_ARGUMENTS: [i16; 8] = [0, 8, 16, 24, 32, 40, 48, 56];
const ARM_STACK_POINTER: i16 = 248;

/// Offsets of the words of arguments of Go's functions on x86-64; on arm64 they are `x0` to `x15`.
///
/// Source: cmd/compile/abi-internal.md of Go 1.17 to 1.25.
const GO_X86_ARGUMENTS: [i16; 9] = [80, 40, 88, 112, 104, 72, 64, 56, 48];

/// Offsets of the arguments and of the result in the record of a system call's tracepoint, after the common
/// fields and the call's number.
///
/// Source: include/trace/syscall.h, `struct syscall_trace_enter`, `struct syscall_trace_exit`, v6.12.
const TRACED_ARGUMENTS: i16 = 16;

impl<'a> Lowerer<'a> {
    /// Sets the parameters of a program to their values.
    pub(super) fn program_parameters(&mut self, context: Value) -> Lower<()> {
        let source = self.active.source;
        let mut index = 0;
        for local in &source.params {
            if self.is_context(source.locals[*local].ty) {
                self.bind_parameter(*local, context)?;
                self.find_context(*local, context);
                continue;
            }
            match self.passing() {
                Passing::Context => return impossible(source.span, "a parameter beside this context"),
                Passing::Words(first) => {
                    if self.is_given_objects() {
                        self.keep_object(*local, KernelObject::Word(context, first + word_offset(index)));
                    }
                    self.keep_given(*local, context, first + word_offset(index));
                    let word = self.context_word(context, first + word_offset(index));
                    self.bind_word(*local, word)?;
                }
                Passing::Registers => {
                    let word = self.passed_argument(context, index);
                    self.bind_word(*local, word)?;
                }
                Passing::Result => {
                    let offset = if self.is_arm() { 0 } else { X86_RESULT };
                    let word = self.context_word(context, offset);
                    self.bind_word(*local, word)?;
                }
                Passing::SystemCall(call) => {
                    let word = self.call_word(context, call, index);
                    self.bind_word(*local, word)?;
                }
            }
            index += 1;
        }
        Ok(())
    }

    fn passing(&self) -> Passing<'a> {
        let source = self.active.source;
        let kind = match source.kind {
            FunctionKind::Program(kind) => kind,
            // The kernel calls members of its structs as functions.
            FunctionKind::Method(_) => return Passing::Words(0),
            _ => return Passing::Context,
        };
        match kind {
            ProgramKind::Probe | ProgramKind::Retprobe => match (&source.system_call, &source.target) {
                (Some(call), _) if call.wrapped => Passing::SystemCall(call),
                (_, Target::Function { offset: Some(_), .. }) => Passing::Registers,
                _ => Passing::Words(0),
            },
            ProgramKind::RawTracepoint | ProgramKind::Lsm => Passing::Words(0),
            ProgramKind::SyscallEnter | ProgramKind::SyscallExit => Passing::Words(TRACED_ARGUMENTS),
            ProgramKind::Uprobe => Passing::Registers,
            ProgramKind::Uretprobe => Passing::Result,
            _ => Passing::Context,
        }
    }

    fn is_arm(&self) -> bool {
        self.program.machine.arch == Arch::Aarch64
    }

    fn register_offset(&self, x86: &[i16; 6], index: usize) -> i16 {
        if self.is_arm() { word_offset(index) } else { x86.get(index).copied().unwrap_or_default() }
    }

    /// An argument of a function at its entry, as C passes it: the stack has those that no register has, after the return
    /// address on x86-64. What cannot be read is 0.
    ///
    /// Source: System V Application Binary Interface, AMD64 Supplement, 3.2.3.
    fn passed_argument(&mut self, context: Value, index: usize) -> Value {
        if let Target::User { go: true, .. } = self.active.source.target {
            let offset = if self.is_arm() {
                word_offset(index)
            } else {
                GO_X86_ARGUMENTS.get(index).copied().unwrap_or_default()
            };
            return self.context_word(context, offset);
        }
        let (registers, stack, first): (&[i16], _, _) = if self.is_arm() {
            (&ARM_ARGUMENTS, ARM_STACK_POINTER, 0)
        } else {
            (&X86_ARGUMENTS, X86_STACK_POINTER, 8)
        };
        if let Some(offset) = registers.get(index) {
            return self.context_word(context, *offset);
        }
        let stack = self.context_word(context, stack);
        let offset = first + 8 * (index - registers.len()) as u64;
        let address = self.builder.binary_const(BinaryOp::Add, stack, offset);
        self.read_word(address, Source::Either)
    }

    fn context_word(&mut self, context: Value, offset: i16) -> Value {
        self.builder.value(Type::I64, Op::Load { size: Size::DW, base: context, offset })
    }

    /// An argument of a system call; the index after the last one is its result.
    fn call_word(&mut self, context: Value, call: &SystemCall, index: usize) -> Value {
        let source = self.active.source;
        let is_result = source.kind == FunctionKind::Program(ProgramKind::Retprobe)
            && call.arguments.is_some_and(|arguments| index >= arguments);
        if is_result {
            return self.context_word(context, 8);
        }
        let at_entry = !matches!(source.target, Target::Function { offset: Some(_), .. });
        let first = if at_entry { 0 } else { self.register_offset(&X86_ARGUMENTS, 0) };
        let registers = self.context_word(context, first);
        let offset = self.register_offset(&X86_CALL_ARGUMENTS, index);
        let address = self.builder.binary_const(BinaryOp::Add, registers, offset as u64);
        self.read_word(address, Source::Kernel)
    }

    /// Sets a parameter to the value of a register.
    fn bind_word(&mut self, id: LocalId, word: Value) -> Lower<()> {
        let local = &self.active.source.locals[id];
        let (ty, span) = (local.ty, local.span);
        if self.is_pointer(ty) {
            let home = self.declare(id)?;
            let pointer = self.pointer_to_address(word);
            return self.set_pointer_local(id, home, pointer, span);
        }
        let int = self.int(ty, span)?;
        let value = self.low_bits(word, int);
        self.bind_parameter(id, value)
    }

    /// The low bits of a 64-bit number as an integer type.
    pub(super) fn low_bits(&mut self, word: Value, int: IntType) -> Value {
        if int_type(int) == Type::I64 {
            return word;
        }
        let value = self.builder.value(Type::I32, Op::Truncate(word));
        if int.bits == 32 {
            return value;
        }
        self.builder.value(Type::I32, Op::Narrow { value, bits: int.bits, signed: int.signed })
    }

    /// A program's return value as the verifier requires it: 0 from probes on functions, 0 or an error number
    /// from hooks.
    pub(super) fn allowed_result(&mut self, result: Value) -> Value {
        const MAX_ERRNO: u64 = 4095;
        const EPERM: u64 = 1;
        let ty = self.builder.ty(result);
        let at_entry = !matches!(self.active.source.target, Target::Function { offset: Some(_), .. });
        match self.kind {
            Some(ProgramKind::Probe | ProgramKind::Retprobe) if at_entry => self.builder.constant(ty, 0),
            Some(ProgramKind::Lsm) if ty == Type::I32 => {
                let [low, fine, denied, join] = std::array::from_fn(|_| self.builder.block());
                let chosen = self.builder.param(join, ty);
                let positive = self.builder.compare_const(Condition::SGt, result, 0);
                self.builder.branch(positive, denied, low);
                self.builder.switch_to_sealed(low);
                let lowest = u64::from((MAX_ERRNO as u32).wrapping_neg());
                let too_low = self.builder.compare_const(Condition::SLt, result, lowest);
                self.builder.branch(too_low, denied, fine);
                self.builder.switch_to_sealed(fine);
                self.builder.jump_with(join, result);
                self.builder.switch_to_sealed(denied);
                let denial = self.builder.constant(ty, u64::from((EPERM as u32).wrapping_neg()));
                self.builder.jump_with(join, denial);
                self.builder.switch_to_sealed(join);
                chosen
            }
            _ => result,
        }
    }
}

fn word_offset(index: usize) -> i16 {
    narrow(8 * index)
}

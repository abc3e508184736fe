//! Analysis whether a program at a tracepoint may suppress events for other consumers.
//!
//! The kernel combines the results of all programs at a tracepoint with `&=`, starting from 1, and drops the
//! event for all consumers if the outcome is 0. The analysis therefore proves that the lowest bit of a
//! program's result is set on every path.
//!
//! It is a forward data-flow analysis: for each instruction, the registers that are known to be odd. It
//! handles constants, copies, `or`, `and` and comparisons with constants; any other value counts as even.
//!
//! Source: include/linux/bpf.h, `bpf_prog_run_array`; kernel/events/core.c, `perf_trace_run_bpf_submit`,
//! v6.18.

use std::collections::BTreeSet;

use super::super::table::ProgramType;
use super::{Body, Callee, Instruction, Object, ProgramId, SubprogramId, Wide};
use crate::bpf::{AluOp, Insn, InsnIndex, JmpOp, Operand, Reg};

/// Maximum call depth in the kernel (`MAX_CALL_FRAMES` in include/linux/bpf_verifier.h, v6.18).
const MAX_CALL_FRAMES: usize = 8;

/// Kfunc that ends a program with a result computed from its argument.
const THROW: &str = "bpf_throw";

/// Set of registers known to be odd, one bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Odd(u16);

impl Odd {
    fn has(self, reg: Reg) -> bool {
        self.0 & Odd::bit(reg) != 0
    }

    #[must_use]
    fn with(self, reg: Reg) -> Odd {
        Odd(self.0 | Odd::bit(reg))
    }

    #[must_use]
    fn without(self, reg: Reg) -> Odd {
        Odd(self.0 & !Odd::bit(reg))
    }

    /// Returns the state after a register is set to a value that is known to be odd or not.
    #[must_use]
    fn set(self, reg: Reg, is_odd: bool) -> Odd {
        if is_odd { self.with(reg) } else { self.without(reg) }
    }

    fn of(self, operand: Operand) -> bool {
        match operand {
            Operand::Reg(reg) => self.has(reg),
            Operand::Imm(constant) => constant & 1 != 0,
        }
    }

    /// Returns the state after a call, which clobbers the result's and the arguments' registers.
    #[must_use]
    fn after_call(self, is_odd: bool) -> Odd {
        Odd(self.0 & !0x3f).set(Reg::R0, is_odd)
    }

    fn bit(reg: Reg) -> u16 {
        1 << reg.number()
    }
}

impl Object {
    /// Returns whether a program may suppress events of its tracepoint for all counters: it is attached to a
    /// tracepoint with a record, and its result is not proven odd on every path. Targets of tail calls are
    /// analysed separately.
    #[must_use]
    pub fn may_filter_events(&self, program: ProgramId) -> bool {
        let Some(one) = self.programs.get(program.index()) else { return false };
        if one.section.kind.program != ProgramType::Tracepoint {
            return false;
        }
        let uses = self.uses(program);
        let throws = uses.kfuncs.iter().filter_map(|id| self.ksyms.get(id.index()));
        if throws.into_iter().any(|ksym| ksym.name.as_str() == THROW) {
            return true;
        }
        !returns_odd(&one.body, &self.odd_subprograms(&uses.subprograms))
    }

    /// Returns the functions whose results are odd. Each iteration adds functions that call only functions
    /// analysed before.
    fn odd_subprograms(&self, reached: &BTreeSet<SubprogramId>) -> BTreeSet<SubprogramId> {
        let mut odd = BTreeSet::new();
        for _ in 0..MAX_CALL_FRAMES {
            let is_odd = |id: &SubprogramId| {
                !odd.contains(id)
                    && self.subprograms.get(id.index()).is_some_and(|one| returns_odd(&one.body, &odd))
            };
            let more: Vec<SubprogramId> = reached.iter().copied().filter(is_odd).collect();
            if more.is_empty() {
                break;
            }
            odd.extend(more);
        }
        odd
    }
}

/// Returns whether the lowest bit of a function's result is set on every path.
fn returns_odd(body: &Body, odd_functions: &BTreeSet<SubprogramId>) -> bool {
    let adjusted: BTreeSet<u32> = body.core.iter().map(|record| record.at.0).collect();
    let mut before: Vec<Option<Odd>> = vec![None; body.code.len()];
    let mut pending = vec![(InsnIndex(0), Odd(0))];
    while let Some((at, odd)) = pending.pop() {
        let index = at.0 as usize;
        let (Some(known), Some(instruction)) = (before.get_mut(index), body.code.get(index)) else {
            // The branch leaves the function; the kernel rejects this program.
            return false;
        };
        let joined = known.map_or(odd, |known| Odd(known.0 & odd.0));
        if *known == Some(joined) {
            continue;
        }
        *known = Some(joined);
        let next = InsnIndex(at.0 + 1);
        match *instruction {
            Instruction::Call(callee) => {
                let is_odd = matches!(callee, Callee::Subprogram(id) if odd_functions.contains(&id));
                pending.push((next, joined.after_call(is_odd)));
            }
            Instruction::LoadWide { dst, value } => {
                let is_known = matches!(value, Wide::Constant(number) if number & 1 != 0);
                pending.push((next, joined.set(dst, is_known && !adjusted.contains(&at.0))));
            }
            Instruction::Plain(plain) => match plain.insn() {
                Insn::Exit if joined.has(Reg::R0) => {}
                Insn::Exit => return false,
                Insn::Jump { target } | Insn::JumpLong { target } => pending.push((target, joined)),
                Insn::MayGoto { target } => pending.extend([(target, joined), (next, joined)]),
                Insn::JumpIf { op, dst, src, target, .. } => {
                    let is_odd = matches!(src, Operand::Imm(_)) && joined.of(src);
                    let [mut taken, mut passed] = [joined; 2];
                    match op {
                        JmpOp::Eq if is_odd => taken = taken.with(dst),
                        JmpOp::Ne if is_odd => passed = passed.with(dst),
                        JmpOp::Set if src == Operand::Imm(1) => taken = taken.with(dst),
                        _ => {}
                    }
                    pending.extend([(target, taken), (next, passed)]);
                }
                insn => pending.push((next, after(insn, joined, adjusted.contains(&at.0)))),
            },
        }
    }
    true
}

/// Returns the odd registers after an instruction that falls through. The loader may change the constant of
/// an instruction that is adjusted to the kernel's types.
fn after(insn: Insn, odd: Odd, is_adjusted: bool) -> Odd {
    match insn {
        Insn::Mov { dst, src, .. } => odd.set(dst, !is_adjusted && odd.of(src)),
        Insn::MovSx { dst, src, .. } => odd.set(dst, odd.has(src)),
        // A 32-bit operation preserves the lowest bit, and so does a negation.
        Insn::Alu { op: AluOp::Or, dst, src, .. } if !is_adjusted => {
            odd.set(dst, odd.has(dst) || odd.of(src))
        }
        Insn::Alu { op: AluOp::And, dst, src, .. } if !is_adjusted => {
            odd.set(dst, odd.has(dst) && odd.of(src))
        }
        Insn::Alu { dst, .. }
        | Insn::Endian { dst, .. }
        | Insn::Load { dst, .. }
        | Insn::LoadSx { dst, .. }
        | Insn::LoadImm64 { dst, .. } => odd.without(dst),
        Insn::Atomic { src, .. } => odd.without(src).without(Reg::R0),
        _ => odd,
    }
}

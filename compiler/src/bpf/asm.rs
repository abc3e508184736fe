//! Assembler with labels: branches may refer to later instructions.

use super::{Insn, InsnIndex, JmpOp, Operand, Reg, Width};

/// A branch target, bound before [`Assembler::finish`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(u32);

/// Incorrect use of a label: a bug of the code generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LabelError {
    /// A branch goes to a label that was never bound.
    #[error("instruction {} branches to a label that was never bound", at.0)]
    Unbound {
        /// Index of the branch.
        at: InsnIndex,
    },
    /// A label was bound to two instructions.
    #[error("a label bound at instruction {} is bound again at instruction {}", first.0, second.0)]
    BoundTwice {
        /// Index of the first binding.
        first: InsnIndex,
        /// Index of the second binding.
        second: InsnIndex,
    },
    /// A label of another assembler.
    #[error("instruction {} uses a label of another assembler", at.0)]
    Foreign {
        /// Index of the branch, or of the binding.
        at: InsnIndex,
    },
}

/// Collects instructions and resolves labels.
///
/// ```
/// use ks_compiler::bpf::{Assembler, Insn, JmpOp, Reg, Width};
///
/// let mut asm = Assembler::new();
/// let done = asm.label();
/// asm.push(Insn::mov(Reg::R0, 0));
/// asm.jump_if(JmpOp::Eq, Width::W64, Reg::R1, 0, done);
/// asm.push(Insn::mov(Reg::R0, 1));
/// asm.bind(done);
/// asm.push(Insn::Exit);
/// assert_eq!(asm.finish().unwrap().len(), 4);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    /// Index that each label is bound to; none if it is unbound.
    labels: Vec<Option<InsnIndex>>,
    /// Branches, each with its target label.
    branches: Vec<(InsnIndex, Label)>,
    error: Option<LabelError>,
}

/// Target of a branch until its label is resolved.
const UNRESOLVED: InsnIndex = InsnIndex(u32::MAX);

impl Assembler {
    /// Creates an empty sequence.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the index of the next instruction, for line tables and relocation lists.
    #[must_use]
    pub fn next_index(&self) -> InsnIndex {
        InsnIndex(u32::try_from(self.insns.len()).unwrap_or(u32::MAX))
    }

    /// Appends an instruction and returns its index.
    pub fn push(&mut self, insn: Insn) -> InsnIndex {
        let index = self.next_index();
        self.insns.push(insn);
        index
    }

    /// Creates a label that is not yet bound.
    pub fn label(&mut self) -> Label {
        let label = Label(u32::try_from(self.labels.len()).unwrap_or(u32::MAX));
        self.labels.push(None);
        label
    }

    /// Binds a label to the next instruction. [`Assembler::finish`] reports a label that is bound twice.
    pub fn bind(&mut self, label: Label) {
        let second = self.next_index();
        let error = match self.labels.get_mut(label.0 as usize) {
            Some(target @ None) => {
                *target = Some(second);
                return;
            }
            Some(&mut Some(first)) => LabelError::BoundTwice { first, second },
            None => LabelError::Foreign { at: second },
        };
        self.error.get_or_insert(error);
    }

    /// Appends `goto label`.
    pub fn jump(&mut self, label: Label) -> InsnIndex {
        self.branch(Insn::Jump { target: UNRESOLVED }, label)
    }

    /// Appends `gotol label` (v4, any distance).
    pub fn jump_long(&mut self, label: Label) -> InsnIndex {
        self.branch(Insn::JumpLong { target: UNRESOLVED }, label)
    }

    /// Appends `if dst op src goto label`.
    pub fn jump_if(
        &mut self,
        op: JmpOp,
        width: Width,
        dst: Reg,
        src: impl Into<Operand>,
        label: Label,
    ) -> InsnIndex {
        self.branch(Insn::JumpIf { op, width, dst, src: src.into(), target: UNRESOLVED }, label)
    }

    /// Appends `may_goto label`.
    pub fn may_goto(&mut self, label: Label) -> InsnIndex {
        self.branch(Insn::MayGoto { target: UNRESOLVED }, label)
    }

    /// Returns the instructions, with every branch resolved.
    ///
    /// # Errors
    /// A label that a branch needs was never bound, or a label was bound twice.
    pub fn finish(mut self) -> Result<Vec<Insn>, LabelError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        for (at, label) in self.branches {
            let bound = self.labels.get(label.0 as usize).ok_or(LabelError::Foreign { at })?;
            let bound = bound.ok_or(LabelError::Unbound { at })?;
            let branch = self.insns.get_mut(at.0 as usize).and_then(Insn::branch_target_mut);
            if let Some(target) = branch {
                *target = bound;
            }
        }
        Ok(self.insns)
    }

    fn branch(&mut self, insn: Insn, label: Label) -> InsnIndex {
        let at = self.push(insn);
        self.branches.push((at, label));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_and_backward_labels_resolve() {
        let mut asm = Assembler::new();
        let (top, out) = (asm.label(), asm.label());
        asm.bind(top);
        asm.jump_if(JmpOp::Gt, Width::W32, Reg::R1, 3, out);
        asm.jump(top);
        asm.bind(out);
        asm.push(Insn::Exit);
        let insns = asm.finish().unwrap();
        assert!(matches!(insns[0], Insn::JumpIf { target: InsnIndex(2), .. }));
        assert_eq!(insns[1], Insn::Jump { target: InsnIndex(0) });
    }

    #[test]
    fn a_foreign_label_is_reported() {
        let foreign = Assembler::new().label();
        let mut asm = Assembler::new();
        asm.jump(foreign);
        assert_eq!(asm.clone().finish(), Err(LabelError::Foreign { at: InsnIndex(0) }));
        asm.bind(foreign);
        assert_eq!(asm.finish(), Err(LabelError::Foreign { at: InsnIndex(1) }));
    }

    #[test]
    fn misused_labels_are_reported() {
        let mut asm = Assembler::new();
        let label = asm.label();
        asm.jump(label);
        assert_eq!(asm.clone().finish(), Err(LabelError::Unbound { at: InsnIndex(0) }));
        asm.bind(label);
        asm.push(Insn::Exit);
        asm.bind(label);
        assert_eq!(asm.finish(), Err(LabelError::BoundTwice { first: InsnIndex(1), second: InsnIndex(2) }));
    }
}

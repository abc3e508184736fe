//! Register allocation by the `regalloc2` crate onto `r0` to `r9`.
//!
//! In: machine instructions on virtual registers. Out: a register for each operand, moves between
//! instructions, and the number of spill slots. `r10` is the frame pointer and is not allocated; a call
//! clobbers `r0` to `r5`.

mod moves;

use regalloc2::{
    Algorithm, Allocation, Edit, InstRange, MachineEnv, Operand, Output, PReg, PRegSet, ProgPoint, RegClass,
    RegallocOptions, VReg,
};
use smallvec::SmallVec;

use super::Checks;
use super::isel::{Base, Inst, InstKind, IselFunction, Rhs};
use crate::bpf::Reg;

/// The reason why allocation failed: a bug of this compiler.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AllocationError {
    /// The allocator reported an error, as text.
    #[error("register allocation: {0}")]
    Allocator(String),
    /// The checker rejected the allocator's result, as text.
    #[error("register allocation is wrong: {0}")]
    Checker(String),
}

/// The location of a value between instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueLocation {
    /// A machine register, `r0` to `r9`.
    Reg(Reg),
    /// A spill slot, by index from 0.
    Spill(usize),
}

/// A move between two instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The location that is written.
    pub to: ValueLocation,
    /// The location that is read.
    pub from: ValueLocation,
}

/// The allocation of one function. Instructions are numbered through all blocks.
#[derive(Debug, Clone, Default)]
pub struct Registers {
    /// For each instruction, the registers of its [`operands`], in that order.
    pub operands: Vec<SmallVec<[Reg; 6]>>,
    /// For each instruction, the moves before it.
    pub before: Vec<Vec<Move>>,
    /// For each instruction, the moves after it.
    pub after: Vec<Vec<Move>>,
    /// The number of spill slots, of 8 bytes each.
    pub spill_slots: usize,
}

/// Allocates registers. With `Checks::EveryStage` the allocator's own checker verifies the result.
///
/// # Errors
/// See [`AllocationError`].
pub fn allocate(function: &IselFunction, checks: Checks) -> Result<Registers, AllocationError> {
    let graph = Graph::new(function);
    let environment = environment();
    let checked = checks == Checks::EveryStage;
    let options = RegallocOptions { verbose_log: false, validate_ssa: checked, algorithm: Algorithm::Ion };
    let output = regalloc2::run(&graph, &environment, &options)
        .map_err(|error| AllocationError::Allocator(error.to_string()))?;
    if checked {
        let mut checker = regalloc2::checker::Checker::new(&graph, &environment);
        checker.prepare(&output);
        checker.run().map_err(|errors| AllocationError::Checker(format!("{errors:?}")))?;
    }
    let mut registers = registers(&graph, &output);
    moves::simplify(&graph, &mut registers);
    Ok(registers)
}

fn preg(number: usize) -> PReg {
    PReg::new(number, RegClass::Int)
}

fn environment() -> MachineEnv {
    let set =
        |range: std::ops::Range<usize>| range.fold(PRegSet::empty(), |set, number| set.with(preg(number)));
    MachineEnv {
        preferred_regs_by_class: [set(0..6), PRegSet::empty(), PRegSet::empty()],
        non_preferred_regs_by_class: [set(6..10), PRegSet::empty(), PRegSet::empty()],
        scratch_by_class: [None, None, None],
        fixed_stack_slots: Vec::new(),
    }
}

fn registers(graph: &Graph<'_>, output: &Output) -> Registers {
    let count = graph.insts.len();
    let mut registers = Registers {
        operands: Vec::with_capacity(count),
        before: vec![Vec::new(); count],
        after: vec![Vec::new(); count],
        spill_slots: output.num_spillslots,
    };
    for index in 0..count {
        let allocations = output.inst_allocs(regalloc2::Inst::new(index));
        registers.operands.push(allocations.iter().filter_map(|one| one.as_reg()).map(reg).collect());
    }
    for (point, Edit::Move { from, to }) in &output.edits {
        let moves = if *point == ProgPoint::before(point.inst()) {
            &mut registers.before
        } else {
            &mut registers.after
        };
        moves[point.inst().index()].push(Move { to: location(*to), from: location(*from) });
    }
    registers
}

fn reg(preg: PReg) -> Reg {
    Reg::new(preg.hw_enc() as u8).expect("only r0 to r9 are handed to the allocator")
}

fn location(allocation: Allocation) -> ValueLocation {
    match (allocation.as_reg(), allocation.as_stack()) {
        (Some(preg), _) => ValueLocation::Reg(reg(preg)),
        (None, Some(slot)) => ValueLocation::Spill(slot.index()),
        (None, None) => unreachable!("the allocator moves between registers and spill slots only"),
    }
}

/// A function in the allocator's interface.
struct Graph<'a> {
    function: &'a IselFunction,
    insts: Vec<&'a Inst>,
    operands: Vec<Operands>,
    ranges: Vec<InstRange>,
    successors: Vec<Vec<regalloc2::Block>>,
    predecessors: Vec<Vec<regalloc2::Block>>,
}

impl<'a> Graph<'a> {
    fn new(function: &'a IselFunction) -> Graph<'a> {
        let insts: Vec<_> = function.blocks.iter().flat_map(|block| &block.insts).collect();
        let mut ranges = Vec::new();
        let mut start = 0;
        let mut predecessors = vec![Vec::new(); function.blocks.len()];
        let mut successors = Vec::new();
        for (index, block) in function.blocks.iter().enumerate() {
            let end = start + block.insts.len();
            ranges.push(InstRange::new(regalloc2::Inst::new(start), regalloc2::Inst::new(end)));
            start = end;
            for successor in &block.successors {
                predecessors[*successor].push(regalloc2::Block::new(index));
            }
            successors.push(block.successors.iter().map(|to| regalloc2::Block::new(*to)).collect());
        }
        let operands = insts.iter().map(|inst| operands(&inst.kind)).collect();
        Graph { function, insts, operands, ranges, successors, predecessors }
    }
}

/// The registers that an instruction reads and sets: a call has five arguments and a result.
pub type Operands = SmallVec<[Operand; 6]>;

/// The operands of an instruction with their constraints. `emit` reads their registers in the same order.
pub fn operands(kind: &InstKind) -> Operands {
    let mut operands = Operands::new();
    let rhs = |rhs: &Rhs| match rhs {
        Rhs::Reg(register) => Some(Operand::reg_use(*register)),
        Rhs::Imm(_) | Rhs::Frame => None,
    };
    let base = |base: &Base| match base {
        Base::Reg(register) => Some(Operand::reg_use(*register)),
        Base::Frame => None,
    };
    match kind {
        InstKind::Params(params) => {
            let fixed = params.iter().enumerate();
            operands.extend(fixed.map(|(at, param)| Operand::reg_fixed_def(*param, preg(at + 1))));
        }
        InstKind::Const { dst, .. }
        | InstKind::Core { dst, .. }
        | InstKind::Address { dst, .. }
        | InstKind::FrameAddr { dst, .. } => {
            operands.push(Operand::reg_def(*dst));
        }
        InstKind::Move { dst, src } | InstKind::Mov32 { dst, src } | InstKind::Extend { dst, src, .. } => {
            operands.extend([Operand::reg_use(*src), Operand::reg_def(*dst)])
        }
        InstKind::AluCore { dst, lhs: src, .. }
        | InstKind::Neg { dst, src, .. }
        | InstKind::Below { dst, src, .. }
        | InstKind::Swap { dst, src, .. } => {
            operands.extend([Operand::reg_use(*src), Operand::reg_reuse_def(*dst, 0)]);
        }
        InstKind::Alu { dst, lhs, rhs: right, .. } => {
            operands.extend([Operand::reg_use(*lhs), Operand::reg_reuse_def(*dst, 0)]);
            operands.extend(rhs(right));
        }
        // The result is written before the operands are compared.
        InstKind::SetIf { dst, lhs, rhs: right, .. } => {
            operands.extend([Operand::reg_use(*lhs), Operand::reg_def_at_start(*dst)]);
            operands.extend(rhs(right));
        }
        InstKind::LoadField { dst, base, .. } => {
            operands.extend([Operand::reg_def(*dst), Operand::reg_use(*base)]);
        }
        InstKind::Load { dst, base: from, .. } => {
            operands.push(Operand::reg_def(*dst));
            operands.extend(base(from));
        }
        InstKind::Store { base: to, value, .. } => {
            operands.extend(rhs(value));
            operands.extend(base(to));
        }
        InstKind::AtomicAdd { base: to, value, .. } => {
            operands.push(Operand::reg_use(*value));
            operands.extend(base(to));
        }
        InstKind::AtomicExchange { dst, base: to, value, .. } => {
            operands.extend([Operand::reg_use(*value), Operand::reg_reuse_def(*dst, 0)]);
            operands.extend(base(to));
        }
        InstKind::Call { args, result, .. } => {
            let fixed = args.iter().enumerate();
            operands.extend(fixed.map(|(at, arg)| Operand::reg_fixed_use(*arg, preg(at + 1))));
            operands.extend(result.map(|result| Operand::reg_fixed_def(result, preg(0))));
        }
        InstKind::Jump => {}
        InstKind::Branch { lhs, rhs: right, .. } => {
            operands.push(Operand::reg_use(*lhs));
            operands.extend(rhs(right));
        }
        InstKind::Return { value } => operands.push(Operand::reg_fixed_use(*value, preg(0))),
    }
    operands
}

impl regalloc2::Function for Graph<'_> {
    fn num_insts(&self) -> usize {
        self.insts.len()
    }

    fn num_blocks(&self) -> usize {
        self.ranges.len()
    }

    fn entry_block(&self) -> regalloc2::Block {
        regalloc2::Block::new(0)
    }

    fn block_insns(&self, block: regalloc2::Block) -> InstRange {
        self.ranges[block.index()]
    }

    fn block_succs(&self, block: regalloc2::Block) -> &[regalloc2::Block] {
        &self.successors[block.index()]
    }

    fn block_preds(&self, block: regalloc2::Block) -> &[regalloc2::Block] {
        &self.predecessors[block.index()]
    }

    fn block_params(&self, block: regalloc2::Block) -> &[VReg] {
        &self.function.blocks[block.index()].params
    }

    fn is_ret(&self, inst: regalloc2::Inst) -> bool {
        matches!(self.insts[inst.index()].kind, InstKind::Return { .. })
    }

    fn is_branch(&self, inst: regalloc2::Inst) -> bool {
        matches!(self.insts[inst.index()].kind, InstKind::Jump | InstKind::Branch { .. })
    }

    fn branch_blockparams(&self, block: regalloc2::Block, _: regalloc2::Inst, successor: usize) -> &[VReg] {
        &self.function.blocks[block.index()].args[successor]
    }

    fn inst_operands(&self, inst: regalloc2::Inst) -> &[Operand] {
        &self.operands[inst.index()]
    }

    fn inst_clobbers(&self, inst: regalloc2::Inst) -> PRegSet {
        let InstKind::Call { result, .. } = &self.insts[inst.index()].kind else {
            return PRegSet::empty();
        };
        let first = usize::from(result.is_some());
        (first..6).fold(PRegSet::empty(), |set, number| set.with(preg(number)))
    }

    fn num_vregs(&self) -> usize {
        self.function.registers
    }

    fn spillslot_size(&self, _: RegClass) -> usize {
        1
    }
}

//! Converts kernel pointers to numbers where something is computed with them.
//!
//! A pointer to a kernel struct is a 64-bit number in MIR, and to the verifier too if it was loaded from
//! memory. The result of a helper or a pointer in the context is a pointer to the verifier, which only
//! permits adding constants to it. It rejects the program at anything else ("math between trusted_ptr_
//! pointer and register with unbounded min value", "pointer arithmetic with *= operator prohibited"). Adding
//! an unknown zero, which hides a number in loops, is one of these cases. Functions of the kernel take only
//! the original pointer, so it stays one where it is passed on.
//!
//! In: all functions of a program. A value may be a kernel pointer if it comes from one, through jumps, calls
//! and the stack. Source: kernel/bpf/verifier.c, `adjust_ptr_min_max_vals`, v6.18.

use std::collections::{BTreeMap, BTreeSet};

use super::new_insts::NewInsts;
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, Callee, MirFunction, Op, Origin, Program, Size, Terminator, Type, Value};

/// Runs the pass on all functions; returns whether anything changed. It runs before the last passes, and
/// again after them for the numbers that they hide.
pub fn run(program: &mut Program) -> bool {
    let is_given =
        |function: &MirFunction| function.insts().any(|inst| gives_pointer(program, function, &inst.op));
    if !program.functions.iter().any(is_given) {
        return false;
    }
    let mut pointers = Pointers::new(program);
    while pointers.follow(program) {}
    let mut changed = false;
    for (function, pointers) in program.functions.iter_mut().zip(&pointers.values) {
        changed |= make_numbers(function, pointers);
    }
    changed
}

/// Whether the verifier takes an instruction's result for a pointer, independent of its operands.
fn gives_pointer(program: &Program, function: &MirFunction, op: &Op) -> bool {
    match op {
        Op::Call { callee: Callee::External(id), .. } => program.given_pointers.contains(id),
        Op::Load { size: Size::DW, base, .. } => {
            program.context_has_pointers && function.values[*base] == Type::Ptr(Origin::Context)
        }
        _ => false,
    }
}

/// Whether an addend is a constant to the verifier, directly or by the loader's relocation.
fn is_constant(definitions: &IndexVec<Value, Option<&Op>>, value: Value) -> bool {
    matches!(definitions[value], Some(Op::Const(_) | Op::Core(..)))
}

/// The values that may be pointers to the verifier.
struct Pointers {
    /// For each function, whether each value may be a pointer.
    values: Vec<IndexVec<Value, bool>>,
    /// The parameters of functions of the object.
    params: BTreeSet<(FuncId, usize)>,
    /// Functions that return a pointer.
    returned: BTreeSet<FuncId>,
    /// Whether a pointer may be on the stack.
    stored: bool,
    changed: bool,
}

impl Pointers {
    fn new(program: &Program) -> Pointers {
        let none = |function: &MirFunction| IndexVec::filled(function.values.len(), false);
        Pointers {
            values: program.functions.iter().map(none).collect(),
            params: BTreeSet::new(),
            returned: BTreeSet::new(),
            stored: false,
            changed: false,
        }
    }

    /// Visits every function once; returns whether it found a new pointer.
    fn follow(&mut self, program: &Program) -> bool {
        self.changed = false;
        for (at, function) in program.functions.iter().enumerate() {
            self.function(program, at, function);
        }
        self.changed
    }

    fn function(&mut self, program: &Program, at: usize, function: &MirFunction) {
        let definitions = function.definitions();
        for (index, param) in function.blocks[function.entry()].params.iter().enumerate() {
            if self.params.contains(&(function.id, index)) {
                self.mark(function, at, *param);
            }
        }
        for block in function.blocks.iter() {
            for inst in &block.insts {
                self.pass_on((at, function), &inst.op);
                if let Some(result) = inst.result
                    && self.is_pointer(program, (at, function), &inst.op, &definitions)
                {
                    self.mark(function, at, result);
                }
            }
            if let Terminator::Return(value) = block.term
                && self.values[at][value]
            {
                self.changed |= self.returned.insert(function.id);
            }
            for target in block.term.targets() {
                for (arg, param) in target.args.iter().zip(&function.blocks[target.block].params) {
                    if self.values[at][*arg] {
                        self.mark(function, at, *param);
                    }
                }
            }
        }
    }

    fn mark(&mut self, function: &MirFunction, at: usize, value: Value) {
        if function.values[value] == Type::I64 {
            self.changed |= !std::mem::replace(&mut self.values[at][value], true);
        }
    }

    /// Propagates pointers through the operands that an instruction passes on.
    fn pass_on(&mut self, (at, function): (usize, &MirFunction), op: &Op) {
        match op {
            Op::Call { callee: Callee::Function(id), args } => {
                for (index, arg) in args.iter().enumerate() {
                    if self.values[at][*arg] {
                        self.changed |= self.params.insert((*id, index));
                    }
                }
            }
            Op::Store { size: Size::DW, base, value, .. }
                if self.values[at][*value] && may_be_stack(function.values[*base]) =>
            {
                self.changed |= !std::mem::replace(&mut self.stored, true);
            }
            _ => {}
        }
    }

    /// Whether an instruction's result may be a pointer.
    fn is_pointer(
        &self,
        program: &Program,
        (at, function): (usize, &MirFunction),
        op: &Op,
        definitions: &IndexVec<Value, Option<&Op>>,
    ) -> bool {
        let values = &self.values[at];
        match op {
            Op::Call { callee: Callee::Function(id), .. } => self.returned.contains(id),
            Op::Load { size: Size::DW, base, .. } if may_be_stack(function.values[*base]) => self.stored,
            op => gives_pointer(program, function, op) || is_moved(op, values, definitions),
        }
    }
}

/// Whether an instruction moves a pointer by a constant, so that its result is a pointer.
fn is_moved(op: &Op, values: &IndexVec<Value, bool>, definitions: &IndexVec<Value, Option<&Op>>) -> bool {
    match op {
        Op::Binary(BinaryOp::Add, a, b) => {
            values[*a] && is_constant(definitions, *b) || values[*b] && is_constant(definitions, *a)
        }
        Op::Binary(BinaryOp::Sub, a, b) => values[*a] && is_constant(definitions, *b),
        _ => false,
    }
}

fn may_be_stack(ty: Type) -> bool {
    matches!(ty, Type::Ptr(Origin::Stack | Origin::Memory | Origin::MemoryOrNull))
}

/// Converts operands to numbers where the verifier accepts no pointer.
fn make_numbers(function: &mut MirFunction, pointers: &IndexVec<Value, bool>) -> bool {
    let definitions = function.definitions();
    let mut wanted: BTreeMap<(usize, usize), Vec<Value>> = BTreeMap::new();
    for (block, data) in function.blocks.iter().enumerate() {
        for (at, inst) in data.insts.iter().enumerate() {
            let computed: &[Value] = match &inst.op {
                op if is_moved(op, pointers, &definitions) => &[],
                Op::Binary(_, a, b) => &[*a, *b],
                Op::PtrAdd(_, value) | Op::Opaque { value, .. } | Op::Below { value, .. } => &[*value],
                _ => &[],
            };
            let found: Vec<Value> = computed.iter().copied().filter(|value| pointers[*value]).collect();
            if !found.is_empty() {
                wanted.insert((block, at), found);
            }
        }
    }
    if wanted.is_empty() {
        return false;
    }
    let MirFunction { blocks, values, .. } = function;
    for (block, data) in blocks.iter_mut().enumerate() {
        let insts = std::mem::take(&mut data.insts);
        let mut new_insts = NewInsts { insts: Vec::with_capacity(insts.len()), span: data.span };
        for (at, mut inst) in insts.into_iter().enumerate() {
            for pointer in wanted.remove(&(block, at)).into_iter().flatten() {
                new_insts.span = inst.span;
                let number = new_insts.make(values, Type::I64, Op::Address(pointer));
                inst.op.map_operands(&mut |value| if value == pointer { number } else { value });
            }
            new_insts.insts.push(inst);
        }
        data.insts = new_insts.insts;
    }
    true
}

//! Lets probes of user programs sleep where they read memory of those programs, so that a page that is not there is
//! brought in.
//!
//! ```text
//! v = bpf_probe_read_user_str(to, n, p)    ->    v = bpf_probe_read_user_str(to, n, p)
//!                                                if v < 0 { bpf_copy_from_user(to, n, p)
//!                                                           v = bpf_probe_read_user_str(to, n, p) }
//! ```
//!
//! The kernel lets uprobes sleep since 6.0; a program that sleeps may not use every map. Source: kernel/bpf/verifier.c,
//! `can_be_sleepable` and `check_map_prog_compatibility`, v6.18.

use std::collections::BTreeSet;

use crate::hir::FuncId;
use crate::index::Id;
use crate::kernel::mir::{
    Block, Callee, Condition, Helper, MapSymbol, MirFunction, Op, Program, Target, Terminator, Type, Value,
};
use crate::kernel::scratch::reached;

/// Runs the pass; returns whether anything changed. Of [`Program::sleeping`] those remain that sleep.
pub fn run(program: &mut Program) -> bool {
    let candidates = std::mem::take(&mut program.sleeping.programs);
    program.sleeping.programs = candidates.into_iter().filter(|id| may_and_should(program, *id)).collect();
    let inside = reached(&program.functions, &program.sleeping.programs);
    let is_awake = |one: &&MirFunction| one.is_program && !program.sleeping.programs.contains(&one.id);
    let awake: Vec<FuncId> = program.functions.iter().filter(is_awake).map(|one| one.id).collect();
    let shared = reached(&program.functions, &awake);
    let mut changed = false;
    for function in program.functions.iter_mut().filter(|one| inside.contains(&one.id)) {
        if !shared.contains(&function.id) {
            changed |= retry_reads(function);
        }
    }
    changed
}

/// Whether a program reads user memory, and does nothing that one that sleeps may not do.
fn may_and_should(program: &Program, id: FuncId) -> bool {
    let reached: BTreeSet<FuncId> = reached(&program.functions, [&id]);
    let functions = program.functions.iter().filter(|one| reached.contains(&one.id));
    let ops: Vec<&Op> = functions.flat_map(MirFunction::insts).map(|inst| &inst.op).collect();
    ops.iter().any(|op| reads_user(op)) && ops.iter().all(|op| may_sleep(program, op))
}

fn may_sleep(program: &Program, op: &Op) -> bool {
    match op {
        Op::MapAddr(MapSymbol::Map(map)) => !program.sleeping.not_with_maps.contains(map),
        Op::MapAddr(MapSymbol::Counter(_) | MapSymbol::Programs(_)) => false,
        Op::Call { callee, .. } => match callee {
            Callee::Helper(Helper::TailCall | Helper::GetStackId | Helper::ReadEvent) => false,
            Callee::External(id) => program.sleeping.with_externs.contains(id),
            Callee::Helper(_)
            | Callee::Kfunc(_)
            | Callee::MapIter(_)
            | Callee::TaskId(_)
            | Callee::Function(_) => true,
        },
        _ => true,
    }
}

/// Whether the operation reads memory of a user program.
fn reads_user(op: &Op) -> bool {
    matches!(op, Op::Call { callee: Callee::Helper(Helper::ProbeReadUser | Helper::ProbeReadUserStr), .. })
}

fn retry_reads(function: &mut MirFunction) -> bool {
    let before = function.blocks.len();
    // What follows a read becomes a block at the end. Blocks that this pass adds for a second read come after those.
    let mut open: Vec<Block> = (0..before).map(Block::new).collect();
    while let Some(block) = open.pop() {
        if let Some(index) = function.blocks[block].insts.iter().position(|inst| reads_user(&inst.op)) {
            open.push(retry_read(function, block, index));
        }
    }
    function.blocks.len() > before
}

/// Reads again where the read at this position fails. Returns the block with what follows it.
fn retry_read(function: &mut MirFunction, block: Block, index: usize) -> Block {
    let rest = function.split(block, index + 1);
    let read = &mut function.blocks[block].insts[index];
    let Op::Call { callee: Callee::Helper(helper), args } = &read.op else { return rest };
    let (helper, args, span) = (*helper, args.clone(), read.span);
    // The result of both reads keeps its name; the first one gets another.
    let first = function.values.push(Type::I64);
    let result = read.result.replace(first);
    function.blocks[rest].params.extend(result);
    let passed = |value: Value| result.map(|_| value).into_iter().collect();

    let again = function.push_block(span);
    let call = |helper| Op::Call { callee: Callee::Helper(helper), args: args.clone() };
    let mut second = function.append(again, Type::I64, call(Helper::CopyFromUser));
    if helper == Helper::ProbeReadUserStr {
        second = function.append(again, Type::I64, call(helper));
    }
    function.jump(again, rest, passed(second));

    let zero = function.append(block, Type::I64, Op::Const(0));
    let cond = function.append(block, Type::I32, Op::Compare(Condition::SLt, first, zero));
    let otherwise = Target { block: rest, args: passed(first) };
    function.blocks[block].term = Terminator::Branch { cond, then: Target::to(again), otherwise };
    rest
}

//! Where a block only asks about its parameter, whoever passes a constant goes on without asking.
//!
//! ```text
//! a: jump join(1)          a: jump yes
//! b: jump join(0)    ->    b: jump no
//! join(p): if p then yes else no
//! ```
//!
//! The same where it asks what a branch before it has asked.

use super::fold::holds;
use super::{constants, predecessors, uses};
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Function, Op, Target, Terminator, Value};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut Function) -> bool {
    // One at a time: each changes who comes from where.
    for join in function.reverse_postorder() {
        if join != function.entry() && thread(function, join) {
            return true;
        }
    }
    false
}

/// What decides at the end of a block: a parameter, and how a constant for it is judged.
struct Question {
    param: usize,
    judge: Box<dyn Fn(u64) -> bool>,
}

fn question(function: &Function, join: Block, constants: &IndexVec<Value, Option<u64>>) -> Option<Question> {
    let data = &function.blocks[join];
    let Terminator::Branch { cond, .. } = &data.term else { return None };
    let position = |value: Value| data.params.iter().position(|param| *param == value);
    match data.insts.as_slice() {
        [] => Some(Question { param: position(*cond)?, judge: Box::new(|bits| bits != 0) }),
        [inst] if inst.result == Some(*cond) => {
            let Op::Compare(condition, a, b) = inst.op else { return None };
            let limit = constants[b]?;
            let width = function.values[a].bits()?;
            let judge = Box::new(move |bits| holds(condition, width, bits, limit));
            Some(Question { param: position(a)?, judge })
        }
        _ => None,
    }
}

fn thread(function: &mut Function, join: Block) -> bool {
    if asked_before(function, join) {
        return true;
    }
    if function.blocks[join].params.is_empty() {
        return false;
    }
    let constants = constants(function);
    let Some(question) = question(function, join, &constants) else { return false };
    let Terminator::Branch { cond, .. } = function.blocks[join].term.clone() else { return false };
    let ways_in = predecessors(function);
    let decided: Vec<_> = ways_in[join]
        .iter()
        .filter_map(|from| {
            let targets = function.blocks[*from].term.targets();
            let target = targets.into_iter().find(|target| target.block == join)?;
            let bits = constants[*target.args.get(question.param)?]?;
            Some((*from, (question.judge)(bits)))
        })
        .collect();
    // The answer itself must not be needed behind the question.
    let answered = !function.blocks[join].insts.is_empty();
    if decided.is_empty() || (answered && uses(function, cond).iter().any(|block| *block != join)) {
        return false;
    }
    if !hand_on_params(function, join, &ways_in) {
        return false;
    }
    let mut changed = false;
    for (from, holds) in decided {
        changed |= redirect(function, from, join, holds);
    }
    changed
}

/// Where a block only asks what was computed above it: those that come by a branch on the same go on without asking.
fn asked_before(function: &mut Function, join: Block) -> bool {
    let data = &function.blocks[join];
    let Terminator::Branch { cond, .. } = data.term else { return false };
    if !data.insts.is_empty() || data.params.contains(&cond) {
        return false;
    }
    let ways_in = predecessors(function);
    let dominators = Dominators::new(function, &function.reverse_postorder());
    let decided: Vec<_> = ways_in[join]
        .iter()
        .filter_map(|from| Some((*from, answer(function, &dominators, &ways_in, cond, (*from, join))?)))
        .collect();
    if decided.is_empty() || !hand_on_params(function, join, &ways_in) {
        return false;
    }
    let mut changed = false;
    for (from, holds) in decided {
        changed |= redirect(function, from, join, holds);
    }
    changed
}

/// Whether a condition holds on the way from one block to the next, if a branch above says it.
fn answer(
    function: &Function,
    dominators: &Dominators,
    ways_in: &IndexVec<Block, Vec<Block>>,
    cond: Value,
    (from, to): (Block, Block),
) -> Option<bool> {
    let (mut from, mut to, mut alone) = (from, to, true);
    loop {
        if let Terminator::Branch { cond: asked, then, otherwise } = &function.blocks[from].term
            && *asked == cond
            && alone
            && then.block != otherwise.block
        {
            return Some(then.block == to);
        }
        to = from;
        from = dominators.immediate(from)?;
        alone = ways_in[to] == [from];
    }
}

/// Makes the block's parameters ones of the blocks behind it, so that only its own end reads them.
fn hand_on_params(function: &mut Function, join: Block, ways_in: &IndexVec<Block, Vec<Block>>) -> bool {
    let params = function.blocks[join].params.clone();
    let outside: Vec<Vec<Block>> = params
        .iter()
        .map(|param| uses(function, *param).into_iter().filter(|block| *block != join).collect())
        .collect();
    if outside.iter().all(Vec::is_empty) {
        return true;
    }
    let order = function.reverse_postorder();
    let dominators = Dominators::new(function, &order);
    let next: Vec<Block> = function.blocks[join].term.targets().iter().map(|target| target.block).collect();
    let own: Vec<Block> = next.into_iter().filter(|block| ways_in[*block] == [join]).collect();
    let covered = |block: &Block| own.iter().any(|above| dominators.dominates(*above, *block));
    if !outside.iter().flatten().all(covered) {
        return false;
    }
    for (param, blocks) in params.iter().zip(&outside) {
        for above in &own {
            let region: Vec<Block> =
                blocks.iter().copied().filter(|block| dominators.dominates(*above, *block)).collect();
            if region.is_empty() {
                continue;
            }
            let ty = function.values[*param];
            let handed = function.values.push(ty);
            let mut replace = |value: Value| if value == *param { handed } else { value };
            for block in region {
                let data = &mut function.blocks[block];
                data.insts.iter_mut().for_each(|inst| inst.op.map_operands(&mut replace));
                data.term.map_operands(&mut replace);
            }
            function.blocks[*above].params.push(handed);
            for target in function.blocks[join].term.targets_mut() {
                if target.block == *above {
                    target.args.push(*param);
                }
            }
        }
    }
    true
}

/// Lets a block go where the question would lead it.
fn redirect(function: &mut Function, from: Block, join: Block, holds: bool) -> bool {
    let params = function.blocks[join].params.clone();
    let Terminator::Branch { then, otherwise, .. } = &function.blocks[join].term else { return false };
    let beyond = if holds { then.clone() } else { otherwise.clone() };
    let mut term = function.blocks[from].term.clone();
    let others: Vec<Target> =
        term.targets().into_iter().filter(|target| target.block != join).cloned().collect();
    if beyond.block == join || others.iter().any(|other| other.block == beyond.block) {
        return false;
    }
    for target in term.targets_mut().into_iter().filter(|target| target.block == join) {
        let args = target.args.clone();
        let substitute = |value: &Value| {
            params.iter().position(|param| param == value).map_or(*value, |index| args[index])
        };
        *target = Target { block: beyond.block, args: beyond.args.iter().map(substitute).collect() };
    }
    function.blocks[from].term = term;
    true
}

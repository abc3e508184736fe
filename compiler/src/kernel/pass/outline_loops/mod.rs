//! Outlines the bodies of large loops, map iterations among them, and large helpers ([`helpers`]) as global
//! functions, which the verifier checks on their own.
//!
//! In a loop under an iterator the verifier merges two paths only if they leave the same state, down to bytes of
//! the stack and numbers that nobody reads any more: each branch may double its work, and a nested loop
//! multiplies it. A global function is verified once, for any arguments.
//!
//! The function's stack frame must be in scratch memory (`kernel::scratch`), which caller and body share.
//! Loop-carried numbers are stored there before the first iteration, counters of the iterator and keys of a map
//! iteration in each. Pointers to other memory become parameters; the verifier wants to know how many bytes of
//! the pointee the body accesses ([`pointees`]). Packet pointers are computed again, and tests of them repeated.
//! A loop stays as it is if it has loop-carried pointers, or needs more parameters than there are.

mod helpers;
mod parameters;
mod pointees;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::region::{
    Bases, BodyMaker, Captures, Entrance, ExitFacts, Form, PacketTests, Region, SharedMemory, Source,
    dispatch, own_slots,
};
use crate::hir::FuncId;
use crate::kernel::limits::free_frames;
use crate::kernel::mir::iterator_loops::{IteratorLoop, heights, loops};
use crate::kernel::mir::loop_iterators::LoopIterator;
use crate::kernel::mir::{
    Block, FunctionOrigin, Inst, KeptReason, MAX_ARGS, MirFunction, Op, Origin, Program, Target, Type, Value,
};
use crate::kernel::scratch::{MAX_BYTES, scratch_slot};
use crate::kernel::verifier::code::Decisions;
pub(super) use helpers::run as outline_helper;
use parameters::Parameters;
use pointees::Pointees;

/// Outlines the bodies of large loops of a function, which come before it. Returns how many.
///
/// Each takes a frame. Where a nest of loops has more levels than frames are left, some levels stay inside of others.
pub fn run(program: &mut Program, at: usize) -> usize {
    let mut added = 0;
    let mut attempted = BTreeSet::new();
    let free = free_frames(program, program.functions[at].id);
    LoopIterator::give_entries(&mut program.functions[at]);
    let heights = heights(&large_loops(program, at));
    let levels = heights.values().copied().max().unwrap_or(0);
    let step = levels.div_ceil(free.max(1)).max(1);
    let wanted: BTreeSet<Block> =
        heights.into_iter().filter(|(_, height)| height % step == 0).map(|(header, _)| header).collect();
    let next = |program: &Program, at: usize, attempted: &mut BTreeSet<Block>| {
        let decisions = Decisions::new(program, &program.functions[at]);
        let mut open = loops(&program.functions[at]).into_iter().filter(|one| wanted.contains(&one.header));
        let is_next =
            |one: &IteratorLoop| !attempted.contains(&one.header) && decisions.are_too_many(&one.blocks);
        let found = open.find(is_next)?;
        attempted.insert(found.header);
        Some(found)
    };
    while let Some(mut one) = next(program, at + added, &mut attempted) {
        let id = program.next_id;
        if !one.absorb_ends(&mut program.functions[at + added]) {
            continue;
        }
        let Some((body, caller, outlined)) = outline(program, at + added, &one, id) else { continue };
        program.use_id();
        program.loops.pointee_bytes.insert(id, outlined.pointee_bytes);
        program.scratch_bytes = outlined.scratch_bytes;
        program.functions[at + added] = caller;
        program.functions.insert(at + added, body);
        added += 1;
    }
    added
}

fn large_loops(program: &Program, at: usize) -> Vec<IteratorLoop> {
    let function = &program.functions[at];
    let decisions = Decisions::new(program, function);
    loops(function).into_iter().filter(|one| decisions.are_too_many(&one.blocks)).collect()
}

/// What an outlined function needs of the program.
struct Outlined {
    pointee_bytes: Vec<u32>,
    scratch_bytes: u32,
}

/// Makes the function of a loop body, and the function that calls it; `None` if the body cannot be one.
fn outline(
    program: &Program,
    at: usize,
    one: &IteratorLoop,
    id: FuncId,
) -> Option<(MirFunction, MirFunction, Outlined)> {
    let function = &program.functions[at];
    let region = Region::new(function, one, true);
    let (slots, shares) = own_slots(function, one, |inst| region.is_moved(inst));
    let mut form = ScratchForm::new(&region, program)?;
    let captures = Captures::new(&region, &mut form, SharedMemory::after(program.scratch_bytes)).ok()?;
    let scratch_bytes = captures.memory.end;
    let is_allowed = function.context.is_some() || form.parameters.context.is_none();
    if shares || scratch_bytes > MAX_BYTES || !is_allowed || form.parameters.count() > MAX_ARGS {
        return None;
    }
    form.find_tested(&region, &captures);
    let maker = BodyMaker::new(function, (id, FunctionOrigin::Body), "loop", &slots);
    let body = captures.body(&region, &form, maker);
    let mut caller = function.clone();
    form.call(&region, &captures, id, &mut caller);
    let pointee_bytes = form.parameters.pointers.iter().map(|pointer| pointer.bytes).collect();
    Some((body, caller, Outlined { pointee_bytes, scratch_bytes }))
}

/// A body that is called in each iteration and shares scratch memory with its caller.
struct ScratchForm<'a> {
    parameters: Parameters,
    packet_tests: BTreeMap<Value, (u32, Value)>,
    pointee_bytes: &'a BTreeMap<FuncId, Vec<u32>>,
    tests: OnceCell<PacketTests>,
}

impl<'a> ScratchForm<'a> {
    /// `None` if the function has no scratch slot, or a test of packet bytes cannot be repeated.
    fn new(region: &Region<'_>, program: &'a Program) -> Option<ScratchForm<'a>> {
        let parameters = Parameters {
            base: scratch_slot(region.function)?,
            context: None,
            pointers: Vec::new(),
            by_number: program.loops.called,
        };
        let mut form = ScratchForm {
            parameters,
            packet_tests: BTreeMap::new(),
            pointee_bytes: &program.loops.pointee_bytes,
            tests: OnceCell::new(),
        };
        let blocks = &region.one.blocks;
        let mut insts = blocks.iter().flat_map(|block| &region.function.blocks[*block].insts);
        if insts.any(|inst| matches!(inst.op, Op::InPacket { .. })) {
            for (pointer, bytes) in form.tests(region).untested(region.function, blocks) {
                if !region.defined.contains(&pointer) {
                    form.repeat_test(region, pointer, bytes).ok()?;
                }
            }
        }
        Some(form)
    }

    fn tests(&self, region: &Region<'_>) -> &PacketTests {
        self.tests.get_or_init(|| PacketTests::new(region.function))
    }

    /// Lets the body test bytes of a packet that were tested before the loop. Returns the end of the packet.
    fn repeat_test(&mut self, region: &Region<'_>, pointer: Value, bytes: u32) -> Result<Value, KeptReason> {
        let end = self.tests(region).end(pointer, bytes, region.one.header, |_| true);
        let end = end.ok_or(KeptReason::Pointer)?;
        let (most, end) = self.packet_tests.entry(pointer).or_insert((bytes, end));
        *most = bytes.max(*most);
        Ok(*end)
    }

    /// Makes a pointer to memory a parameter.
    fn pass_pointer(&mut self, region: &Region<'_>, value: Value) -> Result<Source, KeptReason> {
        // The verifier accepts no pointer to a key for one to memory, which may be written to. Source:
        // kernel/bpf/verifier.c, `check_helper_mem_access`, v6.12.
        if region.one.is_key(value) {
            return Err(KeptReason::Pointer);
        }
        let blocks = region.one.blocks.iter().copied().chain([region.one.header]).collect();
        let pointee_bytes = self.pointee_bytes;
        let pointees =
            Pointees { function: region.function, blocks: &blocks, ops: &region.ops, pointee_bytes };
        let bytes = pointees.pointer(value).ok_or(KeptReason::Pointer)?;
        self.parameters.pointers.push(parameters::Pointer { value, bytes, is_tested: false });
        Ok(Source::Form)
    }

    /// Finds the pointers that the body takes for tested and does not test: they are not null in any iteration.
    fn find_tested(&mut self, region: &Region<'_>, captures: &Captures) {
        let blocks = region.one.blocks.iter().map(|block| &region.function.blocks[*block]);
        let insts: Vec<&Inst> = blocks.flat_map(|data| &data.insts).collect();
        for pointer in &mut self.parameters.pointers {
            let is_test = |inst: &Inst| inst.op == Op::IsNull(pointer.value);
            let is_tested =
                insts.iter().any(|inst| is_test(inst)) || captures.rematerialised.iter().any(is_test);
            pointer.is_tested = !is_tested && insts.iter().any(|inst| inst.op == Op::NonNull(pointer.value));
        }
    }

    /// Puts the call in the place of the loop's body.
    fn call(&self, region: &Region<'_>, captures: &Captures, id: FuncId, caller: &mut MirFunction) {
        let one = region.one;
        let facts = ExitFacts::new(region.function, one, &region.exits);
        self.read_at_uses(region, captures, caller);
        let span = region.function.blocks[one.header].span;
        let calling = caller.push_block(span);
        caller.blocks[calling].insts = before_call(region);
        let per_iteration = self.enter_loop(region, captures, caller);
        for value in per_iteration {
            caller.append_store(calling, value, self.parameters.base, captures.incoming[&value]);
        }
        let code = self.parameters.call(caller, calling, id);
        let (targets, is_only_exit) = (region.exit_targets(), region.exits.len() == 1);
        let rematerialise = |caller: &mut MirFunction, block: Block, known: &mut BTreeMap<Value, Value>| {
            captures.rematerialise_results(caller, block, known, |caller, value, _| {
                self.read(region, captures, caller, block, value)
            });
        };
        if !is_only_exit {
            rematerialise(caller, calling, &mut BTreeMap::new());
        }
        let rest =
            dispatch(caller, (calling, code), (&region.exits, &targets), &facts, |caller, args, taken| {
                let own = |arg: &Value| (*arg, self.read(region, captures, caller, taken, *arg));
                let mut known = args.iter().map(own).collect();
                if is_only_exit {
                    rematerialise(caller, taken, &mut known);
                }
                known
            });
        caller.jump(rest, one.header, captures.kept.iter().copied().flatten().collect());
        for target in caller.blocks[one.header].term.targets_mut() {
            if target.block == one.entry {
                *target = Target::to(calling);
            }
        }
        caller.clear_blocks(&one.blocks);
    }

    /// What stands for a value in a block of the caller: a load, if it is a result.
    fn read(
        &self,
        region: &Region<'_>,
        captures: &Captures,
        caller: &mut MirFunction,
        block: Block,
        value: Value,
    ) -> Value {
        let Some(offset) = captures.results.get(&value) else { return value };
        let ty = region.function.values[value];
        captures.read(caller, block, (value, ty), (Bases::one(self.parameters.base), *offset), None)
    }

    /// Loads results where they are used: in a loop around this one they need not be results, too.
    fn read_at_uses(&self, region: &Region<'_>, captures: &Captures, caller: &mut MirFunction) {
        for block in region.function.reverse_postorder() {
            if region.one.blocks.contains(&block) {
                continue;
            }
            for mut inst in std::mem::take(&mut caller.blocks[block].insts) {
                inst.op.map_operands(&mut |value| self.read(region, captures, caller, block, value));
                caller.blocks[block].insts.push(inst);
            }
            let mut term = caller.blocks[block].term.clone();
            if block == region.one.header {
                // A header only asks for the next item.
                for target in term.targets_mut().into_iter().filter(|to| to.block != region.one.entry) {
                    let edge = caller.push_block(caller.blocks[block].span);
                    let own = |arg: &Value| self.read(region, captures, caller, edge, *arg);
                    let args = target.args.iter().map(own).collect();
                    caller.jump(edge, target.block, args);
                    *target = Target::to(edge);
                }
            } else {
                term.map_operands(&mut |value| self.read(region, captures, caller, block, value));
            }
            caller.blocks[block].term = term;
        }
    }

    /// Stores what the body reads on the edges that enter the loop. Returns the values that the caller knows in
    /// each iteration only. Of the header's parameters those remain that are not carried.
    fn enter_loop(&self, region: &Region<'_>, captures: &Captures, caller: &mut MirFunction) -> Vec<Value> {
        let (header, base) = (region.one.header, self.parameters.base);
        let asked = region.function.blocks[header].insts.iter().chain(region.unmoved());
        let mut in_iteration: BTreeSet<Value> = asked.filter_map(|inst| inst.result).collect();
        in_iteration.extend(region.params());
        let is_kept = |(_, offset): &(&Value, &Option<u32>)| offset.is_none();
        let kept = region.params().iter().zip(&captures.carried).filter(is_kept);
        caller.blocks[header].params = kept.map(|(param, _)| *param).collect();
        for from in region.function.reverse_postorder() {
            if region.one.blocks.contains(&from) {
                continue;
            }
            let mut term = caller.blocks[from].term.clone();
            for target in term.targets_mut().into_iter().filter(|to| to.block == header) {
                let edge = caller.push_block(caller.blocks[header].span);
                for (value, offset) in
                    captures.incoming.iter().filter(|(value, _)| !in_iteration.contains(value))
                {
                    caller.append_store(edge, *value, base, *offset);
                }
                let mut args = Vec::new();
                for (arg, offset) in target.args.iter().zip(&captures.carried) {
                    match offset {
                        Some(offset) => caller.append_store(edge, *arg, base, *offset),
                        None => args.push(*arg),
                    }
                }
                caller.jump(edge, header, args);
                *target = Target::to(edge);
            }
            caller.blocks[from].term = term;
        }
        captures.incoming.keys().copied().filter(|value| in_iteration.contains(value)).collect()
    }
}

impl Form for ScratchForm<'_> {
    fn source(&mut self, region: &Region<'_>, value: Value) -> Result<Source, KeptReason> {
        if value == self.parameters.base {
            return Ok(Source::Form);
        }
        let is_constant = |value: &Value| region.ops[*value].is_some_and(Op::is_known_at_load);
        match (region.function.values[value], region.ops[value]) {
            (Type::Ptr(origin), Some(op)) if origin.is_of_packet() => match op {
                Op::InPacket { pointer, bytes } => {
                    Ok(Source::Rematerialised(Some(self.repeat_test(region, *pointer, *bytes)?)))
                }
                _ => Ok(Source::Rematerialised(None)),
            },
            (_, Some(op)) if op.is_known_at_load() => Ok(Source::Rematerialised(None)),
            // A distance that is no constant was checked outside.
            (Type::Ptr(_), Some(Op::PtrAdd(pointer, distance)))
                if (*pointer == self.parameters.base || is_constant(pointer)) && is_constant(distance) =>
            {
                Ok(Source::Rematerialised(None))
            }
            (Type::Ptr(Origin::Context), _) if self.parameters.context.is_none() => {
                self.parameters.context = Some(value);
                Ok(Source::Form)
            }
            (Type::Ptr(_), _) => self.pass_pointer(region, value),
            // A number in memory proves nothing of the pointer that was tested.
            (_, Some(Op::IsNull(pointer) | Op::Within { pointer, .. }))
                if region.live_in.contains(pointer) =>
            {
                Ok(Source::Rematerialised(None))
            }
            _ => Ok(Source::Memory),
        }
    }

    fn enter(&self, _region: &Region<'_>, maker: &mut BodyMaker<'_>) -> Entrance {
        self.parameters.receive(maker)
    }

    fn packet_tests(&self) -> BTreeMap<Value, (u32, Value)> {
        self.packet_tests.clone()
    }

    fn leave(&self, maker: &mut BodyMaker<'_>, block: Block, _bases: Bases, code: u64) {
        maker.leave(block, code);
    }
}

/// The instructions that read the item of an iteration, in an order in which they can run: constants that they
/// need, what they test, and loads.
fn before_call(region: &Region<'_>) -> Vec<Inst> {
    let (loads, tests): (Vec<&Inst>, Vec<&Inst>) =
        region.unmoved().partition(|inst| matches!(inst.op, Op::Load { .. }));
    let needed: BTreeSet<Value> = region.unmoved().flat_map(|inst| inst.op.operands()).collect();
    let constants = needed.intersection(&region.defined).filter_map(|value| {
        let op = region.ops[*value].filter(|op| op.is_leaf())?;
        Some(Inst { result: Some(*value), op: op.clone(), span: region.function.span })
    });
    constants.chain(tests.into_iter().chain(loads).cloned()).collect()
}

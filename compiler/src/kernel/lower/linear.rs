//! Makes the packets of tc programs linear. The kernel shows a program only the part of a packet that is in
//! one piece; the bytes of the other pieces would read as zeros. So a program that reads packets first pulls
//! the packet into one piece, if it is not:
//!
//! ```text
//!     if (data_end - data < ctx->len) bpf_skb_pull_data(ctx, ctx->len)
//! ```
//!
//! If the kernel lacks memory for that, the first part stays and the rest reads as zeros. XDP packets are
//! always in one piece. Other packet programs cannot pull (net/core/filter.c, v6.12,
//! `tc_cls_act_func_proto`): their reads copy the bytes of other pieces (`pointer::packet`).

use std::collections::BTreeSet;

use super::super::mir::{self, Callee, Condition, Helper, Op, Size, Type, Value};
use super::{Lower, Lowerer, impossible};
use crate::hir::visit::{self, Visitor};
use crate::hir::{FuncId, HirFunction, Lvalue, ProgramKind};
use crate::source::Span;

/// The offset of the packet length in `struct __sk_buff`. Source: include/uapi/linux/bpf.h, v6.12.
const WHOLE_LENGTH: i16 = 0;

/// Whether a function starts by making the packet linear.
pub(super) fn linearizes_packet(function: &mir::MirFunction) -> bool {
    let pull = Callee::Helper(Helper::SkbPullData);
    function.insts().any(|inst| matches!(&inst.op, Op::Call { callee, .. } if *callee == pull))
}

impl Lowerer<'_> {
    /// Makes the packet linear at the start of a tc program that reads packets.
    pub(super) fn linearize_packet(&mut self, id: FuncId) -> Lower<()> {
        let (Some(ProgramKind::Tc), Some(context), true) =
            (self.kind, self.entry_context, self.hir.is_entry(id))
        else {
            return Ok(());
        };
        if !self.reads_packets(id) {
            return Ok(());
        }
        let there = self.piece_length(self.active.source.span)?;
        let whole = self.length_in(context);
        let partly = self.builder.compare(Condition::Lt, there, whole);
        let (pull, go_on) = (self.builder.block(), self.builder.block());
        self.builder.branch(partly, pull, go_on);
        self.builder.switch_to_sealed(pull);
        self.builder
            .effect(Op::Call { callee: Callee::Helper(Helper::SkbPullData), args: vec![context, whole] });
        self.builder.jump(go_on);
        self.builder.switch_to_sealed(go_on);
        Ok(())
    }

    /// Whether reads of packet bytes outside of the first piece copy them: all programs that reach this
    /// function can neither pull the packet nor write to it.
    pub(super) fn reads_far(&self) -> bool {
        let programs = self.programs_here();
        let is_cgroup = |one: &&HirFunction| Self::program_kind(one.kind) == Some(ProgramKind::Cgroup);
        !programs.is_empty() && programs.iter().all(is_cgroup)
    }

    /// The length of the whole packet in bytes.
    pub(super) fn whole_length(&mut self, span: Span) -> Lower<Value> {
        match self.context {
            Some((context, _)) => Ok(self.length_in(context)),
            None => impossible(span, "a pointer into a packet where there is no context"),
        }
    }

    fn length_in(&mut self, context: Value) -> Value {
        let op = Op::Load { size: Size::W, base: context, offset: WHOLE_LENGTH };
        let length = self.builder.value(Type::I32, op);
        self.builder.value(Type::I64, Op::ZeroExtend(length))
    }

    /// Whether a function, or one that it calls, uses a pointer into the packet of its context.
    fn reads_packets(&self, id: FuncId) -> bool {
        let mut seen = BTreeSet::new();
        let mut reads = Reads { lowerer: self, found: false, called: vec![id] };
        while let Some(id) = reads.called.pop() {
            if seen.insert(id) {
                visit::block(&mut reads, &self.hir.functions[id].body);
            }
        }
        reads.found
    }
}

struct Reads<'a, 'h> {
    lowerer: &'a Lowerer<'h>,
    found: bool,
    called: Vec<FuncId>,
}

impl Visitor for Reads<'_, '_> {
    fn function(&mut self, id: FuncId) {
        self.called.push(id);
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        self.found |= self.lowerer.packet_member(lvalue).is_some();
    }
}

//! Lowers pointers into packets.
//!
//! A pointer into a packet is an offset in bytes from the start of the packet, or of its metadata. Start and
//! end are loaded from the context wherever they are needed. So a pointer may be kept, change in a loop and
//! merge with others, and the verifier sees at every access a sum that was just compared with the end. The
//! access goes through the compared sum.
//!
//! Only the first piece of a packet can be reached this way. Where the kernel permits neither pulling the
//! rest nor writing to it (`@cgroup`), bytes of other pieces are copied.

use super::super::super::mir::{BinaryOp, Block, Callee, Condition, Helper, Op, Origin, Type, Value};
use super::super::memory::{ANYWHERE, Addr, BASE_ALIGN, Base};
use super::super::{Lower, Lowerer, impossible};
use super::{ADDRESS, Bytes, Object, Part, Pointer};
use crate::builtins::context_members::{ContextField, MemberType};
use crate::hir::Lvalue;
use crate::source::Span;

/// The largest offset in a packet up to which the verifier tracks pointers. Source: include/linux/filter.h
/// and kernel/bpf/verifier.c, `MAX_PACKET_OFF`, v6.12.
const MAX_OFFSET: u64 = 0xffff;

/// Accesses that end within this many bytes of a run-time offset share one addition, as members of a header
/// do.
const NEAR: u64 = 64;

/// An upper bound of packet lengths. Source: net/core/filter.c, `bpf_skb_load_bytes`, v6.12.
const MAX_LENGTH: u64 = 1 << 31;

/// The number of the first position in a packet: no position equals null.
const FIRST_POSITION: u64 = 1 << 32;

impl Lowerer<'_> {
    /// The context member that an lvalue denotes, if it points into the packet.
    pub(in super::super) fn packet_member(&self, lvalue: &Lvalue) -> Option<&'static ContextField> {
        let member = self.context_lvalue(lvalue)?;
        member.field.ty.is_packet().then_some(member.field)
    }

    /// The value of a context member that points into the packet.
    pub(super) fn packet_pointer(&mut self, member: MemberType, span: Span) -> Lower<Pointer> {
        let (part, offset) = match member {
            MemberType::PacketEnd if self.reads_far() => (Part::Data, Bytes::Value(self.whole_length(span)?)),
            MemberType::PacketEnd => (Part::Data, Bytes::Value(self.piece_length(span)?)),
            MemberType::PacketMeta => (Part::Meta, Bytes::Known(0)),
            _ => (Part::Data, Bytes::Known(0)),
        };
        let base = self.builder.constant(Type::I32, 1);
        let object = Object { base, extent: 0, is_own: true, record: None, packet: Some(part), held: None };
        Ok(self.pointer_into(vec![object], offset, BASE_ALIGN))
    }

    /// The start or end of the packet, or the start of its metadata.
    pub(super) fn edge(&mut self, member: MemberType, span: Span) -> Lower<Value> {
        let Some((context, structure)) = self.context else {
            return impossible(span, "a pointer into a packet where there is no context");
        };
        let field = structure.fields.iter().find(|field| field.ty == member);
        let Some(offset) = field.and_then(|field| i16::try_from(field.offset).ok()) else {
            return impossible(span, "a pointer into this packet");
        };
        let origin = if member == MemberType::PacketEnd { Origin::PacketEnd } else { Origin::Packet };
        Ok(self.builder.value(Type::Ptr(origin), Op::PacketEdge { context, offset, generation: 0 }))
    }

    /// The length in bytes of the packet's first piece.
    pub(in super::super) fn piece_length(&mut self, span: Span) -> Lower<Value> {
        let start = self.edge(MemberType::PacketStart, span)?;
        let end = self.edge(MemberType::PacketEnd, span)?;
        Ok(self.builder.value(Type::I64, Op::PtrDiff(end, start)))
    }

    fn edges(&mut self, part: Part, span: Span) -> Lower<(Value, Value)> {
        let (start, end) = match part {
            Part::Data => (MemberType::PacketStart, MemberType::PacketEnd),
            Part::Meta => (MemberType::PacketMeta, MemberType::PacketStart),
        };
        Ok((self.edge(start, span)?, self.edge(end, span)?))
    }

    /// Whether a pointer may point into a packet.
    pub(in super::super) fn may_be_packet(&self, pointer: Pointer) -> bool {
        self.objects(pointer).iter().any(|object| object.packet.is_some())
    }

    pub(super) fn packets_and_memory(&mut self, pointer: Pointer) -> (Vec<Object>, Vec<Object>) {
        let objects = self.live_objects(pointer).into_iter();
        objects.filter(|object| object.extent != ADDRESS).partition(|object| object.packet.is_some())
    }

    /// The address of `bytes` bytes in the packet; `there` is 0 if the pointer points elsewhere.
    pub(super) fn inside_packet(
        &mut self,
        offset: Bytes,
        there: Value,
        part: Part,
        bytes: u32,
        miss: Block,
    ) -> Addr {
        if self.builder.known(there) != Some(1) {
            let there = self.builder.compare_const(Condition::Ne, there, 0);
            self.require(there, miss);
        }
        if !self.reads_far() {
            return self.inside_piece(offset, part, bytes, miss);
        }
        let (far, join) = (self.builder.block(), self.builder.block());
        let result = self.builder.param(join, Type::Ptr(Origin::Memory));
        let near = self.inside_piece(offset, part, bytes, far);
        let near = self.pointer(near);
        self.builder.jump_with(join, near);
        self.builder.switch_to_sealed(far);
        let copy = self.copied_from_packet(offset, bytes, miss);
        self.builder.jump_with(join, copy);
        self.builder.switch_to_sealed(join);
        // The copy is on the stack, where the verifier checks alignment.
        Addr::of(Base::Pointer(result))
    }

    /// The address of `bytes` bytes in the packet's first piece.
    fn inside_piece(&mut self, offset: Bytes, part: Part, bytes: u32, miss: Block) -> Addr {
        let Ok((start, end)) = self.edges(part, self.active.source.span) else {
            return self.nothing(miss);
        };
        let (pointer, at) = match offset {
            Bytes::Known(at) => (start, at),
            Bytes::Value(offset) => {
                let (offset, at) = match self.builder.sum(offset) {
                    Some((offset, at)) if at.saturating_add(bytes.into()) <= NEAR => (offset, at),
                    _ => (offset, 0),
                };
                let reach = NEAR.max(at + u64::from(bytes));
                if reach > MAX_OFFSET {
                    return self.nothing(miss);
                }
                let offset = self.below(offset, MAX_OFFSET + 1 - reach, miss);
                (self.builder.value(Type::Ptr(Origin::Packet), Op::PtrAdd(start, offset)), at)
            }
        };
        let whole = at.checked_add(bytes.into()).filter(|whole| *whole <= MAX_OFFSET);
        let Some((whole, at)) = whole.and_then(|whole| Some((whole as u32, u32::try_from(at).ok()?))) else {
            return self.nothing(miss);
        };
        let within = self.builder.value(Type::I32, Op::Within { pointer, bytes: whole, end });
        self.require(within, miss);
        let op = Op::InPacket { pointer, bytes: whole };
        let checked = self.builder.value(Type::Ptr(Origin::InPacket), op);
        // Both architectures permit unaligned access, and there the verifier requires no alignment in
        // packets.
        Addr { base: Base::Pointer(checked), offset: at, align: ANYWHERE }
    }

    /// The address of a copy of `bytes` bytes of the packet, which may lie in any of its pieces.
    fn copied_from_packet(&mut self, offset: Bytes, bytes: u32, miss: Block) -> Value {
        let Some((context, _)) = self.context else { return self.null };
        let offset = match offset {
            Bytes::Known(at) => self.builder.constant(Type::I64, at),
            Bytes::Value(offset) => offset,
        };
        let offset = self.below(offset, MAX_LENGTH, miss);
        let copy = Addr::of(Base::Slot(self.builder.slot(bytes)));
        let (to, size) = (self.pointer(copy), self.builder.constant(Type::I64, bytes.into()));
        let args = vec![context, offset, to, size];
        let refused = self.builder.call(Type::I64, Callee::Helper(Helper::SkbLoadBytes), args);
        let copied = self.builder.compare_const(Condition::Eq, refused, 0);
        self.require(copied, miss);
        self.pointer(copy)
    }

    /// The distance of two pointers, each into a packet or null.
    pub(super) fn packet_difference(&mut self, a: Pointer, b: Pointer) -> Lower<Value> {
        let (a, b) = (self.packet_position(a)?, self.packet_position(b)?);
        Ok(self.builder.binary(BinaryOp::Sub, a, b))
    }

    /// A pointer into a packet, or null, as a number that orders positions in the packet.
    fn packet_position(&mut self, pointer: Pointer) -> Lower<Value> {
        let (packets, _) = self.packets_and_memory(pointer);
        let mut position = self.builder.constant(Type::I64, 0);
        for Object { base, packet, .. } in packets {
            let offset = self.number(pointer.offset);
            let mut here = self.builder.binary_const(BinaryOp::Add, offset, FIRST_POSITION);
            if packet == Some(Part::Meta) {
                let (start, data) = self.edges(Part::Meta, self.active.source.span)?;
                let before = self.builder.value(Type::I64, Op::PtrDiff(data, start));
                here = self.builder.binary(BinaryOp::Sub, here, before);
            }
            position = self.choose(base, here, position);
        }
        Ok(position)
    }
}

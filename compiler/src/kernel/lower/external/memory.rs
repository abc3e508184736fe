//! Lowers memory arguments of kernel functions.
//!
//! The verifier requires the memory to exist and, for helpers that take a size, accesses to stay inside it.
//! Whatever is unknown at compile time is checked before the call; the call is skipped if a check fails.

use super::super::super::mir::{BinaryOp, Block, Condition, Type, Value};
use super::super::memory::{Addr, Base};
use super::super::pointer::{Bytes, Pointer};
use super::super::{Lower, Lowerer, arithmetic};
use crate::defect::narrow;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Extern};
use crate::types::{IntType, TypeKind};

/// Helper arguments, by position, that are any numbers: the helper checks itself whether the address can be
/// accessed. Source: the `*_proto` of kernel/trace/bpf_trace.c, v6.12.
const ADDRESSES: &[(&str, usize)] = &[
    ("bpf_probe_read", 2),
    ("bpf_probe_read_str", 2),
    ("bpf_probe_read_kernel", 2),
    ("bpf_probe_read_kernel_str", 2),
    ("bpf_probe_read_user", 2),
    ("bpf_probe_read_user_str", 2),
    ("bpf_probe_write_user", 0),
];

/// Memory arguments that may be null. Source: the `*_proto` of net/core/filter.c, v6.12.
const NULLABLE: &[(&str, usize)] = &[("bpf_csum_diff", 0), ("bpf_csum_diff", 2), ("bpf_redirect_neigh", 1)];

/// Memory arguments of a fixed size: the number after them is not their size. Source:
/// include/uapi/linux/bpf.h, v6.12.
const OF_ONE_SIZE: &[(&str, usize)] = &[("bpf_check_mtu", 2)];

/// A memory argument of a kernel function.
pub(super) struct Argument<'a> {
    pub function: &'a Extern,
    pub position: usize,
    pub arg: &'a Expr,
}

impl Argument<'_> {
    fn is_in(&self, table: &[(&str, usize)]) -> bool {
        table.iter().any(|(name, at)| *name == self.function.name && *at == self.position)
    }

    /// Whether the number after the argument is its size.
    pub(super) fn has_size(&self) -> bool {
        self.function.helper.is_some() && !self.is_in(OF_ONE_SIZE)
    }

    fn may_be_null(&self) -> bool {
        // The requirements of a kernel function are not known from its name.
        self.function.helper.is_none() || self.is_in(NULLABLE)
    }
}

impl Lowerer<'_> {
    /// The memory, and its size if the function takes one. Control goes to `refused` if the memory is
    /// missing.
    pub(super) fn external_memory(
        &mut self,
        memory_arg: &Argument<'_>,
        pointer: Pointer,
        size: Option<(Value, &Expr)>,
        refused: &mut Option<Block>,
    ) -> Lower<Vec<Value>> {
        let objects = self.objects(pointer);
        let plain = |address| std::iter::once(address).chain(size.map(|(size, _)| size)).collect();
        if objects.is_empty() && (memory_arg.may_be_null() || memory_arg.is_in(ADDRESSES)) {
            let null = self.builder.constant(Type::I64, 0);
            let none = size.map(|(size, _)| self.no_bytes(size, refused));
            return Ok(std::iter::once(null).chain(none).collect());
        }
        if !self.addresses(pointer).is_empty()
            || (memory_arg.is_in(ADDRESSES) && self.surely_there(pointer, 1).is_none())
        {
            return Ok(plain(self.address_value(pointer)?));
        }
        if self.may_be_packet(pointer) {
            return Err(Box::new(
                unfit(memory_arg.arg, "helpers and functions of the kernel are not given packets")
                    .help("copy the bytes into a variable: `var copy = *pointer`"),
            ));
        }
        let left = |at| objects.iter().map(move |object| object.extent.saturating_sub(at));
        let (least, most) = match pointer.offset {
            // Null: it is missing, whatever the size.
            _ if objects.is_empty() => (Some(1), None),
            Bytes::Known(at) => (left(at).min(), left(at).max()),
            Bytes::Value(_) => (None, None),
        };
        match size {
            Some((value, size)) if let ExprKind::Const(bytes) = size.kind => {
                if let Some(most) = most.filter(|most| bytes > *most) {
                    return Err(Box::new(unfit(size, format!("a size of {bytes}, where {most} bytes are"))));
                }
                Ok(vec![self.there(pointer, bytes.max(1), refused), value])
            }
            Some((value, size)) => {
                let Some(least) = least else {
                    let text = "where this memory is and how much of it are both known only at run time";
                    return Err(Box::new(
                        unfit(memory_arg.arg, text)
                            .help("make the size a constant, or start where a variable starts"),
                    ));
                };
                let memory = self.there(pointer, least.max(1), refused);
                Ok(vec![memory, self.size_up_to(least, value, size, refused)?])
            }
            None => {
                let to = match self.types().kind(memory_arg.arg.ty) {
                    TypeKind::Ptr(to) => self.types().size(*to),
                    _ => 1,
                };
                let bytes = if to > 1 { to } else { least.unwrap_or(1).max(1) };
                Ok(vec![self.there(pointer, bytes, refused)])
            }
        }
    }

    /// The address of `bytes` bytes that exist on every run; `None` if that is not known.
    fn surely_there(&self, pointer: Pointer, bytes: u64) -> Option<Addr> {
        let (objects, Bytes::Known(at)) = (self.objects(pointer), pointer.offset) else { return None };
        let [only] = objects.as_slice() else { return None };
        let is_memory = matches!(self.builder.ty(only.base), Type::Ptr(origin) if origin.is_memory());
        let is_inside = only.extent.checked_sub(at).is_some_and(|left| left >= bytes);
        let at = u32::try_from(at).ok().filter(|_| is_memory && is_inside)?;
        Some(Addr::of(Base::Pointer(only.base)).plus(at))
    }

    /// The address of `bytes` bytes; control goes to `refused` if they are missing.
    fn there(&mut self, pointer: Pointer, bytes: u64, refused: &mut Option<Block>) -> Value {
        let addr = self.surely_there(pointer, bytes).unwrap_or_else(|| {
            let miss = *refused.get_or_insert_with(|| self.builder.block());
            self.dereference(pointer, narrow(bytes), miss)
        });
        self.pointer(addr)
    }

    /// The size of a null argument: the kernel accepts null only with size 0.
    fn no_bytes(&mut self, size: Value, refused: &mut Option<Block>) -> Value {
        if self.builder.known(size) != Some(0) {
            let miss = *refused.get_or_insert_with(|| self.builder.block());
            let none = self.builder.block();
            let some = self.builder.compare_const(Condition::Ne, size, 0);
            self.builder.branch(some, miss, none);
            self.builder.switch_to_sealed(none);
        }
        self.builder.constant(self.builder.ty(size), 0)
    }

    /// Checks that a size is from 1 to `most`. The verifier must see both ends of the range.
    fn size_up_to(
        &mut self,
        most: u64,
        value: Value,
        size: &Expr,
        refused: &mut Option<Block>,
    ) -> Lower<Value> {
        let int = self.int(size.ty, size.span)?;
        let wide = arithmetic::convert(&mut self.builder, int, IntType { bits: 64, ..int }, value);
        let miss = *refused.get_or_insert_with(|| self.builder.block());
        let more = self.builder.binary_const(BinaryOp::Sub, wide, 1);
        let more = self.below(more, most.max(1), miss);
        Ok(self.builder.binary_const(BinaryOp::Add, more, 1))
    }
}

/// Creates diagnostic KS0621 for an unfit argument.
fn unfit(expr: &Expr, text: impl Into<String>) -> Diagnostic {
    Diagnostic::error(621, expr.span, text)
}

//! Passes pointers to functions.

use super::super::super::mir::{Origin, Type, Value};
use super::super::Lowerer;
use super::{ADDRESS, BASE_ALIGN, Bytes, Object, Part, Pointer, known_align};

/// How a pointer is passed: its pointee, and which parts of the pointer are parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Passed {
    pointee: Pointee,
    /// Whether the offset is a parameter; else it is 0.
    offset: bool,
    align: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pointee {
    Null,
    /// A part of a packet; if the pointer may be null, whether it is not is a parameter.
    Packet {
        part: Part,
        may_be_null: bool,
    },
    /// An object of so many bytes, whose address is a parameter.
    Object {
        extent: u64,
        is_own: bool,
        may_be_null: bool,
    },
    /// Memory that is not the program's, whose address is a parameter.
    Address,
}

impl Passed {
    /// Whether the pointee is a packet.
    pub(in super::super) fn is_of_packet(&self) -> bool {
        matches!(self.pointee, Pointee::Packet { .. })
    }
}

impl Lowerer<'_> {
    /// How a pointer is passed; `None` if it cannot be. With `releases`, the function may release records.
    pub(in super::super) fn passed(&self, pointer: Pointer, releases: bool) -> Option<Passed> {
        let offset = !matches!(pointer.offset, Bytes::Known(0));
        let align = if offset { known_align(&pointer) } else { pointer.align };
        let pointee = match self.objects(pointer).as_slice() {
            [] => return Some(Passed { pointee: Pointee::Null, offset: false, align: BASE_ALIGN }),
            [one] if one.held.is_some() || one.record.is_some() && releases => return None,
            [Object { packet: Some(part), base, .. }] => {
                Pointee::Packet { part: *part, may_be_null: self.builder.known(*base) != Some(1) }
            }
            [Object { extent: ADDRESS, .. }] => Pointee::Address,
            [Object { extent, is_own, record, base, .. }] => {
                let nullable = match self.builder.ty(*base) {
                    Type::Ptr(origin) => origin.checked().is_some(),
                    _ => true,
                };
                Pointee::Object {
                    extent: *extent,
                    is_own: *is_own,
                    may_be_null: nullable || record.is_some(),
                }
            }
            _ => return None,
        };
        Some(Passed { pointee, offset, align })
    }

    /// The arguments for a pointer that is passed so.
    pub(in super::super) fn pass(&mut self, pointer: Pointer, passed: Passed) -> Vec<Value> {
        let mut values = Vec::new();
        let objects = self.live_objects(pointer);
        let base = objects.first().map(|object| object.base);
        match passed.pointee {
            Pointee::Null | Pointee::Packet { may_be_null: false, .. } => {}
            Pointee::Packet { .. } | Pointee::Address => values.extend(base),
            Pointee::Object { .. } => values.extend(base.map(|base| self.with_plain_null(base))),
        }
        if passed.offset {
            values.push(self.number(pointer.offset));
        }
        values
    }

    /// Declares the parameters for a pointer that is passed so; returns the pointer.
    pub(in super::super) fn receive(&mut self, passed: Passed, name: &str) -> Pointer {
        let base = match passed.pointee {
            Pointee::Null => None,
            Pointee::Packet { may_be_null: false, .. } => Some(self.builder.constant(Type::I32, 1)),
            Pointee::Packet { .. } => Some(self.builder.function_param(name, Type::I32)),
            Pointee::Address => Some(self.builder.function_param(name, Type::I64)),
            Pointee::Object { may_be_null, .. } => {
                let origin = if may_be_null { Origin::MemoryOrNull } else { Origin::Memory };
                Some(self.builder.function_param(name, Type::Ptr(origin)))
            }
        };
        let offset = if passed.offset {
            Bytes::Value(self.builder.function_param(&format!("__{name}_offset"), Type::I64))
        } else {
            Bytes::Known(0)
        };
        let (extent, is_own, packet) = match passed.pointee {
            Pointee::Null => (0, true, None),
            Pointee::Packet { part, .. } => (0, true, Some(part)),
            Pointee::Object { extent, is_own, .. } => (extent, is_own, None),
            Pointee::Address => (ADDRESS, false, None),
        };
        let object = |base| Object { base, extent, is_own, record: None, packet, held: None };
        self.pointer_into(base.map(object).into_iter().collect(), offset, passed.align)
    }
}

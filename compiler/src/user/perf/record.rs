//! Events that do not fit `type << 32 | config`: the fields of `perf_options` after `event` describe them.

use super::super::addr::Addr;
use super::super::cx::Lower;
use super::super::func::FnCx;
use super::super::lvalue::Storage;
use super::super::scalar::push_const;
use super::field;
use crate::builtins::perf::{form, options};
use crate::hir::{BreakpointAddress, EventSpec, Expr, Lvalue};
use crate::types::IntType;

/// Positions of the fields that describe an event.
const DESCRIBED: [usize; 6] = [
    options::EVENT,
    options::EVENT_TYPE,
    options::EVENT_CONFIG,
    options::EVENT_CONFIG1,
    options::EVENT_CONFIG2,
    options::EVENT_TEXT,
];

/// Returns the value of `event` for an event that other fields describe.
pub fn form_of(spec: &EventSpec) -> u64 {
    match spec {
        EventSpec::Raw { .. } => form::RAW,
        EventSpec::Tracepoint(_) => form::TRACEPOINT,
        EventSpec::Breakpoint { at: BreakpointAddress::Address(_), .. } => form::BREAKPOINT,
        EventSpec::Breakpoint { at: BreakpointAddress::Symbol(_), .. } => form::BREAKPOINT_AT,
        EventSpec::Pmu(_) => form::PMU,
        EventSpec::Named(_) => form::NAMED,
        EventSpec::Kprobe(_) => form::KPROBE,
        EventSpec::Uprobe(_) => form::UPROBE,
    }
}

/// Value of one describing field.
enum Value<'a> {
    Is(u64),
    Of(&'a Expr),
}

impl FnCx<'_, '_> {
    /// Writes the description of an event to the options at `to`.
    pub fn event_record(&mut self, spec: &EventSpec, to: Addr) -> Lower<()> {
        use Value::{Is, Of};
        let (ty, [config, config1, config2], text) = match spec {
            EventSpec::Raw { ty, config: [config, config1, config2] } => {
                (Of(ty), [Of(config), Of(config1), Of(config2)], "")
            }
            EventSpec::Breakpoint { at, len, access } => {
                let (address, symbol) = match at {
                    BreakpointAddress::Address(address) => (Of(address), ""),
                    BreakpointAddress::Symbol(symbol) => (Is(0), symbol.as_str()),
                };
                (Is(0), [address, Is((*len).into()), Is((*access).into())], symbol)
            }
            EventSpec::Tracepoint(text)
            | EventSpec::Pmu(text)
            | EventSpec::Kprobe(text)
            | EventSpec::Uprobe(text) => (Is(0), [Is(0), Is(0), Is(0)], text.as_str()),
            EventSpec::Named(_) => (Is(0), [Is(0), Is(0), Is(0)], ""),
        };
        let numbers = [
            (options::EVENT, 64, Is(form_of(spec))),
            (options::EVENT_TYPE, 32, ty),
            (options::EVENT_CONFIG, 64, config),
            (options::EVENT_CONFIG1, 64, config1),
            (options::EVENT_CONFIG2, 64, config2),
        ];
        for (position, bits, value) in numbers {
            let at = to.plus(self.option_offset(position));
            let int = IntType { bits, signed: false };
            self.store(int, at, |fcx| match value {
                Is(bits) => {
                    push_const(&mut fcx.code, int, bits);
                    Ok(())
                }
                Of(expr) => fcx.scalar(expr),
            })?;
        }
        let at = to.plus(self.option_offset(options::EVENT_TEXT));
        if let EventSpec::Named(text) = spec {
            return self.aggregate(text, at);
        }
        let ty = self.option_type(options::EVENT_TEXT);
        self.constant(ty, text.as_bytes(), at);
        Ok(())
    }

    /// Lowers `options.event = ..` for an event that other fields describe.
    pub fn assign_event(&mut self, lvalue: &Lvalue, spec: &EventSpec) -> Lower<()> {
        // `event` is the first field, so the describing fields follow the same address.
        let storage = match self.storage(lvalue)? {
            Storage::Memory(addr) => return self.event_record(spec, addr),
            elsewhere => elsewhere,
        };
        let record = self.slot(self.cx.hir.known.perf_options);
        self.event_record(spec, record)?;
        for position in DESCRIBED {
            let (offset, ty) = (self.option_offset(position), self.option_type(position));
            let part = self.part_at(storage, offset);
            self.write_aggregate(&part, ty, record.plus(offset), lvalue.span)?;
        }
        Ok(())
    }

    fn option_offset(&self, position: usize) -> u32 {
        field(self.cx, self.cx.hir.known.perf_options, position)
    }

    fn option_type(&self, position: usize) -> crate::types::TypeId {
        let types = &self.cx.hir.types;
        let crate::types::TypeKind::Struct(id) = types.kind(self.cx.hir.known.perf_options) else {
            panic!("perf_options is a struct")
        };
        types.struct_def(*id).fields[position].ty
    }
}

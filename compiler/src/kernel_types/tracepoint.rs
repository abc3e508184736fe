//! Tracepoints: existence of an event, and the struct of its record (4.6, 9.4, 11.8).
//!
//! BTF has no categories, and no list of the class of each event. For an event E of class C it has
//! (include/trace/trace_events.h, include/trace/bpf_probe.h, v6.12):
//!
//! - the typedef `btf_trace_E`: a pointer to a function of the raw arguments. It proves that E exists, with
//!   these arguments.
//! - the struct `trace_event_raw_C`, the record, and the function `trace_event_raw_event_C` that fills it
//!   from the same raw arguments. Mostly C is E. If not, C is a class whose function has E's arguments: often
//!   there is only one.
//! - for system calls only `btf_trace_sys_enter` and `btf_trace_sys_exit`: `syscalls/sys_enter_X` exists if
//!   the call X does.

use super::function::KernelLookupError;
use super::types::Param;
use super::{KernelTypes, bundled, convert, names};
use crate::object::btf::{Btf, BtfKind, TypeId};

const RECORD: &str = "trace_event_raw_";
const FILLS: &str = "trace_event_raw_event_";
const RAW: &str = "btf_trace_";
/// Prefixes of functions per event whose parameters have names; those of the typedef have none.
///
/// Source: include/linux/tracepoint.h, `__DEFINE_TRACE_EXT`: the first since v6.4, the second since v5.10.
const NAMING: [&str; 2] = ["__probestub_", "__traceiter_"];

/// An existing event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracepoint {
    /// Struct of the event's record.
    pub record: Record,
}

/// Struct of an event's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Exactly this struct; a program that declares another is an error (`KS0510`).
    Struct(String),
    /// The struct of a class that BTF does not determine. Any struct may be declared;
    /// [`KernelTypes::class_records`] returns those with the right arguments.
    Class,
}

impl KernelTypes {
    /// Returns the event `category/event` (4.6).
    ///
    /// # Errors
    /// No event of this name; or neither BTF nor a list of events, and not one of the events with a fixed
    /// layout.
    pub fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, KernelLookupError> {
        if let Some(known) = self.listed(category, event)
            && !known
        {
            return Err(KernelLookupError::Missing { near: self.near_tracepoints(category, event) });
        }
        if category == "syscalls"
            && let Some((record, call)) = syscall_record(event)
        {
            return self.syscall_event(category, event, record, call);
        }
        let Some(btf) = self.btf() else {
            let name = format!("{RECORD}{event}");
            let bundled = bundled::structure(&name).ok_or(KernelLookupError::NoBtf)?;
            return Ok(Tracepoint { record: Record::Struct(bundled.name) });
        };
        let own = format!("{RECORD}{event}");
        if btf.find_struct(&own).is_some() {
            return Ok(Tracepoint { record: Record::Struct(own) });
        }
        // Events of modules are in the list, but not in the kernel's own BTF.
        if self.events.is_none() && btf.find(&format!("{RAW}{event}"), BtfKind::Typedef).is_none() {
            return Err(KernelLookupError::Missing { near: self.near_tracepoints(category, event) });
        }
        Ok(Tracepoint { record: Record::Class })
    }

    /// Returns the most likely record of an event whose record the author did not declare.
    #[must_use]
    pub fn likely_record(&self, found: &Tracepoint, event: &str) -> Option<String> {
        match &found.record {
            Record::Struct(name) => Some(name.clone()),
            Record::Class => self.class_records(event).into_iter().next(),
        }
    }

    /// Returns the records of the classes with the event's arguments, ordered by similarity of the names. It
    /// reads all types.
    #[must_use]
    pub fn class_records(&self, event: &str) -> Vec<String> {
        let Some(btf) = self.btf() else { return Vec::new() };
        let Some(wanted) = arguments(btf, btf.find(&format!("{RAW}{event}"), BtfKind::Typedef)) else {
            return Vec::new();
        };
        let mut found: Vec<&str> = btf
            .starting(BtfKind::Func, FILLS)
            .filter(|&(id, _)| arguments(btf, Some(id)).as_ref() == Some(&wanted))
            .filter_map(|(_, name)| name.strip_prefix(FILLS))
            .filter(|class| btf.find_struct(&format!("{RECORD}{class}")).is_some())
            .collect();
        let shared = |class: &str| class.bytes().zip(event.bytes()).take_while(|(a, b)| a == b).count();
        // A class with the name of an event mostly has no other event.
        let is_event = |class: &str| btf.find(&format!("{RAW}{class}"), BtfKind::Typedef).is_some();
        found.sort_by_key(|class| (is_event(class), std::cmp::Reverse(shared(class)), *class));
        found.dedup();
        found.iter().map(|class| format!("{RECORD}{class}")).collect()
    }

    /// Returns the arguments of a raw tracepoint, for `@raw_tracepoint("event")` (11.8).
    ///
    /// # Errors
    /// No event of this name, no BTF, or invalid BTF.
    pub fn raw_tracepoint(&self, event: &str) -> Result<Vec<Param>, KernelLookupError> {
        let btf = self.btf().ok_or(KernelLookupError::NoBtf)?;
        let missing = || KernelLookupError::Missing {
            near: names::nearest(
                event,
                self.names(BtfKind::Typedef).filter_map(|name| name.strip_prefix(RAW)),
            ),
        };
        let typedef = btf.find(&format!("{RAW}{event}"), BtfKind::Typedef).ok_or_else(missing)?;
        let unnamed = convert::proto(btf, typedef).ok_or(KernelLookupError::Unreadable)?;
        let protos = NAMING
            .iter()
            .filter_map(|prefix| convert::proto(btf, btf.find(&format!("{prefix}{event}"), BtfKind::Func)?));
        let named = protos.into_iter().find(|named| {
            named.params.iter().map(|param| &param.ty).eq(unnamed.params.iter().map(|param| &param.ty))
        });
        // The first parameter is the probe's own data.
        let arguments = named.unwrap_or(unnamed).params.into_iter().skip(1).enumerate();
        let rename = |(index, param): (usize, Param)| {
            let unnamed = param.name.strip_prefix("arg").is_some_and(|rest| rest.parse::<u32>().is_ok());
            if unnamed { Param { name: format!("arg{index}"), ..param } } else { param }
        };
        Ok(arguments.map(rename).collect())
    }

    /// Returns similar events, as `category/event`.
    #[must_use]
    pub fn near_tracepoints(&self, category: &str, event: &str) -> Vec<String> {
        if let Some(list) = self.events.as_ref() {
            let same: Vec<_> = events(list).filter(|(_, other)| *other == event).collect();
            if !same.is_empty() {
                return same.iter().map(|(category, event)| format!("{category}/{event}")).collect();
            }
            let wanted = format!("{category}:{event}");
            let found = names::nearest(&wanted, list.lines().map(str::trim));
            return found.iter().map(|name| name.replacen(':', "/", 1)).collect();
        }
        if category == "syscalls"
            && let Some((_, call)) = syscall_record(event)
        {
            let prefix = event.strip_suffix(call).unwrap_or_default();
            return self.near_syscalls(call).iter().map(|call| format!("syscalls/{prefix}{call}")).collect();
        }
        let found =
            names::nearest(event, self.names(BtfKind::Typedef).filter_map(|name| name.strip_prefix(RAW)));
        found.iter().map(|event| format!("{category}/{event}")).collect()
    }

    /// Returns whether the list of events has this one; `None` without a list.
    fn listed(&self, category: &str, event: &str) -> Option<bool> {
        let list = self.events.as_ref()?;
        Some(events(list).any(|listed| listed == (category, event)))
    }

    fn syscall_event(
        &self,
        category: &str,
        event: &str,
        record: &str,
        call: &str,
    ) -> Result<Tracepoint, KernelLookupError> {
        if self.events.is_some() || self.has_syscall(call) {
            return Ok(Tracepoint { record: Record::Struct(record.to_owned()) });
        }
        match self.btf() {
            Some(_) => Err(KernelLookupError::Missing { near: self.near_tracepoints(category, event) }),
            None => Err(KernelLookupError::NoBtf),
        }
    }
}

/// Returns the record struct and the call of a system call's event.
fn syscall_record(event: &str) -> Option<(&'static str, &str)> {
    let enter = event.strip_prefix("sys_enter_").map(|call| ("trace_event_raw_sys_enter", call));
    enter.or_else(|| event.strip_prefix("sys_exit_").map(|call| ("trace_event_raw_sys_exit", call)))
}

fn events(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.lines().filter_map(|line| line.trim().split_once(':'))
}

/// Returns the types of a function's parameters; equal types have equal ids in a kernel's BTF.
fn arguments(btf: &Btf, function: Option<TypeId>) -> Option<Vec<TypeId>> {
    let (_, params) = convert::raw_proto(btf, function?)?;
    Some(params.into_iter().map(|(_, ty)| ty).collect())
}

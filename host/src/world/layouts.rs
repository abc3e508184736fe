//! `layouts`: memory layouts of types from the BTF of the plugin's object.

use super::bindings::kernelscript::host::layouts::{Host, Layout, Member, Repetition, Scalar};
use super::state::State;
use crate::bpf::{self, Subject};

impl Host for State {
    fn of_key(&mut self, map: String) -> wasmtime::Result<Option<Layout>> {
        Ok(self.layout(Subject::Key(&map)))
    }

    fn of_value(&mut self, map: String) -> wasmtime::Result<Option<Layout>> {
        Ok(self.layout(Subject::Value(&map)))
    }

    fn of_variable(&mut self, name: String) -> wasmtime::Result<Option<Layout>> {
        Ok(self.layout(Subject::Variable(&name)))
    }

    fn of_type(&mut self, name: String) -> wasmtime::Result<Option<Layout>> {
        Ok(self.layout(Subject::Type(&name)))
    }
}

impl State {
    /// None without an object; other calls report that.
    fn layout(&mut self, subject: Subject<'_>) -> Option<Layout> {
        self.object().ok()?.layout(subject).map(Layout::from)
    }
}

impl From<bpf::Layout> for Layout {
    fn from(layout: bpf::Layout) -> Layout {
        let members = layout.members.into_iter().map(Member::from).collect();
        Layout { name: layout.name, size: layout.size, members }
    }
}

impl From<bpf::Member> for Member {
    fn from(member: bpf::Member) -> Member {
        let bpf::Member { path, offset, size, kind, arrays } = member;
        let arrays = arrays.into_iter().map(|(count, stride)| Repetition { count, stride }).collect();
        Member { path, offset, size, kind: kind.into(), arrays }
    }
}

impl From<bpf::Scalar> for Scalar {
    fn from(kind: bpf::Scalar) -> Scalar {
        match kind {
            bpf::Scalar::Unsigned => Scalar::Unsigned,
            bpf::Scalar::Signed => Scalar::Signed,
            bpf::Scalar::Boolean => Scalar::Boolean,
            bpf::Scalar::Character => Scalar::Character,
            bpf::Scalar::Enumeration => Scalar::Enumeration,
            bpf::Scalar::Pointer => Scalar::Pointer,
            bpf::Scalar::Opaque => Scalar::Opaque,
        }
    }
}

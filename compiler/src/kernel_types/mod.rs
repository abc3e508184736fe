//! Kernel types for the checker and `ks init`: signatures of functions, members of structs, tracepoints and
//! hooks (language reference 4.5 to 4.9, 9.4, 11.8).
//!
//! ```text
//! BTF of a kernel            \
//! tracefs' available_events   > KernelTypes -> Function, Struct, Tracepoint, StructOps, ...
//! tables of this crate       /
//! ```
//!
//! Opening finds the records of the BTF; names are indexed at the first lookup. Without BTF, answers come
//! from tables of stable interfaces; any other lookup cannot be verified, which is a warning and not an error
//! (9.4).
//!
//! Sources: Documentation/bpf/btf.rst, include/trace/bpf_probe.h, include/trace/trace_events.h,
//! include/linux/bpf.h (`struct bpf_struct_ops`), kernel/bpf/bpf_lsm.c, include/linux/syscalls.h (v6.12).

mod bundled;
mod convert;
mod enumerators;
mod function;
mod internal;
mod names;
mod struct_ops;
mod tracepoint;
mod types;

pub use enumerators::KernelEnumerator;
pub use function::{ArgumentPassing, KernelLookupError, Kfunc, ProbeTarget};
pub use struct_ops::{OpsMember, OpsMemberKind, StructOps};
pub use tracepoint::{Record, Tracepoint};
pub use types::{BitField, KernelType, Member, Param, Pointee, Proto, Spelling, Struct};

use std::collections::HashSet;
use std::sync::{Arc, LazyLock, OnceLock};

use crate::object::btf::{Btf, BtfKind, BtfReadError, Type, TypeId};

/// Types, functions and events of one kernel.
#[derive(Debug)]
pub struct KernelTypes {
    btf: Lazy<Btf>,
    /// Why the running kernel's BTF was rejected, set at the first lookup.
    refused: Arc<OnceLock<BtfReadError>>,
    /// Events of the kernel, lines of `category:event`.
    events: Lazy<String>,
    /// Functions with the tag `bpf_kfunc`.
    kfuncs: OnceLock<HashSet<TypeId>>,
    /// Whether the author chose this kernel; else it is the running one.
    chosen: bool,
}

/// A value that is fetched at its first use; none if it is not available.
type Lazy<T> = LazyLock<Option<T>, Box<dyn FnOnce() -> Option<T> + Send>>;

fn lazy<T>(fetch: impl FnOnce() -> Option<T> + Send + 'static) -> Lazy<T> {
    LazyLock::new(Box::new(fetch))
}

impl KernelTypes {
    /// Opens the BTF of a kernel that the author chose.
    ///
    /// # Errors
    /// Bytes that are not BTF.
    pub fn from_btf(bytes: impl Into<Vec<u8>>) -> Result<KernelTypes, BtfReadError> {
        let btf = Btf::parse(bytes)?;
        Ok(KernelTypes { btf: lazy(|| Some(btf)), chosen: true, ..KernelTypes::bundled() })
    }

    /// Opens the running kernel's BTF, which `fetch` returns at the first lookup: many scripts need none.
    /// Unreadable bytes count as no BTF; [`KernelTypes::no_btf`] returns the reason.
    #[must_use]
    pub fn fetched(fetch: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) -> KernelTypes {
        KernelTypes::opened(move || fetch().map(Btf::parse))
    }

    /// As [`fetched`](Self::fetched), from what opens the BTF, or an image of it.
    #[must_use]
    pub fn opened(open: impl FnOnce() -> Option<Result<Btf, BtfReadError>> + Send + 'static) -> KernelTypes {
        let refused = Arc::new(OnceLock::new());
        let reason = refused.clone();
        let btf = lazy(move || match open()? {
            Ok(btf) => Some(btf),
            Err(error) => {
                reason.get_or_init(|| error);
                None
            }
        });
        KernelTypes { btf, refused, ..KernelTypes::bundled() }
    }

    /// Returns the tables that are the same for every kernel, for use without BTF.
    #[must_use]
    pub fn bundled() -> KernelTypes {
        KernelTypes {
            btf: lazy(|| None),
            refused: Arc::default(),
            events: lazy(|| None),
            kfuncs: OnceLock::new(),
            chosen: false,
        }
    }

    /// Adds the kernel's list of events, the text of tracefs' `available_events`, fetched at the first lookup
    /// of an event. It adds categories and the events of kernel modules. It must be of the same kernel as the
    /// BTF.
    #[must_use]
    pub fn with_events(self, fetch: impl FnOnce() -> Option<String> + Send + 'static) -> KernelTypes {
        KernelTypes { events: lazy(fetch), ..self }
    }

    /// Returns the BTF, for relocations.
    #[must_use]
    pub fn btf(&self) -> Option<&Btf> {
        self.btf.as_ref()
    }

    /// Returns whether there is BTF, so that a name that is not found does not exist. Without BTF it could
    /// not be verified (`KS0806`).
    #[must_use]
    pub fn has_btf(&self) -> bool {
        self.btf().is_some()
    }

    /// Returns a message that there is no BTF, with the reason if it exists and cannot be read.
    #[must_use]
    pub fn no_btf(&self) -> String {
        match self.refused.get() {
            Some(error) => format!("no BTF ({error})"),
            None => "no BTF".to_owned(),
        }
    }

    /// Returns whether the author chose this kernel, so that its missing names are missing where the script
    /// is loaded.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Returns the struct or union of this name, or of the typedef of this name (4.7, 9.4).
    ///
    /// Without BTF: the contexts of 4.2, 4.4, 4.6 and 4.8 and `pt_regs` of x86-64.
    #[must_use]
    pub fn structure(&self, name: &str) -> Option<Struct> {
        let Some(btf) = self.btf() else { return bundled::structure(name) };
        let (members, bytes, is_union) = convert::members(btf, name, convert::find_composite(btf, name)?)?;
        Some(Struct { name: name.to_owned(), bytes, is_union, members })
    }

    /// Returns whether [`structure`](Self::structure) would return a struct.
    #[must_use]
    pub fn has_structure(&self, name: &str) -> bool {
        match self.btf() {
            Some(btf) => convert::find_composite(btf, name).is_some(),
            None => bundled::structure(name).is_some(),
        }
    }

    /// Returns whether a variable of the kernel has a value for each CPU; `None` if the kernel's types do not tell.
    #[must_use]
    pub fn is_per_cpu(&self, variable: &str) -> Option<bool> {
        let btf = self.btf()?;
        let section = btf.find(".data..percpu", BtfKind::Datasec).and_then(|id| btf.get(id).ok());
        let Some(Type::Datasec { mut entries, .. }) = section else { return None };
        let found = btf.find(variable, BtfKind::Var);
        Some(found.is_some_and(|found| entries.any(|entry| entry.var == found)))
    }

    /// Returns whether this name is that of a union.
    #[must_use]
    pub fn is_union(&self, name: &str) -> bool {
        let Some(btf) = self.btf() else {
            return bundled::structure(name).is_some_and(|found| found.is_union);
        };
        let found = convert::find_composite(btf, name).map(|id| btf.get(id));
        matches!(found, Some(Ok(crate::object::btf::Type::Union { .. })))
    }

    /// Returns whether a struct of this name is in the kernel's memory only, as far as its types tell.
    #[must_use]
    pub fn is_internal(&self, name: &str) -> bool {
        self.btf().is_some_and(|btf| {
            convert::find_composite(btf, name).is_some_and(|found| internal::is_internal(btf, found))
        })
    }

    /// Returns whether this is the name of a typedef of an anonymous struct or union.
    #[must_use]
    pub fn is_typedef(&self, name: &str) -> bool {
        self.btf().is_some_and(|btf| convert::is_typedef(btf, name))
    }

    /// Returns one member of a struct, also inside its anonymous members, without reading the others.
    #[must_use]
    pub fn member(&self, structure: &str, name: &str) -> Option<Member> {
        let Some(btf) = self.btf() else {
            return bundled::structure(structure)?.member(name).cloned();
        };
        let field = btf.field(convert::find_composite(btf, structure)?, name).ok()??;
        let bits = field.bitfield_bits;
        Some(Member {
            name: name.to_owned(),
            ty: convert::member_type(btf, structure, name, field.ty),
            offset: field.bit_offset / 8,
            bitfield: (bits != 0).then_some(BitField { first_bit: field.bit_offset, bits }),
            in_union: field.path.len() > 1 && convert::through_union(btf, structure, &field.path),
        })
    }
}

//! Kernel functions: targets of probes, system calls, LSM hooks, kfuncs (4.5, 6.12, 9.4, 11.8).

use std::collections::HashSet;

use super::types::{KernelType, Param, Pointee, Proto};
use super::{KernelTypes, bundled, convert, names};
use crate::object::btf::{Btf, BtfKind, Type, TypeId};

/// Name prefixes of system call wrappers, by architecture: x86-64, aarch64.
///
/// Source: arch/x86/include/asm/syscall_wrapper.h, arch/arm64/include/asm/syscall_wrapper.h (v6.12).
const WRAPPERS: [&str; 2] = ["__x64_sys_", "__arm64_sys_"];
/// Name prefixes of the functions that a wrapper calls; compilers mostly inline them into the wrapper.
const BODIES: [&str; 2] = ["__do_sys_", "__se_sys_"];

/// Reasons for the failure of a lookup in the kernel's types.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KernelLookupError {
    /// The kernel has no such name (`KS0509`).
    #[error("the kernel has nothing of this name")]
    Missing {
        /// Similar names, nearest first.
        near: Vec<String>,
    },
    /// Without BTF the name cannot be verified (a warning, 9.4).
    #[error("without BTF this cannot be verified")]
    NoBtf,
    /// The function exists, but its type cannot be read.
    #[error("the BTF of this function is malformed")]
    Unreadable,
}

/// Location of a function's arguments at a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentPassing {
    /// The arguments are the function's own.
    Direct,
    /// The function is a system call's wrapper: its one argument points to the registers that hold the call's
    /// arguments.
    Syscall {
        /// Whether the parameters are known. If not, up to 6 integers or pointers may be declared.
        known: bool,
    },
}

/// A function that a probe can be put on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeTarget {
    /// Name in the kernel: that of the wrapper for `sys_NAME`.
    pub target: String,
    /// Signature of the function, or of the system call.
    pub proto: Proto,
    /// Number of leading parameters that are the same in every function of this name. Static functions of
    /// several files may share a name; declaring more parameters is `KS0508`.
    pub agreed: usize,
    /// Location of the arguments.
    pub entry: ArgumentPassing,
}

/// A kernel function that kernel halves may call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kfunc {
    /// Signature of the function.
    pub proto: Proto,
    /// Whether the kernel marks it as a kfunc (since v6.10). If not, the kernel may reject the call when it
    /// loads the program.
    pub marked: bool,
}

impl KernelTypes {
    /// Returns the target of `@probe("name")` and `@retprobe("name")` (4.5): a function, or the wrapper of a
    /// system call for `sys_NAME`.
    ///
    /// # Errors
    /// No function of this name, no BTF, or invalid BTF.
    pub fn function(&self, name: &str) -> Result<ProbeTarget, KernelLookupError> {
        let btf = self.btf().ok_or(KernelLookupError::NoBtf)?;
        if let Some(function) = plain_function(btf, name) {
            return function;
        }
        let syscall = name.strip_prefix("sys_").and_then(|call| self.syscall_function(btf, call));
        syscall.ok_or_else(|| KernelLookupError::Missing { near: self.near_targets(name) })
    }

    /// Returns the parameters of a system call, for `sys_NAME` (4.5) and `@syscall_enter("NAME")` (11.8):
    /// from the BTF of the function that its wrapper calls, else from the table of this crate. `None` if the
    /// call is unknown.
    #[must_use]
    pub fn syscall(&self, name: &str) -> Option<Vec<Param>> {
        self.btf().and_then(|btf| syscall_body(btf, name)).or_else(|| bundled::syscall(name))
    }

    /// Returns whether the kernel has this system call; without BTF, whether this crate knows it.
    #[must_use]
    pub fn has_syscall(&self, name: &str) -> bool {
        match self.btf() {
            Some(btf) => syscall_target(btf, name).is_some(),
            None => bundled::syscall(name).is_some(),
        }
    }

    /// Returns whether some kernel has a system call of this name.
    #[must_use]
    pub fn knows_syscall(name: &str) -> bool {
        bundled::syscall(name).is_some()
    }

    /// Returns system calls with a similar name.
    #[must_use]
    pub fn near_syscalls(&self, name: &str) -> Vec<String> {
        match self.btf().and_then(|btf| newer_syscall(btf, name)) {
            Some(newer) => vec![newer],
            None => names::nearest(name, self.syscall_names()),
        }
    }

    /// Returns the parameters and result of an LSM hook (11.8): `bpf_lsm_NAME` has its signature.
    ///
    /// # Errors
    /// No hook of this name, no BTF, or invalid BTF.
    pub fn lsm_hook(&self, name: &str) -> Result<Proto, KernelLookupError> {
        let btf = self.btf().ok_or(KernelLookupError::NoBtf)?;
        let id = btf.find(&format!("bpf_lsm_{name}"), BtfKind::Func);
        let id = id.ok_or_else(|| KernelLookupError::Missing { near: self.near_lsm_hooks(name) })?;
        convert::proto(btf, id).ok_or(KernelLookupError::Unreadable)
    }

    /// Returns the kernel function named by an `extern` that is not a helper (6.12).
    ///
    /// # Errors
    /// No function of this name, no BTF, or invalid BTF.
    pub fn kfunc(&self, name: &str) -> Result<Kfunc, KernelLookupError> {
        let btf = self.btf().ok_or(KernelLookupError::NoBtf)?;
        let marked = btf.find_all(name, BtfKind::Func).find(|id| self.marked_kfuncs(btf).contains(id));
        let id = marked.or_else(|| btf.find(name, BtfKind::Func));
        let id = id.ok_or_else(|| KernelLookupError::Missing { near: self.near_kfuncs(name) })?;
        let proto = convert::proto(btf, id).ok_or(KernelLookupError::Unreadable)?;
        Ok(Kfunc { proto, marked: marked.is_some() })
    }

    /// Returns whether the kernel describes a function of this name.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.btf().is_some_and(|btf| btf.find(name, BtfKind::Func).is_some())
    }

    /// Returns the names of all functions that the kernel marks as kfuncs, sorted. Empty without BTF and
    /// before v6.10.
    #[must_use]
    pub fn kfunc_names(&self) -> Vec<String> {
        let Some(btf) = self.btf() else { return Vec::new() };
        let ids = self.marked_kfuncs(btf).iter();
        let mut names: Vec<_> = ids.filter_map(|&id| function_name(btf, id)).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Returns kernel functions with a similar name: only marked ones if there are any, since others are
    /// mostly rejected.
    fn near_kfuncs(&self, name: &str) -> Vec<String> {
        let all = self.kfunc_names();
        let near = names::nearest(name, all.iter().map(String::as_str));
        if near.is_empty() { self.near_functions(name) } else { near }
    }

    fn marked_kfuncs(&self, btf: &Btf) -> &HashSet<TypeId> {
        self.kfuncs.get_or_init(|| {
            let tags = btf.named(BtfKind::DeclTag).filter(|(_, name)| *name == "bpf_kfunc");
            tags.filter_map(|(id, _)| match btf.get(id) {
                Ok(Type::DeclTag { ty, component: None, .. }) => Some(ty),
                _ => None,
            })
            .collect()
        })
    }

    fn syscall_function(&self, btf: &Btf, call: &str) -> Option<ProbeTarget> {
        let target = syscall_target(btf, call)?;
        let known = self.syscall(call);
        let entry = ArgumentPassing::Syscall { known: known.is_some() };
        let params = known.unwrap_or_default();
        let agreed = params.len();
        let proto = Proto { params, result: KernelType::signed_int(8), variadic: false };
        Some(ProbeTarget { target, proto, agreed, entry })
    }

    /// Returns functions with a similar name; system calls if the name looks like one.
    fn near_targets(&self, name: &str) -> Vec<String> {
        let calls = name.strip_prefix("sys_").map(|call| self.near_syscalls(call)).unwrap_or_default();
        if calls.is_empty() {
            return self.near_functions(name);
        }
        calls.iter().map(|call| format!("sys_{call}")).collect()
    }

    pub(super) fn syscall_names(&self) -> impl Iterator<Item = &str> {
        let bundled = self.btf().is_none().then(bundled::syscall_names);
        let prefixes = || WRAPPERS.iter().chain(&BODIES[..1]);
        let own = self
            .names(BtfKind::Func)
            .filter_map(move |name| prefixes().find_map(|one| name.strip_prefix(one)));
        own.chain(bundled.into_iter().flatten())
    }
}

fn function_name(btf: &Btf, id: TypeId) -> Option<&str> {
    match btf.get(id) {
        Ok(Type::Func { name, .. }) => Some(name),
        _ => None,
    }
}

/// Returns the functions of exactly this name; `None` if there is none.
fn plain_function(btf: &Btf, name: &str) -> Option<Result<ProbeTarget, KernelLookupError>> {
    let mut ids = btf.find_all(name, BtfKind::Func);
    let Some(proto) = convert::proto(btf, ids.next()?) else {
        return Some(Err(KernelLookupError::Unreadable));
    };
    let mut agreed = proto.params.len();
    for other in ids.filter_map(|id| convert::proto(btf, id)) {
        let pairs = proto.params.iter().zip(&other.params);
        agreed = agreed.min(pairs.take_while(|(own, other)| own.ty == other.ty).count());
    }
    Some(Ok(ProbeTarget { target: name.to_owned(), proto, agreed, entry: ArgumentPassing::Direct }))
}

/// Returns the function to probe for a system call: its wrapper, or its body if the BTF describes only that
/// (for calls without arguments, both have the same address). None for the older of two versions.
fn syscall_target(btf: &Btf, call: &str) -> Option<String> {
    written_syscall(btf, call).filter(|_| newer_syscall(btf, call).is_none())
}

/// Returns the name by which the kernel knows a system call that it has in two versions: `newstat`. No program of 64 bits
/// can call the one without `new` (arch/x86/entry/syscalls/syscall_64.tbl, include/linux/syscalls.h), which has no
/// tracepoints.
fn newer_syscall(btf: &Btf, call: &str) -> Option<String> {
    let newer = format!("new{call}");
    written_syscall(btf, &newer).map(|_| newer)
}

fn written_syscall(btf: &Btf, call: &str) -> Option<String> {
    let names = WRAPPERS.iter().chain(&BODIES).map(|prefix| format!("{prefix}{call}"));
    names.into_iter().find(|name| btf.find(name, BtfKind::Func).is_some())
}

/// Returns the parameters of a system call from the function that its wrapper calls.
fn syscall_body(btf: &Btf, call: &str) -> Option<Vec<Param>> {
    let mut bodies = BODIES.iter().filter_map(|prefix| btf.find(&format!("{prefix}{call}"), BtfKind::Func));
    let params = bodies.find_map(|id| convert::proto(btf, id))?.params;
    // The body of a call without arguments still has the registers as a parameter, and does not use it.
    let unused = |param: &Param| param.ty == KernelType::Pointer(Pointee::Struct("pt_regs".into()));
    Some(if params.iter().all(unused) { Vec::new() } else { params })
}

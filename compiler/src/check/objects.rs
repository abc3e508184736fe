//! Finds the parameters of a program that point to kernel objects which the verifier lets it read directly
//! (3.7).
//!
//! These are pointers to structs in the arguments of raw tracepoints and of methods of struct_ops, if the
//! script declares them with the types of the kernel's BTF. Arguments of other kernel functions may point
//! into a process: BTF does not distinguish them, unless clang built the kernel. Such an address is checked
//! on each access.
//!
//! Source: kernel/bpf/btf.c, `btf_ctx_access`, net/ipv4/bpf_tcp_ca.c, `bpf_tcp_ca_is_valid_access` (v6.12).

use super::Checker;
use crate::hir::{FunctionKind, ProgramKind, Target};
use crate::kernel_types::{KernelType, Pointee};
use crate::types::{StructOrigin, TypeId, TypeKind};

/// Arguments that the verifier treats as pointers to a larger struct, which begins with the one in BTF. Each
/// line: in methods of the first struct, the second instead of the third.
const LARGER: [(&str, &str, &str); 1] = [("tcp_congestion_ops", "tcp_sock", "sock")];

impl Checker<'_> {
    /// For each parameter of a function, whether it is a pointer that the verifier reads directly.
    pub(super) fn given_objects(
        &self,
        kind: FunctionKind,
        target: &Target,
        name: &str,
        params: &[TypeId],
    ) -> Vec<bool> {
        let (given, table) = match (kind, target) {
            (FunctionKind::Program(ProgramKind::RawTracepoint), Target::Name(event)) => {
                (self.kernel().raw_tracepoint(event).unwrap_or_default(), "")
            }
            (FunctionKind::Method(id), _) => {
                let table = self.impls[id].ops.as_str();
                (self.kernel().ops_parameters(table, name).unwrap_or_default(), table)
            }
            _ => return Vec::new(),
        };
        params
            .iter()
            .zip(given)
            .map(|(declared, given)| self.is_same_object(*declared, &given.ty, table))
            .collect()
    }

    fn is_same_object(&self, declared: TypeId, given: &KernelType, table: &str) -> bool {
        let (TypeKind::Ptr(to), KernelType::Pointer(Pointee::Struct(given))) =
            (self.types.kind(declared), given)
        else {
            return false;
        };
        let TypeKind::Struct(id) = self.types.kind(*to) else { return false };
        let declared = self.types.struct_def(*id);
        let is_larger = LARGER.contains(&(table, declared.name.as_str(), given.as_str()));
        declared.origin == StructOrigin::Kernel && (declared.name == *given || is_larger)
    }
}

//! Typed tree to MIR: one function at a time.
//!
//! In: a tree without errors. Out: MIR that keeps the rules of `mir::verify`, or a diagnostic for what this version cannot
//! compile. Every check that the kernel's verifier wants (bounds, null, initialised stack) is made here, with the outcome
//! that the language gives to a failed one: a read is 0, a write does nothing.
//!
//! - Scalar locals are variables of the builder; strings, arrays and structs are stack slots, reserved for the block that
//!   declares them. A struct or array that may be bound to a map entry is a pointer besides: to the entry or to the slot.
//! - A helper takes strings, arrays and structs by the address of a copy in the caller's frame, and gives them through an
//!   address that the caller passes first. What does not fit five registers goes to a block in the caller's frame.
//! - A loop whose end the verifier could not see otherwise runs under an iterator of the kernel (`loops`).

mod aggregate;
mod arithmetic;
mod call;
mod cost;
mod expr;
mod loops;
mod map;
mod memory;
mod place;
mod stmt;

use std::collections::BTreeSet;

use ks_wit::section::Arch;

use super::mir::builder::{Builder, Variable};
use super::mir::{self, Origin, Slot, Type, Value};
use crate::diag::Diagnostic;
use crate::hir::{self, FuncId, Hir, LocalId};
use crate::index::IndexVec;
use crate::source::Span;
use crate::split::Split;
use crate::types::{IntType, TypeId, TypeKind, Types};
use memory::Base;

/// What this version cannot compile ends the function it stands in.
type Lower<T> = Result<T, Box<Diagnostic>>;

fn not_yet<T>(span: Span, what: &str) -> Lower<T> {
    Err(Box::new(Diagnostic::not_yet(span, what)))
}

/// Lowers the kernel half.
///
/// # Errors
/// One diagnostic for each function with something that this version cannot compile.
pub fn lower(hir: &Hir, split: &Split, arch: Arch) -> Result<mir::Program, Vec<Diagnostic>> {
    let program = Context { hir, arch, faulting: loops::faulting_functions(hir, split) };
    let mut functions = Vec::new();
    let mut errors: Vec<_> = split.maps.iter().filter_map(|id| unsupported_map(&hir.maps[*id])).collect();
    for id in &split.kernel {
        match Lowerer::function(&program, *id) {
            Ok(function) => functions.push(function),
            Err(diagnostic) => errors.push(*diagnostic),
        }
    }
    if errors.is_empty() { Ok(mir::Program { functions }) } else { Err(errors) }
}

/// BPF_F_NUMA_NODE. Source: include/uapi/linux/bpf.h, v6.12.
const NUMA_NODE: u32 = 4;

fn unsupported_map(map: &hir::Map) -> Option<Diagnostic> {
    (map.flags & NUMA_NODE != 0).then(|| Diagnostic::not_yet(map.span, "`numa_node` is"))
}

/// What is known of the whole program.
struct Context<'a> {
    hir: &'a Hir,
    arch: Arch,
    /// Functions in which a loop may reach its limit, which ends the program.
    faulting: BTreeSet<FuncId>,
}

/// Where a local lives.
#[derive(Clone, Copy)]
enum Home {
    /// In a variable.
    Scalar(Variable),
    /// In memory: a slot, or what a parameter points to.
    Memory(Base),
    /// At the pointer; `own` is its private memory, where the pointer points when it is not bound.
    Alias { pointer: Variable, own: Base },
}

/// A local that has been declared.
#[derive(Clone, Copy)]
struct LocalHome {
    home: Home,
    /// The presence bit of a binding.
    present: Option<Variable>,
}

/// How the function ends when a loop reaches its limit.
#[derive(Clone, Copy)]
enum Fault {
    /// A program: it returns 0. The slot, if there is one, is where its helpers tell of theirs.
    Program(Option<Slot>),
    /// A helper: it tells through this pointer and returns.
    Helper(Option<Value>),
}

struct Lowerer<'a> {
    program: &'a Context<'a>,
    hir: &'a Hir,
    source: &'a hir::Function,
    builder: Builder,
    locals: IndexVec<LocalId, Option<LocalHome>>,
    loops: Vec<loops::Frame>,
    fault: Fault,
    /// Where an aggregate result goes.
    result: Option<Value>,
}

impl<'a> Lowerer<'a> {
    fn function(program: &'a Context<'a>, id: FuncId) -> Lower<mir::Function> {
        let source = &program.hir.functions[id];
        let is_program = source.kind.is_program();
        let ret = program.hir.types.scalar(source.ret).map_or(Type::I32, int_type);
        let builder = Builder::new(mir::Function {
            id,
            name: source.name.clone(),
            span: source.span,
            is_program,
            ret,
            values: IndexVec::new(),
            blocks: IndexVec::new(),
            slots: IndexVec::new(),
            slot_bytes: 0,
        });
        let mut lowerer = Lowerer {
            program,
            hir: program.hir,
            source,
            builder,
            locals: source.locals.iter().map(|_| None).collect(),
            loops: Vec::new(),
            fault: if is_program { Fault::Program(None) } else { Fault::Helper(None) },
            result: None,
        };
        lowerer.parameters(id)?;
        lowerer.block(&source.body)?;
        if !lowerer.builder.is_filled() {
            let zero = lowerer.builder.constant(ret, 0);
            lowerer.builder.ret(zero);
        }
        Ok(lowerer.builder.finish())
    }

    fn types(&self) -> &'a Types {
        &self.hir.types
    }

    /// The integer that a scalar is made of; an error if the type is none that kernel code computes with.
    fn int(&self, ty: TypeId, span: Span) -> Lower<IntType> {
        match self.types().kind(ty) {
            TypeKind::Int(_) | TypeKind::Enum(_) | TypeKind::Bool | TypeKind::Char => {
                self.types().scalar(ty).map_or_else(|| not_yet(span, "this type"), Ok)
            }
            _ => not_yet(span, &format!("a value of type `{}` in the kernel half is", self.types().name(ty))),
        }
    }

    /// Whether a value of the type is held in a register.
    fn is_scalar(&self, ty: TypeId) -> bool {
        self.types().scalar(ty).is_some() || *self.types().kind(ty) == TypeKind::Void
    }

    /// The type of a scalar's values in MIR.
    fn scalar_type(&self, ty: TypeId, span: Span) -> Lower<Type> {
        if self.is_context(ty) {
            return Ok(Type::Ptr(Origin::Context));
        }
        Ok(int_type(self.int(ty, span)?))
    }

    fn is_context(&self, ty: TypeId) -> bool {
        matches!(self.types().kind(ty), TypeKind::Ptr(to) if *to == self.hir.known.perf_context)
    }

    /// The size of a type, which the frame and BPF's offsets can express.
    fn size(&self, ty: TypeId, span: Span) -> Lower<u32> {
        u32::try_from(self.types().size(ty)).or_else(|_| not_yet(span, "a value of this size is"))
    }

    /// Gives a home to a local where it is declared; one that has a home keeps it.
    fn declare(&mut self, id: LocalId) -> Lower<LocalHome> {
        if let Some(home) = self.locals[id] {
            return Ok(home);
        }
        let local = &self.source.locals[id];
        let home = if self.is_scalar(local.ty) {
            let ty = self.scalar_type(local.ty, local.span)?;
            Home::Scalar(self.builder.variable(ty))
        } else {
            let size = self.size(local.ty, local.span)?;
            let slot = self.builder.slot(size);
            self.memory_home(id, Base::Slot(slot))
        };
        Ok(self.set_home(id, home))
    }

    fn memory_home(&mut self, id: LocalId, own: Base) -> Home {
        let local = &self.source.locals[id];
        if local.binding && !matches!(self.types().kind(local.ty), TypeKind::Str(_)) {
            Home::Alias { pointer: self.builder.variable(Type::Ptr(Origin::Memory)), own }
        } else {
            Home::Memory(own)
        }
    }

    fn set_home(&mut self, id: LocalId, home: Home) -> LocalHome {
        let present = self.source.locals[id].binding.then(|| self.builder.variable(Type::I32));
        let home = LocalHome { home, present };
        self.locals[id] = Some(home);
        home
    }

    /// Sets the presence bit of a local, if it has one.
    fn set_present(&mut self, home: LocalHome, present: bool) {
        if let Some(variable) = home.present {
            let bit = self.builder.constant(Type::I32, u64::from(present));
            self.builder.set(variable, bit);
        }
    }
}

/// The MIR type of an integer.
fn int_type(int: IntType) -> Type {
    if int.bits == 64 { Type::I64 } else { Type::I32 }
}

//! Programs and the functions that they call.

use std::fmt;
use std::iter;
use std::sync::Arc;

use super::super::name::Name;
use super::super::table::{Attribute, OPTIONAL, ProgramRow, Target};
use super::{DataId, KconfigId, KsymId, Linkage, MapId, SubprogramId};
use crate::bpf::{Insn, InsnIndex, Reg, helper_name};
use crate::object::btf::{CoreRelo, TypeId};

/// A program: an entry point that the kernel runs at a hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Name, unique among programs and subprograms.
    pub name: Name,
    /// Program type and attach point.
    pub section: Section,
    /// Instructions and metadata.
    pub body: Body,
}

impl Program {
    /// Returns its attach points, that of its section first.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        let also = self.attributes().filter_map(Attribute::also_target);
        iter::once(self.section.target.clone()).chain(also)
    }

    /// Returns whether the program is left out at targets that the kernel lacks.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.attributes().any(|attribute| attribute.as_str() == OPTIONAL)
    }

    /// Its own attributes, without those of parameters.
    fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let own = self.body.notes.iter().filter(|note| note.param.is_none());
        own.map(|note| &note.attribute)
    }
}

/// A function that programs and other functions call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subprogram {
    /// Name, unique among programs and subprograms.
    pub name: Name,
    /// Visibility, which determines how it is verified.
    pub linkage: Linkage,
    /// Instructions and metadata.
    pub body: Body,
}

/// Program type, attach point, and whether the program is loaded by default. `Display` prints the section
/// name that libbpf reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Row of the program type.
    pub kind: &'static ProgramRow,
    /// Attach point, as far as the section names it.
    pub target: Target,
    /// Whether the loader loads it by default.
    pub autoload: bool,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.autoload { "" } else { "?" })?;
        f.write_str(self.kind.section)?;
        match &self.target {
            Target::None => Ok(()),
            target => write!(f, "/{target}"),
        }
    }
}

/// Instructions and metadata of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// Signature; none if the object has no BTF of it.
    pub signature: Option<TypeId>,
    /// Attributes of the function and its parameters.
    pub notes: Vec<FunctionNote>,
    /// Instructions. Branches stay inside the function.
    pub code: Vec<Instruction>,
    /// Source lines, ascending by instruction.
    pub lines: Vec<Line>,
    /// CO-RE relocations, ascending by instruction, at most one for each. Each adjusts a plain instruction
    /// with a constant or an offset, or a wide load of a constant.
    pub core: Vec<CoreRelo>,
}

/// An attribute of a function or of one of its parameters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FunctionNote {
    /// Position of the parameter; none for the function.
    pub param: Option<u16>,
    /// Text of the attribute, from the closed list.
    pub attribute: Attribute,
}

/// Source line of an instruction and of those after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// First instruction of the line.
    pub at: InsnIndex,
    /// Name of the source file.
    pub file: Arc<str>,
    /// Text of the line, without control characters.
    pub text: Arc<str>,
    /// Line number, from 1; at most 4194303.
    pub line: u32,
    /// Column, from 1; at most 1023.
    pub column: u32,
}

/// An instruction with symbolic operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// An instruction without references outside the function.
    Plain(PlainInsn),
    /// A call of a helper or function.
    Call(Callee),
    /// A wide load: a constant or an address.
    LoadWide {
        /// Destination register.
        dst: Reg,
        /// Constant or address to load.
        value: Wide,
    },
}

impl Instruction {
    /// Returns the number of eight-byte slots: 2 for a wide load, else 1.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        match self {
            Instruction::LoadWide { .. } => 2,
            Instruction::Plain(_) | Instruction::Call(_) => 1,
        }
    }
}

/// An instruction that is neither a call nor a wide load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainInsn(Insn);

impl PlainInsn {
    /// Wraps an instruction; none for a call or a wide load.
    #[must_use]
    pub const fn new(insn: Insn) -> Option<PlainInsn> {
        match insn {
            Insn::Call { .. } | Insn::LoadImm64 { .. } => None,
            _ => Some(PlainInsn(insn)),
        }
    }

    /// Returns the wrapped instruction.
    #[must_use]
    pub const fn insn(self) -> Insn {
        self.0
    }
}

/// Target of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Callee {
    /// A helper of the kernel, by number.
    Helper(Helper),
    /// Another function of the object.
    Subprogram(SubprogramId),
    /// A kfunc: a [`super::KsymKind::Function`].
    Kfunc(KsymId),
}

/// A helper that Linux 6.18 has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Helper(u32);

impl Helper {
    /// Returns the helper with a number of `enum bpf_func_id`; none if Linux 6.18 has none.
    #[must_use]
    pub fn new(number: u32) -> Option<Helper> {
        helper_name(number).map(|_| Helper(number))
    }

    /// Returns the number of `enum bpf_func_id`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the name with the prefix `bpf_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        helper_name(self.0).unwrap_or_default()
    }
}

/// Operand of a wide load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wide {
    /// A 64-bit constant.
    Constant(u64),
    /// The address of a map, as helpers take it.
    Map(MapId),
    /// The address of a byte in a section of variables.
    Data {
        /// Section of variables.
        section: DataId,
        /// Offset in bytes, inside the section.
        offset: u32,
    },
    /// The address of a function of the object, as a callback.
    Subprogram(SubprogramId),
    /// The address of a kernel symbol.
    Ksym(KsymId),
    /// The address of a kernel setting.
    Kconfig(KconfigId),
}

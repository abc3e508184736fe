//! Programs, and the functions that they call.

use std::fmt;
use std::sync::Arc;

use super::super::name::Name;
use super::super::table::{Attribute, ProgramRow, Target};
use super::{DataId, KconfigId, KsymId, Linkage, MapId, SubprogramId};
use crate::bpf::{Insn, InsnIndex, Reg, helper_name};
use crate::btf::{CoreRelo, TypeId};

/// A program: what the kernel runs at some place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its name, unique among programs and subprograms.
    pub name: Name,
    /// What it is and where it is attached.
    pub section: Section,
    /// What it does.
    pub body: Body,
}

/// A function that programs and other functions call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subprogram {
    /// Its name, unique among programs and subprograms.
    pub name: Name,
    /// How it is verified.
    pub linkage: Linkage,
    /// What it does.
    pub body: Body,
}

/// What a program is, where it is attached, and whether it is loaded without being asked for. Printed, it is the name of
/// the section that libbpf reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// What it is.
    pub kind: &'static ProgramRow,
    /// Where it is attached.
    pub target: Target,
    /// Whether the loader loads it without being asked to.
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

/// The body of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// Its signature; none if the object has no types of it.
    pub signature: Option<TypeId>,
    /// Its attributes.
    pub notes: Vec<FunctionNote>,
    /// Its instructions. Branches stay inside.
    pub code: Vec<Instruction>,
    /// The source lines, ascending by instruction.
    pub lines: Vec<Line>,
    /// What the loader adjusts to the running kernel's types, ascending by instruction: at most one of each, each a plain
    /// instruction with a constant or an offset, or a wide load of a constant.
    pub core: Vec<CoreRelo>,
}

/// An attribute of a function or of one of its parameters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FunctionNote {
    /// The parameter's position; none for the function.
    pub param: Option<u16>,
    /// The attribute.
    pub attribute: Attribute,
}

/// The source line of an instruction and those after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The first instruction of the line.
    pub at: InsnIndex,
    /// The source file.
    pub file: Arc<str>,
    /// The text of the line, without control characters.
    pub text: Arc<str>,
    /// The line, from 1; at most 4194303.
    pub line: u32,
    /// The column, from 1; at most 1023.
    pub column: u32,
}

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// One that names nothing outside of the function.
    Plain(PlainInsn),
    /// A call.
    Call(Callee),
    /// A wide load: a constant or an address.
    LoadWide {
        /// The register that gets it.
        dst: Reg,
        /// What is loaded.
        value: Wide,
    },
}

impl Instruction {
    /// How many eight-byte slots it takes.
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
    /// The instruction, if it is neither a call nor a wide load.
    #[must_use]
    pub const fn new(insn: Insn) -> Option<PlainInsn> {
        match insn {
            Insn::Call { .. } | Insn::LoadImm64 { .. } => None,
            _ => Some(PlainInsn(insn)),
        }
    }

    /// The instruction.
    #[must_use]
    pub const fn insn(self) -> Insn {
        self.0
    }
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Callee {
    /// A helper of the kernel.
    Helper(Helper),
    /// A function of the object.
    Subprogram(SubprogramId),
    /// A function of the kernel: its extern is a [`super::KsymKind::Function`].
    Kfunc(KsymId),
}

/// A helper that Linux 6.18 has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Helper(u32);

impl Helper {
    /// The helper with a number of `enum bpf_func_id`, if there is one.
    #[must_use]
    pub fn new(number: u32) -> Option<Helper> {
        helper_name(number).map(|_| Helper(number))
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The name, with `bpf_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        helper_name(self.0).unwrap_or_default()
    }
}

/// What a wide load loads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wide {
    /// A number.
    Constant(u64),
    /// The address of a map, as helpers take it.
    Map(MapId),
    /// The address of a byte of a section of variables.
    Data {
        /// The section.
        section: DataId,
        /// Bytes from its start, inside of it.
        offset: u32,
    },
    /// The address of a function of the object, as a callback.
    Subprogram(SubprogramId),
    /// The address of something of the kernel.
    Ksym(KsymId),
    /// The address of a fact about the kernel.
    Kconfig(KconfigId),
}

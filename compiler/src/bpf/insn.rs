//! The instructions and their operands.

/// A register, `r0` to `r10`.
///
/// `r0` is the result, `r1`-`r5` are arguments and lost by a call, `r6`-`r9` survive calls, `r10` is the read-only frame
/// pointer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg(u8);

impl Reg {
    /// Result of a call and of the program.
    pub const R0: Reg = Reg(0);
    /// First argument; the context at a program's entry.
    pub const R1: Reg = Reg(1);
    /// Second argument.
    pub const R2: Reg = Reg(2);
    /// Third argument.
    pub const R3: Reg = Reg(3);
    /// Fourth argument.
    pub const R4: Reg = Reg(4);
    /// Fifth argument.
    pub const R5: Reg = Reg(5);
    /// Preserved by calls.
    pub const R6: Reg = Reg(6);
    /// Preserved by calls.
    pub const R7: Reg = Reg(7);
    /// Preserved by calls.
    pub const R8: Reg = Reg(8);
    /// Preserved by calls.
    pub const R9: Reg = Reg(9);
    /// The frame pointer: the stack lies below it, and it cannot be written.
    pub const R10: Reg = Reg(10);

    /// The register with this number, if there is one.
    #[must_use]
    pub const fn new(number: u8) -> Option<Reg> {
        if number <= 10 { Some(Reg(number)) } else { None }
    }

    /// The number, 0 to 10.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Whether an operation works on 32 or 64 bits; a 32-bit result clears the upper half of its register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// 32 bits (`w0`).
    W32,
    /// 64 bits (`r0`).
    W64,
}

/// The size of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Size {
    /// One byte.
    B,
    /// Two bytes.
    H,
    /// Four bytes.
    W,
    /// Eight bytes.
    DW,
}

impl Size {
    /// The number of bytes, 1, 2, 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::DW => 8,
        }
    }
}

/// A size smaller than a register: what can be sign-extended (v4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Narrow {
    /// One byte.
    B,
    /// Two bytes.
    H,
    /// Four bytes.
    W,
}

/// Arithmetic on a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AluOp {
    /// Addition, wrapping.
    Add,
    /// Subtraction, wrapping.
    Sub,
    /// Multiplication, wrapping.
    Mul,
    /// Unsigned division; a zero divisor gives 0.
    Div,
    /// Unsigned remainder; a zero divisor leaves the destination.
    Mod,
    /// Signed division (v4).
    Sdiv,
    /// Signed remainder (v4).
    Smod,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left.
    Lsh,
    /// Logical shift right.
    Rsh,
    /// Arithmetic shift right.
    Arsh,
}

/// The condition of a branch; the names starting with `S` compare as signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JmpOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Above, unsigned.
    Gt,
    /// Above or equal, unsigned.
    Ge,
    /// Below, unsigned.
    Lt,
    /// Below or equal, unsigned.
    Le,
    /// Greater, signed.
    Sgt,
    /// Greater or equal, signed.
    Sge,
    /// Less, signed.
    Slt,
    /// Less or equal, signed.
    Sle,
    /// Any common bit set.
    Set,
}

/// An atomic operation on memory; those with `Fetch` return the old value in the source register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// `*p += src`
    Add,
    /// `*p |= src`
    Or,
    /// `*p &= src`
    And,
    /// `*p ^= src`
    Xor,
    /// `src = fetch_add(p, src)`
    FetchAdd,
    /// `src = fetch_or(p, src)`
    FetchOr,
    /// `src = fetch_and(p, src)`
    FetchAnd,
    /// `src = fetch_xor(p, src)`
    FetchXor,
    /// `src = xchg(p, src)`
    Xchg,
    /// `r0 = cmpxchg(p, r0, src)`
    CmpXchg,
}

/// What a byte swap converts between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// The CPU's order and little-endian.
    Little,
    /// The CPU's order and big-endian.
    Big,
    /// Always swaps (v4).
    Swap,
}

/// How many low bits a byte swap takes; the bits above become zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwapBits {
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

impl SwapBits {
    pub(super) const fn count(self) -> i32 {
        match self {
            SwapBits::Bits16 => 16,
            SwapBits::Bits32 => 32,
            SwapBits::Bits64 => 64,
        }
    }
}

/// A register or a constant; a constant is sign-extended to 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// The register's value.
    Reg(Reg),
    /// The constant.
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Operand::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Operand::Imm(value)
    }
}

/// A position in a sequence of [`Insn`]s (not of slots).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InsnIndex(pub u32);

/// A map of the object that is being built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapRef(pub(crate) u32);

/// A global variable of the object that is being built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GlobalRef(pub(crate) u32);

/// A function of the object that is being built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionRef(pub(crate) u32);

/// A kernel function that the object that is being built calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KfuncRef(pub(crate) u32);

/// What `ld_imm64` puts into a register.
///
/// `Map`, `Global` and `Function` exist only until the object is built: they become relocations there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Imm64 {
    /// A plain number.
    Value(u64),
    /// The address of a map, as helpers take it.
    Map(MapRef),
    /// The address of a byte of a global variable.
    Global {
        /// The variable.
        global: GlobalRef,
        /// Bytes from its start.
        offset: u32,
    },
    /// The address of a static function, as a callback.
    Function(FunctionRef),
    /// A map by its file descriptor.
    #[doc(alias = "BPF_PSEUDO_MAP_FD")]
    MapFd(i32),
    /// An address inside the only value of an array map.
    #[doc(alias = "BPF_PSEUDO_MAP_VALUE")]
    MapValueFd {
        /// The map's file descriptor.
        fd: i32,
        /// Bytes from the value's start.
        offset: u32,
    },
    /// The address of the function that starts at an instruction of the same sequence.
    #[doc(alias = "BPF_PSEUDO_FUNC")]
    FunctionAt(InsnIndex),
}

/// What a call calls.
///
/// `Function` and `Kfunc` exist only until the object is built: they become relocations there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallTarget {
    /// A kernel helper by its number.
    Helper(u32),
    /// A function of the object.
    Function(FunctionRef),
    /// A kernel function.
    Kfunc(KfuncRef),
    /// The function that starts at an instruction of the same sequence.
    #[doc(alias = "BPF_PSEUDO_CALL")]
    FunctionAt(InsnIndex),
    /// A kernel function by its BTF id.
    #[doc(alias = "BPF_PSEUDO_KFUNC_CALL")]
    KfuncId {
        /// Type id of the `FUNC` in the BTF of the kernel or module.
        btf_id: i32,
        /// Index of the module's BTF in the load call's descriptor array; 0 is the kernel.
        module: i16,
    },
}

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Insn {
    /// `dst = dst op src`
    Alu {
        /// The operation.
        op: AluOp,
        /// 32 or 64 bits.
        width: Width,
        /// First operand and result.
        dst: Reg,
        /// Second operand.
        src: Operand,
    },
    /// `dst = src`
    Mov {
        /// 32 or 64 bits.
        width: Width,
        /// Result.
        dst: Reg,
        /// Value.
        src: Operand,
    },
    /// `dst = sign_extend(src)` (v4). There is none from 32 bits to a 32-bit result.
    MovSx {
        /// Width of the result.
        width: Width,
        /// How many bytes of `src` count.
        from: Narrow,
        /// Result.
        dst: Reg,
        /// Value.
        src: Reg,
    },
    /// `dst = -dst`
    Neg {
        /// 32 or 64 bits.
        width: Width,
        /// Operand and result.
        dst: Reg,
    },
    /// Converts the byte order of the low bits of `dst`.
    Endian {
        /// Between which orders.
        order: ByteOrder,
        /// How many bits.
        bits: SwapBits,
        /// Operand and result.
        dst: Reg,
    },
    /// `dst = value`, 64 bits; takes two slots.
    LoadImm64 {
        /// Result.
        dst: Reg,
        /// What is loaded.
        value: Imm64,
    },
    /// `dst = *(base + offset)`, zero-extended.
    Load {
        /// Bytes read.
        size: Size,
        /// Result.
        dst: Reg,
        /// Address.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
    },
    /// `dst = *(base + offset)`, sign-extended to 64 bits (v4).
    LoadSx {
        /// Bytes read.
        size: Narrow,
        /// Result.
        dst: Reg,
        /// Address.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
    },
    /// `*(base + offset) = src`
    Store {
        /// Bytes written.
        size: Size,
        /// Address.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
        /// Value.
        src: Operand,
    },
    /// An atomic operation on `*(base + offset)`.
    Atomic {
        /// The operation.
        op: AtomicOp,
        /// 32 or 64 bits of memory.
        width: Width,
        /// Address; must be a multiple of the width.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
        /// Operand, and the old value for the operations that fetch.
        src: Reg,
    },
    /// Goes to `target`; the distance must fit 16 bits.
    Jump {
        /// Where to.
        target: InsnIndex,
    },
    /// Goes to `target`, 32-bit distance (v4).
    JumpLong {
        /// Where to.
        target: InsnIndex,
    },
    /// Goes to `target` if the kernel's budget for this loop is used up (Linux 6.9).
    #[doc(alias = "BPF_MAY_GOTO")]
    MayGoto {
        /// Where to.
        target: InsnIndex,
    },
    /// `if dst op src goto target`
    JumpIf {
        /// The condition.
        op: JmpOp,
        /// 32 or 64 bits are compared.
        width: Width,
        /// First operand.
        dst: Reg,
        /// Second operand.
        src: Operand,
        /// Where to.
        target: InsnIndex,
    },
    /// Calls; arguments in `r1`-`r5`, result in `r0`.
    Call {
        /// What is called.
        target: CallTarget,
    },
    /// Returns `r0`.
    Exit,
}

impl Insn {
    /// `dst = src`, 64 bits.
    pub fn mov(dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Mov { width: Width::W64, dst, src: src.into() }
    }

    /// `dst = src`, 32 bits.
    pub fn mov32(dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Mov { width: Width::W32, dst, src: src.into() }
    }

    /// `dst = dst op src`, 64 bits.
    pub fn alu(op: AluOp, dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Alu { op, width: Width::W64, dst, src: src.into() }
    }

    /// `dst = dst op src`, 32 bits.
    pub fn alu32(op: AluOp, dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Alu { op, width: Width::W32, dst, src: src.into() }
    }

    /// `dst = value`, 64 bits.
    pub fn load_imm64(dst: Reg, value: Imm64) -> Insn {
        Insn::LoadImm64 { dst, value }
    }

    /// `dst = *(base + offset)`
    pub fn load(size: Size, dst: Reg, base: Reg, offset: i16) -> Insn {
        Insn::Load { size, dst, base, offset }
    }

    /// `*(base + offset) = src`
    pub fn store(size: Size, base: Reg, offset: i16, src: impl Into<Operand>) -> Insn {
        Insn::Store { size, base, offset, src: src.into() }
    }

    /// An atomic operation on `*(base + offset)`.
    pub fn atomic(op: AtomicOp, width: Width, base: Reg, offset: i16, src: Reg) -> Insn {
        Insn::Atomic { op, width, base, offset, src }
    }

    /// Calls the kernel helper with this number.
    pub fn call_helper(number: u32) -> Insn {
        Insn::Call { target: CallTarget::Helper(number) }
    }

    /// Calls a function of the object.
    pub fn call_function(function: FunctionRef) -> Insn {
        Insn::Call { target: CallTarget::Function(function) }
    }

    /// Calls a kernel function.
    pub fn call_kfunc(kfunc: KfuncRef) -> Insn {
        Insn::Call { target: CallTarget::Kfunc(kfunc) }
    }

    /// How many eight-byte slots the instruction takes: 2 for `ld_imm64`, else 1.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        if matches!(self, Insn::LoadImm64 { .. }) { 2 } else { 1 }
    }

    pub(super) fn branch_target_mut(&mut self) -> Option<&mut InsnIndex> {
        match self {
            Insn::Jump { target }
            | Insn::JumpLong { target }
            | Insn::MayGoto { target }
            | Insn::JumpIf { target, .. } => Some(target),
            _ => None,
        }
    }
}

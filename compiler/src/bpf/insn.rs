//! Instructions and their operands.

/// A register, `r0` to `r10`.
///
/// `r0` is the result, `r1`-`r5` are arguments and clobbered by a call, `r6`-`r9` are callee-saved, `r10` is
/// the read-only frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg(u8);

impl Reg {
    /// Result of a call and of the program.
    pub const R0: Reg = Reg(0);
    /// First argument; the context at a program's entry.
    pub const R1: Reg = Reg(1);
    /// Second argument of a call.
    pub const R2: Reg = Reg(2);
    /// Third argument of a call.
    pub const R3: Reg = Reg(3);
    /// Fourth argument of a call.
    pub const R4: Reg = Reg(4);
    /// Fifth argument of a call.
    pub const R5: Reg = Reg(5);
    /// First callee-saved register.
    pub const R6: Reg = Reg(6);
    /// Second callee-saved register.
    pub const R7: Reg = Reg(7);
    /// Third callee-saved register.
    pub const R8: Reg = Reg(8);
    /// Fourth callee-saved register.
    pub const R9: Reg = Reg(9);
    /// The read-only frame pointer: the stack is below it.
    pub const R10: Reg = Reg(10);

    /// Returns the register with this number; none above 10.
    #[must_use]
    pub const fn new(number: u8) -> Option<Reg> {
        if number <= 10 { Some(Reg(number)) } else { None }
    }

    /// The number of registers for values that calls keep: `R6` to `R9`.
    pub const KEPT_BY_CALLS: usize = 4;

    /// Whether a call keeps what is in the register.
    #[must_use]
    pub const fn is_kept_by_calls(self) -> bool {
        self.0 >= Reg::R6.0
    }

    /// Returns the number, 0 to 10.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Width of an operation; a 32-bit result clears the upper half of its register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// 32 bits, printed as `w0`.
    W32,
    /// 64 bits, printed as `r0`.
    W64,
}

/// Size of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Size {
    /// One byte (`u8`).
    B,
    /// Two bytes (`u16`).
    H,
    /// Four bytes (`u32`).
    W,
    /// Eight bytes (`u64`).
    DW,
}

impl Size {
    /// Returns the number of bytes: 1, 2, 4 or 8.
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

/// A size smaller than a register, which can be sign-extended (v4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Narrow {
    /// One byte (`s8`).
    B,
    /// Two bytes (`s16`).
    H,
    /// Four bytes (`s32`).
    W,
}

/// Arithmetic operation on a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AluOp {
    /// Addition, modulo the width.
    Add,
    /// Subtraction, modulo the width.
    Sub,
    /// Multiplication, modulo the width.
    Mul,
    /// Unsigned division; division by zero yields 0.
    Div,
    /// Unsigned remainder; a zero divisor leaves the destination unchanged.
    Mod,
    /// Signed division (v4); division by zero yields 0.
    Sdiv,
    /// Signed remainder (v4); a zero divisor leaves the destination unchanged.
    Smod,
    /// Bitwise or, `|`.
    Or,
    /// Bitwise and, `&`.
    And,
    /// Bitwise exclusive or, `^`.
    Xor,
    /// Shift left, `<<`.
    Lsh,
    /// Logical shift right, `>>`.
    Rsh,
    /// Arithmetic shift right, `s>>`.
    Arsh,
}

/// Condition of a branch; the names starting with `S` compare as signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JmpOp {
    /// Equal, `==`.
    Eq,
    /// Not equal, `!=`.
    Ne,
    /// Unsigned greater, `>`.
    Gt,
    /// Unsigned greater or equal, `>=`.
    Ge,
    /// Unsigned less, `<`.
    Lt,
    /// Unsigned less or equal, `<=`.
    Le,
    /// Signed greater, `s>`.
    Sgt,
    /// Signed greater or equal, `s>=`.
    Sge,
    /// Signed less, `s<`.
    Slt,
    /// Signed less or equal, `s<=`.
    Sle,
    /// A common bit is set, `&`.
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

/// Byte orders between which an instruction converts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// Between the CPU's order and little-endian.
    Little,
    /// Between the CPU's order and big-endian.
    Big,
    /// Unconditional swap (v4).
    Swap,
}

/// Number of low bits that a byte swap converts; the bits above become zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwapBits {
    /// The low 16 bits.
    Bits16,
    /// The low 32 bits.
    Bits32,
    /// All 64 bits.
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
    /// A register, whose value is used.
    Reg(Reg),
    /// A constant of 32 bits.
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

/// A map of an object under construction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapRef(pub(crate) u32);

/// A global variable of an object under construction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GlobalRef(pub(crate) u32);

/// A function of an object under construction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionRef(pub(crate) u32);

/// A kernel function that an object under construction calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KfuncRef(pub(crate) u32);

/// A variable of the kernel whose address an object under construction takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelVariableRef(pub(crate) u32);

/// Operand of `ld_imm64`.
///
/// `Map`, `Global`, `Function` and `KernelVariable` exist only until the object is built, which converts them to relocations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Imm64 {
    /// A 64-bit constant.
    Value(u64),
    /// The address of a map, as helpers take it.
    Map(MapRef),
    /// The address of a byte of a global variable.
    Global {
        /// Reference of the variable.
        global: GlobalRef,
        /// Offset in bytes from its start.
        offset: u32,
    },
    /// The address of a static function, as a callback.
    Function(FunctionRef),
    /// The address of a variable of the kernel, which the loader looks up.
    KernelVariable(KernelVariableRef),
    /// A map by its file descriptor.
    #[doc(alias = "BPF_PSEUDO_MAP_FD")]
    MapFd(i32),
    /// An address inside the only value of an array map.
    #[doc(alias = "BPF_PSEUDO_MAP_VALUE")]
    MapValueFd {
        /// File descriptor of the map.
        fd: i32,
        /// Offset in bytes from the value's start.
        offset: u32,
    },
    /// The address of the function that starts at an instruction of the same sequence.
    #[doc(alias = "BPF_PSEUDO_FUNC")]
    FunctionAt(InsnIndex),
}

/// Target of a call.
///
/// `Function` and `Kfunc` exist only until the object is built, which turns them into relocations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallTarget {
    /// A kernel helper by its number.
    Helper(u32),
    /// A function of the object.
    Function(FunctionRef),
    /// A kernel function of the object's externs.
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

/// A BPF instruction with typed operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Insn {
    /// `dst = dst op src`
    Alu {
        /// Arithmetic operation.
        op: AluOp,
        /// 32 or 64 bits.
        width: Width,
        /// First operand and destination.
        dst: Reg,
        /// Second operand: register or constant.
        src: Operand,
    },
    /// `dst = src`
    Mov {
        /// 32 or 64 bits.
        width: Width,
        /// Destination register.
        dst: Reg,
        /// Source register or constant.
        src: Operand,
    },
    /// `dst = sign_extend(src)` (v4). No encoding exists from 32 bits to a 32-bit result.
    MovSx {
        /// Width of the result.
        width: Width,
        /// Number of low bytes of `src` that are extended.
        from: Narrow,
        /// Destination register.
        dst: Reg,
        /// Source register.
        src: Reg,
    },
    /// `dst = -dst`
    Neg {
        /// 32 or 64 bits.
        width: Width,
        /// Operand and destination.
        dst: Reg,
    },
    /// Converts the byte order of the low bits of `dst`.
    Endian {
        /// Byte orders to convert between.
        order: ByteOrder,
        /// Number of low bits to convert.
        bits: SwapBits,
        /// Operand and destination.
        dst: Reg,
    },
    /// `dst = value`, 64 bits; takes two slots.
    LoadImm64 {
        /// Destination register.
        dst: Reg,
        /// Constant or address to load.
        value: Imm64,
    },
    /// `dst = *(base + offset)`, zero-extended.
    Load {
        /// Number of bytes to read.
        size: Size,
        /// Destination register.
        dst: Reg,
        /// Register with the address.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
    },
    /// `dst = *(base + offset)`, sign-extended to 64 bits (v4).
    LoadSx {
        /// Number of bytes to read.
        size: Narrow,
        /// Destination register.
        dst: Reg,
        /// Register with the address.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
    },
    /// `*(base + offset) = src`
    Store {
        /// Number of bytes to write.
        size: Size,
        /// Register with the address.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
        /// Register or constant to store.
        src: Operand,
    },
    /// An atomic operation on `*(base + offset)`.
    Atomic {
        /// Atomic operation.
        op: AtomicOp,
        /// 32 or 64 bits of memory.
        width: Width,
        /// Register with the address; base plus offset must be a multiple of the width.
        base: Reg,
        /// Bytes added to the address.
        offset: i16,
        /// Operand; operations with `Fetch` return the old value in it.
        src: Reg,
    },
    /// `goto target`; the distance must fit 16 bits.
    Jump {
        /// Instruction to continue at.
        target: InsnIndex,
    },
    /// `gotol target`, with a 32-bit distance (v4).
    JumpLong {
        /// Instruction to continue at.
        target: InsnIndex,
    },
    /// Branches to `target` if the kernel's budget for this loop is used up (Linux 6.9).
    #[doc(alias = "BPF_MAY_GOTO")]
    MayGoto {
        /// Instruction to continue at.
        target: InsnIndex,
    },
    /// `if dst op src goto target`
    JumpIf {
        /// Condition of the branch.
        op: JmpOp,
        /// Number of bits to compare: 32 or 64.
        width: Width,
        /// First operand.
        dst: Reg,
        /// Second operand: register or constant.
        src: Operand,
        /// Instruction to continue at if the condition holds.
        target: InsnIndex,
    },
    /// Call; arguments in `r1`-`r5`, result in `r0`.
    Call {
        /// Helper or function to call.
        target: CallTarget,
    },
    /// Returns `r0` to the caller.
    Exit,
}

impl Insn {
    /// Creates `dst = src`, 64 bits.
    pub fn mov(dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Mov { width: Width::W64, dst, src: src.into() }
    }

    /// Creates `dst = src`, 32 bits.
    pub fn mov32(dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Mov { width: Width::W32, dst, src: src.into() }
    }

    /// Creates `dst = dst op src`, 64 bits.
    pub fn alu(op: AluOp, dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Alu { op, width: Width::W64, dst, src: src.into() }
    }

    /// Creates `dst = dst op src`, 32 bits.
    pub fn alu32(op: AluOp, dst: Reg, src: impl Into<Operand>) -> Insn {
        Insn::Alu { op, width: Width::W32, dst, src: src.into() }
    }

    /// Creates `dst = value`, 64 bits.
    pub fn load_imm64(dst: Reg, value: Imm64) -> Insn {
        Insn::LoadImm64 { dst, value }
    }

    /// Creates `dst = *(base + offset)`, zero-extended.
    pub fn load(size: Size, dst: Reg, base: Reg, offset: i16) -> Insn {
        Insn::Load { size, dst, base, offset }
    }

    /// Creates `*(base + offset) = src`.
    pub fn store(size: Size, base: Reg, offset: i16, src: impl Into<Operand>) -> Insn {
        Insn::Store { size, base, offset, src: src.into() }
    }

    /// Creates an atomic operation on `*(base + offset)`.
    pub fn atomic(op: AtomicOp, width: Width, base: Reg, offset: i16, src: Reg) -> Insn {
        Insn::Atomic { op, width, base, offset, src }
    }

    /// Creates a call of the kernel helper with this number.
    pub fn call_helper(number: u32) -> Insn {
        Insn::Call { target: CallTarget::Helper(number) }
    }

    /// Creates a call of a function of the object.
    pub fn call_function(function: FunctionRef) -> Insn {
        Insn::Call { target: CallTarget::Function(function) }
    }

    /// Creates a call of a kernel function.
    pub fn call_kfunc(kfunc: KfuncRef) -> Insn {
        Insn::Call { target: CallTarget::Kfunc(kfunc) }
    }

    /// Returns the number of eight-byte slots: 2 for `ld_imm64`, else 1.
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

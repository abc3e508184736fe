//! Disassembly in the style of the kernel's and LLVM's disassembler.

use std::fmt;

use super::{
    AluOp, AtomicOp, ByteOrder, CallTarget, FunctionRef, GlobalRef, Imm64, Insn, InsnIndex, JmpOp,
    KernelVariableRef, KfuncRef, MapRef, Narrow, Operand, Reg, Size, Width, helper_name,
};

/// A named symbol of an object that an instruction refers to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Symbol {
    /// A map of the object.
    Map(MapRef),
    /// A global variable of the object.
    Global(GlobalRef),
    /// A function of the object.
    Function(FunctionRef),
    /// A kernel function (kfunc).
    Kfunc(KfuncRef),
    /// A variable of the kernel.
    KernelVariable(KernelVariableRef),
}

/// Disassembles to one line per instruction: the number of its first slot and its text (` 3: r1 = *(u64 *)(r1
/// + 168)`).
///
/// `name` returns the names of symbols; for `None` a number is printed (`map#0`). Branch distances count
/// slots from the instruction after the branch, as in the encoding; a branch to an instruction that does not
/// exist prints `goto ?`.
#[must_use]
pub fn disasm(insns: &[Insn], name: &dyn Fn(Symbol) -> Option<String>) -> String {
    let mut starts = Vec::with_capacity(insns.len());
    let mut next = 0u64;
    for insn in insns {
        starts.push(next);
        next += u64::from(insn.slots());
    }
    let mut text = String::new();
    for (insn, &slot) in insns.iter().zip(&starts) {
        let line = Line { insn, slot, starts: &starts, name };
        text.push_str(&format!("{slot:4}: {line}\n"));
    }
    text
}

struct Line<'a> {
    insn: &'a Insn,
    slot: u64,
    starts: &'a [u64],
    name: &'a dyn Fn(Symbol) -> Option<String>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.insn {
            Insn::Alu { op, width, dst, src } => {
                write!(f, "{} {}= {}", reg(width, dst), alu_sign(op), operand(width, src))
            }
            Insn::Mov { width, dst, src } => write!(f, "{} = {}", reg(width, dst), operand(width, src)),
            Insn::MovSx { width, from, dst, src } => {
                write!(f, "{} = (s{}){}", reg(width, dst), narrow_bits(from), reg(width, src))
            }
            Insn::Neg { width, dst } => write!(f, "{0} = -{0}", reg(width, dst)),
            Insn::Endian { order, bits, dst } => {
                let order = match order {
                    ByteOrder::Little => "le",
                    ByteOrder::Big => "be",
                    ByteOrder::Swap => "bswap",
                };
                write!(f, "{dst} = {order}{} {dst}", bits.count())
            }
            Insn::LoadImm64 { dst, value } => {
                write!(f, "{dst} = ")?;
                self.imm64(f, value)
            }
            Insn::Load { size, dst, base, offset } => {
                write!(f, "{dst} = *(u{} *)({base} {})", size_bits(size), signed(offset))
            }
            Insn::LoadSx { size, dst, base, offset } => {
                write!(f, "{dst} = *(s{} *)({base} {})", narrow_bits(size), signed(offset))
            }
            Insn::Store { size, base, offset, src } => {
                let src = operand(Width::W64, src);
                write!(f, "*(u{} *)({base} {}) = {src}", size_bits(size), signed(offset))
            }
            Insn::Atomic { op, width, base, offset, src } => atomic(f, op, width, base, offset, src),
            Insn::Jump { target } => write!(f, "goto {}", self.distance(target)),
            Insn::JumpLong { target } => write!(f, "gotol {}", self.distance(target)),
            Insn::MayGoto { target } => write!(f, "may_goto {}", self.distance(target)),
            Insn::JumpIf { op, width, dst, src, target } => {
                let (dst, src) = (reg(width, dst), operand(width, src));
                write!(f, "if {dst} {} {src} goto {}", jump_sign(op), self.distance(target))
            }
            Insn::Call { target } => self.call(f, target),
            Insn::Exit => f.write_str("exit"),
        }
    }
}

impl Line<'_> {
    fn imm64(&self, f: &mut fmt::Formatter<'_>, value: Imm64) -> fmt::Result {
        match value {
            Imm64::Value(value) => write!(f, "{value:#x} ll"),
            Imm64::Map(map) => write!(f, "{} ll", self.symbol(Symbol::Map(map))),
            Imm64::Global { global, offset: 0 } => write!(f, "{} ll", self.symbol(Symbol::Global(global))),
            Imm64::Global { global, offset } => {
                write!(f, "{} + {offset} ll", self.symbol(Symbol::Global(global)))
            }
            Imm64::Function(function) => write!(f, "{} ll", self.symbol(Symbol::Function(function))),
            Imm64::KernelVariable(variable) => {
                write!(f, "{} ll", self.symbol(Symbol::KernelVariable(variable)))
            }
            Imm64::MapFd(fd) => write!(f, "map[fd:{fd}]"),
            Imm64::MapValueFd { fd, offset } => write!(f, "map[fd:{fd}][0]+{offset}"),
            Imm64::FunctionAt(target) => write!(f, "subprog[{}]", self.distance(target)),
        }
    }

    fn call(&self, f: &mut fmt::Formatter<'_>, target: CallTarget) -> fmt::Result {
        match target {
            CallTarget::Helper(number) => match helper_name(number) {
                Some(name) => write!(f, "call {name}"),
                None => write!(f, "call helper#{number}"),
            },
            CallTarget::Function(function) => {
                write!(f, "call {}", self.symbol(Symbol::Function(function)))
            }
            CallTarget::Kfunc(kfunc) => write!(f, "call {}", self.symbol(Symbol::Kfunc(kfunc))),
            CallTarget::FunctionAt(target) => write!(f, "call pc{}", self.distance(target)),
            CallTarget::KfuncId { btf_id, module: 0 } => write!(f, "call kfunc#{btf_id}"),
            CallTarget::KfuncId { btf_id, module } => write!(f, "call kfunc#{btf_id} module#{module}"),
        }
    }

    fn symbol(&self, symbol: Symbol) -> String {
        (self.name)(symbol).unwrap_or_else(|| match symbol {
            Symbol::Map(map) => format!("map#{}", map.0),
            Symbol::Global(global) => format!("global#{}", global.0),
            Symbol::Function(function) => format!("function#{}", function.0),
            Symbol::Kfunc(kfunc) => format!("kfunc#{}", kfunc.0),
            Symbol::KernelVariable(variable) => format!("kernel_variable#{}", variable.0),
        })
    }

    fn distance(&self, target: InsnIndex) -> String {
        match self.starts.get(target.0 as usize) {
            Some(&start) => format!("{:+}", i128::from(start) - i128::from(self.slot) - 1),
            None => "?".to_owned(),
        }
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.number())
    }
}

fn reg(width: Width, reg: Reg) -> String {
    let letter = if width == Width::W32 { 'w' } else { 'r' };
    format!("{letter}{}", reg.number())
}

fn operand(width: Width, operand: Operand) -> String {
    match operand {
        Operand::Reg(src) => reg(width, src),
        Operand::Imm(value) => value.to_string(),
    }
}

/// Formats an offset as `+ 8` or `- 8`.
fn signed(offset: i16) -> String {
    let sign = if offset < 0 { '-' } else { '+' };
    format!("{sign} {}", offset.unsigned_abs())
}

fn atomic(
    f: &mut fmt::Formatter<'_>,
    op: AtomicOp,
    width: Width,
    base: Reg,
    offset: i16,
    src: Reg,
) -> fmt::Result {
    let (bits, suffix) = if width == Width::W64 { (64, "_64") } else { (32, "32_32") };
    let (offset, src) = (signed(offset), reg(width, src));
    let fetch = |f: &mut fmt::Formatter<'_>, name: &str| {
        write!(f, "{src} = atomic_fetch_{name}((u{bits} *)({base} {offset}), {src})")
    };
    match op {
        AtomicOp::Add => write!(f, "lock *(u{bits} *)({base} {offset}) += {src}"),
        AtomicOp::Or => write!(f, "lock *(u{bits} *)({base} {offset}) |= {src}"),
        AtomicOp::And => write!(f, "lock *(u{bits} *)({base} {offset}) &= {src}"),
        AtomicOp::Xor => write!(f, "lock *(u{bits} *)({base} {offset}) ^= {src}"),
        AtomicOp::FetchAdd => fetch(f, "add"),
        AtomicOp::FetchOr => fetch(f, "or"),
        AtomicOp::FetchAnd => fetch(f, "and"),
        AtomicOp::FetchXor => fetch(f, "xor"),
        AtomicOp::Xchg => write!(f, "{src} = xchg{suffix}({base} {offset}, {src})"),
        AtomicOp::CmpXchg => {
            let r0 = reg(width, Reg::R0);
            write!(f, "{r0} = cmpxchg{suffix}({base} {offset}, {r0}, {src})")
        }
    }
}

const fn alu_sign(op: AluOp) -> &'static str {
    match op {
        AluOp::Add => "+",
        AluOp::Sub => "-",
        AluOp::Mul => "*",
        AluOp::Div => "/",
        AluOp::Mod => "%",
        AluOp::Sdiv => "s/",
        AluOp::Smod => "s%",
        AluOp::Or => "|",
        AluOp::And => "&",
        AluOp::Xor => "^",
        AluOp::Lsh => "<<",
        AluOp::Rsh => ">>",
        AluOp::Arsh => "s>>",
    }
}

const fn jump_sign(op: JmpOp) -> &'static str {
    match op {
        JmpOp::Eq => "==",
        JmpOp::Ne => "!=",
        JmpOp::Gt => ">",
        JmpOp::Ge => ">=",
        JmpOp::Lt => "<",
        JmpOp::Le => "<=",
        JmpOp::Sgt => "s>",
        JmpOp::Sge => "s>=",
        JmpOp::Slt => "s<",
        JmpOp::Sle => "s<=",
        JmpOp::Set => "&",
    }
}

const fn size_bits(size: Size) -> u8 {
    size.bytes() * 8
}

const fn narrow_bits(size: Narrow) -> u8 {
    match size {
        Narrow::B => 8,
        Narrow::H => 16,
        Narrow::W => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::super::SwapBits;
    use super::*;

    fn text(insns: &[Insn]) -> Vec<String> {
        let all = disasm(insns, &|symbol| match symbol {
            Symbol::Global(_) => Some("counter".to_owned()),
            _ => None,
        });
        all.lines().map(|line| line[6..].to_owned()).collect()
    }

    #[test]
    fn text_is_that_of_the_kernel_and_llvm() {
        let insns = [
            Insn::load(Size::DW, Reg::R1, Reg::R1, 168),
            Insn::JumpIf {
                op: JmpOp::Eq,
                width: Width::W64,
                dst: Reg::R0,
                src: 0.into(),
                target: InsnIndex(4),
            },
            Insn::load_imm64(Reg::R2, Imm64::Global { global: GlobalRef(3), offset: 8 }),
            Insn::atomic(AtomicOp::Add, Width::W64, Reg::R0, 0, Reg::R1),
            Insn::store(Size::W, Reg::R10, -4, 7),
            Insn::alu32(AluOp::Arsh, Reg::R3, 2),
            Insn::Endian { order: ByteOrder::Big, bits: SwapBits::Bits16, dst: Reg::R4 },
            Insn::atomic(AtomicOp::CmpXchg, Width::W32, Reg::R1, 4, Reg::R2),
            Insn::call_helper(5),
            Insn::call_helper(100_000),
            Insn::Jump { target: InsnIndex(0) },
            Insn::Exit,
        ];
        let expected = [
            "r1 = *(u64 *)(r1 + 168)",
            "if r0 == 0 goto +3",
            "r2 = counter + 8 ll",
            "lock *(u64 *)(r0 + 0) += r1",
            "*(u32 *)(r10 - 4) = 7",
            "w3 s>>= 2",
            "r4 = be16 r4",
            "w0 = cmpxchg32_32(r1 + 4, w0, w2)",
            "call bpf_ktime_get_ns",
            "call helper#100000",
            "goto -12",
            "exit",
        ];
        assert_eq!(text(&insns), expected);
    }
}

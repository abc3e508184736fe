//! Instruction boundaries, by following direct jumps from a known start.
//!
//! A linear sweep would decode tables in the code, and bytes that are jumped over, as instructions, and would
//! then decode the code after them wrongly. So only reachable code is decoded: the successors of an
//! instruction, and the targets of direct jumps and calls. Code that is only reached by computed jumps (cases
//! of a `switch`) stays unknown.

mod aarch64;
mod x86;

/// The instruction set of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    X86,
    Aarch64,
}

/// Longest function that is decoded, in bytes. Bounds the time of a host call: longer ones are rejected.
pub(super) const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// A decoded instruction: its length and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decoded {
    bytes: usize,
    next: Next,
}

/// The successors of an instruction, as far as its encoding determines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Following,
    Only(u64),
    Both(u64),
    Nothing,
}

/// The result for an address after following jumps from one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// An instruction begins there and does not overlap another one.
    Boundary,
    /// The address lies inside an instruction, or the instruction there overlaps another one.
    Inside,
    /// No direct jump reaches the address.
    Unknown,
}

impl Machine {
    /// Returns the machine of `e_machine` if this host's kernel runs its code.
    ///
    /// Source: `include/uapi/linux/elf-em.h`, v6.18. Programs for 32-bit arm have no uprobes on arm64
    /// (`arch_uprobe_analyze_insn` in `arch/arm64/kernel/probes/uprobes.c`, v6.18).
    pub(super) fn of(number: u16) -> Option<Machine> {
        match number {
            3 if cfg!(target_arch = "x86_64") => Some(Machine::X86),
            62 if cfg!(target_arch = "x86_64") => Some(Machine::X86_64),
            183 if cfg!(target_arch = "aarch64") => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// Length of the longest instruction, in bytes.
    pub(super) fn max_instruction_bytes(self) -> usize {
        match self {
            Machine::X86_64 | Machine::X86 => x86::MAX_BYTES,
            Machine::Aarch64 => aarch64::BYTES,
        }
    }

    fn decode(self, bytes: &[u8], address: u64) -> Option<Decoded> {
        match self {
            Machine::X86_64 => x86::decode(bytes, address, 64),
            Machine::X86 => x86::decode(bytes, address, 32),
            Machine::Aarch64 => aarch64::decode(bytes, address),
        }
    }

    /// Whether a valid instruction begins at the start of `bytes`.
    pub(super) fn is_instruction(self, bytes: &[u8], address: u64) -> bool {
        self.decode(bytes, address).is_some()
    }

    /// Follows direct jumps from `start`, where `code` is loaded, and returns the result for the address
    /// `wanted`.
    pub(super) fn reach(self, code: &[u8], start: u64, wanted: u64) -> Reached {
        let Some(wanted) = wanted.checked_sub(start).and_then(|index| usize::try_from(index).ok()) else {
            return Reached::Unknown;
        };
        let mut begins = vec![false; code.len()];
        let mut waiting = vec![0];
        let (mut is_inside, mut wanted_bytes) = (false, None);
        while let Some(first) = waiting.pop() {
            let mut at: usize = first;
            while at < code.len() && !begins[at] {
                let address = start.wrapping_add(at as u64);
                let Some(Decoded { bytes, next }) = self.decode(&code[at..], address) else { break };
                begins[at] = true;
                is_inside |= (at + 1..at + bytes).contains(&wanted);
                if at == wanted {
                    wanted_bytes = Some(bytes);
                }
                if let Next::Only(target) | Next::Both(target) = next {
                    waiting.extend(target.checked_sub(start).and_then(|index| usize::try_from(index).ok()));
                }
                if matches!(next, Next::Only(_) | Next::Nothing) {
                    break;
                }
                at += bytes;
            }
        }
        match wanted_bytes {
            _ if is_inside => Reached::Inside,
            None => Reached::Unknown,
            Some(bytes) if begins[wanted + 1..].iter().take(bytes - 1).any(|begins| *begins) => {
                Reached::Inside
            }
            Some(_) => Reached::Boundary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a character for each byte: `b` for a boundary, `i` for inside, `.` for unknown.
    fn known(machine: Machine, code: &[u8]) -> String {
        let letter = |wanted| match machine.reach(code, 0x1000, 0x1000 + wanted as u64) {
            Reached::Boundary => 'b',
            Reached::Inside => 'i',
            Reached::Unknown => '.',
        };
        (0..code.len()).map(letter).collect()
    }

    #[test]
    fn boundaries_are_what_direct_jumps_lead_to() {
        let x86 = |code: &[u8]| known(Machine::X86_64, code);
        // push rbp; mov eax, imm32; pop rbp; ret; what follows is padding, or data.
        assert_eq!(x86(&[0x55, 0xb8, 0x90, 0x90, 0x90, 0x00, 0x5d, 0xc3, 0x90]), "bbiiiibb.");
        // jmp +1 over a byte that would swallow what follows; nop; ret.
        assert_eq!(x86(&[0xeb, 0x01, 0xb8, 0x90, 0xc3]), "bi.bb");
        // jz +2; jmp rax; ret.
        assert_eq!(x86(&[0x74, 0x02, 0xff, 0xe0, 0xc3]), "bibib");
        // call rel32 into what follows it; pop rax; ret.
        assert_eq!(x86(&[0xe8, 0, 0, 0, 0, 0x58, 0xc3]), "biiiibb");
        // ud2, then anything.
        assert_eq!(x86(&[0x0f, 0x0b, 0x55]), "bi.");
        // A jump that leaves the function, and a jump back to its start.
        assert_eq!(x86(&[0x75, 0xfe, 0xe9, 0, 0, 1, 0, 0xc3]), "bibiiii.");
        assert_eq!(x86(&[0x06, 0x90]), "..", "no instruction in 64 bits");
        assert_eq!(known(Machine::X86, &[0x06, 0x90]), "bb");
    }

    #[test]
    fn overlapping_instructions_are_not_boundaries() {
        // jz +1; lock cmpxchg [rdi], esi, of which the jump leaves out the prefix; ret.
        let code = [0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x37, 0xc3];
        assert_eq!(known(Machine::X86_64, &code), "biiiiib");
    }

    #[test]
    fn a_branch_that_processors_read_in_two_lengths_ends_what_is_known() {
        // data16 jmp: 2 or 4 bytes of distance.
        assert_eq!(known(Machine::X86_64, &[0x90, 0x66, 0xe9, 0, 0, 0, 0, 0xc3]), "b.......");
        // data16 data16 rex.W call, which linkers emit for thread-local variables, is one instruction.
        let call = [0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(known(Machine::X86_64, &call), "biiiiiiib");
    }

    #[test]
    fn pools_of_constants_between_instructions_are_unknown() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let arm = |code: &[u32]| {
            known(Machine::Aarch64, &words(code)).bytes().step_by(4).map(char::from).collect::<String>()
        };
        // stp; b +2; constant; ldp; ret; constant.
        assert_eq!(
            arm(&[0xa9bf_7bfd, 0x1400_0002, 0x1234_5678, 0xa8c1_7bfd, 0xd65f_03c0, 0x5555_5555]),
            "bb.bb."
        );
        // cbz x0, +3; bl back; br x1; ret.
        assert_eq!(arm(&[0xb400_0060, 0x97ff_ffff, 0xd61f_0020, 0xd65f_03c0]), "bbbb");
        // tbnz w0, #0, +2; blr x1; b.eq -1; udf.
        assert_eq!(arm(&[0x3700_0040, 0xd63f_0020, 0x54ff_ffe0, 0]), "bbb.");
        assert_eq!(known(Machine::Aarch64, &words(&[0xd65f_03c0])), "biii");
    }
}

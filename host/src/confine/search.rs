//! Compiles a table of system calls to a seccomp program that finds a call by binary search.
//!
//! ```text
//! number -> Action  =>  ranges of numbers with one action  =>  tree of comparisons, an action at each leaf
//! ```
//!
//! At installation the kernel evaluates the program for every system call, to remember which are always
//! allowed (kernel/seccomp.c, `seccomp_cache_prepare`, v6.18). With comparisons in sequence that takes 0.2 ms,
//! 7 % of a plugin's start.

use std::collections::BTreeMap;
use std::ops::Range;

use seccompiler::{BackendError, BpfProgram, SeccompAction, TargetArch, sock_filter};

// Instructions. Source: include/uapi/linux/bpf_common.h, v6.18.
const LOAD: u16 = 0x20;
const LOAD_SCRATCH: u16 = 0x60;
const STORE_SCRATCH: u16 = 0x02;
const TO_X: u16 = 0x07;
const ADD: u16 = 0x04;
const ADD_X: u16 = 0x0c;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_GREATER_OR_EQUAL_X: u16 = 0x3d;
const RETURN: u16 = 0x06;

// Offsets in `struct seccomp_data`. Source: include/uapi/linux/seccomp.h, v6.18.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Words of scratch memory for the two halves of the end of a range.
const END_LOW: u32 = 0;
const END_HIGH: u32 = 1;

/// Audit numbers of architectures. Source: include/uapi/linux/audit.h, v6.18.
const AUDIT_X86_64: u32 = 0xc000_003e;
const AUDIT_AARCH64: u32 = 0xc000_00b7;
const AUDIT_RISCV64: u32 = 0xc000_00f3;

/// What the filter answers for a system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    /// Fails with this errno.
    Fail(u16),
    /// Allowed if one of the rules holds, else as an unknown call.
    If(Vec<Rule>),
}

/// Tests that must all hold.
pub(super) type Rule = Vec<Test>;

/// A test of arguments, whose positions count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    /// The low 32 bits, masked, have this value.
    Low { at: u8, mask: u32, value: u32 },
    /// The low 32 bits are a number from `first` to `last`.
    Between { at: u8, first: u32, last: u32 },
    /// All 64 bits are zero.
    Zero { at: u8 },
    /// The range that begins at argument 0 and has the length of argument 1 overlaps none of these, which
    /// ascend and are disjoint.
    Outside(Box<[Range<u64>]>),
}

/// Compiles a filter. Calls that the table lacks fail with the errno `unknown`; a system call of another
/// architecture ends the process.
///
/// # Errors
/// [`BackendError::InvalidTargetArch`] for an architecture without a known audit number.
pub(super) fn compile(
    architecture: TargetArch,
    table: &BTreeMap<u32, Action>,
    unknown: u16,
) -> Result<BpfProgram, BackendError> {
    let audit = match architecture {
        TargetArch::x86_64 => AUDIT_X86_64,
        TargetArch::aarch64 => AUDIT_AARCH64,
        TargetArch::riscv64 => AUDIT_RISCV64,
    };
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        branch(JUMP_EQUAL, audit, 1, 0),
        returned(SeccompAction::KillProcess),
        statement(LOAD, NUMBER),
    ];
    program.extend(tree(&ranges(table, unknown), unknown));
    Ok(program)
}

/// The first number of each range with one action, in order, from 0 on.
fn ranges(table: &BTreeMap<u32, Action>, unknown: u16) -> Vec<(u32, Action)> {
    let mut ranges = vec![(0, Action::Fail(unknown))];
    let mut push = |from: u32, action: Action| {
        // Replaces a range that is empty, and continues one of the same action.
        if ranges.last().is_some_and(|(start, _)| *start == from) {
            ranges.pop();
        }
        if ranges.last().is_none_or(|(_, last)| *last != action) {
            ranges.push((from, action));
        }
    };
    for (number, action) in table {
        push(*number, action.clone());
        push(number.saturating_add(1), Action::Fail(unknown));
    }
    ranges
}

fn tree(ranges: &[(u32, Action)], unknown: u16) -> BpfProgram {
    let [.., _, _] = ranges else {
        return ranges.first().map_or_else(Vec::new, |(_, action)| leaf(action, unknown));
    };
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let (below, above) = (tree(low, unknown), tree(high, unknown));
    let middle = high[0].0;
    let mut program = match u8::try_from(below.len()) {
        Ok(skipped) => vec![branch(JUMP_GREATER_OR_EQUAL, middle, skipped, 0)],
        // A conditional jump reaches 255 instructions.
        Err(_) => vec![branch(JUMP_GREATER_OR_EQUAL, middle, 0, 1), jump(below.len())],
    };
    program.extend(below);
    program.extend(above);
    program
}

fn leaf(action: &Action, unknown: u16) -> BpfProgram {
    let fail = |errno: u16| returned(SeccompAction::Errno(errno.into()));
    match action {
        Action::Allow => vec![returned(SeccompAction::Allow)],
        Action::Fail(errno) => vec![fail(*errno)],
        Action::If(rules) => {
            let mut program: BpfProgram = rules.iter().flat_map(|rule| allowing(rule)).collect();
            program.push(fail(unknown));
            program
        }
    }
}

/// Returns from the program if all tests hold; else continues behind its end.
fn allowing(rule: &[Test]) -> BpfProgram {
    let allow = vec![returned(SeccompAction::Allow)];
    rule.iter().rev().fold(allow, |behind, test| before(test, behind))
}

/// Continues with `behind` if the test holds; else behind the end of that.
fn before(test: &Test, behind: BpfProgram) -> BpfProgram {
    match *test {
        Test::Low { at, mask: u32::MAX, value } => {
            with([statement(LOAD, argument(at))], unless(JUMP_EQUAL, value, behind))
        }
        Test::Low { at, mask, value } => {
            with([statement(LOAD, argument(at)), statement(AND, mask)], unless(JUMP_EQUAL, value, behind))
        }
        Test::Between { at, first, last } => {
            // A number that is less than `first` jumps to the same instruction as one above `last`.
            let behind = when(JUMP_GREATER, last, behind);
            with([statement(LOAD, argument(at))], unless(JUMP_GREATER_OR_EQUAL, first, behind))
        }
        Test::Zero { at } => {
            let behind = with([statement(LOAD, argument(at) + 4)], unless(JUMP_EQUAL, 0, behind));
            with([statement(LOAD, argument(at))], unless(JUMP_EQUAL, 0, behind))
        }
        Test::Outside(ref ranges) => outside(ranges, behind),
    }
}

/// Continues with `behind` if argument 0 and its length, argument 1, lie outside of the ranges; else behind the
/// end of that. Compares 64 bits by halves.
fn outside(ranges: &[Range<u64>], behind: BpfProgram) -> BpfProgram {
    let (low, high) = (|number: u64| number as u32, |number: u64| (number >> 32) as u32);
    let (start, length) = (argument(0), argument(1));
    let compared = ranges.iter().rev().fold(Vec::new(), |next: BpfProgram, range| {
        // Instructions to the first of `behind`, and to the first after it, from the end of this range's.
        let (to_behind, to_failure) = (next.len(), next.len() + behind.len());
        let mut program = vec![
            // Ends at or before this range's start: also before all later ones.
            statement(LOAD_SCRATCH, END_HIGH),
            branch(JUMP_GREATER, high(range.start), 4, 0),
            branch(JUMP_EQUAL, high(range.start), 0, 2),
            statement(LOAD_SCRATCH, END_LOW),
            branch(JUMP_GREATER, low(range.start), 1, 0),
            jump(to_behind + 6),
            // Starts at or after this range's end: the next one is compared.
            statement(LOAD, start + 4),
            branch(JUMP_GREATER, high(range.end), 4, 0),
            branch(JUMP_EQUAL, high(range.end), 0, 2),
            statement(LOAD, start),
            branch(JUMP_GREATER_OR_EQUAL, low(range.end), 1, 0),
            jump(to_failure),
        ];
        program.extend(next);
        program
    });
    let end = [
        statement(LOAD, length),
        statement(TO_X, 0),
        statement(LOAD, start),
        statement(ADD_X, 0),
        statement(STORE_SCRATCH, END_LOW),
        // The sum is less than one of its terms if it overflowed.
        statement(LOAD, start),
        statement(TO_X, 0),
        statement(LOAD_SCRATCH, END_LOW),
        branch(JUMP_GREATER_OR_EQUAL_X, 0, 3, 0),
        statement(LOAD, length + 4),
        statement(ADD, 1),
        jump(1),
        statement(LOAD, length + 4),
        statement(TO_X, 0),
        statement(LOAD, start + 4),
        statement(ADD_X, 0),
        statement(STORE_SCRATCH, END_HIGH),
    ];
    let behind = with(end, with(compared, behind));
    // No address of a process has the highest bit. Without it the end does not overflow.
    let behind = with([statement(LOAD, length + 4)], when(JUMP_GREATER_OR_EQUAL, 1 << 31, behind));
    with([statement(LOAD, start + 4)], when(JUMP_GREATER_OR_EQUAL, 1 << 31, behind))
}

fn with(first: impl IntoIterator<Item = sock_filter>, behind: BpfProgram) -> BpfProgram {
    first.into_iter().chain(behind).collect()
}

/// Continues with `behind` if the comparison holds; else behind its end.
fn unless(comparison: u16, k: u32, behind: BpfProgram) -> BpfProgram {
    match u8::try_from(behind.len()) {
        Ok(skipped) => with([branch(comparison, k, 0, skipped)], behind),
        // A conditional jump reaches 255 instructions.
        Err(_) => with([branch(comparison, k, 1, 0), jump(behind.len())], behind),
    }
}

/// Continues behind the end of `behind` if the comparison holds; else with it.
fn when(comparison: u16, k: u32, behind: BpfProgram) -> BpfProgram {
    match u8::try_from(behind.len()) {
        Ok(skipped) => with([branch(comparison, k, skipped, 0)], behind),
        Err(_) => with([branch(comparison, k, 0, 1), jump(behind.len())], behind),
    }
}

fn jump(skipped: usize) -> sock_filter {
    statement(JUMP, u32::try_from(skipped).unwrap_or(u32::MAX))
}

/// The offset of the low half of an argument; all supported architectures are little-endian.
fn argument(at: u8) -> u32 {
    ARGUMENTS + 8 * u32::from(at)
}

fn statement(code: u16, k: u32) -> sock_filter {
    branch(code, k, 0, 0)
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn returned(action: SeccompAction) -> sock_filter {
    statement(RETURN, action.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};

    use super::*;

    const EPERM: u16 = 1;

    /// A system call as the kernel shows it to a filter.
    struct Call {
        architecture: u32,
        number: u32,
        arguments: [u64; 6],
    }

    impl Call {
        fn word(&self, offset: u32) -> u32 {
            match offset {
                NUMBER => self.number,
                ARCHITECTURE => self.architecture,
                _ => {
                    let at = offset - ARGUMENTS;
                    (self.arguments[at as usize / 8] >> (8 * (at % 8))) as u32
                }
            }
        }
    }

    /// Interprets the instructions that occur in filters, as kernel/bpf/core.c does.
    fn run(program: &[sock_filter], call: &Call) -> u32 {
        let (mut at, mut accumulator, mut index) = (0, 0_u32, 0_u32);
        let mut scratch = [None; 16];
        loop {
            let one = &program[at];
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { one.jt } else { one.jf });
            match one.code {
                LOAD => accumulator = call.word(one.k),
                LOAD_SCRATCH => accumulator = scratch[one.k as usize].expect("it was stored before"),
                STORE_SCRATCH => scratch[one.k as usize] = Some(accumulator),
                TO_X => index = accumulator,
                ADD => accumulator = accumulator.wrapping_add(one.k),
                ADD_X => accumulator = accumulator.wrapping_add(index),
                AND => accumulator &= one.k,
                JUMP => at += one.k as usize,
                JUMP_EQUAL => jump(accumulator == one.k),
                JUMP_GREATER => jump(accumulator > one.k),
                JUMP_GREATER_OR_EQUAL => jump(accumulator >= one.k),
                JUMP_GREATER_OR_EQUAL_X => jump(accumulator >= index),
                RETURN => return one.k,
                other => panic!("no instruction of filters: {other:#x}"),
            }
        }
    }

    /// The same table, compiled to comparisons in sequence by another compiler.
    fn in_sequence(table: &BTreeMap<u32, Action>) -> BpfProgram {
        let condition = |at, length, op, value| SeccompCondition::new(at, length, op, value).unwrap();
        let conditions = |test: &Test| match *test {
            Test::Low { at, mask, value } => {
                let masked = SeccompCmpOp::MaskedEq(mask.into());
                vec![condition(at, SeccompCmpArgLen::Dword, masked, value.into())]
            }
            Test::Between { at, first, last } => vec![
                condition(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Ge, first.into()),
                condition(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Le, last.into()),
            ],
            Test::Zero { at } => vec![condition(at, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)],
            Test::Outside(_) => panic!("it has no such comparison"),
        };
        let rule = |rule: &Rule| SeccompRule::new(rule.iter().flat_map(conditions).collect()).unwrap();
        let rules = table.iter().filter_map(|(number, action)| match action {
            Action::Allow => Some((i64::from(*number), Vec::new())),
            Action::If(rules) => Some((i64::from(*number), rules.iter().map(rule).collect())),
            Action::Fail(_) => None,
        });
        let deny = SeccompAction::Errno(EPERM.into());
        let filter =
            SeccompFilter::new(rules.collect(), deny, SeccompAction::Allow, TargetArch::x86_64).unwrap();
        filter.try_into().unwrap()
    }

    fn tests() -> impl Strategy<Value = Test> {
        prop_oneof![
            (0..6u8, prop::sample::select(vec![u32::MAX, 1, 3, 0x243]), 0..4u32)
                .prop_map(|(at, mask, value)| Test::Low { at, mask, value: value & mask }),
            (0..6u8, 0..4u32, 0..4u32).prop_map(|(at, first, last)| Test::Between { at, first, last }),
            (0..6u8).prop_map(|at| Test::Zero { at }),
        ]
    }

    fn actions() -> impl Strategy<Value = Action> {
        prop_oneof![
            3 => Just(Action::Allow),
            1 => prop::collection::vec(prop::collection::vec(tests(), 1..4), 1..20).prop_map(Action::If),
        ]
    }

    /// Numbers at the borders of halves of 64 bits, and near them.
    fn addresses() -> impl Strategy<Value = u64> {
        let highs = prop::sample::select(vec![0, 1, 2, 0x7fff_ffff, 0x8000_0000, u64::from(u32::MAX)]);
        let lows = prop::sample::select(vec![0, 1, 2, 0x7fff_ffff, 0xffff_fffe, u64::from(u32::MAX)]);
        (highs, lows).prop_map(|(high, low)| high << 32 | low)
    }

    proptest! {
        #[test]
        fn ranges_are_compared_in_64_bits(
            mut bounds in prop::collection::btree_set(addresses(), 0..40),
            start in addresses(),
            length in addresses(),
            fixed in 0..2u64,
        ) {
            if bounds.len() % 2 == 1 {
                bounds.pop_last();
            }
            let bounds: Vec<u64> = bounds.into_iter().filter(|one| one >> 63 == 0).collect();
            let ranges: Box<[Range<u64>]> =
                bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let is_outside = start >> 63 == 0
                && length >> 63 == 0
                && ranges.iter().all(|range| start >= range.end || start + length <= range.start);
            let not_fixed = Test::Low { at: 3, mask: 1, value: 0 };
            let rules = vec![vec![not_fixed], vec![Test::Outside(ranges)]];
            let table = [(9, Action::If(rules)), (11, Action::Allow)].into();
            let program = compile(TargetArch::x86_64, &table, EPERM).unwrap();
            let arguments = [start, length, 0, fixed, 0, 0];
            let expected = if fixed == 0 || is_outside {
                SeccompAction::Allow
            } else {
                SeccompAction::Errno(EPERM.into())
            };
            let answer = run(&program, &Call { architecture: AUDIT_X86_64, number: 9, arguments });
            prop_assert_eq!(answer, u32::from(expected));
        }

        #[test]
        fn the_tree_answers_as_comparisons_in_sequence_do(
            table in prop::collection::btree_map(0..470u32, actions(), 0..80),
            arguments in prop::array::uniform6(prop::sample::select(vec![0, 1, 2, 3, 1 << 32, u64::MAX])),
        ) {
            let tree = compile(TargetArch::x86_64, &table, EPERM).unwrap();
            let sequence = in_sequence(&table);
            for number in (0..480).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
                let call = Call { architecture: AUDIT_X86_64, number, arguments };
                prop_assert_eq!(run(&tree, &call), run(&sequence, &call), "system call {}", number);
            }
            let foreign = Call { architecture: 0x4000_0003, number: 0, arguments };
            prop_assert_eq!(run(&tree, &foreign), run(&sequence, &foreign));
        }
    }

    #[test]
    fn a_call_can_fail_with_an_errno_of_its_own() {
        let table = [(3, Action::Allow), (4, Action::Fail(38)), (5, Action::Allow)].into();
        let program = compile(TargetArch::x86_64, &table, EPERM).unwrap();
        let answers = [2, 3, 4, 5, 6]
            .map(|number| run(&program, &Call { architecture: AUDIT_X86_64, number, arguments: [0; 6] }));
        let errno = |errno| u32::from(SeccompAction::Errno(errno));
        let allow = u32::from(SeccompAction::Allow);
        assert_eq!(answers, [errno(1), allow, errno(38), allow, errno(1)]);
    }
}

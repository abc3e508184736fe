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

use seccompiler::{BackendError, BpfProgram, SeccompAction, TargetArch, sock_filter};

// Instructions. Source: include/uapi/linux/bpf_common.h, v6.18.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

// Offsets in `struct seccomp_data`. Source: include/uapi/linux/seccomp.h, v6.18.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

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
    /// Allowed if one of the tests holds, else as an unknown call.
    If(Vec<Test>),
}

/// A test of one argument, whose positions count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// The low 32 bits, masked, have this value.
    Low { at: u8, mask: u32, value: u32 },
    /// All 64 bits are zero.
    Zero { at: u8 },
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
        Err(_) => vec![
            branch(JUMP_GREATER_OR_EQUAL, middle, 0, 1),
            statement(JUMP, u32::try_from(below.len()).unwrap_or(u32::MAX)),
        ],
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
        Action::If(tests) => {
            let mut program: BpfProgram = tests.iter().flat_map(test).collect();
            program.push(fail(unknown));
            program
        }
    }
}

/// Returns from the program if the test holds; else continues behind its end.
fn test(test: &Test) -> BpfProgram {
    let allow = returned(SeccompAction::Allow);
    match *test {
        Test::Low { at, mask: u32::MAX, value } => {
            vec![statement(LOAD, argument(at)), branch(JUMP_EQUAL, value, 0, 1), allow]
        }
        Test::Low { at, mask, value } => {
            vec![statement(LOAD, argument(at)), statement(AND, mask), branch(JUMP_EQUAL, value, 0, 1), allow]
        }
        Test::Zero { at } => vec![
            statement(LOAD, argument(at)),
            branch(JUMP_EQUAL, 0, 0, 3),
            statement(LOAD, argument(at) + 4),
            branch(JUMP_EQUAL, 0, 0, 1),
            allow,
        ],
    }
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
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let one = &program[at];
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { one.jt } else { one.jf });
            match one.code {
                LOAD => accumulator = call.word(one.k),
                AND => accumulator &= one.k,
                JUMP => at += one.k as usize,
                JUMP_EQUAL => jump(accumulator == one.k),
                JUMP_GREATER_OR_EQUAL => jump(accumulator >= one.k),
                RETURN => return one.k,
                other => panic!("no instruction of filters: {other:#x}"),
            }
        }
    }

    /// The same table, compiled to comparisons in sequence by another compiler.
    fn in_sequence(table: &BTreeMap<u32, Action>) -> BpfProgram {
        let rule = |test: &Test| {
            let condition = |at, length, op, value| SeccompCondition::new(at, length, op, value).unwrap();
            let condition = match *test {
                Test::Low { at, mask, value } => {
                    condition(at, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask.into()), value.into())
                }
                Test::Zero { at } => condition(at, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0),
            };
            SeccompRule::new(vec![condition]).unwrap()
        };
        let rules = table.iter().filter_map(|(number, action)| match action {
            Action::Allow => Some((i64::from(*number), Vec::new())),
            Action::If(tests) => Some((i64::from(*number), tests.iter().map(rule).collect())),
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
            (0..6u8).prop_map(|at| Test::Zero { at }),
        ]
    }

    fn actions() -> impl Strategy<Value = Action> {
        prop_oneof![
            3 => Just(Action::Allow),
            1 => prop::collection::vec(tests(), 1..20).prop_map(Action::If),
        ]
    }

    proptest! {
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

//! The scaled count of a counter, after every pass, compared with 128-bit arithmetic.

use ks_compiler::hir::Hir;
use ks_compiler::index::Id as _;
use ks_compiler::kernel::mir::{Helper, Program};
use ks_compiler_testing::interp::{Answers, Environment, run};

use crate::mir::{stages, tree};

const SCRIPT: &str = include_str!("../scripts/scaling.ks");

/// Count and times of an event, as the kernel reports them.
#[derive(Debug, Clone, Copy)]
struct Event {
    count: u64,
    enabled: u64,
    running: u64,
}

impl Answers for Event {
    fn number(&mut self, _helper: Helper) -> u64 {
        0
    }

    fn bytes(&mut self, _helper: Helper, len: usize) -> Vec<u8> {
        assert_eq!(len, 24, "struct bpf_perf_event_value");
        [self.count, self.enabled, self.running].iter().flat_map(|field| field.to_le_bytes()).collect()
    }
}

fn found(hir: &Hir, program: &Program, mut event: Event) -> i64 {
    let watch = program.functions.iter().find(|one| one.is_program).expect("the script has a program");
    let around = Environment::of(hir, 10);
    let outcome = run(program, watch.id, &[None], &around, &mut event, 100_000);
    let outcome = outcome.unwrap_or_else(|stuck| panic!("{event:?}: {stuck}"));
    let (id, _) =
        hir.globals.iter_enumerated().find(|(_, one)| one.name == "found").expect("the script has it");
    i64::from_le_bytes(outcome.globals[id.index()][..8].try_into().expect("8 bytes"))
}

/// Computes the expected count. Source: the language reference, 10.6 and 11.5.
fn expected(Event { count, enabled, running }: Event) -> i64 {
    if enabled == running {
        return count as i64;
    }
    if running == 0 {
        return -1;
    }
    let scaled = u128::from(count) * u128::from(enabled) / u128::from(running);
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

#[test]
fn counts_are_scaled_exactly() {
    let hir = tree(SCRIPT);
    let mut stages = stages(&hir);
    let (_, last) = stages.pop().expect("there are passes");
    let (_, first) = stages.swap_remove(0);
    let counts = [0, 1, 2, 255, 256, 257, 1_000_000_007, (1 << 55) - 1, 1 << 55, 1 << 62, i64::MAX as u64];
    let times = [0, 1, 2, 3, 5, 255, 1_000_000_000, 1_000_000_007, (1 << 54) + 12_345, (1 << 55) - 1];
    let mut scaled = 0;
    for count in counts {
        for enabled in times {
            for running in times.into_iter().filter(|running| *running <= enabled) {
                let event = Event { count, enabled, running };
                assert_eq!(found(&hir, &first, event), expected(event), "{event:?}");
                assert_eq!(found(&hir, &last, event), expected(event), "after all passes: {event:?}");
                scaled += 1;
            }
        }
    }
    assert!(scaled > 500, "{scaled}");
}

/// For times above 417 days the lowest 9 bits are ignored.
#[test]
fn counts_of_years_are_scaled_nearly() {
    let hir = tree(SCRIPT);
    let (_, program) = stages(&hir).pop().expect("there are passes");
    for (count, enabled, running) in [
        (1_000_000_007, (1_u64 << 55) + 999, (1_u64 << 54) + 77_777),
        (1 << 40, u64::MAX, u64::MAX / 3),
        (3, u64::MAX, 1 << 62),
    ] {
        let event = Event { count, enabled, running };
        let (found, expected) = (found(&hir, &program, event), expected(event));
        assert!(
            found.abs_diff(expected) <= 1 + (expected as u64 >> 40),
            "{event:?}: {found}, not {expected}"
        );
    }
}

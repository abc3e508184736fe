//! Mutated objects: nothing panics, and accepted ones are written and read again unchanged.

use super::super::testing::{Mutator, check};
use super::foreign::OBJECTS;
use super::{File, read};

/// Number of mutants of each object. A larger harness uses more, see [`crate::object::testing`].
const MUTANTS: u64 = 300;

#[test]
fn mutants_are_refused_or_survive_the_round_trip() {
    let mut objects: Vec<Vec<u8>> = OBJECTS.iter().map(|(_, bytes)| bytes.to_vec()).collect();
    #[cfg(feature = "language")]
    objects.extend(super::own::own(crate::kernel::Cpu::V3, 16).into_iter().map(|(_, bytes)| bytes));
    objects.push(File::new().bytes());
    let (mut accepted, mut all) = (0, 0);
    for (number, object) in (0u64..).zip(&objects) {
        assert!(read(object).is_ok(), "object {number} is accepted as it is");
        let mut mutator = Mutator::new(0x6b73_0000 + number);
        for _ in 0..MUTANTS {
            let mutant = mutator.mutate(object).bytes;
            accepted +=
                u64::from(check(&mutant).unwrap_or_else(|reason| panic!("object {number}: {reason}")));
            all += 1;
        }
    }
    // With fewer, the mutations would test only the first check.
    assert!(accepted * 20 > all, "{accepted} of {all} accepted");
}

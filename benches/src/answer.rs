//! The result of a measured loop, in the same form from native code and from a plugin.

use std::time::Duration;

use anyhow::{Result, ensure};

/// The time of a loop, with enough of its results to check that every iteration did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Time of the loop alone, measured with CLOCK_MONOTONIC.
    pub elapsed: Duration,
    /// Iterations with the right result: for a read, a count above that of the iteration before.
    pub right: u64,
    /// Number of members of the group that was read; 0 if none was.
    pub members: u32,
    /// Time for which that group was enabled, in nanoseconds.
    pub time_enabled: u64,
}

impl Answer {
    /// Checks the result of a loop without reads, and returns its time.
    ///
    /// # Errors
    /// If an iteration had a wrong result.
    pub fn check_calls(&self, iterations: u64) -> Result<Duration> {
        ensure!(self.right == iterations, "{} of {iterations} iterations answered correctly", self.right);
        Ok(self.elapsed)
    }

    /// Checks the result of a loop that read a group of this many members, led by a clock, and returns its
    /// time.
    ///
    /// # Errors
    /// If an iteration read no new count, or another group was read.
    pub fn check_reads(&self, iterations: u64, members: u32) -> Result<Duration> {
        ensure!(self.members == members, "the group has {} entries instead of {members}", self.members);
        ensure!(self.time_enabled > 0, "the group was never enabled");
        ensure!(
            self.right == iterations,
            "the clock went on in {} of {iterations} iterations only",
            self.right
        );
        Ok(self.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Answer =
        Answer { elapsed: Duration::from_nanos(900), right: 3, members: 4, time_enabled: 1000 };

    #[test]
    fn every_iteration_must_have_read_the_whole_group() {
        assert_eq!(FOUR.check_reads(3, 4).unwrap(), FOUR.elapsed);
        assert!(FOUR.check_reads(4, 4).is_err(), "an iteration is missing");
        assert!(FOUR.check_reads(3, 5).is_err(), "a member is missing");
        assert!(Answer { time_enabled: 0, ..FOUR }.check_reads(3, 4).is_err(), "it never counted");
        assert!(FOUR.check_calls(3).is_ok());
        assert!(FOUR.check_calls(4).is_err(), "an iteration is missing");
    }
}

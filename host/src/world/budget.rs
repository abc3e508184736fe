//! The budget of BPF run time: the share of CPU time that each program of a plugin may take.
//!
//! The kernel accumulates the run time of programs while BPF_ENABLE_STATS is active. While the plugin waits
//! or computes, the host compares the sums once per second. It detaches a program above its budget
//! permanently.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ks_compiler::object::table::ProgramType;

use super::attached::Held;
use super::audit::Decision;
use super::error::HostError;
use super::state::State;
use crate::bpf::LoadedType;
use crate::bpf::statistics::RunTime;

/// Interval of the checks.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// A share of the time of all CPUs that this process may use, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u64);

impl Share {
    /// Computes the share of `run_time_ns` in the elapsed time of this number of CPUs.
    fn of(run_time_ns: u64, elapsed: Duration, cpus: u64) -> Share {
        let whole = elapsed.as_nanos().saturating_mul(u128::from(cpus)).max(1);
        let millionths = u128::from(run_time_ns).saturating_mul(1_000_000) / whole;
        Share(u64::try_from(millionths).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.0 % 10_000);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}%", self.0 / 10_000),
            decimals => write!(f, "{}.{decimals}%", self.0 / 10_000),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    /// Parses `1%`, `0.5%`.
    fn from_str(text: &str) -> Result<Share, String> {
        let wrong = || "not a share such as 1% or 0.5%, from 0.0001% to 100%".to_owned();
        let number = text.strip_suffix('%').ok_or_else(wrong)?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 4 {
            return Err(wrong());
        }
        let millionths: u64 = format!("{whole}{decimals:0<4}").parse().map_err(|_| wrong())?;
        if (1..=1_000_000).contains(&millionths) { Ok(Share(millionths)) } else { Err(wrong()) }
    }
}

/// The budget of each program, and the run times at the last check.
pub(super) struct Budget {
    most: Share,
    cpus: u64,
    looked: Instant,
    times_ns: BTreeMap<String, u64>,
    over: BTreeMap<String, LoadedType>,
}

impl Budget {
    /// Starts with no run time.
    pub(super) fn new(most: Share) -> Budget {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        Budget { most, cpus, looked: Instant::now(), times_ns: BTreeMap::new(), over: BTreeMap::new() }
    }

    /// Returns the time of the next check.
    fn due(&self) -> Instant {
        self.looked + PERIOD
    }

    /// Returns the programs that newly exceeded the budget since the last check, with their shares.
    fn exceeded(&mut self, now: Instant, times: &[RunTime]) -> Vec<(String, LoadedType, Share)> {
        let elapsed = now - self.looked;
        self.looked = now;
        let mut exceeded = Vec::new();
        for RunTime { program, kind, nanoseconds } in times {
            let before = self.times_ns.insert(program.clone(), *nanoseconds).unwrap_or(0);
            let share = Share::of(nanoseconds.saturating_sub(before), elapsed, self.cpus);
            if share > self.most && self.over.insert(program.clone(), *kind).is_none() {
                exceeded.push((program.clone(), *kind, share));
            }
        }
        exceeded
    }
}

impl State {
    /// Returns the earlier of the deadline and the next check.
    pub(super) fn until_look(&self, deadline: Option<Instant>) -> Option<Instant> {
        let due = self.budget.as_ref().map(Budget::due);
        deadline.into_iter().chain(due).min()
    }

    /// Checks the run times if a check is due, and detaches programs above the budget.
    ///
    /// # Errors
    /// A trap if the audit log cannot be written.
    pub(super) fn look_at_budget(&mut self) -> wasmtime::Result<()> {
        let now = Instant::now();
        if self.budget.as_ref().is_none_or(|budget| now < budget.due()) {
            return Ok(());
        }
        let times = self.run_times();
        let Some(budget) = &mut self.budget else { return Ok(()) };
        let (most, exceeded) = (budget.most, budget.exceeded(now, &times));
        for (program, kind, share) in exceeded {
            let mut held = self.attached.remove_program(&program);
            if kind == LoadedType::Known(ProgramType::StructOps) {
                held.extend(self.attached.remove_registered());
            }
            held.into_iter().for_each(|held: Held| self.release(held));
            self.output.report(&format!(
                "program `{program}` took {share} of the CPUs' time, and is detached: --max-bpf-share {most} \
                 is the budget of each program"
            ));
            self.note("over-budget", &program, None, Decision::Denied, Some(share.to_string()))?;
        }
        Ok(())
    }

    /// Checks whether a program may be attached or run.
    ///
    /// # Errors
    /// `limit` if it has exceeded the budget before.
    pub(super) fn within_budget(&self, program: &str) -> Result<(), HostError> {
        self.none_over(|over, _| over == program)
    }

    /// Checks whether structs may be registered. Which program is a member of which struct is not known here.
    ///
    /// # Errors
    /// `limit` if any struct_ops program has exceeded the budget before.
    pub(super) fn structs_within_budget(&self) -> Result<(), HostError> {
        self.none_over(|_, kind| kind == LoadedType::Known(ProgramType::StructOps))
    }

    fn none_over(&self, asked: impl Fn(&str, LoadedType) -> bool) -> Result<(), HostError> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let Some(program) = budget.over.iter().find(|(name, kind)| asked(name, **kind)).map(|(name, _)| name)
        else {
            return Ok(());
        };
        Err(HostError::over_limit(format!(
            "program `{program}` took more of the CPUs' time than it may\n  do: --max-bpf-share above {} \
             allows more",
            budget.most
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parsed_and_displayed() {
        for text in ["1%", "0.5%", "100%", "0.0001%", "12.25%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for text in ["1", "%", "0%", "-1%", "101%", "0.00001%", "1.%", "1e1%", "18446744073709551616%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_of_all_cpus_and_of_the_time_since_the_last_look() {
        let mut budget = Budget { cpus: 4, ..Budget::new("1%".parse().unwrap()) };
        let time = |nanoseconds| {
            [RunTime { program: "p".into(), kind: LoadedType::Known(ProgramType::PerfEvent), nanoseconds }]
        };
        // One percent of four CPUs for two seconds is 80 ms.
        let start = budget.looked;
        assert!(budget.exceeded(start + Duration::from_secs(2), &time(80_000_000)).is_empty());
        let above = budget.exceeded(start + Duration::from_secs(4), &time(160_100_000));
        assert_eq!(above, [("p".to_owned(), LoadedType::Known(ProgramType::PerfEvent), Share(10_012))]);
        // Reported once.
        assert!(budget.exceeded(start + Duration::from_secs(6), &time(1_000_000_000)).is_empty());
        assert!(budget.over.contains_key("p"));
    }
}

//! Limits on the host's memory and CPU time for a plugin, and the message when one is reached.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use wasmtime::ResourceLimiter;

use super::outcome::{Abort, Outcome};
use crate::policy::{Limit, Policy};

/// Limits on a plugin that the engine enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all linear memories together. Guards against `memory.grow` without end, in any number of
    /// memories.
    pub memory_bytes: usize,
    /// Elements of all tables together. A table element costs the host a pointer, a Wasm page costs the guest
    /// nothing.
    pub table_elements: usize,
    /// Number of core instances, memories and tables, each.
    pub instances: usize,
    /// Bytes of arguments that one host call may copy out of the guest.
    pub call_bytes: usize,
    /// CPU time between two host calls. Guards against a loop that makes no host call, and so never learns
    /// that it should stop.
    pub compute: Duration,
}

impl Limits {
    /// Takes the limits of a policy.
    pub fn of(policy: &Policy) -> Limits {
        let size = |limit| usize::try_from(policy.limit(limit)).unwrap_or(usize::MAX);
        Limits {
            memory_bytes: size(Limit::MemoryBytes),
            table_elements: size(Limit::TableElements),
            instances: size(Limit::Instances),
            call_bytes: size(Limit::CallBytes),
            compute: Duration::from_millis(policy.limit(Limit::ComputeMs)),
        }
    }

    /// Interval at which the plugin must be made to check its CPU time.
    pub fn tick(&self) -> Duration {
        (self.compute / 4).max(Duration::from_millis(1))
    }
}

/// Decides about growth for the engine, and records totals and the refused limit.
///
/// Totals never shrink: memories and tables do not shrink, and live as long as the plugin.
#[derive(Debug)]
pub struct Limiter {
    limits: Limits,
    memory_bytes: usize,
    table_elements: usize,
    refused: Option<Limit>,
}

impl Limiter {
    /// Creates a limiter for a plugin without any memory or table.
    pub fn new(limits: Limits) -> Limiter {
        Limiter { limits, memory_bytes: 0, table_elements: 0, refused: None }
    }

    /// Adds the limit that caused an outcome, if one did: `memory.grow` returns -1, and the guest alone
    /// decides whether it gives up then.
    pub(super) fn with_limit(&self, outcome: Outcome) -> Outcome {
        let Outcome::Trapped(reason) = outcome else { return outcome };
        let Some(limit) = self.refused.or_else(|| limit_of_reason(&reason)) else {
            return Outcome::Trapped(reason);
        };
        let number = match limit {
            Limit::MemoryBytes => self.limits.memory_bytes,
            Limit::TableElements => self.limits.table_elements,
            Limit::Instances => self.limits.instances,
            _ => self.limits.call_bytes,
        };
        Outcome::Trapped(format!("{reason}\n  because: {}", limit.reached(number as u64)))
    }

    fn decide(&mut self, limit: Limit, growth: Growth) -> wasmtime::Result<bool> {
        let (given, most) = match limit {
            Limit::TableElements => (&mut self.table_elements, self.limits.table_elements),
            _ => (&mut self.memory_bytes, self.limits.memory_bytes),
        };
        // The engine itself refuses growth beyond the declared maximum, so it does not count.
        if growth.maximum.is_some_and(|maximum| growth.desired > maximum) {
            return Ok(false);
        }
        let sum = given.checked_add(growth.desired.saturating_sub(growth.current)).filter(|sum| *sum <= most);
        match sum {
            Some(sum) => *given = sum,
            None => self.refused = Some(limit),
        }
        Ok(sum.is_some())
    }
}

/// A requested growth of a memory or table, and its declared maximum.
struct Growth {
    current: usize,
    desired: usize,
    maximum: Option<usize>,
}

/// Recognises limits that the engine itself enforces, by the text of the error: they have no type of their
/// own there (wasmtime 48: `StoreOpaque::bump_resource_counts`, `HostcallFuelExhausted`).
fn limit_of_reason(reason: &str) -> Option<Limit> {
    let known = [
        ("resource limit exceeded", Limit::Instances),
        ("fuel allocated for hostcalls has been exhausted", Limit::CallBytes),
    ];
    known.into_iter().find(|(part, _)| reason.contains(part)).map(|(_, limit)| limit)
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.decide(Limit::MemoryBytes, Growth { current, desired, maximum })
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.decide(Limit::TableElements, Growth { current, desired, maximum })
    }

    fn instances(&self) -> usize {
        self.limits.instances
    }

    fn tables(&self) -> usize {
        self.limits.instances
    }

    fn memories(&self) -> usize {
        self.limits.instances
    }
}

/// CPU time that the calling thread has spent in the guest since its last host call.
///
/// The guest checks whenever the epoch has advanced. It does not during a host call, which was counted when
/// it began: so a wait, however long, does not count as computing. The clock is that of the thread: time in
/// which the machine runs other threads, or in which the host is stopped, does not count.
#[derive(Debug)]
pub(super) struct Computing {
    limit: Duration,
    calls: u64,
    since: Option<Duration>,
}

impl Computing {
    pub(super) fn new(limit: Duration) -> Computing {
        Computing { limit, calls: 0, since: None }
    }

    /// Checks the clock; `calls` is the number of host calls so far.
    ///
    /// # Errors
    /// [`Abort`] with a message, if the limit is exceeded.
    pub(super) fn look(&mut self, calls: u64) -> wasmtime::Result<()> {
        let now = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?);
        match self.since {
            Some(since) if self.calls == calls => {
                if now.saturating_sub(since) >= self.limit {
                    let number = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
                    return Err(wasmtime::Error::new(Abort(format!(
                        "it computes without calling the host: {}",
                        Limit::ComputeMs.reached(number)
                    ))));
                }
            }
            _ => (self.calls, self.since) = (calls, Some(now)),
        }
        Ok(())
    }
}

//! What a plugin may take of the host's memory and of a CPU, and what a person is told when it wants more.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use wasmtime::ResourceLimiter;

use super::outcome::{Abort, Outcome};
use crate::policy::{Limit, Policy};

/// What a plugin may take of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all linear memories. Guards against `memory.grow` without end, in however many memories.
    pub memory_bytes: usize,
    /// Elements of all tables. A table element costs the host a pointer, a Wasm page costs the guest nothing.
    pub table_elements: usize,
    /// Core instances, memories and tables each.
    pub instances: usize,
    /// Bytes of arguments that one host call may copy out of the guest.
    pub call_bytes: usize,
    /// Time on a CPU between two calls of the host. Guards against a loop that asks nothing, not even whether it
    /// should stop.
    pub compute: Duration,
}

impl Limits {
    /// Those of a policy.
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

    /// How often somebody must make the plugin look how long it computes.
    pub fn tick(&self) -> Duration {
        (self.compute / 4).max(Duration::from_millis(1))
    }
}

/// Answers the engine when a plugin wants more, and remembers what it has and what was refused.
///
/// What was given is never given back: memories and tables do not shrink, and live as long as the plugin.
#[derive(Debug)]
pub struct Limiter {
    limits: Limits,
    memory_bytes: usize,
    table_elements: usize,
    refused: Option<Limit>,
}

impl Limiter {
    /// With nothing given or refused yet.
    pub fn new(limits: Limits) -> Limiter {
        Limiter { limits, memory_bytes: 0, table_elements: 0, refused: None }
    }

    /// The outcome, with the limit that led to it if one did: `memory.grow` answers -1, and only the guest knows why it
    /// gave up then.
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
        // The engine refuses by itself what is more than the plugin declares: nothing is given for it.
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

/// A memory or table that wants to grow, and the most that it declares.
struct Growth {
    current: usize,
    desired: usize,
    maximum: Option<usize>,
}

/// The limits that the engine itself watches, which have no type of their own there (wasmtime 48:
/// `StoreOpaque::bump_resource_counts`, `HostcallFuelExhausted`).
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

/// How long the calling thread has been in the guest since it last called the host.
///
/// The guest looks whenever the epoch has advanced. While it is in a host call it does not, and the call is counted
/// before: so a wait, however long, is no computing. The clock is that of the thread: a machine that is busy with
/// others, or a host that was stopped, costs the plugin nothing.
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

    /// Looks at the clock, after so many calls of the host.
    ///
    /// # Errors
    /// [`Abort`], with the words for a person, if it has been too long.
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

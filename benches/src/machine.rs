//! The origin of the figures: the machine, and the CPUs that a bench uses.

use std::fmt;
use std::fs;
use std::thread;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::baseline;

/// Pins the calling thread to one CPU.
///
/// # Errors
/// If the thread may not run on that CPU.
pub fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on CPU {cpu} alone"))
}

/// Returns how many of these CPUs, from the first on, the calling thread may run on.
///
/// # Errors
/// If the kernel does not report the affinity.
pub fn usable(cpus: &[usize]) -> Result<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot ask which CPUs may be used")?;
    Ok(cpus.iter().take_while(|cpu| allowed.is_set(**cpu).unwrap_or(false)).count())
}

/// The machine that produced a report.
#[derive(Debug, Clone)]
pub struct Machine {
    arch: &'static str,
    cpu: Option<String>,
    kernel: String,
    cpus: String,
    pmu: String,
}

impl Machine {
    /// Describes this machine. Properties that cannot be read are `unknown`.
    pub fn here() -> Machine {
        let unknown = || "unknown".to_owned();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease");
        let pmu = match baseline::perf::has_hardware_counters() {
            Ok(true) => "yes".to_owned(),
            Ok(false) => "no".to_owned(),
            Err(reason) => format!("unknown ({reason})"),
        };
        Machine {
            arch: std::env::consts::ARCH,
            cpu: cpu_model(),
            kernel: release.map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            cpus: thread::available_parallelism().map_or_else(|_| unknown(), |count| count.to_string()),
            pmu,
        }
    }
}

/// Returns the first CPU's model name, where the kernel reports one (not on aarch64).
fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { arch, cpu, kernel, cpus, pmu } = self;
        write!(f, "{arch}")?;
        if let Some(cpu) = cpu {
            write!(f, " ({cpu})")?;
        }
        write!(f, ", Linux {kernel}, CPUs: {cpus}, hardware PMU: {pmu}")
    }
}

//! Resolves options to the tasks and CPUs on which kernel events are opened.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;
use nix::unistd::gettid;

use super::attr::Options;
use super::descriptors::DescriptorCount;
use super::error::Refusal;
use super::event::Event;
use super::pmu::Sysfs;
use crate::{files, opener, procfs};

/// The properties that all events of a group share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The pid as it was given.
    pid: i32,
    /// The thread id that `pid` refers to: itself, or the calling thread for 0.
    task: i32,
    cpu: i32,
    every_cpu: bool,
    process: String,
    command: bool,
    cgroup: String,
    follow: bool,
    inherit: bool,
}

impl Target {
    pub(super) fn of(options: &Options) -> Target {
        let Options { pid, cpu, every_cpu, command, follow, inherit, .. } = *options;
        Target {
            pid,
            task: if pid == 0 { gettid().as_raw() } else { pid },
            cpu: if every_cpu { -1 } else { cpu },
            every_cpu,
            process: options.process.clone(),
            command,
            cgroup: options.cgroup.clone(),
            follow,
            inherit,
        }
    }

    /// Rejects members that the kernel would refuse with a bare EINVAL, and targets that look alike but
    /// differ.
    pub(super) fn check_member(&self, member: &Target) -> Result<(), Refusal> {
        if self.task != member.task {
            Err(Refusal::OtherPid { leader: self.pid, member: member.pid })
        } else if self.every_cpu != member.every_cpu {
            Err(Refusal::OtherTarget("cpu: all"))
        } else if self.cpu != member.cpu {
            Err(Refusal::OtherCpu { leader: self.cpu, member: member.cpu })
        } else if self.inherit != member.inherit {
            Err(Refusal::OtherInherit { leader: self.inherit, member: member.inherit })
        } else if self.process != member.process {
            Err(Refusal::OtherTarget("process"))
        } else if self.command != member.command {
            Err(Refusal::OtherTarget("command"))
        } else if self.cgroup != member.cgroup {
            Err(Refusal::OtherTarget("cgroup"))
        } else if self.follow != member.follow {
            Err(Refusal::OtherTarget("follow"))
        } else {
            Ok(())
        }
    }
}

/// The location of one kernel event: a CPU and a task.
#[derive(Debug, Clone)]
pub(super) struct CpuAndTask {
    /// The task; -1 is every task, or every task of the cgroup.
    pub(super) task: i32,
    /// The CPU; -1 is any CPU.
    pub(super) cpu: i32,
    /// For a task on any CPU: the PMU of the kind of core that counts it, if there are several kinds.
    pub(super) core: Option<String>,
    /// Index into the instructions that the event probes; 0 for other events.
    pub(super) point: usize,
    /// The directory of the control group.
    pub(super) cgroup: Option<Arc<OwnedFd>>,
}

impl CpuAndTask {
    /// Returns the `pid` argument of `perf_event_open(2)`, which is a descriptor for a control group.
    pub(super) fn pid(&self) -> i32 {
        self.cgroup.as_ref().map_or(self.task, |folder| folder.as_raw_fd())
    }
}

/// The state besides the options that locations depend on.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    pub(super) sysfs: Sysfs,
    /// The command that the host starts.
    pub(super) command: Option<i32>,
    /// The task that pid 0 is; none for the calling thread.
    pub(super) own_task: Option<i32>,
    /// The descriptors that events hold open.
    pub(super) descriptors: DescriptorCount,
}

impl Surroundings {
    /// Returns the options with the task that pid 0 is.
    pub(super) fn of_own_task(&self, options: Options) -> Options {
        match self.own_task {
            Some(pid) if options.pid == 0 => Options { pid, ..options },
            _ => options,
        }
    }
}

/// Checks options without asking the kernel, in the order that the language guarantees.
pub(super) fn check(event: &Event, options: &Options) -> Result<(), Refusal> {
    let Options { pid, cpu, every_cpu, .. } = *options;
    if pid < -1 {
        return Err(Refusal::Pid(pid));
    }
    if cpu < -1 && !every_cpu {
        return Err(Refusal::Cpu(cpu));
    }
    let given = [
        (pid != -1, "pid"),
        (!options.process.is_empty(), "process"),
        (options.command, "command"),
        (!options.cgroup.is_empty(), "cgroup"),
    ];
    let mut given = given.iter().filter(|(given, _)| *given).map(|(_, name)| *name);
    let task = given.next();
    if let (Some(first), Some(second)) = (task, given.next()) {
        return Err(Refusal::TwoTasks { first, second });
    }
    let any_cpu = cpu == -1 && !every_cpu;
    match task {
        None if options.follow => return Err(Refusal::FollowWithoutTask),
        Some("cgroup") if options.follow => return Err(Refusal::FollowWithoutTask),
        None if any_cpu => return Err(Refusal::EveryTaskOnEveryCpu),
        Some("cgroup") if any_cpu => return Err(Refusal::CgroupNeedsCpu),
        _ => {}
    }
    if (options.inherit || options.follow) && event.is_probe() {
        return Err(Refusal::ProbeInherited);
    }
    if options.exclude_kernel && event.is_in_kernel_only() {
        return Err(Refusal::InKernelOnly);
    }
    if options.exclude_host && !event.is_counted_by_hardware() {
        return Err(Refusal::InHostOnly);
    }
    if options.precise > 3 {
        return Err(Refusal::Precise(options.precise));
    }
    Ok(())
}

/// Returns every location that the options select now: tasks times CPUs, at least one.
pub(super) fn locations(
    event: &Event,
    options: &Options,
    surroundings: &Surroundings,
) -> Result<Vec<CpuAndTask>, Refusal> {
    let cpus = cpus(event, options, &surroundings.sysfs)?;
    let cgroup = match options.cgroup.as_str() {
        "" => None,
        path => Some(Arc::new(cgroup(path)?)),
    };
    let lists = options.follow || !options.process.is_empty();
    if lists && !procfs::is_own() {
        return Err(Refusal::OtherProcfs);
    }
    let mut tasks = match options {
        Options { command: true, .. } => vec![surroundings.command.ok_or(Refusal::NoCommand)?],
        Options { process, .. } if !process.is_empty() => processes(process)?,
        Options { pid, .. } => vec![*pid],
    };
    if options.follow {
        tasks = tasks.into_iter().map(threads).collect::<Result<Vec<_>, _>>()?.concat();
    }
    let spots: Vec<(i32, Option<String>)> = match cpus[..] {
        [-1] if event.cores().next().is_some() => {
            event.cores().map(|core| (-1, Some(core.to_owned()))).collect()
        }
        _ => cpus.into_iter().map(|cpu| (cpu, None)).collect(),
    };
    let mut locations = Vec::new();
    for task in tasks {
        for (cpu, core) in &spots {
            locations.extend((0..event.points()).map(|point| CpuAndTask {
                task,
                cpu: *cpu,
                core: core.clone(),
                point,
                cgroup: cgroup.clone(),
            }));
        }
    }
    Ok(locations)
}

/// Returns the CPUs of the locations: with `cpu: all`, the online CPUs on which the event's PMU counts; else
/// the given CPU.
pub(super) fn cpus(event: &Event, options: &Options, sysfs: &Sysfs) -> Result<Vec<i32>, Refusal> {
    let of_pmus = event.cpus(sysfs);
    if !options.every_cpu {
        return match of_pmus {
            // For a CPU that is not online, the kernel's error is clearer.
            Some(cpus) if event.cores().next().is_some() && sysfs.online_cpus().contains(&options.cpu) => {
                if cpus.contains(&options.cpu) {
                    Ok(vec![options.cpu])
                } else {
                    Err(Refusal::OtherPmuCpu { cpus })
                }
            }
            _ => Ok(vec![options.cpu]),
        };
    }
    let online = sysfs.online_cpus();
    let Some(of_pmus) = of_pmus else { return Ok(online) };
    let both: Vec<i32> = online.into_iter().filter(|cpu| of_pmus.contains(cpu)).collect();
    if both.is_empty() { Err(Refusal::OtherPmuCpu { cpus: of_pmus }) } else { Ok(both) }
}

/// Returns all threads of the process that a task belongs to.
pub(super) fn threads(task: i32) -> Result<Vec<i32>, Refusal> {
    let folder = match task {
        0 => "/proc/self/task".to_owned(),
        task => format!("/proc/{task}/task"),
    };
    let mut threads = numbers(Path::new(&folder));
    threads.sort_unstable();
    if threads.is_empty() { Err(Refusal::NoTask(task)) } else { Ok(threads) }
}

/// Returns the processes whose executable has this path, or whose command has this name (its first 15 bytes,
/// or the last component of the executable's path). The path is compared as text, without links as the kernel
/// has that of an executable: following it could wait for a file system, and would reveal what is there.
fn processes(wanted: &str) -> Result<Vec<i32>, Refusal> {
    let is_path = wanted.contains('/');
    let path = files::without_dots(Path::new(wanted));
    let runs = |pid: &i32| {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let executable = opener::executable(*pid).ok();
        if is_path {
            return executable.is_some_and(|executable| executable == path);
        }
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let file = executable.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        name.trim_end_matches('\n') == wanted || file == Some(wanted)
    };
    let own = i32::try_from(std::process::id()).ok();
    let mut found: Vec<i32> =
        numbers(Path::new("/proc")).into_iter().filter(|pid| Some(*pid) != own).filter(runs).collect();
    found.sort_unstable();
    if found.is_empty() { Err(Refusal::NoProcess(wanted.to_owned())) } else { Ok(found) }
}

/// Returns the entries of a directory whose names are numbers.
fn numbers(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Opens the directory of a control group, given by its path below the mount.
///
/// Source: cgroups(7). perf events know groups of the hierarchy that has the controller `perf_event`, or of
/// version 2.
fn cgroup(path: &str) -> Result<OwnedFd, Refusal> {
    let mount = cgroup_mount();
    let missing = || Refusal::NoCgroup { path: path.to_owned(), mount: mount.clone() };
    let below = path.trim_start_matches('/');
    if below.split('/').any(|part| part == "..") {
        return Err(missing());
    }
    let folder = mount.as_ref().ok_or_else(missing)?.join(below);
    // O_DIRECTORY: other files are not opened.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder);
    opened.map(OwnedFd::from).map_err(|_| missing())
}

fn cgroup_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (location, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(kind, options).then(|| PathBuf::from(location.replace("\\040", " ")))
        })
    };
    let has_perf = |options: &str| options.split(',').any(|option| option == "perf_event");
    mounted(&|kind, options| kind == "cgroup" && has_perf(options))
        .or_else(|| mounted(&|kind, _| kind == "cgroup2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(event: &str, options: Options) -> Result<(), Refusal> {
        check(&Event::named(event).unwrap(), &options)
    }

    #[test]
    fn whom_to_count_is_said_once() {
        let process = Options { process: "sleep".into(), cpu: -1, ..Options::default() };
        assert_eq!(checked("page_faults", process.clone()), Ok(()));
        assert_eq!(
            checked("page_faults", Options { command: true, ..process.clone() }),
            Err(Refusal::TwoTasks { first: "process", second: "command" })
        );
        assert_eq!(
            checked("page_faults", Options { pid: 0, ..process }),
            Err(Refusal::TwoTasks { first: "pid", second: "process" })
        );
        let cgroup = Options { cgroup: "/a".into(), cpu: -1, ..Options::default() };
        assert_eq!(checked("page_faults", cgroup.clone()), Err(Refusal::CgroupNeedsCpu));
        assert_eq!(checked("page_faults", Options { every_cpu: true, ..cgroup }), Ok(()));
        let nobody = Options { follow: true, ..Options::default() };
        assert_eq!(checked("page_faults", nobody), Err(Refusal::FollowWithoutTask));
    }

    #[test]
    fn events_that_would_always_count_zero_are_refused() {
        let user = Options { pid: 0, cpu: -1, exclude_kernel: true, ..Options::default() };
        assert_eq!(checked("context_switches", user.clone()), Err(Refusal::InKernelOnly));
        assert_eq!(checked("page_faults", user), Ok(()));
        let guest = Options { pid: 0, cpu: -1, exclude_host: true, ..Options::default() };
        assert_eq!(checked("page_faults", guest.clone()), Err(Refusal::InHostOnly));
        assert_eq!(checked("cpu_cycles", guest), Ok(()));
    }

    #[test]
    fn threads_and_processes_are_found_by_number_and_name() {
        let (wake, sleep) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || sleep.recv());
        assert!(threads(0).unwrap().len() >= 2);
        drop(wake);
        assert!(thread.join().unwrap().is_err());
        let mut sleep = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let (number, program) = (i32::try_from(sleep.id()).unwrap(), fs::canonicalize("/bin/sleep").unwrap());
        let path = program.display();
        let found = |wanted: String| processes(&wanted).is_ok_and(|found| found.contains(&number));
        // The child runs it only after its exec.
        while !found(path.to_string()) {
            std::thread::yield_now();
        }
        assert!(found(format!("{}/./none/../sleep", program.parent().unwrap().display())));
        let link = std::env::temp_dir().join(format!("ks-link-{number}"));
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert!(!found(link.display().to_string()), "what a link leads to is not looked up");
        fs::remove_file(link).unwrap();
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(threads(i32::MAX), Err(Refusal::NoTask(i32::MAX)));
        assert_eq!(processes("ks-no-such-process"), Err(Refusal::NoProcess("ks-no-such-process".to_owned())));
    }
}

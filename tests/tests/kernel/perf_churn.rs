//! Ten thousand attaches and detaches in random group shapes. Each reading is compared with a model that
//! knows how often the counted events happened. At the end nothing stays open.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::perf_support::{named, own_thread, program, some_descriptor, store, stores_to};
use ks_host::perf::{AttachmentId, Attachments, Catalog, Event, Options, PerfError};
use nix::sched::{CloneFlags, unshare};

const ATTACHES: u32 = 10_000;
/// Limit of concurrent attachments.
const MOST: usize = 24;
/// Breakpoints per task, less one for other tests.
const BREAKPOINTS: usize = 3;

static WORD: AtomicU64 = AtomicU64::new(0);

/// The event that an attachment counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountedEvent {
    Calls,
    Stores,
    Nothing,
}

/// The model of one attachment.
#[derive(Debug, Clone)]
struct CountedAttachment {
    what: CountedEvent,
    leader: AttachmentId,
    count: u64,
    stopped: bool,
}

/// A random number generator (xorshift) with the same numbers in every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

struct Run {
    random: Rng,
    attachments: Attachments,
    calls: Event,
    model: BTreeMap<AttachmentId, CountedAttachment>,
    /// Whether each group is enabled, by its leader.
    enabled: BTreeMap<AttachmentId, bool>,
    attaches: u32,
}

impl Run {
    fn any(&mut self) -> Option<AttachmentId> {
        let ids: Vec<_> = self.model.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.random.below(ids.len())])
    }

    fn group(&self, leader: AttachmentId) -> Vec<AttachmentId> {
        let members = self.model.iter().filter(|(_, one)| one.leader == leader);
        members.map(|(id, _)| *id).collect()
    }

    fn attach(&mut self) {
        let breakpoints = self.model.values().filter(|one| one.what == CountedEvent::Stores).count();
        let what = match self.random.below(4) {
            0 if breakpoints < BREAKPOINTS => CountedEvent::Stores,
            1 | 2 => CountedEvent::Calls,
            _ => CountedEvent::Nothing,
        };
        let event = match what {
            CountedEvent::Calls => self.calls.clone(),
            CountedEvent::Stores => stores_to(&WORD),
            CountedEvent::Nothing => named("dummy"),
        };
        let leader = match self.random.below(3) {
            0 => None,
            _ => self.any().map(|id| self.model[&id].leader),
        };
        // A link is a descriptor that must be closed.
        let link = if self.random.below(4) == 0 { program(|_| some_descriptor()) } else { None };
        let id = self
            .attachments
            .open(&event, &own_thread(), leader, link)
            .unwrap_or_else(|error| panic!("{error}"));
        self.attaches += 1;
        let leader = leader.unwrap_or(id);
        self.model.insert(id, CountedAttachment { what, leader, count: 0, stopped: false });
        self.enabled.insert(leader, true);
        for member in self.group(leader) {
            let one = self.model.get_mut(&member).unwrap();
            (one.count, one.stopped) = (0, false);
        }
    }

    fn detach(&mut self) {
        let Some(id) = self.any() else { return };
        self.attachments.detach(id);
        let gone = if self.model[&id].leader == id { self.group(id) } else { vec![id] };
        for id in gone {
            self.model.remove(&id);
            assert_eq!(self.attachments.read(id), Err(PerfError::Stale(id)));
        }
        self.enabled.remove(&id);
    }

    fn work(&mut self) {
        let (calls, stores) = (self.random.below(20) as u64, self.random.below(20) as u64);
        (0..calls).for_each(|_| {
            nix::unistd::getppid();
        });
        store(&WORD, stores);
        for one in self.model.values_mut() {
            if self.enabled[&one.leader] && !one.stopped {
                one.count += match one.what {
                    CountedEvent::Calls => calls,
                    CountedEvent::Stores => stores,
                    CountedEvent::Nothing => 0,
                };
            }
        }
    }

    fn control(&mut self) {
        let Some(id) = self.any() else { return };
        let leads = self.model[&id].leader == id;
        let of = if leads { self.group(id) } else { vec![id] };
        match self.random.below(3) {
            0 => {
                self.attachments.disable(id).unwrap();
                if leads {
                    self.enabled.insert(id, false);
                } else {
                    self.model.get_mut(&id).unwrap().stopped = true;
                }
            }
            1 => {
                self.attachments.enable(id).unwrap();
                if leads {
                    self.enabled.insert(id, true);
                }
                of.iter().for_each(|id| self.model.get_mut(id).unwrap().stopped = false);
            }
            _ => {
                self.attachments.reset(id).unwrap();
                of.iter().for_each(|id| self.model.get_mut(id).unwrap().count = 0);
            }
        }
    }

    fn check(&mut self) {
        let Some(id) = self.any() else { return };
        let expected = &self.model[&id];
        let reading = self.attachments.read(id).unwrap();
        assert_eq!(reading.raw, expected.count, "{id}: {expected:?}");
        let snapshot = self.attachments.snapshot(id).unwrap();
        let group = self.group(expected.leader);
        let counts: Vec<u64> = group.iter().map(|id| self.model[id].count).collect();
        assert_eq!(snapshot.entries.iter().map(|entry| entry.raw).collect::<Vec<_>>(), counts);
        assert_eq!(group[snapshot.own], id);
    }

    /// An observed task ends, and another thread causes events that are counted for this thread only.
    fn others(&mut self) {
        let mut child = Command::new("true").spawn().unwrap();
        let options = Options { pid: child.id() as i32, ..own_thread() };
        // The task may have ended before the open.
        let watched = self.attachments.open(&self.calls, &options, None, None);
        thread::spawn(|| store(&WORD, 10)).join().unwrap();
        child.wait().unwrap();
        if let Ok(id) = watched {
            assert!(self.attachments.read(id).is_ok());
            self.attachments.detach(id);
        }
    }
}

/// Returns the resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn churn(calls: Event) {
    unshare(CloneFlags::CLONE_FILES).unwrap();
    let open = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
    let before = open();
    let mut run = Run {
        random: Rng(0x9e37_79b9_7f4a_7c15),
        attachments: Attachments::new(),
        calls,
        model: BTreeMap::new(),
        enabled: BTreeMap::new(),
        attaches: 0,
    };
    // The memory of the first part is reused by the rest.
    let mut memory = None;
    while run.attaches < ATTACHES {
        if run.attaches > ATTACHES / 4 {
            memory.get_or_insert_with(resident_kib);
        }
        match run.random.below(12) {
            0..4 if run.model.len() < MOST => run.attach(),
            0..6 => run.detach(),
            6 | 7 => run.work(),
            8 => run.control(),
            9 if run.random.below(50) == 0 => run.others(),
            _ => run.check(),
        }
    }
    drop(run);
    let grown = resident_kib().saturating_sub(memory.expect("it went so far"));
    // Less than a hundred bytes per attachment.
    assert!(grown < 750, "{grown} KiB more after the last three quarters");
    assert_eq!(open(), before, "descriptors are left");
}

#[test]
fn root_ten_thousand_attaches_leave_nothing_and_read_right() {
    ks_tests::alone!();
    // Looking up the first tracepoint mounts tracefs for this process, and the mount stays.
    let calls = Catalog::default().tracepoint("syscalls/sys_enter_getppid").unwrap();
    // The thread has a descriptor table of its own, which other tests cannot disturb.
    thread::spawn(|| churn(calls)).join().unwrap();
}

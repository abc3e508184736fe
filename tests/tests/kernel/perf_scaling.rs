//! Counters that run part of the time. Software events do not share hardware counters, but an event on one
//! CPU does not run while its task is on another.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::perf_support::{fault, named, own_thread, spin};
use ks_host::perf::{Attachments, Notice, Options, State};
use ks_tests::cpus;
use nix::unistd::gettid;

const ITERATIONS: usize = 20;
const FAULTS: usize = 20;
const SPIN: Duration = Duration::from_millis(5);

/// Returns two CPUs that this thread may run on.
fn two_cpus() -> (usize, usize) {
    let mut allowed = cpus::allowed().into_iter();
    allowed.next().zip(allowed.next()).expect("this test needs two CPUs that it may run on")
}

/// Works equally on both CPUs: the same CPU time, the same number of faults.
fn work_on_both(home: usize, away: usize) {
    // perf's own clock. Unlike the thread's CPU time it includes time that a hypervisor takes, as the counter
    // under test does.
    let mut attachments = Attachments::new();
    let options = Options { pid: 0, cpu: -1, ..Options::default() };
    let clock = attachments.open(&named("task_clock"), &options, None, None).unwrap();
    let mut own_time = || Duration::from_nanos(attachments.read(clock).unwrap().time_running);
    for _ in 0..ITERATIONS {
        for cpu in [home, away] {
            cpus::stay_on(cpu);
            let start = own_time();
            fault(FAULTS);
            while own_time() - start < SPIN {
                spin(Duration::from_micros(50));
            }
        }
    }
}

#[test]
fn root_a_task_away_half_of_the_time_is_scaled_to_twice_the_count() {
    let (home, away) = two_cpus();
    let (tid_sender, tid) = mpsc::channel();
    let (start, wait) = mpsc::channel::<()>();
    let worker = thread::spawn(move || {
        cpus::stay_on(home);
        tid_sender.send(gettid().as_raw()).unwrap();
        wait.recv().unwrap();
        work_on_both(home, away);
    });
    let mut attachments = Attachments::new();
    let pid = tid.recv().unwrap();
    let mut count_on = |cpu: i32| {
        let options = Options { pid, cpu, ..Options::default() };
        attachments.open(&named("page_faults"), &options, None, None).unwrap()
    };
    let on = |cpu: usize| i32::try_from(cpu).unwrap();
    let (at_home, elsewhere, anywhere) = (count_on(on(home)), count_on(on(away)), count_on(-1));
    start.send(()).unwrap();
    worker.join().unwrap();

    let [at_home, elsewhere, anywhere] =
        [at_home, elsewhere, anywhere].map(|id| attachments.read(id).unwrap());
    assert_eq!(
        (at_home.state, anywhere.state),
        (State::Multiplexed, State::Counted),
        "{at_home:?} {anywhere:?}"
    );
    // The scheduler decides how the CPUs are shared with other tasks; the test checks that the two parts add
    // up to the whole.
    assert_eq!(at_home.raw + elsewhere.raw, anywhere.raw, "{at_home:?} {elsewhere:?} {anywhere:?}");
    let parts = (at_home.time_running + elsewhere.time_running) as f64 / anywhere.time_running as f64;
    assert!((0.98..1.02).contains(&parts), "{at_home:?} {elsewhere:?} {anywhere:?}");
    let counted_at_home = (ITERATIONS * FAULTS) as u64;
    assert!((counted_at_home..counted_at_home * 5 / 4).contains(&at_home.raw), "{at_home:?}");
    let share = at_home.time_running as f64 / at_home.time_enabled as f64;
    assert!((0.4..0.6).contains(&share), "ran {share:.3} of the time: {at_home:?}");
    let exact = u128::from(at_home.raw) * u128::from(at_home.time_enabled) / u128::from(at_home.time_running);
    assert_eq!(at_home.scaled.map(u128::from), Some(exact), "{at_home:?}");
    let factor = exact as f64 / at_home.raw as f64;
    assert!((1.66..2.5).contains(&factor), "scaled by {factor:.3}: {at_home:?}");
}

#[test]
fn root_a_task_always_away_never_ran() {
    let (home, away) = two_cpus();
    cpus::stay_on(away);
    let mut attachments = Attachments::new();
    let options = Options { pid: 0, cpu: i32::try_from(home).unwrap(), ..Options::default() };
    let faults = attachments.open(&named("page_faults"), &options, None, None).unwrap();
    let member = attachments.open(&named("task_clock"), &options, Some(faults), None).unwrap();
    fault(FAULTS);
    let reading = attachments.read(faults).unwrap();
    assert_eq!((reading.raw, reading.scaled, reading.state), (0, None, State::NeverRan));
    assert!(reading.time_enabled > 0 && reading.time_running == 0);
    let snapshot = attachments.snapshot(member).unwrap();
    assert!(snapshot.entries.iter().all(|entry| entry.scaled.is_none()));
    assert_eq!(snapshot.state, State::NeverRan);
}

/// A count that is scaled from a small part causes one warning.
#[test]
fn root_a_small_share_of_the_time_comes_with_a_warning() {
    let (home, away) = two_cpus();
    cpus::stay_on(home);
    let mut attachments = Attachments::new();
    let options = Options { cpu: i32::try_from(home).unwrap(), ..own_thread() };
    let faults = attachments.open(&named("page_faults"), &options, None, None).unwrap();
    fault(FAULTS);
    cpus::stay_on(away);
    let mut reading = attachments.read(faults).unwrap();
    while reading.time_running >= reading.time_enabled / 11 {
        spin(Duration::from_millis(1));
        reading = attachments.read(faults).unwrap();
    }
    assert!(reading.scaled.is_some_and(|scaled| scaled > 10 * reading.raw), "{reading:?}");
    attachments.read(faults).unwrap();
    let notices = attachments.take_notices();
    let [Notice::LowShare { event, share }] = &notices[..] else { panic!("{notices:?}") };
    assert!(event == "page_faults" && *share < 1000, "{notices:?}");
    assert!(notices[0].to_string().contains("use fewer events"), "{}", notices[0]);
}

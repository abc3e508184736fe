//! The running time of counters, through scripts. These tests need root.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use ks_host::perf::{Attachments, Event, Options};
use ks_tests::{cpus, run_script};
use nix::unistd::gettid;

use crate::perf_support::wait_until_asleep;

/// Runs `body` on its own thread and passes the thread's id to `watch`.
fn watched(body: impl Fn() + Send + 'static, watch: impl FnOnce(i32)) {
    let stop = Arc::new(AtomicBool::new(false));
    let tid = Arc::new(AtomicI32::new(0));
    let thread = std::thread::spawn({
        let (stop, tid) = (stop.clone(), tid.clone());
        move || {
            tid.store(gettid().as_raw(), Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                body();
            }
        }
    });
    while tid.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    watch(tid.load(Ordering::Acquire));
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("the thread ends");
}

fn spin_on(cpu: usize, time: Duration) {
    cpus::stay_on(cpu);
    // perf's own clock, so that both CPUs get equal shares of it on a busy machine.
    let mut attachments = Attachments::new();
    let options = Options { pid: 0, cpu: -1, ..Options::default() };
    let event = Event::named("task_clock").expect("every kernel has it");
    let clock = attachments.open(&event, &options, None, None).expect("root may count its own thread");
    while attachments.read(clock).expect("it is open").time_running < time.as_nanos() as u64 {
        std::hint::spin_loop();
    }
}

const WATCH: &str = include_str!("scripts/scaling_watch.ks");

/// A task that spends half of its time on another CPU than its event's: the only case in which a software
/// event's running time differs from its enabled time on any machine with two CPUs.
#[test]
fn root_half_of_the_time_elsewhere_is_half_of_the_time_running() {
    assert!(
        nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).expect("known") >= Some(2),
        "needs two CPUs"
    );
    watched(
        || {
            spin_on(0, Duration::from_millis(10));
            spin_on(1, Duration::from_millis(10));
        },
        |tid| {
            // A busy machine may keep the plugin from running between two calls: then the counters are not
            // enabled over the same time, and it measures again.
            let measured = || {
                let outcome = run_script("half", WATCH, &[format!("--task={tid}")]);
                assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
                let whole = outcome.numbers("seen")[2];
                ((whole - outcome.numbers("other")[1]).abs() * 100 < whole).then_some(outcome)
            };
            let outcome = (0..10).find_map(|_| measured()).expect("two calls in a row, once in ten times");
            let seen = outcome.numbers("seen");
            let [raw, scaled, enabled, running] = seen[..] else { panic!("{outcome:#?}") };
            // Time that is not on this CPU is on the other: the two parts add up to the whole, however busy
            // the CPUs are.
            let parts = (running + outcome.numbers("other")[0]) as f64 / enabled as f64;
            assert!((0.97..1.03).contains(&parts), "{outcome:#?}");
            let share = running as f64 / enabled as f64;
            assert!((0.33..0.67).contains(&share), "running {running} of {enabled}");
            let wanted = (i128::from(raw) * i128::from(enabled) / i128::from(running)) as i64;
            assert_eq!(scaled, wanted, "scaled is raw by enabled over running");
            assert!((1.49..3.04).contains(&(scaled as f64 / raw as f64)), "about twice: {outcome:#?}");
        },
    );
}

/// A task that does not run is idle: its zeros are true, and cause no warning.
#[test]
fn root_a_sleeping_task_is_idle_without_a_warning() {
    let script =
        WATCH.replace("cpu: 0", "cpu: -1").replace("cpu: 1", "cpu: -1").replace("sleep(1000)", "sleep(50)");
    watched(
        || std::thread::sleep(Duration::from_millis(400)),
        |tid| {
            wait_until_asleep(tid);
            let outcome = run_script("idle", &script, &[format!("--task={tid}")]);
            assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
            assert_eq!(outcome.numbers("seen"), [0, 0, 0, 0], "{outcome:#?}");
        },
    );
}

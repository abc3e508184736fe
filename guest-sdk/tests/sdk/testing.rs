//! A plugin's unit tests: its functions on the host of a test.

use std::time::Duration;

use ks_guest::testing::{Host, multiplexed, never_ran};
use ks_guest::{
    Attachment, ErrorKind, Event, Global, Group, Map, PerCpuMap, PerfOptions, Plain, Program, Queue, Result,
    Ring, State, args, clock, console, display, println, programs, symbols, system, warn,
};

const SECOND: Duration = Duration::from_secs(1);

fn open(name: &str) -> Result<Attachment> {
    Attachment::open(&Event::named(name)?, &PerfOptions::new().own_thread())
}

#[derive(Plain, Debug, Clone, PartialEq)]
struct Seen {
    cpu: u16,
    number: u64,
}

#[test]
fn counts_are_read_one_after_the_other() {
    let host = Host::new();
    host.counter("page_faults", [3, 8]);
    let faults = open("page-faults").expect("either spelling");
    assert_eq!(faults.read().expect("scripted").state, State::Idle, "no time has passed");
    clock::sleep(SECOND).expect("before the end");
    let read = faults.read().expect("scripted");
    assert_eq!((read.raw, read.scaled, read.time_running), (8, Some(8), SECOND));
    assert_eq!(faults.read().expect("the last one again").raw, 8);
    assert_eq!(open("page_faults").and_then(|again| again.read()).expect("from the first").raw, 3);
}

#[test]
fn readings_without_a_count_can_be_scripted() {
    let host = Host::new();
    host.readings("cycles", [multiplexed(100, 2 * SECOND, SECOND), never_ran(SECOND)]);
    let cycles = open("cycles").expect("scripted");
    assert_eq!(cycles.read().expect("scripted").scaled, Some(200));
    assert_eq!(cycles.read().expect("scripted").state, State::NeverRan);
}

#[test]
fn a_group_is_read_as_one_and_ends_as_one() {
    let host = Host::new();
    host.counter("cycles", [10]);
    host.counter("instructions", [20]);
    let own = PerfOptions::new().own_thread();
    let cycles = Group::open(&Event::named("cycles").expect("scripted"), &own).expect("scripted");
    let instructions = cycles.join(&Event::named("instructions").expect("scripted"), &own).expect("scripted");
    let both = instructions.snapshot().expect("scripted");
    assert_eq!(both.entries.iter().map(|entry| entry.raw).collect::<Vec<_>>(), [10, 20]);
    assert_eq!(both.own, 1);
    instructions.detach();
    assert_eq!(cycles.snapshot().expect("scripted").entries.len(), 1);
}

#[test]
fn missing_and_refused_objects_are_reported() {
    let host = Host::new();
    let error = open("cycles").expect_err("not scripted");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("host.counter"), "{error}");
    host.counter("cycles", [1]);
    host.refuse("cycles", ErrorKind::NotPermitted, "CAP_PERFMON is missing");
    assert_eq!(open("cycles").expect_err("refused").kind(), ErrorKind::NotPermitted);
    assert_eq!(Program::load("on_fault").expect_err("not declared").kind(), ErrorKind::NotFound);
}

#[test]
fn maps_hold_what_is_put_in() {
    let host = Host::new();
    host.map::<u32, Seen>("seen", 2);
    let seen = Map::<u32, Seen>::open("seen").expect("declared");
    let value = Seen { cpu: 1, number: 2 };
    seen.insert(&7, &value).expect("there is room");
    seen.insert_new(&8, &value).expect("there is room");
    assert_eq!(seen.insert(&9, &value).expect_err("it is full").kind(), ErrorKind::Limit);
    assert_eq!(seen.insert_new(&8, &value).expect_err("it is there").kind(), ErrorKind::Busy);
    assert_eq!(seen.replace(&9, &value).expect_err("it is not there").kind(), ErrorKind::NotFound);
    let keys: Result<Vec<_>> = seen.keys().expect("a hash").collect();
    assert_eq!((keys, seen.get(&7)), (Ok(vec![7, 8]), Ok(Some(value.clone()))));
    assert_eq!(seen.iter().expect("a hash").next(), Some(Ok((7, value))));
    assert_eq!((seen.remove(&7), seen.count()), (Ok(true), Ok(1)));
    assert_eq!(Map::<u64, Seen>::open("seen").expect_err("another key").kind(), ErrorKind::Invalid);

    host.cpus(2);
    host.per_cpu_array::<u64>("cells", 1);
    let cells = PerCpuMap::<u32, u64>::open("cells").expect("declared");
    cells.insert(&0, &[4, 5]).expect("an array");
    assert_eq!(cells.get(&0), Ok(Some(vec![4, 5])));

    host.queue::<u32>("line", 2);
    host.stack::<u32>("pile", 2);
    let order = |name| {
        let queue = Queue::<u32>::open(name)?;
        queue.push(&1)?;
        queue.push(&2)?;
        Ok((queue.peek()?, queue.pop()?, queue.pop()?, queue.pop()?))
    };
    assert_eq!(order("line"), Ok((Some(1), Some(1), Some(2), None)));
    assert_eq!(order("pile"), Ok::<_, ks_guest::Error>((Some(2), Some(2), Some(1), None)));
}

#[test]
fn records_come_when_they_are_due() {
    let host = Host::new();
    host.ring("records", 4096);
    host.push("records", &Seen { cpu: 0, number: 1 });
    host.push("records", &Seen { cpu: 0, number: 2 });
    host.push_after(SECOND, "records", &Seen { cpu: 1, number: 3 });
    let mut ring = Ring::<Seen>::open("records").expect("declared");
    let first = ring.poll(None).expect("there are some").next();
    assert_eq!(first.map(|record| record.number), Some(1));
    let rest: Vec<_> = ring.poll(None).expect("what was left").map(|record| record.number).collect();
    assert_eq!((rest, clock::now()), (vec![2], Duration::ZERO));
    assert_eq!(ring.poll(Some(SECOND / 2)).expect("too early").count(), 0);
    assert_eq!((ring.poll(None).expect("it comes").count(), clock::now()), (1, SECOND));
    assert_eq!(ring.poll(None).expect_err("nothing comes").kind(), ErrorKind::Interrupted);
    assert!(clock::stopping());
}

#[test]
fn the_time_since_the_boot_is_simulated() {
    let _host = Host::new();
    assert_eq!(clock::boottime(), Duration::ZERO);
    clock::sleep(SECOND).expect("before the end");
    assert_eq!((clock::boottime(), clock::now()), (SECOND, SECOND));
}

#[test]
fn variables_programs_and_names_are_the_tests() {
    let host = Host::new();
    host.global("limit", &7_u16);
    host.global("best", &Seen { cpu: 1, number: 2 });
    let limit = Global::<u16>::open("limit").expect("declared");
    limit.set(&9).expect("it may be set");
    assert_eq!(limit.get(), 9);
    assert_eq!(Global::<Seen>::open("best").expect("declared").get().number, 2);

    host.program("on_switch");
    let program = Program::load("on_switch").expect("declared");
    let link = program.attach_tracepoint("sched/sched_switch", 0).expect("any target");
    assert_eq!(host.attached(), [("on_switch".to_owned(), "sched/sched_switch".to_owned())]);
    link.detach();
    assert!(host.attached().is_empty());

    host.process(42, "sshd");
    host.symbol(0x1000, "do_nanosleep+0x5f");
    assert_eq!((system::pid_of("sshd"), system::comm_of(42)), (Some(42), b"sshd".to_vec()));
    assert!(system::threads_of(42).eq([42]) && system::threads_of(43).next().is_none());
    assert!(programs::ids().next().is_none() && programs::info(1).expect("nothing refuses").is_none());
    assert!(!args::has_command() && !args::restart_command());
    assert_eq!(
        (symbols::kernel(0x1000), symbols::kernel(0x2000)),
        ("do_nanosleep+0x5f".into(), "0x2000".into())
    );
    assert_eq!(
        (symbols::kernel_function(0x1000), symbols::process_function(42, 0x2000)),
        ("do_nanosleep".into(), "0x2000".into())
    );
    assert_eq!(
        (symbols::kernel_stack("stacks", 0x1000), symbols::process_stack("stacks", 42, 0x2000)),
        ("do_nanosleep".into(), "0x2000".into())
    );
    let router = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        (display::ipv4(u32::from_ne_bytes([10, 0, 0, 1])), display::ipv6(router), display::mac([1; 6])),
        ("10.0.0.1".into(), "2001:db8::1".into(), "01:01:01:01:01:01".into())
    );
}

#[test]
fn the_end_of_main_is_a_code() {
    let host = Host::new();
    host.args(&["--every", "5", "--loud"]);
    let code = host.run(|| {
        let mut options = args::Options::new();
        let every = options.unsigned("every", 8, 1, "seconds");
        let loud = options.flag("loud", "say more");
        let found = options.parse();
        println!("{} {}", found.unsigned(every), found.flag(loud));
        println!();
        warn!("one\ntwo");
        console::warn_once(1, "once");
        console::warn_once(1, "once");
    });
    assert_eq!((code, host.output().as_str(), host.errors().as_str()), (0, "5 true\n\n", "one; two\nonce\n"));

    host.args(&["--every", "256"]);
    assert_eq!(host.run(|| assert!(parse_every() > 0)), 1);
    assert_eq!(host.run(|| open("nothing").map(drop)), 1);
    assert!(host.errors().contains("no event named `nothing`"));
    assert_eq!(host.run(|| -> i32 { args::exit(7) }), 7);
}

fn parse_every() -> u64 {
    let mut options = args::Options::new();
    let every = options.unsigned("every", 8, 1, "seconds");
    options.parse().unsigned(every)
}

#[test]
#[should_panic(expected = "begin the test with")]
fn without_a_host_the_reason_is_reported() {
    clock::now();
}

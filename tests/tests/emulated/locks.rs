//! Locks of map entries: what changes under one is read as a whole, and nothing of it is lost. The test runs on the
//! running kernel and on the emulated ones. It needs root.

use std::net::UdpSocket;
use std::thread;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::wait_until_gone;
use ks_tests::watched::Running;
use nix::sys::socket::{setsockopt, sockopt};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).seconds(400).run_tests(module_path!(), &["locked_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).seconds(400).run_tests(module_path!(), &["locked_"]);
}

/// Two threads send packets, which a program counts by additions that are not atomic, while userspace reads and writes
/// the same maps.
#[test]
fn locked_values_change_as_a_whole() {
    const MARK: u32 = 7723;
    const THREADS: i64 = 2;
    const PACKETS: i64 = 20_000;
    let script = include_str!("scripts/locks_values_change_as_a_whole.ks");
    let running = Running::start("locks", script, &[format!("--wanted={MARK}")]);
    let to = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = to.local_addr().expect("bound");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let from = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
                setsockopt(&from, sockopt::Mark, &MARK).expect("root may mark packets");
                for _ in 0..PACKETS {
                    assert_eq!(from.send_to(&[1; 58], address).expect("lo is up"), 58);
                }
            });
        }
    });
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let sent = THREADS * PACKETS;
    assert_eq!(outcome.numbers("packets"), [sent, sent], "{outcome:#?}");
    assert_eq!(outcome.numbers("bytes"), [sent * 100], "{outcome:#?}");
    assert_eq!((outcome.numbers("torn"), outcome.numbers("halves")), (vec![0], vec![0]), "{outcome:#?}");
    assert!(outcome.numbers("reads").iter().all(|number| *number > 0), "{outcome:#?}");
    wait_until_gone("kslock");
}

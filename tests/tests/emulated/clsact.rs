//! tc programs on a kernel that has no links for them: they are attached by filters, which are removed with
//! the host. These tests boot an emulated kernel.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::watched::Running;
use ks_tests::{allowed, finish, is_within};

#[test]
fn kernel_6_1() {
    let machine = Machine::new(Kernel::V6_1);
    machine.run_tests(module_path!(), &["filters_"]);
}

const SCRIPT: &str = include_str!("scripts/clsact.ks");

/// Returns the programs on interfaces, by their names.
fn attached() -> String {
    let mut bpftool = Command::new("bpftool");
    let output = finish(bpftool.args(["net", "show", "dev", "lo"]));
    assert_eq!(output.code, 0, "{output:#?}");
    output.stdout
}

/// Returns the number of clsact qdiscs.
fn qdiscs() -> String {
    let users = std::fs::read_to_string("/sys/module/sch_ingress/refcnt").expect("the module is loaded");
    users.trim().to_owned()
}

fn started() -> Running {
    Running::begin(allowed(), "clsact", SCRIPT, &[] as &[&str], "attached")
}

fn send(packets: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = socket.local_addr().expect("bound");
    for _ in 0..packets {
        socket.send_to(b"hello", address).expect("lo is up");
    }
}

#[test]
fn filters_count_and_are_gone_with_the_host() {
    if inside().is_none() {
        return;
    }
    let first = started();
    let second = started();
    assert_eq!(attached().matches("clsact").count(), 4, "{}", attached());
    send(7);
    let ended = first.stop();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:#?}");
    assert_eq!((ended.numbers("came"), ended.numbers("went")), (vec![7], vec![7]), "{ended:#?}");
    // The first attachment created the qdisc, and the second, which is the last, uses it.
    assert_eq!((attached().matches("clsact").count(), qdiscs().as_str()), (2, "1"), "{}", attached());
    let ended = second.stop();
    assert_eq!(ended.numbers("came"), [7], "{ended:#?}");
    assert_eq!((attached().matches("clsact").count(), qdiscs().as_str()), (0, "0"), "{}", attached());
}

#[test]
fn filters_of_a_killed_host_are_taken_away() {
    if inside().is_none() {
        return;
    }
    let running = started();
    assert_eq!(attached().matches("clsact").count(), 2, "{}", attached());
    running.kill();
    let is_gone = || !attached().contains("clsact") && qdiscs() == "0";
    assert!(is_within(Duration::from_secs(5), is_gone), "{} qdiscs: {}", qdiscs(), attached());
}

//! Functions of the kernel, hooks, and functions of programs: the attach points of the kernel.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use ks_tests::Folder;
use ks_tests::emulated::here_or_inside;
use nix::sys::socket::{MsgFlags, send};

use crate::trace::{Opener, WAIT, has_kprobes, has_trampolines, run};

#[test]
fn traced_probes_at_entry_and_return() {
    if !here_or_inside("trampolines for fentry", has_trampolines()) {
        return;
    }
    let script = include_str!("../scripts/probes_probes_at_entry_and_return.ks");
    let opener = Opener::start();
    let ran = run("entry", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_parts_of_structs_are_given_to_helpers() {
    if !here_or_inside("trampolines for fentry", has_trampolines()) {
        return;
    }
    let script = include_str!("../scripts/probes_parts_of_structs_are_given_to_helpers.ks");
    let opener = Opener::start();
    let ran = run("parts", script);
    drop(opener);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "true 0\ntrue true true true\n"), "{ran:#?}");
}

#[test]
fn traced_lf_070_probe_on_a_system_call() {
    if !here_or_inside("trampolines for fentry", has_trampolines()) {
        return;
    }
    let script = include_str!("../scripts/probes_lf_070_probe_on_a_system_call.ks");
    let opener = Opener::start();
    let ran = run("call", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_probe_at_an_offset() {
    if !here_or_inside("kprobes", has_kprobes()) {
        return;
    }
    let script = include_str!("../scripts/probes_probe_at_an_offset.ks");
    let opener = Opener::start();
    let ran = run("offset", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// Packets of 1000 bytes to another local address, sent without waiting.
fn send_packets(stop: &AtomicBool) {
    let to = UdpSocket::bind("127.0.0.2:0").expect("the loopback interface is up");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("as above");
    socket.connect(to.local_addr().expect("it is bound")).expect("a local address");
    while !stop.load(Ordering::Relaxed) {
        // Nobody receives them.
        let _ = send(socket.as_raw_fd(), &[0; 1000], MsgFlags::MSG_DONTWAIT);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// The function has ten parameters, of which registers have six.
#[test]
fn traced_arguments_on_the_stack_of_a_function() {
    if !here_or_inside("kprobes", has_kprobes()) {
        return;
    }
    let script = include_str!("../scripts/probes_arguments_on_the_stack.ks");
    let stop = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| send_packets(&stop));
        let ran = run("many", script);
        stop.store(true, Ordering::Relaxed);
        ran
    });
    let expected = format!("ip_make_skb 1008 8 127.0.0.2 {:x}", MsgFlags::MSG_DONTWAIT.bits());
    assert!(ran.code == 0 && ran.stdout.lines().next() == Some(&expected), "{ran:#?}");
}

/// The counter is an event of its own, and a program at the same function takes no hits from it.
#[test]
fn traced_a_counter_of_a_function_has_what_a_program_there_saw() {
    if !here_or_inside("kprobes", has_kprobes()) {
        return;
    }
    let script = include_str!("../scripts/probes_counters_beside_a_program.ks");
    let opener = Opener::start();
    let ran = run("kprobe", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_hook_denies() {
    if !here_or_inside("trampolines for lsm", has_trampolines()) {
        return;
    }
    // Denies one file to everybody: an empty file of this test, identified by its owner.
    let script = include_str!("../scripts/probes_hook_denies.ks");
    let folder = Folder::new();
    let file = folder.write("owned", "");
    std::os::unix::fs::chown(&file, Some(54321), None).expect("root");
    let (stop, path) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), file.clone());
    let seen = stop.clone();
    let reader = std::thread::spawn(move || {
        let mut refused = false;
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {
            refused |= fs::read(&path).is_err_and(|error| error.raw_os_error() == Some(13));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        refused
    });
    // Other files can still be opened.
    let opener = Opener::start();
    let ran = run("hook", script);
    drop(opener);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = reader.join().expect("it only reads");
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(refused, "the file could always be read");
    assert!(fs::read(&file).is_ok(), "the hook is gone with the host");
}

#[test]
fn traced_function_of_a_program() {
    // The path of this test's C library.
    let maps = fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    let library = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library =
        library.into_iter().find(|path| path.contains("libc.so")).expect("this test uses the C library");
    let script = include_str!("../scripts/probes_function_of_a_program.ks");
    let opener = Opener::start();
    let ran = run("user", &script.replace("LIBRARY", library));
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// `@kfunc` and `@private` functions are subprograms of the object.
#[test]
fn traced_lf_081_kfunc_runs_as_a_part_of_the_object() {
    let script = include_str!("../scripts/probes_lf_081_kfunc_runs_as_a_part_of_the_object.ks");
    let ran = run("kfunc", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

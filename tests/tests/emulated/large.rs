//! Large programs: what many people would write as one. The verifier accepts each, on every kernel that has what
//! it calls, and the parsers find what is in a packet. Needs root.

use std::fs;

use ks_compiler::kernel::KernelVersion;
use ks_compiler::pipeline::Target;
use ks_compiler_testing::kernel_half::configs;
use ks_tests::emulated::{Kernel, Machine};
use ks_tests::growing_scripts::GROWING;
use ks_tests::runs::Loaded;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_"]);
}

/// Returns the version of the running kernel.
fn running() -> KernelVersion {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|text| text.parse().ok()).expect("a number");
    KernelVersion::new(next(), next())
}

/// Compiles a script for the running kernel and loads it.
fn load(script: &str) -> Loaded {
    Loaded::with_target(script, Target { kernel: Some(running()), ..Target::default() })
}

#[test]
fn root_programs_with_hundreds_of_branches_load() {
    for script in [
        include_str!("scripts/large_parse.ks"),
        include_str!("scripts/large_flow.ks"),
        include_str!("scripts/large_tls.ks"),
    ] {
        load(script);
    }
    // Storage of control groups came with 6.2, and `val` of sets of capabilities with 6.3.
    if running() >= KernelVersion::new(6, 3) {
        load(include_str!("scripts/large_sched.ks"));
        load(include_str!("scripts/large_audit.ks"));
    }
}

/// Returns a packet over IPv4 and TCP between two ports.
fn packet(ports: [u16; 2], text: &str) -> Vec<u8> {
    let length = 20 + 20 + text.len() as u16;
    let mut packet = vec![0; 12];
    packet.extend(0x0800u16.to_be_bytes());
    packet.extend([0x45, 0]);
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(text.bytes());
    packet
}

/// A request of each of three methods, one of none, and a response. In the second script each header is compared
/// with 66 names.
#[test]
fn root_parsers_of_http_find_methods() {
    for script in [include_str!("scripts/large_http.ks"), include_str!("scripts/large_comparisons.ks")] {
        let loaded = load(script);
        configs(script).iter().for_each(|(map, values)| loaded.write(map, 0, values));
        let headers =
            "Host: example.org\r\nContent-Length: 12\r\nX-Header-07: special07\r\nConnection: keep-alive";
        for method in ["GET", "POST", "GET", "TRACE", "FETCH"] {
            let text = format!("{method} /a/path?of=it HTTP/1.1\r\n{headers}\r\n\r\n");
            loaded.run("http_in", &packet([40000, 80], &text));
        }
        loaded.run("http_in", &packet([80, 40000], &format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n")));
        assert_eq!(loaded.entries("by_method", 10), [0, 2, 1, 0, 0, 0, 0, 0, 0, 1]);
    }
}

/// A unit of a large script costs the verifier no more than one of a small script: at most twice as much, since the
/// paths through a few units are fewer than those through many.
#[test]
fn root_the_verifier_follows_a_script_in_proportion_to_its_size() {
    for kind in &GROWING {
        let followed = kind.sizes.map(|size| (size, load(&(kind.script)(size)).verified()));
        let shown: Vec<_> = followed.iter().map(|(size, verified)| format!("{size}: {verified}")).collect();
        println!("{} ({}): {}", kind.name, kind.unit, shown.join(", "));
        let (small, small_verified) = followed[1];
        for (size, verified) in followed {
            let (allowed, asked) =
                (2 * u64::from(small_verified) * size as u64, u64::from(verified) * small as u64);
            assert!(
                size <= small || asked <= allowed,
                "{} {}: {verified} of {small_verified}",
                size,
                kind.unit
            );
        }
    }
}

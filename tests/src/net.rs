//! Pairs of network namespaces connected by a wire, for tests that attach programs to interfaces. Dropping a
//! wire removes everything. Needs root and `ip`.

use std::fs::File;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};

use crate::finish;

/// Two namespaces, each with one end of a veth pair: `left` has 10.9.0.1, `right` has 10.9.0.2.
pub struct Wire {
    left: String,
    right: String,
}

/// Interface name of the left end.
pub const LEFT: &str = "left";
/// Interface name of the right end.
pub const RIGHT: &str = "right";

impl Wire {
    /// Creates a wire with both ends up.
    pub fn new() -> Wire {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks{}n{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let wire = Wire { left: format!("{name}l"), right: format!("{name}r") };
        let (left, right) = (wire.left.as_str(), wire.right.as_str());
        ip(&["netns", "add", left]);
        ip(&["netns", "add", right]);
        ip(&["-n", left, "link", "add", LEFT, "type", "veth", "peer", "name", RIGHT, "netns", right]);
        for (space, end, address) in [(left, LEFT, "10.9.0.1/24"), (right, RIGHT, "10.9.0.2/24")] {
            ip(&["-n", space, "addr", "add", address, "dev", end]);
            ip(&["-n", space, "link", "set", end, "up"]);
            ip(&["-n", space, "link", "set", "lo", "up"]);
        }
        // Static neighbours suppress the kernel's own packets, so that tests count only packets that they
        // send.
        ip(&["-n", left, "neigh", "add", "10.9.0.2", "lladdr", &mac(right, RIGHT), "dev", LEFT]);
        ip(&["-n", right, "neigh", "add", "10.9.0.1", "lladdr", &mac(left, LEFT), "dev", RIGHT]);
        wire
    }

    /// Returns the interface index of the left end in its namespace.
    pub fn index(&self) -> u32 {
        let output = ip(&["-n", &self.left, "-o", "link", "show", LEFT]);
        let number = output.split(':').next().and_then(|number| number.parse().ok());
        number.expect("ip shows the number")
    }

    /// Changes the left end by `ip link set`.
    pub fn set_left(&self, parts: &[&str]) {
        let fixed = ["-n", &self.left, "link", "set", "dev", LEFT];
        ip(&[&fixed, parts].concat());
    }

    /// Returns a command of this build that runs in the left namespace.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", space(&self.left).display())).arg(crate::binary(name));
        command
    }

    /// Returns `ks-host` in the left namespace, with everything allowed.
    pub fn allowed(&self) -> Command {
        let mut host = self.command("ks-host");
        host.args(["--allow", "all"]);
        host
    }

    /// Runs a function in the left namespace, on a thread of its own.
    pub fn in_left<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        inside(&self.left, f)
    }

    /// Runs a function in the right namespace, on a thread of its own.
    pub fn in_right<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        inside(&self.right, f)
    }

    /// Sends this many UDP packets with this many bytes of data from the right end to a port of the left one.
    pub fn send(&self, packets: usize, bytes: usize, port: u16) {
        self.in_right(|| {
            let socket = UdpSocket::bind("10.9.0.2:0").expect("the address is there");
            for _ in 0..packets {
                socket.send_to(&vec![7; bytes], ("10.9.0.1", port)).expect("the wire is up");
            }
        });
    }

    /// Returns the output of `ip -d link show` for the left end.
    pub fn describe_left(&self) -> String {
        ip(&["-n", &self.left, "-d", "link", "show", LEFT])
    }
}

impl Default for Wire {
    fn default() -> Self {
        Wire::new()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A namespace that remains is harmless; a second panic during unwinding would hide the first one's
        // message.
        for space in [&self.left, &self.right] {
            let _ = Command::new("ip").args(["netns", "del", space]).status();
        }
    }
}

fn space(name: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(name)
}

fn inside<R: Send>(name: &str, f: impl FnOnce() -> R + Send) -> R {
    let file = File::open(space(name)).expect("the namespace is there");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(&file, CloneFlags::CLONE_NEWNET).expect("root may enter a namespace");
            f()
        });
        thread.join().expect("what runs in a namespace does not panic")
    })
}

/// Returns the hardware address of an interface.
fn mac(space: &str, interface: &str) -> String {
    let output = ip(&["-n", space, "link", "show", interface]);
    let mut parts = output.split_whitespace().skip_while(|part| *part != "link/ether");
    parts.nth(1).expect("ip shows the address").to_owned()
}

fn ip(parts: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let outcome = finish(Command::new("ip").env("PATH", path).args(parts));
    assert_eq!(outcome.code, 0, "ip {parts:?} (`scripts/packages ip` installs it): {outcome:#?}");
    outcome.stdout
}

//! Known attacks on the sandbox: each wrote to the host's memory, called the kernel, changed another program or
//! reached another target once.
//!
//! | attack | what it did | test |
//! |---|---|---|
//! | `arena_relro`, `arena_heap` | had libbpf map pages over the host's | `objects` |
//! | `oob_write`, `crash_*` | made libbpf write or read outside its memory | `objects` |
//! | `kf` | made libbpf write a call of a kernel function that nobody judged | `objects` |
//! | `wild` | chose names that a written policy took for patterns | `patterns` |
//! | `refctr` | had the kernel read host memory and write to a program | `probes` |
//! | `multi2` | put a breakpoint inside an instruction | `probes` |
//! | `tc` | sent packets to an interface by a test run | `targets` |
//! | `cg` | dropped the packets of every control group | `targets` |
//! | `inner` | took memory that no limit counted | `targets` |
//! | `esc` | controlled the terminal and forged lines | `written`, beside this module |

mod objects;
mod patterns;
mod probes;
mod targets;

use std::path::Path;
use std::process::Command;

use ks_tests::plugins::component;
use ks_tests::refused::{Call, PendingCall, observe};
use ks_tests::{Outcome, binary};
use nix::libc;

use super::contained;

/// Commands of bpf(2) that create something. Source: `enum bpf_cmd` in include/uapi/linux/bpf.h, v6.18.
const MAP_CREATE: u64 = 0;
const PROG_LOAD: u64 = 5;
const BTF_LOAD: u64 = 18;

/// What a command asked the kernel for.
#[derive(Debug, Default)]
struct Trace {
    /// Commands of bpf(2).
    bpf: Vec<u64>,
    /// Addresses below 4 GiB at which memory was mapped: the host and its libraries lie above, so that a plugin chose
    /// them.
    low: Vec<u64>,
}

impl Trace {
    fn creates(&self) -> usize {
        self.bpf.iter().filter(|command| [MAP_CREATE, PROG_LOAD, BTF_LOAD].contains(command)).count()
    }

    fn look(&mut self, pending: &PendingCall) {
        match (pending.kind, pending.args[0]) {
            (0, command) => self.bpf.push(command),
            (_, address) if (1..1 << 32).contains(&address) => self.low.push(address),
            _ => {}
        }
    }
}

/// Runs `ks-host` with these arguments and a file.
fn traced(arguments: &[&str], file: &Path) -> (Outcome, Trace) {
    traced_command(Command::new(binary("ks-host")).args(arguments).arg(file))
}

/// Runs a command that becomes `ks-host`.
fn traced_command(command: &mut Command) -> (Outcome, Trace) {
    let watched =
        [Call { name: "bpf", number: libc::SYS_bpf }, Call { name: "mmap", number: libc::SYS_mmap }];
    let mut trace = Trace::default();
    let outcome = observe(command, &watched, |pending| {
        trace.look(pending);
        None
    });
    let outcome = outcome.expect("the kernel has notifications");
    contained(&outcome);
    (outcome, trace)
}

/// Returns a guest that loads this program, and returns whether that failed, with the reason on standard error.
fn loads(program: &str) -> Vec<u8> {
    component(&format!(
        "(data (i32.const 512) \"{program}\")
         (func (export \"run\") (result i32)
           (call $load (i32.const 512) (i32.const {}) (i32.const 1024))
           (if (i32.load8_u (i32.const 1024)) (then
             (call $warn (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))))
           (i32.load8_u (i32.const 1024)))",
        program.len()
    ))
}

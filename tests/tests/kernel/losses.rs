//! Losses of programs are reported while the plugin runs, even while it waits forever. These tests need root.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ks_compiler::bpf::{Insn, InsnIndex};
use ks_compiler::kernel_version::KernelVersion;
use ks_compiler::object::model::{Instruction, PlainInsn};
use ks_compiler::object::{Object, write};
use ks_compiler::pipeline::Target;
use ks_host::plugin::Plugin;
use ks_tests::plugins;
use ks_tests::plugins::models::program;
use ks_tests::watched::Running;
use ks_tests::{
    Folder, allowed, command, compile, component, finish, is_within, try_compile_for, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A plugin that runs until the test ends, with its messages in a file.
struct WaitingPlugin {
    child: Child,
    messages: PathBuf,
    _folder: Folder,
}

impl WaitingPlugin {
    fn start(plugin: &[u8]) -> WaitingPlugin {
        let folder = Folder::new();
        let (file, messages) = (folder.write("waits.wasm", plugin), folder.path("messages"));
        let stderr = File::create(&messages).expect("writable");
        let child = allowed().arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        WaitingPlugin { child: child.expect("ks-host starts"), messages, _folder: folder }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.messages).expect("it was made")
    }

    /// Waits until a message contains this text, while the plugin keeps running.
    fn until(&mut self, text: &str) {
        let has = || self.said().contains(text);
        assert!(is_within(Duration::from_secs(30), has), "no `{text}` in {}", self.said());
        assert_eq!(self.child.try_wait().expect("it is ours"), None, "{}", self.said());
    }
}

impl Drop for WaitingPlugin {
    fn drop(&mut self) {
        // It may have ended, and then the test fails anyway.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT);
        let _ = self.child.wait();
    }
}

#[test]
fn root_losses_are_reported_while_a_plugin_waits() {
    let script = include_str!("scripts/losses_while_it_waits.ks");
    let mut waiting = WaitingPlugin::start(&compile("waits", script).plugin);
    waiting.until("map `few`: ");
    waiting.until("ring buffer `events`: ");
    waiting.until(" lines that programs printed were lost");
}

#[test]
fn root_hits_that_the_kernel_skips_are_reported_while_a_plugin_waits() {
    let script = include_str!("scripts/losses_skipped.ks");
    let mut waiting = WaitingPlugin::start(&compile("waits", script).plugin);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !waiting.said().contains("were skipped by the kernel") && Instant::now() < deadline {
        nix::unistd::getresgid().expect("it has them");
    }
    waiting.until("were skipped by the kernel");
}

/// The report names the line of each form of loop, on kernels with iterators and in the form for kernels
/// without.
#[test]
fn root_a_cut_loop_is_named_while_a_plugin_waits() {
    let forms = [(1, 18), (2, 22), (3, 28), (4, 10)];
    for kernel in [None, Some(KernelVersion::new(6, 1))] {
        for (form, line) in forms {
            let script = include_str!("scripts/losses_cut_loops.ks").replace("FORM", &form.to_string());
            let target = Target { kernel, ..Target::default() };
            let built = try_compile_for("waits", &script, target).unwrap_or_else(|errors| panic!("{errors}"));
            let mut waiting = WaitingPlugin::start(&built.plugin);
            waiting.until(&format!(
                "of program `fault` ended by a fault: the loop in line {line} reached its limit of 8388608 \
                 iterations"
            ));
        }
    }
}

#[test]
fn root_a_loss_is_reported_at_most_once_a_second() {
    let began = Instant::now();
    let script = include_str!("scripts/losses_again_and_again.ks");
    let running = Running::start("again", script, &[] as &[&str]);
    std::thread::sleep(Duration::from_millis(3500));
    let outcome = running.stop();
    let seconds = began.elapsed().as_secs() as usize;
    let reports = outcome.stderr.lines().filter(|line| line.contains("map `few`: ")).count();
    // One report at once, one per second, and one for the rest.
    assert!((2..=seconds + 3).contains(&reports), "{outcome:#?}");
}

/// The plugin's own counters would count wake-ups.
#[test]
fn root_a_plugin_that_loses_nothing_is_not_woken() {
    let folder = Folder::new();
    let script = include_str!("scripts/losses_none.ks");
    let file = folder.write("sleeper.wasm", compile("sleeper", script).plugin);
    let mut host = allowed();
    let mut child = host.arg(file).stdout(Stdio::null()).spawn().expect("ks-host starts");
    let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
    let thread = || {
        let threads = fs::read_dir(&tasks).ok()?.flatten().map(|entry| entry.path());
        let is_plugin = |thread: &PathBuf| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("ks:"))
        };
        threads.into_iter().find(is_plugin)
    };
    let waits = || {
        let thread = thread()?;
        let status = fs::read_to_string(thread.join("status")).ok()?;
        let number =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        number("voluntary_ctxt_switches:")
    };
    let mut last = None;
    // The plugin waits if nothing changes for a while.
    wait_until(Duration::from_secs(30), "it waits", || {
        let before = std::mem::replace(&mut last, waits());
        std::thread::sleep(Duration::from_millis(500));
        last.is_some() && before == last
    });
    std::thread::sleep(Duration::from_millis(3500));
    let after = waits();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it is ours");
    child.wait().expect("it is ours");
    assert_eq!(after, last);
}

#[test]
fn loops_of_foreign_objects_are_named_with_their_limit() {
    let script = "var one: u32 = 1\n@perf_event fn spin(ctx: *bpf_perf_event_data) -> i32 {\n \
                  while (one != 0) { }\n \
                  return 0\n}\nfn main() -> i32 { load(spin)\n return 0 }";
    let built = compile("spins", script);
    let inspect = |plugin: &[u8]| {
        let folder = Folder::new();
        finish(command("ks-host").arg("inspect").arg(folder.write("p.wasm", plugin)))
    };
    let own = inspect(&built.plugin);
    assert!(own.code == 0 && !own.stdout.contains("8388608"), "{own:#?}");
    let objects = Plugin::from_bytes(built.plugin).expect("a plugin").objects().to_vec();
    let core = "(module (memory (export \"memory\") 1) (func (export \"run\") (result i32) (i32.const 0)))";
    let foreign = inspect(&component("foreign", core, &objects).expect("it fits the world"));
    let limit = "refuses more than 8388608 iterations and runs none";
    assert!(foreign.stdout.contains(limit), "{foreign:#?}");
}

/// The other forms of such loops, in objects made by hand: a call of `bpf_loop`, and `may_goto`.
#[test]
fn loops_of_foreign_objects_are_named_in_each_form() {
    const BPF_LOOP: u32 = 181;
    let inspect = |object: &Object| {
        let folder = Folder::new();
        let guest = plugins::component("(func (export \"run\") (result i32) (i32.const 0))");
        let plugin = plugins::with_object(guest, write(object).expect("a sound object"));
        finish(command("ks-host").arg("inspect").arg(folder.write("p.wasm", plugin)))
    };
    let mut leaving = program("perf_event", &[]);
    let jump = PlainInsn::new(Insn::MayGoto { target: InsnIndex(1) }).expect("a plain instruction");
    leaving.programs[0].body.code.insert(0, Instruction::Plain(jump));
    for (object, said) in [
        (program("perf_event", &[BPF_LOOP]), "bpf_loop refuses more than 8388608 iterations and runs none"),
        (leaving, "may_goto leaves a loop after 8388608 iterations, on newer kernels after 250 ms"),
    ] {
        let outcome = inspect(&object);
        assert!(outcome.code == 0 && outcome.stdout.contains(said), "{outcome:#?}");
    }
    let none = inspect(&program("perf_event", &[]));
    assert!(none.code == 0 && !none.stdout.contains("8388608"), "{none:#?}");
}

//! Plugins for tests: components from core modules in text form, and minimal BPF objects.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ks_host::plugin::{Outcome, Plugin};
use ks_host::policy::{Admitted, ObjectSet, Policy, Request};
use ks_host::{Host, RunOptions};
use ks_wit::section::{self, Arch, BpfRecord};
use wit_component::{ComponentEncoder, StringEncoding};

pub mod elf;
pub mod models;

/// The common part of every guest: memory, a bump allocator, and a result area. `{imports}` and `{body}` are
/// filled in.
///
/// Results are written at 1024; the heap starts at 4096.
const GUEST: &str = r#"(module
  {imports}
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  {body})"#;

/// Imports under short names: the canonical ABI of the contract in text form.
pub const IMPORTS: &str = r#"
  (import "kernelscript:host/console@0.2.0" "print" (func $print (param i32 i32 i32 i32)))
  (import "kernelscript:host/console@0.2.0" "warn" (func $warn (param i32 i32)))
  (import "kernelscript:host/console@0.2.0" "warn-once" (func $warn_once (param i64 i32 i32)))
  (import "kernelscript:host/console@0.2.0" "abort" (func $abort (param i32 i32)))
  (import "kernelscript:host/args@0.2.0" "exit" (func $exit (param i32)))
  (import "kernelscript:host/clock@0.2.0" "boottime" (func $boottime (result i64)))
  (import "kernelscript:host/clock@0.2.0" "sleep" (func $sleep (param i64 i32)))
  (import "kernelscript:host/clock@0.2.0" "stopping" (func $stopping (result i32)))
  (import "kernelscript:host/bpf@0.2.0" "[static]program.load" (func $load (param i32 i32 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach" (func $attach (param i32 i64 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-raw-tracepoint" (func $attach_raw_tracepoint (param i32 i32 i32 i64 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-tracepoint" (func $attach_tracepoint (param i32 i32 i32 i64 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-uprobe" (func $attach_uprobe (param i32 i32 i32 i32 i32 i64 i32 i32 i64 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-tc" (func $attach_tc (param i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-xdp" (func $attach_xdp (param i32 i32 i32 i32 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-cgroup" (func $attach_cgroup (param i32 i32 i32 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-kprobe" (func $attach_kprobe (param i32 i32 i32 i64 i64 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.attach-socket-filter" (func $attach_socket_filter (param i32 i32 i32 i32)))
  (import "kernelscript:host/bpf@0.2.0" "[method]program.detach-all" (func $detach_all (param i32)))
  (import "kernelscript:host/globals@0.2.0" "[static]variable.open" (func $variable (param i32 i32 i32)))
  (import "kernelscript:host/globals@0.2.0" "[method]variable.get" (func $get (param i32) (result i64)))
  (import "kernelscript:host/globals@0.2.0" "[method]variable.set" (func $set (param i32 i64 i32)))
  (import "kernelscript:host/perf@0.2.0" "[static]event.named" (func $event (param i32 i32 i32)))
  (import "kernelscript:host/perf@0.2.0" "[constructor]options" (func $options (result i32)))
  (import "kernelscript:host/perf@0.2.0" "[method]options.set-period" (func $set_period (param i32 i64)))
  (import "kernelscript:host/perf@0.2.0" "[method]options.set-exclude-kernel" (func $set_exclude_kernel (param i32 i32)))
  (import "kernelscript:host/perf@0.2.0" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
  (import "kernelscript:host/perf@0.2.0" "[method]attachment.read" (func $read (param i32 i32)))
  (import "kernelscript:host/perf@0.2.0" "[resource-drop]attachment" (func $drop_attachment (param i32)))
"#;

/// Functions for guests that open an event on their own thread.
pub const OWN_EVENT: &str = r#"
  (data (i32.const 512) "page-faults")
  ;; The handle of a result<own, error> at 1024; ends with its message if it is an error.
  (func $ok (result i32)
    (if (i32.load8_u (i32.const 1024))
      (then (call $abort (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))))
    (i32.load (i32.const 1028)))
  ;; Page faults of this thread on any CPU, with this program if the first number is 1.
  (func $own_page_faults (param $has i32) (param $program i32) (result i32)
    (local $event i32) (local $options i32)
    (call $event (i32.const 512) (i32.const 11) (i32.const 1024))
    (local.set $event (call $ok))
    (local.set $options (call $options))
    (call $set_period (local.get $options) (i64.const 1))
    ;; What every user may count.
    (call $set_exclude_kernel (local.get $options) (i32.const 1))
    (call $open (local.get $event) (local.get $options) (i32.const 0) (i32.const 0)
      (local.get $has) (local.get $program) (i32.const 1024))
    (call $ok))
  ;; Touches 64 fresh pages of memory.
  (func $fault
    (local $page i32)
    (local.set $page (i32.mul (memory.grow (i32.const 4)) (i32.const 65536)))
    (loop $next
      (i32.store (local.get $page) (i32.const 1))
      (local.set $page (i32.add (local.get $page) (i32.const 4096)))
      (br_if $next (i32.lt_u (local.get $page) (i32.mul (memory.size) (i32.const 65536))))))
"#;

/// A guest that prints the nanoseconds since the boot.
pub const PRINTS_BOOTTIME: &str = r#"
  (data (i32.const 16) "%u")
  (func (export "run") (result i32)
    ;; One value: discriminant 3 (unsigned64) at 128, the number at 136.
    (i32.store8 (i32.const 128) (i32.const 3))
    (i64.store (i32.const 136) (call $boottime))
    (call $print (i32.const 16) (i32.const 2) (i32.const 128) (i32.const 1))
    (i32.const 0))
"#;

/// Address at which guests return the result of `run`: 2 bytes before the results of host calls.
const RUN_RESULT: u32 = 1016;

/// Makes the function `run` of a module's text, which returns an exit code, one that returns the result of the
/// contract: success for 0, else the code as the error.
#[must_use]
pub fn with_exit_code(module: &str) -> String {
    const RUN: &str = "(func (export \"run\") (result i32)";
    let Some(end) = module.rfind(')').filter(|_| module.contains(RUN)) else { return module.to_owned() };
    let own = module[..end].replacen(RUN, "(func $run_code (result i32)", 1);
    format!(
        "{own}\n{RUN} (local $exit_code i32)
          (local.set $exit_code (call $run_code))
          (i32.store8 (i32.const {RUN_RESULT}) (i32.ne (local.get $exit_code) (i32.const 0)))
          (i32.store8 offset=1 (i32.const {RUN_RESULT}) (local.get $exit_code))
          (i32.const {RUN_RESULT})){}",
        &module[end..]
    )
}

/// Returns a component of world `plugin` from the text of a guest's functions, which must include `run`.
pub fn component(body: &str) -> Vec<u8> {
    let text = with_exit_code(&GUEST.replace("{imports}", IMPORTS).replace("{body}", body));
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut resolve = wit_parser::Resolve::default();
    let mut files = wit_parser::SourceMap::new();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let files = files.parse().map_err(|(_, error)| error).expect("the contract parses");
    let package = resolve.push_group(files).expect("the contract resolves");
    let world = resolve.select_world(&[package], Some("plugin")).expect("the world is there");
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the module takes the metadata");
    ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(true).encode())
        .unwrap_or_else(|error| panic!("{error:#}"))
}

/// Returns a plugin file with a component and a BPF object.
pub fn with_object(component: Vec<u8>, elf: Vec<u8>) -> Vec<u8> {
    let record = BpfRecord { name: "test".into(), arch: Arch::Any, elf };
    let mut data = Vec::new();
    section::push_record(&mut data, &record.to_bytes());
    with_section(component, section::BPF, &data)
}

/// Admits an object with everything allowed; the error is the reason for a refusal.
pub fn admitted(name: &str, elf: &[u8]) -> Result<Admitted, String> {
    let record = BpfRecord { name: name.into(), arch: Arch::Any, elf: elf.to_vec() };
    let objects = ObjectSet::read(&[record], Some(0)).map_err(|error| error.to_string())?;
    let admitted = Policy::everything().admit(Request::new(objects, &[]), 1)?;
    Ok(admitted.expect("there is one"))
}

/// Appends a custom section to a component.
pub fn with_section(mut component: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = vec![u8::try_from(name.len()).expect("short name")];
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(data);
    component.push(0);
    let mut len = body.len();
    while len >= 0x80 {
        component.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    component.push(len as u8);
    component.extend_from_slice(&body);
    component
}

/// The result of a plugin's run.
#[derive(Debug)]
pub struct RunOutput {
    /// The plugin's exit code, or the reason why it was ended.
    pub outcome: Outcome,
    /// The captured standard output.
    pub stdout: String,
    /// The captured standard error.
    pub stderr: String,
}

/// Runs a plugin with captured output and options that `change` adjusts.
pub fn run_with(file: Vec<u8>, change: impl FnOnce(&mut RunOptions)) -> RunOutput {
    run_on(&Host::new().expect("an engine"), file, change)
}

/// Runs a plugin like [`run_with`], on this host.
pub fn run_on(host: &Host, file: Vec<u8>, change: impl FnOnce(&mut RunOptions)) -> RunOutput {
    let plugin = Plugin::from_bytes(file).expect("a plugin");
    let prepared = host.prepare(&plugin).unwrap_or_else(|error| panic!("{error}"));
    let (stdout, stderr) = (Capture::default(), Capture::default());
    let mut options = RunOptions {
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(stderr.clone()),
        policy: Policy::everything(),
        // Only ends a plugin that hangs; no test depends on the value.
        timeout: Some(Duration::from_secs(60)),
        ..RunOptions::new("test.wasm")
    };
    change(&mut options);
    let outcome = prepared.run(options);
    RunOutput { outcome, stdout: stdout.text(), stderr: stderr.text() }
}

/// Runs a guest of these functions.
pub fn run(body: &str) -> RunOutput {
    run_with(component(body), |_| {})
}

/// A writer that keeps its input; clones share one buffer.
#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    /// Returns everything written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no writer panics")).into_owned()
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

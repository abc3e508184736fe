//! Plugin files that count page faults of their own thread, for the benches of starts and of many plugins.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use ks_compiler::pipeline::{self, Built, Options, Target};

/// Returns a script without a kernel half. The statements of `then` follow the attachment, whose name is
/// `faults`.
pub fn counting(then: &str) -> String {
    format!(
        "fn main() -> i32 {{\n    \
             var faults = attach(perf_options {{ event: page_faults, pid: 0, cpu: -1 }})\n    \
             {then}\n    \
             return 0\n\
         }}\n"
    )
}

/// Returns the same script with a program, which runs at every hundred millionth fault.
pub fn with_program(then: &str) -> String {
    format!(
        "var hits : u64 = 0\n\
         @perf_event\n\
         fn on_fault(ctx: *bpf_perf_event_data) -> i32 {{\n    \
             hits += 1\n    \
             return 0\n\
         }}\n\
         fn main() -> i32 {{\n    \
             var program = load(on_fault)\n    \
             var options = perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 100000000 }}\n    \
             var faults = attach(program, options, 0)\n    \
             {then}\n    \
             return 0\n\
         }}\n"
    )
}

/// Compiles a script to `NAME.wasm` in a folder, as `ks build` does.
///
/// # Errors
/// If the script has errors, or the file cannot be written.
pub fn build(folder: &Path, name: &str, script: &str) -> Result<PathBuf> {
    let file = folder.join(name).with_extension("wasm");
    std::fs::write(&file, compile(name, script)?.plugin)?;
    Ok(file)
}

/// Returns the BPF object of a script.
///
/// # Errors
/// If the script has errors, or no kernel half.
pub fn object(script: &str) -> Result<Vec<u8>> {
    let built = compile("object", script)?;
    let (_, object) = built.objects.first().context("the script has a kernel half")?;
    Ok(object.elf().to_vec())
}

fn compile(name: &str, script: &str) -> Result<Built> {
    let mut checked = pipeline::parse(&format!("{name}.ks"), script.as_bytes(), Options::new(name))?.check();
    let built = checked.build(Target::default().for_users());
    built.map_err(|_| anyhow!("{name}.ks has errors: {:?}", checked.diagnostics))
}

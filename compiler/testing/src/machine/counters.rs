//! Emulated counters: every reading of each is the same.

use wasmi::{Caller, Linker};

use super::{Machine, note, text, write};

/// The reading of an emulated counter: the raw count, and the scaled count if the event ever ran.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    pub raw: u64,
    pub scaled: Option<u64>,
}

/// The single handle of events, options and attachments: no script here has two.
const HANDLE: u32 = 1;

pub(super) fn define(linker: &mut Linker<Machine>) {
    let perf = "kernelscript:host/perf@0.1.0";
    let numbered = |mut caller: Caller<'_, Machine>, _: u32, _: u64, result: u32| open(&mut caller, result);
    linker.func_wrap(perf, "[static]event.numbered", numbered).expect("new");
    linker.func_wrap(perf, "[constructor]options", |_: Caller<'_, Machine>| HANDLE).expect("new");
    for setter in ["pid", "cpu", "wakeup", "inherit", "exclude-kernel", "exclude-user"] {
        let name = format!("[method]options.set-{setter}");
        linker.func_wrap(perf, &name, |_: Caller<'_, Machine>, _: u32, _: u32| {}).expect("new");
    }
    let period = |_: Caller<'_, Machine>, _: u32, _: u64| {};
    linker.func_wrap(perf, "[method]options.set-period", period).expect("new");
    for resource in ["event", "options", "attachment"] {
        let name = format!("[resource-drop]{resource}");
        linker.func_wrap(perf, &name, |_: Caller<'_, Machine>, _: u32| {}).expect("new");
    }
    let name = |mut caller: Caller<'_, Machine>, _: u32, result: u32| write(&mut caller, result, &[0; 8]);
    linker.func_wrap(perf, "[method]event.name", name).expect("new");
    let open = |mut caller: Caller<'_, Machine>, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, result| {
        open(&mut caller, result);
    };
    linker.func_wrap(perf, "open", open).expect("new");
    linker.func_wrap(perf, "[method]attachment.id", |_: Caller<'_, Machine>, _: u32| 7_u64).expect("new");
    let read = |mut caller: Caller<'_, Machine>, _: u64, result: u32| read(&mut caller, result);
    linker.func_wrap(perf, "read-by-id", read).expect("new");
    let warn_once = |mut caller: Caller<'_, Machine>, key: u64, message: u32, len: u32| {
        let message = text(&caller, message, len);
        note(&mut caller, format!("warn-once {key} {message}"));
    };
    linker.func_wrap("kernelscript:host/console@0.1.0", "warn-once", warn_once).expect("new");
}

fn open(caller: &mut Caller<'_, Machine>, result: u32) {
    write(caller, result, &[0]);
    write(caller, result + 4, &HANDLE.to_le_bytes());
}

/// Writes a reading as the result: the counts, then both times, the state and whether it is partial.
fn read(caller: &mut Caller<'_, Machine>, result: u32) {
    let Reading { raw, scaled } = caller.data().reading;
    write(caller, result, &[0; 56]);
    write(caller, result + 8, &raw.to_le_bytes());
    write(caller, result + 16, &[scaled.is_some().into()]);
    write(caller, result + 24, &scaled.unwrap_or_default().to_le_bytes());
}

//! Emulated counters, which always return the same reading.

use ks_compiler::plugin::contract::import;
use wasmi::{Caller, Linker};

use super::{Machine, define_call, define_drop, note, text, write};

/// The reading of an emulated counter: the raw count, and the scaled count if the event ever ran.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    pub raw: u64,
    pub scaled: Option<u64>,
}

/// The handle of every event, all options and every attachment: scripts of these tests have one of each.
const HANDLE: u32 = 1;

pub(super) fn define(linker: &mut Linker<Machine>) {
    let numbered = |mut caller: Caller<'_, Machine>, _: u32, _: u64, result: u32| open(&mut caller, result);
    define_call(linker, import::perf::EVENT_NUMBERED, numbered);
    define_call(linker, import::perf::OPTIONS_NEW, |_: Caller<'_, Machine>| HANDLE);
    for setter in [
        import::perf::OPTIONS_OBSERVE_TASK,
        import::perf::OPTIONS_ON_CPU,
        import::perf::OPTIONS_SET_INHERIT,
        import::perf::OPTIONS_SET_EXCLUDE_KERNEL,
        import::perf::OPTIONS_SET_EXCLUDE_USER,
    ] {
        define_call(linker, setter, |_: Caller<'_, Machine>, _: u32, _: u32| {});
    }
    for method in [
        import::perf::OPTIONS_OBSERVE_OWN_THREAD,
        import::perf::OPTIONS_OBSERVE_EVERY_TASK,
        import::perf::OPTIONS_ON_ANY_CPU,
    ] {
        define_call(linker, method, |_: Caller<'_, Machine>, _: u32| {});
    }
    let period = |_: Caller<'_, Machine>, _: u32, _: u64| {};
    define_call(linker, import::perf::OPTIONS_SET_PERIOD, period);
    for resource in [import::perf::EVENT, import::perf::OPTIONS, import::perf::ATTACHMENT] {
        define_drop(linker, resource, |_: Caller<'_, Machine>, _: u32| {});
    }
    let name = |mut caller: Caller<'_, Machine>, _: u32, result: u32| write(&mut caller, result, &[0; 8]);
    define_call(linker, import::perf::EVENT_NAME, name);
    let open = |mut caller: Caller<'_, Machine>, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, result| {
        open(&mut caller, result);
    };
    define_call(linker, import::perf::OPEN, open);
    define_call(linker, import::perf::ATTACHMENT_ID, |_: Caller<'_, Machine>, _: u32| 7_u64);
    let read = |mut caller: Caller<'_, Machine>, _: u64, result: u32| read(&mut caller, result);
    define_call(linker, import::perf::READ_BY_ID, read);
    let warn_once = |mut caller: Caller<'_, Machine>, key: u64, message: u32, len: u32| {
        let message = text(&caller, message, len);
        note(&mut caller, format!("warn-once {key} {message}"));
    };
    define_call(linker, import::console::WARN_ONCE, warn_once);
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

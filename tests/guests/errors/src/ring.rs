//! The interface `ring`: rings of the object, and the batches of one into which the program `emit` has put a record.

use ks_guest::bindings::kernelscript::host::bpf::{Program, TestInput};
use ks_guest::bindings::kernelscript::host::perf::{self, Event, Options};
use ks_guest::bindings::kernelscript::host::ring::{Batch, Ring, poll};

use crate::{Answer, abort, begin, prepared, until_refused};

pub fn answer(function: &str, words: &[&str]) -> Answer {
    match (function, words) {
        ("ring.open", [name]) => {
            begin();
            Ring::open(name).map(drop)
        }
        ("ring.open", [name, "many"]) => until_refused(|| Ring::open(name)),
        ("ring.open-perf-event-array", [name, bytes, unusual @ ..]) => {
            let Ok(bytes) = bytes.parse() else { return abort("no number") };
            open_array(name, bytes, unusual)
        }
        ("poll", words) => polled(words),
        ("batch.put-back", [what]) => put_back(what),
        _ => abort(&format!("no way to call `{function}`: {words:?}")),
    }
}

fn open_array(name: &str, bytes: u32, unusual: &[&str]) -> Answer {
    let open = || Ring::open_perf_event_array(name, bytes);
    let _published = (unusual == ["published"]).then(|| {
        let options = Options::new();
        options.observe_every_task();
        options.on_cpu(0);
        let attachment = prepared(perf::open(&prepared(Event::named("page_faults")), &options, None, None));
        prepared(attachment.publish(name));
        attachment
    });
    if unusual == ["many"] {
        return until_refused(open);
    }
    begin();
    open().map(drop)
}

/// The words say what is unusual of a call that waits for records of an empty ring.
fn polled(words: &[&str]) -> Answer {
    let ring = prepared(Ring::open("records"));
    match words {
        [] => {
            begin();
            poll(&[&ring], None, 1 << 16).map(drop)
        }
        ["many"] => until_refused(|| poll(&[&ring], Some(0), 1 << 16)),
        ["many-rings"] => poll(&[&ring; 1025], Some(0), 1 << 16).map(drop),
        ["small-room"] => {
            emit();
            poll(&[&ring], None, 8).map(drop)
        }
        _ => abort(&format!("no way to poll: {words:?}")),
    }
}

fn put_back(what: &str) -> Answer {
    let ring = prepared(Ring::open("records"));
    emit();
    let (batch, records): (Batch, Vec<u8>) = prepared(poll(&[&ring], None, 1 << 16));
    match what {
        "all" => batch.put_back(&records),
        "half" => batch.put_back(&records[..records.len() / 2]),
        "twice" => {
            prepared(batch.put_back(&records));
            batch.put_back(&records)
        }
        _ => abort(&format!("no way to put back `{what}`")),
    }
}

/// Puts one record into the ring `records`.
fn emit() {
    prepared(prepared(Program::load("emit")).test_run(&TestInput::new()));
}

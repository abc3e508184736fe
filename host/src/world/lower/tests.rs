//! What is written as a whole, compared byte by byte with what generated bindings write.

use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::super::bindings::kernelscript::host::perf::{GroupReading, Reading};
use super::super::bindings::kernelscript::host::types::Error;
use super::super::perf::{group_reading, one_reading};
use super::{Entries, Whole};
use crate::perf::{self, AttachmentId, GroupEntry, Snapshot, State};

/// Each answer in both forms.
const ANSWERS: &str = "
package test:lower;
interface answers {
  use kernelscript:host/types@0.2.0.{error};
  use kernelscript:host/perf@0.2.0.{reading, group-reading};
  whole-reading: func() -> result<reading, error>;
  bound-reading: func() -> result<reading, error>;
  whole-snapshot: func() -> result<group-reading, error>;
  bound-snapshot: func() -> result<group-reading, error>;
  whole-readings: func() -> result<list<reading>, error>;
  bound-readings: func() -> result<list<reading>, error>;
  whole-records: func() -> list<u8>;
  bound-records: func() -> list<u8>;
}
world asks {
  import answers;
  export ask: func(function: u32) -> list<u8>;
}
";

const FUNCTIONS: [&str; 8] = [
    "whole-reading",
    "bound-reading",
    "whole-snapshot",
    "bound-snapshot",
    "whole-readings",
    "bound-readings",
    "whole-records",
    "bound-records",
];

/// Returns a guest that calls a function by its number, on zeroed memory, and returns everything that was
/// written: the result at 1024, then what was allocated.
fn guest() -> Vec<u8> {
    let imports: String = FUNCTIONS
        .iter()
        .map(|name| format!("(import \"test:lower/answers\" \"{name}\" (func ${name} (param i32)))\n"))
        .collect();
    let names: String = FUNCTIONS.iter().map(|name| format!(" ${name}")).collect();
    let module = format!(
        r#"(module {imports}
        (type $answer (func (param i32)))
        (table 8 funcref)
        (elem (i32.const 0){names})
        (memory (export "memory") 2)
        (global $free (mut i32) (i32.const 2048))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
          (global.get $free)
          (global.set $free (i32.add (global.get $free) (local.get 3))))
        (func (export "ask") (param i32) (result i32)
          (memory.fill (i32.const 0) (i32.const 0) (i32.const 131072))
          (global.set $free (i32.const 2048))
          (call_indirect (type $answer) (i32.const 1024) (local.get 0))
          (i32.store (i32.const 16) (i32.const 1024))
          (i32.store (i32.const 20) (i32.sub (global.get $free) (i32.const 1024)))
          (i32.const 16)))"#
    );
    let mut resolve = Resolve::default();
    resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../wit")).expect("the contract is sound");
    let package = resolve.push_str("answers.wit", ANSWERS).expect("the text is sound");
    let world = resolve.select_world(&[package], Some("asks")).expect("the world is there");
    let mut module = wat::parse_str(module).expect("the module is sound");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("it fits");
    let encoder = ComponentEncoder::default().module(&module).expect("it is a module");
    encoder.validate(true).encode().expect("it fits the world")
}

/// What the functions answer.
struct Answers {
    reading: perf::Reading,
    snapshot: Snapshot,
    readings: Vec<perf::Reading>,
    records: Vec<Vec<u8>>,
}

impl Answers {
    fn entries(&self) -> Entries {
        let mut entries = Entries::default();
        for (position, record) in (0..).zip(&self.records) {
            entries.add_kept(position, record.clone());
        }
        entries
    }

    /// The same as `wit/ring.wit` describes it.
    fn described(&self) -> Vec<u8> {
        let entry = |(position, record): (u32, &Vec<u8>)| {
            let padding = record.len().next_multiple_of(8) - record.len();
            let head = [position.to_le_bytes(), (record.len() as u32).to_le_bytes()].concat();
            [head, record.clone(), vec![0; padding]].concat()
        };
        (0..).zip(&self.records).flat_map(entry).collect()
    }
}

fn linker(engine: &Engine) -> Linker<Answers> {
    let mut linker: Linker<Answers> = Linker::new(engine);
    for interface in ["types", "perf"] {
        linker.instance(&format!("kernelscript:host/{interface}@0.2.0")).expect("it is new");
    }
    let mut answers = linker.instance("test:lower/answers").expect("it is new");
    let mut link = || {
        answers.func_wrap("whole-reading", |store, (): ()| Ok((Whole(Ok(store.data().reading)),)))?;
        answers.func_wrap("bound-reading", |store, (): ()| {
            Ok((Ok::<Reading, Error>(one_reading(store.data().reading)),))
        })?;
        answers
            .func_wrap("whole-snapshot", |store, (): ()| Ok((Whole(Ok(store.data().snapshot.clone())),)))?;
        answers.func_wrap("bound-snapshot", |store, (): ()| {
            let snapshot = group_reading(store.data().snapshot.clone()).expect("it fits");
            Ok((Ok::<GroupReading, Error>(snapshot),))
        })?;
        answers
            .func_wrap("whole-readings", |store, (): ()| Ok((Whole(Ok(store.data().readings.clone())),)))?;
        answers.func_wrap("bound-readings", |store, (): ()| {
            let readings = store.data().readings.iter().copied().map(one_reading).collect();
            Ok((Ok::<Vec<Reading>, Error>(readings),))
        })?;
        answers.func_wrap("whole-records", |store, (): ()| Ok((store.data().entries(),)))?;
        answers.func_wrap("bound-records", |store, (): ()| Ok((store.data().described(),)))
    };
    link().expect("each name is new");
    linker
}

/// Returns answers that differ in every field.
fn answers(number: u64, state: State, entries: u64) -> Answers {
    let some = |of: u64| (!of.is_multiple_of(3)).then_some(of << 33 | 7);
    let reading = |of: u64| perf::Reading {
        raw: of << 40 | 0x0102_0304,
        scaled: some(of),
        saturated: false,
        time_enabled: of << 20 | 5,
        time_running: of << 10 | 6,
        state,
        partial: of.is_multiple_of(2),
    };
    let entry = |at: u64| GroupEntry {
        id: AttachmentId::of(number + at),
        kernel_id: number << 32 | at,
        raw: at << 50 | number,
        scaled: some(at),
    };
    Answers {
        reading: reading(number),
        snapshot: Snapshot {
            time_enabled: number << 8,
            time_running: number,
            state,
            partial: number.is_multiple_of(2),
            own: entries.saturating_sub(1) as usize,
            entries: (0..entries).map(entry).collect(),
        },
        readings: (0..entries).map(reading).collect(),
        records: (0..entries).map(|len| vec![len as u8; len as usize]).collect(),
    }
}

#[test]
fn each_byte_is_that_of_generated_bindings() {
    let engine = Engine::default();
    let component = Component::new(&engine, guest()).expect("it compiles");
    let linker = linker(&engine);
    let states = [State::Counted, State::Multiplexed, State::NeverRan, State::Idle];
    for (number, (entries, state)) in
        (1..).zip((0..=64).flat_map(|entries| states.map(|state| (entries, state))))
    {
        let mut store = Store::new(&engine, answers(number, state, entries));
        let instance = linker.instantiate(&mut store, &component).expect("it links");
        let ask = instance.get_typed_func::<(u32,), (Vec<u8>,)>(&mut store, "ask").expect("it has it");
        let mut written = |function: usize| {
            let (bytes,) = ask.call(&mut store, (function as u32,)).expect("it answers");
            bytes
        };
        for function in (0..FUNCTIONS.len()).step_by(2) {
            let (whole, bound) = (written(function), written(function + 1));
            assert!(whole.iter().any(|byte| *byte != 0), "{} of {entries}", FUNCTIONS[function]);
            assert!(whole == bound, "{} of {entries} {state:?}", FUNCTIONS[function]);
        }
    }
}

//! An interpreter for core modules with just enough of the host to see what a script prints and how it ends.

use wasmi::{Caller, Config, Engine, Extern, Linker, Memory, Module, Store};

/// A printed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number: the name of its case, and its bits without sign extension.
    Number(&'static str, u64),
    /// Text.
    Text(String),
}

/// How a run ended, and what it said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The result of `run`, or the code given to `exit`; none after a trap.
    pub code: Option<i32>,
    /// The values of each `print`; its format if there are none.
    pub printed: Vec<Vec<Value>>,
    /// The message of `abort`.
    pub aborted: Option<String>,
}

/// The cases of the contract's `value`, in order.
const CASES: [&str; 12] =
    ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "bool", "char", "text", "pointer"];

fn memory(caller: &Caller<'_, Outcome>) -> Memory {
    caller.get_export("memory").and_then(Extern::into_memory).expect("the module exports its memory")
}

fn bytes(caller: &Caller<'_, Outcome>, address: u32, len: u32) -> Vec<u8> {
    let mut out = vec![0; len as usize];
    memory(caller).read(caller, address as usize, &mut out).expect("inside the memory");
    out
}

fn text(caller: &Caller<'_, Outcome>, address: u32, len: u32) -> String {
    String::from_utf8(bytes(caller, address, len)).expect("the tests print UTF-8")
}

fn value(caller: &Caller<'_, Outcome>, address: u32) -> Value {
    let raw = bytes(caller, address, 16);
    let number = |at: usize, len: usize| {
        let mut out = [0; 8];
        out[..len].copy_from_slice(&raw[at..at + len]);
        u64::from_le_bytes(out)
    };
    let case = CASES[usize::from(raw[0])];
    match case {
        "text" => Value::Text(text(caller, number(8, 4) as u32, number(12, 4) as u32)),
        "u8" | "i8" | "bool" | "char" => Value::Number(case, number(8, 1)),
        "u16" | "i16" => Value::Number(case, number(8, 2)),
        "u32" | "i32" => Value::Number(case, number(8, 4)),
        _ => Value::Number(case, number(8, 8)),
    }
}

fn print(mut caller: Caller<'_, Outcome>, format: u32, len: u32, values: u32, count: u32) {
    let mut line: Vec<_> = (0..count).map(|index| value(&caller, values + 16 * index)).collect();
    if line.is_empty() {
        line.push(Value::Text(text(&caller, format, len)));
    }
    caller.data_mut().printed.push(line);
}

fn abort(mut caller: Caller<'_, Outcome>, address: u32, len: u32) {
    let message = text(&caller, address, len);
    caller.data_mut().aborted = Some(message);
}

/// Runs a core module that uses nothing but `print` and the words, of which there are none.
pub fn run(core: &[u8]) -> Outcome {
    let engine = Engine::new(&Config::default());
    let module = Module::new(&engine, core).expect("a valid module");
    let mut store = Store::new(&engine, Outcome::default());
    let mut linker = Linker::new(&engine);
    let console = "kernelscript:host/console@0.1.0";
    let args = "kernelscript:host/args@0.1.0";
    linker.func_wrap(console, "print", print).expect("new");
    linker.func_wrap(console, "abort", abort).expect("new");
    // The result's memory is zero: the case with the values, of which there are none.
    linker.func_wrap(args, "parse", |_: u32, _: u32, _: u32| {}).expect("new");
    let exit = |mut caller: Caller<'_, Outcome>, code: i32| caller.data_mut().code = Some(code);
    linker.func_wrap(args, "exit", exit).expect("new");
    let instance = linker.instantiate_and_start(&mut store, &module).expect("instantiates");
    let run = instance.get_typed_func::<(), i32>(&store, "run").expect("exports run");
    if let Ok(code) = run.call(&mut store, ()) {
        store.data_mut().code = Some(code);
    }
    store.into_data()
}

//! An interpreter for core modules with a minimal host, which records a script's output and how it ends.

mod atomics;
mod counters;

use std::collections::BTreeMap;

use ks_compiler::hir::Hir;
use ks_compiler::plugin::contract::{HostFunction, HostResource, import};
use wasmi::{
    Caller, Config, Engine, Extern, IntoFunc, Linker, Memory, Module, Store, StoreLimits, StoreLimitsBuilder,
};

pub use counters::Reading;

/// An argument of `print`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number: the name of its case in the contract, and its bits without sign extension.
    Number(&'static str, u64),
    /// A text argument of `print`.
    Text(String),
}

/// The result and the output of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The result of `run`, or the code passed to `exit`; none after a trap.
    pub code: Option<i32>,
    /// The values of each `print`; its format if there are none.
    pub printed: Vec<Vec<Value>>,
    /// The message of `abort`; none if it was not called.
    pub aborted: Option<String>,
    /// The messages of `warn`.
    pub warned: Vec<String>,
    /// Calls that concern programs and the environment, in order.
    pub calls: Vec<String>,
}

/// The state of a run.
#[derive(Debug, Default)]
struct Machine {
    outcome: Outcome,
    maps: Vec<Map>,
    /// Number of sleeps so far: during the second, the plugin is asked to stop.
    sleeps: u32,
    /// The reading that every counter returns.
    reading: Reading,
    limits: StoreLimits,
}

/// An emulated map.
#[derive(Debug)]
struct Map {
    name: String,
    /// Whether it is an array, which has all entries from the start.
    array: bool,
    value_size: usize,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Number of CPUs of the emulated machine.
const CPUS: usize = 3;
/// Limit on the instructions of a run, so that an endless loop is a failure.
const FUEL: u64 = 10_000_000;
/// Limit on the bytes of a plugin's memory.
const MEMORY: usize = 16 << 20;
/// Limit on the interpreter's call depth: more than any plugin's stack allows.
const DEPTH: usize = 20_000;
/// `error-kind.not-found` of the contract.
const NOT_FOUND: u8 = 1;

impl Map {
    fn of(hir: &Hir) -> Vec<Map> {
        let maps = hir.maps.iter().map(|map| {
            let slots = if map.kind.is_per_cpu() { CPUS } else { 1 };
            let value_size = map.stored_value(&hir.types).bytes as usize;
            Map::new(map.name.clone(), map.kind.is_array().then_some(map.max_entries), value_size, slots)
        });
        let configs = hir.configs.iter().map(|config| {
            let size = hir.types.size(config.ty) as usize;
            Map::new(format!("{}_config_map", config.name), Some(1), size, 1)
        });
        maps.chain(configs).collect()
    }

    fn new(name: String, array: Option<u32>, value_size: usize, slots: usize) -> Map {
        let entry = |index: u32| (index.to_le_bytes().to_vec(), vec![0; value_size * slots]);
        let entries = (0..array.unwrap_or(0)).map(entry).collect();
        Map { name, array: array.is_some(), value_size, entries }
    }

    /// Returns whether it wrote: mode 0 always, 1 if the key does not exist, 2 if it does.
    fn update(&mut self, key: Vec<u8>, value: &[u8], mode: u32) -> bool {
        let there = self.entries.contains_key(&key);
        if mode == 1 && there || (mode == 2 || self.array) && !there {
            return false;
        }
        let slots = self.entries.get(&key).map_or(1, |old| old.len() / self.value_size);
        let mut stored = value.to_vec();
        stored.resize(stored.len().max(self.value_size * slots), 0);
        self.entries.insert(key, stored);
        true
    }
}

/// The cases of the contract's `value`, in order.
const CASES: [&str; 12] =
    ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "bool", "char", "text", "pointer"];

fn memory(caller: &Caller<'_, Machine>) -> Memory {
    caller.get_export("memory").and_then(Extern::into_memory).expect("the module exports its memory")
}

fn bytes(caller: &Caller<'_, Machine>, address: u32, len: u32) -> Vec<u8> {
    let mut out = vec![0; len as usize];
    memory(caller).read(caller, address as usize, &mut out).expect("inside the memory");
    out
}

fn text(caller: &Caller<'_, Machine>, address: u32, len: u32) -> String {
    String::from_utf8(bytes(caller, address, len)).expect("the tests print UTF-8")
}

fn value(caller: &Caller<'_, Machine>, address: u32) -> Value {
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

fn print(mut caller: Caller<'_, Machine>, format: u32, len: u32, values: u32, count: u32) {
    let mut line: Vec<_> = (0..count).map(|index| value(&caller, values + 16 * index)).collect();
    if line.is_empty() {
        line.push(Value::Text(text(&caller, format, len)));
    }
    caller.data_mut().outcome.printed.push(line);
}

fn abort(mut caller: Caller<'_, Machine>, address: u32, len: u32) {
    let message = text(&caller, address, len);
    caller.data_mut().outcome.aborted = Some(message);
}

fn warn(mut caller: Caller<'_, Machine>, address: u32, len: u32) {
    let message = text(&caller, address, len);
    caller.data_mut().outcome.warned.push(message);
}

fn write(caller: &mut Caller<'_, Machine>, address: u32, bytes: &[u8]) {
    memory(caller).write(caller, address as usize, bytes).expect("inside the memory");
}

/// Returns an error without a message.
fn fail(caller: &mut Caller<'_, Machine>, result: u32, error: u32) {
    write(caller, result, &[1]);
    write(caller, result + error, &[NOT_FOUND]);
    write(caller, result + error + 8, &[0; 16]);
}

fn map_open(mut caller: Caller<'_, Machine>, name: u32, len: u32, result: u32) {
    let name = text(&caller, name, len);
    match caller.data().maps.iter().position(|map| map.name == name) {
        Some(at) => {
            write(&mut caller, result, &[0; 8]);
            write(&mut caller, result + 4, &(at as u32 + 1).to_le_bytes());
        }
        None => fail(&mut caller, result, 4),
    }
}

fn map_lookup(
    mut caller: Caller<'_, Machine>,
    map: u32,
    key: u32,
    len: u32,
    result: u32,
) -> Result<(), wasmi::Error> {
    let key = bytes(&caller, key, len);
    let found = caller.data().maps[map as usize - 1].entries.get(&key).cloned();
    let Some(value) = found else {
        write(&mut caller, result, &[0; 16]);
        return Ok(());
    };
    let realloc = caller.get_export("cabi_realloc").and_then(Extern::into_func).expect("exported");
    let realloc = realloc.typed::<(u32, u32, u32, u32), u32>(&caller).expect("of the right type");
    let size = value.len() as u32;
    let address = realloc.call(&mut caller, (0, 0, 1, size))?;
    write(&mut caller, address, &value);
    write(&mut caller, result, &[0, 0, 0, 0, 1, 0, 0, 0]);
    write(&mut caller, result + 8, &address.to_le_bytes());
    write(&mut caller, result + 12, &size.to_le_bytes());
    Ok(())
}

fn map_update(
    mut caller: Caller<'_, Machine>,
    (map, mode): (u32, u32),
    (key, key_len): (u32, u32),
    (value, value_len): (u32, u32),
    result: u32,
) {
    let (key, value) = (bytes(&caller, key, key_len), bytes(&caller, value, value_len));
    if caller.data_mut().maps[map as usize - 1].update(key, &value, mode) {
        write(&mut caller, result, &[0])
    } else {
        fail(&mut caller, result, 4)
    }
}

fn map_delete(mut caller: Caller<'_, Machine>, map: u32, key: u32, len: u32, result: u32) {
    let key = bytes(&caller, key, len);
    let removed = caller.data_mut().maps[map as usize - 1].entries.remove(&key).is_some();
    write(&mut caller, result, &[0; 8]);
    write(&mut caller, result + 4, &[removed.into()]);
}

fn sleep(mut caller: Caller<'_, Machine>, _duration: u64, result: u32) {
    caller.data_mut().sleeps += 1;
    write(&mut caller, result, &[0]);
}

fn note(caller: &mut Caller<'_, Machine>, call: String) {
    caller.data_mut().outcome.calls.push(call);
}

fn program_load(mut caller: Caller<'_, Machine>, name: u32, len: u32, result: u32) {
    let name = text(&caller, name, len);
    note(&mut caller, format!("load {name}"));
    let handle = name.len() as u32;
    write(&mut caller, result, &[0; 8]);
    write(&mut caller, result + 4, &handle.to_le_bytes());
}

/// Returns the defaults, except for the block `set`, whose first byte is set to 9.
fn config(
    mut caller: Caller<'_, Machine>,
    (name, name_len): (u32, u32),
    (bytes_at, len): (u32, u32),
    result: u32,
) {
    if text(&caller, name, name_len) == "set" {
        write(&mut caller, bytes_at, &[9]);
    }
    write(&mut caller, result, &bytes_at.to_le_bytes());
    write(&mut caller, result + 4, &len.to_le_bytes());
}

/// Returns a link whose handle is the number of calls so far. The target `gone` does not exist, and `taken`
/// fails with an errno.
fn attach_to(mut caller: Caller<'_, Machine>, program: u32, (at, len): (u32, u32), mode: &str, result: u32) {
    let target = text(&caller, at, len);
    note(&mut caller, format!("attach {program} {target}{mode}"));
    match target.as_str() {
        "gone" => fail(&mut caller, result, 4),
        "taken" => {
            fail(&mut caller, result, 4);
            write(&mut caller, result + 4 + 8, &[1, 0, 0, 0, 17, 0, 0, 0]);
        }
        _ => {
            let link = caller.data().outcome.calls.len() as u32;
            write(&mut caller, result, &[0; 8]);
            write(&mut caller, result + 4, &link.to_le_bytes());
        }
    }
}

/// Defines the calls for programs and tasks.
fn define_programs_and_tasks(linker: &mut Linker<Machine>) {
    define_call(linker, import::bpf::PROGRAM_LOAD, program_load);
    let attach = |caller: Caller<'_, Machine>, program: u32, _cookie: u64, result: u32| {
        attach_to(caller, program, (0, 0), "", result);
    };
    define_call(linker, import::bpf::PROGRAM_ATTACH, attach);
    let attach_xdp =
        |caller: Caller<'_, Machine>, program: u32, at: u32, len: u32, mode: u32, result: u32| {
            attach_to(caller, program, (at, len), &format!(" in mode {mode}"), result);
        };
    define_call(linker, import::bpf::PROGRAM_ATTACH_XDP, attach_xdp);
    let attach_tracepoint =
        |caller: Caller<'_, Machine>, program: u32, at: u32, len: u32, _cookie: u64, result: u32| {
            attach_to(caller, program, (at, len), "", result);
        };
    define_call(linker, import::bpf::PROGRAM_ATTACH_TRACEPOINT, attach_tracepoint);
    let attach_tc = |caller: Caller<'_, Machine>,
                     (program, at, len): (u32, u32, u32),
                     _priority: (u32, u32),
                     _handle: (u32, u32),
                     result: u32| attach_to(caller, program, (at, len), "", result);
    define_call(
        linker,
        import::bpf::PROGRAM_ATTACH_TC,
        move |caller: Caller<'_, Machine>,
              p: u32,
              at: u32,
              len: u32,
              a: u32,
              b: u32,
              c: u32,
              d: u32,
              r: u32| {
            attach_tc(caller, (p, at, len), (a, b), (c, d), r);
        },
    );
    for function in [import::bpf::PROGRAM_ATTACH_CGROUP, import::bpf::PROGRAM_ATTACH_SOCKET_FILTER] {
        let attach = |caller: Caller<'_, Machine>, program: u32, at: u32, len: u32, result: u32| {
            attach_to(caller, program, (at, len), "", result);
        };
        define_call(linker, function, attach);
    }
    let detach =
        |mut caller: Caller<'_, Machine>, program: u32| note(&mut caller, format!("detach {program}"));
    define_call(linker, import::bpf::PROGRAM_DETACH_ALL, detach);
    let drop = |mut caller: Caller<'_, Machine>, link: u32| note(&mut caller, format!("drop {link}"));
    define_drop(linker, import::bpf::LINK, drop);
    define_call(linker, import::system::CPU_COUNT, |_: Caller<'_, Machine>| CPUS as u32);
    let pid_of = |mut caller: Caller<'_, Machine>, name: u32, len: u32, result: u32| {
        let found = text(&caller, name, len) == "walnut";
        write(&mut caller, result, &[found.into(), 0, 0, 0, 42, 0, 0, 0]);
    };
    define_call(linker, import::system::PID_OF, pid_of);
    define_call(linker, import::system::COMM_OF, comm_of);
    define_call(linker, import::symbols::NAME, symbol);
    define_display(linker);
}

/// Defines texts of numbers and addresses: what the plugin passes, so that tests see it.
fn define_display(linker: &mut Linker<Machine>) {
    use import::{display, symbols};
    let number = |caller: Caller<'_, Machine>, number: u64, result: u32| {
        answer(caller, format!("n{}", number.cast_signed()).as_bytes(), result)
    };
    let named = [display::SYSTEM_CALL, display::ERRNO, display::SIGNAL, display::CAPABILITY];
    for function in named.into_iter().chain([display::BYTES, display::DURATION, symbols::KERNEL_FUNCTION]) {
        define_call(linker, function, number);
    }
    let ipv4 = |caller: Caller<'_, Machine>, address: u32, result: u32| {
        answer(caller, format!("ipv4 {address:08x}").as_bytes(), result)
    };
    define_call(linker, display::IPV4, ipv4);
    for function in [display::IPV6, display::MAC] {
        let bytes = |caller: Caller<'_, Machine>, address: u32, len: u32, result: u32| {
            let bytes = bytes(&caller, address, len);
            answer(caller, format!("bytes {bytes:02x?}").as_bytes(), result)
        };
        define_call(linker, function, bytes);
    }
    let process = |caller: Caller<'_, Machine>, process: u32, address: u64, result: u32| {
        answer(caller, format!("{} {address:x}", process.cast_signed()).as_bytes(), result)
    };
    define_call(linker, symbols::PROCESS_FUNCTION, process);
    let process_stack =
        |caller: Caller<'_, Machine>, at: u32, len: u32, process: u32, id: u64, result: u32| {
            let text = format!("{} {} {}", text(&caller, at, len), process.cast_signed(), id.cast_signed());
            answer(caller, text.as_bytes(), result)
        };
    define_call(linker, symbols::PROCESS_STACK, process_stack);
    for function in [display::TIME_OF_DAY, display::ENUMERATOR, symbols::KERNEL_STACK] {
        let with_text = |caller: Caller<'_, Machine>, at: u32, len: u32, number: u64, result: u32| {
            let text = text(&caller, at, len);
            answer(caller, format!("{text} {}", number.cast_signed()).as_bytes(), result)
        };
        define_call(linker, function, with_text);
    }
}

/// Task 7 has a name of the kernel's maximal length.
fn comm_of(caller: Caller<'_, Machine>, pid: u32, result: u32) -> Result<(), wasmi::Error> {
    answer(caller, if pid == 7 { b"fifteen_letters" } else { b"" }, result)
}

/// Returns the requested address as text.
fn symbol(
    caller: Caller<'_, Machine>,
    has_process: u32,
    process: u32,
    address: u64,
    result: u32,
) -> Result<(), wasmi::Error> {
    answer(caller, format!("{has_process} {} {address:x}", process.cast_signed()).as_bytes(), result)
}

/// Returns a text or a list of bytes in the memory where the host returns them.
fn answer(mut caller: Caller<'_, Machine>, name: &[u8], result: u32) -> Result<(), wasmi::Error> {
    let realloc = caller.get_export("cabi_realloc").and_then(Extern::into_func).expect("exported");
    let realloc = realloc.typed::<(u32, u32, u32, u32), u32>(&caller).expect("of the right type");
    let address = realloc.call(&mut caller, (0, 0, 1, name.len() as u32))?;
    write(&mut caller, address, name);
    write(&mut caller, result, &address.to_le_bytes());
    write(&mut caller, result + 4, &(name.len() as u32).to_le_bytes());
    Ok(())
}

/// Refuses all functions except `allowed`, which returns the number of its arguments.
/// Runs a plugin without arguments, on a machine with its maps.
pub fn run_with(core: &[u8], hir: &Hir) -> Outcome {
    run_for(core, hir, FUEL)
}

/// Runs a plugin for at most this many instructions.
pub fn run_for(core: &[u8], hir: &Hir, fuel: u64) -> Outcome {
    start(core, Machine { maps: Map::of(hir), ..Machine::default() }, fuel)
}

/// Runs a core module without maps and without arguments.
pub fn run(core: &[u8]) -> Outcome {
    start(core, Machine::default(), FUEL)
}

/// Runs a core module whose counters all return this reading.
pub fn run_counting(core: &[u8], reading: Reading) -> Outcome {
    start(core, Machine { reading, ..Machine::default() }, FUEL)
}

fn start(core: &[u8], machine: Machine, fuel: u64) -> Outcome {
    let mut config = Config::default();
    config.consume_fuel(true);
    config.set_max_recursion_depth(DEPTH);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, atomics::as_plain(core)).expect("a valid module");
    let mut store = Store::new(&engine, machine);
    store.data_mut().limits = StoreLimitsBuilder::new().memory_size(MEMORY).build();
    store.limiter(|machine| &mut machine.limits);
    store.set_fuel(fuel).expect("fuel is counted");
    let mut linker = Linker::new(&engine);
    define(&mut linker);
    let instance = linker.instantiate_and_start(&mut store, &module).expect("instantiates");
    let run = instance.get_typed_func::<(), i32>(&store, "run").expect("exports run");
    if let Ok(result) = run.call(&mut store, ()) {
        let memory = instance.get_memory(&store, "memory").expect("exports its memory");
        let mut ended = [0; 2];
        memory.read(&store, result as usize, &mut ended).expect("the result is in memory");
        let [failed, code] = ended;
        store.data_mut().outcome.code = Some(if failed == 0 { 0 } else { code.into() });
    }
    store.into_data().outcome
}

/// Defines the host's side of a call.
fn define_call<Params, Results>(
    linker: &mut Linker<Machine>,
    function: HostFunction,
    body: impl IntoFunc<Machine, Params, Results>,
) {
    linker.func_wrap(function.interface().id, function.def().name, body).expect("new");
}

/// Defines what the host does when the plugin drops a handle.
fn define_drop<Params, Results>(
    linker: &mut Linker<Machine>,
    resource: HostResource,
    body: impl IntoFunc<Machine, Params, Results>,
) {
    linker.func_wrap(resource.interface().id, &resource.drop_name(), body).expect("new");
}

fn define(linker: &mut Linker<Machine>) {
    define_call(linker, import::console::PRINT, print);
    define_call(linker, import::console::ABORT, abort);
    define_call(linker, import::console::WARN, warn);
    // The result's memory is zero: the case with parsed values, of which there are none.
    define_call(linker, import::args::PARSE, |_: u32, _: u32, _: u32| {});
    let config = |caller: Caller<'_, Machine>, name, name_len, at, len, result| {
        config(caller, (name, name_len), (at, len), result);
    };
    define_call(linker, import::args::CONFIG, config);
    let exit = |mut caller: Caller<'_, Machine>, code: i32| caller.data_mut().outcome.code = Some(code);
    define_call(linker, import::args::EXIT, exit);
    define_call(linker, import::clock::SLEEP, sleep);
    let stopping = |caller: Caller<'_, Machine>| u32::from(caller.data().sleeps >= 2);
    define_call(linker, import::clock::STOPPING, stopping);
    define_programs_and_tasks(linker);
    counters::define(linker);
    define_call(linker, import::maps::BPF_MAP_OPEN, map_open);
    define_call(linker, import::maps::BPF_MAP_LOOKUP, map_lookup);
    define_call(linker, import::maps::BPF_MAP_DELETE, map_delete);
    let update = |caller: Caller<'_, Machine>, map, key, key_len, value, value_len, mode, result| {
        map_update(caller, (map, mode), (key, key_len), (value, value_len), result);
    };
    // An emulated map makes the values of a per-CPU entry of one.
    define_call(linker, import::maps::BPF_MAP_UPDATE, update);
    define_call(linker, import::maps::BPF_MAP_UPDATE_SUM, update);
    // No memory is shared here.
    let share = |mut caller: Caller<'_, Machine>, _map: u32, result: u32| write(&mut caller, result, &[0]);
    define_call(linker, import::maps::BPF_MAP_SHARE, share);
}

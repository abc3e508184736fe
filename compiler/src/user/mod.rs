//! The userspace half: typed tree to core Wasm module.
//!
//! ```text
//! functions of the split -> symbolic code (func, stmt, expr, ..) -> module -> bytes
//!                             calls routines (runtime, maps, perf, ..), each defined on first use
//! ```
//!
//! The module imports only the parts of the contract that the script uses, exports `run`, `cabi_realloc` and
//! its memory, and follows the canonical ABI (`abi`). Not here: the component around it (`plugin`).

mod abi;
mod addr;
mod aggregate;
mod args;
mod arith;
mod binding;
mod builtin;
mod code;
mod config;
mod cx;
mod defer;
mod display;
mod element;
mod errno;
mod errors;
mod exec;
mod expr;
mod func;
mod heap;
mod histogram;
mod link;
mod load;
mod loops;
mod lvalue;
mod maps;
mod matching;
mod memory;
mod module;
mod number;
mod objects;
mod perf;
mod pointer;
mod print;
mod programs;
mod queue;
mod recursion;
mod ring;
mod runtime;
mod scalar;
mod shared;
mod stmt;
mod table;
mod tasks;
mod test_run;
mod text;
mod unswitch;
mod variables;

use wasm_encoder::{Instruction, ValType};

use self::code::{DefinedId, Var, WasmCode, mem};
use self::cx::{Cx, KeptGlobal, Lower, Text, too_large};
use self::expr::mistake;
use self::memory::MAX_STATIC;
use self::runtime::Routine;
use self::scalar::convert;
use crate::defect;
use crate::diag::Diagnostic;
use crate::hir::{FuncId, Hir};
use crate::plugin::contract::{World, import};
use crate::source::SourceMap;
use crate::split::Split;
use crate::types::{IntType, StructId, TypeKind};

/// Message of a plugin without `main`.
const NO_MAIN: &str = "the script has no `main`, so nothing is loaded or attached\n  do: write `fn main() \
                       -> i32 { .. }` that does";

/// Compiles the userspace half to a core module. Without a `main` the module prints a message and succeeds;
/// if the script has tests, the message says how to run them.
///
/// # Errors
/// Variables that do not fit the plugin's memory; one error per function at most.
pub fn compile(hir: &Hir, split: &Split, sources: &SourceMap) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let mut cx = Cx::new(hir, split, sources).map_err(|error| vec![*error])?;
    let mut errors = Vec::new();
    for id in &split.user {
        defect::at(hir.functions[*id].span);
        errors.extend(func::function(&mut cx, *id).err());
    }
    if errors.is_empty() {
        errors.extend(entry(&mut cx, split).err());
    }
    if errors.is_empty() {
        Ok(cx.module.finish())
    } else {
        Err(errors.into_iter().map(|error| *error).collect())
    }
}

/// Exports a function that calls another one, which returns an exit code, and returns the address of the
/// result of the contract: success if no bit of `bits` is set in it, else the low 8 bits as the error.
fn export_entry(
    cx: &mut Cx<'_>,
    world: World,
    name: &'static str,
    params: &'static [ValType],
    callee: DefinedId,
    bits: i32,
) {
    let error = cx.abi.exported(world, name).err().offset;
    let mut code = WasmCode::new(params.len());
    let exit_code = code.local(ValType::I32);
    (0..params.len() as u32).for_each(|param| {
        code.get(Var(param));
    });
    code.call(callee).i32(bits).op(Instruction::I32And).set(exit_code);
    code.u32(cx.returned).get(exit_code).i32(0).ops_of([Instruction::I32Ne, Instruction::I32Store8(mem(0))]);
    code.u32(cx.returned).get(exit_code).op(Instruction::I32Store8(mem(error)));
    code.u32(cx.returned);
    let entry = cx.module.declare(format!("ks:{name}"), params, &[ValType::I32]);
    cx.module.define(entry, code, None);
    cx.module.export(name, entry);
}

/// Defines `run`: parses the arguments, opens the variables of the BPF object, calls `main`.
fn entry(cx: &mut Cx<'_>, split: &Split) -> Lower<()> {
    let mut code = WasmCode::new(0);
    match cx.hir.main {
        Some(main) => call_main(cx, &mut code, main, split)?,
        None if cx.hir.tests.is_empty() => {
            let warn = cx.host(import::console::WARN);
            let text = cx.text(NO_MAIN);
            code.u32(text.address).u32(text.len).call(warn).i32(0);
        }
        None => abort(cx, &mut code, "this plugin holds tests, which `ks-host test` runs"),
    }
    let main = cx.module.declare("ks:main", &[], &[ValType::I32]);
    cx.module.define(main, code, None);
    export_entry(cx, World::Plugin, "run", &[], main, 0xff);
    run_test(cx, split)?;
    shared::finish(cx);
    let realloc = cx.routine(Routine::Realloc);
    cx.module.export("cabi_realloc", realloc);
    match (cx.module.statics.overflow(), cx.hir.main.or(cx.hir.tests.first().copied())) {
        (true, Some(entry)) => {
            Err(too_large(cx.hir.functions[entry].span, "the constants of the userspace half", MAX_STATIC))
        }
        _ => Ok(()),
    }
}

/// Defines `list-tests` and `run-test`, if there are tests: calls the named test as `run` calls `main`. The name is compared
/// before any host call, because later answers of the host overwrite it.
fn run_test(cx: &mut Cx<'_>, split: &Split) -> Lower<()> {
    if cx.hir.tests.is_empty() {
        return Ok(());
    }
    let mut code = WasmCode::new(2);
    let (name, len) = (Var(0), Var(1));
    let equal = cx.routine(Routine::TextEqual);
    let hir = cx.hir;
    for &id in &hir.tests {
        let text = cx.text(&hir.functions[id].name);
        code.get(name).get(len).u32(text.address).u32(text.len).call(equal).if_();
        maps::open_pinned(cx, &mut code, split);
        variables::open_all(cx, &mut code);
        config::write_defaults(cx, &mut code, &split.configs);
        maps::create_inner_maps(cx, &mut code, split);
        open_counters(cx, &mut code);
        call_entry(cx, &mut code, id)?;
        code.op(Instruction::Return).end();
    }
    abort(cx, &mut code, "the plugin holds no test of this name");
    let test = cx.module.declare("ks:test", &TEST_PARAMS, &[ValType::I32]);
    cx.module.define(test, code, None);
    export_entry(cx, World::TestPlugin, "run-test", &TEST_PARAMS, test, -1);
    list_tests(cx);
    Ok(())
}

/// The core parameters of `run-test`: address and length of a name.
const TEST_PARAMS: [ValType; 2] = [ValType::I32; 2];

/// Defines `list-tests`, which returns the address of a constant list.
fn list_tests(cx: &mut Cx<'_>) {
    let hir = cx.hir;
    let names: Vec<Text> = hir.tests.iter().map(|id| cx.text(&hir.functions[*id].name)).collect();
    let words = |address: u32, len: u32| [address.to_le_bytes(), len.to_le_bytes()].concat();
    let list: Vec<u8> = names.iter().flat_map(|name| words(name.address, name.len)).collect();
    let list = cx.module.statics.variable(&list, list.len() as u64, 4);
    let list = words(list, names.len() as u32);
    let list = cx.module.statics.variable(&list, list.len() as u64, 4);
    let mut code = WasmCode::new(0);
    code.u32(list);
    let list_tests = cx.module.declare("ks:list-tests", &[], &[ValType::I32]);
    cx.module.define(list_tests, code, None);
    cx.module.export("list-tests", list_tests);
}

/// Ends the plugin with this message.
fn abort(cx: &mut Cx<'_>, code: &mut WasmCode, message: &str) {
    let abort = cx.host(import::console::ABORT);
    let text = cx.text(message);
    code.u32(text.address).u32(text.len).call(abort).op(Instruction::Unreachable);
}

fn call_main(cx: &mut Cx<'_>, code: &mut WasmCode, main: FuncId, split: &Split) -> Lower<()> {
    let function = &cx.hir.functions[main];
    let options = main_options(cx, main)?;
    args::parse(cx, code, options, function.span)?;
    maps::set_sizes(cx, code, &split.maps, options);
    maps::open_pinned(cx, code, split);
    variables::open_all(cx, code);
    config::write_defaults(cx, code, &split.configs);
    maps::create_inner_maps(cx, code, split);
    open_counters(cx, code);
    if let Some((_, address)) = options {
        code.u32(address);
    }
    call_entry(cx, code, main)
}

/// Opens the counters of the script, before any program is attached.
fn open_counters(cx: &Cx<'_>, code: &mut WasmCode) {
    if let Some(open) = cx.hir.open_counters {
        code.call(cx.function(open));
    }
}

/// Calls `main` or a test, whose arguments are on the stack, and leaves the exit code.
fn call_entry(cx: &mut Cx<'_>, code: &mut WasmCode, entry: FuncId) -> Lower<()> {
    let function = &cx.hir.functions[entry];
    let callee = cx.function(entry);
    code.call(callee);
    if function.throws {
        let thrown = cx.kept(KeptGlobal::Thrown, 0);
        let report = cx.routine(Routine::ReportThrown);
        code.get_global(thrown).if_();
        code.call(report).op(Instruction::Return).end();
    }
    push_exit_code(cx, code, entry)
}

/// Returns the struct that `main` takes, and the address of its storage.
fn main_options(cx: &mut Cx<'_>, main: FuncId) -> Lower<Option<(StructId, u32)>> {
    let function = &cx.hir.functions[main];
    let Some(param) = function.params.first() else { return Ok(None) };
    let local = &function.locals[*param];
    match *cx.hir.types.kind(local.ty) {
        TypeKind::Struct(id) if function.params.len() == 1 => {
            let size = cx.hir.types.size(local.ty);
            let address = cx.module.statics.reserve(size, cx.hir.types.align(local.ty) as u32);
            Ok(Some((id, address)))
        }
        _ => Err(mistake(local.span, "`main` takes something other than one struct")),
    }
}

/// Converts the result of `main` or a test, on the stack unless it is void, to an exit code.
fn push_exit_code(cx: &Cx<'_>, code: &mut WasmCode, entry: FuncId) -> Lower<()> {
    let function = &cx.hir.functions[entry];
    let types = &cx.hir.types;
    if function.ret == types.common().void {
        code.i32(0);
        return Ok(());
    }
    let int = types
        .scalar(function.ret)
        .ok_or_else(|| mistake(function.span, "the result of an entry is not a number"))?;
    convert(code, int, IntType { bits: 32, signed: true });
    Ok(())
}

//! `load`, `sleep` and other builtins of one host call.

use std::collections::BTreeSet;

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmCode, WasmGlobal, mem};
use super::cx::{Cx, KeptGlobal};
use super::runtime::{Routine, push_failed, reset_arena};
use super::shared;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, Target, UserBuiltin};
use crate::plugin::contract::import;

/// EINTR of `include/uapi/asm-generic/errno-base.h`.
const EINTR: i32 = 4;
/// Number of nanoseconds per millisecond.
const NS_PER_MS: i64 = 1_000_000;

/// Returns whether the script checks the result of a `load`. It then continues if the object cannot be
/// loaded.
pub fn tests_a_load(hir: &Hir, functions: &[FuncId]) -> bool {
    struct Tests(bool);
    impl Visitor for Tests {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= matches!(expr.kind, ExprKind::User(UserBuiltin::Load { exit_on_failure: false, .. }));
        }
    }
    let mut tests = Tests(false);
    functions.iter().for_each(|id| visit::block(&mut tests, &hir.functions[*id].body));
    tests.0
}

/// Returns the programs that the functions load.
pub fn loaded(hir: &Hir, functions: &[FuncId]) -> BTreeSet<FuncId> {
    struct Loaded(BTreeSet<FuncId>);
    impl Visitor for Loaded {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::User(UserBuiltin::Load { program, .. }) = &expr.kind {
                self.0.insert(*program);
            }
        }
    }
    let mut loaded = Loaded(BTreeSet::new());
    functions.iter().for_each(|id| visit::block(&mut loaded, &hir.functions[*id].body));
    loaded.0
}

/// Emits the body of [`Routine::Load`]. The second load of a program returns the handle of the first.
pub fn load(cx: &mut Cx<'_>, code: &mut WasmCode, program: FuncId) {
    let kept = cx.kept(KeptGlobal::Program(program), 0);
    let name = cx.text(&cx.hir.functions[program].name);
    let load = cx.host(import::bpf::PROGRAM_LOAD);
    let shape = cx.abi.result(import::bpf::PROGRAM_LOAD);
    let warn = cx.routine(Routine::WarnError);
    code.get_global(kept).if_();
    code.get_global(kept).op(I::Return).end();
    reset_arena(code);
    code.u32(name.address).u32(name.len).u32(cx.returned).call(load);
    push_failed(cx, code);
    code.if_();
    code.get(Var(0)).get(Var(1)).u32(cx.returned + shape.err().offset).call(warn);
    code.i32(0).op(I::Return).end();
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set_global(kept);
    shared::ask_variables(cx, code);
    if let Target::Period { .. } = cx.hir.functions[program].target {
        start(cx, code, kept);
    }
    code.get_global(kept);
}

/// Starts a timer, which counts as loaded only if that succeeds.
fn start(cx: &mut Cx<'_>, code: &mut WasmCode, program: WasmGlobal) {
    let attach = cx.routine(Routine::AttachTarget);
    code.get_global(program).i32(0).i32(0).i64(0).get(Var(0)).get(Var(1)).call(attach);
    code.if_();
    code.i32(0).set_global(program).i32(0).op(I::Return).end();
}

/// Emits the body of [`Routine::Sleep`].
pub fn sleep(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let ms = Var(0);
    let sleep = cx.host(import::clock::SLEEP);
    let longest = (u64::MAX / NS_PER_MS as u64).cast_signed();
    reset_arena(code);
    code.get(ms).i64(NS_PER_MS).op(I::I64Mul);
    code.i64(-1).get(ms).i64(longest).ops_of([I::I64LeU, I::Select]);
    code.u32(cx.returned).call(sleep);
    push_failed(cx, code);
    code.if_value(ValType::I32);
    code.i32(EINTR).else_().i32(0).end();
}

/// Emits the body of [`Routine::Wait`], which returns when the host asks the plugin to stop.
pub fn wait(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let sleep = cx.routine(Routine::Sleep);
    let stopping = cx.host(import::clock::STOPPING);
    let next = code.loop_();
    code.i64(-1).call(sleep).op(I::Drop).call(stopping).op(I::I32Eqz).br_if(next).end();
}

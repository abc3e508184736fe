//! `defer`: one list of pending calls for the whole plugin, newest first.
//!
//! ```text
//! record: 0 the previous record | 4 table position of the caller function | 8 the arguments ..
//! ```
//!
//! A record is in the stack frame of its function, or, if the `defer` is in a loop, on the heap. A function
//! that defers runs its own entries of the list when it returns; `exit` runs all.

use std::collections::BTreeSet;

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, KeptGlobal, Lower};
use super::expr::mistake;
use super::func::{FnCx, Home};
use super::heap;
use super::runtime::Routine;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, HirFunction, Local, LocalId, Lvalue, LvalueKind, Stmt, StmtKind};
use crate::index::IndexVec;

/// Byte offset of the caller function in a record.
const CALLER: u32 = 4;
/// Byte offset of the first argument in a record.
const ARGUMENTS: u32 = 8;

/// Returns whether a function defers calls.
pub fn defers(function: &HirFunction) -> bool {
    struct Defers(bool);
    impl Visitor for Defers {
        fn stmt(&mut self, stmt: &Stmt) {
            self.0 |= matches!(stmt.kind, StmtKind::Defer(_));
        }
    }
    let mut found = Defers(false);
    visit::block(&mut found, &function.body);
    found.0
}

/// A deferred call whose arguments are stored in a record.
struct Deferred {
    /// The call; its arguments are loads from the record.
    call: Expr,
    locals: IndexVec<LocalId, Local>,
    /// Byte offset of each argument in the record.
    offsets: Vec<u32>,
    /// Expressions of the arguments, in the order of `offsets`.
    values: Vec<Expr>,
    /// Size of the record in bytes.
    size: u32,
}

/// The memory of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordMemory {
    /// A slot of the function's frame: the `defer` is reached at most once.
    Frame,
    /// An object for each iteration of a loop, which the call frees.
    Heap,
}

impl FnCx<'_, '_> {
    /// Lowers `defer call`: evaluates the arguments and links a record.
    pub fn defer(&mut self, call: &Expr) -> Lower<()> {
        let deferred = self.deferred(call)?;
        let memory = if self.loops.is_empty() { RecordMemory::Frame } else { RecordMemory::Heap };
        let record = self.temp(ValType::I32);
        // The arguments are evaluated before the record is linked: they may defer too.
        let values = deferred.values.iter().map(|value| self.hold(value)).collect::<Lower<Vec<_>>>()?;
        match memory {
            RecordMemory::Heap => self.allocate(deferred.size, call.span),
            RecordMemory::Frame => {
                let addr = self.kept_slot(deferred.size);
                self.push_addr(addr);
            }
        }
        self.code.set(record);
        for ((value, from), offset) in deferred.values.iter().zip(values).zip(&deferred.offsets) {
            let size = self.cx.hir.types.size(value.ty);
            self.copy(Addr::of(record).plus(*offset), from, size);
        }
        let caller = self.caller(deferred, memory)?;
        let list = self.cx.kept(KeptGlobal::Deferred, 0);
        self.code.get(record).get_global(list).op(I::I32Store(mem(0)));
        self.code.get(record).u32(caller).op(I::I32Store(mem(CALLER)));
        self.code.get(record).set_global(list);
        Ok(())
    }

    /// Separates a call from its arguments.
    fn deferred(&self, call: &Expr) -> Lower<Deferred> {
        let mut deferred = Deferred {
            call: call.clone(),
            locals: IndexVec::new(),
            offsets: Vec::new(),
            values: Vec::new(),
            size: ARGUMENTS,
        };
        let types = &self.cx.hir.types;
        let mut call = call.clone();
        for argument in arguments(&mut call)? {
            let constant =
                matches!(argument.kind, ExprKind::Const(_) | ExprKind::Bytes(_) | ExprKind::Function(_));
            if constant {
                continue;
            }
            let (ty, span) = (argument.ty, argument.span);
            let local = deferred.locals.push(Local::hidden(ty, span));
            let lvalue = Lvalue { kind: LvalueKind::Local(local), ty, span };
            let value = std::mem::replace(argument, Expr { kind: ExprKind::Load(lvalue), ty, span });
            let offset = deferred.size.next_multiple_of(types.align(ty) as u32);
            deferred.size = offset + types.size(ty) as u32;
            deferred.offsets.push(offset);
            deferred.values.push(value);
        }
        deferred.call = call;
        Ok(deferred)
    }

    /// Defines a function that takes a record and performs its call; returns its table position.
    fn caller(&mut self, deferred: Deferred, memory: RecordMemory) -> Lower<u32> {
        let Deferred { call, locals, offsets, .. } = deferred;
        let span = call.span;
        let function = HirFunction {
            name: format!("{}:defer", self.function.name),
            span,
            kind: self.function.kind,
            target: self.function.target.clone(),
            also: Vec::new(),
            optional: false,
            params: Vec::new(),
            ret: self.cx.hir.types.common().void,
            locals,
            body: vec![Stmt { kind: StmtKind::Expr(call), span }],
            throws: false,
            system_call: None,
            record_arguments: None,
            objects: BTreeSet::new(),
        };
        let defined = self.cx.module.declare(function.name.clone(), &[ValType::I32], &[]);
        let homes = offsets.iter().map(|offset| Home::Memory(Addr::of(Var(0)).plus(*offset))).collect();
        let mut fcx = FnCx::of_record(self.cx, &function, homes);
        fcx.block(&function.body)?;
        if memory == RecordMemory::Heap {
            let free = fcx.cx.routine(Routine::Free);
            fcx.code.get(Var(0)).op(I::I64ExtendI32U).i32(0).i32(0).call(free);
        }
        fcx.code.leave_frame();
        let (code, frame) = fcx.finish();
        let name = format!("deferred by {}", self.function.name);
        self.cx.module.set_origin(defined, self.cx.origin(&name, span, &code));
        self.cx.module.define(defined, code, frame);
        Ok(self.cx.module.table_position(defined))
    }

    /// Evaluates a value into a temporary of this statement.
    fn hold(&mut self, value: &Expr) -> Lower<Addr> {
        let slot = self.slot(value.ty);
        self.value(value, slot)?;
        Ok(slot)
    }

    /// Pushes the address of a new zeroed heap object of `bytes` bytes.
    pub fn allocate(&mut self, bytes: u32, span: crate::source::Span) {
        let allocate = self.cx.routine(Routine::Allocate);
        let (class, bytes) = heap::class(bytes);
        let location = self.cx.text(self.cx.location_prefix(span));
        self.code.u32(class).u32(bytes);
        self.push_text(location);
        self.code.call(allocate);
    }
}

/// Returns the arguments of a call in evaluation order.
fn arguments(call: &mut Expr) -> Lower<Vec<&mut Expr>> {
    let span = call.span;
    Ok(match &mut call.kind {
        ExprKind::Call { args, .. } => args.iter_mut().collect(),
        ExprKind::CallValue { callee, args } => std::iter::once(&mut **callee).chain(args).collect(),
        ExprKind::User(builtin) => builtin.operands_mut(),
        ExprKind::Shared(builtin) => builtin.operands_mut(),
        // Calls without arguments to store: `pop` and `peek`, and constants.
        ExprKind::Take { .. } | ExprKind::Const(_) => Vec::new(),
        _ => return Err(mistake(span, "the deferred expression is not a call")),
    })
}

/// Emits the body of [`Routine::RunDeferred`]. A pending exception is set aside meanwhile, so that the calls
/// run normally.
pub fn run(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let until = Var(0);
    let record = code.local(ValType::I32);
    let list = cx.kept(KeptGlobal::Deferred, 0);
    let call = cx.module.call_indirect(&[ValType::I32], &[]);
    let thrown = cx.throws.then(|| {
        [KeptGlobal::Thrown, KeptGlobal::ThrownCode].map(|what| (cx.kept(what, 0), code.local(ValType::I32)))
    });
    for (global, kept) in thrown.iter().flatten() {
        code.get_global(*global).set(*kept);
    }
    if let Some([(global, _), _]) = thrown {
        code.i32(0).set_global(global);
    }
    let done = code.block();
    let next = code.loop_();
    code.get_global(list).tee(record).get(until).op(I::I32Eq).br_if(done);
    code.get(record).op(I::I32Load(mem(0))).set_global(list);
    code.get(record).get(record).op(I::I32Load(mem(CALLER)));
    code.op(call).br(next).end().end();
    for (global, kept) in thrown.iter().flatten() {
        code.get(*kept).set_global(*global);
    }
}

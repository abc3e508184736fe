//! The lowering of one function: locals, stack frame and temporaries.

use std::collections::BTreeSet;

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::binding::Binding;
use super::code::{Label, Var, WasmCode};
use super::cx::{Cx, KeptGlobal, Lower, Text, too_large};
use super::memory::{STACK_BOTTOM, STACK_TOP};
use super::module::StackFrame;
use super::runtime::Routine;
use super::scalar::val_type;
use super::unswitch::MappingState;
use super::{defer, pointer};
use crate::hir::{FuncId, HirFunction, LocalId};
use crate::index::IndexVec;
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::{IntType, TypeId};

/// Storage of a script's local.
#[derive(Debug, Clone, Copy)]
pub enum Home {
    /// A scalar whose address is never taken, in a Wasm local.
    Scalar(Var, IntType),
    /// Any other local, in memory.
    Memory(Addr),
}

/// Branch targets of a loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopLabels {
    /// Target of `break`.
    pub leave: Label,
    /// Target of `continue`.
    pub next: Label,
}

/// State of the lowering of one function.
pub struct FnCx<'c, 'a> {
    /// State shared by all functions.
    pub cx: &'c mut Cx<'a>,
    /// The function being lowered.
    pub function: &'c HirFunction,
    /// The code emitted so far.
    pub code: WasmCode,
    /// Storage of each local.
    pub homes: IndexVec<LocalId, Home>,
    /// Run-time state of each local that may be bound to a map element; none for the others.
    pub bindings: IndexVec<LocalId, Option<Binding>>,
    /// The enclosing loops, innermost last.
    pub loops: Vec<LoopLabels>,
    /// Cursors of the enclosing map iterations, which an exit from the function must drop.
    pub cursors: Vec<Var>,
    /// The enclosing `try` blocks, innermost last, each with the number of cursors around it.
    pub handlers: Vec<(Label, usize)>,
    /// Facts about shared memory at the current position.
    pub shared_memory: MappingState,
    /// Locals whose address is taken.
    pub addressed: BTreeSet<LocalId>,
    /// Local that holds the address of an aggregate result.
    pub result: Option<Var>,
    /// Head of the list of deferred calls at entry, if the function defers any.
    deferred: Option<Var>,
    frame: Var,
    frame_used: u32,
    /// End of the stack slots that are never reused.
    frame_floor: u32,
    frame_size: u32,
    narrow_temps: Temps,
    wide_temps: Temps,
    too_large: bool,
}

/// Wasm locals for intermediate values, reused by the next statement.
#[derive(Debug, Default)]
struct Temps {
    all: Vec<Var>,
    used: usize,
}

/// State of the temporaries at the start of a statement, for [`FnCx::release`].
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    frame: u32,
    narrow: usize,
    wide: usize,
}

/// Lowers a function of the script.
///
/// # Errors
/// If it uses a construct that this back end does not support, or its frame is larger than the stack.
pub fn function<'a>(cx: &mut Cx<'a>, id: FuncId) -> Lower<()> {
    let function = &cx.hir.functions[id];
    let defined = cx.function(id);
    let recursive = cx.recursive.contains(&id);
    let mut fcx = FnCx::new(cx, function);
    fcx.block(&function.body)?;
    if function.ret == fcx.cx.hir.types.common().void {
        fcx.run_deferred();
        fcx.code.leave_frame();
    } else {
        fcx.finish_value();
    }
    if fcx.too_large {
        return Err(too_large(function.span, "the variables of this function", limit().into()));
    }
    if recursive {
        let (least, for_local) = RECURSIVE_FRAME;
        let locals = (function.params.len() + fcx.code.locals().len()) as u32;
        fcx.frame_size = fcx.frame_size.max((least + for_local * locals).min(limit()));
    }
    let (code, frame) = fcx.finish();
    cx.module.set_origin(defined, cx.origin(&function.name, function.span, &code));
    cx.module.define(defined, code, frame);
    Ok(())
}

/// Least frame of a recursive function in bytes, and bytes added for each Wasm local. The plugin's stack,
/// whose overflow is reported with a line, must overflow before the machine's stack, which is twice as large.
const RECURSIVE_FRAME: (u32, u32) = (128, 16);

/// Largest frame, in bytes.
fn limit() -> u32 {
    STACK_TOP - STACK_BOTTOM
}

impl<'c, 'a> FnCx<'c, 'a> {
    fn new(cx: &'c mut Cx<'a>, function: &'c HirFunction) -> FnCx<'c, 'a> {
        let types = &cx.hir.types;
        let by_address = types.scalar(function.ret).is_none() && function.ret != types.common().void;
        let mut fcx = FnCx::empty(cx, function, function.params.len() + usize::from(by_address));
        fcx.result = by_address.then_some(Var(0));
        fcx.addressed = pointer::with_address(function);
        fcx.allocate_locals(u32::from(by_address));
        fcx.init_bindings();
        if defer::defers(function) {
            let list = fcx.cx.kept(KeptGlobal::Deferred, 0);
            let mark = fcx.code.local(ValType::I32);
            fcx.code.get_global(list).set(mark);
            fcx.deferred = Some(mark);
        }
        fcx
    }

    /// Creates a function whose only parameter is the address of a record that holds all its locals.
    pub fn of_record(
        cx: &'c mut Cx<'a>,
        function: &'c HirFunction,
        homes: IndexVec<LocalId, Home>,
    ) -> FnCx<'c, 'a> {
        let mut fcx = FnCx::empty(cx, function, 1);
        fcx.bindings = homes.iter().map(|_| None).collect();
        fcx.homes = homes;
        fcx
    }

    fn empty(cx: &'c mut Cx<'a>, function: &'c HirFunction, params: usize) -> FnCx<'c, 'a> {
        let mut code = WasmCode::new(params);
        let frame = code.local(ValType::I32);
        FnCx {
            cx,
            function,
            code,
            homes: IndexVec::new(),
            bindings: IndexVec::new(),
            loops: Vec::new(),
            handlers: Vec::new(),
            cursors: Vec::new(),
            shared_memory: MappingState::Nothing,
            addressed: BTreeSet::new(),
            result: None,
            deferred: None,
            frame,
            frame_used: 0,
            frame_floor: 0,
            frame_size: 0,
            narrow_temps: Temps::default(),
            wide_temps: Temps::default(),
            too_large: false,
        }
    }

    /// Parameters stay where the caller stored them: the caller never reads them again.
    fn allocate_locals(&mut self, first_param: u32) {
        for (id, local) in self.function.locals.iter_enumerated() {
            let param = self.function.params.iter().position(|param| *param == id);
            let var = param.map(|position| Var(first_param + position as u32));
            let home = match self.cx.hir.types.scalar(local.ty) {
                Some(int) if self.addressed.contains(&id) => {
                    let addr = self.slot(local.ty);
                    if let Some(var) = var {
                        self.store_var(int, addr, var);
                    }
                    Home::Memory(addr)
                }
                Some(int) => Home::Scalar(var.unwrap_or_else(|| self.code.local(val_type(int))), int),
                None => Home::Memory(var.map_or_else(|| self.slot(local.ty), Addr::of)),
            };
            self.homes.push(home);
        }
        for (id, local) in self.function.locals.iter_enumerated() {
            let binding = local.binding.then(|| self.new_binding(id, local.ty));
            self.bindings.push(binding);
        }
    }

    /// Every path has returned already; Wasm's validation needs the terminator.
    fn finish_value(&mut self) {
        self.code.op(I::Unreachable);
    }

    /// Returns from the function; a scalar result is on the stack.
    pub fn leave(&mut self) {
        self.drop_cursors(0);
        self.run_deferred();
        self.code.leave();
    }

    /// Drops the cursors of all map iterations except the outermost `kept` ones, because control leaves their
    /// loops.
    pub fn drop_cursors(&mut self, kept: usize) {
        for at in kept..self.cursors.len() {
            let cursor = self.cursors[at];
            let drop = self.cx.drop_handle(import::maps::CURSOR);
            self.code.get(cursor).if_();
            self.code.get(cursor).call(drop).end();
        }
    }

    fn run_deferred(&mut self) {
        if let Some(mark) = self.deferred {
            let run = self.cx.routine(Routine::RunDeferred);
            self.code.get(mark).call(run);
        }
    }

    /// Returns the code and the stack frame that it needs.
    pub fn finish(self) -> (WasmCode, Option<StackFrame>) {
        if self.frame_size == 0 {
            return (self.code, None);
        }
        let prefix = self.cx.location_prefix(self.function.span);
        let text = format!(
            "{prefix}KS-TRAP stack: the stack of the plugin (1 MiB) is full in `{}`",
            self.function.name
        );
        let text = self.cx.text(text);
        let frame = StackFrame {
            var: self.frame,
            bytes: self.frame_size.next_multiple_of(16),
            abort: self.cx.host(import::console::ABORT),
            text: (text.address, text.len),
        };
        (self.code, Some(frame))
    }

    /// Returns the state of the temporaries.
    pub fn mark(&self) -> Mark {
        Mark { frame: self.frame_used, narrow: self.narrow_temps.used, wide: self.wide_temps.used }
    }

    /// Releases the temporaries allocated since `mark`.
    pub fn release(&mut self, mark: Mark) {
        self.frame_used = mark.frame.max(self.frame_floor);
        self.narrow_temps.used = mark.narrow;
        self.wide_temps.used = mark.wide;
    }

    /// Allocates a Wasm local until the end of the statement.
    pub fn temp(&mut self, ty: ValType) -> Var {
        let temps = if ty == ValType::I64 { &mut self.wide_temps } else { &mut self.narrow_temps };
        if temps.used == temps.all.len() {
            temps.all.push(self.code.local(ty));
        }
        temps.used += 1;
        temps.all[temps.used - 1]
    }

    /// Allocates a stack slot for a value until the end of the statement; its bytes are undefined.
    pub fn slot(&mut self, ty: TypeId) -> Addr {
        let types = &self.cx.hir.types;
        self.slot_bytes(types.size(ty), types.align(ty) as u32)
    }

    /// Allocates a stack slot of `bytes` bytes until the end of the statement.
    pub fn slot_bytes(&mut self, bytes: u64, align: u32) -> Addr {
        let start = self.frame_used.next_multiple_of(align);
        let end = u64::from(start) + bytes;
        if end > u64::from(limit() - 16) {
            self.too_large = true;
            return Addr { base: Some(self.frame), offset: 0 };
        }
        self.frame_used = end as u32;
        self.frame_size = self.frame_size.max(self.frame_used);
        Addr { base: Some(self.frame), offset: start }
    }

    /// Allocates a stack slot until the function returns. A loop uses the same slot in all iterations.
    pub fn kept_slot(&mut self, bytes: u32) -> Addr {
        let slot = self.slot_bytes(bytes.into(), 8);
        self.frame_floor = self.frame_used;
        slot
    }

    /// Sets a scalar local of the script to the value that `value` pushes.
    pub fn put(&mut self, local: LocalId, value: impl FnOnce(&mut Self) -> Lower<()>) -> Lower<()> {
        match self.homes[local] {
            Home::Scalar(var, _) => {
                value(self)?;
                self.code.set(var);
            }
            Home::Memory(addr) => {
                let int = self.int(self.function.locals[local].ty);
                self.store(int, addr, value)?;
            }
        }
        self.unbind(local);
        Ok(())
    }

    /// Sets an aggregate local of the script to the value at an address.
    pub fn put_aggregate(&mut self, local: LocalId, from: Addr) {
        let Home::Memory(addr) = self.homes[local] else {
            panic!("a local that is not a scalar is in memory")
        };
        let size = self.cx.hir.types.size(self.function.locals[local].ty);
        self.copy(addr, from, size);
        self.unbind(local);
    }

    /// Pushes the address and the length of a constant text.
    pub fn push_text(&mut self, text: Text) {
        self.code.u32(text.address).u32(text.len);
    }

    /// Pushes the start of a message about a source range.
    pub fn push_line(&mut self, span: Span) {
        let text = self.cx.text(self.cx.line_prefix(span));
        self.push_text(text);
    }

    /// Writes the error of the last call to standard error, after the source line.
    pub fn warn_refused(&mut self, err: u32, span: Span) {
        let warn = self.cx.routine(Routine::WarnError);
        self.push_line(span);
        let returned = self.cx.returned;
        self.code.u32(returned + err).call(warn);
    }
}

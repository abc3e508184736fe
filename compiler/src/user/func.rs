//! The lowering of one function: its locals, its frame, its temporaries.

use wasm_encoder::{Instruction as I, ValType};

use super::binding::Binding;
use super::code::{Code, Label, Var};
use super::cx::{Cx, Lower, Text, too_large};
use super::memory::{STACK_BOTTOM, STACK_TOP};
use super::module::Frame;
use super::scalar::{load_op, store_op, val_type};
use crate::hir::{FuncId, Function, LocalId};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{IntType, TypeId};

/// An address: a base and bytes from there.
#[derive(Debug, Clone, Copy)]
pub struct Addr {
    /// The base; none is address 0.
    pub base: Option<Var>,
    /// Bytes from there.
    pub offset: u32,
}

impl Addr {
    /// What lies so many bytes behind.
    pub fn plus(self, bytes: u32) -> Addr {
        Addr { offset: self.offset + bytes, ..self }
    }

    /// The address in a local.
    pub fn of(base: Var) -> Addr {
        Addr { base: Some(base), offset: 0 }
    }

    /// A fixed address.
    pub fn fixed(offset: u32) -> Addr {
        Addr { base: None, offset }
    }
}

/// Where a local of the script lives.
#[derive(Debug, Clone, Copy)]
pub enum Home {
    /// A scalar, in a Wasm local.
    Scalar(Var, IntType),
    /// Anything else, in memory.
    Memory(Addr),
}

/// The labels of the innermost loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopLabels {
    /// Where `break` goes.
    pub leave: Label,
    /// Where `continue` goes.
    pub next: Label,
}

/// A function that is being lowered.
pub struct FnCx<'c, 'a> {
    /// What all functions share.
    pub cx: &'c mut Cx<'a>,
    /// The function.
    pub function: &'a Function,
    /// Its code so far.
    pub code: Code,
    /// Where its locals live.
    pub homes: IndexVec<LocalId, Home>,
    /// What is known of locals that may be bound to a map element.
    pub bindings: IndexVec<LocalId, Option<Binding>>,
    /// The loops around the place that is being lowered, innermost last.
    pub loops: Vec<LoopLabels>,
    /// Where a result goes that is no scalar.
    pub result: Option<Var>,
    frame: Var,
    frame_used: u32,
    frame_size: u32,
    narrow_temps: Temps,
    wide_temps: Temps,
    too_large: bool,
}

/// Wasm locals for intermediate values, used again by the next statement.
#[derive(Debug, Default)]
struct Temps {
    all: Vec<Var>,
    used: usize,
}

/// What temporaries a statement may give back.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    frame: u32,
    narrow: usize,
    wide: usize,
}

/// Lowers a function of the script.
///
/// # Errors
/// If it uses what this back end does not have, or its frame is larger than the stack.
pub fn function<'a>(cx: &mut Cx<'a>, id: FuncId) -> Lower<()> {
    let function = &cx.hir.functions[id];
    let defined = cx.function(id);
    let mut fcx = FnCx::new(cx, function);
    for statement in &function.body {
        fcx.stmt(statement)?;
    }
    if function.ret == fcx.cx.hir.types.common().void {
        fcx.code.leave_frame();
    } else {
        fcx.finish_value();
    }
    if fcx.too_large {
        return Err(too_large(function.span, "the variables of this function", limit().into()));
    }
    let (code, frame) = fcx.finish();
    cx.module.define(defined, code, frame);
    Ok(())
}

/// Most bytes of a frame.
fn limit() -> u32 {
    STACK_TOP - STACK_BOTTOM
}

impl<'c, 'a> FnCx<'c, 'a> {
    fn new(cx: &'c mut Cx<'a>, function: &'a Function) -> FnCx<'c, 'a> {
        let types = &cx.hir.types;
        let by_address = types.scalar(function.ret).is_none() && function.ret != types.common().void;
        let mut code = Code::new(function.params.len() + usize::from(by_address));
        let frame = code.local(ValType::I32);
        let mut fcx = FnCx {
            cx,
            function,
            code,
            homes: IndexVec::new(),
            bindings: IndexVec::new(),
            loops: Vec::new(),
            result: by_address.then_some(Var(0)),
            frame,
            frame_used: 0,
            frame_size: 0,
            narrow_temps: Temps::default(),
            wide_temps: Temps::default(),
            too_large: false,
        };
        fcx.place_locals(u32::from(by_address));
        fcx.init_bindings();
        fcx
    }

    /// Parameters live where the caller put them: it never looks at them again.
    fn place_locals(&mut self, first_param: u32) {
        for (id, local) in self.function.locals.iter_enumerated() {
            let param = self.function.params.iter().position(|param| *param == id);
            let var = param.map(|position| Var(first_param + position as u32));
            let home = match self.cx.hir.types.scalar(local.ty) {
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

    /// Every path has returned before; Wasm's types ask for this.
    fn finish_value(&mut self) {
        self.code.op(I::Unreachable);
    }

    fn finish(self) -> (Code, Option<Frame>) {
        if self.frame_size == 0 {
            return (self.code, None);
        }
        let prefix = self.cx.place_prefix(self.function.span);
        let text = format!("{prefix}the stack of the plugin (1 MiB) is full in `{}`", self.function.name);
        let text = self.cx.text(text);
        let frame = Frame {
            var: self.frame,
            bytes: self.frame_size.next_multiple_of(16),
            abort: self.cx.host("console", "abort"),
            text: (text.address, text.len),
        };
        (self.code, Some(frame))
    }

    /// What temporaries are in use.
    pub fn mark(&self) -> Mark {
        Mark { frame: self.frame_used, narrow: self.narrow_temps.used, wide: self.wide_temps.used }
    }

    /// Gives back the temporaries that were taken since.
    pub fn release(&mut self, mark: Mark) {
        self.frame_used = mark.frame;
        self.narrow_temps.used = mark.narrow;
        self.wide_temps.used = mark.wide;
    }

    /// A temporary Wasm local, until the end of the statement.
    pub fn temp(&mut self, ty: ValType) -> Var {
        let temps = if ty == ValType::I64 { &mut self.wide_temps } else { &mut self.narrow_temps };
        if temps.used == temps.all.len() {
            temps.all.push(self.code.local(ty));
        }
        temps.used += 1;
        temps.all[temps.used - 1]
    }

    /// Room in the frame for a value, until the end of the statement; its bytes are undefined.
    pub fn slot(&mut self, ty: TypeId) -> Addr {
        let types = &self.cx.hir.types;
        self.slot_bytes(types.size(ty), types.align(ty) as u32)
    }

    /// Room in the frame for so many bytes.
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

    /// Pushes an address.
    pub fn push_addr(&mut self, addr: Addr) {
        match addr.base {
            Some(base) => self.code.get_plus(base, addr.offset),
            None => self.code.u32(addr.offset),
        };
    }

    /// Pushes the scalar at an address.
    pub fn load(&mut self, int: IntType, addr: Addr) {
        let offset = self.push_base(addr);
        self.code.op(load_op(int, offset));
    }

    /// Stores a scalar that `value` pushes at an address.
    pub fn store(
        &mut self,
        int: IntType,
        addr: Addr,
        value: impl FnOnce(&mut Self) -> Lower<()>,
    ) -> Lower<()> {
        let offset = self.push_base(addr);
        value(self)?;
        self.code.op(store_op(int, offset));
        Ok(())
    }

    /// Stores the scalar in a local at an address.
    pub fn store_var(&mut self, int: IntType, addr: Addr, value: Var) {
        let offset = self.push_base(addr);
        self.code.get(value).op(store_op(int, offset));
    }

    /// Copies bytes; the two may overlap.
    pub fn copy(&mut self, to: Addr, from: Addr, bytes: u64) {
        self.push_addr(to);
        self.push_addr(from);
        self.code.u32(bytes as u32).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    }

    /// Sets bytes to zero.
    pub fn zero(&mut self, to: Addr, bytes: u64) {
        match u32::try_from(bytes) {
            Ok(bytes @ (1 | 2 | 4 | 8)) => {
                let int = IntType { bits: bytes as u8 * 8, signed: false };
                let offset = self.push_base(to);
                super::scalar::push_const(&mut self.code, int, 0);
                self.code.op(store_op(int, offset));
            }
            _ => {
                self.push_addr(to);
                self.code.i32(0).u32(bytes as u32).op(I::MemoryFill(0));
            }
        }
    }

    /// Pushes address and length of a constant text.
    pub fn push_text(&mut self, text: Text) {
        self.code.u32(text.address).u32(text.len);
    }

    /// Pushes the start of a message about this place.
    pub fn push_line(&mut self, span: Span) {
        let text = self.cx.text(self.cx.line_prefix(span));
        self.push_text(text);
    }

    /// Pushes the base of an address and gives what is left for the instruction's own offset.
    fn push_base(&mut self, addr: Addr) -> u32 {
        match addr.base {
            Some(base) => {
                self.code.get(base);
                addr.offset
            }
            None => {
                self.code.u32(addr.offset);
                0
            }
        }
    }
}

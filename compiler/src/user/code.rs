//! The body of one core function, while it is made.
//!
//! Callees, labels and the size of the frame are symbolic until the module is finished.

use wasm_encoder::{BlockType, Instruction, MemArg, ValType};

use crate::id_type;
use crate::source::Span;

id_type! {
    /// A function that the module imports.
    ImportId,
    /// A function that the module defines.
    DefinedId,
}

/// What a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// A function of the host.
    Import(ImportId),
    /// A function of this module.
    Defined(DefinedId),
}

/// A wasm local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Var(pub u32);

/// A wasm global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WasmGlobal(pub u32);

/// A label that a branch may name: the depth at which its block was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(u32);

/// An instruction, or what becomes some when the module is finished.
#[derive(Debug, Clone)]
pub enum Op {
    /// As it is.
    Wasm(Instruction<'static>),
    /// A call.
    Call(Callee),
    /// Gives the frame of this function back.
    LeaveFrame,
}

/// A function body under construction.
#[derive(Debug, Clone)]
pub struct WasmCode {
    params: u32,
    locals: Vec<ValType>,
    ops: Vec<Op>,
    depth: u32,
    /// From which instruction on the code belongs to which place of the script.
    spans: Vec<(usize, Span)>,
}

impl WasmCode {
    /// An empty body of a function with so many parameters.
    pub fn new(params: usize) -> WasmCode {
        WasmCode { params: params as u32, locals: Vec::new(), ops: Vec::new(), depth: 0, spans: Vec::new() }
    }

    /// The locals beside the parameters.
    pub fn locals(&self) -> &[ValType] {
        &self.locals
    }

    /// The instructions.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// From which instruction on the code belongs to which place of the script, in order.
    pub fn spans(&self) -> &[(usize, Span)] {
        &self.spans
    }

    /// What follows belongs to this place of the script. Gives the place that the code before belongs to.
    pub fn at(&mut self, span: Span) -> Option<Span> {
        let (next, before) = (self.ops.len(), self.spans.last().copied());
        if before.is_none_or(|(_, last)| last != span) {
            self.spans.pop_if(|(position, _)| *position == next);
            self.spans.push((next, span));
        }
        before.map(|(_, span)| span)
    }

    /// What follows belongs to a place again that [`WasmCode::at`] gave.
    pub fn back_at(&mut self, before: Option<Span>) {
        if let Some(span) = before {
            self.at(span);
        }
    }

    /// A new local.
    pub fn local(&mut self, ty: ValType) -> Var {
        self.locals.push(ty);
        Var(self.params + self.locals.len() as u32 - 1)
    }

    /// Appends an instruction that opens and closes no block.
    pub fn op(&mut self, instruction: Instruction<'static>) -> &mut WasmCode {
        self.ops.push(Op::Wasm(instruction));
        self
    }

    /// Appends several of these.
    pub fn ops_of(&mut self, instructions: impl IntoIterator<Item = Instruction<'static>>) -> &mut WasmCode {
        self.ops.extend(instructions.into_iter().map(Op::Wasm));
        self
    }

    /// Reads a local.
    pub fn get(&mut self, var: Var) -> &mut WasmCode {
        self.op(Instruction::LocalGet(var.0))
    }

    /// Sets a local.
    pub fn set(&mut self, var: Var) -> &mut WasmCode {
        self.op(Instruction::LocalSet(var.0))
    }

    /// Sets a local and keeps the value.
    pub fn tee(&mut self, var: Var) -> &mut WasmCode {
        self.op(Instruction::LocalTee(var.0))
    }

    /// Reads a global.
    pub fn get_global(&mut self, global: WasmGlobal) -> &mut WasmCode {
        self.op(Instruction::GlobalGet(global.0))
    }

    /// Sets a global.
    pub fn set_global(&mut self, global: WasmGlobal) -> &mut WasmCode {
        self.op(Instruction::GlobalSet(global.0))
    }

    /// A 32-bit constant.
    pub fn i32(&mut self, value: i32) -> &mut WasmCode {
        self.op(Instruction::I32Const(value))
    }

    /// A 32-bit constant that is an address, a size or another unsigned number.
    pub fn u32(&mut self, value: u32) -> &mut WasmCode {
        self.i32(value.cast_signed())
    }

    /// A 64-bit constant.
    pub fn i64(&mut self, value: i64) -> &mut WasmCode {
        self.op(Instruction::I64Const(value))
    }

    /// The address in a local, moved by some bytes.
    pub fn get_plus(&mut self, var: Var, offset: u32) -> &mut WasmCode {
        self.get(var);
        if offset != 0 {
            self.u32(offset).op(Instruction::I32Add);
        }
        self
    }

    /// Calls a function.
    pub fn call(&mut self, callee: impl Into<Callee>) -> &mut WasmCode {
        self.ops.push(Op::Call(callee.into()));
        self
    }

    /// Returns, with what is on the stack; the frame is given back.
    pub fn leave(&mut self) -> &mut WasmCode {
        self.ops.push(Op::LeaveFrame);
        self.op(Instruction::Return)
    }

    /// Gives the frame back at the end of the body.
    pub fn leave_frame(&mut self) -> &mut WasmCode {
        self.ops.push(Op::LeaveFrame);
        self
    }

    /// Opens a block; a branch to its label leaves it.
    pub fn block(&mut self) -> Label {
        self.open(Instruction::Block(BlockType::Empty))
    }

    /// Opens a loop; a branch to its label starts the next turn.
    pub fn loop_(&mut self) -> Label {
        self.open(Instruction::Loop(BlockType::Empty))
    }

    /// Opens a branch taken if the condition on the stack is not zero.
    pub fn if_(&mut self) -> Label {
        self.open(Instruction::If(BlockType::Empty))
    }

    /// Like [`WasmCode::if_`]; both branches leave a value.
    pub fn if_value(&mut self, ty: ValType) -> Label {
        self.open(Instruction::If(BlockType::Result(ty)))
    }

    /// The other branch of the innermost `if`.
    pub fn else_(&mut self) -> &mut WasmCode {
        self.op(Instruction::Else)
    }

    /// Closes the innermost block.
    pub fn end(&mut self) -> &mut WasmCode {
        self.depth -= 1;
        self.op(Instruction::End)
    }

    /// Branches.
    pub fn br(&mut self, label: Label) -> &mut WasmCode {
        self.op(Instruction::Br(self.depth - label.0))
    }

    /// Branches if the condition on the stack is not zero.
    pub fn br_if(&mut self, label: Label) -> &mut WasmCode {
        self.op(Instruction::BrIf(self.depth - label.0))
    }

    fn open(&mut self, instruction: Instruction<'static>) -> Label {
        self.op(instruction);
        self.depth += 1;
        Label(self.depth)
    }
}

impl From<ImportId> for Callee {
    fn from(id: ImportId) -> Callee {
        Callee::Import(id)
    }
}

impl From<DefinedId> for Callee {
    fn from(id: DefinedId) -> Callee {
        Callee::Defined(id)
    }
}

/// A memory operand. Alignment is a hint only; 1 is always right.
pub fn mem(offset: u32) -> MemArg {
    MemArg { offset: u64::from(offset), align: 0, memory_index: 0 }
}

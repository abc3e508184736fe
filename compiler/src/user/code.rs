//! The body of one core function under construction.
//!
//! Callees, labels and the frame size are symbolic until the module is finished.

use wasm_encoder::{BlockType, Instruction, MemArg, ValType};

use crate::id_type;
use crate::source::Span;

id_type! {
    /// Index of an imported function.
    ImportId,
    /// Index of a function that the module defines.
    DefinedId,
}

/// Target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// A host function, imported.
    Import(ImportId),
    /// A function defined in this module.
    Defined(DefinedId),
}

/// Index of a wasm local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Var(pub u32);

/// Index of a wasm global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WasmGlobal(pub u32);

/// Target of a branch: the depth at which its block was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(u32);

/// An instruction, or a pseudo-instruction that is expanded when the module is finished.
#[derive(Debug, Clone)]
pub enum Op {
    /// An instruction that is encoded unchanged.
    Wasm(Instruction<'static>),
    /// A call, whose function index is assigned at the end.
    Call(Callee),
    /// Releases the stack frame of this function.
    LeaveFrame,
}

/// A function body under construction.
#[derive(Debug, Clone)]
pub struct WasmCode {
    params: u32,
    locals: Vec<ValType>,
    ops: Vec<Op>,
    depth: u32,
    /// Source ranges, each with the position of its first instruction.
    spans: Vec<(usize, Span)>,
}

impl WasmCode {
    /// Creates an empty body of a function with `params` parameters.
    pub fn new(params: usize) -> WasmCode {
        WasmCode { params: params as u32, locals: Vec::new(), ops: Vec::new(), depth: 0, spans: Vec::new() }
    }

    /// Returns the types of the locals, without the parameters.
    pub fn locals(&self) -> &[ValType] {
        &self.locals
    }

    /// Returns the instructions so far.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the source ranges, each with the position of its first instruction, in order.
    pub fn spans(&self) -> &[(usize, Span)] {
        &self.spans
    }

    /// Sets the source range of the instructions that follow, and returns the previous one.
    pub fn at(&mut self, span: Span) -> Option<Span> {
        let (next, before) = (self.ops.len(), self.spans.last().copied());
        if before.is_none_or(|(_, last)| last != span) {
            self.spans.pop_if(|(position, _)| *position == next);
            self.spans.push((next, span));
        }
        before.map(|(_, span)| span)
    }

    /// Restores a source range that [`WasmCode::at`] returned.
    pub fn back_at(&mut self, before: Option<Span>) {
        if let Some(span) = before {
            self.at(span);
        }
    }

    /// Adds a local of this type.
    pub fn local(&mut self, ty: ValType) -> Var {
        self.locals.push(ty);
        Var(self.params + self.locals.len() as u32 - 1)
    }

    /// Appends an instruction that opens and closes no block.
    pub fn op(&mut self, instruction: Instruction<'static>) -> &mut WasmCode {
        self.ops.push(Op::Wasm(instruction));
        self
    }

    /// Appends several instructions that open and close no block.
    pub fn ops_of(&mut self, instructions: impl IntoIterator<Item = Instruction<'static>>) -> &mut WasmCode {
        self.ops.extend(instructions.into_iter().map(Op::Wasm));
        self
    }

    /// Appends a `local.get`.
    pub fn get(&mut self, var: Var) -> &mut WasmCode {
        self.op(Instruction::LocalGet(var.0))
    }

    /// Appends a `local.set`.
    pub fn set(&mut self, var: Var) -> &mut WasmCode {
        self.op(Instruction::LocalSet(var.0))
    }

    /// Appends a `local.tee`: sets a local and keeps the value on the stack.
    pub fn tee(&mut self, var: Var) -> &mut WasmCode {
        self.op(Instruction::LocalTee(var.0))
    }

    /// Appends a `global.get`.
    pub fn get_global(&mut self, global: WasmGlobal) -> &mut WasmCode {
        self.op(Instruction::GlobalGet(global.0))
    }

    /// Appends a `global.set`.
    pub fn set_global(&mut self, global: WasmGlobal) -> &mut WasmCode {
        self.op(Instruction::GlobalSet(global.0))
    }

    /// Appends an `i32.const`.
    pub fn i32(&mut self, value: i32) -> &mut WasmCode {
        self.op(Instruction::I32Const(value))
    }

    /// Appends an `i32.const` of an address, a size or another unsigned number.
    pub fn u32(&mut self, value: u32) -> &mut WasmCode {
        self.i32(value.cast_signed())
    }

    /// Appends an `i64.const`.
    pub fn i64(&mut self, value: i64) -> &mut WasmCode {
        self.op(Instruction::I64Const(value))
    }

    /// Pushes the address in a local plus an offset in bytes.
    pub fn get_plus(&mut self, var: Var, offset: u32) -> &mut WasmCode {
        self.get(var);
        if offset != 0 {
            self.u32(offset).op(Instruction::I32Add);
        }
        self
    }

    /// Appends a call of an imported or defined function.
    pub fn call(&mut self, callee: impl Into<Callee>) -> &mut WasmCode {
        self.ops.push(Op::Call(callee.into()));
        self
    }

    /// Returns with the values on the stack and releases the stack frame.
    pub fn leave(&mut self) -> &mut WasmCode {
        self.ops.push(Op::LeaveFrame);
        self.op(Instruction::Return)
    }

    /// Releases the stack frame at the end of the body.
    pub fn leave_frame(&mut self) -> &mut WasmCode {
        self.ops.push(Op::LeaveFrame);
        self
    }

    /// Opens a block; a branch to its label leaves it.
    pub fn block(&mut self) -> Label {
        self.open(Instruction::Block(BlockType::Empty))
    }

    /// Opens a loop; a branch to its label starts the next iteration.
    pub fn loop_(&mut self) -> Label {
        self.open(Instruction::Loop(BlockType::Empty))
    }

    /// Opens an `if` block, entered if the condition on the stack is not zero.
    pub fn if_(&mut self) -> Label {
        self.open(Instruction::If(BlockType::Empty))
    }

    /// Like [`WasmCode::if_`]; both branches leave a value.
    pub fn if_value(&mut self, ty: ValType) -> Label {
        self.open(Instruction::If(BlockType::Result(ty)))
    }

    /// Starts the `else` branch of the innermost `if`.
    pub fn else_(&mut self) -> &mut WasmCode {
        self.op(Instruction::Else)
    }

    /// Closes the innermost block.
    pub fn end(&mut self) -> &mut WasmCode {
        self.depth -= 1;
        self.op(Instruction::End)
    }

    /// Appends an unconditional branch.
    pub fn br(&mut self, label: Label) -> &mut WasmCode {
        self.op(Instruction::Br(self.depth - label.0))
    }

    /// Appends a branch that is taken if the condition on the stack is not zero.
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

/// Returns a memory operand. Alignment is a hint only; 1 is always valid.
pub fn mem(offset: u32) -> MemArg {
    MemArg { offset: u64::from(offset), align: 0, memory_index: 0 }
}

//! The core module under construction, and its encoding.

use std::collections::BTreeMap;

use ks_wit::lines::{Lines, Point, ScriptFunction};
use ks_wit::section;
use wasm_encoder as wasm;
use wasm_encoder::{Instruction, ValType};

use super::abi::CoreImport;
use super::code::{Callee, DefinedId, ImportId, Op, Var, WasmCode, WasmGlobal};
use super::memory::{PAGE, STACK_BOTTOM, STACK_TOP, Statics};
use crate::index::{Id, IndexVec};

/// The stack pointer; decremented when a frame is entered.
pub const STACK_POINTER: WasmGlobal = WasmGlobal(0);
/// The first free byte of the arena from which `cabi_realloc` allocates.
pub const ARENA: WasmGlobal = WasmGlobal(1);
/// Start of the arena: a host call that may return lists resets the arena to it.
pub const ARENA_START: WasmGlobal = WasmGlobal(2);
/// End of the objects of `new`; the memory up to the arena's start is free for more.
pub const HEAP: WasmGlobal = WasmGlobal(3);

/// The memory into which the host maps shared pages (`shared`).
pub const SHARED_MEMORY: u32 = 1;

/// The stack frame of a function in linear memory.
#[derive(Debug, Clone, Copy)]
pub struct StackFrame {
    /// Local that holds its address.
    pub var: Var,
    /// Size of the frame in bytes.
    pub bytes: u32,
    /// Import of `console.abort`, called if the stack overflows.
    pub abort: ImportId,
    /// Address and length of the message passed to `abort`.
    pub text: (u32, u32),
}

/// Source of a script's function, for readers of a trap.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Name in the script.
    pub name: String,
    /// Name of the source file.
    pub file: String,
    /// Line numbers, each with the position of its first instruction.
    pub lines: Vec<(usize, u32)>,
}

/// The module's name, which [`Lines`] refers to.
const NAME: &str = "kernelscript";

/// A core module under construction.
pub struct Module {
    signatures: Vec<(Vec<ValType>, Vec<ValType>)>,
    imports: IndexVec<ImportId, (CoreImport, u32)>,
    import_ids: BTreeMap<(&'static str, String), ImportId>,
    defined: IndexVec<DefinedId, Defined>,
    globals: Vec<i32>,
    exports: Vec<(&'static str, DefinedId)>,
    /// Functions that are called through a table position. Positions count from 1; 0 is null.
    table: Vec<DefinedId>,
    /// Whether there is a call through the table.
    indirect: bool,
    /// Number of pages of the shared memory; 0 if there is no shared memory.
    pub shared_pages: u32,
    /// Constants and variables with a fixed address.
    pub statics: Statics,
}

/// A function of the module; `code` is none only between its declaration and its definition.
struct Defined {
    name: String,
    signature: u32,
    code: Option<(WasmCode, Option<StackFrame>)>,
    /// None for functions that the compiler adds.
    origin: Option<Origin>,
}

impl Module {
    /// Creates an empty module with the globals of the stack, the arena and the heap.
    pub fn new() -> Module {
        Module {
            signatures: Vec::new(),
            imports: IndexVec::new(),
            import_ids: BTreeMap::new(),
            defined: IndexVec::new(),
            globals: vec![STACK_TOP.cast_signed(), 0, 0, 0],
            exports: Vec::new(),
            table: Vec::new(),
            indirect: false,
            shared_pages: 0,
            statics: Statics::new(),
        }
    }

    /// Returns an import, added on first use.
    pub fn import(&mut self, import: CoreImport) -> ImportId {
        let key = (import.module, import.name.clone());
        if let Some(id) = self.import_ids.get(&key) {
            return *id;
        }
        let signature = self.signature(import.params, import.results);
        let id = self.imports.push((import, signature));
        self.import_ids.insert(key, id);
        id
    }

    /// Declares a new function, to be defined later. The name is for readers of a trap.
    pub fn declare(&mut self, name: impl Into<String>, params: &[ValType], results: &[ValType]) -> DefinedId {
        let signature = self.signature(params, results);
        self.defined.push(Defined { name: name.into(), signature, code: None, origin: None })
    }

    /// Sets the code of a declared function.
    pub fn define(&mut self, id: DefinedId, code: WasmCode, frame: Option<StackFrame>) {
        self.defined[id].code = Some((code, frame));
    }

    /// Sets the source of a script's function.
    pub fn set_origin(&mut self, id: DefinedId, origin: Origin) {
        self.defined[id].origin = Some(origin);
    }

    /// Adds a 32-bit global with an initial value.
    pub fn global(&mut self, init: i32) -> WasmGlobal {
        self.globals.push(init);
        WasmGlobal(self.globals.len() as u32 - 1)
    }

    /// Exports a defined function under this name.
    pub fn export(&mut self, name: &'static str, function: DefinedId) {
        self.exports.push((name, function));
    }

    /// Returns the table position of a function, for calls through a value; never 0.
    pub fn table_position(&mut self, function: DefinedId) -> u32 {
        let position = self.table.iter().position(|one| *one == function).unwrap_or_else(|| {
            self.table.push(function);
            self.table.len() - 1
        });
        position as u32 + 1
    }

    /// Returns the instruction that calls a function of this type by its table position.
    pub fn call_indirect(&mut self, params: &[ValType], results: &[ValType]) -> Instruction<'static> {
        self.indirect = true;
        Instruction::CallIndirect { type_index: self.signature(params, results), table_index: 0 }
    }

    /// Encodes the module as bytes.
    pub fn finish(mut self) -> Vec<u8> {
        let arena = self.statics.end();
        self.globals[ARENA.0 as usize] = arena.cast_signed();
        self.globals[ARENA_START.0 as usize] = arena.cast_signed();
        self.globals[HEAP.0 as usize] = arena.cast_signed();
        let mut module = wasm::Module::new();
        module.section(&self.type_section());
        module.section(&self.import_section());
        module.section(&self.function_section());
        if self.indirect || !self.table.is_empty() {
            module.section(&self.table_section());
        }
        module.section(&self.memory_section(arena));
        module.section(&self.global_section());
        module.section(&self.export_section());
        if !self.table.is_empty() {
            module.section(&self.element_section());
        }
        let (code, lines) = self.code_section();
        module.section(&code);
        module.section(&self.data_section());
        module.section(&self.name_section());
        let mut records = Vec::new();
        section::push_record(&mut records, &lines.to_bytes());
        module.section(&wasm::CustomSection { name: section::LINES.into(), data: records.into() });
        if self.shared_pages > 0 {
            let mut records = Vec::new();
            section::push_record(&mut records, &SHARED_MEMORY.to_le_bytes());
            module
                .section(&wasm::CustomSection { name: section::SHARED_MEMORY.into(), data: records.into() });
        }
        module.finish()
    }

    fn signature(&mut self, params: &[ValType], results: &[ValType]) -> u32 {
        let wanted = |(p, r): &(Vec<ValType>, Vec<ValType>)| p == params && r == results;
        let position = self.signatures.iter().position(wanted).unwrap_or_else(|| {
            self.signatures.push((params.to_vec(), results.to_vec()));
            self.signatures.len() - 1
        });
        position as u32
    }

    fn type_section(&self) -> wasm::TypeSection {
        let mut section = wasm::TypeSection::new();
        for (params, results) in &self.signatures {
            section.ty().function(params.iter().copied(), results.iter().copied());
        }
        section
    }

    fn import_section(&self) -> wasm::ImportSection {
        let mut section = wasm::ImportSection::new();
        for (import, signature) in &self.imports {
            section.import(import.module, &import.name, wasm::EntityType::Function(*signature));
        }
        section
    }

    fn function_section(&self) -> wasm::FunctionSection {
        let mut section = wasm::FunctionSection::new();
        for function in &self.defined {
            section.function(function.signature);
        }
        section
    }

    fn table_section(&self) -> wasm::TableSection {
        let mut section = wasm::TableSection::new();
        let size = self.table.len() as u64 + 1;
        section.table(wasm::TableType {
            element_type: wasm::RefType::FUNCREF,
            table64: false,
            minimum: size,
            maximum: Some(size),
            shared: false,
        });
        section
    }

    fn element_section(&self) -> wasm::ElementSection {
        let functions: Vec<u32> = self.table.iter().map(|one| self.index((*one).into())).collect();
        let mut section = wasm::ElementSection::new();
        let elements = wasm::Elements::Functions(functions.into());
        section.active(None, &wasm::ConstExpr::i32_const(1), elements);
        section
    }

    /// Encodes the plugin's own memory, and the shared one at its final size.
    fn memory_section(&self, arena: u32) -> wasm::MemorySection {
        let memory = |minimum: u32, maximum: Option<u32>| wasm::MemoryType {
            minimum: minimum.into(),
            maximum: maximum.map(u64::from),
            memory64: false,
            shared: false,
            page_size_log2: None,
        };
        let mut section = wasm::MemorySection::new();
        section.memory(memory((arena + PAGE).div_ceil(PAGE), None));
        if self.shared_pages > 0 {
            section.memory(memory(self.shared_pages, Some(self.shared_pages)));
        }
        section
    }

    fn global_section(&self) -> wasm::GlobalSection {
        let mut section = wasm::GlobalSection::new();
        for init in &self.globals {
            let ty = wasm::GlobalType { val_type: ValType::I32, mutable: true, shared: false };
            section.global(ty, &wasm::ConstExpr::i32_const(*init));
        }
        section
    }

    fn export_section(&self) -> wasm::ExportSection {
        let mut section = wasm::ExportSection::new();
        section.export("memory", wasm::ExportKind::Memory, 0);
        for (name, function) in &self.exports {
            section.export(name, wasm::ExportKind::Func, self.index((*function).into()));
        }
        section
    }

    /// Encodes the bodies, and returns their line table.
    fn code_section(&self) -> (wasm::CodeSection, Lines) {
        let mut section = wasm::CodeSection::new();
        let mut lines = Lines { module: NAME.into(), ..Lines::default() };
        for (id, function) in self.defined.iter_enumerated() {
            let (code, frame) = function.code.as_ref().expect("every declared function is defined");
            let mut points = Points::new(function.origin.as_ref());
            section.function(&self.body(code, frame.as_ref(), &mut points));
            if let Some(origin) = &function.origin {
                let file = file_number(&mut lines, &origin.file);
                let index = self.index(id.into());
                lines.functions.push(ScriptFunction {
                    index,
                    name: origin.name.clone(),
                    file,
                    points: points.found,
                });
            }
        }
        (section, lines)
    }

    fn body(&self, code: &WasmCode, frame: Option<&StackFrame>, points: &mut Points<'_>) -> wasm::Function {
        let mut body = wasm::Function::new_with_locals_types(code.locals().iter().copied());
        points.reach(0, &body);
        if let Some(frame) = frame {
            self.enter(&mut body, frame);
        }
        for (position, op) in code.ops().iter().enumerate() {
            points.reach(position, &body);
            match op {
                Op::Wasm(instruction) => {
                    body.instruction(instruction);
                }
                Op::Call(callee) => {
                    body.instruction(&Instruction::Call(self.index(*callee)));
                }
                Op::LeaveFrame => {
                    if let Some(frame) = frame {
                        leave(&mut body, frame);
                    }
                }
            }
        }
        body.instruction(&Instruction::End);
        body
    }

    fn enter(&self, body: &mut wasm::Function, frame: &StackFrame) {
        let needed = frame.bytes + STACK_BOTTOM;
        body.instructions()
            .global_get(STACK_POINTER.0)
            .i32_const(needed.cast_signed())
            .i32_lt_u()
            .if_(wasm::BlockType::Empty)
            .i32_const(frame.text.0.cast_signed())
            .i32_const(frame.text.1.cast_signed())
            .call(self.index(frame.abort.into()))
            .unreachable()
            .end()
            .global_get(STACK_POINTER.0)
            .i32_const(frame.bytes.cast_signed())
            .i32_sub()
            .local_tee(frame.var.0)
            .global_set(STACK_POINTER.0);
    }

    fn data_section(&self) -> wasm::DataSection {
        let mut section = wasm::DataSection::new();
        for (address, bytes) in self.statics.segments() {
            section.active(0, &wasm::ConstExpr::i32_const(address.cast_signed()), bytes);
        }
        section
    }

    fn name_section(&self) -> wasm::NameSection {
        let mut names = wasm::NameMap::new();
        for (id, function) in self.defined.iter_enumerated() {
            names.append(self.index(id.into()), &function.name);
        }
        let mut section = wasm::NameSection::new();
        section.module(NAME);
        section.functions(&names);
        section
    }

    fn index(&self, callee: Callee) -> u32 {
        let index = match callee {
            Callee::Import(id) => id.index(),
            Callee::Defined(id) => self.imports.len() + id.index(),
        };
        index as u32
    }
}

/// Line table of one body during encoding.
struct Points<'a> {
    /// Lines that are not yet reached.
    left: &'a [(usize, u32)],
    found: Vec<Point>,
}

impl<'a> Points<'a> {
    fn new(origin: Option<&'a Origin>) -> Points<'a> {
        Points { left: origin.map_or(&[], |origin| &origin.lines), found: Vec::new() }
    }

    /// Records the lines that begin at `position`, the next instruction to be encoded.
    fn reach(&mut self, position: usize, body: &wasm::Function) {
        while let Some(((at, line), rest)) = self.left.split_first()
            && *at <= position
        {
            self.left = rest;
            let offset = body.byte_len() as u32;
            self.found.pop_if(|last| last.offset == offset);
            if self.found.last().is_none_or(|last| last.line != *line) {
                self.found.push(Point { offset, line: *line });
            }
        }
    }
}

/// Returns the number of a file, assigned on first use.
fn file_number(lines: &mut Lines, name: &str) -> u32 {
    let known = lines.files.iter().position(|file| file == name);
    known.unwrap_or_else(|| {
        lines.files.push(name.to_owned());
        lines.files.len() - 1
    }) as u32
}

fn leave(body: &mut wasm::Function, frame: &StackFrame) {
    body.instructions()
        .local_get(frame.var.0)
        .i32_const(frame.bytes.cast_signed())
        .i32_add()
        .global_set(STACK_POINTER.0);
}

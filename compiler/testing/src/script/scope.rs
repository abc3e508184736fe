//! State of a generator while it writes a script: names and their types, and remaining budgets.

use std::collections::BTreeSet;

use super::kernel_memory::KernelPointer;
use super::kinds::{PROGRAMS, Program};
use super::rng::Rng;
use super::tree::Node;
use super::types::Ty;

#[derive(Clone)]
pub struct Var {
    pub name: String,
    pub ty: Ty,
    pub writable: bool,
    /// Whether it is an owning pointer to an object, which the program may delete.
    pub owns: bool,
}

impl Var {
    pub fn writable(name: String, ty: Ty) -> Var {
        Var { name, ty, writable: true, owns: false }
    }

    pub fn read_only(name: String, ty: Ty) -> Var {
        Var { name, ty, writable: false, owns: false }
    }

    /// Creates an owning pointer to an object.
    pub fn owner(name: String, ty: Ty) -> Var {
        Var { name, ty, writable: true, owns: true }
    }
}

pub struct Map {
    pub name: String,
    pub kind: &'static str,
    pub key: Key,
    pub value: Ty,
    pub size: u32,
    /// The map whose values are maps like this one; none for a map of the script's own.
    pub outer: Option<OuterMap>,
}

/// A map whose values are maps.
#[derive(Clone)]
pub struct OuterMap {
    pub kind: &'static str,
    pub key: Ty,
    pub size: u32,
}

/// The type of a map's keys.
pub enum Key {
    Value(Ty),
    /// A kernel object, which only a function with the program's parameters can name.
    Object(&'static str),
}

impl Map {
    /// Returns the number of elements if it is an array.
    pub fn elements(&self) -> Option<u32> {
        self.is_array().then_some(self.size)
    }

    pub fn is_array(&self) -> bool {
        self.kind.ends_with("array")
    }

    pub fn is_storage(&self) -> bool {
        matches!(self.key, Key::Object(_))
    }
}

/// A queue, a stack or a bloom filter.
#[derive(Clone)]
pub struct Queue {
    pub name: String,
    pub kind: &'static str,
    pub value: Ty,
}

/// A map that owns objects.
#[derive(Clone)]
pub struct ObjectMap {
    pub name: String,
    pub key: Ty,
    pub value: Ty,
}

/// A ring buffer of the script.
#[derive(Clone)]
pub struct Ring {
    pub name: String,
    /// Index of the struct of its records.
    pub record: usize,
}

#[derive(Clone)]
pub struct Helper {
    pub name: String,
    /// Whether it receives the parameters of the program, before its own.
    pub has_context: bool,
    pub params: Vec<Param>,
    pub ret: Option<Ty>,
    pub throws: bool,
    /// Number of stack frames that a call needs.
    pub frames: u32,
    /// Whether a call may reach any function that is used as a value somewhere.
    pub calls_values: bool,
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Eq)]
pub enum Param {
    Value(Ty),
    /// A pointer to a writable value.
    Pointer(Ty),
    /// A function of this type that needs at most this many stack frames.
    Function {
        ty: String,
        frames: u32,
    },
}

impl Param {
    pub fn type_name(&self) -> String {
        match self {
            Param::Value(ty) => ty.name(),
            Param::Pointer(ty) => format!("*{}", ty.name()),
            Param::Function { ty, .. } => ty.clone(),
        }
    }
}

impl Helper {
    /// Whether the function may be used as a value.
    pub fn is_value(&self) -> bool {
        let plain = |param: &Param| matches!(param, Param::Value(_));
        !self.has_context
            && !self.throws
            && !self.calls_values
            && self.frames < MAX_FRAMES
            && self.params.iter().all(plain)
    }

    /// Returns its type as a value.
    pub fn value_type(&self) -> String {
        let params: Vec<String> = self.params.iter().map(Param::type_name).collect();
        format!("fn({}) -> {}", params.join(", "), self.ret.as_ref().map_or("void".into(), Ty::name))
    }
}

/// State of the function that is being written.
#[derive(Default)]
pub struct ScriptFunction {
    pub locals: Vec<Var>,
    pub ret: Option<Ty>,
    pub named_return: bool,
    pub is_program: bool,
    /// Whether it receives the parameters of the program.
    pub has_context: bool,
    /// Pointers in scope, with the types of their pointees.
    pub pointers: Vec<Var>,
    /// Variables that point to structs of the kernel.
    pub kernel: Vec<KernelPointer>,
    /// Variables that hold functions.
    pub values: Vec<Helper>,
    /// Whether a throw is allowed here.
    pub can_throw: bool,
    pub loops: u32,
    /// Number of enclosing blocks.
    pub nesting: u32,
    /// Number of enclosing expressions.
    pub depth: u32,
    /// Number of expressions that may still be written.
    pub fuel: u32,
    /// Bytes of locals that may still be declared.
    pub stack: u32,
    /// Stack frames that the calls written so far need.
    pub frames: u32,
    /// Whether the calls written so far may reach any function that is used as a value somewhere.
    pub calls_values: bool,
}

/// Limit on the stack frames below a program.
pub const MAX_FRAMES: u32 = 3;

/// The halves of a plugin that a script is generated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// The kernel half alone, with the forms that only it has.
    Kernel,
    /// The kernel half and the userspace half.
    Both,
}

pub struct Gen {
    /// Whether the script is for the kernel half alone.
    pub kernel_only: bool,
    pub program: &'static Program,
    pub rng: Rng,
    /// The types of the fields `f0`, `f1`, … of each struct.
    pub structs: Vec<Vec<Ty>>,
    /// Number of enumerators of each enum.
    pub enums: Vec<usize>,
    pub globals: Vec<Var>,
    pub maps: Vec<Map>,
    pub rings: Vec<Ring>,
    /// Pointee types of pointers in structs and arrays.
    pub holders: BTreeSet<String>,
    /// Additional items that the text written so far needs.
    pub around: BTreeSet<String>,
    /// Constructs of expressions that are not in the tree yet.
    pub marks: Vec<&'static str>,
    pub queues: Vec<Queue>,
    pub object_maps: Vec<ObjectMap>,
    /// A program that may be tail-called.
    pub next: Option<String>,
    pub helpers: Vec<Helper>,
    pub function: ScriptFunction,
    names: u32,
}

impl Gen {
    pub fn new(seed: u64, halves: Halves) -> Gen {
        Gen {
            kernel_only: halves == Halves::Kernel,
            program: &PROGRAMS[0],
            rng: Rng::new(seed),
            structs: Vec::new(),
            enums: Vec::new(),
            globals: Vec::new(),
            maps: Vec::new(),
            rings: Vec::new(),
            holders: BTreeSet::new(),
            around: BTreeSet::new(),
            marks: Vec::new(),
            queues: Vec::new(),
            object_maps: Vec::new(),
            next: None,
            helpers: Vec::new(),
            function: ScriptFunction::default(),
            names: 0,
        }
    }

    pub fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    pub fn bytes(&self, ty: &Ty) -> u32 {
        match ty {
            Ty::Int(int) => int.bits / 8,
            Ty::Bool | Ty::Char => 1,
            Ty::Enum(_) => 4,
            Ty::Str(len) => *len,
            Ty::Array(element, len) => self.bytes(element) * len,
            Ty::Struct(number) => self.structs[*number].iter().map(|field| self.bytes(field).max(4)).sum(),
        }
    }

    /// Generates a block with its own scope.
    pub fn block(&mut self, content: impl FnOnce(&mut Gen) -> Vec<Node>) -> Node {
        let visible = self.function.locals.len();
        let (pointers, values) = (self.function.pointers.len(), self.function.values.len());
        let kernel = self.function.kernel.len();
        self.function.nesting += 1;
        let stmts = content(self);
        self.function.nesting -= 1;
        self.function.locals.truncate(visible);
        self.function.pointers.truncate(pointers);
        self.function.values.truncate(values);
        self.function.kernel.truncate(kernel);
        Node::block(stmts)
    }

    pub fn declare(&mut self, name: &str, ty: &Ty) {
        self.function.locals.push(Var::writable(name.into(), ty.clone()));
    }

    pub fn declare_read_only(&mut self, name: &str, ty: &Ty) {
        self.function.locals.push(Var::read_only(name.into(), ty.clone()));
    }

    /// Returns any type that values of this script can have.
    pub fn any_type(&mut self) -> Ty {
        match self.rng.below(14) {
            0 if !self.structs.is_empty() => Ty::Struct(self.rng.below(self.structs.len())),
            1 => Ty::Array(Box::new(self.scalar_type()), 1 + self.rng.below(8) as u32),
            2 if !self.structs.is_empty() => {
                let element = Ty::Struct(self.rng.below(self.structs.len()));
                Ty::Array(Box::new(element), 1 + self.rng.below(3) as u32)
            }
            3 => Ty::Str(*self.rng.pick(&[1, 3, 4, 8, 13, 16])),
            _ => self.scalar_type(),
        }
    }

    pub fn scalar_type(&mut self) -> Ty {
        match self.rng.below(12) {
            0 => Ty::Bool,
            1 => Ty::Char,
            2 if !self.enums.is_empty() => Ty::Enum(self.rng.below(self.enums.len())),
            _ => Ty::Int(self.int_type()),
        }
    }
}

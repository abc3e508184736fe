//! Relocatable BPF objects: maps, global variables and functions in, the bytes of an ELF file out.
//!
//! ```text
//! MapDef, GlobalDef, kfuncs, functions -> ObjectBuilder
//!     -> sections, symbols, relocations, .BTF, .BTF.ext -> bytes
//! ```
//!
//! Callers refer to maps, variables and functions by the references that the builder returns; only this
//! module computes relocations, symbols and offsets. The result has the form that libbpf expects of a
//! compiler: BTF-defined maps in `.maps`, one section per program, static functions in `.text`, kernel
//! functions as externs of `.ksyms`, licence GPL. Content whose form libbpf or the kernel would reject
//! (names, line tables, call targets) is an error here.
//!
//! Not here: maps of maps, program arrays with static content, and reading objects.
//!
//! Sources: Documentation/bpf/llvm_reloc.rst (v6.12); libbpf v1.7 libbpf.c, `bpf_object__elf_collect`,
//! `bpf_program__record_reloc`, `parse_btf_map_def`.

mod code;
mod data;
mod map;
mod struct_ops;
mod write;

use crate::bpf::{
    EncodeError, FunctionRef, GlobalRef, Insn, InsnIndex, KernelVariableRef, KfuncRef, MapRef, Symbol,
};
use crate::object::btf::{
    BtfBuilder, BtfError, CoreRelo, DatasecEntry, FuncLinkage, IntEncoding, Line, TypeId, VarLinkage,
};
use crate::object::model::Presence;

pub use map::{MapDef, MapSide, Pinning};
pub use struct_ops::{StructOpsDef, StructOpsMember, StructOpsValue};

/// Reasons for the failure to build an object. All are errors of the caller, except for sizes.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A name that is not a C identifier, as the kernel requires.
    #[error("{name:?} is not an identifier, so it cannot name a {what}")]
    Name {
        /// The rejected name.
        name: String,
        /// Kind of the named item.
        what: &'static str,
    },
    /// Two maps, variables or functions have the same name.
    #[error("{0:?} names two things of the object")]
    DuplicateName(String),
    /// A variable's description contradicts itself.
    #[error("variable {name:?}: {reason}")]
    Global {
        /// Name of the variable.
        name: String,
        /// The contradiction.
        reason: &'static str,
    },
    /// A function's description contradicts itself.
    #[error("function {name:?}: {reason}")]
    Function {
        /// Name of the function.
        name: String,
        /// The contradiction.
        reason: &'static str,
    },
    /// An instruction that is invalid at its position.
    #[error("function {name:?}, instruction {}: {reason}", at.0)]
    Insn {
        /// Name of the function.
        name: String,
        /// Index of the instruction in the function.
        at: InsnIndex,
        /// The violated rule.
        reason: &'static str,
    },
    /// A function's instructions have no encoding.
    #[error("function {name:?}: {source}")]
    Encode {
        /// Name of the function.
        name: String,
        /// Why the encoder failed.
        source: EncodeError,
    },
    /// A reference that another builder returned.
    #[error("reference to {0:?}, which is not of this object")]
    Foreign(Symbol),
    /// The BTF builder reported an error.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// A size or count exceeds the format's 32-bit fields.
    #[error("the object is too large")]
    TooLarge,
    /// The ELF library failed.
    #[error("cannot write the ELF file: {0}")]
    Write(object::write::Error),
}

/// Section of a global variable; each section becomes one array map of one value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataSection {
    /// `.data`: written by both halves, with initial values.
    Data,
    /// `.bss`: written by both halves, initially zero.
    Bss,
    /// `.data.pinned`: like `.data`, in a map that outlives the plugin.
    Pinned,
    /// `.rodata`: frozen once loaded; the verifier knows the values.
    Rodata,
}

/// A global variable to be added to an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalDef {
    /// Name: a C identifier, unique in the object.
    pub name: String,
    /// Section that holds the variable.
    pub section: DataSection,
    /// Type, an id of [`ObjectBuilder::btf`].
    pub ty: TypeId,
    /// Size in bytes, equal to that of the type; not 0.
    pub bytes: u32,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// First bytes of the initial value; the rest is zero. Empty in `.bss`.
    pub initial: Vec<u8>,
}

/// Section of a function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CodeSection {
    /// `.text`: functions that programs call.
    Text,
    /// A program, in the section whose name determines its type (`perf_event`,
    /// `tracepoint/sched/sched_switch`).
    Program(String),
}

/// Declaration of a function, before its body is defined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionDecl {
    /// Name: a C identifier, unique in the object.
    pub name: String,
    /// Section of the function.
    pub section: CodeSection,
    /// Linkage. Programs are [`FuncLinkage::Global`]; functions of `.text` are global (verified alone) or
    /// static (verified at each call).
    pub linkage: FuncLinkage,
    /// Signature: a `FUNC_PROTO` of [`ObjectBuilder::btf`] with every parameter named.
    pub proto: TypeId,
}

/// Instructions and metadata of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FunctionBody {
    /// Instructions, with references to this object's symbols.
    pub code: Vec<Insn>,
    /// Script lines, ascending by instruction, the first at instruction 0; the last of several at one
    /// instruction counts. Empty in all functions of the object or in none (the kernel rejects a mixture).
    pub lines: Vec<Line>,
    /// CO-RE relocations, ascending by instruction.
    pub relos: Vec<CoreRelo>,
}

/// BPF_MAP_TYPE_PROG_ARRAY. Source: include/uapi/linux/bpf.h, v6.12.
const PROG_ARRAY: u32 = 3;

struct ObjectFunction {
    decl: FunctionDecl,
    /// Attributes of the function in BTF.
    attributes: Vec<String>,
    body: Option<FunctionBody>,
}

struct Kfunc {
    name: String,
    proto: TypeId,
    presence: Presence,
}

struct KernelVariable {
    name: String,
    ty: TypeId,
}

/// Builder of an object. The same calls give the same bytes.
pub struct ObjectBuilder {
    btf: BtfBuilder,
    maps: Vec<MapDef>,
    globals: Vec<GlobalDef>,
    kfuncs: Vec<Kfunc>,
    kernel_variables: Vec<KernelVariable>,
    functions: Vec<ObjectFunction>,
    struct_ops: Vec<StructOpsDef>,
    sections: Vec<(&'static str, Vec<u8>)>,
    error: Option<BuildError>,
}

impl Default for ObjectBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectBuilder {
    /// Creates a builder without content.
    #[must_use]
    pub fn new() -> Self {
        ObjectBuilder {
            btf: BtfBuilder::new(),
            maps: Vec::new(),
            globals: Vec::new(),
            kfuncs: Vec::new(),
            kernel_variables: Vec::new(),
            functions: Vec::new(),
            struct_ops: Vec::new(),
            sections: Vec::new(),
            error: None,
        }
    }

    /// Returns the builder of the object's types.
    pub fn btf(&mut self) -> &mut BtfBuilder {
        &mut self.btf
    }

    /// Adds a map and returns its reference.
    pub fn add_map(&mut self, map: MapDef) -> MapRef {
        self.maps.push(map);
        MapRef(last_index(self.maps.len()))
    }

    /// Adds an array of programs for tail calls, which the loader fills.
    pub fn add_program_array(&mut self, name: &str, programs: Vec<FunctionRef>) -> MapRef {
        self.add_map(MapDef {
            name: name.to_owned(),
            map_type: PROG_ARRAY,
            key: MapSide::Bytes(4),
            value: MapSide::Bytes(4),
            max_entries: last_index(programs.len()).saturating_add(1),
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs,
            inner: None,
        })
    }

    /// Adds a global variable and returns its reference.
    pub fn add_global(&mut self, global: GlobalDef) -> GlobalRef {
        self.globals.push(global);
        GlobalRef(last_index(self.globals.len()))
    }

    /// Adds a kernel function that programs call; `proto` is its signature in this object's types.
    pub fn add_kfunc(&mut self, name: &str, proto: TypeId, presence: Presence) -> KfuncRef {
        self.kfuncs.push(Kfunc { name: name.to_owned(), proto, presence });
        KfuncRef(last_index(self.kfuncs.len()))
    }

    /// Adds a variable of the kernel whose address programs take. One with a type is looked up in the kernel's types, one
    /// without (`TypeId::VOID`) among its symbols.
    pub fn add_kernel_variable(&mut self, name: &str, ty: TypeId) -> KernelVariableRef {
        self.kernel_variables.push(KernelVariable { name: name.to_owned(), ty });
        KernelVariableRef(last_index(self.kernel_variables.len()))
    }

    /// Adds a kernel struct that programs fill in.
    pub fn add_struct_ops(&mut self, def: StructOpsDef) {
        self.struct_ops.push(def);
    }

    /// Adds a section that the loader skips, for other readers of the file.
    pub fn add_section(&mut self, name: &'static str, content: Vec<u8>) {
        self.sections.push((name, content));
    }

    /// Declares a function whose body is defined later, so that functions can refer to each other.
    pub fn declare_function(&mut self, decl: FunctionDecl) -> FunctionRef {
        self.functions.push(ObjectFunction { decl, attributes: Vec::new(), body: None });
        FunctionRef(last_index(self.functions.len()))
    }

    /// Gives a declared function an attribute in BTF.
    pub fn add_attribute(&mut self, function: FunctionRef, attribute: impl Into<String>) {
        match self.functions.get_mut(function.0 as usize) {
            Some(declared) => declared.attributes.push(attribute.into()),
            None => _ = self.error.get_or_insert(BuildError::Foreign(Symbol::Function(function))),
        }
    }

    /// Defines the body of a declared function. [`ObjectBuilder::finish`] reports a second body.
    pub fn define_function(&mut self, function: FunctionRef, body: FunctionBody) {
        let Some(declared) = self.functions.get_mut(function.0 as usize) else {
            self.error.get_or_insert(BuildError::Foreign(Symbol::Function(function)));
            return;
        };
        if declared.body.replace(body).is_some() {
            let name = declared.decl.name.clone();
            self.error.get_or_insert(BuildError::Function { name, reason: "has two bodies" });
        }
    }

    /// Returns the name of a symbol of this object, for [`crate::bpf::disasm`].
    #[must_use]
    pub fn symbol_name(&self, symbol: Symbol) -> Option<String> {
        let name = match symbol {
            Symbol::Map(map) => &self.maps.get(map.0 as usize)?.name,
            Symbol::Global(global) => &self.globals.get(global.0 as usize)?.name,
            Symbol::Function(function) => &self.functions.get(function.0 as usize)?.decl.name,
            Symbol::Kfunc(kfunc) => &self.kfuncs.get(kfunc.0 as usize)?.name,
            Symbol::KernelVariable(variable) => &self.kernel_variables.get(variable.0 as usize)?.name,
        };
        Some(name.clone())
    }

    /// Builds the ELF file.
    ///
    /// # Errors
    /// The first error found, see [`BuildError`].
    pub fn finish(mut self) -> Result<Vec<u8>, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.check_names()?;
        let data = data::lay_out(&mut self.btf, &self.globals)?;
        let maps = map::lay_out(&mut self.btf, &self.maps)?;
        let struct_ops = struct_ops::lay_out(&mut self.btf, &self.struct_ops)?;
        self.describe_ksyms();
        let code = code::lay_out(&mut self.btf, &self.functions, &self.globals)?;
        write::write(self, &write::Parts { data, maps, struct_ops, code })
    }

    fn check_names(&self) -> Result<(), BuildError> {
        let maps = self.maps.iter().map(|map| (&map.name, "map"));
        let globals = self.globals.iter().map(|global| (&global.name, "variable"));
        let kfuncs = self.kfuncs.iter().map(|kfunc| (&kfunc.name, "kernel function"));
        let variables = self.kernel_variables.iter().map(|one| (&one.name, "variable of the kernel"));
        let kfuncs = kfuncs.chain(variables);
        let functions = self.functions.iter().map(|function| (&function.decl.name, "function"));
        let struct_ops = self.struct_ops.iter().map(|def| (&def.name, "struct of the kernel"));
        let mut seen = std::collections::HashSet::new();
        for (name, what) in maps.chain(globals).chain(kfuncs).chain(functions).chain(struct_ops) {
            if !is_identifier(name) {
                return Err(BuildError::Name { name: name.clone(), what });
            }
            if !seen.insert(name) {
                return Err(BuildError::DuplicateName(name.clone()));
            }
        }
        Ok(())
    }

    /// Adds the BTF section `.ksyms`, by which libbpf distinguishes functions and variables of the kernel from other
    /// externs.
    fn describe_ksyms(&mut self) {
        if self.kfuncs.is_empty() && self.kernel_variables.is_empty() {
            return;
        }
        // libbpf converts the externs to variables of a four-byte integer type, which it looks up in the
        // object's types.
        self.btf.int("int", 4, IntEncoding::Signed);
        let mut entries = Vec::with_capacity(self.kfuncs.len());
        for kfunc in &self.kfuncs {
            let var = self.btf.func(&kfunc.name, kfunc.proto, FuncLinkage::Extern);
            entries.push(DatasecEntry { var, offset: 0, size: 0 });
        }
        for KernelVariable { name, ty } in &self.kernel_variables {
            let constant = self.btf.constant(*ty);
            let var = self.btf.var(name, constant, VarLinkage::Extern);
            entries.push(DatasecEntry { var, offset: 0, size: 0 });
        }
        self.btf.datasec(".ksyms", 0, &entries);
    }
}

/// Returns the index of the last of `len` items; memory cannot hold more than 32 bits count.
fn last_index(len: usize) -> u32 {
    u32::try_from(len).map_or(u32::MAX, |len| len.saturating_sub(1))
}

fn to_u32(value: usize) -> Result<u32, BuildError> {
    u32::try_from(value).map_err(|_| BuildError::TooLarge)
}

/// Source: kernel/bpf/btf.c, `btf_name_valid_identifier` (v6.12); the kernel counts the final NUL into its
/// 128 bytes (include/linux/kallsyms.h, `KSYM_NAME_LEN`, before v6.1).
fn is_identifier(name: &str) -> bool {
    let head = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.len() < 128 && name.starts_with(head) && name.chars().all(|c| head(c) || c.is_ascii_digit())
}

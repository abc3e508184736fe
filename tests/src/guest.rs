//! Guests that use the contract without the language: every function of the world as an import of a core
//! module, for modules that are written by hand or generated.
//!
//! [`core_module`] returns the text of a module with imports under short names (`$clock.sleep`,
//! `$perf.attachment.read`, `$perf.attachment.drop`), a memory of two pages and a bump allocator. Results are
//! written to [`RESULT`]; the memory from [`DATA`] on belongs to the body.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{
    Function, FunctionKind, Handle, LiftLowerAbi, ManglingAndAbi, Resolve, ResourceIntrinsic, SourceMap,
    Type, TypeDefKind, TypeId, WasmImport, WorldItem, WorldKey,
};

/// Address of the result area, 1 KiB.
pub const RESULT: u32 = 1024;
/// Address at which the body's memory starts.
pub const DATA: u32 = 2048;
/// Address at which the allocator starts: the second page.
const HEAP: u32 = 65536;

/// The meaning of one core parameter, or of a pair of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A handle of this resource type.
    Handle(String),
    /// Two parameters: address and length of a text or of bytes.
    Text,
    /// Two parameters: address and length of a list of any other element type.
    List,
    /// 32 bits with this many valid values; 0 means that all are valid.
    Number32(u32),
    /// 64 bits, all of them valid.
    Number64,
    /// An address of spilled parameters, or of the result area.
    Pointer,
}

/// A function that a guest can import.
#[derive(Debug, Clone)]
pub struct Import {
    /// Its short name, without `$`: `perf.attachment.read`.
    pub short: String,
    module: String,
    name: String,
    /// The meaning of its parameters, in order. The result area is the last one if `writes_result`.
    pub roles: Vec<Role>,
    /// Whether it writes its result to memory, at the address in its last parameter.
    pub writes_result: bool,
    /// The resource type of a new handle in its result: 4 bytes after the start of a written result,
    /// otherwise the result itself.
    pub makes: Option<String>,
    /// Its results, as core types.
    results: Vec<&'static str>,
}

impl Import {
    /// Returns whether it has a core result.
    pub fn returns(&self) -> bool {
        !self.results.is_empty()
    }

    /// Returns the core types of its parameters.
    fn params(&self) -> Vec<&'static str> {
        let types = |role: &Role| match role {
            Role::Text | Role::List => vec!["i32", "i32"],
            Role::Number64 => vec!["i64"],
            Role::Handle(_) | Role::Number32(_) | Role::Pointer => vec!["i32"],
        };
        self.roles.iter().flat_map(types).collect()
    }

    /// Returns the import declaration in text form.
    pub fn text(&self) -> String {
        let list = |keyword: &str, types: &[&str]| match types {
            [] => String::new(),
            types => format!(" ({keyword} {})", types.join(" ")),
        };
        let (module, name, short) = (&self.module, &self.name, &self.short);
        let (params, results) = (list("param", &self.params()), list("result", &self.results));
        format!("(import \"{module}\" \"{name}\" (func ${short}{params}{results}))\n")
    }
}

/// Returns all functions of the world `plugin`, and the drops of its resources, in the order of the contract.
pub fn imports() -> &'static [Import] {
    static IMPORTS: LazyLock<Vec<Import>> = LazyLock::new(read);
    &IMPORTS
}

/// Returns a module with a memory of this many pages, an allocator, and these functions, one of which must
/// export `run`. It imports only the functions that they call, because each import costs compilation time.
pub fn core_module(pages: u32, body: &str) -> String {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "$.-".contains(char);
    let names: BTreeSet<&str> = body.split(|char| !is_name(char)).collect();
    let used = imports().iter().filter(|import| names.contains(format!("${}", import.short).as_str()));
    let imported: String = used.map(Import::text).collect();
    format!(
        "(module\n{imported}(memory (export \"memory\") {pages})\n(global $heap (mut i32) (i32.const \
         {HEAP}))\n\
         (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)\n\
         (global.set $heap (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))\n\
         (global.get $heap)\n\
         (global.set $heap (i32.add (global.get $heap) (local.get 3))))\n{body})"
    )
}

/// Returns a data segment with these bytes.
pub fn data(address: u32, bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\{byte:02x}");
    }
    format!("(data (i32.const {address}) \"{text}\")\n")
}

fn read() -> Vec<Import> {
    let mut resolve = Resolve::default();
    let mut files = SourceMap::new();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let files = files.parse().map_err(|(_, error)| error).expect("the contract parses");
    let package = resolve.push_group(files).expect("the contract resolves");
    let world = resolve.select_world(&[package], Some("plugin")).expect("the world is there");
    let mut found = Vec::new();
    for (key, item) in &resolve.worlds[world].imports {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = &resolve.interfaces[*id];
        let prefix = interface.name.as_deref().unwrap_or_default();
        for function in interface.functions.values() {
            found.push(of_function(&resolve, key, prefix, function));
        }
        for (name, ty) in &interface.types {
            if matches!(resolve.types[*ty].kind, TypeDefKind::Resource) {
                found.push(of_drop(&resolve, key, prefix, name, *ty));
            }
        }
    }
    found
}

const MANGLING: ManglingAndAbi = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);

fn of_function(resolve: &Resolve, key: &WorldKey, prefix: &str, function: &Function) -> Import {
    let import = WasmImport::Func { interface: Some(key), func: function };
    let (module, name) = resolve.wasm_import_name(MANGLING, import);
    let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
    let mut roles: Vec<Role> = if signature.indirect_params {
        vec![Role::Pointer]
    } else {
        function.params.iter().flat_map(|param| roles_of(resolve, &param.ty)).collect()
    };
    if signature.retptr {
        roles.push(Role::Pointer);
    }
    let short = match function.kind {
        FunctionKind::Constructor(resource) => format!("{}.new", name_of(resolve, resource)),
        _ => function.name.split(']').next_back().unwrap_or_default().to_owned(),
    };
    let core = |ty: &WasmType| if *ty == WasmType::I64 { "i64" } else { "i32" };
    let import = Import {
        short: format!("{prefix}.{short}"),
        module,
        name,
        roles,
        writes_result: signature.retptr,
        makes: function.result.as_ref().and_then(|ty| resource_type(resolve, ty)),
        results: signature.results.iter().map(core).collect(),
    };
    let types: Vec<_> = signature.params.iter().map(core).collect();
    assert_eq!(import.params(), types, "{}: its parameters are understood", import.short);
    import
}

fn of_drop(resolve: &Resolve, key: &WorldKey, prefix: &str, name: &str, resource: TypeId) -> Import {
    let intrinsic = ResourceIntrinsic::ImportedDrop;
    let import = WasmImport::ResourceIntrinsic { interface: Some(key), resource, intrinsic };
    let (module, import) = resolve.wasm_import_name(MANGLING, import);
    Import {
        short: format!("{prefix}.{name}.drop"),
        module,
        name: import,
        roles: vec![Role::Handle(name.to_owned())],
        writes_result: false,
        makes: None,
        results: Vec::new(),
    }
}

fn name_of(resolve: &Resolve, resource: TypeId) -> String {
    let mut ty = &resolve.types[resource];
    while let TypeDefKind::Type(Type::Id(id)) = ty.kind {
        ty = &resolve.types[id];
    }
    ty.name.clone().unwrap_or_default()
}

/// Returns the resource type of a new handle in a result of this type, or none.
fn resource_type(resolve: &Resolve, ty: &Type) -> Option<String> {
    let Type::Id(id) = ty else { return None };
    match &resolve.types[*id].kind {
        TypeDefKind::Handle(Handle::Own(resource)) => Some(name_of(resolve, *resource)),
        TypeDefKind::Result(result) => resource_type(resolve, result.ok.as_ref()?),
        TypeDefKind::Tuple(tuple) => resource_type(resolve, tuple.types.first()?),
        TypeDefKind::Type(ty) => resource_type(resolve, ty),
        _ => None,
    }
}

fn roles_of(resolve: &Resolve, ty: &Type) -> Vec<Role> {
    let Type::Id(id) = ty else {
        return match ty {
            Type::U64 | Type::S64 => vec![Role::Number64],
            Type::String => vec![Role::Text],
            Type::Bool => vec![Role::Number32(2)],
            _ => vec![Role::Number32(0)],
        };
    };
    match &resolve.types[*id].kind {
        TypeDefKind::Handle(Handle::Own(resource) | Handle::Borrow(resource)) => {
            vec![Role::Handle(name_of(resolve, *resource))]
        }
        TypeDefKind::List(Type::U8) => vec![Role::Text],
        TypeDefKind::List(_) => vec![Role::List],
        TypeDefKind::Record(record) => {
            record.fields.iter().flat_map(|field| roles_of(resolve, &field.ty)).collect()
        }
        TypeDefKind::Option(ty) => [vec![Role::Number32(2)], roles_of(resolve, ty)].concat(),
        TypeDefKind::Enum(cases) => vec![Role::Number32(cases.cases.len() as u32)],
        TypeDefKind::Variant(variant) => {
            // The cases share their parameters, so the longest case has all of them.
            let payloads = variant.cases.iter().filter_map(|case| case.ty.as_ref());
            let longest = payloads.map(|ty| roles_of(resolve, ty)).max_by_key(Vec::len);
            [vec![Role::Number32(variant.cases.len() as u32)], longest.unwrap_or_default()].concat()
        }
        TypeDefKind::Flags(_) => vec![Role::Number32(0)],
        TypeDefKind::Type(ty) => roles_of(resolve, ty),
        other => panic!("the contract has parameters of a new kind: {}", other.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_can_import_the_whole_contract() {
        let shorts: Vec<&str> = imports().iter().map(|import| import.short.as_str()).collect();
        for wanted in
            ["clock.sleep", "perf.options.new", "perf.attachment.drop", "bpf.program.load", "ring.poll"]
        {
            assert!(shorts.contains(&wanted), "{wanted}: {shorts:?}");
        }
        let named: String = shorts.iter().map(|short| format!("(elem declare func ${short})\n")).collect();
        let text = core_module(2, &format!("{named}(func (export \"run\") (result i32) (i32.const 0))"));
        assert_eq!(text.matches("(import ").count(), shorts.len());
        crate::component("whole", &text, &[]).expect("it fits the world");
    }
}

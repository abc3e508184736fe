//! Generates the tables of the contract: the part of the WIT package that `src/plugin/contract.rs` needs,
//! computed at build time instead of by every run of `ks`.
//!
//! In: the WIT files of `ks-wit`. Out: `contract.rs` for `include!`, constants of the types that
//! `src/plugin/contract.rs` declares. Names, layouts, core signatures and the canonical ABI options that a
//! function needs come from `wit-parser`; none of them is written by hand.

use std::collections::HashMap;
use std::fmt::Write;
use std::{fs, path::Path};

use wit_parser::abi::{AbiVariant, WasmSignature, WasmType};
use wit_parser::{
    Function, FunctionKind, Handle, InterfaceId, LiveTypes, PackageId, Resolve, SizeAlign, SourceMap, Type,
    TypeDefKind, TypeId, TypeOwner, WorldItem,
};

/// The worlds of the contract, in the order of the enum `World`.
const WORLDS: [&str; 2] = ["plugin", "test-plugin"];

/// Writes the tables as `contract.rs` into a folder.
pub fn write(folder: &Path) {
    let (resolve, package) = parse();
    let file = folder.join("contract.rs");
    fs::write(&file, Tables::new(&resolve, package).text()).expect("the output folder can be written");
}

fn parse() -> (Resolve, PackageId) {
    let mut files = SourceMap::default();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let group = files.parse().unwrap_or_else(|(_, error)| panic!("the contract is not valid WIT: {error}"));
    let mut resolve = Resolve::default();
    let package = resolve.push_group(group).expect("the contract's names resolve");
    (resolve, package)
}

struct Tables<'a> {
    resolve: &'a Resolve,
    package: PackageId,
    sizes: SizeAlign,
    /// The interfaces, in the order in which a component imports them.
    interfaces: Vec<InterfaceId>,
    /// For each type without a name, the first type that is equal to it; all of them share one table entry.
    first: HashMap<TypeId, TypeId>,
}

impl<'a> Tables<'a> {
    fn new(resolve: &'a Resolve, package: PackageId) -> Tables<'a> {
        let mut sizes = SizeAlign::default();
        sizes.fill(resolve);
        let imports = WORLDS.map(|name| {
            let world = resolve.select_world(&[package], Some(name)).expect("the contract has the world");
            let interface = |item: &WorldItem| match item {
                WorldItem::Interface { id, .. } => *id,
                _ => panic!("the contract's worlds import interfaces only"),
            };
            resolve.worlds[world].imports.values().map(interface).collect::<Vec<_>>()
        });
        let [interfaces, of_tests] = imports;
        assert!(interfaces == of_tests, "both worlds import the same");
        let mut tables = Tables { resolve, package, sizes, interfaces, first: HashMap::new() };
        let mut seen = HashMap::new();
        // A type comes after the types of its members.
        for (id, def) in &resolve.types {
            let same = match &def.name {
                Some(_) => id,
                None => *seen.entry(tables.kind(id)).or_insert(id),
            };
            tables.first.insert(id, same);
        }
        tables
    }

    fn text(&self) -> String {
        let mut signatures: Vec<WasmSignature> = Vec::new();
        let mut text = String::from(
            "/// All types of the contract, each behind those that it is made of.\npub static TYPES: \
             &[TypeDef] = &[\n",
        );
        for (id, def) in &self.resolve.types {
            let owner = match def.owner {
                TypeOwner::Interface(id) => Some(self.position(id)),
                TypeOwner::World(_) | TypeOwner::None => None,
            };
            // A resource has no value of its own; its handles have.
            let size = u32::try_from(self.sizes.size(&Type::Id(id)).size_wasm32()).unwrap_or(0);
            let (name, kind) = (&def.name, self.kind(id));
            writeln!(text, "TypeDef {{ name: {name:?}, owner: {owner:?}, size: {size}, kind: {kind} }},")
                .expect("text grows");
        }
        text += "];\n/// All interfaces of the contract, in the order in which a component imports \
                 them.\npub static INTERFACES: &[Interface] = &[\n";
        for id in &self.interfaces {
            text += &self.interface(*id, &mut signatures);
        }
        text += "];\nstatic EXPORTS: [&[WitFunction]; 2] = [\n";
        for name in WORLDS {
            let world = self.resolve.select_world(&[self.package], Some(name)).expect("seen above");
            let exports = self.resolve.worlds[world].exports.values();
            let function = |item: &WorldItem| match item {
                WorldItem::Function(function) => {
                    self.function(function, AbiVariant::GuestExport, &mut signatures)
                }
                _ => panic!("the contract's worlds export functions only"),
            };
            writeln!(text, "&[{}],", exports.map(function).collect::<String>()).expect("text grows");
        }
        text += "];\n";
        text + &self.constants()
    }

    /// Returns the constants that name the functions and the resources of each interface.
    fn constants(&self) -> String {
        let mut text = String::from(
            "/// Functions that a plugin may import, and resources whose handles it may hold: a module for \
             each\n/// interface. `perf::ATTACHMENT_DETACH` is `[method]attachment.detach` of the interface \
             `perf`,\n/// `perf::OPTIONS_NEW` is `[constructor]options`.\npub mod import {\n\
             use super::{HostFunction, HostResource};\n",
        );
        for (position, id) in self.interfaces.iter().enumerate() {
            let interface = &self.resolve.interfaces[*id];
            let resources = interface.types.iter().filter_map(|(name, id)| {
                let is_resource = matches!(self.resolve.types[*id].kind, TypeDefKind::Resource);
                is_resource.then(|| resource_constant(position, name))
            });
            let functions = interface.functions.values().enumerate();
            let functions = functions.map(|(number, function)| function_constant(position, number, function));
            let constants: String = resources.chain(functions).collect();
            if !constants.is_empty() {
                let name = interface.name.as_deref().expect("interfaces of the contract have names");
                let module = name.replace('-', "_");
                writeln!(text, "/// The interface `{name}`.\npub mod {module} {{\n{constants}}}")
                    .expect("text grows");
            }
        }
        text + "}\n"
    }

    fn position(&self, interface: InterfaceId) -> usize {
        let found = self.interfaces.iter().position(|id| *id == interface);
        found.expect("a world imports every interface of the contract")
    }

    fn interface(&self, id: InterfaceId, signatures: &mut Vec<WasmSignature>) -> String {
        let interface = &self.resolve.interfaces[id];
        let name = interface.name.as_deref().expect("interfaces of the contract have names");
        let types: String =
            interface.types.iter().map(|(name, id)| format!("({name:?}, {}), ", self.id(*id))).collect();
        let functions: String = interface
            .functions
            .values()
            .map(|function| self.function(function, AbiVariant::GuestImport, signatures))
            .collect();
        let id = self.resolve.id_of(id).expect("interfaces of the contract have names");
        format!(
            "Interface {{ name: {name:?}, id: {id:?}, types: &[{types}], functions: &[\n{functions}] }},\n"
        )
    }

    fn function(
        &self,
        function: &Function,
        variant: AbiVariant,
        signatures: &mut Vec<WasmSignature>,
    ) -> String {
        let signature = self.resolve.wasm_signature(variant, function);
        assert!(!signature.indirect_params, "{}: too many parameters", function.name);
        let known = signatures.iter().position(|one| *one == signature);
        let number = known.unwrap_or_else(|| {
            signatures.push(signature.clone());
            signatures.len() - 1
        });
        let params: String = function
            .params
            .iter()
            .map(|param| format!("({:?}, {}), ", param.name, self.ty(&param.ty)))
            .collect();
        let mut live = LiveTypes::default();
        live.add_func(self.resolve, function);
        let live: String = live.iter().map(|id| self.id(id) + ", ").collect();
        format!(
            "WitFunction {{ name: {:?}, params: &[{params}], result: {}, live: &[{live}], signature: \
             {number}, core_params: &[{}], core_results: &[{}], needs: {} }},\n",
            function.name,
            self.option(&function.result),
            core(&signature.params),
            core(&signature.results),
            self.needs(function, variant, &signature),
        )
    }

    /// Returns the canonical ABI options of a call. The host reads the parameters from memory and writes
    /// results into memory that it allocates with `realloc`.
    fn needs(&self, function: &Function, variant: AbiVariant, signature: &WasmSignature) -> String {
        let params = function.params.iter().fold((false, false), |found, param| {
            let (text, list) = self.contents(&param.ty);
            (found.0 || text, found.1 || list)
        });
        let result = function.result.as_ref().map_or((false, false), |ty| self.contents(ty));
        let allocated = if variant == AbiVariant::GuestImport { result } else { params };
        let memory = signature.retptr || params.0 || params.1 || result.0 || result.1;
        let (realloc, text) = (allocated.0 || allocated.1, params.0 || result.0);
        format!("Needs {{ memory: {memory}, realloc: {realloc}, text: {text} }}")
    }

    /// Whether a value of a type contains strings, and whether it contains lists.
    fn contents(&self, ty: &Type) -> (bool, bool) {
        let Type::Id(id) = ty else { return (matches!(ty, Type::String), false) };
        let any = |types: &mut dyn Iterator<Item = &Type>| {
            types
                .map(|ty| self.contents(ty))
                .fold((false, false), |all, one| (all.0 || one.0, all.1 || one.1))
        };
        match &self.resolve.types[*id].kind {
            TypeDefKind::Record(record) => any(&mut record.fields.iter().map(|field| &field.ty)),
            TypeDefKind::Tuple(tuple) => any(&mut tuple.types.iter()),
            TypeDefKind::Variant(variant) => {
                any(&mut variant.cases.iter().filter_map(|case| case.ty.as_ref()))
            }
            TypeDefKind::Option(ty) | TypeDefKind::Type(ty) => self.contents(ty),
            TypeDefKind::Result(result) => any(&mut result.ok.iter().chain(&result.err)),
            TypeDefKind::List(ty) => (self.contents(ty).0, true),
            TypeDefKind::Flags(_) | TypeDefKind::Enum(_) | TypeDefKind::Resource | TypeDefKind::Handle(_) => {
                (false, false)
            }
            kind => panic!("the contract has no {}", kind.as_str()),
        }
    }

    fn kind(&self, id: TypeId) -> String {
        let tags = |cases: &mut dyn Iterator<Item = Option<&Type>>, tag| {
            self.sizes.payload_offset(tag, cases).size_wasm32()
        };
        match &self.resolve.types[id].kind {
            TypeDefKind::Record(record) => {
                let offsets = self.sizes.field_offsets(record.fields.iter().map(|field| &field.ty));
                let field =
                    |(field, (offset, _)): (&wit_parser::Field, (wit_parser::ArchitectureSize, _))| {
                        let (name, ty, offset) = (&field.name, self.ty(&field.ty), offset.size_wasm32());
                        format!("Field {{ name: {name:?}, ty: {ty}, offset: {offset} }}, ")
                    };
                format!(
                    "TypeKind::Record(&[{}])",
                    record.fields.iter().zip(offsets).map(field).collect::<String>()
                )
            }
            TypeDefKind::Variant(variant) => {
                let payload = tags(&mut variant.cases.iter().map(|case| case.ty.as_ref()), variant.tag());
                let case =
                    |case: &wit_parser::Case| format!("({:?}, {}), ", case.name, self.option(&case.ty));
                let cases: String = variant.cases.iter().map(case).collect();
                format!("TypeKind::Variant {{ cases: &[{cases}], payload: {payload} }}")
            }
            TypeDefKind::Option(ty) => {
                let payload = tags(&mut [Some(ty)].into_iter(), wit_parser::Int::U8);
                format!("TypeKind::Option {{ some: {}, payload: {payload} }}", self.ty(ty))
            }
            TypeDefKind::Result(result) => {
                let (ok, err) = (&result.ok, &result.err);
                let payload = tags(&mut [ok.as_ref(), err.as_ref()].into_iter(), wit_parser::Int::U8);
                let (ok, err) = (self.option(ok), self.option(err));
                format!("TypeKind::Result {{ ok: {ok}, err: {err}, payload: {payload} }}")
            }
            TypeDefKind::Enum(cases) => {
                let names: Vec<_> = cases.cases.iter().map(|case| &case.name).collect();
                format!("TypeKind::Enum(&{names:?})")
            }
            TypeDefKind::Flags(flags) => {
                let names: Vec<_> = flags.flags.iter().map(|flag| &flag.name).collect();
                format!("TypeKind::Flags(&{names:?})")
            }
            TypeDefKind::Tuple(tuple) => {
                let offsets = self.sizes.field_offsets(tuple.types.iter());
                let element = |(ty, (offset, _)): (&Type, (wit_parser::ArchitectureSize, _))| {
                    format!("({}, {}), ", self.ty(ty), offset.size_wasm32())
                };
                let elements: String = tuple.types.iter().zip(offsets).map(element).collect();
                format!("TypeKind::Tuple(&[{elements}])")
            }
            TypeDefKind::List(ty) => format!("TypeKind::List({})", self.ty(ty)),
            TypeDefKind::Type(ty) => format!("TypeKind::Alias({})", self.ty(ty)),
            TypeDefKind::Resource => "TypeKind::Resource".into(),
            TypeDefKind::Handle(Handle::Own(id)) => format!("TypeKind::Own({})", self.id(*id)),
            TypeDefKind::Handle(Handle::Borrow(id)) => format!("TypeKind::Borrow({})", self.id(*id)),
            kind => panic!("the contract has no {}", kind.as_str()),
        }
    }

    fn id(&self, id: TypeId) -> String {
        format!("TypeId({})", self.first.get(&id).unwrap_or(&id).index())
    }

    fn option(&self, ty: &Option<Type>) -> String {
        ty.as_ref().map_or_else(|| "None".into(), |ty| format!("Some({})", self.ty(ty)))
    }

    fn ty(&self, ty: &Type) -> String {
        let primitive = match ty {
            Type::Id(id) => return format!("Type::Id({})", self.id(*id)),
            Type::Bool => "Bool",
            Type::U8 => "U8",
            Type::U16 => "U16",
            Type::U32 => "U32",
            Type::U64 => "U64",
            Type::S8 => "S8",
            Type::S16 => "S16",
            Type::S32 => "S32",
            Type::S64 => "S64",
            Type::F64 => "F64",
            Type::Char => "Char",
            Type::String => "String",
            Type::F32 | Type::ErrorContext => panic!("the contract has none of these"),
        };
        let size = self.sizes.size(ty).size_wasm32();
        format!("Type::Primitive {{ ty: PrimitiveValType::{primitive}, size: {size} }}")
    }
}

fn resource_constant(interface: usize, name: &str) -> String {
    let constant = constant(name);
    format!(
        "/// The resource `{name}`.\npub const {constant}: super::HostResource = super::HostResource {{ \
         interface: {interface}, name: {name:?} }};\n"
    )
}

/// Returns the constant of the function at this position of an interface.
fn function_constant(interface: usize, position: usize, function: &Function) -> String {
    let name = &function.name;
    let constant = match (&function.kind, name.split_once(']')) {
        (FunctionKind::Constructor(_), Some((_, resource))) => constant(resource) + "_NEW",
        (_, Some((_, member))) => constant(member),
        (_, None) => constant(name),
    };
    format!(
        "/// `{name}`.\npub const {constant}: super::HostFunction = super::HostFunction {{ interface: \
         {interface}, function: {position} }};\n"
    )
}

/// Converts a name of WIT to one of a constant.
fn constant(name: &str) -> String {
    name.replace(['-', '.'], "_").to_uppercase()
}

fn core(types: &[WasmType]) -> String {
    let name = |ty: &WasmType| match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "ValType::I32, ",
        WasmType::I64 | WasmType::PointerOrI64 => "ValType::I64, ",
        WasmType::F32 | WasmType::F64 => panic!("the contract has no such numbers"),
    };
    types.iter().map(name).collect()
}

//! Comparison of our components with those of `wit-component`, which works from the WIT itself.

use wasm_encoder as wasm;
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::{Resolve, SourceMap};

use super::component::component;
use super::contract::{INTERFACES, Interface, TypeKind, World};

/// An import of a core module: interface, name, core parameters and results.
type Import = (&'static str, String, Vec<wasm::ValType>, Vec<wasm::ValType>);

fn imports_of(interface: &'static Interface) -> Vec<Import> {
    let function = |one: &super::contract::WitFunction| {
        (interface.id, one.name.to_owned(), one.core_params.to_vec(), one.core_results.to_vec())
    };
    let resources = interface.types.iter().filter(|(_, id)| matches!(id.def().kind, TypeKind::Resource));
    let drop =
        |name: &str| (interface.id, format!("[resource-drop]{name}"), vec![wasm::ValType::I32], vec![]);
    interface.functions.iter().map(function).chain(resources.map(|(name, _)| drop(name))).collect()
}

/// Returns a core module with these imports and a plugin's exports.
fn core(imports: &[Import]) -> Vec<u8> {
    let i32 = wasm::ValType::I32;
    let (mut types, mut imported) = (wasm::TypeSection::new(), wasm::ImportSection::new());
    for (number, (module, name, params, results)) in imports.iter().enumerate() {
        types.ty().function(params.clone(), results.clone());
        imported.import(module, name, wasm::EntityType::Function(number as u32));
    }
    let own =
        [("run", vec![]), ("cabi_realloc", vec![i32; 4]), ("list-tests", vec![]), ("run-test", vec![i32; 2])];
    let (mut functions, mut exports) = (wasm::FunctionSection::new(), wasm::ExportSection::new());
    let (mut code, mut memories) = (wasm::CodeSection::new(), wasm::MemorySection::new());
    for (number, (name, params)) in own.into_iter().enumerate() {
        let index = (imports.len() + number) as u32;
        types.ty().function(params, [i32]);
        functions.function(index);
        exports.export(name, wasm::ExportKind::Func, index);
        let mut body = wasm::Function::new([]);
        body.instructions().i32_const(0).end();
        code.function(&body);
    }
    exports.export("memory", wasm::ExportKind::Memory, 0);
    memories.memory(wasm::MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut module = wasm::Module::new();
    module.section(&types).section(&imported).section(&functions).section(&memories);
    module.section(&exports).section(&code);
    module.finish()
}

fn contract() -> (Resolve, wit_parser::PackageId) {
    let mut files = SourceMap::default();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let mut resolve = Resolve::default();
    let package = resolve.push_group(files.parse().expect("the contract is WIT")).expect("its names resolve");
    (resolve, package)
}

/// Prints a component as text, without the sections that name the tools.
fn text(bytes: &[u8]) -> String {
    let text = wasmprinter::print_bytes(bytes).expect("it can be printed");
    let mut in_producers = false;
    let kept = text.lines().filter(|line| {
        let (starts, ends) = (line.trim() == "(@producers", in_producers && line.trim() == ")");
        in_producers = starts || (in_producers && !ends);
        !starts && !in_producers && !ends
    });
    kept.collect::<Vec<_>>().join("\n")
}

fn assert_same(imports: &[Import], world: World) {
    let (resolve, package) = contract();
    let name = if world == World::Plugin { "plugin" } else { "test-plugin" };
    let id = resolve.select_world(&[package], Some(name)).expect("the contract has the world");
    let core = core(imports);
    let mut module = core.clone();
    wit_component::embed_component_metadata(&mut module, &resolve, id, StringEncoding::UTF8)
        .expect("a section");
    let encoder = ComponentEncoder::default().module(&module).expect("a module");
    let expected = encoder.validate(true).encode().expect("a component");
    let actual = component(&core, world).expect("a component");
    wasmparser::Validator::new().validate_all(&actual).expect("it is valid");
    let names: Vec<_> = imports.iter().map(|one| &one.1).collect();
    assert_eq!(text(&actual), text(&expected), "{names:?}");
}

#[test]
fn each_function_alone_makes_the_component_that_wit_component_makes() {
    for interface in INTERFACES {
        for import in imports_of(interface) {
            assert_same(&[import], World::Plugin);
        }
    }
}

#[test]
fn all_functions_make_the_component_that_wit_component_makes() {
    let mut all: Vec<_> = INTERFACES.iter().flat_map(imports_of).collect();
    assert_same(&all, World::Plugin);
    assert_same(&all, World::TestPlugin);
    all.reverse();
    assert_same(&all, World::TestPlugin);
    assert_same(&[], World::Plugin);
}

#[test]
fn modules_that_violate_the_contract_are_errors() {
    let foreign = ("kernelscript:host/perf@0.2.0", "no-such".to_owned(), vec![], vec![]);
    let error = component(&core(&[foreign]), World::Plugin).expect_err("no such function");
    assert!(error.to_string().contains("no `kernelscript:host/perf@0.2.0` with a function `no-such`"));
    let error = component(&wasm::Module::new().finish(), World::Plugin).expect_err("nothing is exported");
    assert!(error.to_string().contains("does not export `run`"));
}

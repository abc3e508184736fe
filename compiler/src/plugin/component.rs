//! The component around a core module: imports of the contract, lowered and lifted functions.
//!
//! ```text
//! types and imports of the interfaces | main, shim, fixup | instances, lowered functions
//!     | run, lifted | names
//! ```
//!
//! A function that needs the plugin's memory can be lowered only when the plugin has an instance, and the
//! instance needs its imports. The core module therefore imports functions of the shim, which call through a
//! table that the fixup fills. The result has the same structure as that of `wit-component`, with which the
//! tests of this module compare it; that crate parses WIT each time, and supports any world.

use std::collections::BTreeSet;

use wasm_encoder::{
    CanonicalOption, ComponentBuilder, ComponentExportKind, ComponentTypeRef, ExportKind, ModuleArg,
};
use wasmparser::{Parser, Payload};

use super::PluginError;
use super::contract::{INTERFACES, Interface, Needs, TypeId, TypeKind, WitFunction, World};
use super::shim::{self, TABLE};
use super::types::{self, Instances, OwnTypes};

/// Item of the contract that a core import refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// A function, by its position in its interface.
    WitFunction(usize),
    /// The drop of a handle of this resource.
    Drop(TypeId),
}

/// An import of the core module, resolved in the contract.
#[derive(Debug, Clone, Copy)]
struct Import<'a> {
    /// Position of the interface in the contract.
    interface: usize,
    /// Name in the core module.
    name: &'a str,
    item: Item,
}

impl Import<'_> {
    fn function(&self) -> Option<&'static WitFunction> {
        match self.item {
            Item::WitFunction(position) => Some(&INTERFACES[self.interface].functions[position]),
            Item::Drop(_) => None,
        }
    }

    /// Returns the function, if its arguments or its result are passed in memory.
    fn through_memory(&self) -> Option<&'static WitFunction> {
        self.function()
            .filter(|function| function.needs != Needs { memory: false, realloc: false, text: false })
    }

    /// Returns the types that the item refers to.
    fn live(&self) -> &[TypeId] {
        match (&self.item, self.function()) {
            (Item::Drop(id), _) => std::slice::from_ref(id),
            (_, Some(function)) => function.live,
            (Item::WitFunction(_), None) => &[],
        }
    }
}

/// Imports of the core module by interface, in the contract's order, and the names of its exports.
struct Surface<'a> {
    imports: Vec<Vec<Import<'a>>>,
    exports: BTreeSet<&'a str>,
}

/// Wraps a core module that targets a world of the contract in a component.
///
/// # Errors
/// [`PluginError::Component`] if the module cannot be read, has an import that does not fit the contract, or
/// lacks an export.
pub fn component(core: &[u8], world: World) -> Result<Vec<u8>, PluginError> {
    let surface = surface(core).map_err(PluginError::Component)?;
    let mut builder = ComponentBuilder::default();
    let instances = import_interfaces(&mut builder, &surface);
    let main = builder.core_module_raw(Some("main"), core);
    let own_types = OwnTypes::default();
    let mut maker = Maker { builder, instances, own_types, surface, realloc: None };
    let shims = maker.shims();
    let instance = maker.instantiate(main, &shims);
    let memory = maker
        .surface
        .exports
        .contains("memory")
        .then(|| maker.builder.core_alias_export(Some("memory"), instance, "memory", ExportKind::Memory));
    let own = Own { instance, memory };
    if let Some(shims) = &shims {
        maker.fix(shims, own)?;
    }
    for function in world.exports() {
        maker.export(function, own)?;
    }
    maker.builder.append_names();
    Ok(maker.builder.finish())
}

/// Reads the imports and exports of a core module.
fn surface(core: &[u8]) -> Result<Surface<'_>, String> {
    let mut imports: Vec<Vec<Import<'_>>> = Vec::new();
    let mut exports = BTreeSet::new();
    for payload in Parser::new(0).parse_all(core) {
        match payload.map_err(|error| error.to_string())? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(|error| error.to_string())?;
                    let found = find(import.module, import.name)?;
                    match imports.iter_mut().find(|group| group[0].interface == found.interface) {
                        Some(group) => group.push(found),
                        None => imports.push(vec![found]),
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    exports.insert(export.map_err(|error| error.to_string())?.name);
                }
            }
            Payload::CodeSectionStart { .. } => break,
            _ => {}
        }
    }
    Ok(Surface { imports, exports })
}

fn find<'a>(module: &str, name: &'a str) -> Result<Import<'a>, String> {
    let unknown = || format!("the contract has no `{module}` with a function `{name}`");
    let interface = INTERFACES.iter().position(|one| one.id == module).ok_or_else(unknown)?;
    let Interface { types, functions, .. } = &INTERFACES[interface];
    let item = match name.strip_prefix("[resource-drop]") {
        Some(resource) => {
            let found = types.iter().find(|(name, _)| *name == resource).map(|(_, id)| *id);
            found.filter(|id| matches!(id.def().kind, TypeKind::Resource)).map(Item::Drop)
        }
        None => functions.iter().position(|one| one.name == name).map(Item::WitFunction),
    };
    Ok(Import { interface, name, item: item.ok_or_else(unknown)? })
}

/// Imports the required interfaces, each with the required types and functions only.
fn import_interfaces(builder: &mut ComponentBuilder, surface: &Surface<'_>) -> Instances {
    let mut live: Vec<Vec<TypeId>> = INTERFACES.iter().map(|_| Vec::new()).collect();
    for id in surface.imports.iter().flatten().flat_map(Import::live) {
        if let Some(types) = id.def().owner.map(|owner| &mut live[owner])
            && !types.contains(id)
        {
            types.push(*id);
        }
    }
    let mut instances = Instances::default();
    for (position, interface) in INTERFACES.iter().enumerate() {
        let group = surface.imports.iter().find(|group| group[0].interface == position);
        let used =
            |at: usize| group.is_some_and(|group| group.iter().any(|one| one.item == Item::WitFunction(at)));
        let functions =
            interface.functions.iter().enumerate().filter(|(at, _)| used(*at)).map(|(_, one)| one);
        let ty = types::instance(builder, &instances, position, &live[position], functions);
        if ty.is_empty() {
            continue;
        }
        let ty = builder.type_instance(Some(&format!("ty-{}", interface.id)), &ty);
        instances.set(position, builder.import(interface.id, ComponentTypeRef::Instance(ty)));
    }
    instances
}

/// The shim module and the imports that call through it.
struct Shims {
    instance: u32,
    fixup: u32,
    functions: Vec<Shim>,
}

/// A function that the shim replaces until it is lowered.
struct Shim {
    interface: usize,
    function: &'static WitFunction,
    /// Name in the component's name section.
    debug_name: String,
}

/// The instance of the core module, and its memory if it exports one.
#[derive(Clone, Copy)]
struct Own {
    instance: u32,
    memory: Option<u32>,
}

struct Maker<'a> {
    builder: ComponentBuilder,
    instances: Instances,
    own_types: OwnTypes,
    surface: Surface<'a>,
    /// Allocator of the core module, once it was aliased.
    realloc: Option<u32>,
}

impl Maker<'_> {
    /// Adds the shim and the fixup, if a function needs them.
    fn shims(&mut self) -> Option<Shims> {
        let shim = |import: &Import<'_>| {
            let debug_name = format!("indirect-{}-{}", INTERFACES[import.interface].id, import.name);
            Some(Shim { interface: import.interface, function: import.through_memory()?, debug_name })
        };
        let functions: Vec<_> = self.surface.imports.iter().flatten().filter_map(shim).collect();
        if functions.is_empty() {
            return None;
        }
        let (shim, fixup) = shim::modules(functions.iter().map(|one| one.function));
        let shim = self.builder.core_module(Some("wit-component-shim-module"), &shim);
        let fixup = self.builder.core_module(Some("wit-component-fixup"), &fixup);
        let none: [(&str, ModuleArg); 0] = [];
        let instance = self.builder.core_instantiate(Some("wit-component-shim-instance"), shim, none);
        Some(Shims { instance, fixup, functions })
    }

    /// Instantiates the core module with its imports, and returns the instance.
    fn instantiate(&mut self, main: u32, shims: &Option<Shims>) -> u32 {
        let mut arguments = Vec::new();
        let mut number = 0;
        for group in std::mem::take(&mut self.surface.imports) {
            let interface = INTERFACES[group[0].interface].id;
            let mut exports = Vec::new();
            for import in group {
                let index = match (shims, import.through_memory(), import.item) {
                    (Some(shims), Some(_), _) => {
                        let debug_name = &shims.functions[number].debug_name;
                        number += 1;
                        let name = (number - 1).to_string();
                        self.builder.core_alias_export(
                            Some(debug_name),
                            shims.instance,
                            &name,
                            ExportKind::Func,
                        )
                    }
                    (_, _, Item::Drop(id)) => {
                        let resource = self.instances.alias(&mut self.builder, id);
                        self.builder.resource_drop(resource)
                    }
                    _ => {
                        let function = self.alias(import.interface, import.name);
                        let none: [CanonicalOption; 0] = [];
                        self.builder.lower_func(Some(import.name), function, none)
                    }
                };
                exports.push((import.name, ExportKind::Func, index));
            }
            let instance = self.builder.core_instantiate_exports(Some(interface), exports);
            arguments.push((interface, ModuleArg::Instance(instance)));
        }
        self.builder.core_instantiate(Some("main"), main, arguments)
    }

    /// Lowers the functions that the shim replaces, and makes the fixup store them in its table.
    fn fix(&mut self, shims: &Shims, own: Own) -> Result<(), PluginError> {
        let builder = &mut self.builder;
        let table = builder.core_alias_export(Some("shim table"), shims.instance, TABLE, ExportKind::Table);
        let mut exports = vec![(TABLE.to_owned(), ExportKind::Table, table)];
        for (number, Shim { interface, function, debug_name }) in shims.functions.iter().enumerate() {
            let lifted = self.alias(*interface, function.name);
            let options = self.options(function, own, "realloc")?;
            let lowered = self.builder.lower_func(Some(debug_name), lifted, options);
            exports.push((number.to_string(), ExportKind::Func, lowered));
        }
        let exports = exports.iter().map(|(name, kind, index)| (name.as_str(), *kind, *index));
        let arguments =
            self.builder.core_instantiate_exports(Some("fixup-args"), exports.collect::<Vec<_>>());
        self.builder.core_instantiate(Some("fixup"), shims.fixup, [("", ModuleArg::Instance(arguments))]);
        Ok(())
    }

    /// Exports a function of the core module that the host calls.
    fn export(&mut self, function: &WitFunction, own: Own) -> Result<(), PluginError> {
        if !self.surface.exports.contains(function.name) {
            return Err(PluginError::Component(format!("the module does not export `{}`", function.name)));
        }
        let ty = types::function(&mut self.builder, &mut self.own_types, function);
        let name = function.name;
        let core = self.builder.core_alias_export(Some(name), own.instance, name, ExportKind::Func);
        let options = self.options(function, own, "cabi_realloc")?;
        let lifted = self.builder.lift_func(Some(name), core, ty, options);
        self.builder.export(name, ComponentExportKind::Func, lifted, None);
        Ok(())
    }

    fn alias(&mut self, interface: usize, name: &str) -> u32 {
        self.builder.alias_export(self.instances.of(interface), name, ComponentExportKind::Func)
    }

    /// Returns the canonical options of a function. The allocator is aliased at its first use.
    fn options(
        &mut self,
        function: &WitFunction,
        own: Own,
        debug_name: &str,
    ) -> Result<Vec<CanonicalOption>, PluginError> {
        let lacks = |what: &str| {
            PluginError::Component(format!(
                "`{}` needs `{what}`, which the module does not export",
                function.name
            ))
        };
        if self.realloc.is_none() && self.surface.exports.contains("cabi_realloc") {
            let (instance, name) = (own.instance, "cabi_realloc");
            self.realloc =
                Some(self.builder.core_alias_export(Some(debug_name), instance, name, ExportKind::Func));
        }
        let Needs { memory, realloc, text } = function.needs;
        let mut options = Vec::new();
        if memory {
            options.push(CanonicalOption::Memory(own.memory.ok_or_else(|| lacks("memory"))?));
        }
        if realloc {
            options.push(CanonicalOption::Realloc(self.realloc.ok_or_else(|| lacks("cabi_realloc"))?));
        }
        if text {
            options.push(CanonicalOption::UTF8);
        }
        Ok(options)
    }
}

//! The functions that a component imports, by the types in its file: known before its code is loaded.

use std::collections::{BTreeSet, HashMap};

use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentType,
    ComponentTypeRef, InstanceTypeDeclaration, Parser, Payload,
};

use super::engine::interface_name;

/// Returns the functions of the contract that a component imports, as `perf.[static]event.named`; none if its types do not
/// tell.
///
/// # Errors
/// The component is malformed.
pub(super) fn of(component: &[u8]) -> Result<Option<BTreeSet<String>>, BinaryReaderError> {
    let mut found = ImportedFunctions::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            payload if depth == 1 => found.read(payload)?,
            _ => {}
        }
    }
    Ok((!found.is_unknown).then_some(found.functions))
}

/// The types of the outermost component while its sections are read in order, and the functions of what it imports.
#[derive(Default)]
struct ImportedFunctions {
    /// How many types there are.
    types: u32,
    /// The names that each instance type exports.
    instances: HashMap<u32, Vec<String>>,
    functions: BTreeSet<String>,
    /// Whether the type of an imported instance is not written here.
    is_unknown: bool,
}

impl ImportedFunctions {
    /// Reads a section of the outermost component.
    ///
    /// Source: component-model, design/mvp/Binary.md (what adds to the index space of types).
    fn read(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ComponentTypeSection(section) => {
                for ty in section {
                    if let ComponentType::Instance(declared) = ty? {
                        self.instances.insert(self.types, exported(&declared));
                    }
                    self.types += 1;
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.types += u32::from(is_type(&alias?));
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import?;
                    self.import(import.name.name, import.ty);
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    self.types += u32::from(export?.kind == ComponentExternalKind::Type);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, name: &str, ty: ComponentTypeRef) {
        match ty {
            ComponentTypeRef::Type(_) => self.types += 1,
            ComponentTypeRef::Instance(ty) => match self.instances.get(&ty) {
                Some(exported) => {
                    let interface = interface_name(name);
                    self.functions.extend(exported.iter().map(|name| format!("{interface}.{name}")));
                }
                None => self.is_unknown = true,
            },
            _ => {}
        }
    }
}

/// Returns the names that an instance type exports.
fn exported(declared: &[InstanceTypeDeclaration<'_>]) -> Vec<String> {
    let name = |one: &InstanceTypeDeclaration<'_>| match one {
        InstanceTypeDeclaration::Export { name, .. } => Some(name.name.to_owned()),
        _ => None,
    };
    declared.iter().filter_map(name).collect()
}

fn is_type(alias: &ComponentAlias<'_>) -> bool {
    match alias {
        ComponentAlias::InstanceExport { kind, .. } => *kind == ComponentExternalKind::Type,
        ComponentAlias::Outer { kind, .. } => *kind == ComponentOuterAliasKind::Type,
        ComponentAlias::CoreInstanceExport { .. } => false,
    }
}

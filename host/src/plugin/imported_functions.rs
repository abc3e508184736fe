//! The functions that a component imports, by the types in its file: known before its code is loaded.

use std::collections::{BTreeSet, HashMap};

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentType, ComponentTypeRef,
    Encoding, InstanceTypeDeclaration, Payload,
};

use super::engine::interface_name;
use super::file::{PluginError, malformed};

/// The types of the outermost component while its sections are read in order, and the functions of what it imports.
#[derive(Default)]
pub(super) struct ImportedFunctions {
    /// Components and modules that are being read.
    depth: usize,
    /// How many types there are.
    types: u32,
    /// The names that each instance type exports.
    instances: HashMap<u32, Vec<String>>,
    functions: BTreeSet<String>,
    /// Whether the type of an imported instance is not written here.
    is_unknown: bool,
}

impl ImportedFunctions {
    /// Reads a section.
    ///
    /// Source: component-model, design/mvp/Binary.md (what adds to the index space of types).
    ///
    /// # Errors
    /// [`PluginError::Malformed`].
    pub(super) fn read(&mut self, payload: &Payload<'_>) -> Result<(), PluginError> {
        match payload {
            Payload::Version { encoding, .. } => {
                self.depth += 1;
                self.is_unknown |= self.depth == 1 && *encoding == Encoding::Module;
            }
            Payload::End(_) => self.depth = self.depth.saturating_sub(1),
            _ if self.depth != 1 => {}
            Payload::ComponentTypeSection(section) => {
                for ty in section.clone() {
                    if let ComponentType::Instance(declared) = ty.map_err(malformed)? {
                        self.instances.insert(self.types, exported(&declared));
                    }
                    self.types += 1;
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.types += u32::from(is_type(&alias.map_err(malformed)?));
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let import = import.map_err(malformed)?;
                    self.import(import.name.name, import.ty);
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let kind = export.map_err(malformed)?.kind;
                    self.types += u32::from(kind == ComponentExternalKind::Type);
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

    /// Returns the functions of the contract, as `perf.[static]event.named`; none if the types do not tell.
    pub(super) fn found(self) -> Option<BTreeSet<String>> {
        (!self.is_unknown).then_some(self.functions)
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

//! Counts the instances that a component creates, before it is compiled. The engine expands each
//! instantiation, so that 30 components that each instantiate the previous one twice take 2^30 steps.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef,
    Encoding, Instance, Payload,
};

use super::file::{PluginError, malformed};

/// Limit on instances, including core ones. Tools create some ten; the policy limits how many exist at a time
/// (`instances`).
const MAX_INSTANCES: u64 = 1000;

/// A component or module while its sections are read.
struct Level {
    is_module: bool,
    /// Number of instances that each component of the index space creates; none for an imported component.
    components: Vec<Option<u64>>,
    /// Number of instances that its own instantiations create.
    created: u64,
}

/// The nesting levels of a file while its sections are read in order.
#[derive(Default)]
pub(super) struct Instances(Vec<Level>);

impl Instances {
    /// Rejects a component that creates more than [`MAX_INSTANCES`] instances, or a number that only running
    /// it would determine.
    ///
    /// Source: component-model, design/mvp/Binary.md (the index spaces, and what adds to them).
    ///
    /// # Errors
    /// [`PluginError::Malformed`].
    pub(super) fn read(&mut self, payload: &Payload<'_>) -> Result<(), PluginError> {
        let Instances(levels) = self;
        match payload {
            Payload::Version { encoding, .. } => {
                let is_module = *encoding == Encoding::Module;
                levels.push(Level { is_module, components: Vec::new(), created: 0 });
                Ok(())
            }
            Payload::End(_) => {
                let ended = levels.pop();
                if let (Some(Level { is_module: false, created, .. }), Some(around)) =
                    (ended, levels.last_mut())
                {
                    around.components.push(Some(created.saturating_add(1)));
                }
                Ok(())
            }
            payload => read(payload, levels),
        }
    }
}

/// Reads a section that creates instances, or adds components to the index space.
fn read(payload: &Payload<'_>, levels: &mut [Level]) -> Result<(), PluginError> {
    match payload {
        Payload::InstanceSection(section) => {
            for instance in section.clone() {
                if let Instance::Instantiate { .. } = instance.map_err(malformed)? {
                    make(levels, 1)?;
                }
            }
        }
        Payload::ComponentInstanceSection(section) => {
            for instance in section.clone() {
                if let ComponentInstance::Instantiate { component_index, .. } = instance.map_err(malformed)? {
                    let created = component(levels, 0, component_index).ok_or_else(|| {
                        PluginError::Malformed(
                            "a component is instantiated that comes from outside of it".into(),
                        )
                    })?;
                    make(levels, created)?;
                }
            }
        }
        Payload::ComponentAliasSection(section) => {
            for alias in section.clone() {
                let added = match alias.map_err(malformed)? {
                    ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                        component(levels, count, index)
                    }
                    ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => None,
                    _ => continue,
                };
                add(levels, added);
            }
        }
        Payload::ComponentImportSection(section) => {
            for import in section.clone() {
                if let ComponentTypeRef::Component(_) = import.map_err(malformed)?.ty {
                    add(levels, None);
                }
            }
        }
        // An export adds a new index for the exported item.
        Payload::ComponentExportSection(section) => {
            for export in section.clone() {
                let export = export.map_err(malformed)?;
                if export.kind == ComponentExternalKind::Component {
                    let added = component(levels, 0, export.index);
                    add(levels, added);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Number of instances that a component creates, which is `outwards` levels further out.
fn component(levels: &[Level], outwards: u32, index: u32) -> Option<u64> {
    let level = levels.iter().rev().nth(usize::try_from(outwards).ok()?)?;
    level.components.get(usize::try_from(index).ok()?).copied().flatten()
}

fn add(levels: &mut [Level], component: Option<u64>) {
    if let Some(level) = levels.last_mut() {
        level.components.push(component);
    }
}

fn make(levels: &mut [Level], instances: u64) -> Result<(), PluginError> {
    let Some(level) = levels.last_mut() else { return Ok(()) };
    level.created = level.created.saturating_add(instances);
    if level.created > MAX_INSTANCES {
        return Err(PluginError::Malformed(format!(
            "it makes more than {MAX_INSTANCES} instances of its parts"
        )));
    }
    Ok(())
}

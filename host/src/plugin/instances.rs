//! How many instances a component makes of itself, told before it is compiled: the engine writes out what each
//! instantiation does, so that 30 components of which each instantiates the one before twice take 2^30 steps.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef,
    Encoding, Instance, Payload,
};

use super::file::{PluginError, malformed};

/// Most instances, core ones included. Tools make some ten; how many run at a time the policy limits (`instances`).
const MAX_INSTANCES: u64 = 1000;

/// A component or module while its sections are read.
struct Level {
    is_module: bool,
    /// How many instances each component of the index space makes; none if it comes from outside.
    components: Vec<Option<u64>>,
    /// How many the own instantiations make.
    created: u64,
}

/// What is told of a file while its sections are read, from the first to the last.
#[derive(Default)]
pub(super) struct Instances(Vec<Level>);

impl Instances {
    /// Refuses a component that makes more instances than a thousand, or so many as only running it would tell.
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

/// Reads a section that makes instances, or adds to the components that can be instantiated.
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
        // What is exported is in the index space once more.
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

/// How many instances a component makes, so many levels outwards.
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

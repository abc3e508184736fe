//! The running kernel: loads an object and test-runs its program.

use std::collections::BTreeMap;

use libbpf_rs::{Map, MapCore, MapFlags, MapType, Object, ObjectBuilder, ProgramInput, ProgramType};

use crate::oracles::maps::{MapEntries, Shape};
use crate::oracles::state::{Input, State};

/// An object in the kernel, removed when dropped.
pub struct Loaded {
    object: Object,
    /// The CPU of the thread, whose values of per-CPU maps are compared.
    cpu: usize,
}

/// Returns the data section in a map name: libbpf creates a map for each data section.
fn section_of(name: &str) -> Option<&str> {
    let at = [".data", ".bss", ".rodata"].iter().find_map(|kind| name.find(kind))?;
    Some(&name[at..])
}

fn name_of(map: &Map<'_>) -> String {
    map.name().to_string_lossy().into_owned()
}

impl Loaded {
    /// Loads an object with its perf program as a raw tracepoint program, which the kernel can test-run: it
    /// has all helpers of perf programs except those that read the sample.
    pub fn new(elf: &[u8], cpu: usize) -> Result<Loaded, String> {
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(elf).map_err(|error| error.to_string())?;
        for mut program in open.progs_mut() {
            program.set_prog_type(ProgramType::RawTracepoint);
        }
        let object = open.load().map_err(|error| format!("the kernel does not load it: {error}"))?;
        Ok(Loaded { object, cpu })
    }

    /// Returns the shapes of the maps that programs use.
    pub fn shapes(&self) -> Vec<Shape> {
        let maps = self.object.maps().filter(|map| section_of(&name_of(map)).is_none());
        maps.map(|map| Shape {
            name: name_of(&map),
            kind: map.map_type(),
            key: map.key_size() as usize,
            value: map.value_size() as usize,
            entries: map.max_entries() as usize,
        })
        .collect()
    }

    /// Runs the program once and returns its final state.
    pub fn run(&self, input: &Input) -> Result<State, libbpf_rs::Error> {
        for map in self.object.maps() {
            match section_of(&name_of(&map)) {
                // The kernel has frozen the read-only sections.
                Some(name) if name.starts_with(".rodata") => {}
                Some(name) => map.update(&[0; 4], &input.sections[name], MapFlags::ANY)?,
                None => self.clear(&map)?,
            }
            for (key, value) in input.entries.get(&name_of(&map)).into_iter().flatten() {
                map.update(key, value, MapFlags::ANY)?;
            }
        }
        let program = self.object.progs_mut().next().expect("scripts have one program");
        let output = program.test_run(ProgramInput::default())?;
        let mut state =
            State { result: output.return_value, sections: BTreeMap::new(), maps: BTreeMap::new() };
        for map in self.object.maps() {
            let name = name_of(&map);
            match section_of(&name) {
                Some(section) => {
                    let content = map.lookup(&[0; 4], MapFlags::ANY)?.expect("a section has one entry");
                    state.sections.insert(section.into(), content);
                }
                None => drop(state.maps.insert(name, self.entries(&map)?)),
            }
        }
        Ok(state)
    }

    /// Returns all entries, for arrays only the non-zero ones. Maps of maps have none: programs cannot fill them, and
    /// nothing else does here.
    fn entries(&self, map: &Map<'_>) -> Result<MapEntries, libbpf_rs::Error> {
        let kind = map.map_type();
        if matches!(kind, MapType::ArrayOfMaps | MapType::HashOfMaps) {
            return Ok(MapEntries::new());
        }
        if matches!(kind, MapType::PercpuArray | MapType::PercpuHash) {
            let values = map.keys().map(|key| {
                let values = map.lookup_percpu(&key, MapFlags::ANY)?.expect("nobody else removes keys");
                Ok((key, values[self.cpu].clone()))
            });
            return values.filter(|entry| kind != MapType::PercpuArray || !is_zero(entry)).collect();
        }
        if kind == MapType::Array {
            let entries = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY)?;
            return Ok(entries.filter(|(_, value)| value.iter().any(|byte| *byte != 0)).collect());
        }
        let values = map.keys().map(|key| {
            let value = map.lookup(&key, MapFlags::ANY)?.expect("nobody else removes keys");
            Ok((key, value))
        });
        values.collect()
    }

    fn clear(&self, map: &Map<'_>) -> Result<(), libbpf_rs::Error> {
        for (key, value) in self.entries(map)? {
            let zeros = vec![0; value.len()];
            match map.map_type() {
                MapType::Array => map.update(&key, &zeros, MapFlags::ANY)?,
                MapType::PercpuArray => {
                    let values = vec![zeros; libbpf_rs::num_possible_cpus()?];
                    map.update_percpu(&key, &values, MapFlags::ANY)?;
                }
                _ => map.delete(&key)?,
            }
        }
        Ok(())
    }
}

fn is_zero(entry: &Result<(Vec<u8>, Vec<u8>), libbpf_rs::Error>) -> bool {
    entry.as_ref().is_ok_and(|(_, value)| value.iter().all(|byte| *byte == 0))
}

//! Loads and runs objects with bpftool.

use std::collections::BTreeMap;

use crate::bpffs::{BpfFs, bpftool};

/// Programs that the verifier has accepted; dropping it unloads them.
pub struct Loaded {
    fs: BpfFs,
}

impl Loaded {
    /// Loads all programs of an object with the types of their sections.
    pub fn load(elf: &[u8]) -> Loaded {
        Loaded::load_as(elf, &[])
    }

    /// Loads all programs as xdp, which can be test-run, unlike perf programs.
    pub fn load_runnable(elf: &[u8]) -> Loaded {
        Loaded::load_as(elf, &["type", "xdp"])
    }

    fn load_as(elf: &[u8], kind: &[&str]) -> Loaded {
        let fs = BpfFs::mount();
        let object = fs.write("case.o", elf);
        let (programs, maps) = (fs.pin("programs"), fs.pin("maps"));
        let mut args = vec!["prog", "loadall", &object, &programs];
        args.extend(kind);
        args.extend(["pinmaps", &maps]);
        bpftool(&args);
        Loaded { fs }
    }

    /// Writes the only entry of a map.
    pub fn write(&self, map: &str, value: &[u8]) {
        let pinned = self.fs.pin(&format!("maps/{map}"));
        let value: Vec<_> = value.iter().map(u8::to_string).collect();
        let mut args = vec!["map", "update", "pinned", &pinned, "key", "0", "0", "0", "0", "value"];
        args.extend(value.iter().map(String::as_str));
        bpftool(&args);
    }

    /// Runs a program once and returns its result.
    pub fn run(&self, program: &str) -> u32 {
        let packet = self.fs.write("packet", &[0; 64]);
        let pinned = self.fs.pin(&format!("programs/{program}"));
        let out = bpftool(&["-j", "prog", "run", "pinned", &pinned, "data_in", &packet]);
        let json: serde_json::Value = serde_json::from_str(&out).expect("bpftool -j prints JSON");
        let result = json["retval"].as_u64().expect("a result");
        u32::try_from(result).expect("32 bits")
    }

    /// Returns the global variables of a section, by name.
    pub fn globals(&self, section: &str) -> BTreeMap<String, serde_json::Value> {
        let map = self.fs.pin(&format!("maps/case_{section}"));
        let json = dump(&map);
        let section = &json[0]["formatted"]["value"];
        let variables = section.as_object().and_then(|section| section.values().next());
        let variables = variables.and_then(|list| list.as_array()).unwrap_or_else(|| panic!("{json}"));
        let entries = variables.iter().filter_map(|one| one.as_object()?.iter().next());
        entries.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns the entries of a map, as pairs of key and value.
    pub fn entries(&self, map: &str) -> Vec<(serde_json::Value, serde_json::Value)> {
        let json = dump(&self.fs.pin(&format!("maps/{map}")));
        let entries = json.as_array().unwrap_or_else(|| panic!("{json}"));
        let formatted = entries.iter().map(|entry| &entry["formatted"]);
        formatted.map(|one| (one["key"].clone(), one["value"].clone())).collect()
    }

    /// Returns the translated instructions, with the script's lines.
    pub fn translated(&self, program: &str) -> String {
        bpftool(&["prog", "dump", "xlated", "pinned", &self.fs.pin(&format!("programs/{program}")), "linum"])
    }
}

fn dump(map: &str) -> serde_json::Value {
    serde_json::from_str(&bpftool(&["-j", "map", "dump", "pinned", map])).expect("bpftool -j prints JSON")
}

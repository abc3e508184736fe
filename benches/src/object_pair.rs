//! A pair of objects with the same results: the script's, and clang's from C.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use ks_tests::runs::verified;
use libbpf_rs::{
    MapCore, MapFlags, MapType, Object, ObjectBuilder, ProgramInput, ProgramMut, ProgramOutput, ProgramType,
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};

/// Test runs of a program in one measurement.
const REPEAT: u32 = 20_000;
/// Alternating measurements of each object; the shortest counts.
const REPETITIONS: usize = 7;

/// Returns the paths of the C programs, sorted by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("benches/c");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    found.sort();
    Ok(found)
}

/// Returns the path of the script with this name: next to the C file, among the examples, or among the
/// compiler's test cases.
///
/// # Errors
/// If there is none.
pub fn script(root: &Path, name: &str) -> Result<PathBuf> {
    const EXAMPLES: [&str; 5] = ["perf", "net", "trace", "state", "testing"];
    let folders = EXAMPLES.map(|folder| format!("examples/{folder}"));
    let folders = std::iter::once("benches/c")
        .chain(folders.iter().map(String::as_str))
        .chain(["compiler/tests/cases/kernel"]);
    let mut files = folders.map(|folder| root.join(folder).join(format!("{name}.ks")));
    files.find(|file| file.exists()).with_context(|| format!("no script for {name}.c"))
}

/// Returns the maps and variables that a C program names in a line `/* Keeps times: NAME, NAME */` because it
/// stores clock readings in them. Two runs never leave the same values there.
///
/// # Errors
/// If the file cannot be read.
pub fn times(c: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(c).with_context(|| format!("cannot read {}", c.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("/* Keeps times: ")?.strip_suffix(" */"));
    Ok(line.map_or(Vec::new(), |names| names.split(", ").map(str::to_owned).collect()))
}

/// The objects of a script and of its C counterpart.
pub struct ObjectPair<'a> {
    /// Names of the maps and variables that hold clock readings, see [`times`].
    pub times: &'a [String],
    /// The object that `ks` compiled from the script.
    pub elf: &'a [u8],
    /// The object that clang compiled from C.
    pub clang: &'a [u8],
}

impl ObjectPair<'_> {
    /// Returns the number of 8-byte instructions of each.
    ///
    /// # Errors
    /// If one is not an object file.
    pub fn instructions(&self) -> Result<(u32, u32)> {
        Ok((instructions(self.elf)?, instructions(self.clang)?))
    }

    /// Runs both, and compares their results.
    ///
    /// # Errors
    /// If the script's object cannot be loaded, or its final state cannot be read.
    pub fn measure(&self) -> Result<Measured> {
        let mut ours = load(self.elf)?;
        let Ok(mut theirs) = load(self.clang) else {
            let comparison = "the verifier refuses clang's".into();
            return Ok(Measured { times: None, verified: None, comparison });
        };
        let verified = Some((verified(&ours)?, verified(&theirs)?));
        let (Some(one), Some(other)) = (run(&mut ours, 1), run(&mut theirs, 1)) else {
            return Ok(Measured { times: None, verified, comparison: "not run".into() });
        };
        let comparison = if one == other {
            self.difference(&final_state(&ours, self.elf)?, &final_state(&theirs, self.clang)?)
        } else {
            format!("results {} and {}", one.0, other.0)
        };
        let mut best = (f64::MAX, f64::MAX);
        for _ in 0..REPETITIONS {
            let (Some(one), Some(other)) = (time(&mut ours), time(&mut theirs)) else { break };
            best = (best.0.min(one), best.1.min(other));
        }
        // The kernel counts whole nanoseconds; a time of 0 is less than one.
        Ok(Measured { times: Some((best.0.max(0.5), best.1.max(0.5))), verified, comparison })
    }

    fn difference(
        &self,
        ours: &BTreeMap<String, FinalState>,
        theirs: &BTreeMap<String, FinalState>,
    ) -> String {
        let differ =
            |(name, value): &(&String, &FinalState)| theirs.get(*name).is_some_and(|other| other != *value);
        let names = ours.iter().filter(differ).map(|(name, _)| name);
        let (times, others): (Vec<_>, Vec<_>) = names.partition(|name| self.times.contains(name));
        match (others.as_slice(), times.as_slice()) {
            ([], []) => "same".into(),
            ([], _) => "same but times".into(),
            (others, _) => {
                format!("differ: {}", others.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Times and comparison of a pair of objects.
pub struct Measured {
    /// Nanoseconds of a run of each; none if they have no test runs.
    pub times: Option<(f64, f64)>,
    /// The instructions that the verifier followed in each; none if it refuses clang's.
    pub verified: Option<(u32, u32)>,
    /// `same`, `same but times`, or the differences of the final states after a first run.
    pub comparison: String,
}

/// Returns the number of 8-byte instructions of an object.
///
/// # Errors
/// If it is not an object file.
pub fn instructions(elf: &[u8]) -> Result<u32> {
    let file = object::File::parse(elf)?;
    let bytes: u64 =
        file.sections().filter(|section| section.kind() == SectionKind::Text).map(|one| one.size()).sum();
    Ok(u32::try_from(bytes / 8)?)
}

/// Loads an object; loads perf programs, which have no test runs, as xdp.
fn load(elf: &[u8]) -> Result<Object> {
    let mut open = ObjectBuilder::default().name("twin")?.open_memory(elf)?;
    let foreign = |ty| matches!(ty, ProgramType::PerfEvent);
    for mut program in open.progs_mut().filter(|program| foreign(program.prog_type())) {
        program.set_prog_type(ProgramType::Xdp);
    }
    match open.load() {
        Ok(object) => Ok(object),
        // The program uses its context: it is loaded unchanged.
        Err(_) => Ok(ObjectBuilder::default().name("twin")?.open_memory(elf)?.load()?),
    }
}

fn first(object: &mut Object) -> Option<ProgramMut<'_>> {
    object.progs_mut().next()
}

/// A UDP packet from 10.0.0.1 port 4000 to 10.0.0.2 port 53, 128 bytes.
fn packet() -> Vec<u8> {
    let mut packet = vec![0; 128];
    packet[12..14].copy_from_slice(&[0x08, 0]);
    packet[14..24].copy_from_slice(&[0x45, 0, 0, 114, 0, 1, 0, 0, 64, 17]);
    packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[34..40].copy_from_slice(&[0x0f, 0xa0, 0, 53, 0, 94]);
    packet.iter_mut().skip(42).zip(1..).for_each(|(byte, number)| *byte = number);
    packet
}

/// The program's result, and the packet after the run.
type Answer = (u32, Vec<u8>);

fn test_run(object: &mut Object, repeat: u32) -> Option<(Answer, Duration)> {
    let data = packet();
    let mut out = vec![0; 256];
    let input =
        ProgramInput { data_in: Some(&data), data_out: Some(&mut out), repeat, ..ProgramInput::default() };
    let ProgramOutput { return_value, duration, data, .. } = first(object)?.test_run(input).ok()?;
    let data = data.map(|data| data.to_vec()).unwrap_or_default();
    Some(((return_value, data), duration))
}

fn run(object: &mut Object, repeat: u32) -> Option<Answer> {
    test_run(object, repeat).map(|(answer, _)| answer)
}

fn time(object: &mut Object) -> Option<f64> {
    test_run(object, REPEAT).map(|(_, duration)| duration.as_nanos() as f64)
}

/// The content of a variable, or of a map by key, after a run.
#[derive(PartialEq)]
enum FinalState {
    Bytes(Vec<u8>),
    Entries(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// Returns the content of variables and plain maps by name.
fn final_state(object: &Object, elf: &[u8]) -> Result<BTreeMap<String, FinalState>> {
    let mut found = BTreeMap::new();
    let mut sections: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some((_, section)) = name.rsplit_once('.') {
            let value = map.lookup(&[0; 4], MapFlags::ANY)?.unwrap_or_default();
            sections.insert(format!(".{section}"), value);
        } else if matches!(map.map_type(), MapType::Hash | MapType::Array | MapType::LruHash) {
            let value = |key: Vec<u8>| Some((key.clone(), map.lookup(&key, MapFlags::ANY).ok()??));
            found.insert(name, FinalState::Entries(map.keys().filter_map(value).collect()));
        }
    }
    let file = object::File::parse(elf)?;
    for symbol in file.symbols().filter(|symbol| symbol.size() > 0) {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        let bytes = section.and_then(|section| sections.get(section.name().ok()?));
        let at = symbol.address() as usize..(symbol.address() + symbol.size()) as usize;
        if let (Some(bytes), Ok(name)) = (bytes.and_then(|bytes| bytes.get(at)), symbol.name()) {
            found.insert(name.to_owned(), FinalState::Bytes(bytes.to_vec()));
        }
    }
    Ok(found)
}

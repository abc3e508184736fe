//! The plugin file: a component, and the contents of our custom sections in it.
//!
//! In: untrusted bytes. Out: a [`Plugin`] whose sections are well-formed. Other modules validate the
//! component's code (the engine) and its BPF object (the `bpf` module).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ks_wit::lines::Lines;
use ks_wit::manifest::{self, Manifest};
use ks_wit::section::{self, Arch, BpfRecord, SectionError};
use serde::Deserialize;
use wasmparser::{Encoding, Parser, Payload};

use super::imported_functions;
use super::instances::Instances;
use super::memory;
use super::signature::{self, Signature, Signer};
use crate::policy::{ObjectError, ObjectSet};
use crate::text::{MOST_BYTES, indented, visible};

/// Limit on the bytes of a plugin file. Guards the host's memory against a file (or a pipe) without end.
pub const MAX_PLUGIN_BYTES: u64 = 128 << 20;

/// Limit on our records in one file. Guards against a section of millions of empty records, each of which
/// would take more memory here than its four bytes there.
const MAX_RECORDS: usize = 1024;

impl From<super::EngineError> for PluginError {
    fn from(error: super::EngineError) -> PluginError {
        PluginError::Component(error.to_string())
    }
}

/// Limit on the nesting of components. Tools produce two or three levels; the engine's time grows with the
/// square of the depth.
const MAX_DEPTH: usize = 32;

/// A plugin file whose sections are read and validated.
#[derive(Debug, Clone)]
pub struct Plugin {
    bytes: Vec<u8>,
    objects: Vec<BpfRecord>,
    manifests: Vec<Manifest>,
    imports: Vec<String>,
    lines: Vec<Lines>,
    shared_bytes: Option<usize>,
    signatures: Vec<Signature>,
}

/// Why a file is not a plugin. The texts hold names and words of the file as they are there; the message makes
/// them visible and cuts them.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The file could not be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    /// The file is longer than [`MAX_PLUGIN_BYTES`].
    #[error("the file has more than {MAX_PLUGIN_BYTES} bytes")]
    TooLong,
    /// The file does not begin like WebAssembly.
    #[error("the file is not WebAssembly (it does not begin with the bytes of a component)")]
    NotWasm,
    /// The file is a core module, not a component.
    #[error(
        "the file is a core WebAssembly module, not a component; `wasm-tools component new` makes one of it"
    )]
    CoreModule,
    /// The structure of the WebAssembly is invalid.
    #[error("the file is not a well-formed component: {}", shown(.0))]
    Malformed(String),
    /// One of our custom sections is malformed.
    #[error("custom section `{section}`: {source}")]
    Section {
        /// Name of the custom section.
        section: &'static str,
        /// Why it is malformed.
        source: SectionError,
    },
    /// The file has more than the allowed number of records.
    #[error("the custom sections hold more than {MAX_RECORDS} records")]
    TooManyRecords,
    /// A manifest is not valid JSON, or has other members than a manifest.
    #[error("the manifest cannot be read: {}", shown(.0))]
    Manifest(String),
    /// A signature is not valid JSON, or has other members than a signature.
    #[error("a signature cannot be read: {}", shown(.0))]
    Signature(String),
    /// A manifest has a newer format than this host supports.
    #[error(
        "the manifest has format {found}; this host reads up to {}. A newer ks-host is needed",
        manifest::FORMAT
    )]
    ManifestFormat {
        /// Format number of the manifest.
        found: u32,
    },
    /// Several objects are for this machine.
    #[error(
        "the file holds several BPF objects for this machine ({}); one plugin has one",
        shown(&.names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", "))
    )]
    SeveralObjects {
        /// Names of the objects.
        names: Vec<String>,
    },
    /// A BPF object cannot be read, or is refused.
    #[error("the BPF object is refused: {0}")]
    Object(#[from] ObjectError),
    /// A memory is declared to be shared, but cannot be shared safely.
    #[error("the memory of section `kernelscript:shared-memory` cannot be shared: {}", shown(.0))]
    SharedMemory(String),
    /// Compiling the code took longer than the limit.
    #[error("its code is not compiled yet\n  because: {0}")]
    CompileTime(String),
    /// The process that would run the plugin does not start, or ends at once.
    #[error("cannot start the process for it: {}", shown(.0))]
    NoProcess(String),
    /// The component was built against a version of the contract that this host does not serve.
    #[error(
        "the component was built against {}; this host serves {served}\n  \
         do: run it with a ks-host of that version, or build it against the contract of this one",
        shown(.contract)
    )]
    Contract {
        /// Package and version that the component imports.
        contract: String,
        /// Package and version that this host serves.
        served: &'static str,
    },
    /// Another engine compiled its code: [`Host::prepare`](crate::Host::prepare) compiles it again.
    #[error("its code is of another engine: {}", indented(.0))]
    OtherEngine(String),
    /// The engine rejects the component, or it does not fit the world of plugins.
    #[error("{}", indented(.0))]
    Component(String),
}

/// Makes a text of the file visible as one line.
fn shown(text: &str) -> Cow<'_, str> {
    visible(text, MOST_BYTES)
}

impl Plugin {
    /// Reads a plugin file from disk.
    ///
    /// # Errors
    /// If it cannot be read; see also [`Plugin::from_bytes`].
    pub fn from_file(path: &Path) -> Result<Plugin, PluginError> {
        Plugin::from_bytes(read_file(path)?)
    }

    /// Reads a plugin from memory.
    ///
    /// # Errors
    /// If the bytes are not a component, or one of our sections in it is malformed. Never panics, whatever
    /// the bytes are.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Plugin, PluginError> {
        let bytes = bytes.into();
        if bytes.len() as u64 > MAX_PLUGIN_BYTES {
            return Err(PluginError::TooLong);
        }
        let mut found = Sections::default();
        found.collect(&bytes)?;
        let Sections { objects, manifests, imports, lines, shares, signatures, .. } = found;
        let shared_bytes = if shares { memory::declared(&bytes)? } else { None };
        Ok(Plugin { bytes, objects, manifests, imports, lines, shared_bytes, signatures })
    }

    /// The bytes of the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All BPF objects of the file, for any architecture, in file order.
    pub fn objects(&self) -> &[BpfRecord] {
        &self.objects
    }

    /// Selects the BPF objects for this machine: those of its own architecture, else those for any. Several
    /// objects are variants of one for kernels with different features, the first for the newest.
    fn objects_for_host(&self) -> Result<Vec<usize>, PluginError> {
        let of = |arch: Option<Arch>| -> Vec<(usize, &BpfRecord)> {
            self.objects.iter().enumerate().filter(|(_, object)| Some(object.arch) == arch).collect()
        };
        let own = of(Arch::HOST);
        let candidates = if own.is_empty() { of(Some(Arch::Any)) } else { own };
        if candidates.windows(2).any(|pair| pair[0].1.name != pair[1].1.name) {
            return Err(PluginError::SeveralObjects {
                names: candidates.iter().map(|(_, object)| object.name.clone()).collect(),
            });
        }
        Ok(candidates.into_iter().map(|(index, _)| index).collect())
    }

    /// Reads all BPF objects strictly.
    ///
    /// # Errors
    /// [`PluginError::SeveralObjects`] if it is ambiguous which is for this machine; [`PluginError::Object`].
    pub fn object_set(&self) -> Result<ObjectSet, PluginError> {
        Ok(ObjectSet::read(&self.objects, self.objects_for_host()?)?)
    }

    /// The manifests that describe the plugin; usually one, none if our compiler did not build the plugin.
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// The names of the component's imports, for example `kernelscript:host/perf@0.2.0`, in file order.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// The functions of the contract that the component imports, as `perf.[static]event.named`, by the types in its file;
    /// none if those do not tell.
    pub(crate) fn functions(&self) -> Option<BTreeSet<String>> {
        imported_functions::of(&self.bytes).ok().flatten()
    }

    /// The tests in the plugin, in source order.
    pub fn tests(&self) -> impl Iterator<Item = &manifest::Test> {
        self.manifests.iter().flat_map(|manifest| &manifest.tests)
    }

    /// Line tables of the core modules, as far as the compiler wrote them.
    pub fn lines(&self) -> &[Lines] {
        &self.lines
    }

    /// Bytes of the memory that the host may map pages of BPF maps into; none if the plugin has no such
    /// memory.
    pub fn shared_bytes(&self) -> Option<usize> {
        self.shared_bytes
    }

    /// SHA-256 of the file without its signatures: the signed digest.
    pub fn digest(&self) -> [u8; 32] {
        signature::digest(&self.bytes)
    }

    /// The signatures in the file, not verified yet.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// The signers whose signature is valid for these bytes.
    pub fn signers(&self) -> Vec<Signer> {
        if self.signatures.is_empty() {
            return Vec::new();
        }
        let digest = self.digest();
        self.signatures.iter().filter_map(|signature| signature.check(&digest).ok()).collect()
    }

    /// The project's name; none if no manifest has one.
    pub fn project(&self) -> Option<&str> {
        self.manifests.first().map(|manifest| manifest.project.as_str())
    }
}

/// Reads the bytes of a plugin file without parsing them.
///
/// # Errors
/// [`PluginError::Io`]; [`PluginError::TooLong`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, PluginError> {
    let mut bytes = Vec::new();
    // One byte above the limit distinguishes a file that is too long from one that just fits.
    File::open(path)?.take(MAX_PLUGIN_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PLUGIN_BYTES { Err(PluginError::TooLong) } else { Ok(bytes) }
}

/// The sections collected in one traversal of the file.
#[derive(Default)]
struct Sections {
    objects: Vec<BpfRecord>,
    manifests: Vec<Manifest>,
    imports: Vec<String>,
    lines: Vec<Lines>,
    signatures: Vec<Signature>,
    /// Whether a memory is declared to be shared.
    shares: bool,
    records: usize,
}

impl Sections {
    /// Traverses the component and everything nested in it.
    fn collect(&mut self, bytes: &[u8]) -> Result<(), PluginError> {
        if !bytes.starts_with(b"\0asm") {
            return Err(PluginError::NotWasm);
        }
        // Only imports of the outermost component are the plugin's; nested components import from their
        // siblings.
        let mut depth = 0_usize;
        let mut instances = Instances::default();
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(malformed)?;
            instances.read(&payload)?;
            match payload {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(PluginError::CoreModule);
                }
                Payload::Version { .. } if depth == MAX_DEPTH => {
                    return Err(PluginError::Malformed(format!(
                        "more than {MAX_DEPTH} components lie in each other"
                    )));
                }
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 1 => {
                    for import in section {
                        self.imports.push(import.map_err(malformed)?.name.name.to_owned());
                    }
                }
                // A signature inside a module would cover less than it seems to.
                Payload::CustomSection(custom) if custom.name() == section::SIGNATURE && depth == 1 => {
                    for record in self.records(section::SIGNATURE, custom.data())? {
                        let signature = serde_json::from_slice(record);
                        self.signatures
                            .push(signature.map_err(|error| PluginError::Signature(error.to_string()))?);
                    }
                }
                Payload::CustomSection(custom) => self.section(custom.name(), custom.data())?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the records of one custom section, if it is one of ours.
    fn section(&mut self, name: &str, data: &[u8]) -> Result<(), PluginError> {
        match name {
            section::BPF => {
                for record in self.records(section::BPF, data)? {
                    let object = BpfRecord::from_bytes(record)
                        .map_err(|source| PluginError::Section { section: section::BPF, source })?;
                    self.objects.push(object);
                }
            }
            section::LINES => {
                for record in self.records(section::LINES, data)? {
                    let lines = Lines::from_bytes(record)
                        .map_err(|source| PluginError::Section { section: section::LINES, source })?;
                    self.lines.push(lines);
                }
            }
            section::SHARED_MEMORY => self.shares = true,
            section::MANIFEST => {
                for record in self.records(section::MANIFEST, data)? {
                    self.manifests.push(read_manifest(record)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn records<'a>(&mut self, section: &'static str, data: &'a [u8]) -> Result<Vec<&'a [u8]>, PluginError> {
        let records = section::records(data).map_err(|source| PluginError::Section { section, source })?;
        self.records = self.records.saturating_add(records.len());
        if self.records > MAX_RECORDS {
            return Err(PluginError::TooManyRecords);
        }
        Ok(records)
    }
}

/// Reads one manifest. The format is checked first: a later format may have other members.
fn read_manifest(json: &[u8]) -> Result<Manifest, PluginError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let unreadable = |error: serde_json::Error| PluginError::Manifest(error.to_string());
    let Format { format } = serde_json::from_slice(json).map_err(unreadable)?;
    if format > manifest::FORMAT {
        return Err(PluginError::ManifestFormat { found: format });
    }
    serde_json::from_slice(json).map_err(unreadable)
}

pub(super) fn malformed(error: wasmparser::BinaryReaderError) -> PluginError {
    PluginError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty component.
    const EMPTY: [u8; 8] = [0, b'a', b's', b'm', 0x0d, 0, 1, 0];

    /// Appends a custom section to a component or module.
    fn with_section(mut file: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
        let mut body = vec![u8::try_from(name.len()).expect("short name")];
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(data);
        file.push(0);
        let mut len = body.len();
        while len >= 0x80 {
            file.push((len as u8 & 0x7f) | 0x80);
            len >>= 7;
        }
        file.push(len as u8);
        file.extend_from_slice(&body);
        file
    }

    fn bpf_section(records: &[(&str, Arch)]) -> Vec<u8> {
        let mut section = Vec::new();
        for (name, arch) in records {
            let record = BpfRecord { name: (*name).into(), arch: *arch, elf: vec![1, 2, 3] };
            section::push_record(&mut section, &record.to_bytes());
        }
        section
    }

    fn manifest_section(json: &str) -> Vec<u8> {
        let mut section = Vec::new();
        section::push_record(&mut section, json.as_bytes());
        section
    }

    #[test]
    fn files_that_are_not_components_are_distinguished() {
        assert!(matches!(Plugin::from_bytes(*b"hello"), Err(PluginError::NotWasm)));
        assert!(matches!(Plugin::from_bytes(*b"\0asm\x01\0\0\0"), Err(PluginError::CoreModule)));
        assert!(matches!(Plugin::from_bytes(*b"\0asm\x0d\0\x01\0\xff\xff"), Err(PluginError::Malformed(_))));
        assert!(matches!(Plugin::from_bytes(Vec::new()), Err(PluginError::NotWasm)));
    }

    #[test]
    fn the_own_architecture_is_preferred_to_any() {
        let own = Arch::HOST.expect("tests run on a supported machine");
        let file = with_section(EMPTY.to_vec(), section::BPF, &bpf_section(&[("p", Arch::Any), ("p", own)]));
        let plugin = Plugin::from_bytes(file).expect("well-formed");
        assert_eq!(plugin.objects_for_host().expect("clear"), [1]);

        let any = with_section(EMPTY.to_vec(), section::BPF, &bpf_section(&[("p", Arch::Any)]));
        let plugin = Plugin::from_bytes(any).expect("well-formed");
        assert_eq!(plugin.objects_for_host().expect("clear"), [0]);
    }

    #[test]
    fn objects_of_one_name_are_for_kernels_with_other_features() {
        let section = bpf_section(&[("p", Arch::Any), ("p", Arch::Any)]);
        let file = with_section(EMPTY.to_vec(), section::BPF, &section);
        let plugin = Plugin::from_bytes(file).expect("well-formed");
        assert_eq!(plugin.objects_for_host().expect("clear"), [0, 1]);
    }

    #[test]
    fn two_objects_for_one_machine_are_refused() {
        let sections = bpf_section(&[("one", Arch::Any), ("two", Arch::Any)]);
        let plugin =
            Plugin::from_bytes(with_section(EMPTY.to_vec(), section::BPF, &sections)).expect("well-formed");
        let error = plugin.objects_for_host().expect_err("two objects");
        assert!(error.to_string().contains("one, two"), "{error}");
    }

    #[test]
    fn sections_inside_a_core_module_are_found() {
        let module =
            with_section(b"\0asm\x01\0\0\0".to_vec(), section::BPF, &bpf_section(&[("inner", Arch::Any)]));
        let mut file = EMPTY.to_vec();
        file.push(1);
        file.push(u8::try_from(module.len()).expect("short module"));
        file.extend_from_slice(&module);
        let plugin = Plugin::from_bytes(file).expect("well-formed");
        assert_eq!(plugin.objects().len(), 1);
    }

    #[test]
    fn a_truncated_record_is_an_error() {
        let mut section = bpf_section(&[("p", Arch::Any)]);
        section.pop();
        let error =
            Plugin::from_bytes(with_section(EMPTY.to_vec(), section::BPF, &section)).expect_err("cut short");
        assert!(matches!(error, PluginError::Section { section: section::BPF, .. }), "{error}");
    }

    #[test]
    fn a_flood_of_empty_records_is_refused() {
        let file = with_section(EMPTY.to_vec(), section::MANIFEST, &vec![0; 4 * (MAX_RECORDS + 1)]);
        assert!(matches!(Plugin::from_bytes(file), Err(PluginError::TooManyRecords)));
    }

    #[test]
    fn a_manifest_of_a_later_format_is_refused_whatever_it_holds() {
        let file = with_section(EMPTY.to_vec(), section::MANIFEST, &manifest_section(r#"{"format":2}"#));
        assert!(matches!(Plugin::from_bytes(file), Err(PluginError::ManifestFormat { found: 2 })));
        let file = with_section(EMPTY.to_vec(), section::MANIFEST, &manifest_section("not json"));
        assert!(matches!(Plugin::from_bytes(file), Err(PluginError::Manifest(_))));
    }

    /// Names that would act on a terminal, forge a line, or fill it.
    const HOSTILE: &str = "a\u{1b}[2J\u{202e}\u{2028}\nks-host: forged\n  do: forged";

    fn assert_is_one_visible_line(error: &PluginError) {
        let text = error.to_string();
        assert_eq!(text, visible(&text, usize::MAX), "one line without control characters");
        assert!(text.len() < 2 * MOST_BYTES && text.contains("\\u{1b}") && text.contains("\\n"), "{text}");
    }

    #[test]
    fn words_of_a_file_are_visible_and_cut_in_the_reason_why_it_is_refused() {
        for name in [HOSTILE.to_owned(), HOSTILE.repeat(1 << 16)] {
            let part = serde_json::json!({ "name": "a", "offset": 0, "bytes": 4, "holds": name });
            let map = serde_json::json!({
                "name": "m", "kind": "hash", "key": "u32", "value": "u64", "max_entries": 1, "key_parts": [part],
            });
            let manifest = serde_json::json!({
                "format": 1, "compiler": "c", "project": "p", "source": { "file": "f", "sha256": "" },
                "maps": [map],
            });
            let signature = serde_json::json!({ name: 1 });
            for (section, json) in [(section::MANIFEST, manifest), (section::SIGNATURE, signature)] {
                let data = manifest_section(&json.to_string());
                let file = with_section(EMPTY.to_vec(), section, &data);
                assert_is_one_visible_line(&Plugin::from_bytes(file).expect_err("no such variant or member"));
            }
        }
        let objects = bpf_section(&[(HOSTILE, Arch::Any), ("two", Arch::Any)]);
        let plugin = Plugin::from_bytes(with_section(EMPTY.to_vec(), section::BPF, &objects));
        assert_is_one_visible_line(&plugin.expect("well-formed").objects_for_host().expect_err("two"));
        let mut unknown = BpfRecord { name: HOSTILE.into(), arch: Arch::Any, elf: vec![] }.to_bytes();
        unknown[0] = 77;
        let mut section = Vec::new();
        section::push_record(&mut section, &unknown);
        let file = with_section(EMPTY.to_vec(), section::BPF, &section);
        assert_is_one_visible_line(&Plugin::from_bytes(file).expect_err("no such architecture"));
    }

    #[test]
    fn no_prefix_of_a_plugin_panics() {
        let file = with_section(EMPTY.to_vec(), section::BPF, &bpf_section(&[("p", Arch::Any)]));
        let file = with_section(file, section::MANIFEST, &manifest_section(r#"{"format":1}"#));
        for end in 0..file.len() {
            let _ = Plugin::from_bytes(&file[..end]);
        }
    }
}

//! Fuzz bodies that accept any bytes: readers of plugin files, policies, BPF objects, types, records and
//! signatures, and the calls of a guest. Each must return an answer. A panic is a finding, and so is an
//! internal error of the host.
//!
//! [`mutated`] changes inputs randomly, without coverage feedback. The targets of `fuzz/` have the same
//! bodies and use coverage.

mod calls;

use std::sync::LazyLock;

use ks_compiler::object;
use ks_compiler::object::btf::{Btf, Type, TypeId};
use ks_host::bpf::Object;
use ks_host::plugin::{Plugin, PublicKey};
use ks_host::policy::Policy;
use ks_host::record::Record;
use ks_host::worker::HostileBroker;
use ks_wit::section;

use crate::guest::core_module;
use crate::plugins::admitted;
use crate::{compile, component};

/// A fuzz target: its name, its body, and its seed inputs.
pub struct Target {
    /// Unique name, also of the target's folder of kept inputs.
    pub name: &'static str,
    /// Processes one input; panics on a finding.
    pub body: fn(&[u8]),
    /// Returns valid inputs from which mutation starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All fuzz targets, in no particular order.
pub const TARGETS: [Target; 10] = [
    Target { name: "sections", body: sections, seeds: plugins },
    Target { name: "manifest", body: manifest, seeds: manifests },
    Target { name: "policy", body: policy, seeds: policies },
    Target { name: "object", body: object, seeds: elves },
    Target { name: "model", body: model, seeds: elves },
    Target { name: "btf", body: btf, seeds: types },
    Target { name: "record", body: record, seeds: records },
    Target { name: "signature", body: signature, seeds: signatures },
    Target { name: "message", body: message, seeds: messages },
    Target { name: "calls", body: calls::run, seeds: calls::sequences },
];

/// A random number generator (SplitMix64), deterministic for a seed.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the next number, below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// Boundary values for words of 1, 2, 4 and 8 bytes.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Returns one of these inputs with random changes: bits, bytes, boundary words, and pieces that are cut,
/// doubled, or taken from another input.
pub fn mutated(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[rng.below(corpus.len())].clone();
    for _ in 0..=rng.below(6) {
        let at = rng.below(bytes.len() + 1);
        let len = rng.below(1 + (bytes.len() - at).min(64));
        match rng.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = rng.below(256) as u8,
            2 => {
                let value = EDGES[rng.below(EDGES.len())].to_le_bytes();
                let width = (1 << rng.below(4)).min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let piece = bytes[at..at + len].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let other = &corpus[rng.below(corpus.len())];
                let from = rng.below(other.len() + 1);
                let to = other.len().min(from + 64);
                bytes.splice(at..at + len, other[from..to].iter().copied());
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Answers the messages of a worker.
pub fn message(bytes: &[u8]) {
    static BROKER: LazyLock<HostileBroker> = LazyLock::new(|| HostileBroker::new().expect("an engine"));
    BROKER.answer(bytes);
}

/// Returns messages with a call of each function: without arguments, with zeros, and with the handles that the calls
/// before it have created.
fn messages() -> Vec<Vec<u8>> {
    // The kind of the message, the length of the call, and the function's number.
    let call = |number: u32, arguments: &[u8]| {
        let len = u32::try_from(4 + arguments.len()).expect("short").to_le_bytes();
        let message = [&[2], &len[..], &number.to_le_bytes(), arguments].concat();
        [&u16::try_from(message.len()).expect("short").to_le_bytes()[..], &message].concat()
    };
    let arguments: [&[u8]; 5] = [&[], &[0; 4], &[0; 8], &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[0; 40]];
    let every = |arguments: &[u8]| (0..260).flat_map(|number| call(number, arguments)).collect::<Vec<u8>>();
    let mut all: Vec<Vec<u8>> = arguments.iter().map(|arguments| every(arguments)).collect();
    all.extend(
        (0..260).map(|number| arguments.iter().flat_map(|arguments| call(number, arguments)).collect()),
    );
    all
}

/// Reads a plugin file and everything that the host reads of it before a run.
pub fn sections(bytes: &[u8]) {
    let Ok(plugin) = Plugin::from_bytes(bytes) else { return };
    let _ = (plugin.object_set().is_ok(), plugin.tests().count(), plugin.shared_bytes());
    let _ = ks_host::request(&plugin);
}

fn plugins() -> Vec<Vec<u8>> {
    let script = "var n : u64 = 0\nconfig limits { burst: u32 = 1, ports: u16[4] = [1] }\n@perf_event fn \
                  p(ctx: *bpf_perf_event_data) -> i32 { n += 1\n \
                  print(\"%u\", n)\n return 0 }\nfn main() -> i32 {\n load(p)\n print(\"%u %u\", n, \
                  limits.burst)\n return 0\n}\n";
    let small = core_module(2, "(func (export \"run\") (result i32) (i32.const 0))");
    let plain = component("small", &small, &[]).expect("it fits the world");
    let bare = component(
        "bare",
        "(module (memory (export \"memory\") 1) (func (export \"run\") (result i32) (i32.const 0)))",
        &[],
    );
    vec![plain, bare.expect("it fits the world"), compile("whole", script).plugin]
}

/// Reads a manifest in an otherwise empty component, and applies settings to its config blocks.
pub fn manifest(bytes: &[u8]) {
    let file = with_section(&EMPTY, section::MANIFEST, bytes);
    let Ok(plugin) = Plugin::from_bytes(file) else { return };
    let settings =
        ["b.f=1", "b.f=1,2", "b.f[3]=1", "limits.burst=7", "limits.ports=1,2", "limits.ports[1]=80"];
    for value in settings {
        let _ = ks_host::world::Settings::read(&[value.to_owned()], plugin.manifests());
    }
    let _ = ks_host::world::StackMap::all(plugin.manifests());
}

/// The bytes of an empty component.
const EMPTY: [u8; 8] = [0, b'a', b's', b'm', 0x0d, 0, 1, 0];

fn with_section(file: &[u8], name: &str, record: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    section::push_record(&mut records, record);
    let body = [&[name.len() as u8], name.as_bytes(), &records].concat();
    let mut file = [file, &[0]].concat();
    let mut len = body.len();
    while len >= 0x80 {
        file.push(len as u8 | 0x80);
        len >>= 7;
    }
    file.push(len as u8);
    [file, body].concat()
}

fn manifests() -> Vec<Vec<u8>> {
    let config = r#"{"format":1,"compiler":"x","project":"x","source":{"file":"x.ks","sha256":""},"programs":[{"name":"p",
        "kind":"xdp"}],"maps":[{"name":"m","kind":"hash","key":"u64","value":"u64","max_entries":1,"key_parts":[{"name":"s",
        "offset":0,"bytes":8,"holds":"kernel_stack","map":"t"}]}],"configs":[{"name":"b","fields":[{"name":"f","type":"u16[4]",
        "offset":0}]}]}"#;
    let mut all = vec![config.as_bytes().to_vec(), br#"{"format":1}"#.to_vec()];
    for plugin in plugins() {
        let plugin = Plugin::from_bytes(plugin).expect("a plugin");
        all.extend(plugin.manifests().iter().map(|one| serde_json::to_vec(one).expect("JSON")));
    }
    all
}

/// Parses a policy; the text printed for an accepted policy must parse to the same policy.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(policy) = Policy::from_toml(text) {
        let written = policy.to_toml();
        assert_eq!(Policy::from_toml(&written).as_ref().ok(), Some(&policy), "{written}");
    }
    let mut policy = Policy::observing();
    let _ = (policy.allow_rule(text), policy.limit_rule(text));
}

fn policies() -> Vec<Vec<u8>> {
    let texts = [
        Policy::everything().to_toml(),
        Policy::observing().to_toml(),
        "[allow]\nxdp = [\"eth0\", \"veth*\"]\npin = ['a/*']\n[limits]\nmaps = 16\nmap_bytes = 1_000\n"
            .into(),
        "xdp=eth0".into(),
        "maps=16".into(),
        "all".into(),
    ];
    texts.map(String::into_bytes).to_vec()
}

/// Reads a BPF object with the strict reader, then with libbpf, which must accept everything that the writer
/// writes. Nothing reaches the kernel.
pub fn object(bytes: &[u8]) {
    if let Ok(admitted) = admitted("fuzz", bytes) {
        let object = Object::open(admitted).expect("it is sound");
        object.parse().expect("libbpf takes what was read and written again");
    }
}

/// Reads a BPF object, writes it, reads it again unchanged, and writes the same bytes again.
pub fn model(bytes: &[u8]) {
    object::testing::check(bytes).expect("what is read is written and read again unchanged");
}

/// Reads BTF or an image of it: every type, its components, and lookups in it.
pub fn btf(bytes: &[u8]) {
    let Ok(btf) = Btf::open_image(bytes.to_vec()).or_else(|_| Btf::parse(bytes)) else { return };
    let _ = (btf.find_struct("Seen"), btf.find_enum("xdp_action"), btf.find_function("p").is_ok());
    let _ = btf.find_enumerator("XDP_PASS");
    for id in (0..=btf.len()).map(TypeId) {
        let _ = (btf.size_of(id).is_ok(), btf.resolve(id).is_ok(), btf.field(id, "number").is_ok());
        match btf.get(id) {
            Ok(Type::Struct { members, .. } | Type::Union { members, .. }) => drop(members.count()),
            Ok(Type::Enum { values, .. }) => drop(values.count()),
            Ok(Type::FuncProto { params, .. }) => drop(params.count()),
            Ok(Type::Datasec { entries, .. }) => drop(entries.count()),
            _ => {}
        }
    }
}

fn types() -> Vec<Vec<u8>> {
    let section = |elf: Vec<u8>| {
        use ::object::{Object as _, ObjectSection as _};
        let file = ::object::File::parse(&*elf).expect("an ELF file");
        file.section_by_name(".BTF").expect("types").data().expect("in the file").to_vec()
    };
    let read: Vec<_> = elves().into_iter().map(section).collect();
    let image = |types: &Vec<u8>| Btf::parse(types.as_slice()).and_then(|types| types.to_image());
    let images: Vec<_> = read.iter().map(image).collect::<Result<_, _>>().expect("they are sound and small");
    [read, images].concat()
}

/// Reads a record of a run.
pub fn record(bytes: &[u8]) {
    let _ = Record::read(bytes).is_ok();
}

fn records() -> Vec<Vec<u8>> {
    let header = format!("{{\"ks-record\":1,\"contract\":\"{}\",\"plugin\":\"x.wasm\"}}\n", ks_wit::CONTRACT);
    let calls = "{\"call\":\"console.print\",\"args\":[\"a\"]}\n\
                 {\"host\":\"stderr\",\"text\":{\"hex\":\"00ff\"}}\n\
                 {\"call\":\"clock.now\",\"args\":[],\"answer\":7}\n";
    let ends = [
        "{\"end\":\"returned\",\"code\":-1}\n",
        "{\"call\":\"clock.now\",\"args\":[],\"trap\":\"x\"}\n{\"end\":\"trapped\",\"reason\":\"x\"}\n",
        "{\"end\":\"timed-out\"}\n",
    ];
    ends.map(|end| format!("{header}{calls}{end}").into_bytes()).to_vec()
}

/// Reads a signature in an otherwise empty component, and the text of a key.
pub fn signature(bytes: &[u8]) {
    let _ = std::str::from_utf8(bytes).map(|text| PublicKey::read(text).is_ok());
    let Ok(plugin) = Plugin::from_bytes(with_section(&EMPTY, section::SIGNATURE, bytes)) else { return };
    assert!(plugin.signers().len() <= plugin.signatures().len());
}

fn signatures() -> Vec<Vec<u8>> {
    let plugin = Plugin::from_bytes(EMPTY).expect("a plugin");
    // A key for tests only, in the format of RFC 8410.
    let key = "-----BEGIN PRIVATE \
               KEY-----\nMC4CAQAwBQYDK2VwBCIEIFYwJBkM1y+aFqsrAdqNgDygp2TU3CQi/LJUKNZHiPyJ\n\
               -----END PRIVATE KEY-----\n";
    let signed = ks_host::plugin::sign(&plugin, "somebody", key).expect("it can be signed");
    let signed = Plugin::from_bytes(signed).expect("a plugin");
    assert_eq!(signed.signers().len(), 1);
    let record = signed.signatures().iter().map(|one| serde_json::to_vec(one).expect("JSON"));
    let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAXfXcjGpUHRH7k7+PCpelAbES2GC5Fnz9z4G2SZS/Qcw=\n\
                  -----END PUBLIC KEY-----\n";
    record.chain([public.as_bytes().to_vec(), "5d".repeat(32).into_bytes()]).collect()
}

fn elves() -> Vec<Vec<u8>> {
    let scripts = [
        "var n : u64 = 0\nvar m : hash<u32, u64>(8)\nstruct Seen { number: u64 }\n\
         var r : ringbuf<Seen>(4096)\n@perf_event fn p(ctx: *bpf_perf_event_data) -> i32 { n += 1\n \
         m[1] = n\n print(\"%u\", n)\n return 0 }\nfn main() -> i32 {\n load(p)\n return 0\n}\n",
        "pin var m : array<u32, u64>(8)\n@xdp fn p(ctx: *xdp_md) -> xdp_action { m[1] = 2\n \
         return XDP_PASS }\n\
         fn main() -> i32 {\n load(p)\n return 0\n}\n",
    ];
    let foreign: [&[u8]; 3] = [
        include_bytes!("../../compiler/src/object/tests/objects/aya.o"),
        include_bytes!("../../compiler/src/object/tests/objects/features.o"),
        include_bytes!("../../compiler/src/object/tests/objects/struct_ops.o"),
    ];
    let ours = scripts.iter().map(|script| compile("fuzz", script).records().swap_remove(0).elf);
    ours.chain(foreign.map(<[u8]>::to_vec)).collect()
}

//! Feature detection in the running kernel: loads programs of three instructions, creates maps, reads BTF and
//! symbol tables. Only the types are cached between queries.
//!
//! In: an object's requirements ([`super::Needs`]). Out: an [`Answer`] for each. Not here: which kernel
//! version added a feature, and what to do about it ([`crate::explain::check`]).

mod sys;

use std::fs;
use std::path::Path;

use ks_wit::target::UprobeTarget;
use libbpf_rs::btf::{Btf, BtfType, types};
use nix::errno::Errno;

use super::kernel_functions::SYMBOLS;
use super::print;
use crate::tracefs::{self, TracefsError};
use sys::Like;
pub(super) use sys::run_once;

/// Result of a feature query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The kernel has the feature.
    Yes,
    /// The kernel lacks the feature; with the evidence.
    No(String),
    /// The query was inconclusive; with the reason.
    Unknown(String),
}

/// The properties of a program that decide what it may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    like: Like,
    /// The section name after its slash.
    target: String,
}

/// A method of a kernel struct (struct_ops).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method<'a> {
    /// The kernel struct, for example `tcp_congestion_ops`.
    pub of: &'a str,
    /// Name of the struct's member.
    pub member: &'a str,
}

/// Feature queries against one kernel.
#[derive(Debug)]
pub struct Features {
    types: Option<Btf<'static>>,
}

/// BPF_F_SLEEPABLE. Source: include/uapi/linux/bpf.h, v6.12.
const SLEEPABLE: u32 = 1 << 4;

/// `mov r0, 0` and `exit`.
const MOV: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];
const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// Encodes `call`: a helper by its number, or a kernel function (source register 2) by its BTF id.
fn call(source: u8, number: u32) -> [u8; 8] {
    let [a, b, c, d] = number.to_le_bytes();
    [0x85, source << 4, 0, 0, a, b, c, d]
}

impl Features {
    /// Queries against the running kernel. Reads its BTF, if it publishes any.
    pub fn of_running() -> Features {
        Features { types: print::collect(|| Btf::from_vmlinux().ok()).0 }
    }

    /// Returns the kernel's name of a helper. None if it has no helper of this number or publishes no BTF.
    pub fn helper_name(&self, number: u32) -> Option<String> {
        let ids: types::Enum<'_> = self.named("bpf_func_id")?;
        let found = ids.iter().find(|one| one.value == i64::from(number))?;
        // The enumerator after the last helper, `__BPF_FUNC_MAX_ID`, fails the prefix check.
        let name = found.name?.to_string_lossy().strip_prefix("BPF_FUNC_")?.to_owned();
        Some(format!("bpf_{name}"))
    }

    /// Returns the properties that the kernel would check for a program in this section.
    ///
    /// # Errors
    /// [`Answer::No`] if the kernel lacks the target; [`Answer::Unknown`] if that cannot be determined.
    pub fn shape(&self, section: &str, method: Option<Method<'_>>) -> Result<Shape, Answer> {
        let (kind, attach_type) = sys::program_type(section)
            .ok_or_else(|| Answer::Unknown(format!("libbpf knows no programs of `{section}`")))?;
        let target = section.split_once('/').map_or("", |(_, target)| target).to_owned();
        let mut like = Like { kind, attach_type, target: 0, flags: 0 };
        let sleepable = section.split('/').next().is_some_and(|kind| kind.ends_with(".s"));
        if sleepable || kind == libbpf_sys::BPF_PROG_TYPE_SYSCALL {
            like.flags = SLEEPABLE;
        }
        match (kind, attach_type) {
            (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_RAW_TP) => {
                like.target =
                    self.target::<types::Typedef<'_>>(&format!("btf_trace_{target}"), "tracepoint")?;
            }
            (libbpf_sys::BPF_PROG_TYPE_TRACING, _) => {
                like.target = self.target::<types::Func<'_>>(&target, "function")?;
            }
            (libbpf_sys::BPF_PROG_TYPE_LSM, _) => {
                like.target = self.target::<types::Func<'_>>(&format!("bpf_lsm_{target}"), "hook")?;
            }
            (libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS, _) => {
                let method =
                    method.ok_or_else(|| Answer::Unknown("no manifest says of which struct it is".into()))?;
                (like.target, like.attach_type) = self.method(method)?;
            }
            _ => {}
        }
        Ok(Shape { like, target })
    }

    fn method(&self, method: Method<'_>) -> Result<(u32, u32), Answer> {
        let Method { of, member } = method;
        self.target::<types::Struct<'_>>(&format!("bpf_struct_ops_{of}"), "struct to register")?;
        let ops: types::Struct<'_> =
            self.named(of).ok_or_else(|| Answer::No(format!("no struct `{of}` in its types")))?;
        let index = (0..)
            .map_while(|index| types::Composite::from(ops).get(index))
            .position(|one| one.name.is_some_and(|name| name == member));
        let index = index.and_then(|index| u32::try_from(index).ok());
        let index = index.ok_or_else(|| Answer::No(format!("`{of}` has no member `{member}`")))?;
        Ok((ops.type_id().into(), index))
    }

    /// Returns the BTF id of a type that must exist.
    fn target<'s, K>(&'s self, name: &str, what: &str) -> Result<u32, Answer>
    where
        K: TryFrom<BtfType<'s>> + std::ops::Deref<Target = BtfType<'s>>,
    {
        if self.types.is_none() {
            return Err(Answer::Unknown(
                "the kernel does not publish its types (CONFIG_DEBUG_INFO_BTF)".into(),
            ));
        }
        let found: Option<K> = self.named(name);
        found.map(|ty| ty.type_id().into()).ok_or_else(|| {
            let name = ["btf_trace_", "bpf_lsm_", "bpf_struct_ops_"]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix))
                .unwrap_or(name);
            Answer::No(format!("no {what} `{name}` in the kernel's types"))
        })
    }

    /// Finds a type by name and kind.
    fn named<'s, K>(&'s self, name: &str) -> Option<K>
    where
        K: TryFrom<BtfType<'s>> + std::ops::Deref<Target = BtfType<'s>>,
    {
        let types = self.types.as_ref().filter(|_| !name.contains('\0'))?;
        // The first type of this name may be of another kind.
        let same = |ty: &K| ty.name().is_some_and(|own| own == name);
        types.type_by_name(name).or_else(|| types.type_by_kind::<K>().find(same))
    }

    /// Tests whether programs of this shape can be loaded.
    pub fn loads(&self, shape: &Shape) -> Answer {
        match sys::try_program(shape.like, &[MOV, EXIT]) {
            (Ok(()), _) => Answer::Yes,
            (Err(errno @ (Errno::EPERM | Errno::EACCES)), log) => Answer::Unknown(refusal(errno, &log)),
            (Err(errno), log) => Answer::No(refusal(errno, &log)),
        }
    }

    /// Tests whether programs of this shape may call a helper.
    pub fn helper(&self, shape: &Shape, number: u32) -> Answer {
        let (answer, log) = sys::try_program(shape.like, &[call(0, number), MOV, EXIT]);
        // The messages before 6.11, since 6.11, and for an invalid number.
        let refused = ["unknown func", "program of this type cannot use helper", "invalid func"];
        match answer {
            Ok(()) => Answer::Yes,
            Err(_) if refused.iter().any(|text| log.contains(text)) => Answer::No(reason(&log)),
            // The verifier accepted the call and rejected the uninitialised arguments.
            Err(_) if !log.trim().is_empty() => Answer::Yes,
            Err(errno) => Answer::Unknown(refusal(errno, &log)),
        }
    }

    /// Tests whether programs of this shape may call a kernel function.
    pub fn kfunc(&self, shape: &Shape, name: &str) -> Answer {
        let Ok(target) = self.target::<types::Func<'_>>(name, "function") else {
            return match module_with(name) {
                Ok(Some(module)) => Answer::Unknown(format!(
                    "the module `{module}` has a function of this name: the load will show whether programs \
                     may call it"
                )),
                Ok(None) => {
                    Answer::No(format!("neither the kernel nor a module that is loaded has `{name}`"))
                }
                Err(why) => Answer::Unknown(why),
            };
        };
        let (answer, log) = sys::try_program(shape.like, &[call(2, target), MOV, EXIT]);
        let refused = ["is not allowed", "is not a kernel function", "is not supported"];
        match answer {
            Ok(()) => Answer::Yes,
            Err(_) if refused.iter().any(|text| log.contains(text)) => Answer::No(reason(&log)),
            Err(_) if !log.trim().is_empty() => Answer::Yes,
            Err(errno) => Answer::Unknown(refusal(errno, &log)),
        }
    }

    /// Tests whether the kernel lists a variable among its symbols, with its address.
    pub fn variable(&self, name: &str) -> Answer {
        let symbols = match symbols() {
            Ok(symbols) => symbols,
            Err(error) => return Answer::Unknown(error),
        };
        let mut lines = symbols.lines().map(|line| line.split_ascii_whitespace());
        match lines.find_map(|mut fields| {
            let address = fields.next()?;
            (fields.nth(1) == Some(name)).then_some(address)
        }) {
            Some(address) if address.bytes().all(|digit| digit == b'0') => Answer::Unknown(
                "the kernel hides its address (sysctl kernel.kptr_restrict, CAP_SYSLOG)".into(),
            ),
            Some(_) => Answer::Yes,
            None => Answer::No("the kernel lists no variable of this name in /proc/kallsyms".into()),
        }
    }

    /// Tests whether maps of a kind (`enum bpf_map_type`) can be created.
    pub fn map(&self, kind: u32) -> Answer {
        match print::collect(|| sys::has_map_kind(kind)).0 {
            Ok(true) => Answer::Yes,
            Ok(false) => Answer::No("the kernel makes none of this kind".into()),
            Err(errno) => Answer::Unknown(format!("bpf(BPF_MAP_CREATE): {errno:?}")),
        }
    }

    /// Tests whether a program can be attached at its section's target in a manner that ends with this
    /// process.
    pub fn attach_point(&self, shape: &Shape) -> Answer {
        let (kind, target) = (shape.like.kind, shape.target.as_str());
        match kind {
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT => self.link("BPF_PERF_EVENT"),
            libbpf_sys::BPF_PROG_TYPE_TRACEPOINT => match tracepoint(target) {
                Answer::Yes => self.link("BPF_PERF_EVENT"),
                other => other,
            },
            libbpf_sys::BPF_PROG_TYPE_XDP => self.link("BPF_XDP"),
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS => match sys::asks_interface(shape.like.attach_type) {
                Ok(()) => Answer::Yes,
                // Without tcx links a clsact filter is used instead.
                Err(Errno::EINVAL) => Answer::Yes,
                Err(errno) => Answer::Unknown(format!("bpf(BPF_PROG_QUERY): {errno:?}")),
            },
            libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS => self.link("BPF_STRUCT_OPS"),
            libbpf_sys::BPF_PROG_TYPE_LSM => lsm_is_active(),
            libbpf_sys::BPF_PROG_TYPE_KPROBE => probe_point(shape.like, target),
            // Loading already resolved the target.
            _ => Answer::Yes,
        }
    }

    /// As [`Features::attach_point`], for another target than the section's.
    pub fn attach_point_at(&self, shape: &Shape, target: &str) -> Answer {
        self.attach_point(&Shape { like: shape.like, target: target.to_owned() })
    }

    /// Tests whether an attach type is in the kernel's enum.
    fn link(&self, name: &str) -> Answer {
        let Some(kinds) = self.named::<types::Enum<'_>>("bpf_attach_type") else {
            return Answer::Unknown("the kernel does not publish its types (CONFIG_DEBUG_INFO_BTF)".into());
        };
        if kinds.iter().any(|one| one.name.is_some_and(|own| own == name)) {
            return Answer::Yes;
        }
        Answer::No(format!("no `{name}` among the kernel's attach types"))
    }
}

fn tracepoint(target: &str) -> Answer {
    let Some((category, event)) = target.split_once('/') else {
        return Answer::Unknown("its target is chosen when it is attached".into());
    };
    match tracefs::tracepoint_id(category, event) {
        Ok(_) => Answer::Yes,
        Err(error @ TracefsError::NotFound { .. }) => Answer::No(error.to_string()),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

fn lsm_is_active() -> Answer {
    match fs::read_to_string("/sys/kernel/security/lsm") {
        Ok(active) if active.trim().split(',').any(|one| one == "bpf") => Answer::Yes,
        Ok(active) => {
            Answer::No(format!("`bpf` is not among the active security modules: {}", active.trim()))
        }
        Err(error) => Answer::Unknown(format!("/sys/kernel/security/lsm: {error}")),
    }
}

/// Tests a probe of a kernel function or of a file.
fn probe_point(like: Like, target: &str) -> Answer {
    let (pmu, in_file) =
        if target.contains(':') || target.starts_with('/') { ("uprobe", true) } else { ("kprobe", false) };
    if like.target == 0 && !Path::new("/sys/bus/event_source/devices").join(pmu).exists() {
        return Answer::No(format!(
            "the kernel has no {pmu}s: /sys/bus/event_source/devices/{pmu} is not there"
        ));
    }
    if in_file {
        let file = UprobeTarget::parse(target).map_or(target, |target| target.path);
        return match fs::metadata(file) {
            Ok(_) => Answer::Yes,
            Err(error) => Answer::No(format!("{file}: {error}")),
        };
    }
    let function = target.split('+').next().unwrap_or(target);
    match symbol(function) {
        Ok(Some(_)) => Answer::Yes,
        Ok(None) => Answer::No(format!("no function `{function}` in /proc/kallsyms")),
        Err(why) => Answer::Unknown(why),
    }
}

/// Returns whether the kernel lacks tcx links for tc programs (before Linux 6.6).
pub(super) fn lacks_tcx() -> bool {
    sys::asks_interface(libbpf_sys::BPF_TCX_INGRESS) == Err(Errno::EINVAL)
}

/// Returns whether a kernel module is loaded and has BTF. Without BTF, programs cannot call its functions.
pub(super) fn has_module(name: &str) -> bool {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name(name) && Path::new("/sys/kernel/btf").join(name).exists()
}

/// Returns the loaded module that has a function of this name.
fn module_with(name: &str) -> Result<Option<String>, String> {
    Ok(symbol(name)?.and_then(|symbol| symbol.module))
}

/// A symbol of the kernel or of a module.
struct Symbol {
    /// The module; none for the kernel itself.
    module: Option<String>,
}

fn symbols() -> Result<String, String> {
    fs::read_to_string(SYMBOLS).map_err(|error| format!("cannot read {SYMBOLS}: {error}"))
}

fn symbol(name: &str) -> Result<Option<Symbol>, String> {
    Ok(symbols()?.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_code = fields.next().is_some_and(|kind| kind.eq_ignore_ascii_case("t"));
        let module = |fields: &mut dyn Iterator<Item = &str>| {
            fields.next().map(|module| module.trim_matches(['[', ']']).to_owned())
        };
        (is_code && fields.next() == Some(name)).then(|| Symbol { module: module(&mut fields) })
    }))
}

/// Formats the errno and the verifier's reason.
fn refusal(errno: Errno, log: &str) -> String {
    match reason(log).as_str() {
        "" => format!("bpf(BPF_PROG_LOAD): {errno:?}"),
        said => format!("bpf(BPF_PROG_LOAD): {errno:?}: {said}"),
    }
}

/// Returns the line of a verifier log that states the reason.
fn reason(log: &str) -> String {
    let mut lines = log.lines().filter(|line| !line.starts_with("processed ") && !line.contains(": ("));
    lines.next_back().unwrap_or_default().trim().to_owned()
}

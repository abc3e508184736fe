//! What the running kernel has, found by asking it: programs of three instructions are loaded and unloaded, maps made and
//! closed, its types and tables of symbols read. Nothing is remembered between two questions but the types.
//!
//! In: what an object needs ([`super::Needs`]). Out: an [`Answer`] for each. Not here: since when a kernel has it, and what
//! to do ([`crate::explain::check`]).

mod sys;

use std::fs;
use std::path::Path;

use ks_wit::target::UprobeTarget;
use libbpf_rs::btf::{Btf, BtfType, types};
use nix::errno::Errno;

use super::print;
use crate::tracefs::{self, TracefsError};
use sys::Like;
pub(super) use sys::run_once;

/// What the kernel says to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has it.
    Yes,
    /// It has it not, and how that was seen.
    No(String),
    /// It could not be told, and why.
    Unknown(String),
}

/// A program as far as it decides what it may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    like: Like,
    /// What stands behind the slash of its section.
    target: String,
}

/// The method of a struct of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method<'a> {
    /// The struct, such as `tcp_congestion_ops`.
    pub of: &'a str,
    /// Its member.
    pub member: &'a str,
}

/// The kernel that answers.
#[derive(Debug)]
pub struct Features {
    types: Option<Btf<'static>>,
}

/// BPF_F_SLEEPABLE. Source: include/uapi/linux/bpf.h, v6.12.
const SLEEPABLE: u32 = 1 << 4;

/// `mov r0, 0` and `exit`.
const MOV: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];
const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// `call`: of a helper by its number, of a function of the kernel (source register 2) by that of its type.
fn call(source: u8, number: u32) -> [u8; 8] {
    let [a, b, c, d] = number.to_le_bytes();
    [0x85, source << 4, 0, 0, a, b, c, d]
}

impl Features {
    /// Of the running kernel.
    pub fn of_running() -> Features {
        Features { types: print::collect(|| Btf::from_vmlinux().ok()).0 }
    }

    /// The kernel's name of a helper; none if it has none of this number, or does not publish its types.
    pub fn helper_name(&self, number: u32) -> Option<String> {
        let ids: types::Enum<'_> = self.named("bpf_func_id")?;
        let found = ids.iter().find(|one| one.value == i64::from(number))?;
        // The value behind the last has a name, too: `__BPF_FUNC_MAX_ID`.
        let name = found.name?.to_string_lossy().strip_prefix("BPF_FUNC_")?.to_owned();
        Some(format!("bpf_{name}"))
    }

    /// What the kernel would look at of a program.
    ///
    /// # Errors
    /// The kernel has not what the program is for, or it cannot be told.
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

    /// The number of a type that must be there.
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

    /// A type of this name and kind.
    fn named<'s, K>(&'s self, name: &str) -> Option<K>
    where
        K: TryFrom<BtfType<'s>> + std::ops::Deref<Target = BtfType<'s>>,
    {
        let types = self.types.as_ref().filter(|_| !name.contains('\0'))?;
        // The first of the name may be of another kind.
        let same = |ty: &K| ty.name().is_some_and(|own| own == name);
        types.type_by_name(name).or_else(|| types.type_by_kind::<K>().find(same))
    }

    /// Whether programs of a shape can be loaded.
    pub fn loads(&self, shape: &Shape) -> Answer {
        match sys::try_program(shape.like, &[MOV, EXIT]) {
            (Ok(()), _) => Answer::Yes,
            (Err(errno @ (Errno::EPERM | Errno::EACCES)), log) => Answer::Unknown(refusal(errno, &log)),
            (Err(errno), log) => Answer::No(refusal(errno, &log)),
        }
    }

    /// Whether programs of a shape may call a helper.
    pub fn helper(&self, shape: &Shape, number: u32) -> Answer {
        let (answer, log) = sys::try_program(shape.like, &[call(0, number), MOV, EXIT]);
        // Before 6.11, since then, and of a number that is none.
        let refused = ["unknown func", "program of this type cannot use helper", "invalid func"];
        match answer {
            Ok(()) => Answer::Yes,
            Err(_) if refused.iter().any(|text| log.contains(text)) => Answer::No(reason(&log)),
            // The verifier got to its arguments, which are none.
            Err(_) if !log.trim().is_empty() => Answer::Yes,
            Err(errno) => Answer::Unknown(refusal(errno, &log)),
        }
    }

    /// Whether programs of a shape may call a function of the kernel.
    pub fn kfunc(&self, shape: &Shape, name: &str) -> Answer {
        let Ok(target) = self.target::<types::Func<'_>>(name, "function") else {
            return match module_with(name) {
                Ok(Some(module)) => Answer::Unknown(format!(
                    "the module `{module}` has a function of this name: the load will show whether programs may call it"
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

    /// Whether maps of a kind (`enum bpf_map_type`) can be made.
    pub fn map(&self, kind: u32) -> Answer {
        match print::collect(|| sys::has_map_kind(kind)).0 {
            Ok(true) => Answer::Yes,
            Ok(false) => Answer::No("the kernel makes none of this kind".into()),
            Err(errno) => Answer::Unknown(format!("bpf(BPF_MAP_CREATE): {errno:?}")),
        }
    }

    /// Whether a program can be attached where its section says, by what dies with this process.
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
                // A filter does the same.
                Err(Errno::EINVAL) => Answer::Yes,
                Err(errno) => Answer::Unknown(format!("bpf(BPF_PROG_QUERY): {errno:?}")),
            },
            libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS => self.link("BPF_STRUCT_OPS"),
            libbpf_sys::BPF_PROG_TYPE_LSM => lsm_is_active(),
            libbpf_sys::BPF_PROG_TYPE_KPROBE => probe_point(shape.like, target),
            // The load has looked for the target.
            _ => Answer::Yes,
        }
    }

    /// Whether links of a kind are among the kernel's attach types.
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

/// A probe at a function of the kernel, or of a file.
fn probe_point(like: Like, target: &str) -> Answer {
    let (pmu, in_file) = match target.contains(':') || target.starts_with('/') {
        true => ("uprobe", true),
        false => ("kprobe", false),
    };
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

/// Whether tc programs cannot be attached by links (before Linux 6.6).
pub(super) fn lacks_tcx() -> bool {
    sys::asks_interface(libbpf_sys::BPF_TCX_INGRESS) == Err(Errno::EINVAL)
}

/// Whether a kernel module is loaded, with types: without them programs cannot call its functions.
pub(super) fn has_module(name: &str) -> bool {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name(name) && Path::new("/sys/kernel/btf").join(name).exists()
}

/// The loaded module that has a function of this name.
fn module_with(name: &str) -> Result<Option<String>, String> {
    Ok(symbol(name)?.and_then(|symbol| symbol.module))
}

/// A function of the kernel.
struct Symbol {
    /// The module that it is of, if not of the kernel itself.
    module: Option<String>,
}

fn symbol(name: &str) -> Result<Option<Symbol>, String> {
    let path = "/proc/kallsyms";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(text.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_code = fields.next().is_some_and(|kind| kind.eq_ignore_ascii_case("t"));
        let module = |fields: &mut dyn Iterator<Item = &str>| {
            fields.next().map(|module| module.trim_matches(['[', ']']).to_owned())
        };
        (is_code && fields.next() == Some(name)).then(|| Symbol { module: module(&mut fields) })
    }))
}

/// The errno, and what the verifier said.
fn refusal(errno: Errno, log: &str) -> String {
    match reason(log).as_str() {
        "" => format!("bpf(BPF_PROG_LOAD): {errno:?}"),
        said => format!("bpf(BPF_PROG_LOAD): {errno:?}: {said}"),
    }
}

/// The line of a log that says why.
fn reason(log: &str) -> String {
    let mut lines = log.lines().filter(|line| !line.starts_with("processed ") && !line.contains(": ("));
    lines.next_back().unwrap_or_default().trim().to_owned()
}

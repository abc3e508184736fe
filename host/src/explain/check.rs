//! Requirements of a plugin on the running kernel: whether each is met, the first kernel that meets it, and
//! the remedy.

use std::collections::BTreeSet;
use std::fmt;

use ks_compiler::bpf;
use ks_wit::kfunc;
use ks_wit::program_kind::{ProgramKind, SectionSupport};
use serde::Serialize;

use super::{Capability, Facts, since};
use crate::bpf::feature::{Answer, Features, Method};
use crate::bpf::{Needs, ProgramNeeds, has_function, member};

/// The kind of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Programs of a type can be loaded.
    Program,
    /// A program can be attached where its attribute says.
    AttachPoint,
    /// Programs of a type may call a helper.
    Helper,
    /// Programs of a type may call a function of the kernel.
    Kfunc,
    /// Maps of a type can be created.
    Map,
    /// The kernel lists a variable.
    Variable,
    /// A struct of the kernel has a member.
    Member,
}

/// Whether the kernel meets a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The kernel was asked, and has it.
    Has,
    /// The kernel was asked, and does not have it.
    Missing,
    /// The kernel's answer does not decide it.
    Unknown,
    /// The kernel does not have it, and the plugin works without it.
    Optional,
}

/// One requirement of a plugin and the kernel's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The kind of the requirement.
    pub what: What,
    /// Its name: a section, a helper, a function, a map.
    pub name: String,
    /// The program that needs it; none for a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The answer of the running kernel.
    pub state: State,
    /// The first kernel that has it, where that is known: `5.17`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How the absence was detected, or why the answer is unknown. One line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// A remedy for the person who runs the host. One line.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// A struct_ops struct that a plugin may register, and its methods.
#[derive(Debug, Clone, Copy)]
pub struct Registers<'a> {
    /// The script's name of the block, which is the prefix of its methods' symbols.
    pub name: &'a str,
    /// The kernel's name of the struct.
    pub ops: &'a str,
    /// Names of the members that are methods.
    pub methods: &'a [String],
}

/// The oldest kernel that can load an object, according to tables, and the feature that needs it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Oldest {
    /// Its version, `(5, 17)`.
    pub version: since::Version,
    /// The helper, function, map, section or instruction group that needs this version; none if
    /// [`Oldest::version`] is the oldest supported kernel.
    pub because: Option<String>,
}

impl fmt::Display for Oldest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        write!(f, "Linux {major}.{minor}")?;
        self.because.iter().try_for_each(|what| write!(f, " for {what}"))
    }
}

/// The oldest supported kernel.
const OLDEST: since::Version = (5, 15);

/// Returns the oldest kernel that can load an object. A tc program needs no link: a filter attaches it on
/// older kernels.
pub fn oldest(needs: &Needs) -> Oldest {
    let mut found = Oldest { version: OLDEST, because: None };
    let mut add = |since: Option<since::Version>, name: &str| {
        if let Some(version) = since.filter(|since| *since > found.version) {
            found = Oldest { version, because: Some(name.to_owned()) };
        }
    };
    for program in &needs.programs {
        if let Some(known) = SectionSupport::of(&program.section) {
            let is_tc = known.kind == Some(ProgramKind::Tc);
            add(Some(if is_tc { known.since } else { known.links_since }), &program.section);
        }
        for number in &program.helpers {
            let name = bpf::helper_name(*number).map_or_else(|| format!("helper {number}"), str::to_owned);
            add(since::helper(*number, &program.section), &name);
        }
        for (name, _) in program.kfuncs.iter().filter(|(_, is_weak)| !**is_weak) {
            add(kfunc::observing(name).map(|kfunc| kfunc.since), name);
        }
        for (version, name) in program.instructions.iter().map(|group| since::instructions(*group)) {
            add(Some(version), name);
        }
    }
    for map in &needs.maps {
        add(since::map(map.kind), &map.name);
    }
    found
}

/// Selects the first object whose kernel functions the running kernel has; the first of all if there is none.
pub fn chosen(objects: Vec<Needs>) -> Needs {
    let fits = |needs: &Needs| {
        let mut kfuncs = needs.programs.iter().flat_map(|program| &program.kfuncs);
        kfuncs.all(|(name, is_weak)| *is_weak || has_function(name))
    };
    let index = if objects.len() > 1 { objects.iter().position(fits) } else { None };
    objects.into_iter().nth(index.unwrap_or(0)).unwrap_or_default()
}

/// Asks the kernel for everything that an object needs, in the order of its programs and maps.
pub fn check(needs: &Needs, registers: &[Registers<'_>]) -> Vec<Need> {
    let facts = Facts::read(0);
    let may_load = [Capability::Bpf, Capability::Perfmon, Capability::NetAdmin];
    let privileged = may_load.into_iter().all(|which| facts.has(which) == Some(true));
    let features = Features::of_running();
    let asked = Asked { features, kernel: facts.kernel, privileged, registers };
    let mut found: Vec<Need> = needs.programs.iter().flat_map(|program| asked.program(program)).collect();
    found.extend(needs.maps.iter().map(|map| {
        let seen = asked.features.map(map.kind);
        asked.need(What::Map, &map.name, None, seen, since::map(map.kind), "")
    }));
    found
}

struct Asked<'a> {
    features: Features,
    kernel: Option<since::Version>,
    /// Whether the process has enough capabilities that a refusal has another reason.
    privileged: bool,
    registers: &'a [Registers<'a>],
}

impl Asked<'_> {
    fn program(&self, program: &ProgramNeeds) -> Vec<Need> {
        let known = SectionSupport::of(&program.section);
        let config = known.map_or("", |known| known.config);
        let since_programs = known.map(|known| known.since);
        let need = |what, name: &str, seen, since, config| {
            self.need(what, name, Some(&program.name), seen, since, config)
        };
        let attach_point = |name: &str, seen, since| {
            let mut need = need(What::AttachPoint, name, seen, since, config);
            if program.optional && need.state == State::Missing {
                (need.state, need.remedy) = (State::Optional, None);
            }
            need
        };
        let shape = match self.features.shape(&program.section, self.method(program)) {
            Ok(shape) => shape,
            Err(seen) => return vec![attach_point(&program.section, seen, since_programs)],
        };
        let loads = match self.features.loads(&shape) {
            Answer::Unknown(because) if self.privileged => Answer::No(because),
            answer => answer,
        };
        let links_since = known.map(|known| known.links_since);
        let point = self.features.attach_point(&shape);
        let mut found = vec![
            need(What::Program, &program.section, loads.clone(), since_programs, config),
            attach_point(&program.section, point, links_since),
        ];
        let kind = program.section.split('/').next().unwrap_or_default();
        found.extend(program.also.iter().map(|target| {
            let seen = self.features.attach_point_at(&shape, target);
            attach_point(&format!("{kind}/{target}"), seen, links_since)
        }));
        if loads != Answer::Yes {
            return found;
        }
        found.extend(program.helpers.iter().map(|number| {
            let known = || bpf::helper_name(*number).map(str::to_owned);
            let name = self.features.helper_name(*number).or_else(known);
            let name = name.unwrap_or_else(|| format!("helper {number}"));
            need(
                What::Helper,
                &name,
                self.features.helper(&shape, *number),
                since::helper(*number, &program.section),
                "",
            )
        }));
        found.extend(program.kfuncs.iter().map(|(name, is_weak)| {
            let mut kfunc = need(
                What::Kfunc,
                name,
                self.features.kfunc(&shape, name),
                kfunc::observing(name).map(|kfunc| kfunc.since),
                "",
            );
            if *is_weak {
                can_do_without(&mut kfunc);
            }
            kfunc
        }));
        let variable = |name: &String| need(What::Variable, name, self.features.variable(name), None, "");
        found.extend(program.variables.iter().map(variable));
        found.extend(program.members.iter().map(|(path, used)| {
            let mut member = need(What::Member, &path.to_string(), member(path), None, "");
            if let (State::Missing, Some(at), Some(because)) = (member.state, &used.at, &mut member.because) {
                because.push_str(&format!(", which {at} reads"));
            }
            if used.is_asked_for && member.state == State::Missing {
                (member.state, member.remedy) = (State::Optional, None);
            }
            member
        }));
        found
    }

    /// Returns the struct member that a program implements. The program's symbol is the name of the block
    /// followed by that of the member.
    fn method(&self, program: &ProgramNeeds) -> Option<Method<'_>> {
        let member = program.section.strip_prefix("struct_ops/")?;
        let mut blocks = self.registers.iter();
        let block = blocks.find_map(|block| {
            let own = block.methods.iter().find(|method| *method == member)?;
            (program.name == *own || program.name.starts_with(block.name)).then_some((block, own))
        });
        block.map(|(block, member)| Method { of: block.ops, member })
    }

    fn need(
        &self,
        what: What,
        name: &str,
        program: Option<&str>,
        seen: Answer,
        since: Option<since::Version>,
        config: &str,
    ) -> Need {
        let (state, because) = match seen {
            Answer::Yes => (State::Has, None),
            Answer::No(because) => (State::Missing, Some(because)),
            Answer::Unknown(because) => (State::Unknown, Some(because)),
        };
        let remedy = match state {
            State::Missing => Some(self.remedy(what, since, config)),
            State::Unknown if !self.privileged => Some("run this as root".into()),
            State::Unknown => Some("look at `ks-host doctor`".into()),
            State::Has | State::Optional => None,
        };
        let since = since.map(|(major, minor)| format!("{major}.{minor}"));
        Need { what, name: name.into(), program: program.map(str::to_owned), state, since, because, remedy }
    }

    /// Formats a remedy for something that this kernel lacks.
    fn remedy(&self, what: What, since: Option<since::Version>, config: &str) -> String {
        match (since, self.kernel) {
            (Some(since), Some(kernel)) if kernel < since => {
                format!("run Linux {}.{} or newer; this is {}.{}", since.0, since.1, kernel.0, kernel.1)
            }
            _ if what == What::Member => "run a kernel that has it, or leave it out".into(),
            _ if what == What::Variable => {
                "run a kernel that has it and was built with CONFIG_KALLSYMS_ALL".into()
            }
            _ if what == What::Kfunc => "load the module that has it, or run a kernel that has it".into(),
            _ if what == What::Helper => {
                "run a newer kernel: this one gives it to other types of programs, or was built without it"
                    .into()
            }
            _ if what == What::Program => {
                format!(
                    "the kernel is new enough: look for {config} in its configuration, and at `ks-host \
                     doctor`"
                )
            }
            _ if !config.is_empty() => {
                format!("the kernel is new enough: look for {config}, and at the name")
            }
            _ => "the kernel is new enough, and was built without it".into(),
        }
    }
}

/// Adjusts the answer for a function of which the object has a version of its own: it is optional. A module's
/// function is used if the module is loaded when the object is.
fn can_do_without(kfunc: &mut Need) {
    match kfunc.state {
        State::Missing => {
            kfunc.state = State::Optional;
            kfunc.remedy =
                Some("load the module that has it; until then the object's own function runs".into());
        }
        State::Unknown => {
            kfunc.remedy = Some("nothing: without the module the object's own function runs".into())
        }
        State::Has | State::Optional => {}
    }
}

/// Returns the names of missing requirements that are not optional, each once.
pub fn missing(needs: &[Need]) -> BTreeSet<&str> {
    needs.iter().filter(|need| need.state == State::Missing).map(|need| need.name.as_str()).collect()
}

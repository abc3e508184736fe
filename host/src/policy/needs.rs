//! The needs of a plugin, derived from its objects and imports.

use std::collections::BTreeSet;

use ks_compiler::object::model::{Callee, Instruction, KsymKind, Object, Program, ProgramId, Section};
use ks_compiler::object::table::{self, Target};
use ks_wit::helper::{self, HelperClass};
use ks_wit::kfunc;

use super::Class;
use super::object::{ObjectError, ObjectSet, PluginObject};
use crate::text::{MOST_BYTES, visible};

/// The interface whose functions a class of its own allows.
const PROGRAMS: &str = "programs";

/// One action that a plugin needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Class of the action.
    pub class: Class,
    /// Target of the action, as the file has it; none if it is known only at run time. Untrusted text: messages
    /// escape it.
    pub target: Option<String>,
    /// The part of the plugin that needs it, for messages.
    pub by: String,
}

impl Need {
    /// Returns the name of the program that needs it; none if another part does.
    pub fn program(&self) -> Option<&str> {
        self.by.strip_prefix("program `")?.strip_suffix('`')
    }
}

/// The needs of a plugin and its objects, for a policy to admit.
#[derive(Debug, Default)]
pub struct Request {
    needs: Vec<Need>,
    objects: ObjectSet,
}

impl Request {
    /// Collects the needs of a plugin with these objects that imports these interfaces.
    pub fn new(objects: ObjectSet, imports: &[String]) -> Request {
        let mut needs: Vec<Need> = Vec::new();
        for need in objects.objects().iter().flat_map(of_object) {
            if !needs.contains(&need) {
                needs.push(need);
            }
        }
        needs.extend(imports.iter().flat_map(|import| {
            let name = import.strip_prefix("kernelscript:host/").unwrap_or(import);
            let interface = name.split('@').next().unwrap_or_default().to_owned();
            let by = format!("import `{import}`");
            let lists = (interface == PROGRAMS).then(|| Need {
                class: Class::Programs,
                target: None,
                by: display(&by),
            });
            lists.into_iter().chain([need(Class::Import, interface, by)])
        }));
        Request { needs, objects }
    }

    /// Returns the needed actions, without duplicates of the objects.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Returns the objects of the plugin.
    pub fn objects(&self) -> &ObjectSet {
        &self.objects
    }

    pub(super) fn into_objects(self) -> ObjectSet {
        self.objects
    }
}

/// Rejects an object with a need that the first one does not have, because people review only one of them.
/// Helpers and kernel functions are compared as classes only, because they differ between kernels and
/// machines.
pub(super) fn judge_together(objects: &[PluginObject]) -> Result<(), ObjectError> {
    let [first, others @ ..] = objects else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let acts = |object: &PluginObject| -> BTreeSet<(Class, Option<String>)> {
        let act = |need: Need| match need.class {
            Class::Helper | Class::Kfunc => (need.class, None),
            class => (class, need.target.map(|target| same_everywhere(&target))),
        };
        of_object(object).into_iter().map(act).collect()
    };
    let known = acts(first);
    for object in others {
        if let Some((class, target)) = acts(object).into_iter().find(|act| !known.contains(act)) {
            let needed = match target {
                Some(target) => format!("{}={}", class.name(), display(&target)),
                None => class.name().to_owned(),
            };
            return Err(ObjectError::NeedsMore { arch: object.arch(), needed });
        }
    }
    Ok(())
}

/// Returns a machine-independent target: the kernel's functions of system calls contain the architecture in
/// their names. Source: `__SYSCALL_DEFINEx` of arch/x86/include/asm/syscall_wrapper.h and
/// arch/arm64/include/asm/syscall_wrapper.h, v6.18.
fn same_everywhere(target: &str) -> String {
    let call = ["__x64_sys_", "__arm64_sys_"].into_iter().find_map(|prefix| target.strip_prefix(prefix));
    call.map_or_else(|| target.to_owned(), |call| format!("sys_{call}"))
}

fn of_object(object: &PluginObject) -> Vec<Need> {
    let model = object.model();
    let mut needs: Vec<Need> =
        model.programs.iter().flat_map(|program| of_program(object, program)).collect();
    let filtering = (0..).map(ProgramId).zip(&model.programs).filter(|(id, _)| model.may_filter_events(*id));
    needs.extend(filtering.flat_map(|(_, program)| {
        let by = display(&format!("program `{}`", program.name.as_str()));
        program.targets().map(move |target| {
            let target = (target != Target::None).then(|| target.to_string());
            Need { class: Class::FiltersEvents, target, by: by.clone() }
        })
    }));
    needs.extend(of_calls(model));
    needs.extend(model.maps.iter().flat_map(|map| {
        let kinds = [Some(map.shape.kind), map.inner.as_ref().map(|inner| inner.kind)];
        let classes = kinds.into_iter().flatten().filter_map(|kind| kind.class()).map(Class::from);
        classes.map(|class| Need { class, target: None, by: format!("map `{}`", map.name.as_str()) })
    }));
    needs.extend(model.ksyms.iter().filter_map(|ksym| {
        let name = ksym.name.as_str();
        let class = match ksym.kind {
            KsymKind::Function(_) => kfunc::observing(name).is_none().then_some(Class::Kfunc)?,
            KsymKind::Variable(_) | KsymKind::Address => Class::KernelVariable,
        };
        Some(need(class, name.to_owned(), "the BPF object".into()))
    }));
    needs.extend(model.struct_ops.iter().map(|one| {
        need(Class::StructOps, one.name.as_str().to_owned(), format!("struct `{}`", one.name.as_str()))
    }));
    needs.extend(object.pins().map(|pin| need(Class::Pin, pin.path, format!("map `{}`", pin.map))));
    needs
}

/// Returns the calls of helpers that do more than observe, each helper once, with the first function that
/// calls it.
fn of_calls(model: &Object) -> Vec<Need> {
    let programs = model.programs.iter().map(|one| (one.name.as_str(), &one.body));
    let functions = programs.chain(model.subprograms.iter().map(|one| (one.name.as_str(), &one.body)));
    let (mut seen, mut needs) = (BTreeSet::new(), Vec::new());
    for (function, body) in functions {
        for instruction in &body.code {
            let Instruction::Call(Callee::Helper(called)) = *instruction else { continue };
            if !seen.insert(called) {
                continue;
            }
            let by = format!("program `{function}`");
            match helper::numbered(called.number()).map(|known| (known.class, known.short_name())) {
                Some((HelperClass::Observes | HelperClass::Packets, _)) => {}
                Some((HelperClass::Timers, _)) => needs.push(Need { class: Class::Timer, target: None, by }),
                Some((HelperClass::Redirects, _)) => {
                    needs.push(Need { class: Class::Redirect, target: None, by });
                }
                Some((HelperClass::Steers(_), name)) => needs.push(need(Class::Helper, name.to_owned(), by)),
                // The strict reader accepts only known helpers.
                None => needs.push(need(Class::Helper, called.number().to_string(), by)),
            }
        }
    }
    needs
}

fn need(class: Class, target: String, by: String) -> Need {
    Need { class, target: Some(target), by: display(&by) }
}

/// Escapes and truncates a name from a file, which is untrusted, for messages. Targets are judged as they are.
fn display(text: &str) -> String {
    visible(text, MOST_BYTES).into_owned()
}

fn of_program(object: &PluginObject, program: &Program) -> impl Iterator<Item = Need> {
    let class = class_of(object, program);
    let by = format!("program `{}`", program.name.as_str());
    program.targets().map(move |target| Need {
        class,
        target: needed(class, &program.section, &target),
        by: by.clone(),
    })
}

/// Returns one of a program's targets as policies spell it.
fn needed(class: Class, section: &Section, target: &Target) -> Option<String> {
    match class {
        // The target is chosen at run time.
        Class::Xdp
        | Class::Tc
        | Class::Cgroup
        | Class::SocketFilter
        | Class::Timer
        | Class::PerfEvent
        | Class::StructOps => None,
        Class::Other => Some(match target {
            Target::None => section.kind.section.to_owned(),
            target => format!("{}/{target}", section.kind.section),
        }),
        // Without a target in the section it is chosen at run time.
        _ => (*target != Target::None).then(|| target.to_string()),
    }
}

/// Returns the class of a program.
pub(crate) fn class_of(object: &PluginObject, program: &Program) -> Class {
    if object.is_timer(program) { Class::Timer } else { Class::from(program.section.kind.class) }
}

impl From<table::Class> for Class {
    fn from(class: table::Class) -> Class {
        match class {
            table::Class::PerfEvent => Class::PerfEvent,
            table::Class::Tracepoint => Class::Tracepoint,
            table::Class::RawTracepoint => Class::RawTracepoint,
            table::Class::Kprobe => Class::Kprobe,
            table::Class::Uprobe => Class::Uprobe,
            table::Class::Tracing => Class::Tracing,
            table::Class::SocketFilter => Class::SocketFilter,
            table::Class::Xdp => Class::Xdp,
            table::Class::Tc => Class::Tc,
            table::Class::Cgroup => Class::Cgroup,
            table::Class::Lsm => Class::Lsm,
            table::Class::ModifyReturn => Class::ModifyReturn,
            table::Class::StructOps => Class::StructOps,
            table::Class::Redirect => Class::Redirect,
            table::Class::Other => Class::Other,
        }
    }
}

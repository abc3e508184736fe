//! The policy that allows what a plugin asks for and nothing else.
//!
//! Programs, calls, maps and pins are those of the object, as the host judges it. Events and targets are those of
//! the manifest, which may be wrong: then the plugin is denied what is missing. What only the run decides is `*`,
//! and a comment says so.

use std::collections::BTreeSet;

use ks_host::perf::{Catalog, ProbePoint};
use ks_host::plugin::Plugin;
use ks_host::policy::{Class, Limit, Need, PluginObject, Policy};
use ks_wit::manifest::{Event, Manifest};

use crate::output::printable;

/// Returns the policy as the text of a policy file.
pub(super) fn needed(plugin: &Plugin) -> anyhow::Result<String> {
    let request = ks_host::request(plugin)?;
    let mut needed = Needed { policy: Policy::nothing(), catalog: Catalog::default(), open: BTreeSet::new() };
    let needs = request.needs();
    for need in needs {
        needed.need(need, needs, plugin.manifests());
    }
    let imports = |name: &str| {
        needs.iter().any(|need| need.class == Class::Import && need.target.as_deref() == Some(name))
    };
    if imports("perf") {
        needed.events(plugin.manifests());
    }
    if imports("symbols") || request.objects().objects().iter().any(PluginObject::names_functions) {
        needed.any(Class::Symbols, "whose addresses it names".into());
    }
    let cpus = ks_host::bpf::possible_cpus()?;
    let memory = request.objects().memory(cpus).with(request.objects().inner_memory(cpus));
    needed.policy.set_limit(Limit::Maps, memory.maps);
    needed.policy.set_limit(Limit::MapBytes, memory.map_bytes);
    needed.policy.set_limit(Limit::RingBytes, memory.ring_bytes);
    needed.policy.set_limit(Limit::Pins, request.objects().pins());
    Ok(needed.text())
}

struct Needed {
    policy: Policy,
    /// Events of this machine.
    catalog: Catalog,
    /// What only the run decides.
    open: BTreeSet<String>,
}

impl Needed {
    /// Allows exactly this target.
    fn exactly(&mut self, class: Class, target: &str) {
        self.policy.allow_need(&Need { class, target: Some(target.to_owned()), by: String::new() });
    }

    /// Allows any target, and notes what is chosen at run time.
    fn any(&mut self, class: Class, what: String) {
        self.policy.allow_need(&Need { class, target: None, by: String::new() });
        self.open.insert(format!("{} = [\"*\"]: {}", class.name(), printable(&what)));
    }

    /// Allows a need of the object. `all` are the needs of all its parts.
    fn need(&mut self, need: &Need, all: &[Need], manifests: &[Manifest]) {
        match &need.target {
            Some(target) => self.target(need.class, target),
            None if !need.class.has_targets() => self.policy.allow_need(need),
            // The structs themselves are needs with a name.
            None if need.class == Class::StructOps => {
                if !all.iter().any(|other| other.class == Class::StructOps && other.target.is_some()) {
                    self.exactly(Class::StructOps, "");
                }
            }
            None => match attached(need, manifests) {
                Some([]) => self.exactly(need.class, ""),
                Some(targets) => targets.iter().for_each(|target| self.target(need.class, target)),
                None => self.any(need.class, format!("where {} is attached", need.by)),
            },
        }
    }

    /// Allows a target of a program.
    fn target(&mut self, class: Class, target: &str) {
        match class {
            Class::Uprobe => self.uprobe(class, "", target),
            class => self.exactly(class, target),
        }
    }

    /// Allows a probe in a file by the path as it is written and by the file's own, which the host asks about
    /// when the file is open.
    fn uprobe(&mut self, class: Class, prefix: &str, target: &str) {
        self.exactly(class, &format!("{prefix}{target}"));
        for known in ProbePoint::known_as(target) {
            self.exactly(class, &format!("{prefix}{known}"));
        }
    }

    /// Allows the events of the manifests, and where they count.
    fn events(&mut self, manifests: &[Manifest]) {
        let events: Vec<&Event> = manifests.iter().flat_map(|manifest| &manifest.events).collect();
        if events.is_empty() {
            self.any(Class::Event, "which events it opens".into());
            self.any(Class::Scope, "whose events it counts".into());
        }
        for event in events {
            self.event(event);
            match (event.scope.as_deref(), event.pid) {
                (Some(scope), _) => self.exactly(Class::Scope, scope),
                (None, Some(0)) => self.exactly(Class::Scope, "own"),
                (None, _) => self.any(Class::Scope, format!("whose events line {} counts", event.line)),
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match (event.event.as_deref(), event.family.as_deref()) {
            (Some(name), Some(family @ "uprobe")) => {
                let target = name.strip_prefix("uprobe:").unwrap_or(name);
                self.uprobe(Class::Event, &format!("{family}:"), target);
            }
            (Some(name), Some("kprobe" | "tracepoint")) => self.exactly(Class::Event, name),
            // The names of this machine: those of events of PMUs differ.
            (Some(name), _) => match self.catalog.named(name) {
                Ok(found) => found.targets().iter().for_each(|target| self.exactly(Class::Event, target)),
                Err(_) => self.exactly(Class::Event, name),
            },
            (None, Some(family)) => self.exactly(Class::Event, family),
            (None, None) => self.any(Class::Event, format!("which event line {} opens", event.line)),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if !self.open.is_empty() {
            text.push_str("# Known only at run time, to be narrowed:\n");
        }
        self.open.iter().for_each(|open| text.push_str(&format!("#   {open}\n")));
        text + &self.policy.to_toml()
    }
}

/// Returns where a program is attached, by its manifest; none if that is known only at run time. An interface by
/// its number is one that only the run knows.
fn attached<'a>(need: &Need, manifests: &'a [Manifest]) -> Option<&'a [String]> {
    let name = need.program()?;
    let program = manifests.iter().flat_map(|manifest| &manifest.programs).find(|one| one.name == name)?;
    let targets = program.targets.as_deref()?;
    targets.iter().all(|target| target.parse::<u32>().is_err()).then_some(targets)
}

//! Definitions that are predeclared in every script.

mod kernel;

use ks_wit::event::EVENTS;

use super::tables::{PRELUDE, attributes, builtins, keywords, maps};
use super::{DefId, DefKind, Definition, Facts, Ty};

/// Defines the items that the language predeclares.
pub fn define(facts: &mut Facts) {
    super::syntactic::prelude(facts, PRELUDE);
    kernel::define(facts);
    events(facts);
    functions(facts);
    others(facts);
}

fn events(facts: &mut Facts) {
    let parent = facts.define(|| Definition {
        detail: "enum perf_event".into(),
        docs: "What can be counted: `kernel type << 32 | config`.".into(),
        ..Definition::new("perf_event", DefKind::Enum)
    });
    for event in EVENTS {
        facts.define(|| Definition {
            detail: format!("{} = {:#x}", event.name, event.packed()),
            docs: keywords::event_docs(event),
            ty: Ty::named("perf_event"),
            parent: Some(parent),
            ..Definition::new(event.name, DefKind::Event)
        });
    }
}

fn functions(facts: &mut Facts) {
    for builtin in builtins::BUILTINS {
        facts.define(|| Definition {
            detail: signatures(builtin).join("\n"),
            docs: format!("{}\n\nCallable in: {}.", builtin.docs, builtin.halves_text()),
            ty: result(builtin.forms.first().copied().unwrap_or_default()),
            ..Definition::new(builtin.name, DefKind::Builtin)
        });
    }
}

/// Returns every form of a builtin's call, with its name.
pub fn signatures(builtin: &builtins::Builtin) -> Vec<String> {
    builtin.forms.iter().map(|form| format!("{}{form}", builtin.name)).collect()
}

/// Returns the type after the arrow of a form.
pub fn result(form: &str) -> Ty {
    let Some((_, name)) = form.rsplit_once("-> ") else { return Ty::Unknown };
    let size = name.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')'));
    match name {
        "program handle" => Ty::Handle,
        "V" => Ty::Unknown,
        "*T" => Ty::Ptr(Box::new(Ty::Unknown)),
        _ if size.is_some() => Ty::Str(size.and_then(|digits| digits.parse().ok())),
        _ => Ty::named(name),
    }
}

fn others(facts: &mut Facts) {
    for attribute in attributes::attributes() {
        facts.define(|| Definition {
            detail: format!("{}\n{}", attribute.form, attribute.signature),
            docs: attribute.docs.into(),
            ..Definition::new(attribute.name, DefKind::Attribute)
        });
    }
    for (name, docs) in maps::FLAGS {
        facts.define(|| Definition {
            detail: format!("@flags({name})"),
            docs: (*docs).into(),
            ..Definition::new(*name, DefKind::Attribute)
        });
    }
    for kind in maps::KINDS {
        facts.define(|| Definition {
            detail: kind.form.into(),
            docs: kind.docs.into(),
            ..Definition::new(kind.name, DefKind::MapKind)
        });
    }
    methods(facts);
}

/// Defines the methods of ring buffers, queues and the like, as children of the map kind.
fn methods(facts: &mut Facts) {
    let ring = maps::RING_METHODS.iter().map(|(name, signature, docs)| ("ringbuf", *name, *signature, *docs));
    for (kind, name, signature, docs) in ring.chain(maps::METHODS.iter().copied()) {
        let found = facts.definitions().find(|(_, one)| one.kind == DefKind::MapKind && one.name == kind);
        let parent: Option<DefId> = found.map(|(id, _)| id);
        facts.define(|| Definition {
            detail: signature.into(),
            docs: docs.into(),
            ty: result(signature),
            parent,
            ..Definition::new(name, DefKind::Method)
        });
    }
}

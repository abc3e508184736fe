//! Renames items of modules: `module.name` in the script, `module_name` in the object, whose names are C
//! identifiers.

use std::collections::BTreeSet;

use super::{FunctionKind, Half, Hir};

/// Rewrites all names that the object may contain, so that they have no dots and are unique.
pub fn rewrite(hir: &mut Hir) {
    let mut taken: BTreeSet<String> = all(hir).map(|name| name.to_owned()).collect();
    for name in all(hir).filter(|name| name.contains('.')) {
        let mut own = name.replace('.', "_");
        while !taken.insert(own.clone()) {
            own.push('_');
        }
        *name = own;
    }
}

fn all(hir: &mut Hir) -> impl Iterator<Item = &mut String> {
    // Methods get the names of their blocks when the object is written. Functions of the userspace half are
    // not in it, and traps report their names as spelled in the script.
    let functions = hir
        .functions
        .iter_mut()
        .filter(|one| one.kind.half() == Half::Kernel && !matches!(one.kind, FunctionKind::Method(_)));
    let functions = functions.map(|one| &mut one.name);
    let variables = hir.globals.iter_mut().map(|one| &mut one.name);
    let maps = hir.maps.iter_mut().map(|one| &mut one.name);
    let rings = hir.rings.iter_mut().map(|one| &mut one.name);
    let configs = hir.configs.iter_mut().map(|one| &mut one.name);
    let counters = hir.counters.iter_mut().map(|one| &mut one.name);
    functions.chain(variables).chain(maps).chain(rings).chain(configs).chain(counters)
}

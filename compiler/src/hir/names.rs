//! Names of what modules declare: `module.name` in the script, `module_name` in the object, whose names are those of C.

use std::collections::BTreeSet;

use super::{FunctionKind, Half, Hir};

/// Rewrites the names of all that the object may have, so that none has a dot in it and all differ.
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
    // Methods get the names of their blocks where they are put into the object; functions of the userspace half are not in
    // it, and traps tell their names as the script has them.
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

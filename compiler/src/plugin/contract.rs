//! The WIT package of the contract, parsed.

use std::sync::OnceLock;

use wit_parser::{PackageId, Resolve, SourceMap, WorldId};

/// The worlds that a compiled script targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// A plugin.
    Plugin,
    /// A plugin that holds tests.
    TestPlugin,
}

impl World {
    fn name(self) -> &'static str {
        match self {
            World::Plugin => "plugin",
            World::TestPlugin => "test-plugin",
        }
    }
}

/// The contract that this compiler was built with, parsed once.
///
/// # Panics
/// If the WIT files are not a package with that world, which the tests of this module rule out.
pub fn resolve(world: World) -> (&'static Resolve, WorldId) {
    static PARSED: OnceLock<(Resolve, PackageId)> = OnceLock::new();
    let (resolve, package) = PARSED.get_or_init(parse);
    let world = resolve.select_world(&[*package], Some(world.name())).expect("the contract has the world");
    (resolve, world)
}

fn parse() -> (Resolve, PackageId) {
    let mut files = SourceMap::default();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let group = files.parse().unwrap_or_else(|(_, error)| panic!("the contract is not valid WIT: {error}"));
    let mut resolve = Resolve::default();
    let package = resolve.push_group(group).expect("the contract's names resolve");
    (resolve, package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_is_a_package_with_the_worlds() {
        for wanted in [World::Plugin, World::TestPlugin] {
            let (resolve, world) = resolve(wanted);
            assert_eq!(resolve.worlds[world].name, wanted.name());
        }
    }
}

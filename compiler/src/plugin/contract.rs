//! The WIT package of the contract, parsed.

use wit_parser::{Resolve, SourceMap, WorldId};

/// The world that a compiled script targets.
const WORLD: &str = "plugin";

/// Parses the contract that this compiler was built with.
///
/// # Panics
/// If the WIT files are not a package with that world, which the tests of this module rule out.
pub fn resolve() -> (Resolve, WorldId) {
    let mut files = SourceMap::default();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let group = files.parse().unwrap_or_else(|(_, error)| panic!("the contract is not valid WIT: {error}"));
    let mut resolve = Resolve::default();
    let package = resolve.push_group(group).expect("the contract's names resolve");
    let world = resolve.select_world(&[package], Some(WORLD)).expect("the contract has the world");
    (resolve, world)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_contract_is_a_package_with_the_world() {
        let (resolve, world) = super::resolve();
        assert_eq!(resolve.worlds[world].name, super::WORLD);
    }
}

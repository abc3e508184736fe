//! Objects inside the programs of Debian's `libbpf-tools`: the strict reader accepts them, and libbpf makes
//! the same instructions and maps of the original and of the canonical object.

use std::collections::BTreeMap;

use ks_compiler::object::{read, write};
use ks_tests::prepared::prepare;
use ks_tests::tools;

#[test]
fn root_objects_of_libbpf_tools_are_the_same_after_the_writer() {
    let (mut found, mut accepted, mut prepared) = (0, 0, 0);
    let mut refused = BTreeMap::new();
    for (name, original) in tools::objects() {
        found += 1;
        let object = match read(&original) {
            Ok(object) => object,
            Err(error) => {
                refused.insert(name, error.to_string());
                continue;
            }
        };
        accepted += 1;
        let canonical = write(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
        match (prepare("tool", &original), prepare("tool", &canonical)) {
            (Ok(before), Ok(after)) => {
                assert!(before == after, "{name}:\n{before:#?}\n{after:#?}");
                prepared += usize::from(!before.programs.is_empty());
            }
            // The running kernel lacks a function or a type that the object needs.
            (Err(before), Err(after)) => assert_eq!(before, after, "{name}"),
            (before, after) => panic!("{name}: {before:?} {after:?}"),
        }
    }
    println!("{found} objects, {accepted} accepted, {prepared} prepared; refused: {refused:#?}");
    assert!(found >= 61 && accepted >= 58, "{found} objects, {accepted} accepted: {refused:#?}");
    assert!(prepared * 2 > found, "{prepared} of {found} prepared");
}

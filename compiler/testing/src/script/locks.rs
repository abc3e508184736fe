//! `lock (v) { .. }`: blocks that change several parts of an entry.

use super::scope::{Gen, Key};
use super::tree::Node;
use super::types::Ty;

/// Attributes of programs that may use maps with locks.
const LOCKING: [&str; 3] = ["@xdp", "@tc", "@cgroup"];

/// A part of a value, as it is written behind the variable, and its number of bits.
type Part = (String, u32);

/// Generates `if (var v = m[k]) { lock (v) { .. } }`.
pub fn locked(generator: &mut Gen) -> Option<Node> {
    let may_lock = LOCKING.iter().any(|attribute| generator.program.attribute.starts_with(attribute));
    if !generator.kernel_only || !may_lock {
        return None;
    }
    let fits = |map: &usize| {
        let map = &generator.maps[*map];
        matches!(map.kind, "hash" | "array") && matches!(map.key, Key::Value(_)) && map.outer.is_none()
    };
    let maps: Vec<usize> = (0..generator.maps.len()).filter(fits).collect();
    let maps: Vec<(usize, Vec<Part>)> = maps.into_iter().map(|map| (map, parts(generator, map))).collect();
    let (map, parts) = maps.into_iter().find(|(_, parts)| !parts.is_empty())?;
    let value = generator.maps[map].value.clone();
    if !generator.claim(&value) {
        return None;
    }
    let key = generator.key(map);
    let name = generator.name("b");
    let mut body = String::new();
    for _ in 0..1 + generator.rng.below(3) {
        let (part, bits) = generator.rng.pick(&parts).clone();
        let number = generator.rng.below(100);
        body += &match generator.rng.below(4) {
            0 => format!("{name}{part} += {number}\n"),
            1 => format!("{name}{part} = {number}\n"),
            2 => format!("{name}{part} = {name}{part} << {}\n", number as u32 % bits),
            _ if generator.function.loops > 0 => {
                format!("if ({name}{part} > {number}) {{ {} }}\n", generator.rng.pick(&["break", "continue"]))
            }
            _ => format!("if ({name}{part} > {number}) {{ {name}{part} -= {number} }}\n"),
        };
    }
    let map = generator.maps[map].name.clone();
    let text = format!("if (var {name} = {map}[$]) {{\nlock ({name}) {{\n{body}}}\n}}");
    Some(Node::stmt(&text, vec![key]))
}

/// The parts of a map's values that are numbers.
fn parts(generator: &Gen, map: usize) -> Vec<Part> {
    let bits = |ty: &Ty| match ty {
        Ty::Int(int) => Some(int.bits),
        _ => None,
    };
    match &generator.maps[map].value {
        Ty::Struct(number) => {
            let fields = generator.structs[*number].iter().enumerate();
            fields.filter_map(|(at, field)| Some((format!(".f{at}"), bits(field)?))).collect()
        }
        Ty::Array(element, len) => {
            (0..*len).filter_map(|at| Some((format!("[{at}]"), bits(element)?))).collect()
        }
        _ => Vec::new(),
    }
}

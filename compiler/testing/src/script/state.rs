//! Productions of state other than maps of values: deleted entries, queues, stacks, filters, objects and the
//! maps that own them, open records.

use super::scope::{Gen, Key, Map, ObjectMap, OuterMap, Queue, Var};
use super::tree::Node;
use super::types::{Ty, U32};

impl Gen {
    /// Generates a queue, a stack or a bloom filter.
    pub fn queue(&mut self) -> Node {
        let kind = *self.rng.pick(&["queue", "stack", "bloom"]);
        let value = match self.any_type() {
            Ty::Array(element, _) => *element,
            other => other,
        };
        let name = self.name("q");
        let text = format!("var {name}: {kind}<{}>({})", value.name(), 1 + self.rng.below(16));
        self.queues.push(Queue { name, kind, value });
        Node::stmt(&text, Vec::new()).of(kind)
    }

    /// Generates local storage of kernel objects.
    pub fn storage(&mut self) -> Option<Node> {
        let (kind, object) = self.program.storage?;
        let value = self.any_type();
        let name = self.name("l");
        let text = format!("var {name}: {kind}<{}>", value.name());
        self.maps.push(Map { name, kind, key: Key::Object(object), value, size: 0, outer: None });
        Some(Node::stmt(&text, Vec::new()).of(kind))
    }

    /// Generates a map whose values are maps.
    pub fn map_of_maps(&mut self) -> Node {
        let (outer, kind) =
            (*self.rng.pick(&["hash", "array"]), *self.rng.pick(&["hash", "array", "lru_hash"]));
        let mut key = |kind| if kind == "array" { Ty::Int(U32) } else { self.scalar_type() };
        let (outer_key, key) = (key(outer), key(kind));
        let outer = OuterMap { kind: outer, key: outer_key, size: 1 + self.rng.below(8) as u32 };
        let (value, size) = (self.any_type(), 1 + self.rng.below(64) as u32);
        let name = self.name("m");
        let inner = format!("{kind}<{}, {}>({size})", key.name(), value.name());
        let text = format!("var {name}: {}<{}, {inner}>({})", outer.kind, outer.key.name(), outer.size);
        self.maps.push(Map { name, kind, key: Key::Value(key), value, size, outer: Some(outer) });
        Node::stmt(&text, Vec::new()).of("map of maps")
    }

    /// Generates a map of pointers.
    pub fn object_map(&mut self) -> Node {
        let (key, value) = (self.scalar_type(), self.pointed_type());
        let name = self.name("o");
        let kind = *self.rng.pick(&["hash", "lru_hash"]);
        let text = format!("var {name}: {kind}<{}, *{}>(16)", key.name(), value.name());
        self.object_maps.push(ObjectMap { name, key, value });
        Node::stmt(&text, Vec::new()).of("map that owns objects")
    }
}

/// Generates `m[k] == null` for a map of maps.
pub fn inner_map(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let maps = (0..generator.maps.len()).filter(|map| generator.maps[*map].outer.is_some());
    let maps: Vec<usize> = maps.collect();
    if *ty != Ty::Bool || maps.is_empty() {
        return None;
    }
    let map = *generator.rng.pick(&maps);
    let key = generator.outer_key(map);
    let op = *generator.rng.pick(&["==", "!="]);
    Some(Node::expr(ty, &format!("({}[$] {op} null)", generator.maps[map].name), vec![key]))
}

/// Generates `delete m[k]`.
pub fn removed(generator: &mut Gen) -> Option<Node> {
    let function = &generator.function;
    let fits = |map: &usize| {
        let map = &generator.maps[*map];
        !map.is_array() && (!map.is_storage() || function.has_context)
    };
    let maps: Vec<usize> = (0..generator.maps.len()).filter(fits).collect();
    if maps.is_empty() {
        return None;
    }
    let map = *generator.rng.pick(&maps);
    let (template, keys) = generator.entry(map);
    Some(Node::stmt(&format!("delete {template}"), keys))
}

/// Generates `q.push(e)`, `b.add(e)`.
pub fn added(generator: &mut Gen) -> Option<Node> {
    if generator.queues.is_empty() {
        return None;
    }
    let queue = generator.rng.pick(&generator.queues).clone();
    let method = if queue.kind == "bloom" { "add" } else { "push" };
    let value = generator.fitting(&queue.value);
    Some(Node::stmt(&format!("{}.{method}($)", queue.name), vec![value]))
}

/// Generates `q.pop()`, `q.peek()`.
pub fn taken(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let fits = |queue: &&Queue| queue.kind != "bloom" && queue.value == *ty;
    let queues: Vec<&Queue> = generator.queues.iter().filter(fits).collect();
    if queues.is_empty() {
        return None;
    }
    let name = &generator.rng.pick(&queues).name;
    let method = *generator.rng.pick(&["pop", "peek"]);
    Some(Node::expr(ty, &format!("{name}.{method}()"), Vec::new()))
}

/// Generates `b.has(e)`.
pub fn maybe_added(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let filters: Vec<&Queue> = generator.queues.iter().filter(|queue| queue.kind == "bloom").collect();
    if *ty != Ty::Bool || filters.is_empty() {
        return None;
    }
    let filter = (*generator.rng.pick(&filters)).clone();
    let value = generator.fitting(&filter.value);
    Some(Node::expr(ty, &format!("{}.has($)", filter.name), vec![value]))
}

/// Generates `var o = new T()`; the compiler deletes the object if no statement does.
pub fn object(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only || generator.function.loops > 1 {
        return None;
    }
    let ty = generator.pointed_type();
    let name = generator.name("own");
    let start = Node::stmt(&format!("var {name} = new {}()", ty.name()), Vec::new());
    generator.function.pointers.push(Var::owner(name.clone(), ty));
    if generator.rng.one_in(2) {
        return Some(start);
    }
    let used = generator.stmts(2);
    generator.function.pointers.retain(|one| one.name != name);
    let ended = Node::stmt(&format!("delete {name}"), Vec::new());
    let placeholders = "$\n".repeat(used.len());
    let children = std::iter::once(start).chain(used).chain([ended]).collect();
    Some(Node::stmt(&format!("$\n{placeholders}$"), children))
}

/// Generates `m[k] = new T()`, `m[k] = p`, `delete m[k]`, `var p = m[k]` for a map that owns objects.
pub fn owned(generator: &mut Gen) -> Option<Node> {
    if generator.object_maps.is_empty() || generator.function.loops > 1 {
        return None;
    }
    let map = generator.rng.pick(&generator.object_maps).clone();
    let key = generator.fitting(&map.key);
    let (owner, target) = (map.name, map.value.name());
    match generator.rng.below(5) {
        0 => Some(Node::stmt(&format!("{owner}[$] = new {target}()"), vec![key])),
        1 => Some(Node::stmt(&format!("delete {owner}[$]"), vec![key])),
        2 => {
            let name = generator.name("own");
            let text = format!("var {name} = new {target}()\n{owner}[$] = {name}");
            generator.function.pointers.push(Var::owner(name, map.value));
            Some(Node::stmt(&text, vec![key]))
        }
        _ => {
            let name = generator.name("own");
            let text = format!("var {name} = {owner}[$]");
            generator.function.pointers.push(Var::owner(name, map.value));
            Some(Node::stmt(&text, vec![key]))
        }
    }
}

/// Generates `var e = r.reserve()`; the compiler discards the record if no statement submits it.
pub fn open_record(generator: &mut Gen) -> Option<Node> {
    if generator.rings.is_empty() || generator.function.loops > 1 {
        return None;
    }
    let ring = generator.rng.pick(&generator.rings).clone();
    let name = generator.name("e");
    let text = format!("var {name} = {}.reserve()", ring.name);
    let ty = Ty::Struct(ring.record);
    generator.function.pointers.push(Var::writable(name.clone(), ty));
    if generator.rng.one_in(3) {
        return Some(Node::stmt(&text, Vec::new()));
    }
    let condition = generator.unknown(&Ty::Bool);
    let submitted = Node::block(vec![Node::stmt(&format!("{}.submit({name})", ring.name), Vec::new())]);
    let used = generator.body();
    let text = match generator.rng.below(3) {
        0 => format!("{text}\nif ($) $ else $"),
        1 => format!("{text}\nif ({name} == null || $) $ else $"),
        _ => format!("{text}\nif ({name} != null && $) $ else $"),
    };
    generator.function.pointers.retain(|one| one.name != name);
    Some(Node::stmt(&text, vec![condition, used, submitted]))
}

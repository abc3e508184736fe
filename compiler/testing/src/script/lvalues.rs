//! Lvalues of a script: variables and map elements, and parts of them.

use super::exprs::MAX_DEPTH;
use super::scope::{Gen, Key, Map};
use super::tree::Node;
use super::types::{Ty, U32, U64};

/// An lvalue as text with a `$` for each index.
struct Path {
    template: String,
    indices: Vec<Index>,
}

#[derive(Clone)]
enum Index {
    /// An index into an array or string of this many elements.
    Element(u32),
    /// A key of the map with this number.
    Key(usize),
    /// A key of the map of maps with this number, which names one of its inner maps.
    OuterKey(usize),
}

/// The use of an lvalue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Gen {
    /// Generates an lvalue of exactly this type that can be read.
    pub fn lvalue_to_read(&mut self, ty: &Ty) -> Option<Node> {
        let paths = self.paths(ty, Access::Read);
        self.lvalue_of(ty, paths)
    }

    /// Generates a writable lvalue of exactly this type.
    pub fn lvalue_to_write(&mut self, ty: &Ty) -> Option<Node> {
        let paths = self.paths(ty, Access::Write);
        self.lvalue_of(ty, paths)
    }

    /// Generates a writable variable or map element of exactly this type, not a part of one.
    pub fn whole(&mut self, ty: &Ty) -> Option<Node> {
        let vars =
            self.function.locals.iter().chain(&self.globals).filter(|var| var.writable && var.ty == *ty);
        let names: Vec<String> = vars.map(|var| var.name.clone()).collect();
        if names.is_empty() || self.rng.one_in(3) {
            return self.element(ty);
        }
        Some(Node::expr(ty, self.rng.pick::<String>(&names), Vec::new()))
    }

    /// Generates a map element of exactly this type, not a part of one.
    pub fn element(&mut self, ty: &Ty) -> Option<Node> {
        let maps =
            (0..self.maps.len()).filter(|map| self.maps[*map].value == *ty && self.can_name_entries(*map));
        let paths = maps.map(|map| self.map_path(map)).collect();
        self.lvalue_of(ty, paths)
    }

    fn lvalue_of(&mut self, ty: &Ty, mut paths: Vec<Path>) -> Option<Node> {
        if paths.is_empty() {
            return None;
        }
        let path = paths.swap_remove(self.rng.below(paths.len()));
        let mut children = Vec::new();
        for index in path.indices {
            children.push(self.index_of(index));
        }
        Some(Node::expr(ty, &path.template, children))
    }

    fn index_of(&mut self, index: Index) -> Node {
        match index {
            Index::Element(len) => self.index(len),
            Index::Key(map) => self.key(map),
            Index::OuterKey(map) => self.outer_key(map),
        }
    }

    fn can_name_entries(&self, map: usize) -> bool {
        self.function.has_context || !self.maps[map].is_storage()
    }

    fn map_path(&self, map: usize) -> Path {
        let Map { name, outer, .. } = &self.maps[map];
        if outer.is_some() {
            let indices = vec![Index::OuterKey(map), Index::Key(map)];
            return Path { template: format!("{name}[$][$]"), indices };
        }
        Path { template: format!("{name}[$]"), indices: vec![Index::Key(map)] }
    }

    fn paths(&self, ty: &Ty, access: Access) -> Vec<Path> {
        let mut found = Vec::new();
        let is_read = access == Access::Read;
        for var in self.function.locals.iter().chain(&self.globals) {
            if var.writable || is_read {
                let path = Path { template: var.name.clone(), indices: Vec::new() };
                self.parts(path, &var.ty, ty, &mut found);
            }
        }
        for pointer in self.function.pointers.iter().filter(|pointer| pointer.writable || is_read) {
            match &pointer.ty {
                Ty::Struct(number) => {
                    for (index, field) in self.structs[*number].iter().enumerate() {
                        let template = format!("{}->f{index}", pointer.name);
                        self.parts(Path { template, indices: Vec::new() }, field, ty, &mut found);
                    }
                }
                // At the start of a statement it would continue the previous one.
                target if is_read && target == ty => {
                    let template = format!("(*{})", pointer.name);
                    found.push(Path { template, indices: Vec::new() });
                }
                _ => {}
            }
        }
        // Map elements only within the limits of expressions: a key may contain another element.
        if self.has_room() {
            for (number, map) in self.maps.iter().enumerate().filter(|(map, _)| self.can_name_entries(*map)) {
                self.parts(self.map_path(number), &map.value, ty, &mut found);
            }
        }
        found
    }

    fn parts(&self, path: Path, ty: &Ty, wanted: &Ty, found: &mut Vec<Path>) {
        match ty {
            Ty::Struct(number) => {
                for (index, field) in self.structs[*number].iter().enumerate() {
                    let template = format!("{}.f{index}", path.template);
                    self.parts(Path { template, indices: path.indices.clone() }, field, wanted, found);
                }
            }
            Ty::Array(element, len) => {
                let mut indices = path.indices.clone();
                indices.push(Index::Element(*len));
                let template = format!("{}[$]", path.template);
                self.parts(Path { template, indices }, element, wanted, found);
            }
            _ => {}
        }
        if ty == wanted {
            found.push(path);
        }
    }

    fn has_room(&self) -> bool {
        self.function.fuel > 0 && self.function.depth < MAX_DEPTH
    }

    /// Generates an index into `len` elements; a constant index is within bounds.
    pub fn index(&mut self, len: u32) -> Node {
        if self.has_room() && !self.rng.one_in(4) {
            let ty = Ty::Int(self.int_type());
            let index = self.expr(&ty);
            if !index.is_constant() {
                return index;
            }
        }
        Node::constant(&Ty::Int(U32), self.rng.below(len as usize).to_string())
    }

    /// Generates an entry of a map: a text with a `$` for each key, and the keys.
    pub fn entry(&mut self, map: usize) -> (String, Vec<Node>) {
        let Path { template, indices } = self.map_path(map);
        (template, indices.into_iter().map(|index| self.index_of(index)).collect())
    }

    /// Generates a key of a map; of a map of maps one of an inner map.
    pub fn key(&mut self, map: usize) -> Node {
        match &self.maps[map].key {
            Key::Value(key) => self.key_of(&key.clone(), self.maps[map].elements()),
            Key::Object(object) => Node::constant(&Ty::Int(U64), (*object).into()),
        }
    }

    /// Generates a key that names an inner map.
    pub fn outer_key(&mut self, map: usize) -> Node {
        let outer = self.maps[map].outer.clone().expect("a map of maps");
        self.key_of(&outer.key, (outer.kind == "array").then_some(outer.size))
    }

    /// Generates a key of this type; of an array of so many elements a constant key is within bounds.
    fn key_of(&mut self, ty: &Ty, elements: Option<u32>) -> Node {
        let key = self.fitting(ty);
        match elements {
            Some(elements) if key.is_constant() => {
                Node::constant(&Ty::Int(U32), self.rng.below(elements as usize).to_string())
            }
            _ => key,
        }
    }
}

//! Whole scripts: types, maps, variables, functions and a program.

use super::constants;
use super::kinds::PROGRAMS;
use super::scope::{Gen, Halves, Helper, Key, Map, Param, ScriptFunction, Var};
use super::tree::Node;
use super::types::{Ty, enumerator};

pub const MAP_KINDS: &[&str] =
    &["hash", "array", "percpu_hash", "percpu_array", "lru_hash", "lru_percpu_hash"];
/// Map types that the userspace half of a test supports, too.
const SHARED_MAP_KINDS: &[&str] = &["hash", "array", "percpu_hash", "percpu_array", "lru_hash"];

/// Generates the script of a seed.
pub fn script(seed: u64, halves: Halves) -> Node {
    let mut generator = Gen::new(seed, halves);
    if generator.kernel_only {
        generator.program = generator.rng.pick(PROGRAMS);
    }
    let mut items = Vec::new();
    for _ in 0..generator.rng.below(3) {
        items.push(generator.enumeration());
    }
    for _ in 0..generator.rng.below(4) {
        items.push(generator.structure());
    }
    for _ in 0..generator.rng.below(5) {
        items.push(generator.map());
    }
    for _ in 0..4 + generator.rng.below(8) {
        items.push(generator.global());
    }
    if generator.kernel_only {
        for _ in 0..generator.rng.below(3) {
            items.push(generator.config());
        }
        for _ in 0..generator.rng.below(3) {
            items.extend(generator.ring());
        }
        if generator.rng.one_in(3) {
            items.push(generator.queue());
        }
        if generator.rng.one_in(3) {
            items.push(generator.object_map());
        }
        if generator.rng.one_in(3) {
            items.push(generator.map_of_maps());
        }
        if generator.rng.one_in(2) {
            items.extend(generator.storage());
        }
    }
    for _ in 0..generator.rng.below(4) {
        items.push(generator.helper());
    }
    if generator.kernel_only && generator.program.has_tail_calls && generator.rng.one_in(3) {
        items.push(generator.program("after"));
        generator.next = Some("after".into());
    }
    items.push(generator.program("watch"));
    items.extend(generator.items_around());
    Node::script(items)
}

impl Gen {
    /// Returns the additional items that the functions written so far need.
    pub fn items_around(&mut self) -> Vec<Node> {
        let mut items = Vec::new();
        for ty in std::mem::take(&mut self.holders) {
            items.push(Node::stmt(&format!("struct H{ty} {{ n: u32, p: *{ty}, o: *{ty} }}"), Vec::new()));
            items.push(Node::stmt(&format!("type P{ty} = *{ty}"), Vec::new()));
        }
        items.extend(std::mem::take(&mut self.around).iter().map(|text| Node::stmt(text, Vec::new())));
        items
    }

    fn enumeration(&mut self) -> Node {
        let number = self.enums.len();
        let count = 1 + self.rng.below(5);
        let members: Vec<String> = (0..count)
            .map(|member| match self.rng.below(4) {
                0 => format!("{} = {}", enumerator(number, member), 100 * member + 3),
                _ => enumerator(number, member),
            })
            .collect();
        self.enums.push(count);
        Node::stmt(&format!("enum E{number} {{ {} }}", members.join(", ")), Vec::new())
    }

    fn structure(&mut self) -> Node {
        let number = self.structs.len();
        let mut fields = Vec::new();
        let mut left = 32;
        for _ in 0..1 + self.rng.below(5) {
            let ty = self.any_type();
            let bytes = self.bytes(&ty).next_multiple_of(8);
            if bytes <= left {
                left -= bytes;
                fields.push(ty);
            }
        }
        if fields.is_empty() {
            fields.push(self.scalar_type());
        }
        let texts: Vec<String> =
            fields.iter().enumerate().map(|(index, ty)| format!("f{index}: {}", ty.name())).collect();
        self.structs.push(fields);
        Node::stmt(&format!("struct S{number} {{ {} }}", texts.join(", ")), Vec::new())
    }

    fn map(&mut self) -> Node {
        let kinds = if self.kernel_only { MAP_KINDS } else { SHARED_MAP_KINDS };
        let kind = *self.rng.pick(kinds);
        let key = match self.rng.below(4) {
            _ if kind.ends_with("array") => Ty::Int(self.int_type()),
            0 => self.any_type(),
            1 => Ty::Str(*self.rng.pick(&[4, 8, 16])),
            _ => self.scalar_type(),
        };
        let value = self.any_type();
        let size = 1 + self.rng.below(64) as u32;
        let name = self.name("m");
        let text = format!("var {name}: {kind}<{}, {}>({size})", key.name(), value.name());
        self.maps.push(Map { name, kind, key: Key::Value(key), value, size, outer: None });
        Node::stmt(&text, Vec::new()).of(kind)
    }

    fn global(&mut self) -> Node {
        let ty = match self.rng.below(6) {
            0 => {
                let element = self.any_type();
                let len = 1 + self.rng.below(40) as u32;
                if matches!(element, Ty::Array(..) | Ty::Str(_)) {
                    element
                } else {
                    Ty::Array(Box::new(element), len)
                }
            }
            _ => self.any_type(),
        };
        let name = self.name("g");
        let start = match &ty {
            Ty::Array(..) | Ty::Struct(_) => None,
            _ if self.rng.one_in(3) => None,
            Ty::Int(int) => Some(constants::fitting(self, *int)),
            _ => Some(Node::constant(&ty, ty.simplest().expect("a scalar or a string"))),
        };
        let local = if self.rng.one_in(4) { "local " } else { "" };
        let text = format!("{local}var {name}: {}", ty.name());
        self.globals.push(Var::writable(name, ty));
        match start {
            Some(start) => Node::stmt(&format!("{text} = $"), vec![start]),
            None => Node::stmt(&text, Vec::new()),
        }
    }

    fn helper(&mut self) -> Node {
        let name = self.name("h");
        let count = if self.rng.one_in(6) { 8 } else { self.rng.below(5) };
        let params: Vec<Param> = (0..count).map(|_| self.param()).collect();
        let has_context = self.kernel_only && self.rng.one_in(3);
        let ret = match self.rng.below(6) {
            0 => None,
            1 if !self.structs.is_empty() => Some(Ty::Struct(self.rng.below(self.structs.len()))),
            2 => Some(Ty::Str(*self.rng.pick(&[4, 8, 16]))),
            _ => Some(self.scalar_type()),
        };
        let throws = self.rng.one_in(3);
        self.function = ScriptFunction {
            ret: ret.clone(),
            named_return: ret.is_some() && self.rng.one_in(4),
            can_throw: throws,
            has_context,
            fuel: *self.rng.pick(&[10, 25, 50]),
            stack: 48,
            ..ScriptFunction::default()
        };
        let mut texts = Vec::new();
        if has_context && !self.program.params.is_empty() {
            texts.push(self.program.params.to_owned());
        }
        for param in &params {
            let name = self.name("p");
            texts.push(format!("{name}: {}", param.type_name()));
            self.declare_param(name, param);
        }
        let result = self.name("r");
        let returns = match &ret {
            None => " -> void".into(),
            Some(ty) if self.function.named_return => {
                self.declare(&result, ty);
                format!(" -> {result}: {}", ty.name())
            }
            Some(ty) => format!(" -> {}", ty.name()),
        };
        let body = self.function_body(5);
        let ScriptFunction { frames, calls_values, .. } = self.function;
        let header = format!("@helper fn {name}({}){returns} $", texts.join(", "));
        self.helpers.push(Helper { name, has_context, params, ret, throws, frames, calls_values });
        Node::stmt(&header, vec![body])
    }

    fn declare_param(&mut self, name: String, param: &Param) {
        match param {
            Param::Value(ty) => self.declare(&name, ty),
            Param::Pointer(ty) => {
                self.function.pointers.push(Var::writable(name, ty.clone()));
            }
            Param::Function { ty, frames } => {
                let fits = |one: &&Helper| one.is_value() && one.value_type() == *ty;
                let model = self.helpers.iter().find(fits).expect("its type is that of a helper").clone();
                let value = Helper { name, calls_values: true, frames: *frames, ..model };
                self.function.values.push(value);
            }
        }
    }

    fn program(&mut self, name: &str) -> Node {
        let program = self.program;
        self.function = ScriptFunction {
            ret: program.result.map(Ty::Int),
            is_program: true,
            has_context: true,
            fuel: *self.rng.pick(&[30, 60, 90, 150]),
            stack: 128,
            ..ScriptFunction::default()
        };
        let body = self.function_body(12);
        Node::stmt(&program.header(name), vec![body]).of(program.attribute)
    }

    fn function_body(&mut self, most: usize) -> Node {
        self.block(|generator| {
            let mut stmts = generator.stmts(most);
            stmts.push(generator.result());
            stmts
        })
    }
}

//! Productions of calls: of functions with parameters of every type, of the kernel's helpers, and tail calls.

use super::exprs::MAX_DEPTH;
use super::kinds::CALLS;
use super::scope::{Gen, Helper, MAX_FRAMES, Param};
use super::tree::Node;
use super::types::{Int, Ty, U32};

impl Gen {
    /// Generates a call of a function with this result type.
    pub fn call_of(&mut self, ret: Option<&Ty>) -> Option<Node> {
        let function = &self.function;
        let fits = |helper: &&Helper| {
            helper.frames < MAX_FRAMES
                && (!helper.throws || function.can_throw)
                && (!helper.has_context || function.has_context)
                && ret.is_none_or(|ty| helper.ret.as_ref() == Some(ty))
        };
        let helpers: Vec<&Helper> = self.helpers.iter().chain(&function.values).filter(fits).collect();
        if helpers.is_empty() {
            return None;
        }
        let helper = (*self.rng.pick(&helpers)).clone();
        let mut texts = Vec::new();
        if helper.has_context && !self.program.args.is_empty() {
            texts.push(self.program.args.to_owned());
        }
        let mut values = Vec::new();
        let mut frames = helper.frames + 1;
        for param in &helper.params {
            match param {
                Param::Value(ty) => {
                    values.push(self.fitting(ty));
                    texts.push("$".into());
                }
                Param::Pointer(ty) => {
                    values.push(self.pointer_to(ty));
                    texts.push("$".into());
                }
                Param::Function { ty, frames: most } => {
                    texts.push(self.function_of(ty, *most)?);
                    frames = frames.max(helper.frames + most + 1);
                }
            }
        }
        self.function.frames = self.function.frames.max(frames);
        self.function.calls_values |= helper.calls_values;
        let ty = helper.ret.unwrap_or(Ty::Bool);
        Some(Node::expr(&ty, &format!("{}({})", helper.name, texts.join(", ")), values))
    }

    /// Generates a pointer to a writable value, or null.
    fn pointer_to(&mut self, ty: &Ty) -> Node {
        let pointers = &self.function.pointers;
        let fitting: Vec<&str> = pointers
            .iter()
            .filter(|one| one.writable && one.ty == *ty)
            .map(|one| one.name.as_str())
            .collect();
        if !fitting.is_empty() && self.rng.one_in(2) {
            return Node::stmt(self.rng.pick::<&str>(&fitting), Vec::new());
        }
        match self.lvalue_to_write(ty) {
            Some(lvalue) if !self.rng.one_in(8) => Node::stmt("&$", vec![lvalue]),
            _ => Node::stmt("null", Vec::new()),
        }
    }

    /// Generates the address of `bytes` bytes at the start of a variable or map element, or null.
    fn memory(&mut self, bytes: u32) -> Node {
        let vars = self.function.locals.iter().chain(&self.globals);
        let types = vars.filter(|var| var.writable).map(|var| var.ty.clone());
        let is_plain = |ty: &Ty| match ty {
            Ty::Array(element, _) => element.is_scalar(),
            other => !matches!(other, Ty::Struct(_)),
        };
        let large: Vec<Ty> = types
            .chain(self.maps.iter().map(|map| map.value.clone()))
            .filter(|ty| is_plain(ty) && self.bytes(ty) >= bytes)
            .collect();
        if large.is_empty() {
            return Node::stmt("null", Vec::new());
        }
        let ty = self.rng.pick(&large).clone();
        match self.whole(&ty) {
            Some(lvalue) => Node::stmt("&$", vec![lvalue]),
            None => Node::stmt("null", Vec::new()),
        }
    }

    /// Returns the name of a function of this type.
    fn function_of(&mut self, ty: &str, frames: u32) -> Option<String> {
        let fits = |one: &&Helper| one.is_value() && one.frames <= frames && one.value_type() == ty;
        let helpers: Vec<&Helper> = self.helpers.iter().filter(fits).collect();
        (!helpers.is_empty()).then(|| self.rng.pick(&helpers).name.clone())
    }

    /// Generates a parameter of a function.
    pub fn param(&mut self) -> Param {
        if !self.kernel_only {
            return Param::Value(self.any_type());
        }
        match self.rng.below(8) {
            0 => Param::Pointer(self.pointed_type()),
            1 => {
                let values: Vec<&Helper> = self.helpers.iter().filter(|one| one.is_value()).collect();
                if values.is_empty() {
                    Param::Value(self.any_type())
                } else {
                    let model = self.rng.pick(&values);
                    Param::Function { ty: model.value_type(), frames: model.frames }
                }
            }
            _ => Param::Value(self.any_type()),
        }
    }

    /// Returns a type that pointers point to.
    pub fn pointed_type(&mut self) -> Ty {
        if self.structs.is_empty() || self.rng.one_in(3) {
            self.scalar_type()
        } else {
            Ty::Struct(self.rng.below(self.structs.len()))
        }
    }
}

pub fn call(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    generator.call_of(Some(ty))
}

/// Generates a call of one of the kernel's helpers.
pub fn kernel(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if !generator.kernel_only || generator.function.depth >= MAX_DEPTH {
        return None;
    }
    let own = if generator.function.has_context { generator.program.calls } else { &[] };
    let fits = |(int, _): &&(Int, &str)| *ty == Ty::Int(*int);
    let calls: Vec<&str> = own.iter().chain(CALLS).filter(fits).map(|(_, text)| *text).collect();
    if calls.is_empty() {
        return None;
    }
    let call = *generator.rng.pick(&calls);
    let mut values = Vec::new();
    for letter in call.chars().filter(|letter| matches!(letter, '$' | '&')) {
        values.push(match letter {
            '$' => generator.unknown(&Ty::Int(U32)),
            _ => generator.memory(8),
        });
    }
    Some(Node::expr(ty, &call.replace('&', "$"), values))
}

/// Generates a tail call: another program replaces this one.
pub fn next_program(generator: &mut Gen) -> Option<Node> {
    let next = generator.next.clone().filter(|_| generator.function.is_program)?;
    let condition = generator.condition();
    let args = generator.program.args;
    let leaving = match generator.rng.below(3) {
        0 => {
            let of = generator.unknown(&Ty::Int(U32));
            let ty = Ty::Int(generator.program.result?);
            let other = generator.expr(&ty);
            let text = format!("return match ($) {{ 1: {next}({args}), default: $ }}");
            Node::stmt(&text, vec![of, other])
        }
        _ => Node::stmt(&format!("return {next}({args})"), Vec::new()),
    };
    Some(Node::stmt("if ($) $", vec![condition, Node::block(vec![leaving])]))
}

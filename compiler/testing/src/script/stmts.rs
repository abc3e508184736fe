//! Productions of statements. A new one is a function and an entry of the table.

use super::scope::{Gen, Key, Var};
use super::tree::Node;
use super::types::{I32, I64, Int, Ty, U32};
use super::{calls, constants, forms, kernel_memory, locks, state, texts};

/// Generates a statement, or nothing where it is not allowed.
type Production = fn(&mut Gen) -> Option<Node>;

const PRODUCTIONS: &[(usize, &str, Production)] = &[
    (8, "declaration", declaration),
    (1, "const", constant),
    (3, "binding of an element", binding),
    (2, "binding set anew", rebound),
    (9, "assignment", assignment),
    (6, "compound assignment", compound),
    (6, "store into a map", store),
    (6, "if", branch),
    (3, "if with a binding", bound_branch),
    (3, "for over a range", counted),
    (1, "for over an array", for_array),
    (3, "for over a map", for_map),
    (2, "while", repeated),
    (2, "break or continue", leave_loop),
    (2, "match", selection),
    (3, "call as a statement", call),
    (2, "return", leave),
    (2, "throw", throw),
    (2, "try", attempt),
    (1, "defer", deferred),
    (2, "pointer", forms::pointer),
    (1, "pointer set anew", forms::repointed),
    (2, "pointer in memory", forms::held),
    (1, "function in a variable", forms::function_value),
    (1, "record of a ring", forms::record),
    (1, "tail call", calls::next_program),
    (2, "print", texts::printed),
    (2, "delete of an element", state::removed),
    (2, "push or add", state::added),
    (2, "new", state::object),
    (2, "object in a map", state::owned),
    (8, "lock", locks::locked),
    (1, "record of a ring in branches", state::open_record),
    (1, "call of the kernel's helper as a statement", kernel_call),
    (3, "member of a kernel struct", kernel_memory::read),
    (1, "text or bytes that may be unreadable", kernel_memory::text),
];

/// Returns the constructs that statements can be instances of.
pub fn constructs() -> impl Iterator<Item = &'static str> {
    PRODUCTIONS.iter().map(|(_, construct, _)| *construct)
}

/// Limit on the nesting of blocks.
const MAX_NESTING: u32 = 4;

impl Gen {
    pub fn stmt(&mut self) -> Option<Node> {
        (0..20).find_map(|_| {
            let (construct, production) = self.rng.weighted(PRODUCTIONS);
            production(self).map(|generated| generated.of(construct))
        })
    }

    pub fn stmts(&mut self, most: usize) -> Vec<Node> {
        let count = 1 + self.rng.below(most);
        (0..count).filter_map(|_| self.stmt()).collect()
    }

    pub fn body(&mut self) -> Node {
        self.block(|generator| generator.stmts(4))
    }

    fn may_nest(&self) -> bool {
        self.function.nesting < MAX_NESTING && self.function.fuel > 8
    }

    pub fn claim(&mut self, ty: &Ty) -> bool {
        let bytes = self.bytes(ty).next_multiple_of(8);
        self.claim_bytes(bytes)
    }

    /// Whether a local of this many bytes may be declared.
    pub fn claim_bytes(&mut self, bytes: u32) -> bool {
        let fits = bytes <= self.function.stack;
        if fits {
            self.function.stack -= bytes;
        }
        fits
    }
}

fn declaration(generator: &mut Gen) -> Option<Node> {
    let ty = generator.any_type();
    if !generator.claim(&ty) {
        return None;
    }
    let name = generator.name("v");
    let stmt = match generator.rng.below(4) {
        0 => Node::stmt(&format!("var {name}: {}", ty.name()), Vec::new()),
        1 if !matches!(ty, Ty::Array(..)) => {
            Node::stmt(&format!("var {name} = $"), vec![generator.expr(&ty)])
        }
        _ => {
            let value = match ty {
                Ty::Array(..) => generator.array_literal(&ty),
                _ => generator.fitting(&ty),
            };
            Node::stmt(&format!("var {name}: {} = $", ty.name()), vec![value])
        }
    };
    generator.declare(&name, &ty);
    Some(stmt)
}

fn constant(generator: &mut Gen) -> Option<Node> {
    let int = generator.int_type();
    let name = generator.name("c");
    let value = constants::fitting(generator, int);
    Some(Node::stmt(&format!("const {name}: {} = $", Ty::Int(int).name()), vec![value]))
}

/// Generates `var x = m[k]`, or the assignment of another element to a variable.
fn binding(generator: &mut Gen) -> Option<Node> {
    let element = generator.any_element()?;
    let super::tree::NodeKind::Expr { ty, .. } = element.kind.clone() else { return None };
    if !generator.claim(&ty) {
        return None;
    }
    let name = generator.name("b");
    generator.declare(&name, &ty);
    if generator.may_nest() && generator.rng.one_in(2) {
        // The null check can be removed from the script separately.
        let test = *generator.rng.pick(&["== null", "!= null"]);
        let inside = generator.body();
        return Some(Node::stmt(&format!("var {name} = $\nif ({name} {test}) $"), vec![element, inside]));
    }
    Some(Node::stmt(&format!("var {name} = $"), vec![element]))
}

/// Generates the assignment of another element to a variable of a structure or array, which is bound to it then.
fn rebound(generator: &mut Gen) -> Option<Node> {
    let is_bound = |var: &&Var| var.name.starts_with('b') && var.writable && !var.ty.is_scalar();
    let bound: Vec<Var> = generator.function.locals.iter().filter(is_bound).cloned().collect();
    if bound.is_empty() {
        return None;
    }
    let var = generator.rng.pick(&bound).clone();
    let element = generator.element(&var.ty)?;
    Some(Node::stmt(&format!("{} = $", var.name), vec![element]))
}

fn assignment(generator: &mut Gen) -> Option<Node> {
    let ty = generator.any_type();
    let lvalue = generator.lvalue_to_write(&ty)?;
    let value = match ty {
        Ty::Array(..) => generator.lvalue_to_read(&ty)?,
        _ => generator.fitting(&ty),
    };
    Some(Node::stmt("$ = $", vec![lvalue, value]))
}

fn compound(generator: &mut Gen) -> Option<Node> {
    let int = generator.int_type();
    let lvalue = generator.lvalue_to_write(&Ty::Int(int))?;
    let op = *generator.rng.pick(&["+", "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
    let other = *generator.rng.pick(&Int::ALL);
    let ty = Ty::Int(if int.combine(other).is_some() { other } else { int });
    let mut value = generator.expr(&ty);
    if matches!(op, "/" | "%") {
        value = generator.divisor(value, &ty);
    }
    Some(Node::stmt(&format!("$ {op}= $"), vec![lvalue, value]))
}

/// Generates an assignment to a whole map element.
fn store(generator: &mut Gen) -> Option<Node> {
    let element = generator.any_element()?;
    let super::tree::NodeKind::Expr { ty, .. } = element.kind.clone() else { return None };
    let value = match ty {
        Ty::Array(..) => generator.lvalue_to_read(&ty)?,
        _ => generator.fitting(&ty),
    };
    Some(Node::stmt("$ = $", vec![element, value]))
}

fn branch(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let mut children = vec![generator.condition(), generator.body()];
    let mut template = String::from("if ($) $");
    while generator.rng.one_in(4) {
        template += " else if ($) $";
        children.extend([generator.condition(), generator.body()]);
    }
    if generator.rng.one_in(2) {
        template += " else $";
        children.push(generator.body());
    }
    Some(Node::stmt(&template, children))
}

/// Generates `if (var x = m[k])`.
fn bound_branch(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let element = match generator.rng.below(4) {
        0 => {
            let ty = Ty::Int(generator.int_type());
            generator.unknown(&ty)
        }
        _ => generator.any_element()?,
    };
    let super::tree::NodeKind::Expr { ty, .. } = element.kind.clone() else { return None };
    if !generator.claim(&ty) {
        return None;
    }
    let name = generator.name("b");
    let inside = generator.block(|generator| {
        generator.declare(&name, &ty);
        generator.stmts(4)
    });
    let mut children = vec![element, inside];
    let mut template = format!("if (var {name} = $) $");
    if generator.rng.one_in(2) {
        template += " else $";
        children.push(generator.body());
    }
    Some(Node::stmt(&template, children))
}

fn counted(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let name = generator.name("n");
    let (template, mut children, ty) = if generator.rng.one_in(2) {
        let start = generator.rng.below(10);
        let iterations = 1 + *generator.rng.pick(&[0, 1, 2, 4, 7, 15, 63, 64, 99, 299, 9999]);
        (format!("for ({name} in {start}..{}) $", start + iterations), Vec::new(), U32)
    } else {
        let (a, b) = (generator.int_type(), generator.int_type());
        let b = if a.combine(b).is_some() { b } else { a };
        let ends = vec![generator.unknown(&Ty::Int(a)), generator.unknown(&Ty::Int(b))];
        (format!("for ({name} in ($)..($)) $"), ends, a.combine(b)?)
    };
    let body = generator.loop_body(&[(&name, &Ty::Int(ty))]);
    children.push(body);
    Some(Node::stmt(&template, children))
}

impl Gen {
    fn loop_body(&mut self, variables: &[(&str, &Ty)]) -> Node {
        self.function.loops += 1;
        let body = self.block(|generator| {
            for (name, ty) in variables {
                generator.declare_read_only(name, ty);
            }
            generator.stmts(4)
        });
        self.function.loops -= 1;
        body
    }
}

/// Generates `for (i, v in array)`.
fn for_array(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let element = if generator.rng.one_in(4) { generator.any_type() } else { generator.scalar_type() };
    if matches!(element, Ty::Array(..)) || !generator.claim(&element) {
        return None;
    }
    let len = 1 + generator.rng.below(8) as u32;
    let array = Ty::Array(Box::new(element.clone()), len);
    let lvalue = generator.lvalue_to_read(&array).or_else(|| {
        let arrays = generator.globals.iter().find(|global| matches!(global.ty, Ty::Array(..)))?;
        let (name, ty) = (arrays.name.clone(), arrays.ty.clone());
        Some(Node::expr(&ty, &name, Vec::new()))
    })?;
    let super::tree::NodeKind::Expr { ty: Ty::Array(element, _), .. } = lvalue.kind.clone() else {
        return None;
    };
    let (key, value) = (generator.name("n"), generator.name("v"));
    let body = generator.loop_body(&[(&key, &Ty::Int(U32)), (&value, &element)]);
    Some(Node::stmt(&format!("for ({key}, {value} in $) $"), vec![lvalue, body]))
}

/// Generates `for (k, v in m)`.
fn for_map(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only || !generator.may_nest() || generator.function.loops > 1 {
        return None;
    }
    if generator.maps.is_empty() {
        return None;
    }
    let map = &generator.maps[generator.rng.below(generator.maps.len())];
    // Programs cannot go through inner maps.
    let (Key::Value(key), None) = (&map.key, &map.outer) else { return None };
    let (map, key, value) = (map.name.clone(), key.clone(), map.value.clone());
    if !generator.claim(&key) || !generator.claim(&value) {
        return None;
    }
    let (first, second) = (generator.name("w"), generator.name("v"));
    generator.function.loops += 1;
    let body = generator.block(|generator| {
        generator.declare_read_only(&first, &key);
        generator.declare(&second, &value);
        generator.stmts(4)
    });
    generator.function.loops -= 1;
    Some(Node::stmt(&format!("for ({first}, {second} in {map}) $"), vec![body]))
}

fn repeated(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let condition = generator.condition();
    let body = generator.loop_body(&[]);
    Some(Node::stmt("while ($) $", vec![condition, body]))
}

/// Generates `break` or `continue` under a condition, so that the rest of the loop is reachable.
fn leave_loop(generator: &mut Gen) -> Option<Node> {
    if generator.function.loops == 0 {
        return None;
    }
    let keyword = *generator.rng.pick(&["break", "continue"]);
    let inside = Node::block(vec![Node::stmt(keyword, Vec::new())]);
    Some(Node::stmt("if ($) $", vec![generator.condition(), inside]))
}

/// Generates a `match` without a value.
fn selection(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let of = if generator.rng.one_in(5) { Ty::Str(8) } else { generator.scalar_type() };
    let mut template = String::from("match ($) { ");
    let mut children = vec![match of {
        Ty::Str(_) => generator.lvalue_to_read(&of)?,
        _ => generator.unknown(&of),
    }];
    for arm in 0..1 + generator.rng.below(4) {
        let Some(pattern) = generator.pattern(&of, arm) else { break };
        template += &format!("{pattern}: $, ");
        children.push(generator.arm());
    }
    template += "default: $ }";
    children.push(generator.arm());
    Some(Node::stmt(&template, children))
}

impl Gen {
    /// Generates an arm that does not end in an expression: it would be the arm's value, whose type must fit
    /// that of other arms.
    fn arm(&mut self) -> Node {
        self.block(|generator| {
            let mut stmts = generator.stmts(4);
            stmts.extend(constant(generator));
            stmts
        })
    }
}

fn call(generator: &mut Gen) -> Option<Node> {
    Some(Node::stmt("$", vec![generator.call_of(None)?]))
}

/// Generates a call of one of the kernel's helpers for its effect.
fn kernel_call(generator: &mut Gen) -> Option<Node> {
    Some(Node::stmt("$", vec![calls::kernel(generator, &Ty::Int(I64))?]))
}

/// Generates a `return` under a condition.
fn leave(generator: &mut Gen) -> Option<Node> {
    let inside = generator.leaving();
    Some(Node::stmt("if ($) $", vec![generator.condition(), inside]))
}

impl Gen {
    fn leaving(&mut self) -> Node {
        self.block(|generator| vec![generator.result()])
    }

    /// Generates a `return`; without a value it must stand last in its block.
    pub fn result(&mut self) -> Node {
        match self.function.ret.clone() {
            Some(_) if self.function.named_return && self.rng.one_in(2) => Node::stmt("return", Vec::new()),
            // A number outside of `u32` is not allowed as an action.
            Some(ty) if self.function.is_program && self.program.is_action => {
                Node::stmt("return $", vec![self.expr(&ty)])
            }
            Some(ty) => Node::stmt("return $", vec![self.fitting(&ty)]),
            None => Node::stmt("return", Vec::new()),
        }
    }

    /// Calls `content` with throws forbidden.
    fn without_throws<T>(&mut self, content: impl FnOnce(&mut Gen) -> T) -> T {
        let before = std::mem::replace(&mut self.function.can_throw, false);
        let generated = content(self);
        self.function.can_throw = before;
        generated
    }
}

fn throw(generator: &mut Gen) -> Option<Node> {
    if !generator.function.can_throw {
        return None;
    }
    let code = match generator.rng.below(3) {
        0 => generator.fitting(&Ty::Int(I32)),
        _ => Node::constant(&Ty::Int(U32), (1 + generator.rng.below(4)).to_string()),
    };
    let inside = Node::block(vec![Node::stmt("throw $", vec![code])]);
    Some(Node::stmt("if ($) $", vec![generator.condition(), inside]))
}

fn attempt(generator: &mut Gen) -> Option<Node> {
    if !generator.may_nest() {
        return None;
    }
    let outside = std::mem::replace(&mut generator.function.can_throw, true);
    let body = generator.body();
    generator.function.can_throw = outside;
    let mut template = String::from("try $");
    let mut children = vec![body];
    for code in 1..1 + generator.rng.below(4) {
        template += &format!(" catch {code} $");
        children.push(generator.body());
    }
    if !outside || generator.rng.one_in(2) {
        if generator.rng.one_in(2) {
            template += " catch _ $";
            children.push(generator.body());
        } else {
            let name = generator.name("e");
            template += &format!(" catch {name} $");
            let body = generator.block(|generator| {
                generator.declare_read_only(&name, &Ty::Int(I32));
                generator.stmts(3)
            });
            children.push(body);
        }
    }
    Some(Node::stmt(&template, children))
}

fn deferred(generator: &mut Gen) -> Option<Node> {
    if generator.function.loops > 0 {
        return None;
    }
    let call = generator.without_throws(|generator| generator.call_of(None))?;
    Some(Node::stmt("defer $", vec![call]))
}

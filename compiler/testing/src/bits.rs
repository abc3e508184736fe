//! Random programs that index with numbers of which single bits are known, such as `x | 3` and `x << 4`,
//! between comparisons.
//!
//! Other random scripts rarely produce a number whose known bits contradict its bounds: that takes two limits
//! close together.

use crate::script::rng::Rng;
use crate::script::tree::{Node, Piece};
use crate::script::types::{Ty, U32};
use crate::script::{Halves, items};

/// Declarations that each program needs.
const AROUND: &str = "\
struct BitsPart { a: u8[9], b: u32 }
var bits_x: u32
var bits_y: u32
var bits_out: u32
var bits_table: u16[11]
@helper fn bits_at(i: u32) -> u32 {
    if (i >= 3) {
        return bits_table[i]
    }
    for (n in 0..(bits_x & 63)) {
        if (bits_table[i] == 4) {
            return n
        }
    }
    return bits_y
}";

const CONSTANTS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 31, 33, 64, 127, 128, 255];
const WIDTHS: &[&str] = &["u32", "u32", "u64", "u16", "u8"];
const VARIABLES: &[&str] = &["bits_x", "bits_y"];
const VARIABLES_AND_INDEX: &[&str] = &["bits_x", "bits_y", "(i as u32)"];
const CONDITIONS: &[&str] = &[">=", ">", "<", "<=", "!=", "=="];

/// Generates the script of a seed with such a program added, for loading only: the interpreter has no
/// packets.
pub fn script(seed: u64) -> Node {
    let mut script = items::script(seed, Halves::Kernel);
    // `bpftool` loads all programs of an object as one type if it is given a type.
    let header = if script.text().contains("@tc(") {
        "@tc(\"ingress\") fn bits(ctx: *__sk_buff) -> i32 $"
    } else {
        "@xdp fn bits(ctx: *xdp_md) -> xdp_action $"
    };
    script.pieces.extend(program(seed, header).into_iter().map(Piece::Node));
    script
}

/// Generates the items of a seed's program.
fn program(seed: u64, header: &str) -> Vec<Node> {
    let mut bits = Bits { rng: Rng::new(!seed), size: 0 };
    bits.size = 1 + bits.rng.below(19);
    let element = *bits.rng.pick(&["u8", "u16", "u32", "u64"]);
    let map = format!("var bits_map: array<u32, {element}[{}]>(4)", bits.size);
    let body = bits.body();
    vec![
        Node::stmt(AROUND, Vec::new()),
        Node::stmt(&map, Vec::new()),
        Node::stmt(header, vec![Node::block(body)]),
    ]
}

struct Bits {
    rng: Rng,
    /// Number of elements in a map entry.
    size: usize,
}

impl Bits {
    fn body(&mut self) -> Vec<Node> {
        let width = *self.rng.pick(WIDTHS);
        let mut stmts = vec![
            Node::stmt(&format!("var entry = bits_map[{}]", self.rng.below(4)), Vec::new()),
            Node::stmt(&format!("var i: {width} = ($ as {width})"), vec![self.number(3, VARIABLES)]),
        ];
        if self.rng.one_in(2) {
            let limit = self.rng.below(9);
            let changed =
                Node::stmt(&format!("i = ($ as {width})"), vec![self.number(2, VARIABLES_AND_INDEX)]);
            stmts.push(Node::stmt(&format!("if (bits_y > {limit}) $"), vec![Node::block(vec![changed])]));
        }
        if self.rng.one_in(3) {
            let iterations = *self.rng.pick(&["3", "bits_y & 7", "9"]);
            let changed =
                Node::stmt(&format!("i = ($ as {width})"), vec![self.number(2, VARIABLES_AND_INDEX)]);
            let read = self.guarded("bits_out += (entry[i] as u32)");
            stmts.push(Node::stmt(
                &format!("for (k in 0..({iterations})) $"),
                vec![Node::block(vec![changed, read])],
            ));
        }
        stmts.push(self.guarded("bits_out = (entry[i] as u32)"));
        for _ in 0..self.rng.below(4) {
            stmts.push(self.read());
        }
        stmts.push(Node::stmt("return 2", Vec::new()));
        stmts
    }

    /// Generates a statement guarded by a lookup and by bounds on the number.
    fn guarded(&mut self, stmt: &str) -> Node {
        let mut all = String::from("entry != null");
        for _ in 0..self.rng.below(4) {
            let condition = *self.rng.pick(CONDITIONS);
            all.push_str(&format!(" && i {condition} {}", self.rng.below(self.size + 3)));
        }
        Node::stmt(&format!("if ({all}) $"), vec![Node::block(vec![Node::stmt(stmt, Vec::new())])])
    }

    fn read(&mut self) -> Node {
        match self.rng.below(6) {
            0 => Node::stmt("bits_out += bits_table[$]", vec![self.number(2, VARIABLES_AND_INDEX)]),
            1 => Node::stmt("bits_out += bits_at($)", vec![self.number(2, VARIABLES_AND_INDEX)]),
            2 => {
                let at = *self.rng.pick(&["1", "i", "i & 7"]);
                let read = format!("if (((ctx->data + $) as *BitsPart)->a[{at}] > 3) $");
                let then = Node::block(vec![Node::stmt("bits_out += 1", Vec::new())]);
                Node::stmt(&read, vec![self.number(2, VARIABLES_AND_INDEX), then])
            }
            3 => {
                let filled = Node::stmt("near[i] = 5", Vec::new());
                let read = Node::stmt("bits_out += near[$]", vec![self.number(2, VARIABLES_AND_INDEX)]);
                let near = Node::stmt("var near: u16[9] = []", Vec::new());
                Node::stmt("if (bits_x > 1) $", vec![Node::block(vec![near, filled, read])])
            }
            4 => self.many_offsets(),
            _ => {
                let condition = *self.rng.pick(&[">=", ">", "!="]);
                let limit = 1 + self.rng.below(self.size);
                let other = Node::stmt("var j: u32 = $", vec![self.number(2, VARIABLES_AND_INDEX)]);
                let text = format!("if (entry != null && j {condition} {limit}) $");
                let write = Node::block(vec![Node::stmt("entry[j] = 1", Vec::new())]);
                let written = Node::stmt(&text, vec![write]);
                Node::stmt("if (bits_y != 1) $", vec![Node::block(vec![other, written])])
            }
        }
    }

    /// Generates reads at the same distances from several numbers.
    fn many_offsets(&mut self) -> Node {
        const OFFSETS: &[&str] = &["bits_px", "bits_py", "bits_pz"];
        const MEMORY: &[&str] =
            &["bits_table[AT]", "near[AT]", "((ctx->data + (AT)) as *BitsPart)->a[1]", "bits_packet->a[AT]"];
        let numbers = 1 + self.rng.below(OFFSETS.len());
        let mut stmts = vec![
            Node::stmt("var near: u16[9] = []", Vec::new()),
            Node::stmt("var bits_packet = (ctx->data + (bits_x & 63)) as *BitsPart", Vec::new()),
        ];
        for name in &OFFSETS[..numbers] {
            let number = self.number(1, VARIABLES_AND_INDEX);
            stmts.push(Node::stmt(&format!("var {name}: u32 = $"), vec![number]));
        }
        let memory: Vec<&str> = OFFSETS[..numbers].iter().map(|_| *self.rng.pick(MEMORY)).collect();
        let operator = *self.rng.pick(&["+", "^", "*"]);
        for line in 0..2 + self.rng.below(12) {
            let read = |(memory, name): (&&str, &&str)| memory.replace("AT", &format!("{name} + {line}"));
            let reads: Vec<String> = memory.iter().zip(OFFSETS).map(read).collect();
            let text = match self.rng.below(3) {
                0 => format!("if ({} > 3) {{ bits_out += {line} }}", reads.join(&format!(" {operator} "))),
                _ => format!("bits_out += ({}) as u32", reads.join(&format!(" {operator} "))),
            };
            stmts.push(Node::stmt(&text, Vec::new()));
        }
        Node::stmt("if (bits_y != 2) $", vec![Node::block(stmts)])
    }

    /// Generates a 32-bit expression of these names.
    fn number(&mut self, depth: u32, names: &[&str]) -> Node {
        let ty = Ty::Int(U32);
        if depth == 0 || self.rng.one_in(7) {
            return Node::expr(&ty, self.rng.pick::<&str>(names), Vec::new());
        }
        let inner = self.number(depth - 1, names);
        let constant = *self.rng.pick(CONSTANTS);
        let template = match self.rng.below(15) {
            0..=3 => format!("($ | {constant})"),
            4 => format!("($ & {constant})"),
            5 => format!("($ + {constant})"),
            6 => format!("($ ^ {constant})"),
            7 => format!("($ << {})", 1 + self.rng.below(5)),
            8 => format!("($ * {})", self.rng.pick(&[2, 3, 4, 8, 12])),
            9 => format!("($ >> {})", 1 + self.rng.below(5)),
            10 => format!("($ - {constant})"),
            11..=13 => {
                let operator = *self.rng.pick(&["|", "^", "*", "+", "-", "<<", ">>", "%", "/"]);
                let (mask, other) = (*self.rng.pick(CONSTANTS), self.number(depth - 1, names));
                return Node::expr(
                    &ty,
                    &format!("(($ & {constant}) {operator} ($ & {mask}))"),
                    vec![inner, other],
                );
            }
            _ => {
                let operator = *self.rng.pick(&["|", "&", "+", "^", "-"]);
                let other = self.number(depth - 1, names);
                return Node::expr(&ty, &format!("($ {operator} $)"), vec![inner, other]);
            }
        };
        Node::expr(&ty, &template, vec![inner])
    }
}

//! Scripts as trees of text, so that parts of them can be left out.

use std::collections::BTreeSet;

use super::types::Ty;

#[derive(Debug, Clone)]
pub enum NodeKind {
    Expr {
        ty: Ty,
        /// Whether the compiler may evaluate it.
        constant: bool,
    },
    /// A statement, or an item of a script.
    Stmt,
    /// Statements between braces.
    Block,
    /// The items of a script.
    Script,
}

#[derive(Debug, Clone)]
pub enum Piece {
    Text(String),
    Node(Node),
}

#[derive(Debug, Clone)]
pub struct Node {
    pub kind: NodeKind,
    pub pieces: Vec<Piece>,
    /// Its constructs, for the table of coverage.
    pub constructs: Vec<&'static str>,
}

impl Node {
    /// Substitutes a child for each `$` of the template.
    fn fill(kind: NodeKind, template: &str, children: Vec<Node>) -> Node {
        let mut pieces = Vec::new();
        let mut children = children.into_iter();
        for (index, text) in template.split('$').enumerate() {
            if index > 0 {
                pieces.push(Piece::Node(children.next().expect("a child for each `$`")));
            }
            pieces.push(Piece::Text(text.into()));
        }
        assert!(children.next().is_none(), "{template} has too few `$`");
        Node { kind, pieces, constructs: Vec::new() }
    }

    pub fn expr(ty: &Ty, template: &str, children: Vec<Node>) -> Node {
        Node::fill(NodeKind::Expr { ty: ty.clone(), constant: false }, template, children)
    }

    pub fn constant(ty: &Ty, text: String) -> Node {
        let kind = NodeKind::Expr { ty: ty.clone(), constant: true };
        Node { kind, pieces: vec![Piece::Text(text)], constructs: Vec::new() }
    }

    pub fn stmt(template: &str, children: Vec<Node>) -> Node {
        Node::fill(NodeKind::Stmt, template, children)
    }

    pub fn block(stmts: Vec<Node>) -> Node {
        Node {
            kind: NodeKind::Block,
            pieces: stmts.into_iter().map(Piece::Node).collect(),
            constructs: Vec::new(),
        }
    }

    pub fn script(items: Vec<Node>) -> Node {
        Node {
            kind: NodeKind::Script,
            pieces: items.into_iter().map(Piece::Node).collect(),
            constructs: Vec::new(),
        }
    }

    /// Marks the node as an instance of a construct.
    pub fn of(mut self, construct: &'static str) -> Node {
        self.constructs.push(construct);
        self
    }

    /// Adds the constructs of the whole tree.
    pub fn add_constructs(&self, found: &mut BTreeSet<&'static str>) {
        found.extend(&self.constructs);
        self.children().for_each(|child| child.add_constructs(found));
    }

    pub fn is_constant(&self) -> bool {
        matches!(self.kind, NodeKind::Expr { constant: true, .. })
    }

    pub fn children(&self) -> impl Iterator<Item = &Node> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Node(node) => Some(node),
            Piece::Text(_) => None,
        })
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, indent: usize) {
        match self.kind {
            NodeKind::Expr { .. } | NodeKind::Stmt => {
                for piece in &self.pieces {
                    match piece {
                        Piece::Text(text) => out.push_str(text),
                        Piece::Node(node) => node.write(out, indent),
                    }
                }
            }
            NodeKind::Block => {
                out.push_str("{\n");
                self.lines(out, indent + 1);
                out.push_str(&"    ".repeat(indent));
                out.push('}');
            }
            NodeKind::Script => self.lines(out, indent),
        }
    }

    fn lines(&self, out: &mut String, indent: usize) {
        for node in self.children() {
            out.push_str(&"    ".repeat(indent));
            node.write(out, indent);
            out.push('\n');
        }
    }
}

//! Shrinks a failing script: removes parts as long as the script still fails for the same reason.

use std::time::{Duration, Instant};

use crate::script::tree::{Node, NodeKind, Piece};

/// Time limit, after which the smallest script so far is the result: the verifier may need seconds for each.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the smallest script found for which `fails` holds.
pub fn shrink(script: Node, mut fails: impl FnMut(&Node) -> bool) -> Node {
    let mut best = script;
    let start = Instant::now();
    loop {
        let mut progress = false;
        for pass in [chunks, blocks_for_statements, simpler_expressions] {
            let mut number = 0;
            while start.elapsed() < PATIENCE && number < best.size() {
                let smaller = pass(&best, number)
                    .into_iter()
                    .find(|candidate| start.elapsed() < PATIENCE && fails(candidate));
                match smaller {
                    Some(found) => {
                        best = found;
                        progress = true;
                    }
                    None => number += 1,
                }
            }
        }
        if !progress || start.elapsed() >= PATIENCE {
            return best;
        }
    }
}

impl Node {
    fn size(&self) -> usize {
        1 + self.children().map(Node::size).sum::<usize>()
    }

    /// Returns the node with a number in pre-order.
    fn at(&self, number: usize) -> Option<&Node> {
        let mut left = number;
        if left == 0 {
            return Some(self);
        }
        left -= 1;
        for child in self.children() {
            let size = child.size();
            if left < size {
                return child.at(left);
            }
            left -= size;
        }
        None
    }

    /// Returns a copy with one node replaced by other pieces.
    fn replaced(&self, number: usize, pieces: &[Piece]) -> Node {
        let mut left = number;
        let (kind, constructs) = (self.kind.clone(), self.constructs.clone());
        let mut copy = Node { kind, pieces: Vec::new(), constructs };
        for piece in &self.pieces {
            let Piece::Node(node) = piece else {
                copy.pieces.push(piece.clone());
                continue;
            };
            let size = node.size();
            match left {
                1 => copy.pieces.extend_from_slice(pieces),
                _ if left > 1 && left <= size => {
                    copy.pieces.push(Piece::Node(node.replaced(left - 1, pieces)))
                }
                _ => copy.pieces.push(piece.clone()),
            }
            left = left.saturating_sub(size);
        }
        copy
    }
}

/// Variants without a run of statements of the block with this number.
fn chunks(script: &Node, number: usize) -> Vec<Node> {
    let Some(node) = script.at(number) else { return Vec::new() };
    if !matches!(node.kind, NodeKind::Block | NodeKind::Script) {
        return Vec::new();
    }
    let len = node.pieces.len();
    let mut smaller = Vec::new();
    let mut run = len;
    while run > 0 {
        for start in (0..len).step_by(run) {
            let mut kept = node.clone();
            kept.pieces.drain(start..(start + run).min(len));
            smaller.push(match number {
                0 => kept,
                _ => script.replaced(number, &[Piece::Node(kept)]),
            });
        }
        run /= 2;
    }
    smaller
}

/// Variants with the content of a statement's blocks instead of the statement.
fn blocks_for_statements(script: &Node, number: usize) -> Vec<Node> {
    let Some(node) = script.at(number) else { return Vec::new() };
    if number == 0 || !matches!(node.kind, NodeKind::Stmt) {
        return Vec::new();
    }
    let blocks = node.children().filter(|child| matches!(child.kind, NodeKind::Block));
    blocks.map(|block| script.replaced(number, &block.pieces)).collect()
}

/// Variants with a literal or a part of an expression instead of the expression.
fn simpler_expressions(script: &Node, number: usize) -> Vec<Node> {
    let Some(node) = script.at(number) else { return Vec::new() };
    let NodeKind::Expr { ty, .. } = &node.kind else { return Vec::new() };
    let mut smaller = Vec::new();
    if !node.is_constant() {
        smaller.extend(ty.simplest().map(|text| Node::constant(ty, text)));
    }
    smaller.extend(node.children().filter(|child| matches!(child.kind, NodeKind::Expr { .. })).cloned());
    smaller.into_iter().map(|one| script.replaced(number, &[Piece::Node(one)])).collect()
}

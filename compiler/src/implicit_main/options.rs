//! The script's options in the kernel half: `args` is a shared variable there, which is set before any program
//! is loaded.
//!
//! ```text
//! var args : Args
//! fn (set args)((options): Args) -> void { args = (options) }
//! fn main(args: Args) -> i32 { (set args)(args) .. }
//! ```

use super::build::{At, DeclarationSpans};
use super::main_function::{function, options_param};
use super::{ARGS, OPTIONS, Role};
use crate::ast::{
    ArmResult, AstFunction, Block, Cond, Else, Expr, ExprKind, Global, If, Item, ItemKind, Param, Stmt,
    StmtKind,
};

/// The function that sets the variable, and its parameter. No script can name them.
const SET: &str = "(set args)";
const GIVEN: &str = "(options)";

/// The parts of the syntax tree that make the options known to the kernel half.
pub(super) struct SharedOptions {
    pub items: Vec<Item>,
    /// The statement at the start of `main`.
    pub set: Stmt,
}

/// Returns what a script needs if one of its functions of the kernel half names its options.
pub(super) fn shared(items: &[Item], end: At) -> Option<SharedOptions> {
    let is_named = items.iter().filter_map(super::function).any(|one| {
        let is_of_kernel = !one.attributes.is_empty() && !Role::of(one).is_of_userspace();
        is_of_kernel && names(&one.body, ARGS)
    });
    let is_declared = items.iter().filter_map(super::declared_name).any(|name| name == ARGS);
    if !is_named || is_declared {
        return None;
    }
    let mut names = DeclarationSpans::of(declaration(items)?.0);
    let variable = Global {
        flags: None,
        column: None,
        pin: None,
        local: None,
        per_cpu: None,
        name: names.next().ident(ARGS),
        ty: Some(end.ty(OPTIONS)),
        init: None,
    };
    let given = Param { name: names.next().ident(GIVEN), ..options_param(end) };
    let body = vec![end.assign(ARGS, None, end.name(GIVEN))];
    let set: AstFunction = function(SET, vec![given], "void", body, names.next());
    let span = end.0;
    let items = vec![
        Item { docs: None, kind: ItemKind::Global(variable), span },
        Item { docs: None, kind: ItemKind::Function(set), span },
    ];
    Some(SharedOptions { items, set: end.run(end.call(SET, vec![end.name(ARGS)])) })
}

/// Returns the source range of the options' declaration.
fn declaration(items: &[Item]) -> Option<At> {
    let is_options =
        |item: &&Item| matches!(&item.kind, ItemKind::Struct { name, .. } if name.name == OPTIONS);
    items.iter().find(is_options).map(|item| At(item.span))
}

/// Whether a block has a name. One that declares a variable of the name may do so, too.
pub(crate) fn names(block: &Block, name: &str) -> bool {
    block.stmts.iter().any(|stmt| in_statement(stmt, name))
}

fn in_statement(stmt: &Stmt, name: &str) -> bool {
    match &stmt.kind {
        StmtKind::Var { init, .. } => init.as_ref().is_some_and(|init| in_expr(init, name)),
        StmtKind::Const { value, .. }
        | StmtKind::Expr(value)
        | StmtKind::Return(Some(value))
        | StmtKind::Delete(value)
        | StmtKind::Throw(value)
        | StmtKind::Defer(value) => in_expr(value, name),
        StmtKind::Assign { lvalue, value, .. } => in_expr(lvalue, name) || in_expr(value, name),
        StmtKind::If(one) => in_branch(one, name),
        StmtKind::While { cond, body } => in_expr(cond, name) || names(body, name),
        StmtKind::For { start, end, body, .. } => {
            in_expr(start, name) || in_expr(end, name) || names(body, name)
        }
        StmtKind::ForEach { over, body, .. } => in_expr(over, name) || names(body, name),
        StmtKind::Lock { body, .. } => names(body, name),
        StmtKind::Try { body, catches } => {
            names(body, name) || catches.iter().any(|catch| names(&catch.body, name))
        }
        StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue => false,
    }
}

fn in_branch(one: &If, name: &str) -> bool {
    let (Cond::Expr(cond) | Cond::Var { value: cond, .. }) = &one.cond;
    let in_otherwise = match &one.otherwise {
        Some(Else::Block(block)) => names(block, name),
        Some(Else::If(nested, _)) => in_branch(nested, name),
        None => false,
    };
    in_otherwise || in_expr(cond, name) || names(&one.then, name)
}

fn in_expr(expr: &Expr, wanted: &str) -> bool {
    let in_arms = match &expr.kind {
        ExprKind::Name(name) => return name == wanted,
        ExprKind::Match { arms, .. } => arms.iter().any(|arm| match &arm.result {
            ArmResult::Block(block) => names(block, wanted),
            ArmResult::Expr(_) => false,
        }),
        _ => false,
    };
    in_arms || expr.parts().into_iter().any(|part| in_expr(part, wanted))
}

//! Counters that programs read (language reference, 11.5).

use super::Checker;
use super::function::Body;
use super::names::Symbol;
use super::prescan::Prescan;
use crate::ast::{self, Expr};
use crate::builtins::perf::options;
use crate::diag::Diagnostic;
use crate::hir::{Counter, CounterId, FunctionKind};

impl Checker<'_> {
    /// Declares a counter. Its leader must be declared above it.
    pub(super) fn declare_counter(&mut self, name: &ast::Ident, event: &Expr, leader: Option<&ast::Ident>) {
        self.strict(name.span, "counters");
        if let Some(span) = self.variable_in(event) {
            self.report_not_constant(span, "name an event, such as `cpu_cycles` or `raw_event(4, 0x3c)`");
            self.declare_name(name, Symbol::Error);
            return;
        }
        let (perf_event, void) = (self.known.perf_event, self.types.common().void);
        let mut body = Body::new(self, FunctionKind::Plain, void, Prescan::default());
        let event = body.option_value(options::EVENT, event, perf_event);
        let is_sound = !body.checker.types.is_error(event.ty);
        let options = body.counter_options(event, name.span);
        let leader = leader.and_then(|leader| self.counter_leader(leader));
        if !is_sound {
            self.declare_name(name, Symbol::Error);
            return;
        }
        let id = self.counters.push(Counter { name: self.full_name(name), span: name.span, options, leader });
        self.declare_name(name, Symbol::Counter(id));
    }

    fn counter_leader(&mut self, leader: &ast::Ident) -> Option<CounterId> {
        let error =
            match self.names.get(&leader.name) {
                Some(Symbol::Counter(id)) => match self.counters[id].leader {
                    None => return Some(id),
                    Some(first) => {
                        let first = &self.counters[first].name;
                        Diagnostic::error(904, leader.span, format!("`{}` leads no group", leader.name))
                            .suggest(leader.span, first, "the leader of its group")
                    }
                },
                Some(Symbol::Error) => return None,
                Some(symbol) => Diagnostic::error(904, leader.span, "the leader of a group is a counter")
                    .label(format!("`{}` is {}", leader.name, symbol.what())),
                None => {
                    let counters = self.names.all(|symbol| matches!(symbol, Symbol::Counter(_)));
                    Diagnostic::error(301, leader.span, format!("no counter `{}` above", leader.name))
                        .suggest_near(leader.span, "counter", &leader.name, counters)
                        .note("a leader stands above the counters of its group")
                }
            };
        self.report(error);
        None
    }
}

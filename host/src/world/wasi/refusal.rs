//! How a function says no in its own type.

use wasmtime::component::Val;
use wasmtime::component::types::Type;

/// The words of WASI's error codes for what is not allowed, the better one first: of files, of sockets, of the rest.
const REFUSALS: [&str; 5] = ["access", "access-denied", "not-permitted", "unsupported", "not-supported"];

/// The refusal that a result of this type can say: an error code, a closed stream, nothing. None if it can say none.
pub(super) fn of(result: &Type) -> Option<Val> {
    match result {
        Type::Result(result) => {
            let error = match result.err() {
                Some(error) => Some(Box::new(code(&error)?)),
                None => None,
            };
            Some(Val::Result(Err(error)))
        }
        Type::Option(_) => Some(Val::Option(None)),
        Type::List(_) => Some(Val::List(Vec::new())),
        _ => None,
    }
}

fn code(error: &Type) -> Option<Val> {
    match error {
        Type::Enum(codes) => {
            let has = |candidate: &&&str| codes.names().any(|name| name == **candidate);
            REFUSALS.iter().find(has).map(|candidate| Val::Enum((*candidate).to_owned()))
        }
        // `stream-error`: the end of a stream, on which nothing can be read.
        Type::Variant(cases) => {
            let mut closed = cases.cases().filter(|case| case.name == "closed" && case.ty.is_none());
            closed.next().map(|case| Val::Variant(case.name.to_owned(), None))
        }
        _ => None,
    }
}

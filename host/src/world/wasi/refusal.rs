//! Refusals of a function, expressed in its own result type.

use wasmtime::component::Val;
use wasmtime::component::types::Type;

/// WASI's error codes for a denied operation, in order of preference: of files, of sockets, of the rest.
const REFUSALS: [&str; 5] = ["access", "access-denied", "not-permitted", "unsupported", "not-supported"];

/// Returns the refusal for a result type: an error code, a closed stream or an empty value. None if there is
/// none.
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
        // `stream-error`: the end of a stream that has no content.
        Type::Variant(cases) => {
            let mut closed = cases.cases().filter(|case| case.name == "closed" && case.ty.is_none());
            closed.next().map(|case| Val::Variant(case.name.to_owned(), None))
        }
        _ => None,
    }
}

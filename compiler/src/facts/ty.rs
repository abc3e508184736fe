//! Types as far as the text alone shows them.

use std::fmt;

use crate::ast::{Size, TypeExpr, TypeExprKind};

/// A type as an editor shows it and looks into it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ty {
    /// The text alone does not show it.
    #[default]
    Unknown,
    /// A scalar, struct, enum or alias; `module.name` for one of a module.
    Named(String),
    /// `str(N)`; without the size if it is not known.
    Str(Option<u64>),
    /// `T[N]`; the length as it is written.
    Array(Box<Ty>, String),
    /// `*T`.
    Ptr(Box<Ty>),
    /// A function by its parameters and its result.
    Fn(Vec<Ty>, Box<Ty>),
    /// A map: kind, key, value, entries.
    Map(String, Box<Ty>, Box<Ty>, String),
    /// A map without a key: kind, value, entries, where it has them.
    Keyless(String, Option<Box<Ty>>, Option<String>),
    /// A ring buffer.
    Ring(Box<Ty>, String),
    /// What `load` gives.
    Handle,
}

impl Ty {
    /// A type by its name.
    pub fn named(name: impl Into<String>) -> Ty {
        Ty::Named(name.into())
    }

    /// The type that was written. `module` is put before the names for which `own` holds: those of the module's own
    /// types, as its importer writes them.
    pub fn of(written: &TypeExpr, own: &dyn Fn(&str) -> Option<String>) -> Ty {
        let inner = |one: &TypeExpr| Box::new(Ty::of(one, own));
        match &written.kind {
            TypeExprKind::Name(name) => Ty::Named(own(name).unwrap_or_else(|| name.clone())),
            TypeExprKind::Qualified { module, name } => Ty::Named(format!("{}.{}", module.name, name.name)),
            TypeExprKind::Str(size) => Ty::Str(Some(size.value)),
            TypeExprKind::Array(element, len) => Ty::Array(inner(element), size_text(len)),
            TypeExprKind::Ptr(to) => Ty::Ptr(inner(to)),
            TypeExprKind::Fn(params, ret) => {
                Ty::Fn(params.iter().map(|one| Ty::of(one, own)).collect(), inner(ret))
            }
            TypeExprKind::Map { kind, key, value, size } => {
                Ty::Map(kind.name.clone(), inner(key), inner(value), size_text(size))
            }
            TypeExprKind::Keyless { kind, value, size } => Ty::Keyless(
                kind.name.clone(),
                value.as_ref().map(|value| inner(value)),
                size.as_ref().map(size_text),
            ),
            TypeExprKind::Ring(record, size) => Ty::Ring(inner(record), size_text(size)),
        }
    }

    /// The type that was written, every name as it stands.
    pub fn written(written: &TypeExpr) -> Ty {
        Ty::of(written, &|_| None)
    }

    /// What `x[i]` is.
    pub fn element(&self) -> Ty {
        match self {
            Ty::Array(element, _) | Ty::Ptr(element) => (**element).clone(),
            Ty::Map(_, _, value, _) | Ty::Keyless(_, Some(value), _) => (**value).clone(),
            Ty::Keyless(kind, None, _) if kind == "stack_trace" => {
                Ty::Array(Box::new(Ty::named("u64")), "127".into())
            }
            Ty::Str(_) => Ty::named("char"),
            _ => Ty::Unknown,
        }
    }

    /// What `*x` is.
    pub fn pointee(&self) -> Ty {
        match self {
            Ty::Ptr(to) => (**to).clone(),
            _ => Ty::Unknown,
        }
    }

    /// What `x(..)` is.
    pub fn result(&self) -> Ty {
        match self {
            Ty::Fn(_, ret) => (**ret).clone(),
            _ => Ty::Unknown,
        }
    }

    /// The name behind any pointers, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Ty::Named(name) => Some(name),
            Ty::Ptr(to) => to.name(),
            _ => None,
        }
    }

    /// Whether it is known.
    pub fn is_known(&self) -> bool {
        *self != Ty::Unknown
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::Unknown => f.write_str("?"),
            Ty::Named(name) => f.write_str(name),
            Ty::Str(Some(size)) => write!(f, "str({size})"),
            Ty::Str(None) => f.write_str("str"),
            Ty::Array(element, len) => write!(f, "{element}[{len}]"),
            Ty::Ptr(to) => write!(f, "*{to}"),
            Ty::Fn(params, ret) => {
                f.write_str("fn(")?;
                for (at, param) in params.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{param}")?;
                }
                write!(f, ") -> {ret}")
            }
            Ty::Map(kind, key, value, size) => write!(f, "{kind}<{key}, {value}>({size})"),
            Ty::Keyless(kind, value, size) => {
                f.write_str(kind)?;
                if let Some(value) = value {
                    write!(f, "<{value}>")?;
                }
                size.as_ref().map_or(Ok(()), |size| write!(f, "({size})"))
            }
            Ty::Ring(record, size) => write!(f, "ringbuf<{record}>({size})"),
            Ty::Handle => f.write_str("program handle"),
        }
    }
}

fn size_text(size: &Size) -> String {
    match size {
        Size::Int(literal) => literal.value.to_string(),
        Size::Const(name) => name.name.clone(),
    }
}

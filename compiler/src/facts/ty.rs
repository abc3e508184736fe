//! Types as far as they follow from the text alone.

use std::fmt;

use crate::ast::{Size, TypeExpr, TypeExprKind};

/// A type for display in an editor, and for queries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ty {
    /// The type does not follow from the text alone.
    #[default]
    Unknown,
    /// A scalar, struct, enum or alias; `module.name` for one of a module.
    Named(String),
    /// `str(N)`; none if the size is unknown.
    Str(Option<u64>),
    /// `T[N]`; the length as spelled in the source.
    Array(Box<Ty>, String),
    /// A pointer `*T` to a type.
    Ptr(Box<Ty>),
    /// A function by its parameters and its result.
    Fn(Vec<Ty>, Box<Ty>),
    /// A map: kind, key, value, entries, where they are written.
    Map(String, Box<Ty>, Box<Ty>, Option<String>),
    /// A map without a key: kind, value, entries, where it has them.
    Keyless(String, Option<Box<Ty>>, Option<String>),
    /// A ring buffer: record type, size in bytes as spelled in the source.
    Ring(Box<Ty>, String),
    /// The result of `load`.
    Handle,
}

impl Ty {
    /// Creates a type from its name.
    pub fn named(name: impl Into<String>) -> Ty {
        Ty::Named(name.into())
    }

    /// Creates the type of a type expression. `own` returns the qualified name of a type that the module
    /// itself declares, as its importer writes it; none for other names.
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
                let size = size.as_ref().map(size_text);
                Ty::Map(kind.name.clone(), inner(key), inner(value), size)
            }
            TypeExprKind::Keyless { kind, value, size } => Ty::Keyless(
                kind.name.clone(),
                value.as_ref().map(|value| inner(value)),
                size.as_ref().map(size_text),
            ),
            TypeExprKind::LinearHist { low, step, slots } => {
                Ty::Named(format!("linear_hist({}, {}, {})", low.value, step.value, slots.value))
            }
            TypeExprKind::Ring(record, size) => Ty::Ring(inner(record), size_text(size)),
        }
    }

    /// Creates the type of a type expression, with every name as it is.
    pub fn written(written: &TypeExpr) -> Ty {
        Ty::of(written, &|_| None)
    }

    /// Returns the type of `x[i]`.
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

    /// Returns the type of `*x`.
    pub fn pointee(&self) -> Ty {
        match self {
            Ty::Ptr(to) => (**to).clone(),
            _ => Ty::Unknown,
        }
    }

    /// Returns the type of a call `x(..)`.
    pub fn result(&self) -> Ty {
        match self {
            Ty::Fn(_, ret) => (**ret).clone(),
            _ => Ty::Unknown,
        }
    }

    /// Returns the name after removing all pointers, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Ty::Named(name) => Some(name),
            Ty::Ptr(to) => to.name(),
            _ => None,
        }
    }

    /// Whether the type is known.
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
            Ty::Map(kind, key, value, Some(size)) => write!(f, "{kind}<{key}, {value}>({size})"),
            Ty::Map(kind, key, value, None) => write!(f, "{kind}<{key}, {value}>"),
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
        Size::Option { options, field } => format!("{}.{}", options.name, field.name),
    }
}

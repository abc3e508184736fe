//! Writes `print` as a line of the kernel's log.

use super::code::{Writer, Written};
use super::refused;
use crate::hir::Expr;
use crate::hir::module;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

impl Writer<'_, '_, '_> {
    /// Writes `print(..)`, whose value is 0.
    pub(super) fn print(&mut self, format: &[u8], args: &[Expr], span: Span) -> Written {
        let mut out = Vec::new();
        let mut values = Vec::new();
        let mut left = args.iter();
        let mut rest = format;
        while let Some((first, tail)) = rest.split_first() {
            let taken = match (first, tail.first()) {
                (b'%', Some(b'%')) => {
                    out.extend_from_slice(b"%%");
                    2
                }
                (b'%', _) => {
                    let len = rest.iter().position(|byte| b"diuxXocsp".contains(byte)).unwrap_or(0);
                    let Some(arg) = left.next() else { return refused(span, "this format is") };
                    let flags: Vec<u8> =
                        rest[1..len].iter().copied().filter(|byte| !b"hlz".contains(byte)).collect();
                    self.conversion(&flags, rest[len], arg, &mut out, &mut values)?;
                    len + 1
                }
                (b'{', Some(b'}')) => {
                    let Some(arg) = left.next() else { return refused(span, "this format is") };
                    let letter = natural(self.hir.types.kind(arg.ty));
                    self.conversion(&[], letter, arg, &mut out, &mut values)?;
                    2
                }
                _ => {
                    out.push(*first);
                    1
                }
            };
            rest = &rest[taken..];
        }
        let text: String = out.iter().map(|byte| c_byte(*byte)).collect();
        let values: String = values.iter().map(|value| format!(", {value}")).collect();
        let prefix = module::name(self.hir);
        Ok(format!(
            "({{ printk(KERN_INFO \"{prefix}: {}\\n\"{values}); 0U; }})",
            text.trim_end_matches("\\n")
        ))
    }

    fn conversion(
        &mut self,
        flags: &[u8],
        letter: u8,
        arg: &Expr,
        out: &mut Vec<u8>,
        values: &mut Vec<String>,
    ) -> Written<()> {
        let value = self.expr(arg)?;
        out.push(b'%');
        out.extend_from_slice(flags);
        match letter {
            b's' if self.hir.types.scalar(arg.ty).is_none() => {
                out.push(b's');
                values.push(format!("(const char *)({value}).e"));
            }
            b's' => {
                out.push(b's');
                values.push(format!("{value} ? \"true\" : \"false\""));
            }
            b'c' => {
                out.push(b'c');
                values.push(format!("(int){value}"));
            }
            _ => {
                let is_signed = self.is_signed(arg.ty);
                let letter = match letter {
                    b'd' | b'i' | b'u' if is_signed => b'd',
                    b'd' | b'i' | b'u' => b'u',
                    letter => letter,
                };
                out.extend_from_slice(&[b'l', b'l', letter]);
                let sign = if letter == b'd' { "" } else { "unsigned " };
                // A negative number is printed with the bits of its own width.
                let own = self.ty(arg.ty, arg.span)?.replace('s', "u");
                let value = if is_signed && letter != b'd' { format!("({own}){value}") } else { value };
                values.push(format!("({sign}long long){value}"));
            }
        }
        Ok(())
    }

    fn is_signed(&self, ty: TypeId) -> bool {
        self.hir.types.scalar(ty).is_some_and(|int| int.signed)
    }
}

/// Returns the conversion of a value for `{}`.
fn natural(kind: &TypeKind) -> u8 {
    match kind {
        TypeKind::Char => b'c',
        TypeKind::Bool | TypeKind::Str(_) | TypeKind::Array(..) => b's',
        _ => b'u',
    }
}

/// Escapes a byte for a string of C.
fn c_byte(byte: u8) -> String {
    match byte {
        b'\n' => "\\n".into(),
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).into(),
        _ => format!("\\{byte:03o}"),
    }
}

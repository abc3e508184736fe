//! Demangling of C++ and Rust names.

use std::collections::HashMap;
use std::fmt::{self, Write};

/// Longest name that is demangled, in bytes: the length of the result may double with every few bytes.
const MAX_MANGLED_BYTES: usize = 1 << 10;

/// Limit of a demangled name, in bytes.
const MAX_DEMANGLED_BYTES: usize = 4 << 10;

/// Cache of demangled names.
#[derive(Default)]
pub(super) struct Demangled(HashMap<String, String>);

impl Demangled {
    pub(super) fn of(&mut self, name: &str) -> String {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let Some(plain) = demangled(name) else { return name.to_owned() };
        self.0.insert(name.to_owned(), plain.clone());
        plain
    }
}

/// Demangles a name. None if it is not mangled, or the result would be too long.
pub(crate) fn demangled(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED_BYTES {
        return None;
    }
    let mut plain = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return write!(plain, "{rust:#}").ok().map(|()| plain.0);
    }
    // Avoids parsing names that are not C++.
    if !["_Z", "__Z", "___Z", "____Z"].iter().any(|start| name.starts_with(start)) {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let options = cpp_demangle::DemangleOptions::new();
    symbol.structured_demangle(&mut plain, &options).ok().map(|()| plain.0)
}

/// A string that fails to grow beyond the limit, which aborts demangling.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangled_names_are_those_of_the_source() {
        assert_eq!(demangled("_ZN3foo3barEi").as_deref(), Some("foo::bar(int)"));
        assert_eq!(
            demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE").as_deref(),
            Some("core::fmt::Write::write_fmt")
        );
        assert_eq!((demangled("main"), demangled(""), demangled("_Z")), (None, None, None));
        let mut known = Demangled::default();
        assert_eq!(
            (known.of("_Z1fv"), known.of("_Z1fv"), known.of("main")),
            ("f()".into(), "f()".into(), "main".into())
        );
        assert_eq!(known.0.len(), 1);
    }

    /// Each level refers to the one before it twice.
    #[test]
    fn a_name_of_exponential_length_stays_mangled() {
        let digits = |number: u32| char::from_digit(number, 36).expect("small").to_ascii_uppercase();
        for levels in 14..30 {
            let parts: String = (0..levels).map(|level| format!("S_IS{0}_S{0}_E", digits(level))).collect();
            assert_eq!(demangled(&format!("_Z1f1AIiE{parts}")), None, "{levels}");
        }
        assert_eq!(demangled(&format!("_Z{}v", "1f".repeat(600))), None);
    }
}

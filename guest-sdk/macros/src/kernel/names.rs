//! Conversion of a script's names to Rust names.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

/// Converts a name of the script to a Rust identifier: the dot of a module's item becomes `_`, a keyword a
/// raw identifier.
pub(super) fn ident(name: &str) -> Ident {
    let name = name.replace('.', "_");
    match name.as_str() {
        // Keywords that cannot be raw identifiers.
        "self" | "Self" | "super" | "crate" | "_" => format_ident!("{name}_"),
        name => syn::parse_str(name).unwrap_or_else(|_| Ident::new_raw(name, Span::call_site())),
    }
}

/// Rust's naming style for a kind of item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `snake_case`, of functions and fields.
    Snake,
    /// `CamelCase`, of types.
    Camel,
    /// `UPPER_CASE`, of constants.
    Upper,
}

/// Generates the attribute that silences Rust's style lint for names in another style; nothing if all names
/// conform.
pub(super) fn naming<N: AsRef<str>>(style: Style, names: impl IntoIterator<Item = N>) -> TokenStream {
    if names.into_iter().all(|name| style.has(name.as_ref())) {
        return TokenStream::new();
    }
    let lint = match style {
        Style::Snake => quote!(non_snake_case),
        Style::Camel => quote!(non_camel_case_types),
        Style::Upper => quote!(non_upper_case_globals),
    };
    quote!(#[allow(#lint, reason = "named as in the script")])
}

impl Style {
    /// Whether a name is in this style. Source: compiler/rustc_lint/src/nonstandard_style.rs of Rust, which
    /// is a little more lenient with types.
    fn has(self, name: &str) -> bool {
        match self {
            Style::Snake => !name.contains("__") && !name.contains(char::is_uppercase),
            Style::Camel => !name.contains('_') && !name.starts_with(char::is_lowercase),
            Style::Upper => !name.contains(char::is_lowercase),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_script_is_one_of_rust() {
        let named = |name: &str| ident(name).to_string();
        assert_eq!(
            ["hits", "net.hits", "type", "crate"].map(named),
            ["hits", "net_hits", "r#type", "crate_"]
        );
    }

    #[test]
    fn names_of_the_usual_style_need_no_attribute() {
        let said = |style, name: &str| naming(style, [name]).to_string();
        assert_eq!(said(Style::Snake, "on_fault"), "");
        assert_eq!(said(Style::Camel, "Fault"), "");
        assert_eq!(said(Style::Upper, "FIRST_2"), "");
        assert!(said(Style::Snake, "onFault").contains("non_snake_case"));
        assert!(said(Style::Camel, "fault_t").contains("non_camel_case_types"));
        assert!(said(Style::Upper, "First").contains("non_upper_case_globals"));
    }
}

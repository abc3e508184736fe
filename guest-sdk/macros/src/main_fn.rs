//! Expansion of `#[ks_guest::main]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result, parse2};

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = parse2(item)?;
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "`#[ks_guest::main]` takes nothing in brackets"));
    }
    let signature = &function.sig;
    if let Some(first) = signature.inputs.first() {
        let message =
            "the function with which a plugin starts takes nothing: its words are `ks_guest::args::words()`";
        return Err(Error::new_spanned(first, message));
    }
    if let Some(asyncness) = signature.asyncness {
        return Err(Error::new_spanned(asyncness, "a plugin runs on one thread, without a runtime"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, "nothing chooses these parameters"));
    }
    let name = &signature.ident;
    Ok(quote! {
        #function

        const _: () = {
            struct Plugin;

            impl ::ks_guest::bindings::Guest for Plugin {
                fn run() -> ::core::result::Result<(), u8> {
                    ::ks_guest::Termination::report(#name())
                }
            }

            ::ks_guest::bindings::export!(Plugin with_types_in ::ks_guest::bindings);
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(item: TokenStream) -> String {
        expand(TokenStream::new(), item).expect_err("it is refused").to_string()
    }

    #[test]
    fn the_function_stays_and_is_exported() {
        let text = expand(
            TokenStream::new(),
            quote!(
                fn start() {}
            ),
        )
        .expect("a function")
        .to_string();
        assert!(text.contains("fn start ()") && text.contains("report (start ())"), "{text}");
    }

    #[test]
    fn unsuitable_functions_are_refused_with_the_reason() {
        assert!(
            refusal(quote!(
                fn main(words: Vec<String>) {}
            ))
            .contains("args::words")
        );
        assert!(
            refusal(quote!(
                async fn main() {}
            ))
            .contains("one thread")
        );
        assert!(
            refusal(quote!(
                fn main<T>() {}
            ))
            .contains("nothing chooses")
        );
        assert!(
            expand(
                quote!(fast),
                quote!(
                    fn main() {}
                )
            )
            .is_err()
        );
        assert!(
            expand(
                TokenStream::new(),
                quote!(
                    struct Main;
                )
            )
            .is_err()
        );
    }
}

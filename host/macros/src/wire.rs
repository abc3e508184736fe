//! `#[derive(Wire)]`: the fields of a record one after the other; of a variant the position of the case, then
//! its payload.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result, parse2};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = parse2(item)?;
    let (put, take) = match &input.data {
        Data::Struct(data) => of_record(&data.fields),
        Data::Enum(data) => {
            let cases: Vec<_> = data.variants.iter().collect();
            of_variant(&cases)?
        }
        Data::Union(_) => return Err(Error::new_spanned(&input.ident, "the contract has no unions")),
    };
    let name = &input.ident;
    Ok(quote! {
        impl crate::world::wire::Wire for #name {
            fn put(&self, to: &mut ::std::vec::Vec<u8>) {
                use crate::world::wire::Wire;
                #put
            }

            fn take(
                from: &mut crate::world::wire::Input<'_>,
            ) -> ::core::result::Result<Self, crate::world::wire::Malformed> {
                use crate::world::wire::Wire;
                #take
            }
        }
    })
}

fn of_record(fields: &Fields) -> (TokenStream, TokenStream) {
    let names: Vec<_> = fields.iter().filter_map(|field| field.ident.as_ref()).collect();
    (quote!(#(Wire::put(&self.#names, to);)*), quote!(Ok(Self { #(#names: Wire::take(from)?),* })))
}

fn of_variant(cases: &[&syn::Variant]) -> Result<(TokenStream, TokenStream)> {
    let mut puts = Vec::new();
    let mut takes = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let name = &case.ident;
        let at = u8::try_from(at).map_err(|_| Error::new_spanned(name, "a variant has at most 256 cases"))?;
        match &case.fields {
            Fields::Unit => {
                puts.push(quote!(Self::#name => Wire::put(&#at, to)));
                takes.push(quote!(#at => Ok(Self::#name)));
            }
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                puts.push(quote!(Self::#name(payload) => { Wire::put(&#at, to); Wire::put(payload, to); }));
                takes.push(quote!(#at => Ok(Self::#name(Wire::take(from)?))));
            }
            _ => return Err(Error::new_spanned(name, "a case has one payload or none")),
        }
    }
    let take = quote! {
        match <u8 as Wire>::take(from)? { #(#takes,)* _ => Err(crate::world::wire::Malformed) }
    };
    Ok((quote!(match self { #(#puts),* }), take))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_its_position() {
        let text = expand(quote! {
            enum One {
                Nothing,
                Something(u32),
            }
        });
        let text = text.expect("a variant").to_string();
        assert!(text.contains("0u8 => Ok (Self :: Nothing)"), "{text}");
        assert!(text.contains("1u8 => Ok (Self :: Something"), "{text}");
    }

    #[test]
    fn types_that_bindings_never_generate_are_refused() {
        for item in [
            quote!(
                enum Two {
                    A(u32, u32),
                }
            ),
            quote!(union Both { a: u32 }),
        ] {
            assert!(expand(item.clone()).is_err(), "{item}");
        }
    }
}

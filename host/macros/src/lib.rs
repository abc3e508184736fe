//! The macros of `ks-host`, for internal use: `#[derive(Recorded)]`, which converts the types of the contract
//! to and from their JSON form in a recording, and `#[derive(Wire)]`, to and from their form in messages
//! between processes. `bindgen` puts them on every type that it generates from the WIT.

mod wire;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Result, Type, parse2};

/// Derives the JSON form of a record or variant in a recording, with the names of the WIT.
#[proc_macro_derive(Recorded, attributes(component))]
pub fn recorded(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Derives the binary form of a record or variant in messages between processes.
#[proc_macro_derive(Wire)]
pub fn wire(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    wire::expand(item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = parse2(item)?;
    let (write, read) = match &input.data {
        Data::Struct(data) => of_struct(&data.fields)?,
        Data::Enum(data) => {
            let cases: Vec<Case> = data.variants.iter().map(Case::of).collect::<Result<_>>()?;
            of_enum(&cases)
        }
        Data::Union(_) => return Err(Error::new_spanned(&input.ident, "the contract has no unions")),
    };
    let name = &input.ident;
    Ok(quote! {
        impl crate::world::value::Recorded for #name {
            fn write(&self, handles: &mut crate::world::value::Handles) -> ::serde_json::Value {
                use crate::world::value;
                #write
            }

            fn read(
                value: &::serde_json::Value,
            ) -> ::core::result::Result<Self, crate::world::value::Misfit> {
                use crate::world::value;
                #read
            }
        }
    })
}

fn of_struct(fields: &Fields) -> Result<(TokenStream, TokenStream)> {
    let mut names = Vec::new();
    let mut texts = Vec::new();
    for field in fields {
        let ident = field
            .ident
            .as_ref()
            .ok_or_else(|| Error::new_spanned(field, "a record of the contract has names"))?;
        names.push(ident);
        texts.push(wit_name(&field.attrs, ident)?);
    }
    let write = quote! {
        value::members([#((#texts, value::Recorded::write(&self.#names, handles))),*])
    };
    let read = quote! {
        let mut members = value::Members::of(value)?;
        let read = Self { #(#names: members.take(#texts)?),* };
        members.end()?;
        Ok(read)
    };
    Ok((write, read))
}

/// A case of a variant or enum.
struct Case {
    ident: Ident,
    text: LitStr,
    payload: Option<Type>,
}

impl Case {
    fn of(variant: &syn::Variant) -> Result<Case> {
        let text = wit_name(&variant.attrs, &variant.ident)?;
        let payload = match &variant.fields {
            Fields::Unit => None,
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => Some(fields.unnamed[0].ty.clone()),
            _ => return Err(Error::new_spanned(variant, "a case of the contract has one payload or none")),
        };
        Ok(Case { ident: variant.ident.clone(), text, payload })
    }
}

fn of_enum(cases: &[Case]) -> (TokenStream, TokenStream) {
    let writes = cases.iter().map(|Case { ident, text, payload }| match payload {
        None => quote!(Self::#ident => #text.into()),
        Some(_) => quote! {
            Self::#ident(payload) => value::members([(#text, value::Recorded::write(payload, handles))])
        },
    });
    let reads = cases.iter().map(|Case { ident, text, payload }| match payload {
        None => quote!((#text, None) => Ok(Self::#ident)),
        Some(ty) => quote! {
            (#text, Some(payload)) => {
                let payload = <#ty as value::Recorded>::read(payload).map_err(|misfit| misfit.within(#text))?;
                Ok(Self::#ident(payload))
            }
        },
    });
    let known = cases.iter().map(|case| case.text.value()).collect::<Vec<_>>().join(", ");
    let wanted = format!("one of {known}");
    let write = quote!(match self { #(#writes),* });
    let read = quote!(match value::case(value)? { #(#reads,)* _ => Err(value::Misfit::wanted(#wanted)) });
    (write, read)
}

/// Returns the name in the WIT: `#[component(name = "time-enabled")]`.
fn wit_name(attrs: &[Attribute], ident: &Ident) -> Result<LitStr> {
    let mut name = None;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("component")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = Some(meta.value()?.parse()?);
            } else if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<Expr>()?;
            }
            Ok(())
        })?;
    }
    name.ok_or_else(|| Error::new_spanned(ident, "the bindings name it: #[component(name = \"..\")]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_wit() {
        let text = expand(quote! {
            struct Reading {
                #[component(name = "time-enabled")]
                time_enabled: u64,
            }
        })
        .expect("a record")
        .to_string();
        assert!(text.contains("\"time-enabled\""), "{text}");
    }

    #[test]
    fn types_that_bindings_never_generate_are_refused() {
        for item in [
            quote!(
                struct Pair(u32, u32);
            ),
            quote!(
                enum Two {
                    A,
                }
            ),
            quote!(
                union Both {
                    a: u32,
                }
            ),
        ] {
            assert!(expand(item.clone()).is_err(), "{item}");
        }
    }
}

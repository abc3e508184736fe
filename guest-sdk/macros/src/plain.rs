//! `#[derive(Plain)]`: converts fields to bytes and back without unsafe code.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitStr, Result, parse2};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = parse2(item)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "only a struct is plain data"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(
            &input.ident,
            "plain data needs fields with names: the kernel's have them",
        ));
    };
    if fields.named.is_empty() {
        return Err(Error::new_spanned(&input.ident, "a struct without fields has no bytes"));
    }
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "plain data has one layout: no parameters"));
    }
    let name = &input.ident;
    let text = spelled(name);
    let object_name = match object_name(&input.attrs)? {
        Some(object) => quote!(::core::option::Option::Some(#object)),
        None => quote!(::core::option::Option::None),
    };
    let names: Vec<_> = fields.named.iter().filter_map(|field| field.ident.as_ref()).collect();
    let texts: Vec<_> = names.iter().map(|name| spelled(name)).collect();
    let types: Vec<_> = fields.named.iter().map(|field| &field.ty).collect();
    let indices: Vec<_> = (0..names.len()).collect();
    let count = names.len();
    Ok(quote! {
        const _: () = {
            const SIZES: [usize; #count] = [#(<#types as ::ks_guest::Plain>::SIZE),*];
            const ALIGNS: [usize; #count] = [#(<#types as ::ks_guest::Plain>::ALIGN),*];
            const OFFSETS: [usize; #count] = ::ks_guest::plain::offsets(SIZES, ALIGNS);

            impl ::ks_guest::Plain for #name {
                const SIZE: usize = ::ks_guest::plain::size(SIZES, ALIGNS);
                const ALIGN: usize = ::ks_guest::plain::align(ALIGNS);
                const FIELDS: &'static [::ks_guest::plain::Field] = &[
                    #(::ks_guest::plain::Field {
                        name: #texts,
                        offset: OFFSETS[#indices],
                        size: SIZES[#indices],
                        shape: &<#types as ::ks_guest::Plain>::SHAPE,
                    }),*
                ];
                const SHAPE: ::ks_guest::plain::Shape = ::ks_guest::plain::Shape::Struct {
                    name: #text,
                    object_name: #object_name,
                    fields: <Self as ::ks_guest::Plain>::FIELDS,
                };

                fn from_bytes(bytes: &[u8]) -> Self {
                    #name {
                        #(#names: <#types as ::ks_guest::Plain>::from_bytes(
                            &bytes[OFFSETS[#indices]..OFFSETS[#indices] + SIZES[#indices]]
                        )),*
                    }
                }

                fn write_bytes(&self, bytes: &mut [u8]) {
                    #(<#types as ::ks_guest::Plain>::write_bytes(
                        &self.#names,
                        &mut bytes[OFFSETS[#indices]..OFFSETS[#indices] + SIZES[#indices]],
                    );)*
                }
            }
        };
    })
}

/// Returns a name as in the source, a raw identifier without `r#`.
fn spelled(name: &Ident) -> String {
    name.to_string().trim_start_matches("r#").to_owned()
}

/// Parses `#[plain(name = "..")]`.
fn object_name(attributes: &[Attribute]) -> Result<Option<LitStr>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("plain")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("the only option is `name = \"..\"`, the struct's name in the object"));
            }
            found = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_a_fixed_layout_are_refused() {
        for item in [
            quote!(
                enum Two {
                    A,
                    B,
                }
            ),
            quote!(
                struct Pair(u32, u32);
            ),
            quote!(
                struct Empty {}
            ),
            quote!(
                struct Of<T> {
                    value: T,
                }
            ),
        ] {
            assert!(expand(item.clone()).is_err(), "{item}");
        }
    }

    #[test]
    fn a_field_that_is_a_keyword_has_its_plain_name() {
        let text = expand(quote!(
            struct Event {
                r#type: u32,
            }
        ))
        .expect("a struct")
        .to_string();
        assert!(text.contains("name : \"type\""), "{text}");
    }

    #[test]
    fn the_name_in_the_object_may_be_another() {
        let text = expand(quote!(
            #[plain(name = "opened_t")]
            struct Opened {
                pid: u32,
            }
        ));
        let text = text.expect("a struct").to_string();
        assert!(text.contains("name : \"Opened\"") && text.contains("Some (\"opened_t\")"), "{text}");
        let misspelt = expand(quote!(
            #[plain(named = "opened_t")]
            struct Opened {
                pid: u32,
            }
        ));
        assert!(misspelt.expect_err("it is refused").to_string().contains("the only option is `name"));
    }
}

//! Conversion of a script's types to Rust types: the same names, the same bytes.

use std::collections::BTreeSet;

use ks_compiler::types::{EnumDef, EnumId, Field, IntType, StructId, TypeId, TypeKind, Types};
use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::names::{Style, ident, naming};

/// The structs and enums used so far, which need a declaration each.
pub(super) struct Met<'a> {
    types: &'a Types,
    structs: BTreeSet<StructId>,
    enums: BTreeSet<EnumId>,
}

impl<'a> Met<'a> {
    pub(super) fn new(types: &'a Types) -> Met<'a> {
        Met { types, structs: BTreeSet::new(), enums: BTreeSet::new() }
    }

    /// Returns the Rust type with the same bytes as this type.
    pub(super) fn ty(&mut self, id: TypeId) -> TokenStream {
        match self.types.kind(id) {
            TypeKind::Bool => quote!(bool),
            TypeKind::Str(bytes) => {
                let bytes = Literal::usize_unsuffixed(*bytes as usize);
                quote!([u8; #bytes])
            }
            TypeKind::Array(element, len) => {
                let (element, len) = (self.ty(*element), Literal::u64_unsuffixed(*len));
                quote!([#element; #len])
            }
            TypeKind::Struct(id) => {
                let def = self.types.struct_def(*id);
                if self.structs.insert(*id) {
                    // Also records the types of its fields.
                    def.fields.iter().for_each(|field| drop(self.ty(field.ty)));
                }
                let name = ident(&def.name);
                quote!(#name)
            }
            TypeKind::Enum(id) => {
                self.enums.insert(*id);
                let name = ident(&self.types.enum_def(*id).name);
                quote!(#name)
            }
            // Addresses have no meaning outside of the kernel, so they become numbers.
            _ => int(self.types.scalar(id).unwrap_or(IntType { bits: 64, signed: false })),
        }
    }

    /// Generates the declarations of all recorded types.
    pub(super) fn declarations(mut self) -> TokenStream {
        let enums: Vec<_> = self.enums.iter().map(|id| declare_enum(self.types.enum_def(*id))).collect();
        let structs: Vec<_> = self.structs.clone().into_iter().map(|id| self.declare_struct(id)).collect();
        quote!(#(#enums)* #(#structs)*)
    }

    fn declare_struct(&mut self, id: StructId) -> TokenStream {
        let def = self.types.struct_def(id);
        let (name, naming) = (ident(&def.name), naming(Style::Camel, [&def.name]));
        let doc = format!("`struct {}` of the kernel half.", def.name);
        let indices: Vec<usize> = (0..def.fields.len()).collect();
        let offsets =
            indices.iter().map(|field| Literal::u64_unsuffixed(self.types.field_offset(id, *field)));
        let offsets: Vec<_> = offsets.collect();
        let names: Vec<_> = def.fields.iter().map(|field| ident(&field.name)).collect();
        let fields: Vec<_> = def.fields.iter().map(|field| self.field(field)).collect();
        quote! {
            #[doc = #doc]
            #[repr(C)]
            #[derive(::ks_guest::Plain, Debug, Clone, Copy, PartialEq, Eq)]
            #naming
            pub struct #name { #(#fields,)* }

            // Checks that the layout is the same in both halves.
            const _: () = {
                #(assert!(
                    <#name as ::ks_guest::Plain>::FIELDS[#indices].offset == #offsets
                        && ::core::mem::offset_of!(#name, #names) == #offsets
                );)*
            };
        }
    }

    fn field(&mut self, field: &Field) -> TokenStream {
        let (name, ty) = (ident(&field.name), self.ty(field.ty));
        let doc = match field.docs.trim() {
            "" => format!("`{}`.", field.name),
            docs => docs.to_owned(),
        };
        quote!(#[doc = #doc] pub #name: #ty)
    }
}

/// A newtype of an integer, since a value may have no enumerator, as in the kernel half.
fn declare_enum(def: &EnumDef) -> TokenStream {
    let (name, repr) = (ident(&def.name), int(def.repr));
    let doc = format!("`enum {}` of the kernel half.", def.name);
    let names: Vec<_> = def.enumerators.iter().map(|(name, _)| ident(name)).collect();
    let own = naming(Style::Camel, [&def.name]);
    let constants = naming(Style::Upper, def.enumerators.iter().map(|(name, _)| name));
    let docs = def.enumerators.iter().map(|(name, _)| format!("`{name}`."));
    let values = def.enumerators.iter().map(|(_, bits)| Literal::i128_unsuffixed(def.repr.value(*bits)));
    quote! {
        #[doc = #doc]
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #own
        pub struct #name(pub #repr);

        #constants
        impl #name {
            #(#[doc = #docs] pub const #names: #name = #name(#values);)*
        }

        // Enumerators that the plugin does not use are no warning.
        const _: () = {
            #(let _ = #name::#names;)*
        };

        impl ::ks_guest::Plain for #name {
            const SIZE: usize = <#repr as ::ks_guest::Plain>::SIZE;
            const ALIGN: usize = <#repr as ::ks_guest::Plain>::ALIGN;
            const SHAPE: ::ks_guest::plain::Shape = <#repr as ::ks_guest::Plain>::SHAPE;

            fn from_bytes(bytes: &[u8]) -> #name {
                #name(<#repr as ::ks_guest::Plain>::from_bytes(bytes))
            }

            fn write_bytes(&self, bytes: &mut [u8]) {
                <#repr as ::ks_guest::Plain>::write_bytes(&self.0, bytes);
            }
        }
    }
}

fn int(int: IntType) -> TokenStream {
    let name = format_ident!("{}{}", if int.signed { "i" } else { "u" }, int.bits);
    quote!(#name)
}

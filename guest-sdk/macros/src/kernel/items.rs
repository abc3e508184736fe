//! The kernel half's objects as Rust items: a function that opens each program, map, ring buffer, variable
//! and config block.

use ks_compiler::hir::{FunctionKind, Hir, Map, MapKind};
use ks_compiler::split::Split;
use ks_compiler::types::Types;
use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::names::{Style, ident, naming};
use super::types::Met;

/// Generates the items of a kernel half.
pub(super) fn of(hir: &Hir, split: &Split) -> TokenStream {
    let mut items =
        Items { met: Met::new(&hir.types), openers: Vec::new(), declared: Vec::new(), configs: Vec::new() };
    items.configs(hir, split);
    items.programs(hir, split);
    items.maps(hir, split);
    items.variables(hir, split);
    items.finish()
}

struct Items<'a> {
    met: Met<'a>,
    openers: Vec<(String, TokenStream)>,
    /// Statements that declare the same objects to the host of a test.
    declared: Vec<TokenStream>,
    /// Statements that set the initial values of config blocks.
    configs: Vec<TokenStream>,
}

impl Items<'_> {
    fn add(&mut self, name: &str, item: TokenStream, declared: Option<TokenStream>) {
        self.openers.push((name.to_owned(), item));
        self.declared.extend(declared);
    }

    fn configs(&mut self, hir: &Hir, split: &Split) {
        for config in split.configs.iter().map(|id| &hir.configs[*id]) {
            let (name, value) = (&config.name, self.met.ty(config.ty));
            let doc = format!("Opens the config block `{name}`.");
            let start = Literal::byte_string(&config.init);
            self.configs.push(quote!(<::ks_guest::Config<#value>>::start(#name, #start)?;));
            let item = opener(name, &doc, quote!(Config<#value>), quote!(open), &initialise_configs());
            self.add(name, item, Some(quote!(config_with::<#value>(#name, #start))));
        }
    }

    /// Generates the code that precedes the load of a program: it initialises the config blocks.
    fn before_programs(&self) -> TokenStream {
        if self.configs.is_empty() { TokenStream::new() } else { initialise_configs() }
    }

    fn programs(&mut self, hir: &Hir, split: &Split) {
        let before = self.before_programs();
        for function in split.kernel.iter().map(|id| &hir.functions[*id]) {
            let (FunctionKind::Program(kind), name) = (function.kind, &function.name) else { continue };
            let doc = format!("Loads the `@{}` program `{name}`.", kind.name());
            let item = opener(name, &doc, quote!(Program), quote!(load), &before);
            self.add(name, item, Some(quote!(program(#name))));
        }
        for block in split.impls.iter().map(|id| &hir.impls[*id]) {
            let name = &block.name;
            let doc = format!("Registers `{name}`, a `{}` of the kernel.", block.ops);
            let item = opener(name, &doc, quote!(Link), quote!(register), &before);
            self.add(name, item, Some(quote!(program(#name))));
        }
        for counter in split.counters.iter().map(|id| &hir.counters[*id]) {
            self.add(&counter.name, counter_setter(&counter.name), None);
        }
    }

    fn maps(&mut self, hir: &Hir, split: &Split) {
        for map in split.maps.iter().map(|id| &hir.maps[*id]) {
            let name = &map.name;
            let doc = format!("Opens the map `{name}`, of the kind `{}`.", map.kind.name());
            let (ty, declare) = self.map_type(map, &hir.types);
            let maps = map.outer.map_or(1, |outer| outer.max_entries);
            let entries = map.max_entries.saturating_mul(maps);
            let item = opener(name, &doc, ty, quote!(open), &none());
            self.add(name, item, Some(quote!(#declare(#name, #entries))));
        }
        for ring in split.rings.iter().map(|id| &hir.rings[*id]) {
            let (name, bytes, record) = (&ring.name, ring.bytes, self.met.ty(ring.record));
            let doc = format!("Opens the ring buffer `{name}`.");
            let item = opener(name, &doc, quote!(Ring<#record>), quote!(open), &none());
            self.add(name, item, Some(quote!(ring(#name, #bytes))));
        }
    }

    fn variables(&mut self, hir: &Hir, split: &Split) {
        // Kernel-only variables are not visible to the plugin.
        for global in split.kernel_globals.iter().map(|id| &hir.globals[*id]).filter(|one| !one.kernel_only) {
            let (name, value) = (&global.name, self.met.ty(global.ty));
            let doc = format!("Opens the variable `{name}`.");
            let item = opener(name, &doc, quote!(Global<#value>), quote!(open), &none());
            let start = Literal::byte_string(&global.init);
            self.add(name, item, Some(quote!(global_with::<#value>(#name, #start))));
        }
    }

    /// Returns the type of a map, and the statement that declares it to the host of a test.
    fn map_type(&mut self, map: &Map, types: &Types) -> (TokenStream, TokenStream) {
        let value = self.met.ty(map.value);
        if let Some((outer, inner)) = map.nested_keys(types) {
            let (outer, inner) = (self.met.ty(outer), self.met.ty(inner));
            return (
                quote!(Map<::ks_guest::Nested<#outer, #inner>, #value>),
                quote!(map_of_maps::<#outer, #inner, #value>),
            );
        }
        // The kernel's arrays have 4-byte keys, whatever type the script uses as an index.
        let key = match map.kind {
            MapKind::Array | MapKind::PercpuArray | MapKind::StackTrace => quote!(u32),
            _ => self.met.ty(map.key),
        };
        match map.kind {
            MapKind::Queue => (quote!(Queue<#value>), quote!(queue::<#value>)),
            MapKind::Stack => (quote!(Queue<#value>), quote!(stack::<#value>)),
            MapKind::Bloom => (quote!(Bloom<#value>), quote!(bloom::<#value>)),
            MapKind::Array => (quote!(Map<u32, #value>), quote!(array::<#value>)),
            MapKind::PercpuArray => (quote!(PerCpuMap<u32, #value>), quote!(per_cpu_array::<#value>)),
            kind if kind.is_per_cpu() => {
                (quote!(PerCpuMap<#key, #value>), quote!(per_cpu_map::<#key, #value>))
            }
            _ => (quote!(Map<#key, #value>), quote!(map::<#key, #value>)),
        }
    }

    fn finish(self) -> TokenStream {
        let Items { met, openers, declared, configs } = self;
        let types = met.declarations();
        let names = openers.iter().map(|(name, _)| ident(name));
        let items = openers.iter().map(|(_, item)| item);
        // A name of the script takes precedence over the generated one.
        let declare = openers.iter().all(|(name, _)| name != "declare").then(|| {
            quote! {
                ::ks_guest::for_tests! {
                    /// Declares the objects of this kernel half to the host of a test: programs, maps, ring
                    /// buffers, and variables with their initial values.
                    pub fn declare(host: &::ks_guest::testing::Host) {
                        #(host.#declared;)*
                    }

                    const _: () = {
                        let _ = declare;
                    };
                }
            }
        });
        let initialiser = (!configs.is_empty()).then(|| {
            quote! {
                /// Writes the initial values of the config blocks, once.
                fn __initialise_configs() -> ::ks_guest::Result<()> {
                    static WRITTEN: ::ks_guest::config::Written = ::ks_guest::config::Written::new();
                    WRITTEN.once(|| {
                        #(#configs)*
                        ::core::result::Result::Ok(())
                    })
                }
            }
        });
        quote! {
            #types
            #initialiser
            #(#items)*
            #declare

            // A plugin need not open all objects of its kernel half.
            const _: () = {
                #(let _ = #names;)*
            };
        }
    }
}

fn none() -> TokenStream {
    TokenStream::new()
}

fn initialise_configs() -> TokenStream {
    quote!(__initialise_configs()?;)
}

/// Generates a function that opens an object, after the statements in `before`.
fn opener(name: &str, doc: &str, ty: TokenStream, method: TokenStream, before: &TokenStream) -> TokenStream {
    let (function, naming) = (ident(name), naming(Style::Snake, [name]));
    let errors = match ty.to_string().as_str() {
        "Program" | "Link" => format!("As [`ks_guest::{ty}::{method}`]."),
        _ => "As its `open`; never for its types, which are those of the kernel half.".to_owned(),
    };
    quote! {
        #[doc = #doc]
        #[doc = ""]
        #[doc = "# Errors"]
        #[doc = #errors]
        #naming
        pub fn #function() -> ::ks_guest::Result<::ks_guest::#ty> {
            #before
            <::ks_guest::#ty>::#method(#name)
        }
    }
}

/// Generates a function that exposes an event of the plugin as a counter, which programs read.
fn counter_setter(name: &str) -> TokenStream {
    let (function, naming) = (ident(name), naming(Style::Snake, [name]));
    let doc = format!("Lets programs read this event as the counter `{name}`.");
    quote! {
        #[doc = #doc]
        #[doc = ""]
        #[doc = "# Errors"]
        #[doc = "As [`ks_guest::Attachment::show`]."]
        #naming
        pub fn #function(event: &::ks_guest::Attachment) -> ::ks_guest::Result<()> {
            event.publish(#name)
        }
    }
}

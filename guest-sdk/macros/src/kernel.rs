//! `kernel!("probe.ks")`: a kernel half in KernelScript, compiled with the plugin.
//!
//! ```text
//! path -> script -> ks_compiler -> objects, in the section of the plugin file
//!                              \-> typed tree and split -> items -> Rust
//! ```
//!
//! The kernel half depends on the script, and on the BTF file if one is named; never on the machine that
//! builds.

mod items;
mod names;
mod types;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ks_compiler::diag::render::{self, Style};
use ks_compiler::diag::{Diagnostics, Severity};
use ks_compiler::kernel::Object;
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{self, Checked, KernelHalf, Options, Target};
use ks_compiler::plugin;
use ks_compiler::source::{Disk, SourceMap};
use ks_wit::section::Arch;
use proc_macro2::{Literal, Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitStr, Result, Token, parse2};

/// Arguments of the macro: `"probe.ks"`, or `"probe.ks", btf = "vmlinux.btf"`.
struct Arguments {
    script: LitStr,
    btf: Option<LitStr>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Arguments> {
        let script = input.parse()?;
        let mut btf = None;
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            let name: syn::Ident = input.parse()?;
            if name != "btf" {
                return Err(Error::new(
                    name.span(),
                    "the only option is `btf = \"FILE\"`, the kernel's types",
                ));
            }
            input.parse::<Token![=]>()?;
            btf = Some(input.parse()?);
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(Arguments { script, btf })
    }
}

/// Expands the macro. Paths are relative to `folder`; `name` is that of the object, and of the folder of its
/// pins.
pub(crate) fn expand(arguments: TokenStream, folder: &Path, name: &str) -> Result<TokenStream> {
    let Arguments { script, btf } = parse2(arguments)?;
    let path = folder.join(script.value());
    let text = read(&path, &script)?;
    let mut tracked = vec![path.clone()];
    let mut options = Options::new(name);
    options.kernel_half_only = true;
    options.files = Arc::new(Disk { folder: path.parent().unwrap_or(Path::new("")).to_owned() });
    if let Some(btf) = &btf {
        let file = folder.join(btf.value());
        let types = KernelTypes::from_btf(read(&file, btf)?);
        let types = types.map_err(|error| Error::new(btf.span(), format!("{}: {error}", file.display())))?;
        options.kernel = Arc::new(types);
        tracked.push(file);
    }
    let parsed = pipeline::parse(&path.display().to_string(), &text, options);
    let parsed = parsed.map_err(|error| Error::new(script.span(), error))?;
    let mut checked = parsed.check();
    let built = checked.build_kernel(Target::default().for_users());
    tracked.extend(others(&checked));
    let (Ok(half), Some(hir)) = (built, &checked.hir) else {
        return Err(errors(&checked.diagnostics, &checked.sources, script.span()));
    };
    if half.objects.is_empty() {
        let message =
            format!("{} has no program of the kernel half, such as `@perf_event fn`", path.display());
        return Err(Error::new(script.span(), message));
    }
    let items = items::of(hir, &half.split);
    let (tracked, objects) = (tracking(&tracked), objects(&half, name));
    let manifest = plugin::manifest_section(&half.manifest);
    let manifest = Literal::byte_string(&manifest.map_err(|error| Error::new(script.span(), error))?);
    Ok(quote!(#tracked #objects ::ks_guest::manifest_section!(#manifest); #items))
}

fn read(path: &Path, named: &LitStr) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Error::new(named.span(), format!("cannot read {}: {error}", path.display())))
}

/// Returns the files of the modules and headers that the script reads; bundled ones are not files.
fn others(checked: &Checked) -> impl Iterator<Item = PathBuf> {
    checked.sources.files().skip(1).map(|file| PathBuf::from(file.name())).filter(|file| file.is_file())
}

/// Returns one error for each of the script's errors, with its source location in the script.
fn errors(diagnostics: &Diagnostics, sources: &SourceMap, span: Span) -> Error {
    let mut all =
        diagnostics.sorted().into_iter().filter(|one| one.severity == Severity::Error).map(|one| {
            Error::new(span, format!("kernel half: {}", render::render(one, sources, Style::Plain)))
        });
    let first = all.next().unwrap_or_else(|| Error::new(span, "the kernel half cannot be compiled"));
    all.fold(first, |mut errors, one| {
        errors.combine(one);
        errors
    })
}

/// Makes cargo rebuild the plugin when one of these files changes.
fn tracking(files: &[PathBuf]) -> TokenStream {
    let paths = files.iter().filter_map(|file| Some(file.canonicalize().ok()?.to_str()?.to_owned()));
    quote!(#(const _: &[u8] = ::core::include_bytes!(#paths);)*)
}

/// Puts the objects into the section of the plugin file that the host reads.
fn objects(half: &KernelHalf, plugin: &str) -> TokenStream {
    let each = half.objects.iter().chain(&half.older).map(|(arch, object): &(Arch, Object)| {
        let arch = match arch {
            Arch::Any => quote!(Any),
            Arch::X86_64 => quote!(X86_64),
            Arch::Aarch64 => quote!(Aarch64),
        };
        let elf = Literal::byte_string(object.elf());
        quote!(::ks_guest::object_record!(#arch, #plugin, #elf);)
    });
    quote!(#(#each)*)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "var hits : u64 = 0\n\n@perf_event\nfn count(ctx: *bpf_perf_event_data) -> i32 \
                          {\n    \
                          hits += 1\n    return 0\n}\n";

    fn expanded(script: &str, arguments: TokenStream) -> Result<String> {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        std::fs::write(folder.path().join("probe.ks"), script).expect("it is writable");
        let tokens = expand(arguments, folder.path(), "plugin")?;
        parse2::<syn::File>(tokens.clone()).expect("items of Rust");
        Ok(tokens.to_string())
    }

    fn refusal(script: &str, arguments: TokenStream) -> String {
        expanded(script, arguments).expect_err("it is refused").to_string()
    }

    #[test]
    fn an_object_and_an_item_for_each_name_are_generated() {
        let text = expanded(SCRIPT, quote!("probe.ks")).expect("a kernel half");
        assert!(text.contains("object_record ! (Any , \"plugin\" , b\"\\x7FELF"), "{text}");
        assert!(text.contains("pub fn count ()") && text.contains("pub fn hits ()"), "{text}");
        assert!(text.contains("include_bytes !"), "{text}");
    }

    #[test]
    fn errors_are_reported_with_their_position_in_the_script() {
        let text = refusal(&SCRIPT.replace("hits +=", "hit +="), quote!("probe.ks"));
        assert!(text.contains("probe.ks:5:5") && text.contains("`hits`"), "{text}");
    }

    #[test]
    fn scripts_without_a_kernel_half_are_refused() {
        assert!(refusal(SCRIPT, quote!("other.ks")).contains("other.ks: No such file"));
        assert!(refusal(SCRIPT, quote!("probe.ks", target = "6.1")).contains("the only option is"));
        assert!(refusal(SCRIPT, quote!("probe.ks", btf = "probe.ks")).contains("not BTF"));
        assert!(refusal("fn main() -> i32 {\n    return 0\n}\n", quote!("probe.ks")).contains("no program"));
    }
    #[test]
    fn config_blocks_have_their_first_values_before_a_program_is_loaded() {
        let script = SCRIPT
            .replace("hits += 1", "hits += net.step")
            .replace("var hits", "config net {\n    step: u64 = 9\n}\n\nvar hits");
        let text = expanded(&script, quote!("probe.ks")).expect("a kernel half");
        assert!(text.contains("pub fn net ()") && text.contains("Config < net >"), "{text}");
        assert!(text.contains("\\\"configs\\\":[{\\\"name\\\":\\\"net\\\""), "{text}");
        let program = text.split_once("pub fn count ()").expect("an opener").1;
        assert!(program.find("initialise_configs").unwrap() < program.find("load").unwrap(), "{text}");
    }
}

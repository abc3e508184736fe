//! `ks build`: compiles a plugin file, and on request writes the output of each stage.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use ks_compiler::kernel::{self, Listings};
use ks_compiler::pipeline::{self, Built, Checked, Parsed, Target};
use ks_compiler::{ast, hir, plugin};
use ks_wit::command_output::{shown, write_stdout};
use ks_wit::section::Arch;

use crate::files::{MOST_PLUGIN_BYTES, ScriptArgs, is_standard_output, write_output};
use crate::report;
use crate::target::TargetArgs;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    script: ScriptArgs,
    /// The plugin file, or `-` for standard output; by default the script's name with `.wasm`, in the current
    /// folder
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add the kernel half to this component, which replaces the userspace half; another compiler built it
    /// for the world `kernelscript:host/plugin`
    #[arg(long, value_name = "COMPONENT")]
    into: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    /// Also write the output of a stage to FILE or standard output: tokens, ast, hir, mir, bpf, elf, wat or
    /// component; hir:REWRITE for the typed tree after REWRITE, mir:PASS for the MIR after each run of PASS
    /// that changed it. kmod=DIR writes the source of a kernel module with the `@kfunc` functions; while it
    /// is loaded, programs call its functions instead of their own
    #[arg(long, value_name = "STAGE[=FILE]")]
    emit: Vec<Emit>,
    #[command(flatten)]
    report: report::ReportArgs,
}

/// Arguments of `compile`, as KernelScript 0.1.1 has them.
#[derive(clap::Args)]
pub struct OldArgs {
    #[command(flatten)]
    build: Args,
    #[arg(long, hide = true)]
    no_makefile: bool,
}

/// `ks compile FILE -o FOLDER`: like `ks build`, with a note for each changed spelling.
pub fn run_old(args: OldArgs) -> Result<ExitCode> {
    let OldArgs { mut build, no_makefile } = args;
    report::old_spelling("ks compile", "write `ks build`");
    if no_makefile {
        report::old_spelling("--no-makefile", "leave it out: there is no Makefile");
    }
    if build.script.options.is_test() {
        report::old_spelling("--test", "`ks test FILE` compiles the tests and runs them");
    }
    if let Some(folder) = build.output.take_if(|output| output.extension().is_none()) {
        let file = folder.join(format!("{}.wasm", build.script.project()?));
        report::old_spelling("-o FOLDER", "write `-o FILE.wasm`");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", shown(folder)))?;
        build.output = Some(file);
    }
    run(&build)
}

/// Returns the target of the kernel half, and the requested listings.
fn target(args: &Args) -> Result<Target> {
    let listings = if args.emit.iter().any(|emit| matches!(emit.stage, Stage::Mir | Stage::Bpf)) {
        Listings::Text
    } else {
        Listings::None
    };
    let module = args.emit.iter().any(|emit| emit.stage == Stage::Kmod);
    Ok(Target { listings, module, ..args.target.target()? })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Tokens,
    Ast,
    Hir,
    HirAfter(&'static str),
    Mir,
    MirAfter(&'static str),
    Bpf,
    Elf,
    Wat,
    Component,
    Kmod,
}

const STAGES: &[(&str, Stage)] = &[
    ("tokens", Stage::Tokens),
    ("ast", Stage::Ast),
    ("hir", Stage::Hir),
    ("mir", Stage::Mir),
    ("bpf", Stage::Bpf),
    ("elf", Stage::Elf),
    ("wat", Stage::Wat),
    ("component", Stage::Component),
    ("kmod", Stage::Kmod),
];

/// A request for a stage's output: `--emit STAGE[=FILE]`.
#[derive(Clone)]
struct Emit {
    stage: Stage,
    file: Option<PathBuf>,
}

impl FromStr for Emit {
    type Err = String;

    fn from_str(text: &str) -> Result<Emit, String> {
        let (stage_name, file) = match text.split_once('=') {
            Some((stage_name, file)) => (stage_name, Some(PathBuf::from(file))),
            None => (text, None),
        };
        if let Some(pass) = stage_name.strip_prefix("mir:") {
            return Ok(Emit { stage: Stage::MirAfter(known_pass(pass)?), file });
        }
        if let Some(rewrite) = stage_name.strip_prefix("hir:") {
            return Ok(Emit { stage: Stage::HirAfter(known_rewrite(rewrite)?), file });
        }
        let found = STAGES.iter().find(|(name, _)| *name == stage_name);
        let (_, stage) = found.ok_or_else(|| {
            let names: Vec<_> = STAGES.iter().map(|(name, _)| *name).collect();
            format!("there is no stage `{stage_name}`; stages are {}", names.join(", "))
        })?;
        if *stage == Stage::Kmod && file.is_none() {
            return Err("a kernel module has several files; write them to a folder with kmod=DIR".into());
        }
        Ok(Emit { stage: *stage, file })
    }
}

fn known_rewrite(name: &str) -> Result<&'static str, String> {
    let all = || std::iter::once(pipeline::CHECKED).chain(pipeline::rewrites());
    all().find(|known| *known == name).ok_or_else(|| {
        let names: Vec<_> = all().collect();
        format!("there is no rewrite `{name}`; the typed tree can be shown as {}", names.join(", "))
    })
}

fn known_pass(name: &str) -> Result<&'static str, String> {
    kernel::pass_names().find(|known| *known == name).ok_or_else(|| {
        let names: Vec<_> = kernel::pass_names().collect();
        format!("there is no pass `{name}`; passes are {}", names.join(", "))
    })
}

impl Emit {
    /// Returns the stage as spelled on the command line.
    fn name(&self) -> &'static str {
        let named = STAGES.iter().find(|(_, stage)| *stage == self.stage);
        let other = if matches!(self.stage, Stage::HirAfter(_)) { "hir:REWRITE" } else { "mir:PASS" };
        named.map_or(other, |(name, _)| *name)
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        match &self.file {
            Some(file) if !is_standard_output(file) => {
                std::fs::write(file, bytes).with_context(|| format!("cannot write {}", shown(file)))
            }
            _ => Ok(write_stdout(bytes)?),
        }
    }
}

/// Compiles a script. Returns exit code 1 if it has errors; then only the stages before the error are
/// written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let project = args.script.project()?;
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{project}.wasm")));
    if same_file(&output, &args.script.file) {
        bail!("{} is the script itself: name another file with --output", shown(output));
    }
    check_output(&output, &args.emit)?;
    let parsed = args.script.parse()?;
    emit_parsed(args, &parsed)?;
    let mut rewritten = Vec::new();
    let mut checked = parsed.check_watched(&mut |name, hir| {
        let asked = args.emit.iter().filter(|emit| emit.stage == Stage::HirAfter(name));
        rewritten.extend(asked.map(|emit| (emit, hir::print::hir(hir))));
    });
    for (emit, text) in rewritten {
        emit.write(text.as_bytes())?;
    }
    emit_checked(args, &checked)?;
    let target = target(args)?;
    let built = checked.build(target);
    args.report.show_checked(&checked, args.script.options.verbose)?;
    let Ok(built) = built else {
        emit_failed(args, &mut checked, target)?;
        return Ok(report::failure(&checked.diagnostics).into());
    };
    emit_built(args, &built)?;
    if !emit_passes(args, &checked, built.objects.iter().map(|(arch, _)| *arch))? {
        bail!("the compilation succeeded once and fails now");
    }
    match &args.into {
        None => write_output(&output, &built.plugin)?,
        Some(file) => {
            let displayed = shown(file);
            let component = ks_wit::files::read(file, MOST_PLUGIN_BYTES)
                .with_context(|| format!("cannot read {displayed}"))?;
            let plugin = plugin::assemble_around(component, &built.records(), &built.manifest);
            write_output(&output, &plugin.with_context(|| format!("cannot use {displayed}"))?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// File name extensions of sources and objects: like one of a stage's name, a plugin of this name would be
/// mistaken for one.
const OTHER_ENDINGS: [&str; 5] = ["c", "h", "ks", "o", "s"];

/// Rejects misleading names for a plugin, and writing one to a terminal.
fn check_output(output: &Path, emit: &[Emit]) -> Result<()> {
    if is_standard_output(output) {
        if let Some(emit) = emit.iter().find(|one| one.file.as_deref().is_none_or(is_standard_output)) {
            bail!(
                "the plugin and the stage `{}` cannot both go to standard output: --emit {0}=FILE writes \
                 the stage to a file",
                emit.name()
            );
        }
        return Ok(());
    }
    let ending = output.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let ending = ending.to_ascii_lowercase();
    let mut stages = STAGES.iter().filter(|(_, stage)| *stage != Stage::Component);
    if OTHER_ENDINGS.contains(&ending.as_str()) || stages.any(|(stage, _)| *stage == ending) {
        let displayed = shown(output);
        bail!(
            "-o names the plugin, a WebAssembly component, and {displayed} is the name of something else: -o \
             NAME.wasm; the BPF object alone is written by --emit elf={displayed}"
        );
    }
    Ok(())
}

/// Whether two paths refer to the same existing file.
fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn emit_parsed(args: &Args, parsed: &Parsed) -> Result<()> {
    for emit in &args.emit {
        match emit.stage {
            Stage::Tokens => {
                let line = |token: &ks_compiler::lex::Token| {
                    format!("{:>6}..{:<6} {:?}\n", token.span.start, token.span.end, token.kind)
                };
                emit.write(parsed.tokens.iter().map(line).collect::<String>().as_bytes())?;
            }
            Stage::Ast => emit.write(ast::print::file(&parsed.ast).as_bytes())?,
            _ => {}
        }
    }
    Ok(())
}

fn emit_checked(args: &Args, checked: &Checked) -> Result<()> {
    for emit in args.emit.iter().filter(|emit| emit.stage == Stage::Hir) {
        if let Some(hir) = &checked.hir {
            emit.write(hir::print::hir(hir).as_bytes())?;
        }
    }
    Ok(())
}

fn emit_built(args: &Args, built: &Built) -> Result<()> {
    for emit in &args.emit {
        match emit.stage {
            Stage::Wat => {
                let text = wasmprinter::print_bytes(&built.core).context("cannot print the core module")?;
                emit.write(text.as_bytes())?;
            }
            Stage::Component => emit.write(&built.plugin)?,
            Stage::Mir => emit.write(per_object(&built.objects, |object| object.mir()).as_bytes())?,
            Stage::Bpf => emit.write(per_object(&built.objects, |object| object.disassembly()).as_bytes())?,
            Stage::Elf => emit_elf(emit, built)?,
            Stage::Kmod => emit_module(emit, built)?,
            Stage::Tokens | Stage::Ast | Stage::Hir | Stage::HirAfter(_) | Stage::MirAfter(_) => {}
        }
    }
    Ok(())
}

fn emit_module(emit: &Emit, built: &Built) -> Result<()> {
    let (Some(folder), Some(module)) = (&emit.file, &built.module) else { return Ok(()) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", shown(folder)))?;
    for (name, text) in &module.files {
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", shown(file)))?;
    }
    Ok(())
}

/// Writes the requested listings of passes. Returns whether all passes succeeded; the build has reported the
/// error of one that did not.
fn emit_passes(args: &Args, checked: &Checked, archs: impl Iterator<Item = Arch> + Clone) -> Result<bool> {
    let Some(hir) = &checked.hir else { return Ok(true) };
    let mut complete = true;
    for emit in &args.emit {
        let Stage::MirAfter(pass) = emit.stage else { continue };
        let mut text = String::new();
        for arch in archs.clone() {
            let watch = &mut |name: &'static str, program: &kernel::mir::Program| {
                if name == pass {
                    text +=
                        &format!("; {arch}, after {name}\n{}\n", kernel::mir::print::program(program, hir));
                }
            };
            complete &= checked.watch_passes(arch, watch).is_ok();
        }
        emit.write(text.as_bytes())?;
    }
    Ok(complete)
}

/// Writes what a failed build produced of the kernel half.
fn emit_failed(args: &Args, checked: &mut Checked, target: Target) -> Result<()> {
    let asked = |emit: &Emit| matches!(emit.stage, Stage::Mir | Stage::Bpf | Stage::MirAfter(_));
    if checked.hir.is_none() || !args.emit.iter().any(asked) {
        return Ok(());
    }
    let Ok(half) = checked.build_kernel(target) else {
        return emit_passes(args, checked, target.arch.or(Arch::HOST).into_iter()).map(drop);
    };
    for emit in &args.emit {
        match emit.stage {
            Stage::Mir => emit.write(per_object(&half.objects, |object| object.mir()).as_bytes())?,
            Stage::Bpf => emit.write(per_object(&half.objects, |object| object.disassembly()).as_bytes())?,
            _ => {}
        }
    }
    emit_passes(args, checked, half.objects.iter().map(|(arch, _)| *arch)).map(drop)
}

fn per_object(objects: &[(Arch, kernel::Object)], text: impl Fn(&kernel::Object) -> &str) -> String {
    let several = objects.len() > 1;
    let one = |(arch, object): &(Arch, kernel::Object)| {
        if several { format!("; {arch}\n{}", text(object)) } else { text(object).to_owned() }
    };
    objects.iter().map(one).collect()
}

/// Writes the only object, or of several the one for this machine.
fn emit_elf(emit: &Emit, built: &Built) -> Result<()> {
    let own = built.objects.iter().find(|(arch, _)| Some(*arch) == Arch::HOST);
    match own.or(built.objects.first()) {
        Some((_, object)) => emit.write(object.elf()),
        None => bail!("this script has no kernel half, so there is no object to write"),
    }
}

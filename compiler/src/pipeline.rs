//! The stages in order, each a type that owns its results and has one method to the next.
//!
//! [`Parsed`] -> [`Checked`] -> [`Built`]. Up to the typed tree a stage returns a result and diagnostics;
//! after it, a result or the diagnostics that stopped it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ks_wit::manifest::Manifest;
use ks_wit::section::{Arch, BpfRecord};

pub use crate::options::Options;

use crate::ast;
use crate::check;
use crate::defect;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{self, Hir, Stmt, StmtKind};
use crate::implicit_main;
use crate::kernel::{self, Checks, Cpu, Listings, Machine};
use crate::kernel_version::KernelVersion;
use crate::kmod::{self, Module};
use crate::lex::{self, Token};
use crate::parse;
use crate::plugin::{self, manifest};
use crate::refused;
use crate::resolve::{self, Search};
use crate::safety;
use crate::source::{FileId, MAX_FILE_BYTES, SourceMap, Span};
use crate::split::{self, Split};
use crate::user;

/// The error for a script that is longer than [`MAX_FILE_BYTES`].
#[derive(Debug, thiserror::Error)]
#[error("{name} has {len} bytes; a script has at most {MAX_FILE_BYTES}")]
pub struct TooLong {
    name: String,
    len: usize,
}

/// A script as tokens and tree.
#[derive(Debug)]
pub struct Parsed {
    /// The files read so far: only the script itself.
    pub sources: SourceMap,
    /// The diagnostics of the scanner and parser.
    pub diagnostics: Diagnostics,
    /// All tokens, blanks and comments included.
    pub tokens: Vec<Token>,
    /// The tree; declarations and statements with syntax errors are left out.
    pub ast: ast::File,
    file: FileId,
    options: Options,
}

/// Scans and parses a script. `name` is shown in messages; modules and headers are looked up relative to its
/// folder.
///
/// # Errors
/// If the text is longer than [`MAX_FILE_BYTES`]. Every other error is in the diagnostics.
pub fn parse(name: &str, text: &[u8], options: Options) -> Result<Parsed, TooLong> {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text).ok_or_else(|| TooLong { name: name.into(), len: text.len() })?;
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text);
    lex::report(&tokens, text, &mut diagnostics);
    let grammar = parse::Options { strict_011: options.strict_011 };
    let ast = parse::parse_with(&tokens, text, grammar, &mut diagnostics);
    Ok(Parsed { sources, diagnostics, tokens, ast, file, options })
}

/// The name of the typed tree before any rewrite.
pub const CHECKED: &str = "checked";

type Rewrite = fn(&mut Hir);

/// Rewrites of the typed tree, in this order. They lower constructs that the back ends do not know to
/// constructs that they do.
const REWRITES: &[(&str, Rewrite)] = &[
    ("taken", hir::taken::rewrite),
    ("kept", hir::kept::rewrite),
    ("names", hir::names::rewrite),
    ("objects", hir::objects::rewrite),
    ("counters", hir::counters::rewrite),
    ("map_iteration", hir::map_iteration::rewrite),
    ("literals", hir::literals::rewrite),
    ("zeros", hir::zeros::declare),
];

/// Returns the names of all rewrites of the typed tree, in their order.
pub fn rewrites() -> impl Iterator<Item = &'static str> {
    REWRITES.iter().map(|(name, _)| *name)
}

impl Parsed {
    /// Stops after parsing: the result has no typed tree.
    pub fn unchecked(self) -> Checked {
        let Parsed { sources, diagnostics, file, .. } = self;
        Checked { sources, diagnostics, hir: None, file }
    }

    /// Reads modules and headers, and resolves names and types if all could be read.
    pub fn check(self) -> Checked {
        self.check_watched(&mut |_, _| ())
    }

    /// Like [`Parsed::check`], and passes each typed tree to `watch`: as checked ([`CHECKED`]), and after
    /// each rewrite ([`rewrites`]).
    pub fn check_watched(self, watch: &mut dyn FnMut(&'static str, &Hir)) -> Checked {
        let Parsed { mut sources, mut diagnostics, ast, file, options, .. } = self;
        let search =
            Search { files: &*options.files, include: &options.include, strict_011: options.strict_011 };
        let script = start_of(file);
        let checked = defect::contain("the check of names and types", script, || {
            let mut program = resolve::load(ast, file, &mut sources, search, &mut diagnostics);
            implicit_main::expand(&mut program, &options, &mut diagnostics);
            if diagnostics.has_errors() {
                return None;
            }
            let hir = check::check(&program, &options, &mut diagnostics)?;
            safety::check(hir, &sources, &options, &mut diagnostics)
        });
        let hir = kept(checked, &mut diagnostics).and_then(|mut hir| {
            watch(CHECKED, &hir);
            for (name, rewrite) in REWRITES {
                let rewritten = defect::contain(&format!("the rewrite `{name}`"), script, || {
                    rewrite(&mut hir);
                    Some(())
                });
                kept(rewritten, &mut diagnostics)?;
                watch(name, &hir);
            }
            // `main` and the tests are both checked, and one of them is compiled.
            if options.tests {
                hir.main = None;
            } else {
                hir.tests.clear();
            }
            Some(hir)
        });
        let hir = hir.and_then(|hir| {
            let compilable =
                defect::contain("the check of both halves", script, || compilable(hir, &mut diagnostics));
            kept(compilable, &mut diagnostics)
        });
        Checked { sources, diagnostics, hir, file }
    }
}

/// The empty range at the start of a file.
fn start_of(file: FileId) -> Span {
    Span { file, start: 0, end: 0 }
}

/// Returns the result of a stage, and reports the defect that ended it.
fn kept<T>(result: Result<Option<T>, Box<Diagnostic>>, diagnostics: &mut Diagnostics) -> Option<T> {
    result.unwrap_or_else(|defect| {
        diagnostics.report(*defect);
        None
    })
}

/// Runs a back end. A defect of it is an error like those that it returns.
fn back_end<T>(
    name: &str,
    file: FileId,
    run: impl FnOnce() -> Result<T, Vec<Diagnostic>>,
) -> Result<T, Vec<Diagnostic>> {
    defect::contain(name, start_of(file), run).unwrap_or_else(|defect| Err(vec![*defect]))
}

/// Reports whatever a half cannot compile, and returns the tree if that is nothing.
fn compilable(hir: Hir, diagnostics: &mut Diagnostics) -> Option<Hir> {
    let refused = refused::check(&hir, &split::split(&hir));
    let fits = refused.is_empty();
    refused.into_iter().for_each(|one| diagnostics.report(one));
    fits.then_some(hir)
}

/// A script with names and types resolved.
#[derive(Debug)]
pub struct Checked {
    /// All files of the script: itself, its modules and headers.
    pub sources: SourceMap,
    /// All diagnostics so far.
    pub diagnostics: Diagnostics,
    /// The typed tree; none if there is an error.
    pub hir: Option<Hir>,
    /// The id of the script's own file.
    pub file: FileId,
}

/// The target of the kernel half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Target {
    /// One architecture; none: one object for all if the code allows it, else one for each.
    pub arch: Option<Arch>,
    /// The BPF instruction set of the object.
    pub cpu: Cpu,
    /// The oldest kernel that must accept the object; none: any kernel that has the features the script
    /// needs.
    pub kernel: Option<KernelVersion>,
    /// The stages after which the compiler verifies its own output; every stage by default.
    pub checks: Checks,
    /// Listings that are produced besides the object.
    pub listings: Listings,
    /// `@kfunc` functions also go to a kernel module. Where it is loaded, the object prefers the module's
    /// functions to its own.
    pub module: bool,
    /// Builds only the object for kernels that have all features the best code uses. Otherwise one for older
    /// kernels is added, where an alternative exists for the features that they lack.
    pub only_newest: bool,
}

impl From<Arch> for Target {
    fn from(arch: Arch) -> Target {
        Target { arch: Some(arch), ..Target::default() }
    }
}

impl Target {
    /// The target with the settings for users: only the last stage is verified, and no listings are produced.
    pub fn for_users(self) -> Target {
        Target { checks: Checks::LastStage, listings: Listings::None, ..self }
    }

    fn machine(self, arch: Arch) -> Machine {
        let Target { cpu, kernel, checks, listings, .. } = self;
        Machine { cpu, kernel, checks, listings, ..arch.into() }
    }
}

/// A plugin file and its parts.
#[derive(Debug)]
pub struct Built {
    /// The bytes of the plugin file.
    pub plugin: Vec<u8>,
    /// The userspace half as a core module, before it became a component.
    pub core: Vec<u8>,
    /// The kernel half, one object for each architecture; empty if the script has none.
    pub objects: Vec<(Arch, kernel::Object)>,
    /// Variants of `objects` for kernels that lack features those use; empty where there is no alternative.
    pub older: Vec<(Arch, kernel::Object)>,
    /// The source tree of the kernel module, if one was asked for.
    pub module: Option<Module>,
    /// The manifest section of the file, about both halves.
    pub manifest: Manifest,
}

impl Built {
    /// Returns the objects as the BPF records of a plugin file.
    pub fn records(&self) -> Vec<BpfRecord> {
        records(&self.objects, &self.older, &self.manifest.project)
    }
}

/// A host takes the first record whose requirements its kernel meets, so the best ones come first.
fn records(
    objects: &[(Arch, kernel::Object)],
    older: &[(Arch, kernel::Object)],
    project: &str,
) -> Vec<BpfRecord> {
    let record = |(arch, object): &(Arch, kernel::Object)| BpfRecord {
        name: project.to_owned(),
        arch: *arch,
        elf: object.elf().to_vec(),
    };
    objects.iter().chain(older).map(record).collect()
}

impl Checked {
    /// Compiles the kernel half alone, for a plugin whose userspace half is not a script: its programs, and
    /// the maps, ring buffers and variables that they use.
    ///
    /// # Errors
    /// If it cannot be compiled, or there are no programs; the reasons are added to the diagnostics.
    pub fn build_kernel(&mut self, target: Target) -> Result<KernelHalf, Failed> {
        let Some(hir) = &mut self.hir else { return Err(Failed) };
        hir.main = None;
        hir.tests.clear();
        let split = split::split(hir);
        let mut found = refused::hidden_pointers(hir, &split);
        if found.is_empty() {
            match back_end("the kernel half", self.file, || {
                kernel_half(hir, &split, &self.sources, (self.file, target))
            }) {
                Ok((objects, older)) => {
                    let manifest = manifest::build(hir, &split, &self.sources, self.file);
                    return Ok(KernelHalf { split, objects, older, manifest });
                }
                Err(reasons) => found = reasons,
            }
        }
        found.into_iter().for_each(|one| self.diagnostics.report(one));
        Err(Failed)
    }

    /// Lowers the kernel half and runs its passes; `watch` sees the program before the first pass and after
    /// each pass that changed it, up to an error.
    ///
    /// # Errors
    /// As for [`kernel::compile`]. Without a typed tree there is nothing to lower, and no error.
    pub fn watch_passes(&self, arch: Arch, watch: kernel::Watch<'_>) -> Result<(), Vec<Diagnostic>> {
        let Some(hir) = &self.hir else { return Ok(()) };
        back_end("the kernel half", self.file, || {
            kernel::lower_watched(hir, &split::split(hir), arch, watch).map(drop)
        })
    }

    /// Compiles both halves and puts them into one file.
    ///
    /// # Errors
    /// If a half cannot be compiled; the reasons are added to the diagnostics.
    pub fn build(&mut self, target: Target) -> Result<Built, Failed> {
        let Some(hir) = &mut self.hir else { return Err(Failed) };
        let module = match target.module.then(|| kmod::source(hir)).transpose() {
            Ok(module) => module,
            Err(reasons) => {
                reasons.into_iter().for_each(|reason| self.diagnostics.report(reason));
                return Err(Failed);
            }
        };
        if module.is_some() {
            hir::module::rewrite(hir);
        }
        let hir = &*hir;
        let split = split::split(hir);
        let hidden = refused::hidden_pointers(hir, &split);
        if !hidden.is_empty() {
            hidden.into_iter().for_each(|one| self.diagnostics.report(one));
            return Err(Failed);
        }
        let (sources, file) = (&self.sources, self.file);
        let built = back_end("the kernel half", file, || kernel_half(hir, &split, sources, (file, target)))
            .and_then(|(objects, older)| {
                let core = back_end("the userspace half", file, || user::compile(hir, &split, sources))?;
                back_end("the plugin file", file, || {
                    let manifest = manifest::build(hir, &split, sources, file);
                    let records = records(&objects, &older, &hir.project);
                    let plugin = plugin::assemble(&core, &records, &manifest, target.checks)
                        .map_err(|error| vec![Diagnostic::mistake(start_of(file), error.to_string())])?;
                    Ok(Built { plugin, core, objects, older, module, manifest })
                })
            });
        built.map_err(|reasons| {
            reasons.into_iter().for_each(|reason| self.diagnostics.report(reason));
            Failed
        })
    }
}

/// A kernel half without a userspace half.
#[derive(Debug)]
pub struct KernelHalf {
    /// The items that the object contains.
    pub split: Split,
    /// One object for each architecture; empty if the script has no programs.
    pub objects: Vec<(Arch, kernel::Object)>,
    /// Variants of `objects` for kernels that lack features those use; empty where there is no alternative.
    pub older: Vec<(Arch, kernel::Object)>,
    /// The manifest section of the file. The other half must fill in the initial values of config blocks.
    pub manifest: Manifest,
}

/// A half could not be compiled; the diagnostics say why.
#[derive(Debug, thiserror::Error)]
#[error("the script has errors")]
pub struct Failed;

/// Objects by architecture: the best ones, and those for older kernels.
type Objects = (Vec<(Arch, kernel::Object)>, Vec<(Arch, kernel::Object)>);

/// The newest kernel without open-coded number iterators (`bpf_iter_num`): there loops are calls of
/// `bpf_loop`.
const WITHOUT_ITERATORS: KernelVersion = KernelVersion::new(6, 3);

fn kernel_half(
    hir: &Hir,
    split: &Split,
    sources: &SourceMap,
    (file, target): (FileId, Target),
) -> Result<Objects, Vec<Diagnostic>> {
    if !split.needs_object() {
        return Ok((Vec::new(), Vec::new()));
    }
    let archs = match target.arch {
        Some(arch) => vec![arch],
        None if split.arch_dependent => vec![Arch::X86_64, Arch::Aarch64],
        None => vec![Arch::Any],
    };
    let compiled = |target: Target, arch: Arch| -> Result<(Arch, kernel::Object), Vec<Diagnostic>> {
        Ok((arch, kernel::compile(hir, split, sources, target.machine(arch))?))
    };
    // The script may need other features that are younger, too: then there is no object for older kernels.
    let before = Target { kernel: Some(WITHOUT_ITERATORS), ..target };
    let may_have_older = target.kernel.is_none() && !target.only_newest;
    let of_archs = |target: Target| archs.iter().map(move |arch| (target, *arch));
    let compile_all =
        |jobs: &[(Target, Arch)]| side_by_side(jobs, file, |(target, arch)| compiled(*target, *arch));
    let mut jobs: Vec<(Target, Arch)> = of_archs(target).collect();
    // Whether older kernels need objects of their own shows in the others. CPUs that would idle begin with them.
    if may_have_older && has_loops(hir, split) && 2 * jobs.len() <= cpus() {
        jobs.extend(of_archs(before));
    }
    let mut done = compile_all(&jobs);
    let mut older = done.split_off(archs.len());
    let best = done.into_iter().collect::<Result<Vec<_>, _>>()?;
    let any = |has: fn(&kernel::Object) -> bool| best.iter().any(|(_, object)| has(object));
    let (uses_iterators, passes_memory) =
        (any(kernel::Object::uses_iterators), any(kernel::Object::passes_memory));
    if !may_have_older || !(uses_iterators || passes_memory) {
        return Ok((best, Vec::new()));
    }
    if older.is_empty() {
        older = compile_all(&of_archs(before).collect::<Vec<_>>());
    }
    let Ok(older) = older.into_iter().collect::<Result<Vec<_>, _>>() else { return Ok((best, Vec::new())) };
    // A host picks an object by the kernel functions that it names. Without iterators there is none to tell
    // the two apart, but kernels before 6.2 refuse the first: they take no key of a map from memory that a
    // function is passed. The second is for all then. Source: kernel/bpf/verifier.c, `map_key_value_types`,
    // v6.1.
    Ok(if uses_iterators { (best, older) } else { (older, Vec::new()) })
}

/// Whether the kernel half has a loop in its text.
fn has_loops(hir: &Hir, split: &Split) -> bool {
    struct Loops(bool);
    impl Visitor for Loops {
        fn stmt(&mut self, stmt: &Stmt) {
            self.0 |=
                matches!(stmt.kind, StmtKind::While { .. } | StmtKind::For { .. } | StmtKind::ForEach { .. });
        }
    }
    let mut loops = Loops(false);
    split.kernel.iter().for_each(|id| visit::block(&mut loops, &hir.functions[*id].body));
    loops.0
}

/// The stack of a thread that compiles: as much as the first thread of a process has by default, on which the
/// stages are also run.
const STACK_BYTES: usize = 8 << 20;

/// The number of CPUs that this process may use.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The results of jobs, which run in parallel if the machine has several CPUs and this process may start threads.
fn side_by_side<J: Sync, T: Send + Sync>(
    jobs: &[J],
    file: FileId,
    run: impl Fn(&J) -> Result<T, Vec<Diagnostic>> + Sync,
) -> Vec<Result<T, Vec<Diagnostic>>> {
    let run = &run;
    let next = AtomicUsize::new(0);
    let results: Vec<_> = jobs.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(job), Some(result)) = (jobs.get(at), results.get(at)) else { break };
            result.get_or_init(|| back_end("the kernel half", file, || run(job)));
        }
    };
    let threads = cpus().min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Jobs that no other thread takes are done by this one.
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            if thread.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

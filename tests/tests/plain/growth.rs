//! How the contract grows (docs/contract.md): plugins that were built before are linked with hosts that offer
//! more, and with hosts whose types changed.
//!
//! Where a change is all that counts, the functions that it does not concern trap when they are called, as nobody
//! does.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use ks_host::Host;
use ks_host::plugin::Outcome;
use ks_tests::growth::{Change, additions, handle, of, offer, run_on_larger_host};
use ks_tests::guest::{core_module, imports};
use ks_tests::{component, repository};
use wasmtime::Engine;
use wasmtime::component::{Component, ComponentType, Lift, Linker, Lower, Resource, flags};

static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::default);

/// Links a plugin with a host that differs from the contract by a change.
fn link(plugin: &Component, change: Change<()>) -> wasmtime::Result<()> {
    let mut linker = Linker::new(&ENGINE);
    change(&mut linker)?;
    linker.define_unknown_imports_as_traps(plugin)?;
    linker.instantiate_pre(plugin).map(drop)
}

/// Files of stored plugins, by their name.
fn stored() -> Vec<(String, Vec<u8>)> {
    let folder = std::fs::read_dir(repository().join("tests/plugins")).expect("the folder is there");
    let files = folder.map(|entry| entry.expect("readable").path());
    let load = |file: PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, std::fs::read(&file).expect("readable"))
    };
    files.filter(|file| file.extension().is_some_and(|extension| extension == "wasm")).map(load).collect()
}

/// Stored plugins, compiled.
fn compiled() -> Vec<(String, Component)> {
    let compile = |(name, file): (String, Vec<u8>)| {
        let plugin = Component::new(&ENGINE, file).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        (name, plugin)
    };
    stored().into_iter().map(compile).collect()
}

/// A plugin that imports every function of the contract.
fn imports_everything() -> Component {
    let names: String = imports().iter().map(|import| format!(" ${}", import.short)).collect();
    let run = "(func (export \"run\") (result i32) (i32.const 0))";
    let text = core_module(1, &format!("(elem declare func{names}) {run}"));
    let plugin = component("everything", &text, &[]).unwrap_or_else(|error| panic!("{error:#}"));
    Component::from_binary(&ENGINE, &plugin).unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn what_may_be_added_breaks_no_plugin() {
    let mut plugins = compiled();
    assert!(plugins.len() >= 3, "stored plugins of Rust, C and the language");
    plugins.push(("a plugin that imports everything".to_owned(), imports_everything()));
    for (what, addition) in additions() {
        for (name, plugin) in &plugins {
            link(plugin, addition).unwrap_or_else(|error| panic!("{what}: {name}: {error:#}"));
        }
    }
}

#[test]
fn stored_plugins_name_no_folder_of_the_machine_that_built_them() {
    for (name, file) in stored() {
        for folder in ["/root/", "/home/", "/.cargo/", "/.cache/"] {
            let found = file.windows(folder.len()).any(|window| window == folder.as_bytes());
            assert!(!found, "{name} has `{folder}`: build it with `--remap-path-prefix`");
        }
    }
}

#[test]
fn root_built_plugins_run_on_a_host_that_offers_more() {
    for (name, file) in stored() {
        let host = Host::new().expect("an engine");
        let ran = run_on_larger_host(host, file, |options| {
            options.timeout = Some(Duration::from_millis(1300));
            // What the plugin in Rust is to do; the others have no parameters.
            options.arguments.extend(name.starts_with("rust").then(|| "kernel".to_owned()));
        });
        let counts = if name.starts_with("rust") { "faults" } else { "1" };
        let line = ran.stdout.lines().find(|line| line.split_whitespace().next() == Some(counts));
        let line = line.unwrap_or_else(|| panic!("{name}: {:?} {} {}", ran.outcome, ran.stdout, ran.stderr));
        let count = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 0), "{name}: {}", ran.stdout);
        assert!(matches!(ran.outcome, Outcome::Returned(0) | Outcome::TimedOut), "{name}: {:?}", ran.outcome);
    }
}

#[test]
fn what_may_not_change_breaks_plugins() {
    let everything = imports_everything();
    let links = |change| link(&everything, change);
    // The functions that the changes below concern, as the contract has them.
    links(|linker| {
        let mut clock = of(linker, "clock")?;
        offer::<_, (), (u64,)>(&mut clock, "now")?;
        offer::<_, (u64,), (Result<(), Error<ErrorKind>>,)>(&mut clock, "sleep")?;
        let mut perf = of(linker, "perf")?;
        handle(&mut perf, "event")?;
        offer::<_, (u64,), (Result<Reading, Error<ErrorKind>>,)>(&mut perf, "read-by-id")?;
        offer::<_, (u64, u32, Access), Opened>(&mut perf, "[static]event.breakpoint")?;
        let mut maps = of(linker, "maps")?;
        handle(&mut maps, "bpf-map")?;
        offer::<_, Updated<UpdateMode>, (Result<(), Error<ErrorKind>>,)>(&mut maps, "[method]bpf-map.update")
    })
    .unwrap_or_else(|error| panic!("the contract itself: {error:#}"));
    let changes: [(&str, Change<()>); 6] = [
        ("another result", |linker| offer::<_, (), (u32,)>(&mut of(linker, "clock")?, "now")),
        ("another parameter", |linker| {
            offer::<_, (u64, u64), (Result<(), Error<ErrorKind>>,)>(&mut of(linker, "clock")?, "sleep")
        }),
        ("a case more in a variant", |linker| {
            offer::<_, (u64,), (Result<(), Error<MoreErrorKind>>,)>(&mut of(linker, "clock")?, "sleep")
        }),
        ("a field more in a record", |linker| {
            offer::<_, (u64,), (Result<MoreReading, Error<ErrorKind>>,)>(
                &mut of(linker, "perf")?,
                "read-by-id",
            )
        }),
        ("a flag more", |linker| {
            let mut perf = of(linker, "perf")?;
            handle(&mut perf, "event")?;
            offer::<_, (u64, u32, MoreAccess), Opened>(&mut perf, "[static]event.breakpoint")
        }),
        ("a case more in an enum", |linker| {
            let mut maps = of(linker, "maps")?;
            handle(&mut maps, "bpf-map")?;
            offer::<_, Updated<MoreUpdateMode>, (Result<(), Error<ErrorKind>>,)>(
                &mut maps,
                "[method]bpf-map.update",
            )
        }),
    ];
    for (what, change) in changes {
        let refused = links(change).expect_err(what);
        assert!(format!("{refused:#}").contains("type mismatch"), "{what}: {refused:#}");
    }
    // Something that is gone.
    let gone =
        Linker::<()>::new(&ENGINE).instantiate_pre(&everything).map(drop).expect_err("nothing is there");
    assert!(format!("{gone:#}").contains("was not found"), "{gone:#}");
}

/// Result of opening an event.
type Opened = (Result<Resource<()>, Error<ErrorKind>>,);

/// Parameters of an update with this type of mode.
type Updated<M> = (Resource<()>, Vec<u8>, Vec<u8>, M);

#[derive(ComponentType, Lower)]
#[component(record)]
struct Error<K> {
    kind: K,
    errno: Option<u32>,
    message: String,
    #[component(name = "errno-name")]
    errno_name: Option<String>,
    tried: String,
    because: Option<String>,
    advice: Option<String>,
}

/// Declares the kinds of an error, with one more if it is named.
macro_rules! error_kind {
    ($name:ident $(, $more:ident: $more_name:literal)?) => {
        #[derive(ComponentType, Lower)]
        #[component(variant)]
        #[expect(dead_code, reason = "only the type is compared")]
        enum $name {
            #[component(name = "not-permitted")]
            NotPermitted,
            #[component(name = "not-found")]
            NotFound,
            #[component(name = "invalid")]
            Invalid,
            #[component(name = "busy")]
            Busy,
            #[component(name = "limit")]
            Limit,
            #[component(name = "stale")]
            Stale,
            #[component(name = "unsupported")]
            Unsupported,
            #[component(name = "interrupted")]
            Interrupted,
            #[component(name = "denied-by-policy")]
            DeniedByPolicy,
            #[component(name = "kernel")]
            Kernel,
            #[component(name = "other")]
            Other(u32),
            $(#[component(name = $more_name)] $more,)?
        }
    };
}

error_kind!(ErrorKind);
error_kind!(MoreErrorKind, More: "more");

#[derive(ComponentType, Lower)]
#[component(variant)]
#[expect(dead_code, reason = "only the type is compared")]
enum CounterState {
    #[component(name = "counted")]
    Counted,
    #[component(name = "multiplexed")]
    Multiplexed,
    #[component(name = "never-ran")]
    NeverRan,
    #[component(name = "idle")]
    Idle,
    #[component(name = "other")]
    Other(u32),
}

/// Declares a reading, with one more field if it is named.
macro_rules! reading {
    ($name:ident $(, $more:ident)?) => {
        #[derive(ComponentType, Lower)]
        #[component(record)]
        struct $name {
            raw: u64,
            scaled: Option<u64>,
            #[component(name = "time-enabled")]
            time_enabled: u64,
            #[component(name = "time-running")]
            time_running: u64,
            state: CounterState,
            partial: bool,
            $($more: u64,)?
        }
    };
}

reading!(Reading);
reading!(MoreReading, lost);

flags! {
    Access {
        #[component(name = "read")]
        const READ;
        #[component(name = "write")]
        const WRITE;
        #[component(name = "execute")]
        const EXECUTE;
    }
}

flags! {
    MoreAccess {
        #[component(name = "read")]
        const READ;
        #[component(name = "write")]
        const WRITE;
        #[component(name = "execute")]
        const EXECUTE;
        #[component(name = "more")]
        const MORE;
    }
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "only the type is compared")]
enum UpdateMode {
    #[component(name = "any")]
    Any,
    #[component(name = "no-exist")]
    NoExist,
    #[component(name = "exist")]
    Exist,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "only the type is compared")]
enum MoreUpdateMode {
    #[component(name = "any")]
    Any,
    #[component(name = "no-exist")]
    NoExist,
    #[component(name = "exist")]
    Exist,
    #[component(name = "more")]
    More,
}

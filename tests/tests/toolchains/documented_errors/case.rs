//! Cases: how each documented error is provoked, and the run of one.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use ks_tests::refused::{Call, PendingCall, observe};
use ks_tests::{Folder, Outcome, binary, finish};
use nix::errno::Errno;
use nix::libc;

/// A way to provoke an error, for one function or several that are called alike.
#[derive(Debug, Clone)]
pub struct Case {
    /// Interface, resource and function: `maps.bpf-map.lookup`.
    pub functions: Vec<&'static str>,
    pub kind: &'static str,
    /// As the contract words it; empty if it has no reason.
    pub reason: &'static str,
    /// The arguments of the guest after the function.
    words: Vec<String>,
    /// Text that the message has, never empty: the error is the expected one, not another of its kind.
    says: String,
    errno: &'static str,
    /// Arguments of `ks-host`.
    options: Vec<&'static str>,
    /// What the policy allows, as in a policy file; none if it allows everything.
    policy: Option<&'static str>,
    /// Whether the object has pins.
    pub is_pinned: bool,
    /// The capabilities of an unprivileged user, for setpriv(1); none for root.
    capabilities: Option<&'static str>,
    /// Options of unshare(1), and what a shell does in the new namespaces before the host starts.
    within: Option<(&'static str, String)>,
    refusal: Option<Refusal>,
    /// A file, as the host sees it, that is written when the guest is about to make its call.
    changes: Option<&'static str>,
    needs: Option<Need>,
}

/// What a machine must have for an error to happen.
#[derive(Debug, Clone, Copy)]
struct Need {
    what: &'static str,
    is_met: fn() -> bool,
}

/// System calls of the host that fail from the moment of the call on.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    call: Call,
    of: Of,
    errno: Errno,
}

/// Which calls of a kind fail.
#[derive(Debug, Clone, Copy)]
pub enum Of {
    /// All of them.
    Any,
    /// Those whose first argument is this number: the command of bpf(2).
    First(u64),
    /// Those whose path, the second argument, ends so.
    Path(&'static str),
}

pub const BPF: Call = Call { name: "bpf", number: libc::SYS_bpf };
pub const IOCTL: Call = Call { name: "ioctl", number: libc::SYS_ioctl };
pub const OPENAT: Call = Call { name: "openat", number: libc::SYS_openat };
pub const PERF_EVENT_OPEN: Call = Call { name: "perf_event_open", number: libc::SYS_perf_event_open };
pub const READ: Call = Call { name: "read", number: libc::SYS_read };
const WRITE: Call = Call { name: "write", number: libc::SYS_write };

/// What each guest needs to start.
const POLICY: &str = "[allow]\nimport = [\"*\"]\nperf_event = [\"*\"]\nraw_tracepoint = [\"*\"]\n";

/// Begins a case: an error of this kind, for this reason.
pub fn case(kind: &'static str, reason: &'static str) -> Case {
    Case {
        functions: Vec::new(),
        kind,
        reason,
        words: Vec::new(),
        says: String::new(),
        errno: "-",
        options: Vec::new(),
        policy: None,
        is_pinned: false,
        capabilities: None,
        within: None,
        refusal: None,
        changes: None,
        needs: None,
    }
}

impl Case {
    /// The functions that fail so.
    pub fn of(mut self, functions: &[&'static str]) -> Case {
        self.functions = functions.to_vec();
        self
    }

    /// The guest's arguments after the function, separated by spaces. `LONG` becomes a name that is too long.
    pub fn with(mut self, words: &str) -> Case {
        let word = |word: &str| if word == "LONG" { "x".repeat(4097) } else { word.to_owned() };
        self.words = words.split_whitespace().map(word).collect();
        self
    }

    /// The message has this text.
    pub fn says(mut self, text: impl Into<String>) -> Case {
        self.says = text.into();
        self
    }

    /// The error has this errno, by its name; without this it has none.
    pub fn errno(mut self, errno: &'static str) -> Case {
        self.errno = errno;
        self
    }

    /// `ks-host` has these arguments, too.
    pub fn host(mut self, options: &[&'static str]) -> Case {
        self.options = options.to_vec();
        self
    }

    /// The policy allows the imports and programs of the guest, and these lines of a policy file.
    pub fn allowing(mut self, lines: &'static str) -> Case {
        self.policy = Some(lines);
        self
    }

    /// The object has a map and a variable that are pinned.
    pub fn pinned(mut self) -> Case {
        self.is_pinned = true;
        self
    }

    /// An unprivileged user with these capabilities runs it: `-all,+bpf`.
    pub fn by_nobody(mut self, capabilities: &'static str) -> Case {
        self.capabilities = Some(capabilities);
        self
    }

    /// It runs in a mount namespace of its own, in which a shell does this first.
    pub fn within(self, script: &str) -> Case {
        self.within_namespaces("--mount", script)
    }

    /// It runs in new namespaces, by options of unshare(1).
    pub fn within_namespaces(mut self, namespaces: &'static str, script: &str) -> Case {
        self.within = Some((namespaces, script.to_owned()));
        self
    }

    /// These system calls of the host fail with this error once the guest is about to make its call.
    pub fn refused(mut self, call: Call, of: Of, errno: Errno) -> Case {
        self.refusal = Some(Refusal { call, of, errno });
        self
    }

    /// Somebody writes to this file when the guest is about to make its call.
    pub fn changing(mut self, path: &'static str) -> Case {
        self.changes = Some(path);
        self
    }

    /// It can happen only on a machine that has this.
    pub fn needs(mut self, what: &'static str, is_met: fn() -> bool) -> Case {
        self.needs = Some(Need { what, is_met });
        self
    }

    /// Returns what this machine lacks to run the case; none if it lacks nothing.
    pub fn lacks(&self) -> Option<&'static str> {
        self.needs.filter(|need| !(need.is_met)()).map(|need| need.what)
    }

    /// Runs the case for one function.
    ///
    /// # Errors
    /// What differs from the documentation, with the whole outcome.
    pub fn run(&self, function: &str, plugin: &Path, cache: &Path) -> Result<(), String> {
        let folder = Folder::new();
        let policy = self.policy.map(|lines| folder.write("policy.toml", format!("{POLICY}{lines}\n")));
        let mut command = self.command(function, plugin, cache, policy.as_deref());
        let outcome = match (self.refusal, self.changes) {
            (None, None) => finish(&mut command),
            _ => self.disturb(&mut command),
        };
        let line = outcome.stdout.lines().next().unwrap_or_default();
        let expected = format!("{} {} ", self.kind, self.errno);
        if line.starts_with(&expected) && !self.says.is_empty() && line.contains(&self.says) {
            return Ok(());
        }
        let Case { kind, reason, words, says, .. } = self;
        let words = words.join(" ");
        Err(format!(
            "{function}: `{kind}` ({reason}), by `{words}`: expected `{expected}..{says}..`\n{}{}(code {})",
            outcome.stdout, outcome.stderr, outcome.code
        ))
    }

    fn command(&self, function: &str, plugin: &Path, cache: &Path, policy: Option<&Path>) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        if let Some((namespaces, script)) = &self.within {
            add(&["unshare"]);
            add(&namespaces.split(' ').collect::<Vec<_>>());
            add(&["sh", "-c", &format!("set -e; {script}\nexec \"$@\""), "sh"]);
        }
        if let Some(capabilities) = self.capabilities {
            add(&["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            add(&[&format!("--inh-caps={capabilities}"), &format!("--ambient-caps={capabilities}")]);
        }
        words.push(binary("ks-host").into());
        // The cache belongs to root.
        match self.capabilities {
            None => words.extend(["--cache".into(), cache.into()]),
            Some(_) => words.push("--no-cache".into()),
        }
        match policy {
            None => words.extend(["--allow".into(), "all".into()]),
            Some(file) => words.extend(["--policy".into(), file.into()]),
        }
        words.extend(self.options.iter().map(OsString::from));
        words.extend([plugin.into(), "--".into(), function.into()]);
        words.extend(self.words.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// Runs the host; calls fail, and a file is written, after the guest has said `begin` on standard error.
    fn disturb(&self, command: &mut Command) -> Outcome {
        let refused = self.refusal.map(|refusal| refusal.call);
        let watched: Vec<Call> = std::iter::once(WRITE).chain(refused).collect();
        let mut has_begun = false;
        let outcome = observe(command, &watched, |asked| {
            if asked.kind == 0 && is_begin(asked) {
                has_begun = true;
                self.changes.into_iter().for_each(|path| change(asked.thread(), path));
            }
            let refusal = self.refusal.filter(|refusal| asked.kind == 1 && is_meant(asked, refusal.of));
            refusal.filter(|_| has_begun).map(|refusal| refusal.errno)
        });
        outcome.expect("the kernel has notifications")
    }
}

/// Appends a byte to a file in the mount namespace of a thread.
fn change(thread: u32, path: &str) {
    let file = OpenOptions::new().append(true).open(format!("/proc/{thread}/root{path}"));
    file.and_then(|mut file| file.write_all(b"\n")).expect("root may write it");
}

fn is_begin(asked: &PendingCall) -> bool {
    let [descriptor, address, len, ..] = asked.args;
    descriptor == 2 && asked.memory(address, len as usize).is_ok_and(|text| text.ends_with(b": begin\n"))
}

fn is_meant(asked: &PendingCall, of: Of) -> bool {
    match of {
        Of::Any => true,
        Of::First(number) => asked.args[0] == number,
        Of::Path(end) => {
            // As many bytes as the longest path that a case names; they end within a page of the caller.
            let path = asked.memory(asked.args[1], 64).unwrap_or_default();
            let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
            path.ends_with(end.as_bytes())
        }
    }
}

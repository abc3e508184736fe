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
    policy: Option<String>,
    /// The object that the guest has.
    pub object: Object,
    /// The capabilities of an unprivileged user, for setpriv(1); none for root.
    capabilities: Option<&'static str>,
    /// Options of unshare(1), and what a shell does in the new namespaces before the host starts.
    within: Option<(&'static str, String)>,
    refusal: Option<Refusal>,
    /// A file, as the host sees it, that is written when the guest is about to make its call, or when the host
    /// makes the first system call of this kind after that.
    changes: Option<(&'static str, Option<Call>)>,
    needs: Option<Need>,
}

/// The object of a run: `object.c` with one of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// Maps, variables, and programs that every guest needs.
    Plain,
    /// Also a map and a variable that are pinned.
    Pinned,
    /// Also programs of each kind that is attached.
    Programs,
    /// Also programs that the kernel refuses.
    Refused,
}

impl Object {
    /// All of them.
    pub const ALL: [Object; 4] = [Object::Plain, Object::Pinned, Object::Programs, Object::Refused];

    /// Returns the macro that `object.c` tests; none for the plain object.
    pub fn macro_name(self) -> Option<&'static str> {
        match self {
            Object::Plain => None,
            Object::Pinned => Some("PINNED"),
            Object::Programs => Some("PROGRAMS"),
            Object::Refused => Some("REFUSED"),
        }
    }

    /// Returns the name of the plugin with this object.
    pub fn file_name(self) -> String {
        format!("{}.wasm", self.macro_name().unwrap_or("PLAIN").to_lowercase())
    }
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
pub const MEMBARRIER: Call = Call { name: "membarrier", number: libc::SYS_membarrier };
pub const IOCTL: Call = Call { name: "ioctl", number: libc::SYS_ioctl };
pub const OPENAT: Call = Call { name: "openat", number: libc::SYS_openat };
pub const PERF_EVENT_OPEN: Call = Call { name: "perf_event_open", number: libc::SYS_perf_event_open };
pub const READ: Call = Call { name: "read", number: libc::SYS_read };
pub const PPOLL: Call = Call { name: "ppoll", number: libc::SYS_ppoll };
pub const SOCKET: Call = Call { name: "socket", number: libc::SYS_socket };
const WRITE: Call = Call { name: "write", number: libc::SYS_write };

/// The classes of a policy that each guest needs to start, and those that the programs of each kind need.
const NEEDED: [&str; 4] = ["import", "perf_event", "programs", "raw_tracepoint"];
const NEEDED_BY_PROGRAMS: [&str; 10] = [
    "tracepoint",
    "kprobe",
    "uprobe",
    "tracing",
    "xdp",
    "tc",
    "cgroup",
    "socket_filter",
    "timer",
    "struct_ops",
];

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
        object: Object::Plain,
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
        self.words = words.split_whitespace().map(|word| word.replace("LONG", &"x".repeat(4097))).collect();
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

    /// The policy allows what these lines of a policy file say, and all that the guest needs of other classes.
    pub fn allowing(mut self, lines: impl Into<String>) -> Case {
        self.policy = Some(lines.into());
        self
    }

    /// The object has a map and a variable that are pinned.
    pub fn pinned(self) -> Case {
        self.on(Object::Pinned)
    }

    /// The guest has this object.
    pub fn on(mut self, object: Object) -> Case {
        self.object = object;
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
        self.changes = Some((path, None));
        self
    }

    /// Somebody writes to this file when the host makes such a system call, on behalf of the guest's call.
    pub fn changing_at(mut self, path: &'static str, call: Call) -> Case {
        self.changes = Some((path, Some(call)));
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
        let policy = self.policy.as_ref().map(|lines| folder.write("policy.toml", self.policy_file(lines)));
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

    fn policy_file(&self, lines: &str) -> String {
        let by_programs = NEEDED_BY_PROGRAMS.iter().filter(|_| self.object == Object::Programs);
        let is_other = |class: &&&str| !lines.lines().any(|line| line.split(' ').next() == Some(**class));
        let others = NEEDED.iter().chain(by_programs).filter(is_other);
        let others: String = others.map(|class| format!("{class} = [\"*\"]\n")).collect();
        format!("[allow]\n{others}{lines}\n")
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
        // What is refused, or changes, is a call of the process that runs the plugin and opens and loads for it.
        if self.refusal.is_some() || self.changes.is_some() {
            words.extend(["--isolation", "thread"].map(OsString::from));
        }
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
        let changed_at = self.changes.and_then(|(_, call)| call);
        let watched: Vec<Call> = std::iter::once(WRITE).chain(refused).chain(changed_at).collect();
        let (mut has_begun, mut changes) = (false, self.changes);
        let outcome = observe(command, &watched, |asked| {
            has_begun |= asked.kind == 0 && is_begin(asked);
            let call = watched[asked.kind];
            let is_time = |(_, at): &mut (&str, Option<Call>)| has_begun && at.is_none_or(|at| at == call);
            if let Some((path, _)) = changes.take_if(is_time) {
                change(asked.thread(), path);
            }
            let is_refused = |refusal: &Refusal| refusal.call == call && is_meant(asked, refusal.of);
            self.refusal.filter(|refusal| has_begun && is_refused(refusal)).map(|refusal| refusal.errno)
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
    let [_, address, len, ..] = asked.args;
    asked.memory(address, len as usize).is_ok_and(|text| text.ends_with(b": begin\n"))
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

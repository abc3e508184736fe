//! The interface `perf`: events by texts and numbers, and attachments that the words describe.
//!
//! ```text
//! page_faults own + task_clock own inherit     a leader, and a member of its group
//! page_faults own + task_clock own ++ .. own   the last one is to be led by the member
//! page_faults own detached                     an attachment that was detached
//! ```

use ks_guest::bindings::kernelscript::host::bpf::Program;
use ks_guest::bindings::kernelscript::host::perf::{self, Access, Attachment, Event, Options};
use ks_guest::bindings::kernelscript::host::ring::Ring;
use ks_guest::bindings::kernelscript::host::types::Error;

use crate::{Answer, abort, begin, prepared, until_refused};

/// An id that no attachment has.
const NO_ID: u64 = 1 << 40;

pub fn answer(function: &str, words: &[&str]) -> Answer {
    match (function, words) {
        ("open", [many @ .., "many"]) => {
            let request = Request::of(many);
            until_refused(|| request.open(None))
        }
        ("open", words) => open_group(words),
        ("list-events", [wildcard]) => perf::list_events(wildcard).map(drop),
        ("list-events", []) => perf::list_events("").map(drop),
        ("read-by-id", ["unknown"]) => perf::read_by_id(NO_ID).map(drop),
        ("snapshot-by-id", ["unknown"]) => perf::snapshot_by_id(NO_ID).map(drop),
        ("read-many", ["unknown"]) => perf::read_many(&[NO_ID]).map(drop),
        (function, [words @ .., "many"]) if function.starts_with("event.") => {
            until_refused(|| event(function, words))
        }
        (function, words) if function.starts_with("event.") => {
            begin();
            event(function, words).map(drop)
        }
        // What `open` refuses because of an option.
        (function, words) if function.starts_with("options.") => open_group(words),
        (function, [argument, "of", words @ ..]) => of_attachment(function, argument, words),
        (function, words) => of_attachment(function, "", words),
    }
}

fn event(function: &str, words: &[&str]) -> Result<Event, Error> {
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| abort("no number"));
    match (function, words) {
        ("event.numbered", [ty, config]) => Event::numbered(number(ty) as u32, number(config)),
        ("event.raw", [ty, config]) => Event::raw(number(ty) as u32, number(config), 0, 0),
        ("event.raw", [ty, config, config1]) => {
            Event::raw(number(ty) as u32, number(config), number(config1), 0)
        }
        ("event.named", [name]) => Event::named(name),
        ("event.tracepoint", [name]) => Event::tracepoint(name),
        ("event.kprobe", [function]) => Event::kprobe(function),
        ("event.uprobe", [target]) => Event::uprobe(target),
        ("event.breakpoint", [len, access]) => {
            Event::breakpoint(0x1000, number(len) as u32, accesses(access))
        }
        ("event.breakpoint-at", [symbol, len, access]) => {
            Event::breakpoint_at(symbol, number(len) as u32, accesses(access))
        }
        _ => abort(&format!("no way to call `{function}`: {words:?}")),
    }
}

fn accesses(letters: &str) -> Access {
    let each = [('r', Access::READ), ('w', Access::WRITE), ('x', Access::EXECUTE)];
    let named = each.into_iter().filter(|(letter, _)| letters.contains(*letter));
    named.fold(Access::empty(), |all, (_, access)| all | access)
}

/// Opens the attachments that the words describe but the last one, whose opening is the call.
fn open_group(words: &[&str]) -> Answer {
    let Some(sign) = words.iter().rposition(|word| word.starts_with('+')) else {
        let request = Request::of(words);
        begin();
        return request.open(None).map(drop);
    };
    let opened = open_all(&words[..sign]);
    let request = Request::of(&words[sign + 1..]);
    let leader = if words[sign] == "++" { opened.last() } else { opened.first() };
    begin();
    request.open(leader).map(drop)
}

/// Opens the attachments that the words describe, and detaches those that say so when all are open.
fn open_all(words: &[&str]) -> Vec<Attachment> {
    let mut all: Vec<Attachment> = Vec::new();
    for words in words.split(|word| *word == "+") {
        // What is pinned leads a group of its own.
        let leader = all.first().filter(|_| !words.contains(&"pinned"));
        all.push(prepared(Request::of(words).open(leader)));
    }
    let each = all.iter().zip(words.split(|word| *word == "+"));
    each.filter(|(_, words)| words.contains(&"detached")).for_each(|(attachment, _)| attachment.detach());
    all
}

/// Calls a function on the last attachment that the words describe.
fn of_attachment(function: &str, argument: &str, words: &[&str]) -> Answer {
    let attachments = open_all(words);
    let Some(last) = attachments.last() else { return abort("no attachment") };
    begin();
    call(function, argument, last)
}

fn call(function: &str, argument: &str, attachment: &Attachment) -> Answer {
    match function {
        "attachment.read" => attachment.read().map(drop),
        "attachment.snapshot" => attachment.snapshot().map(drop),
        "attachment.snapshot-cpu" => attachment.snapshot_cpu(argument.parse().unwrap_or(0)).map(drop),
        "attachment.enable" => attachment.enable(),
        "attachment.disable" => attachment.disable(),
        "attachment.reset" => attachment.reset(),
        "attachment.publish" if argument.is_empty() => attachment.publish("events"),
        "attachment.publish" if argument == "twice" => {
            let other = prepared(Request::of(&["page_faults", "all", "cpu=0"]).open(None));
            prepared(other.publish("events"));
            attachment.publish("events")
        }
        "attachment.publish" if argument == "read" => {
            let _rings = prepared(Ring::open_perf_event_array("events", 4096));
            attachment.publish("events")
        }
        "attachment.publish" => attachment.publish(argument),
        "attachment.set-period" => attachment.set_period(argument.parse().unwrap_or(1000)),
        "attachment.kernel-id" => attachment.kernel_id().map(drop),
        "read-by-id" => perf::read_by_id(attachment.id()).map(drop),
        "snapshot-by-id" => perf::snapshot_by_id(attachment.id()).map(drop),
        "read-many" if argument == "10000" => perf::read_many(&vec![attachment.id(); 10_000]).map(drop),
        "read-many" => perf::read_many(&[attachment.id()]).map(drop),
        _ => abort(&format!("no function `{function}`")),
    }
}

/// The arguments of `open`, but for the leader.
struct Request {
    event: Event,
    options: Options,
    program: Option<Program>,
}

impl Request {
    /// Prepares a request from the name of an event, or `event.FUNCTION=ARGUMENT,..`, and options.
    fn of(words: &[&str]) -> Request {
        let [name, words @ ..] = words else { return abort("no event") };
        let event = match name.split_once('=') {
            Some((function, text)) if function.starts_with("event.") => {
                event(function, &text.split(',').collect::<Vec<_>>())
            }
            _ => Event::named(name),
        };
        let mut request = Request { event: prepared(event), options: Options::new(), program: None };
        for word in words {
            match word.split_once('=') {
                Some(("program", name)) => request.program = Some(prepared(Program::load(name))),
                Some((option, text)) => set(&request.options, option, text),
                None => set(&request.options, word, ""),
            }
        }
        request
    }

    fn open(&self, leader: Option<&Attachment>) -> Result<Attachment, Error> {
        perf::open(&self.event, &self.options, leader, self.program.as_ref())
    }
}

fn set(options: &Options, option: &str, text: &str) {
    let number = || text.parse::<i64>().unwrap_or_else(|_| abort("no number"));
    match option {
        "own" => options.observe_own_thread(),
        "task" => options.observe_task(number() as i32),
        "all" => options.observe_every_task(),
        "process" => options.observe_process(text),
        "command" => options.observe_command(),
        "cgroup" => options.observe_cgroup(text),
        "cpu" => options.on_cpu(number() as i32),
        "every-cpu" => options.on_every_cpu(),
        "start-disabled" => options.set_start_disabled(true),
        "enable-on-exec" => options.set_enable_on_exec(true),
        "remove-on-exec" => options.set_remove_on_exec(true),
        "period" => options.set_period(number() as u64),
        "inherit" => options.set_inherit(true),
        "exclude-kernel" => options.set_exclude_kernel(true),
        "freq" => options.set_freq(number() as u64),
        "exclude-host" => options.set_exclude_host(true),
        "pinned" => options.set_pinned(true),
        "exclusive" => options.set_exclusive(true),
        "precise" => options.set_precise(number() as u32),
        "follow" => options.set_follow(true),
        // For `open_all`.
        "detached" => {}
        _ => abort(&format!("no option `{option}`")),
    }
}

//! New scripts with one program each.

use super::InitError;
use super::header;
use super::kind::ScriptKind;
use super::script::{INTERFACE_USAGE, Program, Script, counter, interface_main, watching_main};
use super::struct_ops;
use crate::headers;
use crate::kernel_types::{ArgumentPassing, KernelType, KernelTypes, Param};
use crate::spelling::{free_name, params_text, type_text};

/// Maximum number of parameters of a program (4.5).
const MAX_PARAMS: usize = 6;

/// Returns the script for a kind; `name` is the script's own.
pub(super) fn script(kind: &ScriptKind, name: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    match kind {
        ScriptKind::Xdp => Ok(xdp()),
        ScriptKind::Tc(direction) => Ok(tc(direction)),
        ScriptKind::Probe(function, None) => probe(function, kernel),
        ScriptKind::Probe(function, Some(offset)) => probe_inside(function, offset, kernel),
        ScriptKind::Retprobe(function) => retprobe(function, kernel),
        ScriptKind::Tracepoint(category, event) => tracepoint(category, event, kernel),
        ScriptKind::RawTracepoint(event) => raw_tracepoint(event, kernel),
        ScriptKind::PerfEvent => Ok(perf_event()),
        ScriptKind::Counting => Ok(counting()),
        ScriptKind::Uprobe(target) => Ok(uprobe(target)),
        ScriptKind::Lsm(hook) => lsm(hook, kernel),
        ScriptKind::Cgroup(hook, context) => Ok(cgroup(hook, context)),
        ScriptKind::SocketFilter => Ok(socket_filter()),
        ScriptKind::Timer => Ok(timer()),
        ScriptKind::StructOps(ops) => struct_ops::script(ops, name, kernel),
        ScriptKind::SyscallEnter(call) => syscall_enter(call, kernel),
        ScriptKind::SyscallExit(call) => syscall_exit(call, kernel),
    }
}

fn bundled_header(name: &str) -> Vec<(String, String)> {
    headers::bundled(name).map(|text| (name.to_owned(), text.to_owned())).into_iter().collect()
}

fn xdp() -> Script {
    let program = r#"@xdp
fn on_packet(ctx: *xdp_md) -> xdp_action {
    packets += 1
    if (ctx->data_end - ctx->data < 14) {
        return XDP_DROP
    }
    return XDP_PASS
}"#;
    packets(
        "Counts the packets that arrive at a network interface, and drops those that are too short.",
        program,
        "xdp.kh",
    )
}

fn tc(direction: &str) -> Script {
    let program = format!(
        r#"@tc("{direction}")
fn on_packet(ctx: *__sk_buff) -> i32 {{
    packets += 1
    return TC_ACT_OK
}}"#
    );
    let verb = if direction == "ingress" { "come in at" } else { "go out at" };
    packets(&format!("Counts the packets that {verb} a network interface."), &program, "tc.kh")
}

fn packets(about: &str, program: &str, header: &str) -> Script {
    let [args, main] = interface_main("on_packet", "packets");
    let mut script = Script::new(about, vec![counter("packets"), program.to_owned(), args, main]);
    script.headers = bundled_header(header);
    script.usage = INTERFACE_USAGE;
    script
}

fn probe(function: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let found = kernel.function(function).map_err(|why| InitError::unfound(why, "function", function))?;
    let known = found.proto.params.get(..found.agreed).unwrap_or_default();
    let (params, left_out) = params_text(known, MAX_PARAMS);
    let left_out = left_out.or((found.agreed < found.proto.params.len())
        .then_some("the kernel has several functions of this name, and they differ in the next"));
    let note = match (left_out, found.entry) {
        (Some(why), _) => Some(format!("The function has more parameters: {why}.")),
        (None, ArgumentPassing::Syscall { known: false }) => Some(
            "The parameters of this system call are not known: declare up to six integers or pointers."
                .to_owned(),
        ),
        _ => None,
    };
    let calls = free_name("calls", known);
    let program = Program {
        note,
        attribute: format!("@probe(\"{function}\")"),
        name: "on_call",
        params,
        result: "i32",
        counts: &calls,
        returns: Some("0"),
    };
    let main = watching_main("on_call", function, &calls, "calls");
    Ok(Script::new(format!("Counts the calls of {function}."), vec![counter(&calls), program.text(), main]))
}

fn probe_inside(function: &str, offset: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    kernel.function(function).map_err(|why| InitError::unfound(why, "function", function))?;
    let target = format!("{function}{offset}");
    let program = Program {
        note: None,
        attribute: format!("@probe(\"{target}\")"),
        name: "on_passing",
        params: "ctx: *pt_regs".to_owned(),
        result: "i32",
        counts: "passed",
        returns: Some("0"),
    };
    let main = watching_main("on_passing", &target, "passed", "times");
    let about = format!("Counts how often the instruction at {target} is reached.");
    Ok(Script::new(about, vec![counter("passed"), program.text(), main]))
}

fn retprobe(function: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let found = kernel.function(function).map_err(|why| InitError::unfound(why, "function", function))?;
    let unusable = |why| Err(InitError::Unusable { name: function.to_owned(), why });
    let mut params = found.proto.params;
    if found.agreed < params.len() {
        return unusable("the kernel has several functions of this name with different parameters");
    }
    if found.proto.result != KernelType::Void {
        params.push(Param { name: free_name("result", &params), ty: found.proto.result });
    }
    let (text, left_out) = params_text(&params, MAX_PARAMS + 1);
    if left_out.is_some() {
        return unusable("it takes or returns a struct by value, or has too many parameters");
    }
    let returns = free_name("returns", &params);
    let program = Program {
        note: None,
        attribute: format!("@retprobe(\"{function}\")"),
        name: "on_return",
        params: text,
        result: "i32",
        counts: &returns,
        returns: Some("0"),
    };
    let main = watching_main("on_return", function, &returns, "returns");
    let about = format!("Counts the returns of {function}.");
    Ok(Script::new(about, vec![counter(&returns), program.text(), main]))
}

fn tracepoint(category: &str, event: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let target = format!("{category}/{event}");
    let found =
        kernel.tracepoint(category, event).map_err(|why| InitError::unfound(why, "event", &target))?;
    let record = kernel.likely_record(&found, event).ok_or_else(|| InitError::NeedsBtf(target.clone()))?;
    let declarations =
        header::structures(&record, kernel).ok_or_else(|| InitError::NeedsBtf(target.clone()))?;
    let program = Program {
        note: None,
        attribute: format!("@tracepoint(\"{target}\")"),
        name: "on_event",
        params: format!("ctx: *{record}"),
        result: "i32",
        counts: "seen",
        returns: Some("0"),
    };
    let main = watching_main("on_event", &target, "seen", "events");
    let about = format!("Counts the events {target}.");
    let mut script = Script::new(about, vec![counter("seen"), program.text(), main]);
    let text = format!("// The record of the event {target}.\n\n{declarations}");
    script.headers = vec![("tracepoint.kh".to_owned(), text)];
    Ok(script)
}

fn raw_tracepoint(event: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let found = kernel.raw_tracepoint(event).map_err(|why| InitError::unfound(why, "event", event))?;
    let (params, left_out) = params_text(&found, usize::MAX);
    let seen = free_name("seen", &found);
    let program = Program {
        note: left_out.map(|why| format!("The event has more arguments: {why}.")),
        attribute: format!("@raw_tracepoint(\"{event}\")"),
        name: "on_event",
        params,
        result: "i32",
        counts: &seen,
        returns: Some("0"),
    };
    let main = watching_main("on_event", event, &seen, "events");
    Ok(Script::new(format!("Counts the events {event}."), vec![counter(&seen), program.text(), main]))
}

fn syscall_enter(call: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let known = known_syscall(call, kernel)?.unwrap_or_default();
    let (params, _) = params_text(&known, MAX_PARAMS);
    let calls = free_name("calls", &known);
    let program = Program {
        note: None,
        attribute: format!("@syscall_enter(\"{call}\")"),
        name: "on_enter",
        params,
        result: "i32",
        counts: &calls,
        returns: Some("0"),
    };
    let main = watching_main("on_enter", &format!("syscalls/sys_enter_{call}"), &calls, "calls");
    let about = format!("Counts the system calls {call}.");
    Ok(Script::new(about, vec![counter(&calls), program.text(), main]))
}

fn syscall_exit(call: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    known_syscall(call, kernel)?;
    let program = Program {
        note: None,
        attribute: format!("@syscall_exit(\"{call}\")"),
        name: "on_exit",
        params: "ret: i64".to_owned(),
        result: "i32",
        counts: "returns",
        returns: Some("0"),
    };
    let main = watching_main("on_exit", &format!("syscalls/sys_exit_{call}"), "returns", "returns");
    let about = format!("Counts the returns of the system call {call}.");
    Ok(Script::new(about, vec![counter("returns"), program.text(), main]))
}

/// Returns the parameters of a system call, if they are known.
fn known_syscall(call: &str, kernel: &KernelTypes) -> Result<Option<Vec<Param>>, InitError> {
    if kernel.has_syscall(call) {
        return Ok(kernel.syscall(call));
    }
    if !kernel.has_btf() {
        return Err(InitError::NeedsBtf(call.to_owned()));
    }
    let near = kernel.near_syscalls(call);
    Err(InitError::Missing { what: "system call", name: call.to_owned(), near })
}

fn lsm(hook: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let proto = kernel.lsm_hook(hook).map_err(|why| InitError::unfound(why, "LSM hook", hook))?;
    if type_text(&proto.result).as_deref() != Some("i32") {
        return Err(InitError::Unusable { name: hook.to_owned(), why: "this hook takes no decision" });
    }
    let (params, left_out) = params_text(&proto.params, usize::MAX);
    let asked = free_name("asked", &proto.params);
    let more = left_out.map(|why| format!(" The hook has more parameters: {why}.")).unwrap_or_default();
    let program = Program {
        note: Some(format!("0 allows; a negative error number denies.{more}")),
        attribute: format!("@lsm(\"{hook}\")"),
        name: "on_hook",
        params,
        result: "i32",
        counts: &asked,
        returns: Some("0"),
    };
    let main = watching_main("on_hook", hook, &asked, "decisions");
    let about = format!("Counts how often the kernel asks {hook}, and allows everything.");
    Ok(Script::new(about, vec![counter(&asked), program.text(), main]))
}

fn perf_event() -> Script {
    let program = Program {
        note: None,
        attribute: "@perf_event".to_owned(),
        name: "on_sample",
        params: "ctx: *bpf_perf_event_data".to_owned(),
        result: "i32",
        counts: "samples",
        returns: Some("0"),
    };
    let main = r#"fn main() -> i32 {
    var program = load(on_sample)
    if (program == null) {
        return 1
    }
    var faults = attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    if (faults == null) {
        return 1
    }
    sleep(1000)
    var now = read(faults)
    print("%lld page faults, %llu samples", now.scaled, samples)
    detach(faults)
    return 0
}"#;
    let about = "Counts the page faults of its own thread, and takes a sample at each.";
    Script::new(about, vec![counter("samples"), program.text(), main.to_owned()])
}

fn counting() -> Script {
    let main = r#"fn main() -> i32 {
    var time = attach(perf_options { event: task_clock, pid: 0, cpu: -1 })
    if (time == null) {
        return 1
    }
    var faults = attach(perf_options { event: page_faults, pid: 0, cpu: -1, group: time })
    if (faults == null) {
        return 1
    }
    sleep(1000)
    print("%lld ns on a CPU, %lld page faults", read(time).scaled, read(faults).scaled)
    detach(time)
    return 0
}"#;
    Script::new("Counts CPU time and page faults of its own thread, as one group.", vec![main.to_owned()])
}

fn uprobe(target: &str) -> Script {
    let program = Program {
        note: Some(
            "Declare the parameters of the function, integers or pointers, before the registers.".to_owned(),
        ),
        attribute: format!("@uprobe(\"{target}\")"),
        name: "on_call",
        params: "regs: *pt_regs".to_owned(),
        result: "i32",
        counts: "calls",
        returns: Some("0"),
    };
    let main = watching_main("on_call", target, "calls", "calls");
    Script::new(format!("Counts the calls of {target}."), vec![counter("calls"), program.text(), main])
}

fn cgroup(hook: &str, context: &str) -> Script {
    let program = Program {
        note: Some("1 allows, 0 denies.".to_owned()),
        attribute: format!("@cgroup(\"{hook}\")"),
        name: "on_hook",
        params: format!("ctx: *{context}"),
        result: "i32",
        counts: "asked",
        returns: Some("1"),
    };
    let main = watching_main("on_hook", "/sys/fs/cgroup", "asked", "decisions");
    let about = format!("Counts how often processes of a control group reach {hook}, and allows everything.");
    Script::new(about, vec![counter("asked"), program.text(), main])
}

fn socket_filter() -> Script {
    let program = Program {
        note: Some("How many bytes of the packet the socket gets; 0 drops it.".to_owned()),
        attribute: "@socket_filter".to_owned(),
        name: "on_packet",
        params: "ctx: *__sk_buff".to_owned(),
        result: "i32",
        counts: "packets",
        returns: Some("ctx->len"),
    };
    let [args, main] = interface_main("on_packet", "packets");
    let items = vec![counter("packets"), program.text(), args, main];
    let mut script = Script::new("Counts the packets of a network interface.", items);
    script.usage = INTERFACE_USAGE;
    script
}

fn timer() -> Script {
    let program = Program {
        note: None,
        attribute: "@timer(\"10ms\")".to_owned(),
        name: "on_tick",
        params: String::new(),
        result: "void",
        counts: "ticks",
        returns: None,
    };
    let main = r#"fn main() -> i32 {
    var program = load(on_tick)
    if (program == null) {
        return 1
    }
    while (sleep(1000) == 0) {
        print("%llu ticks", ticks)
    }
    return 0
}"#;
    let about = "Runs in the kernel every 10 milliseconds.";
    Script::new(about, vec![counter("ticks"), program.text(), main.to_owned()])
}

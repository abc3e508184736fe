//! Chapter 4: attributes, program kinds, contexts, functions of either half.

use crate::conformance::scripts::{
    accepts, accepts_with_kernel, has_section, in_main, in_program, objects, refuses, refuses_saying,
    refuses_strict, refuses_with_kernel, says, warns_with_kernel, with_empty_main,
};

fn program(attribute: &str, signature: &str) -> String {
    with_empty_main(&format!("{attribute}\nfn p{signature} {{ return 0 }}"))
}

fn tc(body: &str) -> String {
    with_empty_main(&format!("@tc(\"ingress\")\nfn t(ctx: *__sk_buff) -> i32 {{\n{body}\nreturn 0\n}}"))
}

fn congestion(items: &str) -> String {
    with_empty_main(&format!("@struct_ops(\"tcp_congestion_ops\")\nimpl cc {{\n{items}\n}}"))
}

#[test]
fn lf_063_xdp_and_its_context() {
    accepts(in_program(
        "",
        "var size: u64 = ctx->data_end - ctx->data\nvar meta = ctx->data_meta\nvar first: u8 = *ctx->data\n\
         var n: u32 = ctx->ingress_ifindex + ctx->rx_queue_index + ctx->egress_ifindex",
    ));
    refuses(in_program("", "var x = ctx->packet_length"), "KS0304");
}

#[test]
fn lf_064_wrong_forms_of_xdp() {
    refuses(program("@xdp(\"eth0\")", "(ctx: *xdp_md) -> xdp_action"), "KS0501");
    refuses_saying(program("@xdp", "(ctx: *xdp_md) -> u32"), "KS0503", "xdp_action");
    refuses(program("@xdp", "(ctx: *xdp_md, n: u32) -> xdp_action"), "KS0503|KS0507");
    refuses(program("@xdp", "(ctx: xdp_md) -> xdp_action"), "KS0503|KS0507");
    refuses(program("@xdp", "(ctx: *u8) -> xdp_action"), "KS0503|KS0507");
    accepts(program("@xdp", "(packet: *xdp_md) -> xdp_action"));
}

#[test]
fn lf_066_forms_of_tc() {
    accepts(program("@tc(\"ingress\")", "(ctx: *__sk_buff) -> i32"));
    accepts(program("@tc(\"egress\")", "(ctx: *__sk_buff) -> i32"));
    refuses(program("@tc", "(ctx: *__sk_buff) -> i32"), "KS0501");
    refuses(program("@tc(\"in\")", "(ctx: *__sk_buff) -> i32"), "KS0504");
    refuses(program("@tc(\"ingress\")", "(ctx: *__sk_buff) -> u32"), "KS0503");
}

#[test]
fn lf_067_members_of_the_socket_buffer() {
    accepts(tc("var n: u32 = ctx->len + ctx->protocol + ctx->ifindex + ctx->mark\n\
                ctx->mark = 5\nctx->priority = 1\nctx->cb[2] = 1\nctx->tstamp = 7\n\
                var start: u64 = ctx->data\nvar size = ctx->data_end - ctx->data"));
    refuses(tc("ctx->len = 1"), "KS0412");
    refuses(tc("ctx->protocol = 1"), "KS0412");
    refuses(tc("var x = ctx->local_port"), "KS0304");
    refuses(tc("var x = ctx->no_such_member"), "KS0304");
}

#[test]
fn lf_068_forms_of_probe() {
    for target in ["vfs_read", "vfs_read+4", "vfs_read+0x10"] {
        accepts(program(&format!("@probe(\"{target}\")"), "(f: *file) -> i32"));
    }
    for target in ["", "vfs_read+", "vfs_read+four", "+4"] {
        refuses(program(&format!("@probe(\"{target}\")"), "() -> i32"), "KS0506");
    }
    refuses(program("@probe", "() -> i32"), "KS0501");
    refuses(program("@probe(\"vfs_read\")", "(f: *file) -> u64"), "KS0503");
    for (target, section) in [("vfs_read", "fentry/vfs_read"), ("vfs_read+0x4", "kprobe/vfs_read+4")] {
        let script = program(&format!("@probe(\"{target}\")"), "(f: *file) -> i32");
        for elf in objects(script) {
            assert!(has_section(&elf, section), "{target}");
        }
    }
}

#[test]
fn lf_069_parameters_of_probes() {
    refuses(
        program("@probe(\"sys_sendto\")", "(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> i32"),
        "KS0503|KS0508",
    );
    refuses(program("@probe(\"vfs_read\")", "(ctx: *pt_regs) -> i32"), "KS0503|KS0507");
    refuses_with_kernel(program("@probe(\"do_exit\")", "(code: i64, more: u32) -> i32"), "KS0508");
    refuses_with_kernel(program("@probe(\"vfs_read\")", "(f: u32) -> i32"), "KS0508");
    accepts_with_kernel(program(
        "@probe(\"vfs_read\")",
        "(f: *file, buf: *u8, count: size_t, pos: *i64) -> i32",
    ));
    accepts_with_kernel(program("@probe(\"vfs_read\")", "(f: *file) -> i32"));
    accepts_with_kernel(program("@probe(\"vfs_read\")", "() -> i32"));
}

/// Not part of 0.1.1: the registers beside the arguments, and arguments after the sixth.
#[test]
fn registers_and_arguments_on_the_stack() {
    let entry = program("@probe(\"vfs_read\")", "(f: *file, regs: *pt_regs, buf: *u8) -> i32");
    accepts_with_kernel(&entry);
    for elf in objects(entry) {
        assert!(has_section(&elf, "kprobe/vfs_read+0"));
    }
    refuses_with_kernel(program("@probe(\"vfs_read\")", "(regs: *pt_regs, f: u32) -> i32"), "KS0508");
    accepts(program("@uretprobe(\"/bin/sh:main\")", "(regs: *pt_regs, ret: i32) -> i32"));
    refuses(program("@retprobe(\"vfs_read\")", "(regs: *pt_regs) -> i32"), "KS0507");
    let params: Vec<_> = (0..13).map(|at| format!("a{at}: u64")).collect();
    let many =
        |attribute: &str, count| program(attribute, &format!("({}) -> i32", params[..count].join(", ")));
    accepts(many("@uprobe(\"/bin/sh:main\")", 12));
    refuses(many("@uprobe(\"/bin/sh:main\")", 13), "KS0508");
    refuses(many("@uprobe(\"/bin/sh:main+0x4\")", 7), "KS0508");
    refuses(many("@uretprobe(\"/bin/sh:main\")", 2), "KS0508");
}

#[test]
fn lf_070_probes_of_system_calls() {
    let openat = program("@probe(\"sys_openat\")", "(dfd: i32, name: *u8, flags: i32, mode: u32) -> i32");
    accepts(&openat);
    accepts_with_kernel(&openat);
    let [x86, arm] = objects(openat).try_into().expect("an object for each architecture");
    assert!(has_section(&x86, "fentry/__x64_sys_openat"));
    assert!(has_section(&arm, "fentry/__arm64_sys_openat"));
}

#[test]
fn lf_071_targets_that_the_kernel_lacks() {
    let probe = program("@probe(\"vfs_raed\")", "(f: *file) -> i32");
    accepts(&probe);
    says(&refuses_with_kernel(&probe, "KS0509"), "vfs_read");
    let event = program("@tracepoint(\"sched/sched_swich\")", "(ctx: *trace_event_raw_sched_switch) -> i32");
    says(&refuses_with_kernel(event, "KS0509"), "sched_switch");
}

#[test]
fn lf_072_headers_of_tracepoints_may_be_wrong() {
    let script = with_empty_main(
        "struct trace_event_raw_sched_switch { ent: u32, prev_comm: u32, prev_pid: u32, prev_prio: u32, \
         prev_state: u64, next_comm: u32, next_pid: u32, next_prio: u32 }\n\
         @tracepoint(\"sched/sched_switch\")\n\
         fn p(ctx: *trace_event_raw_sched_switch) -> i32 {\n\
         var n = ctx->prev_pid + ctx->next_pid\n    return 0\n}",
    );
    accepts(&script);
    accepts_with_kernel(&script);
    refuses_with_kernel(script.replace("ctx->prev_pid", "ctx->prev_comm"), "KS0511");
}

#[test]
fn lf_073_forms_of_tracepoint() {
    let event = "(ctx: *trace_event_raw_sched_switch) -> i32";
    accepts(program("@tracepoint(\"sched/sched_switch\")", event));
    for target in ["sched_switch", "sched/", "/sched_switch", ""] {
        refuses(program(&format!("@tracepoint(\"{target}\")"), event), "KS0505");
    }
    refuses(program("@tracepoint(\"sched/sched_switch\")", "(ctx: *u8) -> i32"), "KS0503|KS0507");
    refuses(program("@tracepoint(\"sched/sched_switch\")", "() -> i32"), "KS0503|KS0507");
    refuses(program("@tracepoint", event), "KS0501");
    refuses_with_kernel(
        program("@tracepoint(\"sched/sched_switch\")", "(ctx: *trace_event_raw_sys_enter) -> i32"),
        "KS0510",
    );
}

#[test]
fn lf_074_system_call_events() {
    let script = with_empty_main(
        "@tracepoint(\"syscalls/sys_enter_openat\")\n\
         fn enter(ctx: *trace_event_raw_sys_enter) -> i32 {\n    var id: i64 = ctx->id\n    var a: u64 = \
         ctx->args[1]\n\
         for (i in 0..6) { if (ctx->args[i] == 0) { break } }\n    return 0\n}\n\
         @tracepoint(\"syscalls/sys_exit_openat\")\n\
         fn leave(ctx: *trace_event_raw_sys_exit) -> i32 {\n    var r: i64 = ctx->ret\n    return 0\n}",
    );
    accepts(&script);
    accepts_with_kernel(script);
}

#[test]
fn lf_075_forms_of_perf_event() {
    accepts(program("@perf_event", "(ctx: *bpf_perf_event_data) -> i32"));
    refuses(program("@perf_event(\"cycles\")", "(ctx: *bpf_perf_event_data) -> i32"), "KS0501");
    refuses(program("@perf_event", "(ctx: *xdp_md) -> i32"), "KS0503|KS0507");
    refuses(program("@perf_event", "(ctx: *bpf_perf_event_data, n: u32) -> i32"), "KS0503|KS0507");
    refuses(program("@perf_event", "(ctx: *bpf_perf_event_data) -> u32"), "KS0503");
    refuses(program("@perf_event", "(ctx: *bpf_perf_event_data) -> xdp_action"), "KS0503");
}

#[test]
fn lf_076_members_of_the_sample() {
    let sample = |body: &str| {
        with_empty_main(&format!(
            "@perf_event\nfn p(ctx: *bpf_perf_event_data) -> i32 {{\n{body}\nreturn 0\n}}"
        ))
    };
    accepts(sample(
        "var a: u64 = ctx->sample_period\nvar b: u64 = ctx->addr\n\
         var c: u64 = ctx->regs.ip + ctx->regs.sp + ctx->regs.fp",
    ));
    refuses(sample("var a = ctx->period"), "KS0304");
    refuses(sample("ctx->addr = 1"), "KS0412");
}

#[test]
fn lf_077_attributes() {
    for unknown in ["@xpd", "@kprobe(\"vfs_read\")", "@program"] {
        refuses(program(unknown, "(ctx: *xdp_md) -> xdp_action"), "KS0501");
    }
    refuses_saying(program("@kprobe(\"vfs_read\")", "() -> i32"), "KS0501", "@probe");
    refuses(program("@xdp\n@tc(\"ingress\")", "(ctx: *xdp_md) -> xdp_action"), "KS0502");
    refuses(program("@helper(\"fast\")", "() -> u32"), "KS0501");
    refuses(program("@kfunc(\"fast\")", "() -> u32"), "KS0501");
}

#[test]
fn lf_078_impl_blocks() {
    let impls = "@struct_ops(\"tcp_congestion_ops\")\nimpl steady {\n    name: \"steady\",\n    flags: 0,\n\
                 fn undo_cwnd(sk: *u8) -> u32 { return ssthresh(sk) }\n    fn ssthresh(sk: *u8) -> u32 { \
                 return 8 }\n}\n\
                 @struct_ops(\"tcp_congestion_ops\")\nimpl second {\n    fn ssthresh(sk: *u8) -> u32 { \
                 return 4 }\n\
                 fn set_state(sk: *u8, ssthresh: u8) -> void { }\n    owner: null\n}";
    accepts(in_main(impls, "var r: u32 = register(steady)\nregister(second)"));
}

#[test]
fn lf_079_wrong_impl_blocks() {
    let good = "fn ssthresh(sk: *u8) -> u32 { return 2 }\nfn undo_cwnd(sk: *u8) -> u32 { return 2 }\n\
                fn cong_avoid(sk: *u8, ack: u32, acked: u32) -> void { }";
    accepts_with_kernel(congestion(&format!("flags: 0,\nname: \"cc\",\n{good}")));
    refuses(congestion("flags: 1 + 2,\nfn ssthresh(sk: *u8) -> u32 { return 2 }"), "KS0201|KS0206");
    refuses(
        congestion("fn ssthresh(a: *u8, b: u32, c: u32, d: u32, e: u32, f: u32) -> u32 { return 2 }"),
        "KS0515",
    );
    refuses_with_kernel(congestion(&format!("colour: 1,\n{good}")), "KS0514");
    for method in [
        "fn ssthresh(sk: *u8, more: u32) -> u32 { return 2 }",
        "fn ssthresh(sk: *u8) -> u64 { return 2 }",
        "fn ssthresh(sk: u32) -> u32 { return 2 }",
        "fn cong_avoid(sk: *u8, ack: u64, acked: u32) -> void { }",
    ] {
        refuses_with_kernel(congestion(method), "KS0515");
    }
    let odd = "@struct_ops(\"no_such_ops\")\nimpl odd {\n    fn init() -> i32 { return 0 }\n}";
    refuses(in_main(odd, "register(odd)"), "KS0513");
    refuses(in_main("fn f() -> u32 { return 1 }", "register(f)"), "KS0513");
    refuses(in_main("struct S { a: u32 }", "register(S { a: 1 })"), "KS0513");
    refuses(with_empty_main("impl cc { fn ssthresh(sk: *u8) -> u32 { return 2 } }"), "KS0201|KS0501");
}

#[test]
fn lf_080_methods_call_methods() {
    let items = "fn floor(sk: *u8) -> u32 { return 2 }\nfn ssthresh(sk: *u8) -> u32 { return floor(sk) }";
    accepts(congestion(items));
    let outside = format!("@struct_ops(\"tcp_congestion_ops\")\nimpl cc {{\n{items}\n}}");
    refuses(in_main(&outside, "ssthresh(null)"), "KS0305|KS0306");
    refuses(in_program(&outside, "ssthresh(null)"), "KS0305|KS0306");
}

#[test]
fn lf_081_kfuncs_and_private_functions() {
    let functions = "@private\nfn inner(n: u32) -> u32 { return n }\n@kfunc\nfn outer(n: u32) -> u32 { \
    return inner(n) }\n\
                     @helper\nfn help(n: u32) -> u32 { return outer(n) }";
    accepts(in_program(functions, "var x = outer(1) + help(2)"));
    refuses(in_program(functions, "inner(1)"), "KS0306");
    for call in ["inner(1)", "outer(1)", "help(1)"] {
        refuses(in_main(functions, call), "KS0306");
    }
}

#[test]
fn lf_082_main() {
    let xdp = "@xdp\nfn p(ctx: *xdp_md) -> xdp_action { return XDP_PASS }";
    accepts(xdp);
    accepts("fn main() -> i32 { return 0 }");
    accepts("struct Args { a: u32 }\nfn main(args: Args) -> status: i32 { status = args.a }");
    refuses(format!("{xdp}\nfn plain() -> u32 {{ return 1 }}"), "KS0307");
    for wrong in [
        "fn main(n: u32) -> i32 { return 0 }",
        "fn main() -> void { }",
        "fn main() { }",
        "fn main() -> u64 { return 0 }",
    ] {
        refuses(wrong, "KS0307");
    }
    let structs = "struct A { a: u32 }\nstruct B { b: u32 }";
    refuses(format!("{structs}\nfn main(a: A, b: B) -> i32 {{ return 0 }}"), "KS0307");
    refuses(format!("{structs}\nfn main(a: *A) -> i32 {{ return 0 }}"), "KS0307");
    refuses("@helper\nfn main() -> i32 { return 0 }", "KS0307");
    refuses("struct S { a: u32 }", "KS0309");
    refuses(with_empty_main("fn main() -> i32 { return 1 }"), "KS0302");
}

#[test]
fn lf_083_halves_do_not_call_each_other() {
    refuses(in_program("fn plain() -> u32 { return 1 }", "plain()"), "KS0306");
    refuses(in_program("", "var h = load(prog)"), "KS0306");
    refuses(in_program("", "sleep(1)"), "KS0306");
    refuses(in_main("extern bpf_ktime_get_ns() -> u64", "var t = bpf_ktime_get_ns()"), "KS0306");
    accepts(in_program("extern bpf_ktime_get_ns() -> u64", "var t = bpf_ktime_get_ns()"));
}

#[test]
fn lf_154_optional_programs_are_left_out_where_the_kernel_lacks_their_target() {
    let program =
        |attribute: &str| format!("{attribute} {{ n[cpu()] += 1 }}\n@profile(99) {{ n[cpu()] += 1 }}");
    for lacking in [
        "@syscall_enter(\"no_such_call\", optional: true)",
        "@tracepoint(\"sched/sched_switch\", \"sched/no_such_event\", optional: true)",
        "@raw_tracepoint(\"no_such_event\", optional: true)",
        "@probe(\"no_such_function+8\", optional: true)",
        "@lsm(\"no_such_hook\", optional: true)",
    ] {
        assert!(warns_with_kernel(program(lacking), "KS0526"), "{lacking}");
        refuses_with_kernel(program(&lacking.replace("true", "false")), "KS0509");
        refuses_strict(program(lacking), "KS0208");
    }
    for present in ["@probe(\"vfs_read\", optional: true)", "@xdp(\"lo\", optional: true)"] {
        assert!(!warns_with_kernel(program(present), "KS0526"), "{present}");
    }
    refuses(program("@tracepoint(\"sched/sched_switch\", optional: 1)"), "KS0501");
    refuses(program("@tracepoint(\"sched/sched_switch\", optional: true, optional: true)"), "KS0501");
    refuses(program("@perf_event(\"cycles\", period: 1, optional: true)"), "KS0501");
    let named = "fn p(ctx: *trace_event_raw_sched_switch) -> i32 { return 0 }";
    let optional = format!("@tracepoint(\"sched/sched_switch\", optional: true)\n{named}");
    accepts(format!("{optional}\n@profile(99) {{ n[cpu()] += 1 }}"));
    refuses(with_empty_main(&optional), "KS0523");
}

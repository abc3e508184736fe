//! Contexts of programs on packets and sockets, and their return values. These tests need root.

use ks_compiler::hir::hooks::ADDRESS_HOOKS;
use ks_tests::runs::Loaded;

#[test]
fn root_lf_063_members_of_xdps_context() {
    let loaded = Loaded::new(
        r#"
var seen : array<u32, u64>(6)
@xdp fn watch(ctx: *xdp_md) -> xdp_action {
    seen[0] = ctx->data_end - ctx->data
    seen[1] = ctx->ingress_ifindex
    seen[2] = ctx->rx_queue_index
    seen[3] = ctx->egress_ifindex
    seen[4] = ctx->data - ctx->data_meta
    if (ctx->data + 100 == ctx->data_end && ctx->data < ctx->data_end) { seen[5] = 1 }
    return XDP_PASS
}
"#,
    );
    assert_eq!(loaded.run("watch", &[0; 100]).result, 2);
    // The packet arrives at the loopback interface, whose index is 1.
    assert_eq!(loaded.entries("seen", 6), [100, 1, 0, 0, 0, 1]);
}

#[test]
fn root_lf_065_results_of_xdp() {
    let loaded = Loaded::new(
        r#"
@xdp fn send(ctx: *xdp_md) -> xdp_action { return 3 }
@xdp fn away(ctx: *xdp_md) -> xdp_action { return 4 }
@xdp fn named(ctx: *xdp_md) -> xdp_action { return XDP_TX }
"#,
    );
    let results = ["send", "away", "named"].map(|name| loaded.run(name, &[0; 64]).result);
    assert_eq!(results, [3, 4, 3]);
}

#[test]
fn root_lf_067_members_of_the_socket_buffer() {
    let loaded = Loaded::new(
        r#"
var seen : array<u32, u64>(8)
@tc("ingress") fn watch(ctx: *__sk_buff) -> i32 {
    seen[0] = ctx->len
    seen[1] = ntohs(ctx->protocol)
    seen[2] = ctx->ifindex
    seen[3] = ctx->mark
    ctx->mark = 5
    ctx->priority += 2
    var slot = ctx->mark - 3
    ctx->cb[slot] = 9
    ctx->cb[4] = ctx->cb[slot] + ctx->cb[0]
    seen[4] = ctx->mark
    var start : u64 = ctx->data
    var end : u64 = ctx->data_end
    seen[5] = end - start
    if (start + 14 > end) { seen[6] = 1 }
    if (start + 200 > end) { seen[7] = 1 }
    return TC_ACT_OK
}
"#,
    );
    let mut packet = [0; 100];
    packet[12..14].copy_from_slice(&[8, 0]);
    let mut context = [0; 192];
    context[8] = 77;
    context[32] = 40;
    context[48] = 1;
    assert_eq!(loaded.run_in("watch", &packet, &mut context).map(|run| run.result), Some(0));
    assert_eq!(loaded.entries("seen", 8), [100, 0x0800, 1, 77, 5, 100, 0, 1]);
    let member =
        |at: usize| u32::from_le_bytes([context[at], context[at + 1], context[at + 2], context[at + 3]]);
    assert_eq!((member(8), member(32), member(48 + 8), member(48 + 16)), (5, 42, 9, 10));
}

#[test]
fn root_lf_119_tail_calls() {
    let loaded = Loaded::new(
        r#"
var rounds : array<u32, u64>(2)
@helper fn leave() { rounds[1] += 1 }
@xdp fn drop(ctx: *xdp_md) -> xdp_action { return XDP_DROP }
@xdp fn bounce(ctx: *xdp_md) -> xdp_action { return XDP_TX }
@xdp fn again(ctx: *xdp_md) -> xdp_action {
    rounds[0] += 1
    return again(ctx)
}
@xdp fn watch(ctx: *xdp_md) -> xdp_action {
    defer leave()
    var kind = ctx->data[0]
    var large : u8[400] = [0]
    large[kind] = 7
    for (turn in 0..100) {
        if (turn == kind + large[200]) {
            return match (kind) {
                1: drop(ctx),
                2: bounce(ctx),
                3: again(ctx),
                default: XDP_PASS
            }
        }
    }
    return XDP_ABORTED
}
"#,
    );
    let run = |kind: u8| {
        let mut packet = [0; 64];
        packet[0] = kind;
        loaded.run("watch", &packet).result
    };
    // More runs than there are scratch slots: each releases its slot before the jump.
    for _ in 0..40 {
        assert_eq!([run(1), run(2), run(4), run(100)], [1, 3, 2, 0]);
    }
    // After 33 jumps the kernel refuses one, and the packet passes.
    assert_eq!(run(3), 2);
    assert_eq!(loaded.entries("rounds", 2), [33, 40 * 4 + 1]);
}

#[test]
fn root_lf_123_bytes_beyond_the_packet_read_0_and_are_not_written() {
    let loaded = Loaded::new(
        r#"
struct pair { a: u8, b: u32 }
var at : array<u32, u64>(1)
var seen : array<u32, u64>(5)
@xdp fn watch(ctx: *xdp_md) -> xdp_action {
    var packet = ctx->data
    var index = at[0]
    seen[0] = packet[index]
    var wide = (packet + index) as *u32
    seen[1] = *wide
    var inner = (packet + index) as *pair
    seen[2] = inner->a
    seen[3] = inner->b
    var nowhere : *u8 = null
    if (packet[0] > 250) { nowhere = packet }
    seen[4] = *nowhere
    packet[index] = 9
    *wide += 1
    return XDP_PASS
}
"#,
    );
    for index in [0_u64, 59, 60, 61, 63, 64, 65, 1000, 0xffff, 0x1_0000, u64::MAX, 1 << 63, (1 << 32) + 3] {
        loaded.set("at", 0, index);
        let mut packet: Vec<u8> = (1..=64).collect();
        let run = loaded.run("watch", &packet);
        let read = |from: u64, len: u64| {
            let range =
                usize::try_from(from).ok().zip(from.checked_add(len).and_then(|to| usize::try_from(to).ok()));
            let bytes = range.and_then(|(from, to)| packet.get(from..to)).unwrap_or_default();
            bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let expected = [read(index, 1), read(index, 4), read(index, 1), read(index.saturating_add(4), 4), 0];
        assert_eq!(loaded.entries("seen", 5), expected, "at {index}");
        if let Some(byte) = usize::try_from(index).ok().and_then(|index| packet.get_mut(index)) {
            *byte = 9;
        }
        if let Some(bytes) =
            usize::try_from(index).ok().and_then(|index| packet.get_mut(index..index.saturating_add(4)))
        {
            let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            bytes.copy_from_slice(&(number + 1).to_le_bytes());
        }
        assert_eq!(run.packet, packet, "at {index}");
    }
}

/// Members as the language's tables list them: those that compile also load, for every program kind.
#[test]
fn root_context_accesses_that_compile_load() {
    let skb = [
        "len",
        "pkt_type",
        "mark",
        "queue_mapping",
        "protocol",
        "vlan_present",
        "vlan_tci",
        "vlan_proto",
        "priority",
        "ingress_ifindex",
        "ifindex",
        "tc_index",
        "hash",
        "tc_classid",
        "napi_id",
        "family",
        "remote_ip4",
        "local_ip4",
        "remote_port",
        "local_port",
        "tstamp",
        "wire_len",
        "gso_segs",
        "gso_size",
        "tstamp_type",
        "hwtstamp",
        "cb[1]",
        "remote_ip6[2]",
        "local_ip6[3]",
    ];
    let address = [
        "user_family",
        "user_ip4",
        "user_ip6[1]",
        "user_port",
        "family",
        "type",
        "protocol",
        "msg_src_ip4",
        "msg_src_ip6[3]",
    ];
    let mut kinds: Vec<(String, &str, &[&str])> =
        ["@tc(\"egress\")", "@socket_filter", "@cgroup(\"ingress\")", "@cgroup(\"egress\")"]
            .iter()
            .map(|kind| ((*kind).to_owned(), "__sk_buff", skb.as_slice()))
            .collect();
    kinds.extend(
        ADDRESS_HOOKS.map(|hook| (format!("@cgroup(\"{hook}\")"), "bpf_sock_addr", address.as_slice())),
    );
    let mut loaded = 0;
    for (kind, context, members) in kinds {
        let script = |members: &[&str], write: bool| {
            let lines = members.iter().map(|member| {
                let line =
                    if write { format!("ctx->{member} = 3") } else { format!("seen[0] = ctx->{member}") };
                format!("    {line}\n")
            });
            format!(
                "var seen : array<u32, u64>(1)\n{kind} fn watch(ctx: *{context}) -> i32 {{\n{}    return \
                 1\n}}\n",
                lines.collect::<String>()
            )
        };
        for write in [false, true] {
            let known: Vec<&str> = members
                .iter()
                .copied()
                .filter(|one| ks_tests::try_compile("one", &script(&[one], write)).is_ok())
                .collect();
            assert!(!known.is_empty(), "{kind} has members");
            Loaded::new(&script(&known, write));
            loaded += known.len();
        }
    }
    assert!(loaded > 150, "most members can be used somewhere: {loaded}");
}

#define KERNEL_TYPES
#include "common.h"
#include <bpf/bpf_tracing.h>

u64 connections, acknowledged;
u32 largest;
u64 losses;

SEC("struct_ops/init")
void BPF_PROG(ks_modest_init, struct tcp_sock *sk)
{
	__sync_fetch_and_add(&connections, 1);
}

inlined u32 half(u32 window)
{
	return window < 4 ? 2 : window / 2;
}

SEC("struct_ops/ssthresh")
u32 BPF_PROG(ks_modest_ssthresh, struct tcp_sock *sk)
{
	__sync_fetch_and_add(&losses, 1);
	return half(sk->snd_cwnd);
}

SEC("struct_ops/undo_cwnd")
u32 BPF_PROG(ks_modest_undo_cwnd, struct tcp_sock *sk)
{
	return sk->snd_cwnd;
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(ks_modest_cong_avoid, struct tcp_sock *sk, u32 ack, u32 acked)
{
	__sync_fetch_and_add(&acknowledged, acked);
	if (sk->snd_cwnd > largest)
		largest = sk->snd_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ks_modest = {
	.init = (void *)ks_modest_init,
	.ssthresh = (void *)ks_modest_ssthresh,
	.undo_cwnd = (void *)ks_modest_undo_cwnd,
	.cong_avoid = (void *)ks_modest_cong_avoid,
	.name = "ks_modest",
};

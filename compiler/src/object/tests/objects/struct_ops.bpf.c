/*
 * Structs of the kernel that an object fills in, as clang writes them. Made as features.o.
 */
typedef unsigned short __u16;
typedef unsigned int u32;
typedef unsigned int __u32;
typedef unsigned long long u64;
typedef unsigned long long __u64;
typedef long long __s64;
typedef int __s32;
typedef __u32 __be32, __wsum;
typedef __u16 __be16;
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct sock;
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 flags;
	char name[16];
	void *owner;
};
struct tcp_congestion_ops___short { u32 (*ssthresh)(struct sock *sk); char name[16]; };

char LICENSE[] SEC("license") = "GPL";

SEC("struct_ops/ssthresh")
u32 BPF_PROG(half, struct sock *sk) { return 2; }
SEC("struct_ops")
void BPF_PROG(avoid, struct sock *sk, u32 ack, u32 acked) {}
SEC("struct_ops")
u32 BPF_PROG(undo, struct sock *sk) { return 10; }

SEC(".struct_ops.link")
struct tcp_congestion_ops mine = {
	.ssthresh = (void *)half,
	.cong_avoid = (void *)avoid,
	.undo_cwnd = (void *)undo,
	.flags = 1,
	.name = "bpf_mine",
};
SEC("?.struct_ops")
struct tcp_congestion_ops___short other = { .ssthresh = (void *)half, .name = "bpf_other" };

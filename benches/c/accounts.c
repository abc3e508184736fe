#include "common.h"

struct account {
	u64 bytes, packets;
};

MAP(BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct account, 64) accounts SEC(".maps");

SEC("cgroup_skb/egress")
int bill(struct __sk_buff *ctx)
{
	u32 key = ctx->ifindex % 64;
	struct account *account = bpf_map_lookup_elem(&accounts, &key);

	if (account) {
		__sync_fetch_and_add(&account->bytes, ctx->len);
		__sync_fetch_and_add(&account->packets, 1);
	}
	if ((account ? account->packets : 0) > 1000000000)
		return 0;
	return 1;
}

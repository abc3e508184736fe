#include "common.h"
#include "packet.h"

struct rule {
	u16 port;
};

MAP(BPF_MAP_TYPE_ARRAY, u32, struct rule, 1) rule_config_map SEC(".maps");
u64 refused, allowed, sent;

SEC("cgroup/connect4")
int decide(struct bpf_sock_addr *ctx)
{
	u16 port = ctx->user_port;
	struct rule *rule;
	u32 zero = 0;

	rule = bpf_map_lookup_elem(&rule_config_map, &zero);
	if (bpf_ntohs(port) == (rule ? rule->port : 0)) {
		__sync_fetch_and_add(&allowed, 1);
		return 1;
	}
	__sync_fetch_and_add(&refused, 1);
	return 0;
}

SEC("cgroup_skb/egress")
int count(struct __sk_buff *ctx)
{
	__sync_fetch_and_add(&sent, ctx->len);
	return 1;
}

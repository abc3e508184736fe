#include "common.h"

struct limits {
	u32 low, high;
	u8 watched;
	u64 weight;
};

MAP(BPF_MAP_TYPE_ARRAY, u32, struct limits, 1) limits_config_map SEC(".maps");
u64 below, above, weighted;

SEC("socket")
int compare(struct __sk_buff *ctx)
{
	struct limits *limits;
	u32 zero = 0;

	limits = bpf_map_lookup_elem(&limits_config_map, &zero);
	if (!limits || !limits->watched)
		return 0;
	if (ctx->len < limits->low)
		__sync_fetch_and_add(&below, 1);
	else if (ctx->len > limits->high)
		__sync_fetch_and_add(&above, 1);
	__sync_fetch_and_add(&weighted, ctx->len * limits->weight);
	return ctx->len;
}

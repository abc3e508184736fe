#include "common.h"

MAP(BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, 1) last SEC(".maps");
u64 times[64];

inlined u32 log2(u64 value)
{
	u32 bits = 0;

	if (value >= 1ULL << 32) {
		value >>= 32;
		bits += 32;
	}
	if (value >= 65536) {
		value >>= 16;
		bits += 16;
	}
	if (value >= 256) {
		value >>= 8;
		bits += 8;
	}
	if (value >= 16) {
		value >>= 4;
		bits += 4;
	}
	if (value >= 4) {
		value >>= 2;
		bits += 2;
	}
	if (value >= 2)
		bits += 1;
	return bits;
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u64 now = bpf_ktime_get_ns(), *before;
	u32 zero = 0;

	before = bpf_map_lookup_elem(&last, &zero);
	if (before && *before != 0) {
		u32 bucket = log2(now - *before);

		if (bucket < 64)
			__sync_fetch_and_add(&times[bucket], 1);
	}
	bpf_map_update_elem(&last, &zero, &now, BPF_ANY);
	return 0;
}

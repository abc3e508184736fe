/* Keeps times: faults */
#include "common.h"

MAP(BPF_MAP_TYPE_HASH, u32, u64, 64) faults SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, u32);
	__uint(max_entries, 16);
} jobs SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__type(value, u32);
	__uint(max_entries, 64);
} seen SEC(".maps");
u64 __lost_faults, __lost_seen;

SEC("perf_event")
int on_fault(struct bpf_perf_event_data *ctx)
{
	u32 kind = bpf_ktime_get_ns() % 2 == 0 ? 2 : 1, seven = 7;

	bump_or_count(&faults, &kind, 1, &__lost_faults);
	if (bpf_map_push_elem(&seen, &seven, BPF_ANY) < 0)
		__sync_fetch_and_add(&__lost_seen, 1);
	return 0;
}

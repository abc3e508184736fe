/* Keeps times: edges */
#include "common.h"
#include "ids.h"

struct edge {
	u32 from, to;
	u16 cpu;
};

struct weight {
	u64 count, first, last;
};

MAP(BPF_MAP_TYPE_HASH, struct edge, struct weight, 4096) edges SEC(".maps");
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, u32, u32, 1) before SEC(".maps");
u64 full;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct edge here;
	struct weight *known, new = {};
	u32 zero = 0, *task;

	__builtin_memset(&here, 0, sizeof(here));
	task = bpf_map_lookup_elem(&before, &zero);
	here.from = task ? *task : 0;
	here.to = own_tid();
	here.cpu = bpf_get_smp_processor_id();
	bpf_map_update_elem(&before, &zero, &here.to, BPF_ANY);
	if (here.from == here.to)
		return 0;
	known = bpf_map_lookup_elem(&edges, &here);
	if (known) {
		__sync_fetch_and_add(&known->count, 1);
		known->last = now;
		return 1;
	}
	new.count = 1;
	new.first = now;
	new.last = now;
	bpf_map_update_elem(&edges, &here, &new, BPF_ANY);
	if (!bpf_map_lookup_elem(&edges, &here))
		__sync_fetch_and_add(&full, 1);
	return 2;
}

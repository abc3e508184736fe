/* Keeps times: averages, last */
#include "common.h"

struct average {
	i64 mean, deviation;
	u64 samples;
};

MAP(BPF_MAP_TYPE_ARRAY, u32, struct average, 16) averages SEC(".maps");
u64 outliers;
i64 last;

/* BPF before v4 divides unsigned numbers only. */
inlined i64 divided(i64 number, u32 bits)
{
	u64 size = number < 0 ? -(u64)number : number;

	size >>= bits;
	return number < 0 ? -size : size;
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	i64 now = bpf_ktime_get_ns(), value = (now - last) * 16, error, size;
	u32 key = bpf_get_smp_processor_id() % 16;
	struct average *entry;

	last = now;
	entry = bpf_map_lookup_elem(&averages, &key);
	if (!entry)
		return 0;
	error = value - entry->mean;
	entry->mean = entry->mean + divided(error, 3);
	size = error < 0 ? -error : error;
	if (entry->samples > 8 && size > entry->deviation * 4)
		__sync_fetch_and_add(&outliers, 1);
	entry->deviation = entry->deviation + divided(size - entry->deviation, 2);
	__sync_fetch_and_add(&entry->samples, 1);
	return 0;
}

#include "common.h"
#include "ids.h"

MAP(BPF_MAP_TYPE_HASH, u32, u64, 10240) references SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, u32, u64, 10240) misses SEC(".maps");
u64 __lost_references, __lost_misses;

SEC("perf_event")
int on_reference(struct bpf_perf_event_data *ctx)
{
	u32 pid = own_pid();

	bump_or_count(&references, &pid, 100, &__lost_references);
	return 0;
}

SEC("perf_event")
int on_miss(struct bpf_perf_event_data *ctx)
{
	u32 pid = own_pid();

	bump_or_count(&misses, &pid, 100, &__lost_misses);
	return 0;
}

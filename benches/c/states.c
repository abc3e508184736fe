/* Keeps times: states, transitions */
#include "common.h"
#include "ids.h"

MAP(BPF_MAP_TYPE_HASH, u32, u32, 1024) states SEC(".maps");
u64 transitions[4];

inlined u32 next(u32 state, u32 event)
{
	switch (state) {
	case 0:
		return event == 0 ? 1 : 0;
	case 1:
		switch (event) {
		case 0:
			return 1;
		case 1:
			return 2;
		case 2:
			return 3;
		default:
			return 0;
		}
	case 2:
		switch (event) {
		case 2:
			return 3;
		case 3:
			return 0;
		default:
			return 2;
		}
	default:
		return 0;
	}
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u32 task = own_tid(), event, state, then, *entry;

	event = (bpf_ktime_get_ns() >> 10) & 3;
	entry = bpf_map_lookup_elem(&states, &task);
	state = entry ? *entry : 0;
	then = next(state, event);
	bpf_map_update_elem(&states, &task, &then, BPF_ANY);
	if (then != state && then < 4)
		__sync_fetch_and_add(&transitions[then], 1);
	return 0;
}

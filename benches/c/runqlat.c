#define KERNEL_TYPES
#include "common.h"
#include "ids.h"
#include "slots.h"

MAP(BPF_MAP_TYPE_HASH, u32, u64, 65536) since SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, u32, u64, 65536) waited SEC(".maps");
u64 waits[SLOTS];
u32 only;
u64 __lost_since, __lost_waited;

inlined void add(u64 micros)
{
	u32 slot = log2_slot(micros);

	if (slot < SLOTS)
		__sync_fetch_and_add(&waits[slot], 1);
}

SEC("tracepoint/sched/sched_wakeup")
int woken(struct trace_event_raw_sched_wakeup_template *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 pid = ctx->pid;

	set_or_count(&since, &pid, &now, &__lost_since);
	return 0;
}

SEC("tracepoint/sched/sched_wakeup_new")
int born(struct trace_event_raw_sched_wakeup_template *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 pid = ctx->pid;

	set_or_count(&since, &pid, &now, &__lost_since);
	return 0;
}

SEC("tracepoint/sched/sched_switch")
int switched(struct trace_event_raw_sched_switch *ctx)
{
	u32 prev = ctx->prev_pid, next = ctx->next_pid;
	u64 now = bpf_ktime_get_ns(), *before, *start, micros;

	if ((ctx->prev_state & 255) == 0 && prev != 0)
		set_or_count(&since, &prev, &now, &__lost_since);
	before = bpf_map_lookup_elem(&waited, &prev);
	if (before) {
		if (own_pid() == only)
			add(*before);
		bpf_map_delete_elem(&waited, &prev);
	}
	start = bpf_map_lookup_elem(&since, &next);
	if (!start)
		return 0;
	micros = (now - *start) / 1000;
	if (only == 0)
		add(micros);
	else
		set_or_count(&waited, &next, &micros, &__lost_waited);
	bpf_map_delete_elem(&since, &next);
	return 0;
}

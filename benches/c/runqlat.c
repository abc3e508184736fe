#define KERNEL_TYPES
#include "common.h"
#include "slots.h"

MAP(BPF_MAP_TYPE_HASH, u32, u64, 65536) since SEC(".maps");
u64 waits[SLOTS];
i32 only;
u64 __lost_since;

SEC("tracepoint/sched/sched_wakeup")
int woken(struct trace_event_raw_sched_wakeup_template *ctx)
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
	u64 now = bpf_ktime_get_ns(), *start;

	if (ctx->prev_state == 0 && prev != 0)
		set_or_count(&since, &prev, &now, &__lost_since);
	start = bpf_map_lookup_elem(&since, &next);
	if (!start)
		return 0;
	if (only == 0 || next == only) {
		u32 slot = log2_slot((now - *start) / 1000);

		if (slot < SLOTS)
			__sync_fetch_and_add(&waits[slot], 1);
	}
	bpf_map_delete_elem(&since, &next);
	return 0;
}

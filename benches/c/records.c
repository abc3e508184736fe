#define KERNEL_TYPES
#include "common.h"

u64 left, same;

SEC("tracepoint/sched/sched_switch")
int watch(struct trace_event_raw_sched_switch *ctx)
{
	u32 prev = ctx->prev_pid;
	i64 state = ctx->prev_state;

	if (prev == ctx->next_pid)
		__sync_fetch_and_add(&same, 1);
	if (prev != 0 && state != 0)
		__sync_fetch_and_add(&left, 1);
	return 0;
}

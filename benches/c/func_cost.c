#define KERNEL_TYPES
#include "common.h"
#include "ids.h"
#include "slots.h"

struct call {
	u32 tid, depth;
};

struct thread {
	i64 before, since;
	u32 depth;
};

MAP(BPF_MAP_TYPE_HASH, u32, struct thread, 4096) threads SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, struct call, i64, 65536) starts SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} cost SEC(".maps");
u64 rows[SLOTS], calls, total, largest;
u32 only;
u64 __lost_threads, __lost_starts;

inlined i64 counted(void)
{
	struct bpf_perf_event_value value;

	if (bpf_perf_event_read_value(&cost, BPF_F_CURRENT_CPU, &value, sizeof(value)))
		return -1;
	return value.counter;
}

SEC("uprobe//bin/bash:execute_command_internal+0")
int entered(struct pt_regs *ctx)
{
	struct thread *thread, first = {};
	struct call call;
	i64 count, start;

	if (only && own_pid() != only)
		return 0;
	call.tid = bpf_get_current_pid_tgid();
	count = counted();
	thread = bpf_map_lookup_elem(&threads, &call.tid);
	if (thread) {
		__sync_fetch_and_add(&thread->depth, 1);
		call.depth = thread->depth;
		start = thread->before + count - thread->since;
	} else {
		first.since = count;
		first.depth = 1;
		set_or_count(&threads, &call.tid, &first, &__lost_threads);
		call.depth = 1;
		start = 0;
	}
	set_or_count(&starts, &call, &start, &__lost_starts);
	return 0;
}

SEC("uretprobe//bin/bash:execute_command_internal+0")
int returned(struct pt_regs *ctx)
{
	struct call call = { bpf_get_current_pid_tgid() };
	i64 count = counted(), *start;
	struct thread *thread;

	thread = bpf_map_lookup_elem(&threads, &call.tid);
	if (!thread)
		return 0;
	call.depth = thread->depth;
	start = bpf_map_lookup_elem(&starts, &call);
	if (start) {
		u64 took = thread->before + count - thread->since - *start;
		u32 slot = log2_slot(took);

		if (slot < SLOTS)
			__sync_fetch_and_add(&rows[slot], 1);
		__sync_fetch_and_add(&total, took);
		__sync_fetch_and_add(&calls, 1);
		if (took > largest)
			largest = took;
		bpf_map_delete_elem(&starts, &call);
	}
	if (thread->depth <= 1)
		bpf_map_delete_elem(&threads, &call.tid);
	else
		__sync_fetch_and_add(&thread->depth, -1);
	return 0;
}

SEC("tracepoint/sched/sched_switch")
int switched(struct trace_event_raw_sched_switch *ctx)
{
	u32 tid = bpf_get_current_pid_tgid(), next = ctx->next_pid;
	struct thread *leaves, *comes;
	i64 count = counted();

	leaves = bpf_map_lookup_elem(&threads, &tid);
	if (leaves) {
		__sync_fetch_and_add(&leaves->before, count - leaves->since);
		leaves->since = count;
	}
	comes = bpf_map_lookup_elem(&threads, &next);
	if (comes)
		comes->since = count;
	return 0;
}

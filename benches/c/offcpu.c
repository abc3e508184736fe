#define KERNEL_TYPES
#include "common.h"
#include "ids.h"

struct where {
	u32 pid;
	i64 kernel, user;
	char name[16];
};

struct left {
	u64 at;
	struct where place;
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 127 * sizeof(u64));
	__uint(max_entries, 16384);
} stacks SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, struct where, u64, 32768) off_us SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, u32, struct left, 32768) left SEC(".maps");
u32 only;
u64 least_us, __lost_off_us, __lost_stacks, __lost_left;

SEC("tracepoint/sched/sched_switch")
int switched(struct trace_event_raw_sched_switch *ctx)
{
	u64 now = bpf_ktime_get_ns(), waited;
	u32 next = ctx->next_pid, before = ctx->prev_pid, pid;
	struct left *back, gone;

	back = bpf_map_lookup_elem(&left, &next);
	if (back) {
		waited = (now - back->at) / 1000;
		if (waited >= least_us)
			bump_or_count(&off_us, &back->place, waited, &__lost_off_us);
		bpf_map_delete_elem(&left, &next);
	}
	pid = own_pid();
	if (pid == 0 || (only && pid != only))
		return 0;
	if (ctx->prev_state & 48)
		return 0;
	__builtin_memset(&gone, 0, sizeof(gone));
	gone.at = now;
	gone.place.pid = pid;
	gone.place.kernel = stack_or_count(ctx, &stacks, 0, &__lost_stacks);
	gone.place.user = stack_or_count(ctx, &stacks, BPF_F_USER_STACK, &__lost_stacks);
	bpf_get_current_comm(gone.place.name, sizeof(gone.place.name));
	set_or_count(&left, &before, &gone, &__lost_left);
	return 0;
}

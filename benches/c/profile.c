#include "common.h"
#include "ids.h"

struct where {
	u32 pid;
	i64 kernel, user;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, 127 * sizeof(u64));
	__uint(max_entries, 16384);
} stacks SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, struct where, u64, 32768) seen SEC(".maps");
u32 only_pid;
char only_command[16] __attribute__((aligned(8)));
u64 __lost_stacks, __lost_seen;

SEC("perf_event")
int tick(struct bpf_perf_event_data *ctx)
{
	u32 pid = own_pid();
	struct where here;

	if (pid == 0 || (only_pid && pid != only_pid))
		return 0;
	__builtin_memset(&here, 0, sizeof(here));
	bpf_get_current_comm(here.name, sizeof(here.name));
	if (only_command[0] && !same_text(here.name, only_command, sizeof(here.name)))
		return 0;
	here.pid = pid;
	here.kernel = stack_or_count(ctx, &stacks, 0, &__lost_stacks);
	here.user = stack_or_count(ctx, &stacks, BPF_F_USER_STACK, &__lost_stacks);
	bump_or_count(&seen, &here, 1, &__lost_seen);
	return 0;
}

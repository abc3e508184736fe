#include "common.h"

struct name {
	char bytes[16];
} __attribute__((aligned(8)));

MAP(BPF_MAP_TYPE_HASH, struct name, u64, 256) runs SEC(".maps");
u64 shells, kernel;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	static const struct name bash = { "bash" }, sh = { "sh" };
	struct name name = {};

	bpf_get_current_comm(&name, sizeof(name));
	bump(&runs, &name, 1);
	if (same_text(&name, &bash, 16) || same_text(&name, &sh, 16))
		__sync_fetch_and_add(&shells, 1);
	if (name.bytes[0] == 'k' && name.bytes[1] == 'w')
		__sync_fetch_and_add(&kernel, 1);
	return 0;
}

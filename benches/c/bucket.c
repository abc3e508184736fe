#include "common.h"

struct bucket {
	u64 tokens, filled;
};

MAP(BPF_MAP_TYPE_HASH, u32, struct bucket, 256) buckets SEC(".maps");
u64 rate = 1000, over;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u32 user = bpf_get_current_uid_gid();
	u64 now = bpf_ktime_get_ns() / 1000000, earned;
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &user);

	if (!bucket) {
		struct bucket new = { .tokens = rate, .filled = now };

		bpf_map_update_elem(&buckets, &user, &new, BPF_ANY);
		return 0;
	}
	earned = (now - bucket->filled) * rate / 1000;
	if (earned > 0) {
		u64 tokens = bucket->tokens + earned;

		if (tokens > rate)
			tokens = rate;
		bucket->tokens = tokens;
		bucket->filled = now;
	}
	if (bucket->tokens == 0) {
		__sync_fetch_and_add(&over, 1);
		return 1;
	}
	bucket->tokens = bucket->tokens - 1;
	return 0;
}

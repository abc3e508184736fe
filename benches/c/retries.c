#include "common.h"

u64 failed, given_up;
MAP(BPF_MAP_TYPE_ARRAY, u32, u32, 8) work SEC(".maps");

/* The result, or the negative code of what went wrong. */
inlined i64 attempt(u32 slot, u32 number)
{
	u32 *value = bpf_map_lookup_elem(&work, &slot);

	if (!value || *value == 0)
		return -2;
	if (*value > 100 + number)
		return -3;
	return (u32)(*value * 2);
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u32 sum = 0, number;

	for (number = 0; number < 3; number++) {
		i64 result = attempt(number, number);

		if (result == -2) {
			/* The address of the counter itself would put it where the verifier loses it. */
			u32 key = number, value = number + 99;

			__sync_fetch_and_add(&failed, 1);
			bpf_map_update_elem(&work, &key, &value, BPF_ANY);
		} else if (result == -3) {
			__sync_fetch_and_add(&given_up, 1);
		} else {
			sum += result;
		}
	}
	return sum;
}

#include "common.h"

u64 sizes[12];

SEC("socket")
int measure(struct __sk_buff *ctx)
{
	u32 bucket = 0, limit = 64;
	int i;

	for (i = 0; i < 11; i++) {
		if (ctx->len > limit) {
			limit = limit * 2;
			bucket = bucket + 1;
		}
	}
	if (bucket < 12)
		__sync_fetch_and_add(&sizes[bucket], 1);
	return 0;
}

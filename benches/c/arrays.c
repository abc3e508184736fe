#include "common.h"

struct pair {
	u32 a;
	u64 b;
	u16 list[3];
};

u32 total;
u64 sum;
u32 outside = 5, negative = 5;
u32 table[4];
struct pair pair;
u16 second;
u32 far = 9;
i32 below = -1;
u32 one = 1;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u32 small[5] = { 0, 1, 2, 3, 4 };
	u64 large[16] = {};
	struct pair p, q;
	struct num_iter it;
	u64 limit;
	int *item;
	u32 bound, i;

	for (i = 0; i < 5; i++)
		__sync_fetch_and_add(&total, small[i]);
	for (i = 0; i < 16; i++)
		large[i] = i;
	bound = 15 + one;
	limit = bound;
	bpf_iter_num_new(&it, 0, limit > MAX_ITERATIONS ? MAX_ITERATIONS : limit);
	while ((item = bpf_iter_num_next(&it))) {
		u32 at = *item;

		__sync_fetch_and_add(&sum, at < 16 ? large[at] : 0);
	}
	bpf_iter_num_destroy(&it);
	outside = far < 5 ? small[far] : 0;
	negative = (u64)(i64)below < 5 ? small[below] : 0;
	if (far < 5)
		small[far] = 77;
	if (one < 4)
		table[one] = 11;
	if (far < 4)
		table[far] = 12;
	__builtin_memset(&p, 0, sizeof(p));
	p.a = 7;
	p.b = 8;
	p.list[0] = 1;
	p.list[1] = 2;
	p.list[2] = 3;
	__builtin_memcpy(&q, &p, sizeof(q));
	p.a = 99;
	if (far < 3)
		q.list[far] = 9;
	__builtin_memcpy(&pair, &q, sizeof(q));
	second = one < 3 ? q.list[one] : 0;
	return 0;
}

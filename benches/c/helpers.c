#include "common.h"

struct point {
	u32 x;
	u64 y;
};

u64 total;
struct point made;
u64 sum;
u32 untouched, length, one = 1;

inlined u64 add8(u8 a, u16 b, u32 c, u64 d, i8 e, i16 f, i32 g, i64 h)
{
	u64 s = 0;
	i64 t = e;

	s += a;
	s += b;
	s += c;
	s += d;
	t += f;
	t += g;
	t += h;
	return s + t;
}

inlined u64 measure(struct point p)
{
	return p.y + p.x;
}

inlined int is_tool(const char *name)
{
	char tool[16] = "tool";

	return same_text(name, tool, 16);
}

called u64 halve(u64 n)
{
	u64 steps = 0;
	struct num_iter it;
	int *item;

	bpf_iter_num_new(&it, 0, MAX_ITERATIONS);
	while ((item = bpf_iter_num_next(&it)) && n > 1) {
		n = n / 2;
		steps += 1;
	}
	bpf_iter_num_destroy(&it);
	return steps;
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct point p = { 3, 4 };
	char tool[16] = "tool";

	total = add8(1, 2, 3, 4, 5, 6, 7, 8);
	made.x = 2 + one;
	made.y = 2 + one + 1;
	sum = measure(p);
	untouched = p.x;
	if (is_tool(tool) && halve(1024) == 10)
		length = 1;
	return 0;
}

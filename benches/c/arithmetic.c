#include "common.h"

i32 quotient, rest;
i8 smallest;
i64 by_zero = 9, rest_by_zero;
u8 wrapped = 250;
i64 extended;
u8 cut;
i16 shifted = -3;
u32 logic, less;
i32 minus_seven = -7;
i64 zero;
i32 two = 2;
i8 low = -128, minus_one = -1;

/* BPF v3 divides unsigned numbers only. */
inlined i32 quotient32(i32 a, i32 b)
{
	u32 x = a < 0 ? -(u32)a : a, y = b < 0 ? -(u32)b : b;
	u32 q = y ? x / y : 0;

	return (a < 0) != (b < 0) ? -q : q;
}

inlined i32 remainder32(i32 a, i32 b)
{
	u32 x = a < 0 ? -(u32)a : a, y = b < 0 ? -(u32)b : b;
	u32 r = y ? x % y : x;

	return a < 0 ? -r : r;
}

inlined i64 quotient64(i64 a, i64 b)
{
	u64 x = a < 0 ? -(u64)a : a, y = b < 0 ? -(u64)b : b;
	u64 q = y ? x / y : 0;

	return (a < 0) != (b < 0) ? -q : q;
}

inlined i64 remainder64(i64 a, i64 b)
{
	u64 x = a < 0 ? -(u64)a : a, y = b < 0 ? -(u64)b : b;
	u64 r = y ? x % y : x;

	return a < 0 ? -r : r;
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	i64 left;
	u32 big;

	quotient = quotient32(minus_seven, two);
	rest = remainder32(minus_seven, two);
	smallest = quotient32(low, minus_one);
	left = minus_seven;
	by_zero = quotient64(left, zero);
	rest_by_zero = remainder64(left, zero);
	wrapped += 10;
	extended = minus_one;
	cut = minus_one;
	shifted = shifted + 1;
	if (minus_seven < two && (two > 1 || zero == 1))
		logic = 1;
	big = minus_seven;
	if (big > 5)
		less = 1;
	return 42;
}

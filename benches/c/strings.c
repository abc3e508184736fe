#include "common.h"

u32 same, differ;
char first = 'x', beyond = 'x';
u32 full;
char text[8] = "none";
u32 far = 40, zero;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	char a[16] __attribute__((aligned(8))) = "kshell", b[4] __attribute__((aligned(4))) = "ksh";
	char c[32] __attribute__((aligned(8))) = "kshell";

	if (same_text(a, c, 16) && c[16] == 0)
		same = 1;
	if ((*(u32 *)a != *(u32 *)b || a[4]) && *(u32 *)b == *(u32 *)"ksh")
		differ = 1;
	first = zero < sizeof(a) ? a[zero] : 0;
	beyond = far < sizeof(a) ? a[far] : 0;
	if (a[0])
		full = 1;
	__builtin_memcpy(text, a, 8);
	__builtin_memset(text, 0, 8);
	__builtin_memcpy(text, b, 4);
	return 0;
}

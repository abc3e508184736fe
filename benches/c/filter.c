#include "common.h"
#include "packet.h"

u64 dropped;

SEC("xdp")
int filter(struct xdp_md *ctx)
{
	if (DATA_END(ctx) - DATA(ctx) < 100) {
		__sync_fetch_and_add(&dropped, 1);
		return XDP_DROP;
	}
	return XDP_PASS;
}

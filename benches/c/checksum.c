#include "common.h"
#include "packet.h"

u64 right, wrong;

SEC("xdp")
int verify(struct xdp_md *ctx)
{
	u8 *packet = DATA(ctx), *end = DATA_END(ctx);
	u32 sum = 0, i;

	for (i = 0; i < 10; i++)
		sum += half_at(packet, end, 14 + i * 2);
	sum = (sum & 65535) + (sum >> 16);
	sum = (sum & 65535) + (sum >> 16);
	if (sum == 65535)
		__sync_fetch_and_add(&right, 1);
	else
		__sync_fetch_and_add(&wrong, 1);
	return XDP_PASS;
}

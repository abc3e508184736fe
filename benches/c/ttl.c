#include "common.h"
#include "packet.h"

u64 expired;

SEC("xdp")
int hop(struct xdp_md *ctx)
{
	u8 *packet = DATA(ctx), *end = DATA_END(ctx);
	u32 sum;
	u8 ttl;

	if (bpf_ntohs(half_at(packet, end, 12)) != IPV4)
		return XDP_PASS;
	ttl = byte_at(packet, end, 22);
	if (ttl <= 1) {
		__sync_fetch_and_add(&expired, 1);
		return XDP_DROP;
	}
	if (packet + 23 <= end)
		packet[22] = ttl - 1;
	sum = half_at(packet, end, 24);
	sum = sum + 1;
	if (packet + 26 <= end)
		*(u16 *)(packet + 24) = sum + (sum >> 16);
	return XDP_PASS;
}

#include "common.h"
#include "packet.h"

struct flow {
	u64 packets, bytes;
	u32 last;
	u8 protocol;
};

MAP(BPF_MAP_TYPE_LRU_HASH, u32, struct flow, 4096) flows SEC(".maps");

SEC("xdp")
int sources(struct xdp_md *ctx)
{
	u8 *packet = DATA(ctx), *end = DATA_END(ctx);
	struct flow *entry;
	u64 length;
	u32 source;

	if (bpf_ntohs(half_at(packet, end, 12)) != IPV4)
		return XDP_PASS;
	source = word_at(packet, end, 26);
	length = end - packet;
	entry = bpf_map_lookup_elem(&flows, &source);
	if (entry) {
		__sync_fetch_and_add(&entry->packets, 1);
		__sync_fetch_and_add(&entry->bytes, length);
		entry->last = ctx->rx_queue_index;
	} else {
		struct flow new = {};

		new.packets = 1;
		new.bytes = length;
		new.last = ctx->rx_queue_index;
		new.protocol = byte_at(packet, end, 23);
		bpf_map_update_elem(&flows, &source, &new, BPF_ANY);
	}
	return XDP_PASS;
}

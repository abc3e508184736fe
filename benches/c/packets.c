#include "common.h"
#include "packet.h"

struct traffic {
	u64 packets, bytes;
};

MAP(BPF_MAP_TYPE_ARRAY, u32, struct traffic, 257) seen SEC(".maps");

SEC("xdp")
int on_packet(struct xdp_md *ctx)
{
	u8 *packet = DATA(ctx), *end = DATA_END(ctx);
	struct traffic *entry;
	u32 kind = 256;

	if (bpf_ntohs(half_at(packet, end, 12)) == IPV4)
		kind = byte_at(packet, end, 23);
	entry = bpf_map_lookup_elem(&seen, &kind);
	if (entry) {
		__sync_fetch_and_add(&entry->packets, 1);
		__sync_fetch_and_add(&entry->bytes, end - packet);
	}
	return XDP_PASS;
}

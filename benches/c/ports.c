#include "common.h"
#include "packet.h"

MAP(BPF_MAP_TYPE_HASH, u16, u64, 1024) counts SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, u16, u32, 64) closed SEC(".maps");
u64 dropped;

SEC("xdp")
int ports(struct xdp_md *ctx)
{
	u8 *packet = DATA(ctx), *end = DATA_END(ctx);
	u32 *shut;
	u16 port;

	if (bpf_ntohs(half_at(packet, end, 12)) != IPV4 || byte_at(packet, end, 23) != UDP)
		return XDP_PASS;
	port = bpf_ntohs(half_at(packet, end, 36));
	bump(&counts, &port, 1);
	shut = bpf_map_lookup_elem(&closed, &port);
	if (shut && *shut != 0) {
		__sync_fetch_and_add(&dropped, 1);
		return XDP_DROP;
	}
	return XDP_PASS;
}

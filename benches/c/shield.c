#include "common.h"
#include "packet.h"

struct shield {
	u16 port;
};

#define TC_ACT_OK 0
#define TC_ACT_SHOT 2

MAP(BPF_MAP_TYPE_ARRAY, u32, struct shield, 1) shield_config_map SEC(".maps");
u64 dropped, passed;

SEC("tc")
int guard(struct __sk_buff *ctx)
{
	u8 *packet = DATA(ctx), *end = DATA_END(ctx);

	if (bpf_ntohs(half_at(packet, end, 12)) == IPV4 && byte_at(packet, end, 23) == UDP) {
		u8 *udp = packet + 14 + (byte_at(packet, end, 14) & 15) * 4;
		u16 port = bpf_ntohs(half_at(udp, end, 2));
		struct shield *shield;
		u32 zero = 0;

		shield = bpf_map_lookup_elem(&shield_config_map, &zero);
		if (port == (shield ? shield->port : 0)) {
			__sync_fetch_and_add(&dropped, 1);
			return TC_ACT_SHOT;
		}
	}
	__sync_fetch_and_add(&passed, 1);
	return TC_ACT_OK;
}

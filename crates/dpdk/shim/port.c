#include "gate.h"
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_pause.h>

/* Descriptors of a queue, if the device takes as many. */
#define DESCRIPTORS 512
/* Buffers that a thread keeps for itself. */
#define CACHE 128
#define HEADER_BYTES 14
/* A VLAN tag and the checksum, which some devices leave in the buffer; and for net_af_packet the rest of a slot of its ring. */
#define SLACK_BYTES 192
/* The least payload on Ethernet. */
#define SHORTEST_BYTES 46
/* Questions for the link's state in a second. */
#define LINK_HZ 10000
/* Looks at a gate that is taken, before and after it gives the core away. */
#define SPINS 200
#define YIELDS 1000

struct es_port {
	struct es_gate gate;
	struct rte_device *device;
	struct rte_mempool *pool;
	uint64_t link_due;
	uint16_t id;
	uint16_t held;
	/* Payloads shorter than this are filled up. */
	uint16_t shortest;
	bool is_started;
	struct rte_mbuf *received[ES_BURST];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t joined;

static void
leave_eal(void *unused)
{
	(void)unused;
	rte_thread_unregister();
}

static void
make_key(void)
{
	pthread_key_create(&joined, leave_eal);
}

/* Threads that EAL knows have a cache of buffers; the others go without, which is all that is lost if it takes no more. */
static void
join_eal(void)
{
	pthread_once(&once, make_key);
	if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0)
		pthread_setspecific(joined, &joined);
}

static void
touch(struct rte_mempool *pool, void *unused, void *object, unsigned int index)
{
	struct rte_mbuf *mbuf = object;

	(void)pool;
	(void)unused;
	(void)index;
	memset(mbuf->buf_addr, 0, mbuf->buf_len);
}

static int
find(const char *device, uint16_t *id)
{
	struct rte_dev_iterator iterator;
	uint16_t found;

	RTE_ETH_FOREACH_MATCHING_DEV(found, device, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		*id = found;
		return 0;
	}
	return -ENODEV;
}

/* The frame size: what is asked for, or what the device has. Virtual devices tell nonsense of what they take. */
static int
fit(struct es_port *port, const struct rte_eth_dev_info *about, struct rte_eth_conf *conf, uint16_t *mtu)
{
	const bool is_virtual = strcmp(rte_bus_name(rte_dev_bus(port->device)), "vdev") == 0;
	const uint32_t overhead = about->max_mtu != UINT16_MAX && about->max_rx_pktlen > about->max_mtu
		? about->max_rx_pktlen - about->max_mtu : RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
	uint32_t most = about->max_rx_pktlen > overhead ? about->max_rx_pktlen - overhead : 0;
	int result = 0;

	if (most > about->max_mtu)
		most = about->max_mtu;
	if (*mtu == 0)
		result = rte_eth_dev_get_mtu(port->id, mtu);
	if (result == 0 && *mtu > most && !is_virtual)
		result = -EMSGSIZE;
	conf->rxmode.mtu = *mtu < most ? *mtu : most;
	return result;
}

static int
set_up(struct es_port *port, const struct es_config *config, struct es_info *info, const char **step)
{
	struct rte_eth_dev_info about;
	struct rte_eth_conf conf = { 0 };
	struct rte_ether_addr mac;
	uint16_t rx = DESCRIPTORS, tx = DESCRIPTORS;
	uint32_t room;
	char name[RTE_MEMPOOL_NAMESIZE];
	int result;

	*step = "rte_eth_dev_info_get";
	result = rte_eth_dev_info_get(port->id, &about);
	if (result != 0)
		return result;
	port->device = about.device;
	snprintf(info->driver, sizeof(info->driver), "%s", about.driver_name);

	*step = "the frame size";
	info->mtu = config->mtu;
	result = fit(port, &about, &conf, &info->mtu);
	if (result != 0)
		return result;

	*step = "rte_eth_dev_configure";
	result = rte_eth_dev_configure(port->id, 1, 1, &conf);
	if (result == 0)
		result = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx, &tx);
	if (result != 0)
		return result;

	/* A frame fits one buffer. Enough of them for both queues, a burst each way, and the caches. */
	*step = "rte_pktmbuf_pool_create";
	room = RTE_ALIGN_CEIL(HEADER_BYTES + info->mtu + SLACK_BYTES, RTE_CACHE_LINE_SIZE);
	if (room < 2048)
		room = 2048;
	snprintf(name, sizeof(name), "etherslot%u", port->id);
	port->pool = rte_pktmbuf_pool_create(name, rx + tx + 2 * ES_BURST + 4 * CACHE, CACHE, 0,
		RTE_PKTMBUF_HEADROOM + room, rte_eth_dev_socket_id(port->id));
	if (port->pool == NULL)
		return -rte_errno;
	/* Without huge pages the first to use a page would wait for it. */
	rte_mempool_obj_iter(port->pool, touch, NULL);

	*step = "rte_eth_rx_queue_setup";
	result = rte_eth_rx_queue_setup(port->id, 0, rx, SOCKET_ID_ANY, NULL, port->pool);
	if (result != 0)
		return result;
	*step = "rte_eth_tx_queue_setup";
	result = rte_eth_tx_queue_setup(port->id, 0, tx, SOCKET_ID_ANY, NULL);
	if (result != 0)
		return result;

	*step = "rte_eth_dev_start";
	result = rte_eth_dev_start(port->id);
	port->is_started = result == 0;
	if (result != 0 && !config->may_start_later)
		return result;
	info->is_started = port->is_started;

	*step = "the MAC address";
	if (config->has_mac) {
		memcpy(mac.addr_bytes, config->mac, sizeof(config->mac));
		/* A device that cannot change its address takes frames to any; the caller chooses. */
		if (rte_eth_dev_default_mac_addr_set(port->id, &mac) != 0) {
			result = rte_eth_promiscuous_enable(port->id);
			if (result != 0 && result != -ENOTSUP)
				return result;
		}
		memcpy(info->mac, config->mac, sizeof(info->mac));
		return 0;
	}
	result = rte_eth_macaddr_get(port->id, &mac);
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	return result;
}

/* With the control lock held. */
static void
tear_down(struct es_port *port)
{
	/* A device that was never started is told all the same: what it has begun has to end. */
	rte_eth_dev_stop(port->id);
	rte_eth_dev_close(port->id);
	if (port->device != NULL)
		rte_dev_remove(port->device);
	rte_mempool_free(port->pool);
	free(port);
	es_control_plug();
}

int
es_open(const struct es_config *config, struct es_port **opened, struct es_info *info, const char **step)
{
	struct es_port *port = NULL;
	int result;

	*step = "memory";
	if (posix_memalign((void **)&port, RTE_CACHE_LINE_SIZE, sizeof(*port)) != 0)
		return -ENOMEM;
	memset(port, 0, sizeof(*port));
	atomic_flag_clear(&port->gate.taken);
	port->shortest = config->fills ? SHORTEST_BYTES : 0;
	join_eal();
	es_control_lock();
	*step = "rte_dev_probe";
	result = rte_dev_probe(config->device);
	if (result == 0)
		result = find(config->device, &port->id);
	if (result != 0) {
		free(port);
	} else {
		result = set_up(port, config, info, step);
		if (result != 0)
			tear_down(port);
		else
			es_gate_add(&port->gate);
	}
	es_control_unlock();
	*opened = result == 0 ? port : NULL;
	return result;
}

int
es_restart(struct es_port *port)
{
	int result;

	es_control_lock();
	es_gate_take(&port->gate);
	if (port->is_started)
		rte_eth_dev_stop(port->id);
	es_control_plug();
	result = rte_eth_dev_start(port->id);
	port->is_started = result == 0;
	port->link_due = 0;
	es_gate_leave(&port->gate);
	es_control_unlock();
	return result;
}

void
es_close(struct es_port *port)
{
	es_release(port);
	es_control_lock();
	es_gate_take(&port->gate);
	es_gate_remove(&port->gate);
	tear_down(port);
	es_control_unlock();
}

int
es_link(struct es_port *port)
{
	const uint64_t now = rte_get_timer_cycles();
	struct rte_eth_link link;
	bool up;

	if (now < port->link_due)
		return atomic_load_explicit(&port->gate.up, memory_order_relaxed);
	if (!es_gate_enter(&port->gate))
		return -EAGAIN;
	port->link_due = now + rte_get_timer_hz() / LINK_HZ;
	up = port->is_started && rte_eth_link_get_nowait(port->id, &link) == 0
		&& link.link_status == RTE_ETH_LINK_UP;
	atomic_store_explicit(&port->gate.up, up, memory_order_relaxed);
	es_gate_leave(&port->gate);
	return up;
}

/* What EAL's thread does takes microseconds, if it has a core. A burst is put off only if that lasts. */
static bool
wait_for(struct es_gate *gate)
{
	unsigned int tries;

	for (tries = 0; !es_gate_enter(gate); tries++) {
		if (tries == SPINS + YIELDS)
			return false;
		if (tries < SPINS)
			rte_pause();
		else
			sched_yield();
	}
	return true;
}

uint32_t
es_send(struct es_port *port, const uint8_t *header, const struct es_frame *frames, uint32_t count)
{
	struct rte_mbuf *mbufs[ES_BURST];
	uint16_t sent = 0;
	uint32_t at;

	if (count > ES_BURST)
		count = ES_BURST;
	if (!port->is_started || rte_pktmbuf_alloc_bulk(port->pool, mbufs, count) != 0)
		return 0;
	for (at = 0; at < count; at++) {
		uint8_t *data = rte_pktmbuf_mtod(mbufs[at], uint8_t *);
		uint32_t len = frames[at].len;

		memcpy(data, header, HEADER_BYTES);
		data += HEADER_BYTES;
		memcpy(data, frames[at].bytes, len);
		if (len < port->shortest) {
			memset(data + len, 0, port->shortest - len);
			len = port->shortest;
		}
		mbufs[at]->data_len = (uint16_t)(HEADER_BYTES + len);
		mbufs[at]->pkt_len = HEADER_BYTES + len;
	}
	if (wait_for(&port->gate)) {
		sent = rte_eth_tx_burst(port->id, 0, mbufs, (uint16_t)count);
		es_gate_leave(&port->gate);
	}
	if (sent < count)
		rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
	return sent;
}

uint32_t
es_receive(struct es_port *port, struct es_frame *frames)
{
	uint16_t at;

	if (!port->is_started || !wait_for(&port->gate))
		return 0;
	port->held = rte_eth_rx_burst(port->id, 0, port->received, ES_BURST);
	es_gate_leave(&port->gate);
	for (at = 0; at < port->held; at++) {
		struct rte_mbuf *mbuf = port->received[at];

		frames[at].flags = 0;
		if (mbuf->nb_segs > 1 && rte_pktmbuf_linearize(mbuf) != 0)
			frames[at].flags |= ES_TRUNCATED;
		if (mbuf->ol_flags & (RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED))
			frames[at].flags |= ES_TAGGED;
		frames[at].bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);
		frames[at].len = mbuf->data_len;
	}
	return port->held;
}

void
es_release(struct es_port *port)
{
	if (port->held != 0)
		rte_pktmbuf_free_bulk(port->received, port->held);
	port->held = 0;
}

void
es_stats(struct es_port *port, struct es_stats *stats)
{
	struct rte_eth_stats all;

	memset(&all, 0, sizeof(all));
	if (es_gate_enter(&port->gate)) {
		if (rte_eth_stats_get(port->id, &all) != 0)
			memset(&all, 0, sizeof(all));
		es_gate_leave(&port->gate);
	}
	stats->missed = all.imissed + all.rx_nombuf;
	stats->unsent = all.oerrors;
}

/* What the Rust side calls: bursts in, bursts out, and the little that has to happen around them in C, since DPDK's
 * data path is inline functions. No policy here: which arguments EAL gets, what a frame is for and what is counted is
 * decided by the caller. Mirrored in src/shim.rs. */
#ifndef ETHERSLOT_DPDK_SHIM_H
#define ETHERSLOT_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ES_API __attribute__((visibility("default")))
/* Frames of one burst. */
#define ES_BURST 64

/* One of EAL's log lines, or several; `level` is one of RTE_LOG_*. Called by any thread. */
typedef void (*es_log)(uint32_t level, const char *text, size_t bytes);

struct es_port;

struct es_config {
	/* A vdev with its arguments, or a PCI address: what rte_dev_probe() takes. */
	const char *device;
	/* The largest payload of an Ethernet frame; 0: what the device has now. */
	uint16_t mtu;
	/* Whether a device that does not start is opened all the same, as a link that is down. */
	uint8_t may_start_later;
	/* Whether short frames are filled up to what Ethernet carries. */
	uint8_t fills;
	/* Whether `mac` is to become the device's address. */
	uint8_t has_mac;
	uint8_t mac[6];
};

struct es_info {
	char driver[32];
	/* The largest payload of an Ethernet frame. */
	uint16_t mtu;
	uint8_t mac[6];
	/* Not if it has to be started again. */
	uint8_t is_started;
};

/* One frame, Ethernet header and all when it arrives, without it when it leaves. */
struct es_frame {
	const uint8_t *bytes;
	uint32_t len;
	uint32_t flags;
};

/* Longer than the buffers. */
#define ES_TRUNCATED 1
/* Of a VLAN whose tag the device has taken off. */
#define ES_TAGGED 2

struct es_stats {
	/* Frames that arrived and found no buffer. */
	uint64_t missed;
	/* Frames that did not get out. */
	uint64_t unsent;
};

/* Starts EAL; once in a process. 0, or a negative errno. */
ES_API int es_start(int argc, char **argv, es_log log);
/* 0, or a negative errno, with what was tried in `step`. */
ES_API int es_open(const struct es_config *config, struct es_port **port, struct es_info *info, const char **step);
/* Stops the device and starts it again. */
ES_API int es_restart(struct es_port *port);
ES_API void es_close(struct es_port *port);
/* Whether the link is up; asks the device at most every 100 us. -EAGAIN: it cannot be asked now. */
ES_API int es_link(struct es_port *port);
/* Sends up to ES_BURST frames behind an Ethernet header of 14 bytes; returns how many, from the front, went. */
ES_API uint32_t es_send(struct es_port *port, const uint8_t *header, const struct es_frame *frames, uint32_t count);
/* Takes up to ES_BURST frames, which stay until es_release(). */
ES_API uint32_t es_receive(struct es_port *port, struct es_frame *frames);
ES_API void es_release(struct es_port *port);
ES_API void es_stats(struct es_port *port, struct es_stats *stats);
/* The MTU of a kernel interface, seen from this thread's network namespace; 0: there is none. */
ES_API uint16_t es_interface_mtu(const char *name);

#endif

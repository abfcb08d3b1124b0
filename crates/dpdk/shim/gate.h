/* Keeps EAL's control thread off the devices while a burst is under way. */
#ifndef ETHERSLOT_DPDK_GATE_H
#define ETHERSLOT_DPDK_GATE_H

#include <stdatomic.h>
#include <stdbool.h>

struct es_gate {
	/* Held by the one that may touch the device. */
	atomic_flag taken;
	/* Whether the port's link was up when last looked at. */
	atomic_bool up;
	struct es_gate *next;
} __attribute__((aligned(64)));

int es_gate_start(void);
/* For opening, closing and restarting: nothing else is done to any device meanwhile, but for bursts. */
void es_control_lock(void);
void es_control_unlock(void);
/* With the control lock held, after something was closed. */
void es_control_plug(void);
/* With the control lock held. A new gate is open. */
void es_gate_add(struct es_gate *gate);
void es_gate_remove(struct es_gate *gate);
/* Waits for a burst that is under way. */
void es_gate_take(struct es_gate *gate);

static inline bool
es_gate_enter(struct es_gate *gate)
{
	return !atomic_flag_test_and_set_explicit(&gate->taken, memory_order_acquire);
}

static inline void
es_gate_leave(struct es_gate *gate)
{
	atomic_flag_clear_explicit(&gate->taken, memory_order_release);
}

#endif

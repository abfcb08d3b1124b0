/* EAL serves what happens to devices (a peer that went, a carrier) in a thread of its own, and some drivers then free what
 * a burst under way still uses: net_memif unmaps its rings when its peer dies. So that thread is held here: it sits in
 * a callback of ours, whose descriptor is always readable. From time to time it takes all gates, returns, does what has
 * come up, is called again, and opens the gates. A burst that finds its gate taken is put off.
 *
 * EAL's thread may have been told of other descriptors together with ours, and serves them when we let it go. One that was
 * closed meanwhile must not have been given to somebody new by then: numbers that become free are kept occupied until
 * it asks again. */
#define _GNU_SOURCE
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_interrupts.h>

/* Between two looks of EAL's thread: with a link that is down, which is to come up soon, and otherwise. */
#define SOON_NS 1000000L
#define LATER_NS 50000000L

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t kick;
static struct es_gate *gates;
/* Only EAL's thread uses it. */
static bool is_outside;
/* Always readable. */
static int descriptor = -1;
/* Descriptors that only occupy their numbers: more than a device has. */
static int plugs[64];
static int plug_count;

void
es_control_lock(void)
{
	pthread_mutex_lock(&control);
}

void
es_control_unlock(void)
{
	/* What was done may need EAL's thread now. */
	pthread_cond_signal(&kick);
	pthread_mutex_unlock(&control);
}

void
es_gate_take(struct es_gate *gate)
{
	while (!es_gate_enter(gate))
		sched_yield();
}

void
es_gate_add(struct es_gate *gate)
{
	gate->next = gates;
	gates = gate;
}

void
es_gate_remove(struct es_gate *gate)
{
	struct es_gate **at = &gates;

	while (*at != NULL && *at != gate)
		at = &(*at)->next;
	if (*at != NULL)
		*at = gate->next;
}

void
es_control_plug(void)
{
	while (plug_count < (int)(sizeof(plugs) / sizeof(plugs[0]))) {
		const int fd = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			break;
		plugs[plug_count++] = fd;
	}
}

static long
period_ns(void)
{
	const struct es_gate *gate;

	for (gate = gates; gate != NULL; gate = gate->next)
		if (!atomic_load_explicit(&gate->up, memory_order_relaxed))
			return SOON_NS;
	return LATER_NS;
}

static void
hold(void *unused)
{
	struct es_gate *gate;
	struct timespec until;

	(void)unused;
	if (is_outside)
		for (gate = gates; gate != NULL; gate = gate->next)
			es_gate_leave(gate);
	else
		pthread_mutex_lock(&control);
	while (plug_count > 0)
		close(plugs[--plug_count]);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += period_ns();
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec += 1;
	}
	/* Gives the control lock away for as long. */
	pthread_cond_timedwait(&kick, &control, &until);
	for (gate = gates; gate != NULL; gate = gate->next)
		es_gate_take(gate);
	is_outside = true;
}

int
es_gate_start(void)
{
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	pthread_condattr_t attributes;

	descriptor = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&kick, &attributes);
	if (handle == NULL || descriptor < 0)
		return -ENOMEM;
	if (rte_intr_fd_set(handle, descriptor) != 0 || rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) != 0)
		return -EINVAL;
	return rte_intr_callback_register(handle, hold, NULL);
}

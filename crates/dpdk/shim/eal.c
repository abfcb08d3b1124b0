#define _GNU_SOURCE
#include "gate.h"
#include "shim.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

static es_log log_to;

static ssize_t
write_log(void *unused, const char *text, size_t bytes)
{
	(void)unused;
	log_to((uint32_t)rte_log_cur_msg_loglevel(), text, bytes);
	return (ssize_t)bytes;
}

int
es_start(int argc, char **argv, es_log log)
{
	const cookie_io_functions_t functions = { .write = write_log };
	FILE *stream = fopencookie(NULL, "w", functions);

	if (stream == NULL)
		return -ENOMEM;
	log_to = log;
	/* A line at a time, so that its level is still known. */
	setvbuf(stream, NULL, _IOLBF, 4096);
	rte_openlog_stream(stream);
	if (rte_eal_init(argc, argv) < 0)
		return rte_errno > 0 ? -rte_errno : -EINVAL;
	return es_gate_start();
}

uint16_t
es_interface_mtu(const char *name)
{
	struct ifreq request;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int result;

	if (fd < 0)
		return 0;
	memset(&request, 0, sizeof(request));
	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	result = ioctl(fd, SIOCGIFMTU, &request);
	close(fd);
	if (result != 0 || request.ifr_mtu < 0)
		return 0;
	return request.ifr_mtu > UINT16_MAX ? UINT16_MAX : (uint16_t)request.ifr_mtu;
}

/*
 * Many connections, one after the other, between two processes: many COUNT is asked, many COUNT ADDRESS asks. Over each goes a message,
 * which is compared. At the end nothing may be left of them: neither descriptors nor memory. Exit status 1 if something is.
 */
#include "check.h"

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PORT "7999"
#define BYTES 256
/* After so many, nothing grows any more. */
#define WARM 1000
/* 100 bytes of each connection that stay would be seen. */
#define SLACK_KIB 900

static void broken(const char *what, long count)
{
	fprintf(stderr, "connection %ld: ", count);
	perror(what);
	exit(1);
}

/* What is sent over a connection. */
static void fill(unsigned char *data, long count)
{
	for (int at = 0; at < BYTES; at++)
		data[at] = (unsigned char)(count * 7 + at * 3);
}

/* One connection's message, and its end. */
static void talk(struct rdma_cm_id *id, long count, int asks)
{
	static unsigned char data[BYTES], wanted[BYTES];
	struct ibv_mr *mr = rdma_reg_msgs(id, data, BYTES);
	struct ibv_wc wc;

	if (!mr)
		broken("rdma_reg_msgs", count);
	if (asks) {
		fill(data, count);
		if (rdma_connect(id, NULL))
			broken("rdma_connect", count);
		if (rdma_post_send(id, NULL, data, BYTES, mr, IBV_SEND_SIGNALED) || rdma_get_send_comp(id, &wc) != 1 || wc.status)
			broken("a message", count);
	} else {
		if (rdma_post_recv(id, NULL, data, BYTES, mr) || rdma_accept(id, NULL))
			broken("rdma_accept", count);
		if (rdma_get_recv_comp(id, &wc) != 1 || wc.status || wc.byte_len != BYTES)
			broken("a message", count);
		fill(wanted, count);
		if (memcmp(data, wanted, BYTES)) {
			fprintf(stderr, "connection %ld: other data\n", count);
			exit(1);
		}
	}
	rdma_disconnect(id);
	if (rdma_dereg_mr(mr))
		broken("rdma_dereg_mr", count);
}

int main(int arguments, char **argument)
{
	long most = arguments > 1 ? atol(argument[1]) : 0, before_kib = 0;
	const char *address = arguments > 2 ? argument[2] : NULL;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE }, *info;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *listener = NULL;
	int before = 0;

	if (rdma_getaddrinfo((char *)address, PORT, &hints, &info))
		broken("rdma_getaddrinfo", 0);
	if (!address && (rdma_create_ep(&listener, info, NULL, &init) || rdma_listen(listener, 16)))
		broken("rdma_listen", 0);
	for (long count = 0; count < most; count++) {
		struct ibv_qp_init_attr attr = init;
		struct rdma_cm_id *id;

		if (address ? rdma_create_ep(&id, info, NULL, &attr) : rdma_get_request(listener, &id))
			broken(address ? "rdma_create_ep" : "rdma_get_request", count);
		talk(id, count, address != NULL);
		rdma_destroy_ep(id);
		if (count == WARM) {
			before = descriptors();
			before_kib = resident();
		}
	}
	printf("%ld connections, %d descriptors more, %ld KiB more\n", most, descriptors() - before, resident() - before_kib);
	if (most > WARM && (descriptors() > before + 1 || resident() > before_kib + SLACK_KIB))
		return 1;
	if (listener)
		rdma_destroy_ep(listener);
	rdma_freeaddrinfo(info);
	return 0;
}

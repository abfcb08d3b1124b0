/*
 * A target that does nothing itself: passive lends its memory and sleeps in accept(2); passive ADDRESS writes it, reads it and counts in
 * it, and wakes the other when it is done, who compares.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT "7996"
#define BYTES (1 << 20)
#define ADDS 100
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Private data of the connection: the memory, and a counter behind it. */
struct lent {
	uint64_t address;
	uint32_t key;
};

static unsigned char memory[BYTES + 8] __attribute__((aligned(8)));
static unsigned char copy[BYTES];

static void must(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static void fill(unsigned char *data)
{
	for (size_t at = 0; at < BYTES; at++)
		data[at] = (unsigned char)(at * 29 + (at >> 8));
}

static void done(struct rdma_cm_id *id, const char *what)
{
	struct ibv_wc wc;

	must(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, what);
}

static int tcp(struct sockaddr_in *at)
{
	at->sin_family = AF_INET;
	at->sin_port = htons(atoi(PORT));
	return socket(AF_INET, SOCK_STREAM, 0);
}

static void serve(struct rdma_cm_id *listener)
{
	struct sockaddr_in at = { 0 };
	struct rdma_cm_id *id;
	int on = 1, sock = tcp(&at);

	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	must(!bind(sock, (struct sockaddr *)&at, sizeof at) && !listen(sock, 1), "bind");
	must(!rdma_listen(listener, 1) && !rdma_get_request(listener, &id), "rdma_get_request");

	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, sizeof memory, ALL);

	must(mr != NULL, "ibv_reg_mr");

	struct lent lent = { .address = (uintptr_t)memory, .key = mr->rkey };
	struct rdma_conn_param param = {
		.private_data = &lent,
		.private_data_len = sizeof lent,
		.responder_resources = 4,
		.initiator_depth = 4,
		.rnr_retry_count = 7,
	};

	must(!rdma_accept(id, &param), "rdma_accept");
	/* Nobody calls the library from here on. */
	must(accept(sock, NULL, NULL) >= 0, "accept");
	fill(copy);
	must(!memcmp(memory, copy, BYTES), "what was written");
	must(*(uint64_t *)(memory + BYTES) == ADDS, "the count");
}

static void ask(struct rdma_cm_id *id, const char *address)
{
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7 };
	struct sockaddr_in at = { 0 };
	struct lent lent;
	int sock = tcp(&at);

	must(!rdma_connect(id, &param), "rdma_connect");
	memcpy(&lent, id->event->param.conn.private_data, sizeof lent);

	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, sizeof memory, ALL), *into = ibv_reg_mr(id->pd, copy, BYTES, ALL);

	must(mr && into, "ibv_reg_mr");
	fill(memory);
	must(!rdma_post_write(id, NULL, memory, BYTES, mr, IBV_SEND_SIGNALED, lent.address, lent.key), "rdma_post_write");
	done(id, "a write");
	must(!rdma_post_read(id, NULL, copy, BYTES, into, IBV_SEND_SIGNALED, lent.address, lent.key), "rdma_post_read");
	done(id, "a read");
	must(!memcmp(memory, copy, BYTES), "what was read");
	for (uint64_t i = 0; i < ADDS; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)copy, .length = 8, .lkey = into->lkey };
		struct ibv_send_wr *bad, wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.atomic = { .remote_addr = lent.address + BYTES, .rkey = lent.key, .compare_add = 1 },
		};

		must(!ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
		done(id, "an atomic");
		must(*(uint64_t *)copy == i, "what an atomic found");
	}
	inet_pton(AF_INET, address, &at.sin_addr);
	must(!connect(sock, (struct sockaddr *)&at, sizeof at), "connect");
}

int main(int count, char **arguments)
{
	char *address = count > 1 ? arguments[1] : NULL;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE }, *info;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	must(!rdma_getaddrinfo(address, PORT, &hints, &info) && !rdma_create_ep(&id, info, NULL, &init), "rdma_create_ep");
	if (address)
		ask(id, address);
	else
		serve(id);
	printf("%s ok\n", address ? "active" : "passive");
	return 0;
}

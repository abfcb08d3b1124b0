/*
 * What librdmacm promises, checked one by one between ids of one process: line by line `name ok` or `name FAILED: why`.
 * With a name as argument, that check alone. Exit status 1 if one failed.
 */
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PATIENCE_MS 10000
#define PORT 7999

/* A call that fails, and says so in errno. */
#define REFUSED(call, code)                                                    \
	do {                                                                   \
		errno = 0;                                                     \
		EXPECT(call, -1);                                              \
		EXPECT(errno, code);                                           \
	} while (0)

static struct rdma_event_channel *channel;

static struct sockaddr_in address(const char *ip, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, ip, &in.sin_addr);
	return in;
}

/* The next event, which is of this kind; NULL if another comes, or none. */
static struct rdma_cm_event *event(enum rdma_cm_event_type kind)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, PATIENCE_MS) != 1 || rdma_get_cm_event(channel, &event))
		return NULL;
	if (event->event == kind)
		return event;
	printf("%s, not %s\n", rdma_event_str(event->event), rdma_event_str(kind));
	rdma_ack_cm_event(event);
	return NULL;
}

#define NEXT(kind)                                                             \
	({                                                                     \
		struct rdma_cm_event *e = event(kind);                         \
		if (!e)                                                        \
			return fail(#kind, 0, 1);                              \
		e;                                                             \
	})

static int ack(struct rdma_cm_event *event)
{
	return rdma_ack_cm_event(event);
}

static struct rdma_cm_id *make(enum rdma_port_space ps)
{
	struct rdma_cm_id *id = NULL;

	if (rdma_create_id(channel, &id, NULL, ps)) {
		perror("rdma_create_id");
		exit(2);
	}
	return id;
}

static int add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return rdma_create_qp(id, NULL, &init);
}

static int listen_at(struct rdma_cm_id *id, int port)
{
	struct sockaddr_in any = address("0.0.0.0", port);

	return rdma_bind_addr(id, (struct sockaddr *)&any) || rdma_listen(id, 0);
}

static int route(struct rdma_cm_id *id, int port)
{
	struct sockaddr_in here = address("127.0.0.1", port);

	EXPECT(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000), 0);
	EXPECT(ack(NEXT(RDMA_CM_EVENT_ADDR_RESOLVED)), 0);
	EXPECT(rdma_resolve_route(id, 1000), 0);
	EXPECT(ack(NEXT(RDMA_CM_EVENT_ROUTE_RESOLVED)), 0);
	EXPECT(id->verbs != NULL && id->port_num == 1 && id->route.num_paths == 1, 1);
	return 1;
}

static int ports_are_reserved_and_free_again(void)
{
	struct rdma_cm_id *one = make(RDMA_PS_TCP), *other = make(RDMA_PS_TCP), *datagrams = make(RDMA_PS_UDP);
	struct sockaddr_in any = address("0.0.0.0", PORT), none = address("0.0.0.0", 0);
	struct sockaddr_in foreign = address("198.51.100.1", PORT), low = address("0.0.0.0", 1023);

	REFUSED(rdma_bind_addr(one, (struct sockaddr *)&foreign), EADDRNOTAVAIL);
	REFUSED(rdma_bind_addr(one, (struct sockaddr *)&low), EACCES);
	EXPECT(rdma_bind_addr(one, (struct sockaddr *)&any), 0);
	EXPECT(ntohs(rdma_get_src_port(one)), PORT);
	EXPECT(one->verbs == NULL, 1);
	REFUSED(rdma_bind_addr(one, (struct sockaddr *)&any), EINVAL);
	REFUSED(rdma_bind_addr(other, (struct sockaddr *)&any), EADDRINUSE);
	EXPECT(rdma_bind_addr(datagrams, (struct sockaddr *)&any), 0);
	EXPECT(rdma_destroy_id(one), 0);
	EXPECT(rdma_bind_addr(other, (struct sockaddr *)&any), 0);
	one = make(RDMA_PS_TCP);
	EXPECT(rdma_bind_addr(one, (struct sockaddr *)&none), 0);
	EXPECT(ntohs(rdma_get_src_port(one)) >= 32768, 1);
	EXPECT(rdma_destroy_id(one) || rdma_destroy_id(other) || rdma_destroy_id(datagrams), 0);
	return 1;
}

static int what_cannot_be_is_refused(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in6 far = { .sin6_family = AF_INET6 };
	struct sockaddr odd = { .sa_family = AF_UNIX };
	struct rdma_conn_param param = { .private_data = why, .private_data_len = 57 };
	struct rdma_event_channel *empty = rdma_create_event_channel();
	struct rdma_cm_event *event;
	int on = 1;

	REFUSED(rdma_create_id(channel, &id, NULL, 0x4242), EPROTONOSUPPORT);
	id = make(RDMA_PS_TCP);
	inet_pton(AF_INET6, "2001:db8::1", &far.sin6_addr);
	REFUSED(rdma_bind_addr(id, (struct sockaddr *)&far), EADDRNOTAVAIL);
	REFUSED(rdma_bind_addr(id, &odd), EAFNOSUPPORT);
	EXPECT(rdma_listen(id, 1), 0);
	REFUSED(rdma_listen(id, 1), EINVAL);
	EXPECT(rdma_destroy_id(id), 0);
	id = make(RDMA_PS_TCP);
	REFUSED(rdma_connect(id, NULL), EINVAL);
	REFUSED(rdma_accept(id, NULL), EINVAL);
	REFUSED(rdma_disconnect(id), EINVAL);
	REFUSED(rdma_establish(id), EINVAL);
	REFUSED(add_qp(id), EINVAL);
	REFUSED(rdma_join_multicast(id, &odd, NULL), EOPNOTSUPP);
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 1), EINVAL);
	EXPECT(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on), 0);
	if (!route(id, PORT))
		return 0;
	REFUSED(rdma_connect(id, &param), EINVAL);
	param.private_data_len = 0;
	param.responder_resources = 200;
	REFUSED(rdma_connect(id, &param), EINVAL);
	EXPECT(rdma_destroy_id(id), 0);
	EXPECT(fcntl(empty->fd, F_SETFL, O_NONBLOCK), 0);
	REFUSED(rdma_get_cm_event(empty, &event), EAGAIN);
	rdma_destroy_event_channel(empty);
	return 1;
}

static int a_request_is_rejected_with_private_data(void)
{
	struct rdma_cm_id *listener = make(RDMA_PS_TCP), *id = make(RDMA_PS_TCP);
	struct rdma_cm_event *told;

	EXPECT(listen_at(listener, PORT), 0);
	if (!route(id, PORT))
		return 0;
	EXPECT(add_qp(id), 0);
	EXPECT(rdma_connect(id, NULL), 0);
	told = NEXT(RDMA_CM_EVENT_CONNECT_REQUEST);
	EXPECT(told->listen_id == listener && told->id->verbs == id->verbs, 1);
	EXPECT(rdma_reject(told->id, "no, thanks", 10), 0);
	struct rdma_cm_id *asked = told->id;
	EXPECT(ack(told), 0);
	told = NEXT(RDMA_CM_EVENT_REJECTED);
	EXPECT(told->id == id && told->status == 28 && told->param.conn.private_data_len == 10, 1);
	EXPECT(memcmp(told->param.conn.private_data, "no, thanks", 10), 0);
	EXPECT(ack(told), 0);
	rdma_destroy_qp(id);
	EXPECT(rdma_destroy_id(asked) || rdma_destroy_id(id) || rdma_destroy_id(listener), 0);
	return 1;
}

/* Two ids that are connected with each other, with QPs. */
static int join(struct rdma_cm_id *listener, struct rdma_cm_id **id, struct rdma_cm_id **asked)
{
	char there[56], back[196];
	struct rdma_conn_param param = {
		.private_data = there,
		.private_data_len = sizeof there,
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 7,
		.rnr_retry_count = 6,
	};
	struct rdma_cm_event *told;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	memset(there, 'a', sizeof there);
	memset(back, 'b', sizeof back);
	*id = make(RDMA_PS_TCP);
	if (!route(*id, ntohs(rdma_get_src_port(listener))))
		return 0;
	EXPECT(add_qp(*id), 0);
	EXPECT(rdma_connect(*id, &param), 0);
	told = NEXT(RDMA_CM_EVENT_CONNECT_REQUEST);
	*asked = told->id;
	EXPECT(told->param.conn.private_data_len, sizeof there);
	EXPECT(memcmp(told->param.conn.private_data, there, sizeof there), 0);
	EXPECT(told->param.conn.responder_resources == 5 && told->param.conn.initiator_depth == 3, 1);
	EXPECT(told->param.conn.qp_num, (*id)->qp->qp_num);
	EXPECT(rdma_get_dst_port(*asked), rdma_get_src_port(*id));
	EXPECT(ack(told), 0);
	EXPECT(add_qp(*asked), 0);
	param.private_data = back;
	param.private_data_len = sizeof back;
	param.responder_resources = 4;
	param.initiator_depth = 2;
	EXPECT(rdma_accept(*asked, &param), 0);
	/* The one gets it with the answer, the other when that has come. */
	told = NEXT(RDMA_CM_EVENT_ESTABLISHED);
	EXPECT(told->id == *id && told->param.conn.private_data_len == sizeof back, 1);
	EXPECT(memcmp(told->param.conn.private_data, back, sizeof back), 0);
	EXPECT(ack(told), 0);
	told = NEXT(RDMA_CM_EVENT_ESTABLISHED);
	EXPECT(told->id == *asked, 1);
	EXPECT(ack(told), 0);
	EXPECT(ibv_query_qp((*id)->qp, &attr, IBV_QP_STATE, &init), 0);
	EXPECT(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == (*asked)->qp->qp_num, 1);
	EXPECT(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 3, 1);
	return 1;
}

static int part(struct rdma_cm_id *id, struct rdma_cm_id *asked)
{
	EXPECT(rdma_disconnect(id), 0);
	EXPECT(ack(NEXT(RDMA_CM_EVENT_DISCONNECTED)), 0);
	EXPECT(ack(NEXT(RDMA_CM_EVENT_DISCONNECTED)), 0);
	EXPECT(rdma_disconnect(asked), 0);
	rdma_destroy_qp(id);
	rdma_destroy_qp(asked);
	EXPECT(rdma_destroy_id(id) || rdma_destroy_id(asked), 0);
	return 1;
}

static int connections_come_and_go_and_leave_nothing(void)
{
	struct rdma_cm_id *listener = make(RDMA_PS_TCP), *id, *asked;
	long before_kib = 0;
	int before;

	EXPECT(listen_at(listener, 0), 0);
	if (!join(listener, &id, &asked) || !part(id, asked))
		return 0;
	before = descriptors();
	for (int count = 0; count < 10000; count++) {
		if (!join(listener, &id, &asked) || !part(id, asked))
			return 0;
		if (count == 1000)
			before_kib = resident();
	}
	EXPECT(descriptors() <= before + 2, 1);
	/* 100 bytes of each that stay would be seen. */
	EXPECT(resident() < before_kib + 900, 1);
	EXPECT(rdma_destroy_id(listener), 0);
	return 1;
}

static int an_id_takes_its_events_to_another_channel(void)
{
	struct rdma_cm_id *listener = make(RDMA_PS_TCP), *id = make(RDMA_PS_TCP);
	struct rdma_event_channel *other = rdma_create_event_channel(), *first = channel;
	struct sockaddr_in here = address("127.0.0.1", PORT);
	struct rdma_cm_event *told;

	EXPECT(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000), 0);
	EXPECT(rdma_migrate_id(id, other), 0);
	EXPECT(id->channel == other, 1);
	EXPECT(rdma_get_cm_event(other, &told), 0);
	EXPECT(told->event == RDMA_CM_EVENT_ADDR_RESOLVED && told->id == id, 1);
	EXPECT(ack(told), 0);
	channel = first;
	EXPECT(rdma_destroy_id(id) || rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(other);
	return 1;
}

static int names_become_addresses(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP }, *info;

	EXPECT(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info), 0);
	struct sockaddr_in *in = (struct sockaddr_in *)info->ai_dst_addr;
	EXPECT(info->ai_dst_len == sizeof *in && !info->ai_src_addr && info->ai_qp_type == IBV_QPT_UD, 1);
	EXPECT(in->sin_family == AF_INET && in->sin_port == htons(7471) && in->sin_addr.s_addr == htonl(INADDR_LOOPBACK), 1);
	rdma_freeaddrinfo(info);
	hints.ai_flags = RAI_PASSIVE;
	hints.ai_port_space = 0;
	EXPECT(rdma_getaddrinfo(NULL, "7471", &hints, &info), 0);
	EXPECT(info->ai_src_addr && !info->ai_dst_addr && info->ai_port_space == RDMA_PS_TCP, 1);
	rdma_freeaddrinfo(info);
	EXPECT(rdma_getaddrinfo("no.such.name.invalid", "7471", NULL, &info) != 0, 1);
	REFUSED(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
	return 1;
}

#define CHECK(name) { #name, name }
static const struct {
	const char *name;
	int (*check)(void);
} checks[] = {
	CHECK(ports_are_reserved_and_free_again),
	CHECK(what_cannot_be_is_refused),
	CHECK(a_request_is_rejected_with_private_data),
	CHECK(connections_come_and_go_and_leave_nothing),
	CHECK(an_id_takes_its_events_to_another_channel),
	CHECK(names_become_addresses),
};

int main(int count, char **arguments)
{
	int failed = 0;

	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
		if (count > 1 && strcmp(arguments[1], checks[i].name))
			continue;
		channel = rdma_create_event_channel();
		int ok = checks[i].check();
		failed |= !ok;
		printf("%s %s%s\n", checks[i].name, ok ? "ok" : "FAILED: ", ok ? "" : why);
		fflush(stdout);
		/* A check that failed may have left ids on it. */
		if (ok)
			rdma_destroy_event_channel(channel);
	}
	return failed;
}

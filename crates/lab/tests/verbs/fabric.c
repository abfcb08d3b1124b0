/*
 * libfabric's reliable datagrams with what fi_pingpong leaves out: tags, remote writes and reads, data that come with a write, and
 * fetching atomics. fabric PROVIDER is asked, fabric PROVIDER ADDRESS asks. All data are compared. What both have to know of each other goes
 * over a TCP connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 7997
#define MOST (1 << 20)
#define ADDS 100
#define DATA 0x4242

static const size_t lengths[] = { 0, 1, 100, 4096, 9000, 65536, MOST };
static unsigned char out[MOST], in[MOST], memory[MOST];
static struct fi_info *info;
static struct fid_cq *cq;
static struct fid_ep *ep;
static fi_addr_t peer;
static int sock;
/* Completions, of each kind, that were not waited for yet. */
static int sent, received, written;

/* What one tells the other. */
struct who {
	char name[128];
	uint64_t name_bytes, address, key;
};

static void fatal(const char *what, long code)
{
	fprintf(stderr, "%s: %s\n", what, fi_strerror(code < 0 ? -code : code));
	exit(1);
}

#define MUST(call)                                                             \
	do {                                                                   \
		long r = (call);                                               \
		if (r)                                                         \
			fatal(#call, r);                                       \
	} while (0)

/* Lets the provider go on. */
static void go_on(void)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t count = fi_cq_read(cq, &entry, 1);

	if (count == -FI_EAGAIN)
		return;
	if (count != 1) {
		fi_cq_readerr(cq, &error, 0);
		fatal("a completion", error.err);
	}
	if (entry.flags & FI_REMOTE_WRITE) {
		if (entry.data != DATA)
			fatal("data of a write", FI_EOTHER);
		written++;
	} else if (entry.flags & FI_RECV) {
		received++;
	} else {
		sent++;
	}
}

/* Does something that may have to wait for room. */
#define TRY(call)                                                              \
	do {                                                                   \
		long r;                                                        \
		while ((r = (call)) == -FI_EAGAIN)                             \
			go_on();                                               \
		if (r)                                                         \
			fatal(#call, r);                                       \
	} while (0)

static void wait_for(int *count)
{
	while (!*count)
		go_on();
	--*count;
}

static void tell(const void *data, size_t bytes)
{
	if (send(sock, data, bytes, 0) != (ssize_t)bytes)
		fatal("the connection", errno);
}

/* Goes on meanwhile. */
static void hear(void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t count = recv(sock, (char *)data + done, bytes - done, MSG_DONTWAIT);

		if (count > 0)
			done += count;
		else if (!count || (errno != EAGAIN && errno != EINTR))
			fatal("the connection", errno);
		else if (cq)
			go_on();
	}
}

static void meet(void)
{
	char here = 1, there;

	tell(&here, 1);
	hear(&there, 1);
}

static void fill(unsigned char *data, size_t length, int round)
{
	for (size_t at = 0; at < length; at++)
		data[at] = (unsigned char)(at * 13 + (at >> 8) + round * 101);
}

static void compare(const unsigned char *data, size_t length, int round, const char *what)
{
	static unsigned char wanted[MOST];

	fill(wanted, length, round);
	if (memcmp(data, wanted, length)) {
		fprintf(stderr, "%s: other data, %zu bytes\n", what, length);
		exit(1);
	}
}

static void join(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int on = 1, listener;

	sock = socket(AF_INET, SOCK_STREAM, 0);
	if (address) {
		inet_pton(AF_INET, address, &at.sin_addr);
		if (connect(sock, (struct sockaddr *)&at, sizeof at))
			fatal("connect", errno);
		return;
	}
	listener = sock;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1) || (sock = accept(listener, NULL, NULL)) < 0)
		fatal("listen", errno);
	close(listener);
}

static void messages(int asks, void *desc_out, void *desc_in)
{
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		for (int round = 0; round < 5; round++) {
			size_t length = lengths[i];

			memset(in, 0xee, length);
			TRY(fi_trecv(ep, in, MOST, desc_in, peer, 7 + !asks, 0, NULL));
			fill(out, length, round + asks);
			TRY(fi_tsend(ep, out, length, desc_out, peer, 7 + asks, NULL));
			wait_for(&sent);
			wait_for(&received);
			compare(in, length, round + !asks, "a message");
		}
}

int main(int count, char **arguments)
{
	const char *address = count > 2 ? arguments[2] : NULL;
	int asks = address != NULL;
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA, .size = 256 };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_mr *mrs[3];
	unsigned char *buffers[] = { out, in, memory };
	void *descs[3];
	struct fid_av *av;
	struct who mine = { .name_bytes = sizeof mine.name }, theirs;
	uint64_t to, *counter = (uint64_t *)memory, *before = (uint64_t *)in, *one = (uint64_t *)out;

	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(count > 1 ? arguments[1] : "verbs;ofi_rxm");
	join(address);
	MUST(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
	MUST(fi_av_open(domain, &av_attr, &av, NULL));
	MUST(fi_endpoint(domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_enable(ep));
	for (int i = 0; i < 3; i++) {
		uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

		MUST(fi_mr_reg(domain, buffers[i], MOST, access, 0, i, 0, &mrs[i], NULL));
		descs[i] = fi_mr_desc(mrs[i]);
	}
	MUST(fi_getname(&ep->fid, mine.name, &mine.name_bytes));
	mine.address = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	mine.key = fi_mr_key(mrs[2]);
	tell(&mine, sizeof mine);
	hear(&theirs, sizeof theirs);
	if (fi_av_insert(av, theirs.name, 1, &peer, 0, NULL) != 1)
		fatal("fi_av_insert", FI_EOTHER);
	to = theirs.address;

	messages(asks, descs[0], descs[1]);
	meet();
	if (asks) {
		fill(out, MOST, 77);
		TRY(fi_write(ep, out, MOST, descs[0], peer, to, theirs.key, NULL));
		wait_for(&sent);
		TRY(fi_read(ep, in, MOST, descs[1], peer, to, theirs.key, NULL));
		wait_for(&sent);
		compare(in, MOST, 77, "what was read");
		TRY(fi_writedata(ep, out, 100, descs[0], DATA, peer, to, theirs.key, NULL));
		wait_for(&sent);
	} else {
		wait_for(&written);
		compare(memory, MOST, 77, "what was written");
		*counter = 0;
	}
	meet();
	*one = 1;
	if (asks)
		for (uint64_t i = 0; i < ADDS; i++) {
			TRY(fi_fetch_atomic(ep, one, 1, descs[0], before, descs[1], peer, to, theirs.key, FI_UINT64, FI_SUM, NULL));
			wait_for(&sent);
			if (*before != i)
				fatal("a fetching sum", FI_EOTHER);
		}
	meet();
	if (!asks && *counter != ADDS)
		fatal("the sum", FI_EOTHER);
	for (int i = 0; i < 3; i++)
		MUST(fi_close(&mrs[i]->fid));
	MUST(fi_close(&ep->fid));
	MUST(fi_close(&av->fid));
	MUST(fi_close(&cq->fid));
	MUST(fi_close(&domain->fid));
	MUST(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	printf("%s ok\n", asks ? "client" : "server");
	return 0;
}

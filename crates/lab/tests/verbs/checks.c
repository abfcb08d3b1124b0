/*
 * What verbs promise, checked one by one between QPs of one process: line by line `name ok` or `name FAILED: why`.
 * With a name as argument, that check alone. Exit status 1 if one failed.
 */
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#define BYTES (1 << 20)
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *context;
static struct ibv_pd *pd, *other_pd;
static union ibv_gid gid;
static uint8_t *memory, *shadow;
static struct ibv_mr *mr;

/* Two QPs that are connected with each other. */
struct pair {
	struct ibv_cq *cq, *remote_cq;
	struct ibv_qp *qp, *remote;
};

static struct ibv_qp *make_qp(struct ibv_cq *cq, struct ibv_pd *domain, struct ibv_srq *srq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 30, .max_recv_sge = 30, .max_inline_data = 64 },
		.qp_type = type,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(domain, &init);

	if (!qp)
		fatal("ibv_create_qp");
	return qp;
}

static struct pair open_pair_with(int cqes, struct ibv_pd *remote_pd, struct ibv_srq *srq, int rnr_retry, int access)
{
	struct pair pair;

	pair.cq = ibv_create_cq(context, cqes, NULL, NULL, 0);
	pair.remote_cq = ibv_create_cq(context, cqes, NULL, NULL, 0);
	if (!pair.cq || !pair.remote_cq)
		fatal("ibv_create_cq");
	pair.qp = make_qp(pair.cq, pd, NULL, IBV_QPT_RC);
	pair.remote = make_qp(pair.remote_cq, remote_pd, srq, IBV_QPT_RC);
	if (connect_qp(pair.qp, &gid, pair.remote->qp_num, rnr_retry, ALL) ||
	    connect_qp(pair.remote, &gid, pair.qp->qp_num, rnr_retry, access))
		fatal("ibv_modify_qp");
	return pair;
}

static struct pair open_pair(void)
{
	return open_pair_with(128, pd, NULL, 7, ALL);
}

static void close_pair(struct pair *pair)
{
	if (ibv_destroy_qp(pair->qp) || ibv_destroy_qp(pair->remote) || ibv_destroy_cq(pair->cq) ||
	    ibv_destroy_cq(pair->remote_cq))
		fatal("destroy");
}

static struct ibv_sge piece(size_t at, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory + at, .length = length, .lkey = mr->lkey };
}

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count, uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = opcode, .sg_list = sges, .num_sge = count };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 99;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static int post_receive(struct ibv_qp *qp, struct ibv_sge *sges, int count, uint64_t id)
{
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = sges, .num_sge = count };

	return ibv_post_recv(qp, &wr, &bad);
}

static uint64_t at(size_t offset)
{
	return (uintptr_t)memory + offset;
}

static void fill(void)
{
	for (size_t i = 0; i < BYTES; i++)
		memory[i] = (uint8_t)(i * 31 + (i >> 8));
	memcpy(shadow, memory, BYTES);
}

/* A Write of 64 bytes that has to be refused, and touch nothing. */
static int refused(struct pair *pair, enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = piece(0, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 64);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;

	fill();
	EXPECT(post(pair->qp, opcode, &sge, 1, remote, rkey), 0);
	EXPECT(next_of(pair->cq, &wc), IBV_WC_REM_ACCESS_ERR);
	EXPECT(memcmp(memory, shadow, BYTES), 0);
	EXPECT(ibv_query_qp(pair->qp, &attr, IBV_QP_STATE, &init), 0);
	EXPECT(attr.qp_state, IBV_QPS_ERR);
	/* What is posted later is flushed. */
	EXPECT(post(pair->qp, opcode, &sge, 1, remote, rkey), 0);
	EXPECT(next_of(pair->cq, &wc), IBV_WC_WR_FLUSH_ERR);
	close_pair(pair);
	return 1;
}

static int a_wrong_rkey_is_a_remote_access_error(void)
{
	struct pair pair = open_pair();

	return refused(&pair, IBV_WR_RDMA_WRITE, at(4096), mr->rkey ^ 0x5a00);
}

static int a_stale_key_is_a_remote_access_error(void)
{
	struct pair pair = open_pair();

	return refused(&pair, IBV_WR_RDMA_WRITE, at(4096), mr->rkey ^ 1);
}

static int a_read_behind_the_region_is_a_remote_access_error(void)
{
	struct pair pair = open_pair();

	return refused(&pair, IBV_WR_RDMA_READ, at(BYTES - 63), mr->rkey);
}

static int a_write_before_the_region_is_a_remote_access_error(void)
{
	struct pair pair = open_pair();

	return refused(&pair, IBV_WR_RDMA_WRITE, at(0) - 1, mr->rkey);
}

static int a_region_of_another_domain_is_a_remote_access_error(void)
{
	struct ibv_mr *foreign = ibv_reg_mr(other_pd, memory, BYTES, ALL);
	struct pair pair = open_pair();
	int result = refused(&pair, IBV_WR_RDMA_WRITE, at(4096), foreign->rkey);

	ibv_dereg_mr(foreign);
	return result;
}

static int a_region_that_may_only_be_read_is_not_written(void)
{
	struct ibv_mr *readable = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_REMOTE_READ);
	struct pair pair = open_pair();
	int result = refused(&pair, IBV_WR_RDMA_WRITE, at(4096), readable->rkey);

	ibv_dereg_mr(readable);
	return result;
}

static int a_region_without_atomics_takes_none(void)
{
	struct ibv_mr *plain = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct pair pair = open_pair();
	int result = refused(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, at(4096), plain->rkey);

	ibv_dereg_mr(plain);
	return result;
}

static int a_qp_that_grants_no_writes_takes_none(void)
{
	struct pair pair = open_pair_with(16, pd, NULL, 7, IBV_ACCESS_REMOTE_READ);

	return refused(&pair, IBV_WR_RDMA_WRITE, at(4096), mr->rkey);
}

static int a_region_that_was_deregistered_is_gone(void)
{
	struct ibv_mr *gone = ibv_reg_mr(pd, memory, BYTES, ALL);
	uint32_t rkey = gone->rkey;
	struct pair pair = open_pair();

	EXPECT(ibv_dereg_mr(gone), 0);
	return refused(&pair, IBV_WR_RDMA_WRITE, at(4096), rkey);
}

static int a_wrong_lkey_is_a_local_protection_error(void)
{
	struct pair pair = open_pair();
	struct ibv_sge sge = piece(0, 64);
	struct ibv_wc wc;

	sge.lkey ^= 0x7700;
	EXPECT(post(pair.qp, IBV_WR_RDMA_WRITE, &sge, 1, at(4096), mr->rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_LOC_PROT_ERR);
	close_pair(&pair);
	return 1;
}

static int regions_follow_the_rules_of_registration(void)
{
	/* Remote writes need local ones, and memory has to be there. */
	if (ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_REMOTE_WRITE))
		return fail("a region", 1, 0);
	EXPECT(errno, EINVAL);
	if (ibv_reg_mr(pd, (void *)4096, 4096, ALL))
		return fail("a region", 1, 0);
	EXPECT(errno, EFAULT);
	return 1;
}

static int a_receiver_without_buffers_ends_the_sender_after_its_retries(void)
{
	struct pair pair = open_pair_with(16, pd, NULL, 2, ALL);
	struct ibv_sge sge = piece(0, 64);
	struct ibv_wc wc;

	EXPECT(post(pair.qp, IBV_WR_SEND, &sge, 1, 0, 0), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_RNR_RETRY_EXC_ERR);
	close_pair(&pair);
	return 1;
}

static int a_receiver_that_is_late_gets_the_message(void)
{
	struct pair pair = open_pair();
	struct ibv_sge sge = piece(0, 64), to = piece(4096, 64);
	struct ibv_wc wc;

	fill();
	EXPECT(post(pair.qp, IBV_WR_SEND, &sge, 1, 0, 0), 0);
	EXPECT(ibv_poll_cq(pair.cq, 1, &wc), 0);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	EXPECT(post_receive(pair.remote, &to, 1, 7), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
	EXPECT(wc.wr_id, 7);
	EXPECT(wc.byte_len, 64);
	EXPECT(memcmp(memory, memory + 4096, 64), 0);
	close_pair(&pair);
	return 1;
}

static int a_message_longer_than_its_buffer_ends_both_sides(void)
{
	struct pair pair = open_pair();
	struct ibv_sge sge = piece(0, 65), to = piece(4096, 64);
	struct ibv_wc wc;

	EXPECT(post_receive(pair.remote, &to, 1, 7), 0);
	EXPECT(post(pair.qp, IBV_WR_SEND, &sge, 1, 0, 0), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_REM_INV_REQ_ERR);
	EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_LOC_LEN_ERR);
	close_pair(&pair);
	return 1;
}

static int nothing_may_be_sent(void)
{
	struct pair pair = open_pair();
	struct ibv_wc wc;

	fill();
	EXPECT(post_receive(pair.remote, NULL, 0, 7), 0);
	EXPECT(post(pair.qp, IBV_WR_SEND, NULL, 0, 0, 0), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
	EXPECT(wc.byte_len, 0);
	EXPECT(post(pair.qp, IBV_WR_RDMA_WRITE, NULL, 0, at(4096), mr->rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(post(pair.qp, IBV_WR_RDMA_READ, NULL, 0, at(4096), mr->rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(memcmp(memory, shadow, BYTES), 0);
	close_pair(&pair);
	return 1;
}

static int thirty_pieces_are_gathered_and_scattered(void)
{
	struct pair pair = open_pair();
	struct ibv_sge from[30], to[30];
	struct ibv_wc wc;
	size_t total = 0, where = 0;

	fill();
	for (int i = 0; i < 30; i++) {
		from[i] = piece(i * 4001, 1 + i * 97);
		to[i] = piece(524288 + i * 4003, 1 + (29 - i) * 97);
		total += 1 + i * 97;
	}
	EXPECT(post_receive(pair.remote, to, 30, 7), 0);
	EXPECT(post(pair.qp, IBV_WR_SEND, from, 30, 0, 0), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
	EXPECT(wc.byte_len, total);
	for (int i = 0, j = 0, in = 0, out = 0; where < total; where++) {
		EXPECT(memory[to[j].addr - at(0) + out], shadow[from[i].addr - at(0) + in]);
		if (++in == (int)from[i].length)
			i++, in = 0;
		if (++out == (int)to[j].length)
			j++, out = 0;
	}
	/* The same by a Read. */
	EXPECT(post(pair.qp, IBV_WR_RDMA_READ, to, 30, at(1000), mr->rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(memcmp((void *)to[0].addr, memory + 1000, to[0].length), 0);
	close_pair(&pair);
	return 1;
}

static int inline_data_may_be_used_again_at_once(void)
{
	struct pair pair = open_pair();
	struct ibv_sge to[16];
	struct ibv_wc wc;
	uint8_t data[64];

	for (int i = 0; i < 16; i++) {
		to[i] = piece(i * 64, 64);
		EXPECT(post_receive(pair.remote, &to[i], 1, i), 0);
	}
	for (int i = 0; i < 16; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)data, .length = sizeof data };
		struct ibv_send_wr *bad, wr = {
			.opcode = IBV_WR_SEND_WITH_IMM,
			.send_flags = IBV_SEND_INLINE,
			.imm_data = htobe32(i),
			.sg_list = &sge,
			.num_sge = 1,
		};

		memset(data, i + 1, sizeof data);
		EXPECT(ibv_post_send(pair.qp, &wr, &bad), 0);
		memset(data, 0xee, sizeof data);
	}
	for (int i = 0; i < 16; i++) {
		EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
		EXPECT(wc.wr_id, i);
		EXPECT(be32toh(wc.imm_data), i);
		EXPECT(!!(wc.wc_flags & IBV_WC_WITH_IMM), 1);
		for (int j = 0; j < 64; j++)
			EXPECT(memory[i * 64 + j], i + 1);
	}
	close_pair(&pair);
	return 1;
}

static int atomics_do_what_they_say(void)
{
	struct pair pair = open_pair();
	struct ibv_sge sge = piece(0, 8);
	struct ibv_wc wc;
	uint64_t *word = (uint64_t *)(memory + 4096), *before = (uint64_t *)memory;

	*word = 5;
	EXPECT(post(pair.qp, IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 1, at(4096), mr->rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(wc.opcode, IBV_WC_COMP_SWAP);
	EXPECT(*before, 5);
	EXPECT(*word, 99);
	EXPECT(post(pair.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, at(4096), mr->rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(*before, 99);
	EXPECT(*word, 104);
	close_pair(&pair);
	return 1;
}

static int a_full_completion_queue_is_an_error_not_a_loss_unseen(void)
{
	struct pair pair = open_pair_with(4, pd, NULL, 7, ALL);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_async_event event;
	struct pollfd async = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_wc wc;
	int overrun = 0;

	for (int i = 0; i < 16; i++)
		EXPECT(post(pair.qp, IBV_WR_RDMA_WRITE, &sge, 1, at(4096), mr->rkey), 0);
	while (poll(&async, 1, overrun ? 0 : 1000 * PATIENCE_S) == 1) {
		EXPECT(ibv_get_async_event(context, &event), 0);
		overrun |= event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == pair.cq;
		ibv_ack_async_event(&event);
	}
	EXPECT(overrun, 1);
	for (int i = 0; i < 4; i++)
		EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(ibv_poll_cq(pair.cq, 1, &wc), 0);
	close_pair(&pair);
	return 1;
}

static int a_shared_receive_queue_serves_and_tells_of_its_limit(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct pair pair = open_pair_with(64, pd, srq, 2, ALL);
	struct pollfd async = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_srq_attr limit = { .srq_limit = 3 };
	struct ibv_sge sge = piece(0, 8);
	struct ibv_async_event event;
	struct ibv_wc wc;
	int room = 0;

	for (;;) {
		struct ibv_sge to = piece(4096 + room * 8, 8);
		struct ibv_recv_wr *bad, wr = { .wr_id = room, .sg_list = &to, .num_sge = 1 };
		int error = ibv_post_srq_recv(srq, &wr, &bad);

		if (error) {
			EXPECT(error, ENOMEM);
			break;
		}
		room++;
	}
	EXPECT(room >= 8, 1);
	EXPECT(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	for (int i = 0; i < room; i++) {
		EXPECT(post(pair.qp, IBV_WR_SEND, &sge, 1, 0, 0), 0);
		EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
		EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
		EXPECT(wc.wr_id, i);
	}
	EXPECT(poll(&async, 1, 1000 * PATIENCE_S), 1);
	EXPECT(ibv_get_async_event(context, &event), 0);
	EXPECT(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	EXPECT(event.element.srq == srq, 1);
	ibv_ack_async_event(&event);
	/* It is empty. */
	EXPECT(post(pair.qp, IBV_WR_SEND, &sge, 1, 0, 0), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_RNR_RETRY_EXC_ERR);
	close_pair(&pair);
	EXPECT(ibv_destroy_srq(srq), 0);
	while (poll(&async, 1, 0) == 1) {
		EXPECT(ibv_get_async_event(context, &event), 0);
		ibv_ack_async_event(&event);
	}
	return 1;
}

static int a_window_lets_in_what_it_was_bound_for_until_it_is_invalidated(void)
{
	struct ibv_mr *base = ibv_reg_mr(pd, memory, BYTES, ALL | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct pair pair = open_pair();
	struct ibv_sge sge = piece(0, 64);
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_wc wc;
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = mw,
			     .rkey = rkey,
			     .bind_info = { .mr = base, .addr = at(4096), .length = 128, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } },
	};

	fill();
	EXPECT(ibv_post_send(pair.remote, &wr, &bad), 0);
	EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
	EXPECT(wc.opcode, IBV_WC_BIND_MW);
	EXPECT(post(pair.qp, IBV_WR_RDMA_WRITE, &sge, 1, at(4096 + 64), rkey), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(memcmp(memory, memory + 4096 + 64, 64), 0);
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey };
	EXPECT(ibv_post_send(pair.remote, &wr, &bad), 0);
	EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_SUCCESS);
	EXPECT(refused(&pair, IBV_WR_RDMA_WRITE, at(4096), rkey), 1);
	EXPECT(ibv_dealloc_mw(mw), 0);
	EXPECT(ibv_dereg_mr(base), 0);
	return 1;
}

static int a_qp_that_is_set_to_error_flushes_what_it_has(void)
{
	struct pair pair = open_pair();
	struct ibv_sge to = piece(4096, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	for (int i = 0; i < 8; i++)
		EXPECT(post_receive(pair.remote, &to, 1, i), 0);
	EXPECT(ibv_modify_qp(pair.remote, &attr, IBV_QP_STATE), 0);
	for (int i = 0; i < 8; i++) {
		EXPECT(next_of(pair.remote_cq, &wc), IBV_WC_WR_FLUSH_ERR);
		EXPECT(wc.wr_id, i);
	}
	close_pair(&pair);
	return 1;
}

static int a_qp_that_is_set_to_error_leaves_alone_what_its_peer_has_posted(void)
{
	struct pair pair = open_pair();
	struct ibv_sge to = piece(4096, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	EXPECT(post_receive(pair.qp, &to, 1, 7), 0);
	EXPECT(ibv_modify_qp(pair.remote, &attr, IBV_QP_STATE), 0);
	/* Its peer hears of it when it sends something, which nobody acknowledges, and not before. */
	EXPECT(post(pair.qp, IBV_WR_SEND, &to, 1, 0, 0), 0);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_RETRY_EXC_ERR);
	EXPECT(wc.wr_id, 1);
	EXPECT(next_of(pair.cq, &wc), IBV_WC_WR_FLUSH_ERR);
	EXPECT(wc.wr_id, 7);
	close_pair(&pair);
	return 1;
}

static int what_came_unannounced_is_told_when_it_is_asked_for(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *told, *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_qp *qp = make_qp(cq, pd, NULL, IBV_QPT_RC);
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_sge to = piece(4096, 64);
	struct ibv_wc wc;
	void *name;

	/* What is posted now completes at once. */
	EXPECT(to_init(qp, ALL), 0);
	EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EXPECT(post_receive(qp, &to, 1, 1), 0);
	EXPECT(poll(&fd, 1, 0), 0);
	EXPECT(ibv_req_notify_cq(cq, 0), 0);
	EXPECT(poll(&fd, 1, 0), 1);
	EXPECT(ibv_get_cq_event(channel, &told, &name), 0);
	EXPECT(told == cq, 1);
	/* Once, though it is still there. */
	EXPECT(ibv_req_notify_cq(cq, 0), 0);
	EXPECT(poll(&fd, 1, 0), 0);
	EXPECT(post_receive(qp, &to, 1, 2), 0);
	EXPECT(poll(&fd, 1, 0), 1);
	EXPECT(ibv_get_cq_event(channel, &told, &name), 0);
	ibv_ack_cq_events(cq, 2);
	EXPECT(next_of(cq, &wc), IBV_WC_WR_FLUSH_ERR);
	EXPECT(next_of(cq, &wc), IBV_WC_WR_FLUSH_ERR);
	EXPECT(ibv_req_notify_cq(cq, 0), 0);
	EXPECT(poll(&fd, 1, 0), 0);
	EXPECT(ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_destroy_comp_channel(channel), 0);
	return 1;
}

static int states_change_as_they_may(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, pd, NULL, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge sge = piece(0, 8);

	EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	EXPECT(post(qp, IBV_WR_SEND, &sge, 1, 0, 0), EINVAL);
	EXPECT(to_init(qp, ALL), 0);
	EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	EXPECT(post_receive(qp, &sge, 1, 1), 0);
	attr.qp_state = IBV_QPS_RESET;
	EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EXPECT(ibv_destroy_cq(cq), EBUSY);
	EXPECT(ibv_destroy_qp(qp), 0);
	EXPECT(ibv_destroy_cq(cq), 0);
	return 1;
}

static int a_qp_number_that_nobody_has_ends_the_sender(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, pd, NULL, IBV_QPT_RC);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_wc wc;

	/* In this very process. */
	EXPECT(connect_qp(qp, &gid, qp->qp_num ^ 0x800, 7, ALL), 0);
	EXPECT(post(qp, IBV_WR_SEND, &sge, 1, 0, 0), 0);
	EXPECT(next_of(cq, &wc), IBV_WC_RETRY_EXC_ERR);
	EXPECT(ibv_destroy_qp(qp), 0);
	EXPECT(ibv_destroy_cq(cq), 0);
	return 1;
}

static int a_thousand_qps_are_made_and_used(void)
{
	enum { COUNT = 500 };
	static struct pair pairs[COUNT];
	struct ibv_wc wc;

	fill();
	for (int i = 0; i < COUNT; i++)
		pairs[i] = open_pair_with(4, pd, NULL, 7, ALL);
	for (int i = 0; i < COUNT; i++) {
		struct ibv_sge sge = piece(i * 64, 64);

		EXPECT(post(pairs[i].qp, IBV_WR_RDMA_WRITE, &sge, 1, at(524288 + i * 64), mr->rkey), 0);
	}
	for (int i = 0; i < COUNT; i++)
		EXPECT(next_of(pairs[i].cq, &wc), IBV_WC_SUCCESS);
	EXPECT(memcmp(memory, memory + 524288, COUNT * 64), 0);
	for (int i = 0; i < COUNT; i++)
		close_pair(&pairs[i]);
	return 1;
}

static int a_completion_queue_can_be_given_room(void)
{
	struct pair pair = open_pair_with(2, pd, NULL, 7, ALL);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++)
		EXPECT(post(pair.qp, IBV_WR_RDMA_WRITE, &sge, 1, at(4096), mr->rkey), 0);
	/* One was polled, or not, before it grows. */
	EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(ibv_resize_cq(pair.cq, 60), 0);
	EXPECT(pair.cq->cqe >= 60, 1);
	for (int i = 0; i < 59; i++)
		EXPECT(post(pair.qp, IBV_WR_RDMA_WRITE, &sge, 1, at(4096), mr->rkey), 0);
	for (int i = 0; i < 60; i++)
		EXPECT(next_of(pair.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(ibv_resize_cq(pair.cq, 0), EINVAL);
	EXPECT(ibv_resize_cq(pair.cq, 1 << 30), EINVAL);
	close_pair(&pair);
	return 1;
}

static int a_full_queue_takes_no_more_and_says_where_it_stopped(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 512, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, pd, NULL, IBV_QPT_RC);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	enum { COUNT = 4000 };
	static struct ibv_recv_wr receives[COUNT], *bad;
	static struct ibv_send_wr sends[COUNT], *bad_send;
	struct ibv_wc wc;
	long taken;

	EXPECT(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
	EXPECT(init.cap.max_recv_wr >= 64 && init.cap.max_send_wr >= 64, 1);
	for (int i = 0; i < COUNT; i++) {
		struct ibv_recv_wr *after = i + 1 < COUNT ? &receives[i + 1] : NULL;
		struct ibv_send_wr *after_send = i + 1 < COUNT ? &sends[i + 1] : NULL;

		receives[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = &sge, .num_sge = 1, .next = after };
		/* A receiver that is never ready holds them. */
		sends[i] = (struct ibv_send_wr){ .wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .next = after_send };
	}
	EXPECT(to_init(qp, ALL), 0);
	EXPECT(ibv_post_recv(qp, receives, &bad), ENOMEM);
	/* Those of one piece take less room than those of 30, which there is room for. */
	taken = bad - receives;
	EXPECT(taken >= init.cap.max_recv_wr && taken < COUNT, 1);
	EXPECT(ibv_destroy_qp(qp), 0);

	struct ibv_qp *remote = make_qp(cq, pd, NULL, IBV_QPT_RC);

	qp = make_qp(cq, pd, NULL, IBV_QPT_RC);
	EXPECT(connect_qp(qp, &gid, remote->qp_num, 7, ALL) || connect_qp(remote, &gid, qp->qp_num, 7, ALL), 0);
	EXPECT(ibv_post_send(qp, sends, &bad_send), ENOMEM);
	taken = bad_send - sends;
	EXPECT(taken >= init.cap.max_send_wr && taken < COUNT, 1);
	/* They go when the receiver is ready. */
	for (long i = 0; i < taken; i++) {
		EXPECT(post_receive(remote, &sge, 1, 1000 + i), 0);
		EXPECT(next_of(cq, &wc), IBV_WC_SUCCESS);
		EXPECT(next_of(cq, &wc), IBV_WC_SUCCESS);
	}
	EXPECT(ibv_destroy_qp(qp) || ibv_destroy_qp(remote) || ibv_destroy_cq(cq), 0);
	return 1;
}

static void leave(int signal)
{
	(void)signal;
	exit(42);
}

/* In a child, whose handler ends it in the midst of posting or polling. */
static int a_signal_handler_may_end_the_program_while_it_posts_or_polls(void)
{
	for (int round = 0; round < 40; round++) {
		pid_t child = fork();
		int status = 0;

		if (!child) {
			struct ibv_device **devices = ibv_get_device_list(NULL);
			struct itimerval after = { .it_value = { .tv_usec = 3000 + 977 * round } };
			struct pair pair;

			context = ibv_open_device(devices[0]);
			pd = context ? ibv_alloc_pd(context) : NULL;
			mr = pd ? ibv_reg_mr(pd, memory, BYTES, ALL) : NULL;
			if (!mr || ibv_query_gid(context, 1, 0, &gid))
				_exit(1);
			pair = open_pair();
			signal(SIGALRM, leave);
			setitimer(ITIMER_REAL, &after, NULL);
			for (;;) {
				struct ibv_sge sge = piece(0, 4096);
				struct ibv_wc wc;

				if (post(pair.qp, IBV_WR_RDMA_WRITE, &sge, 1, at(8192), mr->rkey) ||
				    next_of(pair.cq, &wc) != IBV_WC_SUCCESS)
					_exit(2);
			}
		}
		for (int waited_ms = 0; waitpid(child, &status, WNOHANG) != child; waited_ms++) {
			if (waited_ms > 1000 * PATIENCE_S) {
				kill(child, SIGKILL);
				waitpid(child, &status, 0);
				return fail("a child that hangs, in round", round, -1);
			}
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		}
		EXPECT(WIFEXITED(status), 1);
		EXPECT(WEXITSTATUS(status), 42);
	}
	return 1;
}

#define CHECK(name) { #name, name }
static const struct {
	const char *name;
	int (*check)(void);
} checks[] = {
	CHECK(a_wrong_rkey_is_a_remote_access_error),
	CHECK(a_stale_key_is_a_remote_access_error),
	CHECK(a_read_behind_the_region_is_a_remote_access_error),
	CHECK(a_write_before_the_region_is_a_remote_access_error),
	CHECK(a_region_of_another_domain_is_a_remote_access_error),
	CHECK(a_region_that_may_only_be_read_is_not_written),
	CHECK(a_region_without_atomics_takes_none),
	CHECK(a_qp_that_grants_no_writes_takes_none),
	CHECK(a_region_that_was_deregistered_is_gone),
	CHECK(a_wrong_lkey_is_a_local_protection_error),
	CHECK(regions_follow_the_rules_of_registration),
	CHECK(a_receiver_without_buffers_ends_the_sender_after_its_retries),
	CHECK(a_receiver_that_is_late_gets_the_message),
	CHECK(a_message_longer_than_its_buffer_ends_both_sides),
	CHECK(nothing_may_be_sent),
	CHECK(thirty_pieces_are_gathered_and_scattered),
	CHECK(inline_data_may_be_used_again_at_once),
	CHECK(atomics_do_what_they_say),
	CHECK(a_full_completion_queue_is_an_error_not_a_loss_unseen),
	CHECK(a_shared_receive_queue_serves_and_tells_of_its_limit),
	CHECK(a_window_lets_in_what_it_was_bound_for_until_it_is_invalidated),
	CHECK(a_qp_that_is_set_to_error_flushes_what_it_has),
	CHECK(a_qp_that_is_set_to_error_leaves_alone_what_its_peer_has_posted),
	CHECK(what_came_unannounced_is_told_when_it_is_asked_for),
	CHECK(states_change_as_they_may),
	CHECK(a_qp_number_that_nobody_has_ends_the_sender),
	CHECK(a_thousand_qps_are_made_and_used),
	CHECK(a_completion_queue_can_be_given_room),
	CHECK(a_full_queue_takes_no_more_and_says_where_it_stopped),
	CHECK(a_signal_handler_may_end_the_program_while_it_posts_or_polls),
};

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	int failed = 0;

	context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	if (!context || ibv_query_gid(context, 1, 0, &gid))
		fatal("the device");
	pd = ibv_alloc_pd(context);
	other_pd = ibv_alloc_pd(context);
	memory = aligned_alloc(4096, BYTES);
	shadow = malloc(BYTES);
	fill();
	mr = ibv_reg_mr(pd, memory, BYTES, ALL);
	if (!mr)
		fatal("ibv_reg_mr");
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
		if (argc > 1 && strcmp(argv[1], checks[i].name))
			continue;
		int ok = checks[i].check();

		printf("%s %s%s\n", checks[i].name, ok ? "ok" : "FAILED: ", ok ? "" : why);
		fflush(stdout);
		failed |= !ok;
	}
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	ibv_dealloc_pd(other_pd);
	ibv_close_device(context);
	return failed;
}

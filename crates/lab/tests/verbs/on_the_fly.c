/*
 * Etherslot's own calls beside the verbs (etherslot.h), checked one by one between two QPs of one process: line by line `name ok` or
 * `name FAILED: why`. Exit status 1 if one failed.
 */
#include "check.h"

#include <etherslot.h>

#define BYTES (1 << 20)
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
/* Places in the memory of either side: data, and a flag behind them. */
#define DATA 4096
#define FLAG (BYTES / 2)

/* A side: a QP, and memory of its own. */
struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *memory;
	struct ibv_mr *mr;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct side near, far;

static void make(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 1, .max_inline_data = 480 },
		.qp_type = IBV_QPT_RC,
	};

	side->memory = calloc(1, BYTES);
	side->mr = side->memory ? ibv_reg_mr(pd, side->memory, BYTES, ALL) : NULL;
	side->cq = ibv_create_cq(context, 128, NULL, NULL, 0);
	init.send_cq = init.recv_cq = side->cq;
	side->qp = side->cq ? ibv_create_qp(pd, &init) : NULL;
	if (!side->mr || !side->qp)
		fatal("a side");
}

static void join(struct side *side, struct side *other)
{
	if (connect_qp(side->qp, &gid, other->qp->qp_num, 7, ALL))
		fatal("ibv_modify_qp");
}

static void leave(struct side *side)
{
	if (ibv_destroy_qp(side->qp) || ibv_destroy_cq(side->cq) || ibv_dereg_mr(side->mr))
		fatal("destroy");
	free(side->memory);
}

/* Looks at memory alone, without a call; 0 if the value does not come. */
static int comes(uint8_t *at, uint64_t value)
{
	time_t until = time(NULL) + PATIENCE_S;

	while (time(NULL) <= until)
		if (__atomic_load_n((uint64_t *)at, __ATOMIC_ACQUIRE) == value)
			return 1;
	return 0;
}

static uint64_t word(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof value);
	return value;
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int flags)
{
	return (struct ibv_send_wr){
		.wr_id = 7,
		.opcode = opcode,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
		.send_flags = flags,
		.imm_data = htobe32(0x12345678),
		.wr.rdma = { .remote_addr = (uintptr_t)far.memory + DATA, .rkey = far.mr->rkey },
	};
}

static struct ibv_sge piece(struct side *side, uint32_t bytes)
{
	return (struct ibv_sge){ .addr = (uintptr_t)side->memory + DATA, .length = bytes, .lkey = side->mr->lkey };
}

static struct etherslot_flag flag_at(struct side *side, uint64_t value)
{
	return (struct etherslot_flag){ .addr = (uintptr_t)side->memory + FLAG, .value = value, .key = side->mr->lkey };
}

static int a_store_writes_eight_bytes_and_completes(void)
{
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, NULL, IBV_SEND_SIGNALED);
	struct ibv_wc wc;

	EXPECT(etherslot_aotf_prepare(near.qp, 3, &wr), 0);
	for (uint64_t value = 1; value <= 100; value++) {
		EXPECT(etherslot_aotf_store(near.qp, 3, value << 32 | value), 0);
		EXPECT(next_of(near.cq, &wc), IBV_WC_SUCCESS);
		EXPECT(wc.wr_id, 7);
		EXPECT(word(far.memory + DATA), value << 32 | value);
	}
	return 1;
}

static int a_store_is_a_message_with_immediate_data_too(void)
{
	struct ibv_sge sge = piece(&far, 64);
	struct ibv_recv_wr *bad, receive = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, NULL, 0);
	struct ibv_wc wc;

	EXPECT(etherslot_aotf_prepare(near.qp, 0, &wr), 0);
	EXPECT(ibv_post_recv(far.qp, &receive, &bad), 0);
	EXPECT(etherslot_aotf_store(near.qp, 0, 0xFEDCBA9876543210), 0);
	EXPECT(next_of(far.cq, &wc), IBV_WC_SUCCESS);
	EXPECT(wc.wr_id, 9);
	EXPECT(wc.byte_len, 8);
	EXPECT(be32toh(wc.imm_data), 0x12345678);
	EXPECT(word(far.memory + DATA), 0xFEDCBA9876543210);
	return 1;
}

static int what_is_not_prepared_and_what_cannot_be_is_refused(void)
{
	struct ibv_sge sge = piece(&near, 8);
	struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, NULL, 0), read = request(IBV_WR_RDMA_READ, &sge, 0);

	EXPECT(etherslot_aotf_store(near.qp, 5, 1), EINVAL);
	EXPECT(etherslot_aotf_store(near.qp, ETHERSLOT_AOTF_PLACES, 1), EINVAL);
	EXPECT(etherslot_aotf_prepare(near.qp, ETHERSLOT_AOTF_PLACES, &write), EINVAL);
	EXPECT(etherslot_aotf_prepare(near.qp, 5, &read), EINVAL);
	EXPECT(etherslot_push(near.qp, &read, NULL, NULL), EINVAL);
	EXPECT(etherslot_pull(near.qp, &write, NULL, NULL), EINVAL);
	return 1;
}

static int a_whole_request_is_sent_as_it_was_written(void)
{
	struct etherslot_wqe wqe = {
		.opcode = ETHERSLOT_WRITE,
		.flags = ETHERSLOT_SIGNALED | ETHERSLOT_INLINE,
		.wr_id = 11,
		.remote_addr = (uintptr_t)far.memory + DATA,
		.rkey = far.mr->rkey,
	};
	struct ibv_wc wc;

	for (uint32_t bytes = 0; bytes <= ETHERSLOT_INLINE_BYTES; bytes += 16) {
		memset(far.memory + DATA, 0, 512);
		memset(wqe.data, 1 + bytes / 16, bytes);
		wqe.inline_bytes = bytes;
		wqe.blocks = etherslot_blocks(bytes);
		EXPECT(etherslot_botf(near.qp, &wqe), 0);
		EXPECT(next_of(near.cq, &wc), IBV_WC_SUCCESS);
		EXPECT(wc.wr_id, 11);
		EXPECT(memcmp(far.memory + DATA, wqe.data, bytes), 0);
		EXPECT(far.memory[DATA + bytes], 0);
	}
	for (int blocks = 0; blocks < 256; blocks += 255 - ETHERSLOT_WQE_BLOCKS) {
		wqe.blocks = blocks;
		if (blocks == 0 || blocks > ETHERSLOT_WQE_BLOCKS)
			EXPECT(etherslot_botf(near.qp, &wqe), EINVAL);
	}
	return 1;
}

static int a_push_tells_both_sides_by_flags_alone(void)
{
	struct ibv_sge sge = piece(&near, FLAG - DATA);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 0);
	struct ibv_wc wc;

	for (uint64_t value = 1; value <= 20; value++) {
		struct etherslot_flag local = flag_at(&near, value), remote = flag_at(&far, ~value);

		memset(near.memory + DATA, (int)value, FLAG - DATA);
		EXPECT(etherslot_push(near.qp, &wr, &local, &remote), 0);
		if (!comes(far.memory + FLAG, ~value))
			return fail("the peer's flag", word(far.memory + FLAG), ~value);
		EXPECT(memcmp(far.memory + DATA, near.memory + DATA, FLAG - DATA), 0);
		if (!comes(near.memory + FLAG, value))
			return fail("our flag", word(near.memory + FLAG), value);
	}
	EXPECT(ibv_poll_cq(near.cq, 1, &wc), 0);
	return 1;
}

static int a_pull_brings_data_before_its_flags(void)
{
	struct ibv_sge sge = piece(&near, FLAG - DATA);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge, IBV_SEND_SIGNALED);
	struct etherslot_flag local = flag_at(&near, 5), remote = flag_at(&far, 6);
	struct ibv_wc wc;

	memset(far.memory + DATA, 0xA5, FLAG - DATA);
	EXPECT(etherslot_pull(near.qp, &wr, &local, &remote), 0);
	if (!comes(far.memory + FLAG, 6))
		return fail("the peer's flag", word(far.memory + FLAG), 6);
	EXPECT(memcmp(near.memory + DATA, far.memory + DATA, FLAG - DATA), 0);
	if (!comes(near.memory + FLAG, 5))
		return fail("our flag", word(near.memory + FLAG), 5);
	EXPECT(next_of(near.cq, &wc), IBV_WC_SUCCESS);
	return 1;
}

/* The last one: its QPs end in error. */
static int a_push_that_fails_stores_no_flag_of_ours(void)
{
	struct ibv_sge sge = piece(&near, 4096);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 0);
	struct etherslot_flag local = flag_at(&near, 77), remote = flag_at(&far, 78);
	struct ibv_wc wc;

	wr.wr.rdma.rkey ^= 1;
	EXPECT(etherslot_push(near.qp, &wr, &local, &remote), 0);
	EXPECT(next_of(near.cq, &wc), IBV_WC_REM_ACCESS_ERR);
	EXPECT(word(near.memory + FLAG) == 77, 0);
	EXPECT(word(far.memory + FLAG) == 78, 0);
	return 1;
}

#define CHECK(name) { #name, name }

static const struct {
	const char *name;
	int (*holds)(void);
} checks[] = {
	CHECK(a_store_writes_eight_bytes_and_completes),
	CHECK(a_store_is_a_message_with_immediate_data_too),
	CHECK(what_is_not_prepared_and_what_cannot_be_is_refused),
	CHECK(a_whole_request_is_sent_as_it_was_written),
	CHECK(a_push_tells_both_sides_by_flags_alone),
	CHECK(a_pull_brings_data_before_its_flags),
	CHECK(a_push_that_fails_stores_no_flag_of_ours),
};

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int failed = 0;

	context = list && *list ? ibv_open_device(*list) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	if (!pd || ibv_query_gid(context, 1, 0, &gid))
		fatal("a device");
	make(&near);
	make(&far);
	join(&near, &far);
	join(&far, &near);
	for (size_t at = 0; at < sizeof checks / sizeof *checks; at++) {
		int holds = checks[at].holds();

		printf("%s %s%s\n", checks[at].name, holds ? "ok" : "FAILED: ", holds ? "" : why);
		failed |= !holds;
	}
	leave(&near);
	leave(&far);
	if (ibv_dealloc_pd(pd) || ibv_close_device(context))
		fatal("close");
	ibv_free_device_list(list);
	return failed;
}

/*
 * Etherslot's own calls beside the verbs: sends on the fly (AOTF, BOTF), and PUSH and PULL, whose completion is told by flags in memory
 * (docs/rnic.md, sections 12 and 13).
 *
 * They are in Etherslot's libibverbs.so.1, and for its queue pairs alone. A program that uses them is linked with that library:
 *
 *     cc program.c -I crates/verbs/include -L target/release/verbs -l:libibverbs.so.1
 *
 * Calls may be made from any thread, and return 0 or a number of errno.h. What they sent completes as what ibv_post_send posts.
 */
#ifndef ETHERSLOT_H
#define ETHERSLOT_H

#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Places of the AOTF window of a queue pair. */
#define ETHERSLOT_AOTF_PLACES 16
/* Blocks of a work request in the BOTF window, of 64 bytes each, and how much inline data they hold. */
#define ETHERSLOT_WQE_BLOCKS 9
#define ETHERSLOT_INLINE_BYTES 480

/* Opcodes of a struct etherslot_wqe. */
enum etherslot_opcode {
	ETHERSLOT_WRITE = 0,
	ETHERSLOT_WRITE_IMM = 1,
	ETHERSLOT_SEND = 2,
	ETHERSLOT_SEND_IMM = 3,
	ETHERSLOT_SEND_INVALIDATE = 4,
};

/* Flags of a struct etherslot_wqe. */
enum etherslot_wqe_flags {
	ETHERSLOT_SIGNALED = 1 << 0,
	ETHERSLOT_FENCE = 1 << 1,
	ETHERSLOT_SOLICITED = 1 << 2,
	ETHERSLOT_INLINE = 1 << 3,
};

/* A send work request as it lies in the BOTF window (docs/rnic.md, section 4); little-endian. */
struct etherslot_wqe {
	uint8_t opcode;
	uint8_t flags;
	/* As few as hold all of it: etherslot_blocks(). */
	uint8_t blocks;
	/* 0 of one that is inline. */
	uint8_t sges;
	uint32_t inline_bytes;
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	/* Immediate data in the processor's order, or the key that is to be invalidated. */
	uint32_t imm_data;
	uint8_t data[ETHERSLOT_WQE_BLOCKS * 64 - 32];
};

/* How many blocks a work request with so much inline data has. */
static inline uint8_t etherslot_blocks(uint32_t inline_bytes)
{
	return inline_bytes <= 32 ? 1 : (uint8_t)(1 + (inline_bytes - 32 + 63) / 64);
}

/* A flag of PUSH and PULL: where 8 bytes are stored, and what. */
struct etherslot_flag {
	/* A multiple of 8. */
	uint64_t addr;
	/* Stored little-endian. */
	uint64_t value;
	/* The lkey of a local flag, the rkey of a remote one. */
	uint32_t key;
	uint32_t reserved;
};

/*
 * AOTF: prepares what a store to this place sends: an RDMA Write or a Send, with or without immediate data or invalidation, of
 * 8 bytes. The list of pieces of `wr` is not looked at. It stays until it is prepared anew. EINVAL: another operation, or no such place.
 */
int etherslot_aotf_prepare(struct ibv_qp *qp, unsigned int place, const struct ibv_send_wr *wr);

/*
 * AOTF: sends what was prepared at this place with these 8 bytes, little-endian, as data. EINVAL: nothing was prepared there, or the queue
 * pair is not in RTS; ENOMEM: its send queue is full.
 */
int etherslot_aotf_store(struct ibv_qp *qp, unsigned int place, uint64_t value);

/* BOTF: sends a work request that is made already. EINVAL: its blocks are not what it says; ENOMEM: the send queue is full. */
int etherslot_botf(struct ibv_qp *qp, const struct etherslot_wqe *wqe);

/*
 * PUSH: an RDMA Write; then `remote`, behind the data, is stored in the peer's memory, and when all has arrived `local` in ours. Either may be
 * NULL. Flags take a block (64 bytes) of the send queue more than the Write alone. No flag of ours is stored if the operation fails. EINVAL: `wr` is
 * no RDMA Write.
 */
int etherslot_push(struct ibv_qp *qp, const struct ibv_send_wr *wr, const struct etherslot_flag *local,
		   const struct etherslot_flag *remote);

/* PULL: the same with an RDMA Read; `remote` is stored once all data are here. */
int etherslot_pull(struct ibv_qp *qp, const struct ibv_send_wr *wr, const struct etherslot_flag *local,
		   const struct etherslot_flag *remote);

#ifdef __cplusplus
}
#endif
#endif

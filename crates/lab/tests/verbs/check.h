/*
 * What the C programs of this folder share: checks that say why they fail, QPs on their way to RTS, and what a process has in use.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 10

/* Of the check that failed last. */
static char why[200];

static inline int fail(const char *text, long got, long wanted)
{
	snprintf(why, sizeof why, "%s: %ld, not %ld", text, got, wanted);
	return 0;
}

#define EXPECT(got, wanted)                                                    \
	do {                                                                   \
		long g = (long)(got), w = (long)(wanted);                      \
		if (g != w)                                                    \
			return fail(#got, g, w);                               \
	} while (0)

/* No check, but what has to be there for any. */
static inline void fatal(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(2);
}

static inline int to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* From RESET to RTS, with the QP of this number at this address. 0, or what a call says. */
static inline int connect_qp(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t number, int rnr_retry, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = number,
		.rq_psn = 17,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .hop_limit = 1 } },
	};
	int error = to_init(qp, access);

	if (error)
		return error;
	error = ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (error)
		return error;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = rnr_retry;
	attr.sq_psn = 17;
	attr.max_rd_atomic = 4;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The next completion; its status, -1 after a while, -2 if the queue cannot be looked at. */
static inline int next_of(struct ibv_cq *cq, struct ibv_wc *wc)
{
	time_t until = time(NULL) + PATIENCE_S;

	while (time(NULL) <= until) {
		int count = ibv_poll_cq(cq, 1, wc);

		if (count)
			return count == 1 ? (int)wc->status : -2;
	}
	return -1;
}

static inline int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Memory that is in use, in KiB. */
static inline long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long size, pages = 0;

	if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2)
		pages = 0;
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

#endif

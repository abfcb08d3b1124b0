/*
 * An MPI program whose data are checked: messages round a ring, all to all, sums, and one-sided access. Line by line `name ok`, from
 * rank 0, when all ranks agree; a rank that does not ends them all.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (3 << 20)

static int rank, ranks;
static unsigned char *out, *in;

static unsigned char byte(int from, size_t at, int round)
{
	return (unsigned char)(from * 59 + at * 31 + (at >> 8) * 7 + round);
}

static void check(int holds, const char *what, long at)
{
	if (!holds) {
		fprintf(stderr, "rank %d: %s, at %ld\n", rank, what, at);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void tell(const char *name)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("%s ok\n", name);
	fflush(stdout);
}

static void round_a_ring(void)
{
	static const int sizes[] = { 0, 1, 8, 1000, 8191, 65536, 1048577, MOST };
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int round = 0; round < 8; round++) {
			MPI_Status status;
			int count;

			for (int at = 0; at < sizes[i]; at++)
				out[at] = byte(rank, at, round);
			memset(in, 0xee, sizes[i] + 1);
			MPI_Sendrecv(out, sizes[i], MPI_BYTE, right, round, in, MOST, MPI_BYTE, left, round, MPI_COMM_WORLD,
				     &status);
			MPI_Get_count(&status, MPI_BYTE, &count);
			check(count == sizes[i], "a message has another length", count);
			for (int at = 0; at < sizes[i]; at++)
				check(in[at] == byte(left, at, round), "a message has another byte", at);
			check(in[sizes[i]] == 0xee, "a message was written past its end", sizes[i]);
		}
	tell("round_a_ring");
}

/* Whoever sends before the other receives. */
static void unexpected_messages(void)
{
	enum { COUNT = 64 };
	int other = rank ^ 1, tags[COUNT];
	MPI_Request requests[COUNT];

	if (other < ranks) {
		for (int i = 0; i < COUNT; i++) {
			tags[i] = rank * 1000 + i;
			MPI_Isend(&tags[i], 1, MPI_INT, other, i, MPI_COMM_WORLD, &requests[i]);
		}
		/* In the other order. */
		for (int i = COUNT - 1; i >= 0; i--) {
			int got;

			MPI_Recv(&got, 1, MPI_INT, other, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(got == other * 1000 + i, "a message has another tag's content", i);
		}
		MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
	}
	tell("unexpected_messages");
}

static void all_to_all(void)
{
	enum { EACH = 20000 };

	for (int to = 0; to < ranks; to++)
		for (int at = 0; at < EACH; at++)
			out[to * EACH + at] = byte(rank, at, to);
	MPI_Alltoall(out, EACH, MPI_BYTE, in, EACH, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		for (int at = 0; at < EACH; at++)
			check(in[from * EACH + at] == byte(from, at, rank), "all to all", at);
	tell("all_to_all");
}

static void sums(void)
{
	enum { COUNT = 10000 };
	long *mine = (long *)out, *all = (long *)in;

	for (long at = 0; at < COUNT; at++)
		mine[at] = at * (rank + 1);
	MPI_Allreduce(mine, all, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (long at = 0; at < COUNT; at++)
		check(all[at] == at * ranks * (ranks + 1) / 2, "a sum", at);
	tell("sums");
}

static void one_sided(void)
{
	enum { BYTES = 100000, ADDS = 100 };
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	unsigned char *base;
	long *counter, got, one = 1;
	MPI_Win window;

	MPI_Win_allocate(BYTES + sizeof *counter, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
	counter = (long *)base;
	*counter = 0;
	for (int at = 0; at < BYTES; at++)
		out[at] = byte(rank, at, 3);
	MPI_Win_fence(0, window);
	MPI_Put(out, BYTES, MPI_BYTE, right, sizeof *counter, BYTES, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	for (int at = 0; at < BYTES; at++)
		check(base[sizeof *counter + at] == byte(left, at, 3), "put", at);
	MPI_Get(in, BYTES, MPI_BYTE, right, sizeof *counter, BYTES, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	for (int at = 0; at < BYTES; at++)
		check(in[at] == byte(rank, at, 3), "get", at);
	/* All count at rank 0. */
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < ADDS; i++) {
		MPI_Fetch_and_op(&one, &got, MPI_LONG, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
		check(got >= 0 && got < (long)ADDS * ranks, "fetch and add", got);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
		check(*counter == (long)ADDS * ranks, "the count", *counter);
		MPI_Win_unlock(0, window);
	}
	MPI_Win_free(&window);
	tell("one_sided");
}

int main(int count, char **arguments)
{
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	out = malloc(MOST + 1);
	in = malloc(MOST + 1);
	round_a_ring();
	unexpected_messages();
	all_to_all();
	sums();
	one_sided();
	MPI_Finalize();
	return 0;
}

/*
 * A server and a client of UCP that find each other by socket addresses, which UCX resolves by librdmacm: ucp PORT is asked,
 * ucp PORT ADDRESS asks. Messages of many lengths go there and back, and are compared; then the client writes and reads the server's memory.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define MOST (1 << 20)
#define ROUNDS 5
#define TAG 0x1234
#define DONE 0x4321

static const size_t lengths[] = { 0, 1, 100, 4096, 9000, 65536, MOST };
static ucp_context_h context;
static ucp_worker_h worker;
static ucp_conn_request_h asked;
/* All is said; either may close first. */
static int is_closing;
static unsigned char out[MOST], in[MOST], memory[MOST];

/* Where the server's memory is. */
struct where {
	uint64_t address;
	uint64_t key_bytes;
	unsigned char key[256];
};

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

static void wait_for(void *request, const char *what)
{
	ucs_status_t status = UCS_PTR_STATUS(request);

	if (UCS_PTR_IS_PTR(request)) {
		while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
			ucp_worker_progress(worker);
		ucp_request_free(request);
	}
	check(status, what);
}

static void on_request(ucp_conn_request_h request, void *context)
{
	(void)context;
	asked = request;
}

static void on_error(void *context, ucp_ep_h ep, ucs_status_t status)
{
	(void)context;
	(void)ep;
	if (!is_closing)
		check(status, "the endpoint");
}

static void fill(unsigned char *data, size_t length, int round)
{
	for (size_t at = 0; at < length; at++)
		data[at] = (unsigned char)(at * 13 + (at >> 8) + round * 101);
}

static void send_tag(ucp_ep_h ep, ucp_tag_t tag, const void *data, size_t length)
{
	ucp_request_param_t param = { 0 };

	wait_for(ucp_tag_send_nbx(ep, data, length, tag, &param), "a message is sent");
}

static size_t receive(ucp_tag_t tag, void *data, size_t most)
{
	ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO };
	ucp_tag_recv_info_t info = { 0 };

	param.recv_info.tag_info = &info;
	void *request = ucp_tag_recv_nbx(worker, data, most, tag, ~0ull, &param);

	if (UCS_PTR_IS_PTR(request)) {
		ucs_status_t status;

		while ((status = ucp_tag_recv_request_test(request, &info)) == UCS_INPROGRESS)
			ucp_worker_progress(worker);
		ucp_request_free(request);
		check(status, "a message is received");
	} else {
		check(UCS_PTR_STATUS(request), "a message is received");
	}
	return info.length;
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

static void serve(ucp_ep_h ep)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = memory,
		.length = MOST,
	};
	struct where where = { .address = (uintptr_t)memory };
	ucp_mem_h handle;
	size_t key_bytes;
	void *key;
	char done;

	for (size_t i = 0; i < sizeof lengths / sizeof *lengths * ROUNDS; i++) {
		size_t length = receive(TAG, in, MOST);

		if (length != lengths[i / ROUNDS]) {
			fprintf(stderr, "a message of %zu bytes\n", length);
			exit(1);
		}
		compare(in, length, i, "the client's");
		fill(out, length, i + 1);
		send_tag(ep, TAG, out, length);
	}
	check(ucp_mem_map(context, &params, &handle), "ucp_mem_map");
	check(ucp_rkey_pack(context, handle, &key, &key_bytes), "ucp_rkey_pack");
	if (key_bytes > sizeof where.key)
		exit(1);
	where.key_bytes = key_bytes;
	memcpy(where.key, key, key_bytes);
	ucp_rkey_buffer_release(key);
	send_tag(ep, TAG, &where, sizeof where);
	receive(DONE, &done, 1);
	compare(memory, MOST, 77, "what was written");
	ucp_mem_unmap(context, handle);
	is_closing = 1;
	send_tag(ep, DONE, &done, 1);
}

static void ask(ucp_ep_h ep)
{
	ucp_request_param_t param = { 0 };
	struct where where;
	ucp_rkey_h key;
	char done = 1;

	for (size_t i = 0; i < sizeof lengths / sizeof *lengths * ROUNDS; i++) {
		size_t length = lengths[i / ROUNDS];

		fill(out, length, i);
		send_tag(ep, TAG, out, length);
		if (receive(TAG, in, MOST) != length)
			exit(1);
		compare(in, length, i + 1, "the server's");
	}
	receive(TAG, &where, sizeof where);
	check(ucp_ep_rkey_unpack(ep, where.key, &key), "ucp_ep_rkey_unpack");
	fill(out, MOST, 77);
	wait_for(ucp_put_nbx(ep, out, MOST, where.address, key, &param), "put");
	wait_for(ucp_ep_flush_nbx(ep, &param), "flush");
	wait_for(ucp_get_nbx(ep, in, MOST, where.address, key, &param), "get");
	compare(in, MOST, 77, "what was read");
	ucp_rkey_destroy(key);
	is_closing = 1;
	send_tag(ep, DONE, &done, 1);
	receive(DONE, &done, 1);
}

int main(int count, char **arguments)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA };
	ucp_worker_params_t worker_params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE };
	ucp_ep_params_t ep_params = {
		.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { .cb = on_error },
	};
	ucp_request_param_t close = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS };
	const char *address = count > 2 ? arguments[2] : NULL;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(count > 1 ? atoi(arguments[1]) : 0) };
	ucp_listener_h listener = NULL;
	void *closing;
	ucp_ep_h ep;

	check(ucp_init(&params, NULL, &context), "ucp_init");
	check(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
	if (address) {
		inet_pton(AF_INET, address, &at.sin_addr);
		ep_params.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
		ep_params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
		ep_params.sockaddr.addr = (struct sockaddr *)&at;
		ep_params.sockaddr.addrlen = sizeof at;
	} else {
		ucp_listener_params_t listen = {
			.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
			.sockaddr = { .addr = (struct sockaddr *)&at, .addrlen = sizeof at },
			.conn_handler = { .cb = on_request },
		};

		check(ucp_listener_create(worker, &listen, &listener), "ucp_listener_create");
		while (!asked)
			ucp_worker_progress(worker);
		ep_params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
		ep_params.conn_request = asked;
	}
	check(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
	if (address)
		ask(ep);
	else
		serve(ep);
	closing = ucp_ep_close_nbx(ep, &close);
	if (UCS_PTR_IS_PTR(closing)) {
		/* However it ends: the other side may be gone. */
		while (ucp_request_check_status(closing) == UCS_INPROGRESS)
			ucp_worker_progress(worker);
		ucp_request_free(closing);
	}
	if (listener)
		ucp_listener_destroy(listener);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	printf("%s ok\n", address ? "client" : "server");
	return 0;
}

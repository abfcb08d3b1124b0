// PCI Express over Ethernet: the bridge in front of a device of an I/O box, between the session with its host and the Link to the device.
//
// Bodies of Data frames in by `s_axis_*` and out by `m_axis_*`, as es_efe has them, while `up`. TLPs to the device by `m_tlp_*`, from it by `s_tlp_*`, as packets: a
// TLP of PCIe 2.2, byte 0 first. `m_tlp_room` has a bit for each flow control class (es_peb_pkg): the device has credit for a TLP of any length of that class; a TLP
// that has begun is taken whole. The bridge is a switch with one slot (docs/wire.md, section 9); the device is what the host attaches by `function_name`, in the ID that its
// first Configuration Write gives it, so no ID and no Tag is changed on the way.
//
// `link_reset`: the device is to be reset (Hot Reset); `link_done` when it is, and nothing from before it comes any more; then link_reset falls, and then link_done
// has to. TLPs from the device are dropped, and one that has begun to leave for it has to be taken, meanwhile.
//
// With DC there is a second slot, and in it memory of 2**DC bytes, the DC buffer (es_peb_dc_slot), which a host attaches by `dc_name`. What the device asks of it, in
// one domain, does not leave the bridge. Its memory is behind `m_dc_mem_*`, in words: see es_peb_dc.
//
// `broken`: the host sent what is no row of records; the session has to be closed.
module es_peb #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int STREAMS = 16,  // streams that a session can have, 2 to 256
    parameter int PEERS = 4,  // entries of the peer table, 1 to 256
    parameter int NON_POSTED_TLPS = 256,  // Non-Posted Requests of the host that may wait, a power of two: as many as it has Tags
    parameter int FENCE_CLOCKS = 1_250_000,  // clocks that a Configuration Write is waited for before what is behind it goes on
    parameter int DC = 0  // bits of an address in the DC buffer, 12 to 40; 0: there is none
) (
    input wire clk,
    input wire rst,

    input  wire  [255:0] function_name,  // of the Function, as docs/wire.md, section 8, has it: first byte on top, zeros behind
    input  wire  [255:0] dc_name,        // of the DC buffer, not the same
    input  wire          up,
    input  wire  [127:0] peer,           // the host's node ID
    input  wire  [ 15:0] body_bytes,
    output logic         broken,

    // The peer table: see es_peb_peers.
    input wire [  7:0] peers_index,
    input wire [127:0] peers_node,
    input wire         peers_valid,
    input wire         peers_write,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output logic [  DATA_W-1:0] m_tlp_tdata,
    output logic [DATA_W/8-1:0] m_tlp_tkeep,
    output logic [         1:0] m_tlp_tuser,   // the class
    output logic                m_tlp_tlast,
    output logic                m_tlp_tvalid,
    input  wire                 m_tlp_tready,
    input  wire  [         2:0] m_tlp_room,

    input  wire  [  DATA_W-1:0] s_tlp_tdata,
    input  wire  [DATA_W/8-1:0] s_tlp_tkeep,
    input  wire                 s_tlp_tlast,
    input  wire                 s_tlp_tvalid,
    output logic                s_tlp_tready,

    output logic        link_reset,
    input  wire         link_done,
    output logic        attached,
    output logic [15:0] max_payload,  // that the host takes from the Function whatever its registers say, bytes
    output logic [15:0] max_read,
    output logic        dc_attached,

    output logic [(DC==0?12 : DC)-$clog2(DATA_W/8)-1:0] m_dc_mem_address,
    output logic                                        m_dc_mem_write,
    output logic [                          DATA_W-1:0] m_dc_mem_data,
    output logic [                        DATA_W/8-1:0] m_dc_mem_strobe,
    output logic                                        m_dc_mem_valid,
    input  wire                                         m_dc_mem_ready,
    input  wire  [                          DATA_W-1:0] s_dc_mem_data,
    input  wire                                         s_dc_mem_valid,

    output logic [31:0] stat_down,                       // TLPs handed to the Function
    output logic [31:0] stat_down_malformed,             // TLPs of the host that are none
    output logic [31:0] stat_down_spoofed,               // Requests of the host that are not the Root Complex's
    output logic [31:0] stat_down_unrouted,              // Requests of the host to nowhere
    output logic [31:0] stat_down_unrouted_completions,
    output logic [31:0] stat_passed,                     // see es_peb_order
    output logic [31:0] stat_fence_timeouts,
    output logic [31:0] stat_up,                         // TLPs handed to the host
    output logic [31:0] stat_up_malformed,               // TLPs of the Function that are none
    output logic [31:0] stat_up_spoofed,                 // with another ID than the Function's
    output logic [31:0] stat_up_refused,                 // not permitted, or to nowhere
    output logic [31:0] stat_stray,                      // records on streams without a Function, or of kinds that are not taken
    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,                     // Attach that was refused
    output logic [31:0] stat_unknown,                    // control messages without effect
    output logic [31:0] stat_resets,
    output logic [31:0] stat_dc_host,                    // Memory Requests of the host that the DC buffer has done
    output logic [31:0] stat_dc_device,                  // of the Function
    output logic [31:0] stat_dc_refused                  // what it has refused or dropped
);
  if ((DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) || STREAMS < 2 || STREAMS > 256 || PEERS < 1 ||
      (DC != 0 && (DC < 12 || DC > 40))) begin : gen_check
    $error("es_peb: DATA_W is not 64, 128, 256 or 512, STREAMS not 2 to 256, PEERS below 1, or DC not 0 or 12 to 40");
  end

  localparam int BYTES = DATA_W / 8;
  // At least a TLP of 4112 bytes and half of one.
  localparam int DEPTH = 8192 / BYTES;

  logic session_rst;
  always_ff @(posedge clk) session_rst <= rst || !up;

  logic link, forget, ending, halt, flush, flush_host, clear_ports, looking;
  logic [15:0] stream;

  // The other slot. Each body goes to both.
  logic dc_ready, dc_broken, dc_ending, dc_own_long, dc_own_valid, dc_own_ready, dc_answer_valid, dc_answer_ready;
  logic dc_looking, dc_claims, dc_hit, dc_take, dc_take_ready, dc_relaxed, dc_host_valid, dc_host_ready, dc_device_valid, dc_device_ready;
  logic dc_last, dc_host_tvalid, dc_host_tready, dc_device_tvalid, dc_device_tready, dc_busy;
  logic [15:0] dc_stream, dc_own_stream, domain;
  logic [63:0] dc_own_message;
  logic [12:0] dc_bytes;
  logic [DATA_W-1:0] dc_data;
  logic [BYTES-1:0] dc_keep;
  logic dc_take_tvalid, dc_take_tready, completion_room, parse_broken, parse_ready;
  logic [31:0] dc_down, dc_malformed, dc_spoofed, dc_unrouted, dc_unrouted_completions, dc_stat_attached, dc_denied, dc_unknown;
  es_peb_pkg::tlp_t dc_answer, dc_tlp;
  es_peb_pkg::upstream_write_t told, heard;

  assign s_axis_tready = parse_ready && dc_ready;
  assign broken = parse_broken || dc_broken;

  // From the host.
  logic [DATA_W-1:0] parsed_data, whole_data, down_data, join_data;
  logic [BYTES-1:0] parsed_keep, whole_keep, down_keep, join_keep;
  logic parsed_last, parsed_valid, parsed_ready, whole_last, whole_valid, whole_ready;
  logic down_last, down_valid, down_ready, join_last, join_valid, join_ready;
  logic ctl_own, ctl_named, ctl_other, ctl_valid, ctl_ready;
  logic [4:0] ctl_dws;
  logic [7:0] ctl_code;
  logic [15:0] ctl_stream, ctl_payload, ctl_read, ctl_domain;

  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_parse #(
      .DATA_W (DATA_W),
      .STREAMS(STREAMS)
  ) parse (
      .clk,
      .rst          (session_rst),
      .clear        (rst),
      .attached,
      .stream,
      .forget       (flush_host),
      .function_name,
      .other        (dc_attached),
      .other_stream (dc_stream),
      .other_name   (DC == 0 ? '0 : dc_name),
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tlast,
      .s_axis_tvalid(s_axis_tvalid && dc_ready),
      .s_axis_tready(parse_ready),
      .m_axis_tdata (parsed_data),
      .m_axis_tkeep (parsed_keep),
      .m_axis_tlast (parsed_last),
      .m_axis_tvalid(parsed_valid),
      .m_axis_tready(parsed_ready),
      .m_ctl_own    (ctl_own),
      .m_ctl_code   (ctl_code),
      .m_ctl_dws    (ctl_dws),
      .m_ctl_status (),
      .m_ctl_named  (ctl_named),
      .m_ctl_other  (ctl_other),
      .m_ctl_domain (ctl_domain),
      .m_ctl_stream (ctl_stream),
      .m_ctl_payload(ctl_payload),
      .m_ctl_read   (ctl_read),
      .m_ctl_valid  (ctl_valid),
      .m_ctl_ready  (ctl_ready),
      .broken       (parse_broken),
      .stat_stray
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_pkg::tlp_t whole_tlp, answer, up_answer;
  logic whole_good, whole_hdr_valid, whole_hdr_ready, answer_valid, answer_ready, up_answer_valid, up_answer_ready;
  logic [31:0] stat_overlong, stat_up_overlong, stat_malformed, stat_bad;

  es_peb_intake #(
      .DATA_W(DATA_W),
      .DEPTH (DEPTH)
  ) down_intake (
      .clk,
      .rst          (rst || flush_host),
      .clear        (rst),
      .s_axis_tdata (parsed_data),
      .s_axis_tkeep (parsed_keep),
      .s_axis_tlast (parsed_last),
      .s_axis_tvalid(parsed_valid),
      .s_axis_tready(parsed_ready),
      .m_hdr_tlp    (whole_tlp),
      .m_hdr_good   (whole_good),
      .m_hdr_valid  (whole_hdr_valid),
      .m_hdr_ready  (whole_hdr_ready),
      .m_axis_tdata (whole_data),
      .m_axis_tkeep (whole_keep),
      .m_axis_tlast (whole_last),
      .m_axis_tvalid(whole_valid),
      .m_axis_tready(whole_ready),
      .stat_overlong
  );

  logic [1:0] down_class, join_class;
  logic down_relaxed, down_fence, down_hdr_valid, down_hdr_ready, join_relaxed, join_fence, join_hdr_valid, join_hdr_ready;
  logic [25:0] down_transaction, join_transaction, done;
  logic [15:0] function_id, port_id;
  logic master, peer_master, link_enabled, claims, done_valid;
  logic [63:0] address;

  logic [31:0] stat_forwarded, stat_spoofed, stat_unrouted, stat_unrouted_completions;
  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_down #(
      .DATA_W(DATA_W)
  ) down (
      .clk,
      .rst              (rst || flush_host),
      .clear_ports,
      .clear_upper      (clear_ports),
      .clear            (rst),
      .link,
      .forget,
      .flush,
      .hold             (1'b0),
      .told,
      .heard,
      .s_hdr_tlp        (whole_tlp),
      .s_hdr_good       (whole_good),
      .s_hdr_valid      (whole_hdr_valid),
      .s_hdr_ready      (whole_hdr_ready),
      .s_axis_tdata     (whole_data),
      .s_axis_tkeep     (whole_keep),
      .s_axis_tlast     (whole_last),
      .s_axis_tvalid    (whole_valid),
      .s_axis_tready    (whole_ready),
      .m_hdr_tlp        (),
      .m_hdr_class      (down_class),
      .m_hdr_relaxed    (down_relaxed),
      .m_hdr_fence      (down_fence),
      .m_hdr_transaction(down_transaction),
      .m_hdr_valid      (down_hdr_valid),
      .m_hdr_ready      (down_hdr_ready),
      .m_axis_tdata     (down_data),
      .m_axis_tkeep     (down_keep),
      .m_axis_tlast     (down_last),
      .m_axis_tvalid    (down_valid),
      .m_axis_tready    (down_ready),
      .m_answer         (answer),
      .m_answer_valid   (answer_valid),
      .m_answer_ready   (answer_ready),
      .function_id,
      .port_id,
      .up_master        (master),
      .peer_master,
      .link_enabled,
      .address,
      .looking,
      .claims,
      .stat_forwarded,
      .stat_malformed,
      .stat_spoofed,
      .stat_unrouted,
      .stat_unrouted_completions
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_join #(
      .DATA_W(DATA_W)
  ) join_answers (
      .clk,
      .rst              (rst || flush),
      .s_hdr_class      (down_class),
      .s_hdr_relaxed    (down_relaxed),
      .s_hdr_fence      (down_fence),
      .s_hdr_transaction(down_transaction),
      .s_hdr_valid      (down_hdr_valid),
      .s_hdr_ready      (down_hdr_ready),
      .s_axis_tdata     (down_data),
      .s_axis_tkeep     (down_keep),
      .s_axis_tlast     (down_last),
      .s_axis_tvalid    (down_valid),
      .s_axis_tready    (down_ready),
      .s_answer         (up_answer),
      .s_answer_valid   (up_answer_valid),
      .s_answer_ready   (up_answer_ready),
      .m_hdr_class      (join_class),
      .m_hdr_relaxed    (join_relaxed),
      .m_hdr_fence      (join_fence),
      .m_hdr_transaction(join_transaction),
      .m_hdr_valid      (join_hdr_valid),
      .m_hdr_ready      (join_hdr_ready),
      .m_axis_tdata     (join_data),
      .m_axis_tkeep     (join_keep),
      .m_axis_tlast     (join_last),
      .m_axis_tvalid    (join_valid),
      .m_axis_tready    (join_ready)
  );

  // In front of the queues: what comes from the host, or an answer; and Completions of the DC buffer.
  logic queue, queue_packet, queue_hdr_valid, queue_hdr_ready, queue_valid, queue_ready;

  es_peb_two #(
      .STAYS(0)
  ) to_device (
      .clk,
      .rst    (rst || flush),
      .s_valid({dc_device_valid, join_hdr_valid}),
      .index  (queue),
      .m_valid(queue_hdr_valid),
      .m_ready(queue_hdr_ready)
  );
  always_ff @(posedge clk) if (queue_hdr_valid && queue_hdr_ready) queue_packet <= queue;
  assign join_hdr_ready   = queue_hdr_ready && !queue;
  assign dc_device_ready  = queue_hdr_ready && queue;
  assign queue_valid      = queue_packet ? dc_device_tvalid : join_valid;
  assign join_ready       = queue_ready && !queue_packet;
  assign dc_device_tready = queue_ready && queue_packet;

  logic down_busy, up_busy, peer_busy;

  es_peb_order #(
      .DATA_W(DATA_W),
      .POSTED_DEPTH(DEPTH),
      .NON_POSTED_DEPTH(NON_POSTED_TLPS * (DATA_W == 64 ? 2 : 1) * 2),
      .COMPLETION_DEPTH(DEPTH),
      .NON_POSTED_TLPS(NON_POSTED_TLPS),
      .FENCE_CLOCKS(FENCE_CLOCKS)
  ) order (
      .clk,
      .rst              (rst || flush),
      .clear            (rst),
      .halt,
      .s_hdr_class      (queue ? es_peb_pkg::COMPLETION : join_class),
      .s_hdr_relaxed    (queue ? dc_relaxed : join_relaxed),
      .s_hdr_fence      (join_fence && !queue),
      .s_hdr_transaction(join_transaction),
      .s_hdr_valid      (queue_hdr_valid),
      .s_hdr_ready      (queue_hdr_ready),
      .s_axis_tdata     (queue_packet ? dc_data : join_data),
      .s_axis_tkeep     (queue_packet ? dc_keep : join_keep),
      .s_axis_tlast     (queue_packet ? dc_last : join_last),
      .s_axis_tvalid    (queue_valid),
      .s_axis_tready    (queue_ready),
      .completion_room,
      .m_room           (m_tlp_room),
      .done,
      .done_valid,
      .m_axis_tuser     (m_tlp_tuser),
      .m_axis_tdata     (m_tlp_tdata),
      .m_axis_tkeep     (m_tlp_tkeep),
      .m_axis_tlast     (m_tlp_tlast),
      .m_axis_tvalid    (m_tlp_tvalid),
      .m_axis_tready    (m_tlp_tready),
      .busy             (down_busy),
      .stat_passed,
      .stat_timeouts    (stat_fence_timeouts)
  );

  // From the Function. While its Link is reset what comes is dropped.
  logic [DATA_W-1:0] from_data, to_data;
  logic [BYTES-1:0] from_keep, to_keep;
  logic to_last, from_last, from_valid, from_ready, to_valid, to_ready, up_ready, up_good, up_hdr_valid, up_hdr_ready;
  es_peb_pkg::tlp_t up_tlp;
  logic [12:0] up_bytes;
  logic to_hdr_valid, to_hdr_ready;

  assign s_tlp_tready = flush || up_ready;

  es_peb_intake #(
      .DATA_W(DATA_W),
      .DEPTH (DEPTH)
  ) up_intake (
      .clk,
      .rst          (rst || flush),
      .clear        (rst),
      .s_axis_tdata (s_tlp_tdata),
      .s_axis_tkeep (s_tlp_tkeep),
      .s_axis_tlast (s_tlp_tlast),
      .s_axis_tvalid(s_tlp_tvalid && !flush),
      .s_axis_tready(up_ready),
      .m_hdr_tlp    (up_tlp),
      .m_hdr_good   (up_good),
      .m_hdr_valid  (up_hdr_valid),
      .m_hdr_ready  (up_hdr_ready),
      .m_axis_tdata (from_data),
      .m_axis_tkeep (from_keep),
      .m_axis_tlast (from_last),
      .m_axis_tvalid(from_valid),
      .m_axis_tready(from_ready),
      .stat_overlong(stat_up_overlong)
  );

  es_peb_up #(
      .DATA_W(DATA_W)
  ) to_host (
      .clk,
      .rst           (rst || flush || (ending && !peer_busy)),
      .clear         (rst),
      .halt,
      .busy          (up_busy),
      .peer_busy,
      .function_id,
      .port_id,
      .master,
      .address,
      .address_taken (looking || dc_looking),
      .claims,
      .peer_hit      (dc_hit),
      .peer_claims   (dc_claims),
      .peer_master,
      .s_hdr_tlp     (up_tlp),
      .s_hdr_good    (up_good),
      .s_hdr_valid   (up_hdr_valid),
      .s_hdr_ready   (up_hdr_ready),
      .s_axis_tdata  (from_data),
      .s_axis_tkeep  (from_keep),
      .s_axis_tlast  (from_last),
      .s_axis_tvalid (from_valid),
      .s_axis_tready (from_ready),
      .m_hdr_bytes   (up_bytes),
      .m_hdr_valid   (to_hdr_valid),
      .m_hdr_ready   (to_hdr_ready),
      .m_axis_tdata  (to_data),
      .m_peer_tlp    (dc_tlp),
      .m_peer_valid  (dc_take),
      .m_peer_ready  (dc_take_ready),
      .m_peer_tvalid (dc_take_tvalid),
      .m_peer_tready (dc_take_tready),
      .m_axis_tkeep  (to_keep),
      .m_axis_tlast  (to_last),
      .m_axis_tvalid (to_valid),
      .m_axis_tready (to_ready),
      .m_answer      (up_answer),
      .m_answer_valid(up_answer_valid),
      .m_answer_ready(up_answer_ready),
      .done,
      .done_valid,
      .stat_forwarded(stat_up),
      .stat_malformed(stat_bad),
      .stat_spoofed  (stat_up_spoofed),
      .stat_refused  (stat_up_refused)
  );

  logic [15:0] own_stream;
  logic [63:0] own_message;
  logic own_long, own_valid, own_ready;

  // For the host: of both slots.
  logic
      tell,
      tell_valid,
      tell_ready,
      reply,
      reply_valid,
      reply_ready,
      leave,
      leave_packet,
      leave_valid,
      leave_ready,
      leave_tvalid,
      leave_tready;

  es_peb_two tells (
      .clk,
      .rst    (session_rst),
      .s_valid({dc_own_valid, own_valid}),
      .index  (tell),
      .m_valid(tell_valid),
      .m_ready(tell_ready)
  );
  es_peb_two replies (
      .clk,
      .rst    (session_rst),
      .s_valid({dc_answer_valid && !dc_ending, answer_valid && !ending}),
      .index  (reply),
      .m_valid(reply_valid),
      .m_ready(reply_ready)
  );
  es_peb_two leaves (
      .clk,
      .rst    (session_rst),
      .s_valid({dc_host_valid, to_hdr_valid}),
      .index  (leave),
      .m_valid(leave_valid),
      .m_ready(leave_ready)
  );
  always_ff @(posedge clk) if (leave_valid && leave_ready) leave_packet <= leave;
  assign own_ready       = tell_ready && !tell;
  assign dc_own_ready    = tell_ready && tell;
  assign answer_ready    = reply_ready && !reply;
  assign dc_answer_ready = reply_ready && reply;
  assign to_hdr_ready    = leave_ready && !leave;
  assign dc_host_ready   = leave_ready && leave;
  assign leave_tvalid    = leave_packet ? dc_host_tvalid : to_valid;
  assign to_ready        = leave_tready && !leave_packet;
  assign dc_host_tready  = leave_tready && leave_packet;

  es_peb_send #(
      .DATA_W (DATA_W),
      .STREAMS(STREAMS)
  ) send (
      .clk,
      .rst          (session_rst),
      .body_bytes,
      .c_stream     (tell ? dc_own_stream : own_stream),
      .c_message    (tell ? dc_own_message : own_message),
      .c_bytes      ((tell ? dc_own_long : own_long) ? 6'd8 : 6'd4),
      .c_valid      (tell_valid),
      .c_ready      (tell_ready),
      .a_stream     (reply ? dc_stream : stream),
      .a_tlp        (reply ? dc_answer : answer),
      .a_valid      (reply_valid),
      .a_ready      (reply_ready),
      .s_hdr_stream (leave ? dc_stream : stream),
      .s_hdr_bytes  (leave ? dc_bytes : up_bytes),
      .s_hdr_valid  (leave_valid),
      .s_hdr_ready  (leave_ready),
      .s_axis_tdata (leave_packet ? dc_data : to_data),
      .s_axis_tvalid(leave_tvalid),
      .s_axis_tready(leave_tready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );

  logic may;

  es_peb_peers #(
      .PEERS(PEERS)
  ) peers (
      .clk,
      .rst,
      .index(peers_index),
      .node (peers_node),
      .valid(peers_valid),
      .write(peers_write),
      .peer,
      .may
  );

  logic [31:0] life_attached, life_denied, life_unknown;

  es_peb_life #(
      .STREAMS(STREAMS),
      .DOMAINS(DC != 0)
  ) life (
      .clk,
      .rst,
      .up           (up && !session_rst),
      .may,
      .attached,
      .stream,
      .max_payload,
      .max_read,
      .domain,
      .other        (dc_attached),
      .other_stream (dc_stream),
      .hold         (1'b0),
      .s_ctl_own    (ctl_own),
      .s_ctl_other  (ctl_other && !ctl_named),
      .s_ctl_code   (ctl_code),
      .s_ctl_short  (ctl_dws < 5'd10),
      .s_ctl_named  (ctl_named),
      .s_ctl_stream (ctl_stream),
      .s_ctl_payload(ctl_payload),
      .s_ctl_read   (ctl_read),
      .s_ctl_domain (ctl_domain),
      .s_ctl_valid  (ctl_valid),
      .s_ctl_ready  (ctl_ready),
      .m_ctl_stream (own_stream),
      .m_ctl_message(own_message),
      .m_ctl_long   (own_long),
      .m_ctl_valid  (own_valid),
      .m_ctl_ready  (own_ready),
      .link_enabled,
      .down_busy    (down_busy || peer_busy || dc_busy),
      .up_busy,
      .link,
      .forget,
      .ending,
      .halt,
      .flush,
      .flush_host,
      .clear_ports,
      .link_reset,
      .link_done,
      .stat_attached(life_attached),
      .stat_denied  (life_denied),
      .stat_unknown (life_unknown),
      .stat_resets
  );

  if (DC != 0) begin : gen_dc
    es_peb_dc_slot #(
        .DATA_W (DATA_W),
        .STREAMS(STREAMS),
        .BITS   (DC)
    ) slot (
        .clk,
        .rst,
        .session_rst,
        .function_name            (dc_name),
        .up,
        .may,
        .broken                   (dc_broken),
        .other                    (attached),
        .other_stream             (stream),
        .other_domain             (domain),
        .other_ending             (ending),
        .other_looking            (looking),
        .clear_upper              (clear_ports),
        .told                     (heard),
        .heard                    (told),
        .attached                 (dc_attached),
        .stream                   (dc_stream),
        .ending                   (dc_ending),
        .s_axis_tdata,
        .s_axis_tkeep,
        .s_axis_tlast,
        .s_axis_tvalid            (s_axis_tvalid && parse_ready),
        .s_axis_tready            (dc_ready),
        .m_ctl_stream             (dc_own_stream),
        .m_ctl_message            (dc_own_message),
        .m_ctl_long               (dc_own_long),
        .m_ctl_valid              (dc_own_valid),
        .m_ctl_ready              (dc_own_ready),
        .m_answer                 (dc_answer),
        .m_answer_valid           (dc_answer_valid),
        .m_answer_ready           (dc_answer_ready),
        .address,
        .looking                  (dc_looking),
        .claims                   (dc_claims),
        .hit                      (dc_hit),
        .s_device_tlp             (dc_tlp),
        .s_device_valid           (dc_take),
        .s_device_ready           (dc_take_ready),
        .s_device_tdata           (to_data),
        .s_device_tkeep           (to_keep),
        .s_device_tlast           (to_last),
        .s_device_tvalid          (dc_take_tvalid),
        .s_device_tready          (dc_take_tready),
        .device_lost              (halt),
        .device_room              (completion_room),
        .m_hdr_bytes              (dc_bytes),
        .m_hdr_relaxed            (dc_relaxed),
        .m_host_valid             (dc_host_valid),
        .m_host_ready             (dc_host_ready),
        .m_device_valid           (dc_device_valid),
        .m_device_ready           (dc_device_ready),
        .m_axis_tdata             (dc_data),
        .m_axis_tkeep             (dc_keep),
        .m_axis_tlast             (dc_last),
        .m_host_tvalid            (dc_host_tvalid),
        .m_host_tready            (dc_host_tready),
        .m_device_tvalid          (dc_device_tvalid),
        .m_device_tready          (dc_device_tready),
        .device_busy              (dc_busy),
        .m_mem_address            (m_dc_mem_address),
        .m_mem_write              (m_dc_mem_write),
        .m_mem_data               (m_dc_mem_data),
        .m_mem_strobe             (m_dc_mem_strobe),
        .m_mem_valid              (m_dc_mem_valid),
        .m_mem_ready              (m_dc_mem_ready),
        .s_mem_data               (s_dc_mem_data),
        .s_mem_valid              (s_dc_mem_valid),
        .stat_down                (dc_down),
        .stat_malformed           (dc_malformed),
        .stat_spoofed             (dc_spoofed),
        .stat_unrouted            (dc_unrouted),
        .stat_unrouted_completions(dc_unrouted_completions),
        .stat_attached            (dc_stat_attached),
        .stat_denied              (dc_denied),
        .stat_unknown             (dc_unknown),
        .stat_host                (stat_dc_host),
        .stat_device              (stat_dc_device),
        .stat_refused             (stat_dc_refused)
    );
  end else begin : gen_no_dc
    assign {dc_broken, dc_attached, dc_ending, dc_own_long, dc_own_valid, dc_answer_valid, dc_looking, dc_claims, dc_hit} = '0;
    assign {dc_take_ready, dc_take_tready, dc_relaxed, dc_host_valid, dc_device_valid} = '0;
    assign {dc_last, dc_host_tvalid, dc_device_tvalid, dc_busy} = '0;
    assign {dc_stream, dc_own_stream, dc_own_message, dc_bytes, dc_data, dc_keep, dc_answer, heard} = '0;
    assign {m_dc_mem_address, m_dc_mem_write, m_dc_mem_data, m_dc_mem_strobe, m_dc_mem_valid} = '0;
    assign {dc_down, dc_malformed, dc_spoofed, dc_unrouted, dc_unrouted_completions, dc_stat_attached, dc_denied, dc_unknown} = '0;
    assign {stat_dc_host, stat_dc_device, stat_dc_refused} = '0;
    assign dc_ready = 1'b1;
  end

  assign stat_down = stat_forwarded + dc_down;
  assign stat_down_spoofed = stat_spoofed + dc_spoofed;
  assign stat_down_unrouted = stat_unrouted + dc_unrouted;
  assign stat_down_unrouted_completions = stat_unrouted_completions + dc_unrouted_completions;
  assign stat_attached = life_attached + dc_stat_attached;
  assign stat_denied = life_denied + dc_denied;
  assign stat_unknown = life_unknown + dc_unknown;
  assign stat_down_malformed = stat_malformed + stat_overlong + dc_malformed;
  assign stat_up_malformed = stat_bad + stat_up_overlong;
endmodule

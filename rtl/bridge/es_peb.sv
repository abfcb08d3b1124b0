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
// `broken`: the host sent what is no row of records; the session has to be closed.
module es_peb #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int STREAMS = 16,  // streams that a session can have, 2 to 256
    parameter int PEERS = 4,  // entries of the peer table, 1 to 256
    parameter int NON_POSTED_TLPS = 256,  // Non-Posted Requests of the host that may wait, a power of two: as many as it has Tags
    parameter int FENCE_CLOCKS = 1_250_000  // clocks that a Configuration Write is waited for before what is behind it goes on
) (
    input wire clk,
    input wire rst,

    input  wire  [255:0] function_name,  // of the Function, as docs/wire.md, section 8, has it: first byte on top, zeros behind
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
    output logic [31:0] stat_resets
);
  if ((DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) || STREAMS < 2 || STREAMS > 256 || PEERS < 1) begin : gen_check
    $error("es_peb: DATA_W is not 64, 128, 256 or 512, STREAMS not 2 to 256, or PEERS below 1");
  end

  localparam int BYTES = DATA_W / 8;
  // At least a TLP of 4112 bytes and half of one.
  localparam int DEPTH = 8192 / BYTES;

  logic session_rst;
  always_ff @(posedge clk) session_rst <= rst || !up;

  logic link, forget, ending, halt, flush, flush_host, clear_ports, looking;
  logic [15:0] stream;

  // From the host.
  logic [DATA_W-1:0] parsed_data, whole_data, down_data, join_data;
  logic [BYTES-1:0] parsed_keep, whole_keep, down_keep, join_keep;
  logic parsed_last, parsed_valid, parsed_ready, whole_last, whole_valid, whole_ready;
  logic down_last, down_valid, down_ready, join_last, join_valid, join_ready;
  logic ctl_own, ctl_named, ctl_valid, ctl_ready;
  logic [4:0] ctl_dws;
  logic [7:0] ctl_code;
  logic [15:0] ctl_stream, ctl_payload, ctl_read;

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
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tlast,
      .s_axis_tvalid,
      .s_axis_tready,
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
      .m_ctl_stream (ctl_stream),
      .m_ctl_payload(ctl_payload),
      .m_ctl_read   (ctl_read),
      .m_ctl_valid  (ctl_valid),
      .m_ctl_ready  (ctl_ready),
      .broken,
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
  logic master, link_enabled, claims, done_valid;
  logic [63:0] address;

  es_peb_down #(
      .DATA_W(DATA_W)
  ) down (
      .clk,
      .rst                      (rst || flush_host),
      .clear_ports,
      .clear                    (rst),
      .link,
      .forget,
      .flush,
      .s_hdr_tlp                (whole_tlp),
      .s_hdr_good               (whole_good),
      .s_hdr_valid              (whole_hdr_valid),
      .s_hdr_ready              (whole_hdr_ready),
      .s_axis_tdata             (whole_data),
      .s_axis_tkeep             (whole_keep),
      .s_axis_tlast             (whole_last),
      .s_axis_tvalid            (whole_valid),
      .s_axis_tready            (whole_ready),
      .m_hdr_class              (down_class),
      .m_hdr_relaxed            (down_relaxed),
      .m_hdr_fence              (down_fence),
      .m_hdr_transaction        (down_transaction),
      .m_hdr_valid              (down_hdr_valid),
      .m_hdr_ready              (down_hdr_ready),
      .m_axis_tdata             (down_data),
      .m_axis_tkeep             (down_keep),
      .m_axis_tlast             (down_last),
      .m_axis_tvalid            (down_valid),
      .m_axis_tready            (down_ready),
      .m_answer                 (answer),
      .m_answer_valid           (answer_valid),
      .m_answer_ready           (answer_ready),
      .function_id,
      .port_id,
      .up_master                (master),
      .link_enabled,
      .address,
      .looking,
      .claims,
      .stat_forwarded           (stat_down),
      .stat_malformed,
      .stat_spoofed             (stat_down_spoofed),
      .stat_unrouted            (stat_down_unrouted),
      .stat_unrouted_completions(stat_down_unrouted_completions)
  );

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

  logic down_busy, up_busy;

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
      .s_hdr_class      (join_class),
      .s_hdr_relaxed    (join_relaxed),
      .s_hdr_fence      (join_fence),
      .s_hdr_transaction(join_transaction),
      .s_hdr_valid      (join_hdr_valid),
      .s_hdr_ready      (join_hdr_ready),
      .s_axis_tdata     (join_data),
      .s_axis_tkeep     (join_keep),
      .s_axis_tlast     (join_last),
      .s_axis_tvalid    (join_valid),
      .s_axis_tready    (join_ready),
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
  logic [BYTES-1:0] from_keep;
  logic from_last, from_valid, from_ready, to_valid, to_ready, up_ready, up_good, up_hdr_valid, up_hdr_ready;
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

  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_up #(
      .DATA_W(DATA_W)
  ) to_host (
      .clk,
      .rst           (rst || flush || ending),
      .clear         (rst),
      .halt,
      .busy          (up_busy),
      .function_id,
      .port_id,
      .master,
      .address,
      .address_taken (looking),
      .claims,
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
      .m_axis_tkeep  (),
      .m_axis_tlast  (),
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
  /* verilator lint_on PINCONNECTEMPTY */

  logic [15:0] own_stream;
  logic [63:0] own_message;
  logic own_long, own_valid, own_ready;

  es_peb_send #(
      .DATA_W (DATA_W),
      .STREAMS(STREAMS)
  ) send (
      .clk,
      .rst          (session_rst),
      .body_bytes,
      .stream,
      .c_stream     (own_stream),
      .c_message    (own_message),
      .c_bytes      (own_long ? 6'd8 : 6'd4),
      .c_valid      (own_valid),
      .c_ready      (own_ready),
      .a_tlp        (answer),
      .a_valid      (answer_valid && !ending),
      .a_ready      (answer_ready),
      .s_hdr_bytes  (up_bytes),
      .s_hdr_valid  (to_hdr_valid),
      .s_hdr_ready  (to_hdr_ready),
      .s_axis_tdata (to_data),
      .s_axis_tvalid(to_valid),
      .s_axis_tready(to_ready),
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

  es_peb_life #(
      .STREAMS(STREAMS)
  ) life (
      .clk,
      .rst,
      .up           (up && !session_rst),
      .may,
      .attached,
      .stream,
      .max_payload,
      .max_read,
      .s_ctl_own    (ctl_own),
      .s_ctl_code   (ctl_code),
      .s_ctl_short  (ctl_dws < 5'd10),
      .s_ctl_named  (ctl_named),
      .s_ctl_stream (ctl_stream),
      .s_ctl_payload(ctl_payload),
      .s_ctl_read   (ctl_read),
      .s_ctl_valid  (ctl_valid),
      .s_ctl_ready  (ctl_ready),
      .m_ctl_stream (own_stream),
      .m_ctl_message(own_message),
      .m_ctl_long   (own_long),
      .m_ctl_valid  (own_valid),
      .m_ctl_ready  (own_ready),
      .link_enabled,
      .down_busy,
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
      .stat_attached,
      .stat_denied,
      .stat_unknown,
      .stat_resets
  );

  assign stat_down_malformed = stat_malformed + stat_overlong;
  assign stat_up_malformed   = stat_bad + stat_up_overlong;
endmodule

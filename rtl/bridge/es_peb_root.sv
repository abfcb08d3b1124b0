// PCI Express over Ethernet: the bridge below a Root Port, between its Link and the session with an I/O box (docs/wire.md, sections 8 and 9).
//
// Bodies of Data frames in by `s_axis_*` and out by `m_axis_*`, as es_efe has them, while `up`. TLPs to the Root Port by `m_tlp_*`, from it by `s_tlp_*`, as es_peb has
// them. Below the Root Port is what the box shows on the session: its Upstream Port, the Downstream Port and the Function that is called `function_name`, which is asked
// for while `want`. The Root Complex is on bus 0.
//
// `link_up`: something is below the Root Port. While it is low Non-Posted Requests end with UR, but for those that had gone to the box: they end by Completion
// Timeout. `link_reset`: the Root Port holds its Link in reset; link_up falls until that is over and done.
//
// `broken`: the box sent what is no row of records; the session has to be closed.
module es_peb_root #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int NON_POSTED_TLPS = 256,  // Non-Posted Requests of the Function that may wait, a power of two: as many as it has Tags
    parameter int RETRY_CLOCKS = 1_250_000  // clocks until a refused Attach is said again
) (
    input wire clk,
    input wire rst,

    input  wire  [255:0] function_name,  // first byte on top, zeros behind
    input  wire  [ 15:0] max_payload,    // that the Root Port takes from the Function whatever its registers say, bytes
    input  wire  [ 15:0] max_read,
    input  wire          want,
    input  wire          up,
    input  wire  [ 15:0] body_bytes,
    output logic         broken,

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

    output logic       link_up,
    input  wire        link_reset,
    output logic       attached,
    output logic [1:0] refusal,     // what the last Attached said

    output logic [31:0] stat_down,            // TLPs handed to the box
    output logic [31:0] stat_down_malformed,  // TLPs of the Root Port that are none
    output logic [31:0] stat_down_refused,    // with nobody below
    output logic [31:0] stat_up,              // TLPs handed to the Root Port
    output logic [31:0] stat_up_malformed,    // TLPs of the box that are none
    output logic [31:0] stat_up_refused,      // not of the Function, or not permitted
    output logic [31:0] stat_passed,          // see es_peb_order
    output logic [31:0] stat_stray,           // records on other streams, or of kinds that are not taken
    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,          // Attach that was refused
    output logic [31:0] stat_unknown,         // control messages without effect
    output logic [31:0] stat_resets
);
  localparam int BYTES = DATA_W / 8;
  localparam int DEPTH = 8192 / BYTES;
  localparam int STREAMS = 2;
  localparam logic [15:0] STREAM = 16'd1;

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_peb_root: DATA_W is not 64, 128, 256 or 512");
  end

  logic session_rst;
  always_ff @(posedge clk) session_rst <= rst || !up;

  logic link, halt, drop, clean, gate_busy, down_busy;
  assign link_up = link;

  // From the box.
  logic [DATA_W-1:0] parsed_data, whole_data, rise_data, join_data;
  logic [BYTES-1:0] parsed_keep, whole_keep, rise_keep, join_keep;
  logic parsed_last, parsed_valid, parsed_ready, whole_last, whole_valid, whole_ready;
  logic rise_last, rise_valid, rise_ready, join_last, join_valid, join_ready;
  logic ctl_own, ctl_valid, ctl_ready;
  logic [4:0] ctl_dws;
  logic [7:0] ctl_code, ctl_status;
  logic [15:0] ctl_stream;

  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_parse #(
      .DATA_W (DATA_W),
      .STREAMS(STREAMS)
  ) parse (
      .clk,
      .rst          (session_rst),
      .clear        (rst),
      .attached,
      .stream       (STREAM),
      .forget       (clean),
      .function_name,
      .other        (1'b0),
      .other_stream ('0),
      .other_name   ('0),
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
      .m_ctl_status (ctl_status),
      .m_ctl_named  (),
      .m_ctl_other  (),
      .m_ctl_domain (),
      .m_ctl_stream (ctl_stream),
      .m_ctl_payload(),
      .m_ctl_read   (),
      .m_ctl_valid  (ctl_valid),
      .m_ctl_ready  (ctl_ready),
      .broken,
      .stat_stray
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_pkg::tlp_t whole_tlp, from_tlp, answer;
  logic whole_good, whole_hdr_valid, whole_hdr_ready, from_good, from_hdr_valid, from_hdr_ready, answer_valid, answer_ready;
  logic [31:0] stat_up_bad, stat_up_overlong, stat_down_bad, stat_down_overlong;

  es_peb_intake #(
      .DATA_W(DATA_W),
      .DEPTH (DEPTH)
  ) up_intake (
      .clk,
      .rst          (rst || clean),
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
      .stat_overlong(stat_up_overlong)
  );

  logic [7:0] first_bus, last_bus;
  logic [1:0] rise_class, join_class;
  logic rise_relaxed, rise_hdr_valid, rise_hdr_ready, join_relaxed, join_fence, join_hdr_valid, join_hdr_ready;
  logic [25:0] join_transaction;

  es_peb_rise #(
      .DATA_W(DATA_W)
  ) rise (
      .clk,
      .rst           (rst || clean),
      .clear         (rst),
      .drop,
      .first_bus,
      .last_bus,
      .s_hdr_tlp     (whole_tlp),
      .s_hdr_good    (whole_good),
      .s_hdr_valid   (whole_hdr_valid),
      .s_hdr_ready   (whole_hdr_ready),
      .s_axis_tdata  (whole_data),
      .s_axis_tkeep  (whole_keep),
      .s_axis_tlast  (whole_last),
      .s_axis_tvalid (whole_valid),
      .s_axis_tready (whole_ready),
      .m_hdr_class   (rise_class),
      .m_hdr_relaxed (rise_relaxed),
      .m_hdr_valid   (rise_hdr_valid),
      .m_hdr_ready   (rise_hdr_ready),
      .m_axis_tdata  (rise_data),
      .m_axis_tkeep  (rise_keep),
      .m_axis_tlast  (rise_last),
      .m_axis_tvalid (rise_valid),
      .m_axis_tready (rise_ready),
      .stat_forwarded(stat_up),
      .stat_malformed(stat_up_bad),
      .stat_refused  (stat_up_refused)
  );

  // An answer waits until it can come through.
  logic join_answer_ready;
  assign answer_ready = join_answer_ready && !drop;

  es_peb_join #(
      .DATA_W(DATA_W)
  ) join_answers (
      .clk,
      .rst              (rst || drop),
      .s_hdr_class      (rise_class),
      .s_hdr_relaxed    (rise_relaxed),
      .s_hdr_fence      (1'b0),
      .s_hdr_transaction('0),
      .s_hdr_valid      (rise_hdr_valid),
      .s_hdr_ready      (rise_hdr_ready),
      .s_axis_tdata     (rise_data),
      .s_axis_tkeep     (rise_keep),
      .s_axis_tlast     (rise_last),
      .s_axis_tvalid    (rise_valid),
      .s_axis_tready    (rise_ready),
      .s_answer         (answer),
      .s_answer_valid   (answer_valid && !drop),
      .s_answer_ready   (join_answer_ready),
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

  // No fences: the box keeps those of its device.
  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_order #(
      .DATA_W(DATA_W),
      .POSTED_DEPTH(DEPTH),
      .NON_POSTED_DEPTH(NON_POSTED_TLPS * (DATA_W == 64 ? 2 : 1) * 2),
      .COMPLETION_DEPTH(DEPTH),
      .NON_POSTED_TLPS(NON_POSTED_TLPS),
      .FENCE_CLOCKS(0)
  ) order (
      .clk,
      .rst              (rst || drop),
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
      .completion_room  (),
      .m_room           (m_tlp_room),
      .done             ('0),
      .done_valid       (1'b0),
      .m_axis_tuser     (m_tlp_tuser),
      .m_axis_tdata     (m_tlp_tdata),
      .m_axis_tkeep     (m_tlp_tkeep),
      .m_axis_tlast     (m_tlp_tlast),
      .m_axis_tvalid    (m_tlp_tvalid),
      .m_axis_tready    (m_tlp_tready),
      .busy             (down_busy),
      .stat_passed,
      .stat_timeouts    ()
  );
  /* verilator lint_on PINCONNECTEMPTY */

  // From the Root Port.
  logic [DATA_W-1:0] from_data, gate_data;
  logic from_last, from_valid, from_ready, gate_valid, gate_ready, gate_hdr_valid, gate_hdr_ready;
  logic [12:0] gate_bytes;

  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_intake #(
      .DATA_W(DATA_W),
      .DEPTH (DEPTH)
  ) down_intake (
      .clk,
      .rst,
      .clear        (rst),
      .s_axis_tdata (s_tlp_tdata),
      .s_axis_tkeep (s_tlp_tkeep),
      .s_axis_tlast (s_tlp_tlast),
      .s_axis_tvalid(s_tlp_tvalid),
      .s_axis_tready(s_tlp_tready),
      .m_hdr_tlp    (from_tlp),
      .m_hdr_good   (from_good),
      .m_hdr_valid  (from_hdr_valid),
      .m_hdr_ready  (from_hdr_ready),
      .m_axis_tdata (from_data),
      .m_axis_tkeep (),
      .m_axis_tlast (from_last),
      .m_axis_tvalid(from_valid),
      .m_axis_tready(from_ready),
      .stat_overlong(stat_down_overlong)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_gate #(
      .DATA_W(DATA_W)
  ) gate (
      .clk,
      .rst,
      .clear         (rst),
      .link,
      .lost          (session_rst),
      .forget        (clean),
      .busy          (gate_busy),
      .first_bus,
      .last_bus,
      .s_hdr_tlp     (from_tlp),
      .s_hdr_good    (from_good),
      .s_hdr_valid   (from_hdr_valid),
      .s_hdr_ready   (from_hdr_ready),
      .s_axis_tdata  (from_data),
      .s_axis_tlast  (from_last),
      .s_axis_tvalid (from_valid),
      .s_axis_tready (from_ready),
      .m_hdr_bytes   (gate_bytes),
      .m_hdr_valid   (gate_hdr_valid),
      .m_hdr_ready   (gate_hdr_ready),
      .m_axis_tdata  (gate_data),
      .m_axis_tvalid (gate_valid),
      .m_axis_tready (gate_ready),
      .m_answer      (answer),
      .m_answer_valid(answer_valid),
      .m_answer_ready(answer_ready),
      .stat_forwarded(stat_down),
      .stat_malformed(stat_down_bad),
      .stat_refused  (stat_down_refused)
  );

  logic [ 15:0] own_stream;
  logic [319:0] own_message;
  logic [  5:0] own_bytes;
  logic own_valid, own_ready;

  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_send #(
      .DATA_W(DATA_W),
      .STREAMS(STREAMS),
      .MESSAGE_BYTES(40)
  ) send (
      .clk,
      .rst          (session_rst),
      .body_bytes,
      .c_stream     (own_stream),
      .c_message    (own_message),
      .c_bytes      (own_bytes),
      .c_valid      (own_valid),
      .c_ready      (own_ready),
      .a_stream     (STREAM),
      .a_tlp        ('0),
      .a_valid      (1'b0),
      .a_ready      (),
      .s_hdr_stream (STREAM),
      .s_hdr_bytes  (gate_bytes),
      .s_hdr_valid  (gate_hdr_valid),
      .s_hdr_ready  (gate_hdr_ready),
      .s_axis_tdata (gate_data),
      .s_axis_tvalid(gate_valid),
      .s_axis_tready(gate_ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_ask #(
      .RETRY_CLOCKS(RETRY_CLOCKS)
  ) ask (
      .clk,
      .rst,
      .up           (up && !session_rst),
      .want,
      .function_name,
      .max_payload,
      .max_read,
      .stream       (STREAM),
      .attached,
      .link,
      .refusal,
      .link_reset,
      .s_ctl_own    (ctl_own),
      .s_ctl_code   (ctl_code),
      .s_ctl_dws    (ctl_dws),
      .s_ctl_status (ctl_status),
      .s_ctl_stream (ctl_stream),
      .s_ctl_valid  (ctl_valid),
      .s_ctl_ready  (ctl_ready),
      .m_ctl_stream (own_stream),
      .m_ctl_message(own_message),
      .m_ctl_bytes  (own_bytes),
      .m_ctl_valid  (own_valid),
      .m_ctl_ready  (own_ready),
      .gate_busy,
      .down_busy,
      .halt,
      .drop,
      .clean,
      .stat_attached,
      .stat_denied,
      .stat_unknown,
      .stat_resets
  );

  assign stat_down_malformed = stat_down_bad + stat_down_overlong;
  assign stat_up_malformed   = stat_up_bad + stat_up_overlong;
endmodule

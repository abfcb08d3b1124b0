// A host's Root Port on the Ethernet: the bridge below it and its session with a box (es_peb_root, es_efe), from Ethernet's payload to TLPs.
//
// The ports are those of the two. The node greets while it wants the Function, and until it has given it back.
module es_peb_root_node #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int CLOCK_NS = 8,  // ns of a clock
    parameter int SLOTS = 16,  // frames on their way in each direction, a power of two, 4 to 128
    parameter int FRAME_BYTES = 1500,  // largest frame, 576 to 9216
    parameter int NON_POSTED_TLPS = 256,  // Non-Posted Requests of the Function that may wait, a power of two
    parameter int RETRY_CLOCKS = 1_250_000  // clocks until a refused Attach is said again
) (
    input wire clk,
    input wire rst,

    input  wire          want,
    input  wire          want_classic,
    input  wire  [127:0] node,
    input  wire  [ 31:0] fresh,          // a random number, not 0: the next epoch
    input  wire  [255:0] function_name,
    input  wire  [ 15:0] max_payload,
    input  wire  [ 15:0] max_read,
    output logic         up,

    input wire [  DATA_W-1:0] s_mac_tdata,
    input wire [DATA_W/8-1:0] s_mac_tkeep,
    input wire                s_mac_tuser,
    input wire                s_mac_tlast,
    input wire                s_mac_tvalid,

    output logic [  DATA_W-1:0] m_mac_tdata,
    output logic [DATA_W/8-1:0] m_mac_tkeep,
    output logic                m_mac_tlast,
    output logic                m_mac_tvalid,
    input  wire                 m_mac_tready,

    output logic [  DATA_W-1:0] m_tlp_tdata,
    output logic [DATA_W/8-1:0] m_tlp_tkeep,
    output logic [         1:0] m_tlp_tuser,
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
    output logic [1:0] refusal,

    output logic [31:0] stat_down,
    output logic [31:0] stat_down_malformed,
    output logic [31:0] stat_down_refused,
    output logic [31:0] stat_up,
    output logic [31:0] stat_up_malformed,
    output logic [31:0] stat_up_refused,
    output logic [31:0] stat_passed,
    output logic [31:0] stat_stray,
    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,
    output logic [31:0] stat_unknown,
    output logic [31:0] stat_resets,
    output logic [31:0] stat_sessions,
    output logic [31:0] stat_violations,
    output logic [31:0] stat_again
);
  logic broken;
  logic [15:0] body_bytes;
  logic [DATA_W-1:0] in_data, out_data;
  logic [DATA_W/8-1:0] in_keep, out_keep;
  logic in_last, in_valid, in_ready, out_last, out_valid, out_ready;

  /* verilator lint_off PINCONNECTEMPTY */
  es_efe #(
      .DATA_W(DATA_W),
      .CLOCK_NS(CLOCK_NS),
      .SLOTS(SLOTS),
      .FRAME_BYTES(FRAME_BYTES)
  ) efe (
      .clk,
      .rst,
      .open         (want || attached),
      .broken,
      .active       (1'b1),
      .want_classic,
      .features     (32'd0),
      .node,
      .fresh,
      .up,
      .classic      (),
      .agreed       (),
      .body_bytes,
      .peer         (),
      .s_axis_tdata (out_data),
      .s_axis_tkeep (out_keep),
      .s_axis_tlast (out_last),
      .s_axis_tvalid(out_valid),
      .s_axis_tready(out_ready),
      .m_axis_tdata (in_data),
      .m_axis_tkeep (in_keep),
      .m_axis_tlast (in_last),
      .m_axis_tvalid(in_valid),
      .m_axis_tready(in_ready),
      .s_mac_tdata,
      .s_mac_tkeep,
      .s_mac_tuser,
      .s_mac_tlast,
      .s_mac_tvalid,
      .m_mac_tdata,
      .m_mac_tkeep,
      .m_mac_tlast,
      .m_mac_tvalid,
      .m_mac_tready,
      .window       (),
      .srtt         (),
      .stat_good    (),
      .stat_refused (),
      .stat_check   (),
      .stat_full    (),
      .stat_sessions,
      .stat_dropped (),
      .stat_violations,
      .stat_taken   (),
      .stat_old     (),
      .stat_unwanted(),
      .stat_again,
      .stat_timeouts(),
      .stat_probes  ()
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_root #(
      .DATA_W(DATA_W),
      .NON_POSTED_TLPS(NON_POSTED_TLPS),
      .RETRY_CLOCKS(RETRY_CLOCKS)
  ) bridge (
      .s_axis_tdata (in_data),
      .s_axis_tkeep (in_keep),
      .s_axis_tlast (in_last),
      .s_axis_tvalid(in_valid),
      .s_axis_tready(in_ready),
      .m_axis_tdata (out_data),
      .m_axis_tkeep (out_keep),
      .m_axis_tlast (out_last),
      .m_axis_tvalid(out_valid),
      .m_axis_tready(out_ready),
      .*
  );
endmodule

// An I/O box of one device in hardware: the bridge and its session with a host (es_peb, es_efe), from Ethernet's payload to TLPs.
//
// The ports are those of the two; the node listens while `open`.
module es_peb_node #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int CLOCK_NS = 8,  // ns of a clock
    parameter int SLOTS = 16,  // frames on their way in each direction, a power of two, 4 to 128
    parameter int FRAME_BYTES = 1500,  // largest frame, 576 to 9216
    parameter int PEERS = 4,  // entries of the peer table
    parameter int NON_POSTED_TLPS = 256,  // Non-Posted Requests of the host that may wait, a power of two
    parameter int FENCE_CLOCKS = 1_250_000,  // clocks that a Configuration Write is waited for
    parameter int DC = 0  // bits of an address in the DC buffer, 12 to 40; 0: there is none
) (
    input wire clk,
    input wire rst,

    input  wire          open,
    input  wire          want_classic,
    input  wire  [127:0] node,
    input  wire  [ 31:0] fresh,          // a random number, not 0: the next epoch
    input  wire  [255:0] function_name,
    input  wire  [255:0] dc_name,
    output logic         up,

    input wire [  7:0] peers_index,
    input wire [127:0] peers_node,
    input wire         peers_valid,
    input wire         peers_write,

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

    output logic        link_reset,
    input  wire         link_done,
    output logic        attached,
    output logic [15:0] max_payload,
    output logic [15:0] max_read,

    output logic                                        dc_attached,
    output logic [(DC==0?12 : DC)-$clog2(DATA_W/8)-1:0] m_dc_mem_address,
    output logic                                        m_dc_mem_write,
    output logic [                          DATA_W-1:0] m_dc_mem_data,
    output logic [                        DATA_W/8-1:0] m_dc_mem_strobe,
    output logic                                        m_dc_mem_valid,
    input  wire                                         m_dc_mem_ready,
    input  wire  [                          DATA_W-1:0] s_dc_mem_data,
    input  wire                                         s_dc_mem_valid,

    output logic [31:0] stat_down,
    output logic [31:0] stat_down_malformed,
    output logic [31:0] stat_down_spoofed,
    output logic [31:0] stat_down_unrouted,
    output logic [31:0] stat_down_unrouted_completions,
    output logic [31:0] stat_passed,
    output logic [31:0] stat_fence_timeouts,
    output logic [31:0] stat_up,
    output logic [31:0] stat_up_malformed,
    output logic [31:0] stat_up_spoofed,
    output logic [31:0] stat_up_refused,
    output logic [31:0] stat_stray,
    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,
    output logic [31:0] stat_unknown,
    output logic [31:0] stat_resets,
    output logic [31:0] stat_dc_host,
    output logic [31:0] stat_dc_device,
    output logic [31:0] stat_dc_refused,
    output logic [31:0] stat_sessions,
    output logic [31:0] stat_violations,
    output logic [31:0] stat_again
);
  // docs/wire.md, section 4: PEERS, for Domain.
  localparam logic [31:0] PEERS_FEATURE = 32'd1 << 5;

  logic broken;
  logic [15:0] body_bytes;
  logic [127:0] peer;
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
      .open,
      .broken,
      .active       (1'b0),
      .want_classic,
      .features     (DC != 0 ? PEERS_FEATURE : 32'd0),
      .node,
      .fresh,
      .up,
      .classic      (),
      .agreed       (),
      .body_bytes,
      .peer,
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

  es_peb #(
      .DATA_W(DATA_W),
      .PEERS(PEERS),
      .NON_POSTED_TLPS(NON_POSTED_TLPS),
      .FENCE_CLOCKS(FENCE_CLOCKS),
      .DC(DC)
  ) bridge (
      .clk,
      .rst,
      .function_name,
      .dc_name,
      .up,
      .peer,
      .body_bytes,
      .broken,
      .peers_index,
      .peers_node,
      .peers_valid,
      .peers_write,
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
      .m_tlp_tdata,
      .m_tlp_tkeep,
      .m_tlp_tuser,
      .m_tlp_tlast,
      .m_tlp_tvalid,
      .m_tlp_tready,
      .m_tlp_room,
      .s_tlp_tdata,
      .s_tlp_tkeep,
      .s_tlp_tlast,
      .s_tlp_tvalid,
      .s_tlp_tready,
      .link_reset,
      .link_done,
      .attached,
      .max_payload,
      .max_read,
      .dc_attached,
      .m_dc_mem_address,
      .m_dc_mem_write,
      .m_dc_mem_data,
      .m_dc_mem_strobe,
      .m_dc_mem_valid,
      .m_dc_mem_ready,
      .s_dc_mem_data,
      .s_dc_mem_valid,
      .stat_down,
      .stat_down_malformed,
      .stat_down_spoofed,
      .stat_down_unrouted,
      .stat_down_unrouted_completions,
      .stat_passed,
      .stat_fence_timeouts,
      .stat_up,
      .stat_up_malformed,
      .stat_up_spoofed,
      .stat_up_refused,
      .stat_stray,
      .stat_attached,
      .stat_denied,
      .stat_unknown,
      .stat_resets,
      .stat_dc_host,
      .stat_dc_device,
      .stat_dc_refused
  );
endmodule

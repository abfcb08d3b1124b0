// One read port of memory for two readers of whole WQEs: bursts of one length, answered in order.
module es_rnic_read_share #(
    parameter int DEPTH = 4  // bursts under way, a power of two
) (
    input wire clk,
    input wire rst,

    input  wire  [63:0] s0_araddr,
    input  wire         s0_arvalid,
    output logic        s0_arready,
    output logic        s0_rvalid,
    input  wire  [63:0] s1_araddr,
    input  wire         s1_arvalid,
    output logic        s1_arready,
    output logic        s1_rvalid,

    output logic [63:0] m_axi_araddr,
    output logic        m_axi_arvalid,
    input  wire         m_axi_arready,
    input  wire         m_axi_rlast,
    input  wire         m_axi_rvalid
);
  logic whose, room, second, stalled, stalled_second;

  // The requester goes first; an address that was offered stays until it is taken.
  assign second = stalled ? stalled_second : !s0_arvalid;
  assign m_axi_araddr = second ? s1_araddr : s0_araddr;
  assign m_axi_arvalid = (s0_arvalid || s1_arvalid) && room;
  assign s0_arready = m_axi_arready && room && !second;
  assign s1_arready = m_axi_arready && room && second;

  always_ff @(posedge clk) begin
    stalled <= m_axi_arvalid && !m_axi_arready && !rst;
    stalled_second <= second;
  end

  /* verilator lint_off PINCONNECTEMPTY */
  es_fifo #(
      .WIDTH(1),
      .DEPTH(DEPTH)
  ) order (
      .clk,
      .rst,
      .s_data(second),
      .s_valid(m_axi_arvalid && m_axi_arready),
      .s_ready(room),
      .m_data(whose),
      .m_valid(),  // an answer has its question
      .m_ready(m_axi_rvalid && m_axi_rlast)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  assign s0_rvalid = m_axi_rvalid && !whose;
  assign s1_rvalid = m_axi_rvalid && whose;
endmodule

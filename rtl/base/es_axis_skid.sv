// Register slice of an AXI-Stream: all outputs registered, s_axis_tready included, at full rate.
//
// Latency 1 clock. Two places: one in front, one for the beat that arrives while tready falls.
module es_axis_skid #(
    parameter int DATA_W = 64,  // bits of tdata, a multiple of 8
    parameter int USER_W = 1    // bits of tuser
) (
    input wire clk,
    input wire rst,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire  [  USER_W-1:0] s_axis_tuser,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic [  USER_W-1:0] m_axis_tuser,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  if (DATA_W % 8 != 0 || DATA_W < 8 || USER_W < 1) begin : gen_check
    $error("es_axis_skid: DATA_W is not a multiple of 8, or USER_W below 1");
  end

  localparam int W = DATA_W + DATA_W / 8 + USER_W + 1;

  logic [W-1:0] s_beat, m_beat, kept;
  logic kept_valid;

  assign s_beat = {s_axis_tdata, s_axis_tkeep, s_axis_tuser, s_axis_tlast};
  assign {m_axis_tdata, m_axis_tkeep, m_axis_tuser, m_axis_tlast} = m_beat;
  assign s_axis_tready = !kept_valid;

  always_ff @(posedge clk) begin
    if (m_axis_tready || !m_axis_tvalid) begin
      m_axis_tvalid <= s_axis_tvalid || kept_valid;
      m_beat <= kept_valid ? kept : s_beat;
      kept_valid <= 1'b0;
    end else if (s_axis_tvalid && s_axis_tready) begin
      kept_valid <= 1'b1;
      kept <= s_beat;
    end
    if (rst) begin
      m_axis_tvalid <= 1'b0;
      kept_valid <= 1'b0;
    end
  end
endmodule

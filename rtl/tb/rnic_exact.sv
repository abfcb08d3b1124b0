// es_rnic beside a memory that answers after exactly LATENCY clocks, for figures in clocks. Each read port gives a beat a clock.
module rnic_exact #(
    parameter int DATA_W = 64,
    parameter int LATENCY = 1,     // clocks from a read's address to its first data
    parameter int WORDS = 1 << 16  // of DATA_W bits
) (
    input wire clk,
    input wire rst,
    input wire [13:0] segment_bytes,

    input  wire  [24:0] s_axil_awaddr,
    input  wire  [ 2:0] s_axil_awprot,
    input  wire         s_axil_awvalid,
    output logic        s_axil_awready,
    input  wire  [63:0] s_axil_wdata,
    input  wire  [ 7:0] s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire  [24:0] s_axil_araddr,
    input  wire  [ 2:0] s_axil_arprot,
    input  wire         s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [63:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  wire         s_axil_rready,

    output logic w_valid,

    output logic [        15:0] m_seg_length,
    output logic [        15:0] m_seg_peer,
    output logic [        15:0] m_seg_stream,
    output logic                m_seg_valid,
    input  wire                 m_seg_ready,
    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,
    input  wire  [        15:0] s_seg_length,
    input  wire  [        15:0] s_seg_peer,
    input  wire                 s_seg_valid,
    output logic                s_seg_ready,
    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready
);
  localparam int LB = $clog2(DATA_W / 8);
  localparam int AW = $clog2(WORDS);

  logic [DATA_W-1:0] memory[WORDS];
  logic [31:0] now;
  always_ff @(posedge clk) now <= rst ? '0 : now + 1'b1;

  logic [63:0] araddr[2];
  logic [ 7:0] arlen [2];
  logic arvalid[2], rvalid[2], rready[2], rlast[2];
  logic [DATA_W-1:0] rdata[2];

  for (genvar i = 0; i < 2; i++) begin : gen_port
    logic [31:0] since[16];
    logic [AW-1:0] at[16];
    logic [7:0] beats[16];
    logic [3:0] put, take;
    logic [7:0] beat;
    assign rvalid[i] = put != take && now - since[take] >= LATENCY;
    assign rlast[i]  = beat == beats[take];
    assign rdata[i]  = memory[at[take]+AW'(beat)];
    always_ff @(posedge clk) begin
      if (arvalid[i]) begin
        since[put] <= now;
        at[put] <= araddr[i][LB+:AW];
        beats[put] <= arlen[i];
        put <= put + 1'b1;
      end
      if (rvalid[i] && rready[i]) begin
        beat <= rlast[i] ? '0 : beat + 1'b1;
        if (rlast[i]) take <= take + 1'b1;
      end
      if (rst) begin
        put  <= '0;
        take <= '0;
        beat <= '0;
      end
    end
  end

  logic [63:0] awaddr;
  logic [ 7:0] awlen;
  logic awvalid, wlast, wvalid, bvalid;
  logic [  DATA_W-1:0] wdata;
  logic [DATA_W/8-1:0] wstrb;
  assign w_valid = wvalid;
  always_ff @(posedge clk) bvalid <= wvalid && wlast && !rst;

  es_rnic #(
      .DATA_W(DATA_W)
  ) rnic (
      .lost_peer      (16'd0),
      .lost_valid     (1'b0),
      .lost_ready     (),
      .m_axi_d_araddr (araddr[0]),
      .m_axi_d_arlen  (arlen[0]),
      .m_axi_d_arvalid(arvalid[0]),
      .m_axi_d_arready(1'b1),
      .m_axi_d_rdata  (rdata[0]),
      .m_axi_d_rvalid (rvalid[0]),
      .m_axi_d_rready (rready[0]),
      .m_axi_q_araddr (araddr[1]),
      .m_axi_q_arlen  (arlen[1]),
      .m_axi_q_arvalid(arvalid[1]),
      .m_axi_q_arready(1'b1),
      .m_axi_q_rdata  (rdata[1]),
      .m_axi_q_rlast  (rlast[1]),
      .m_axi_q_rvalid (rvalid[1]),
      .m_axi_q_rready (rready[1]),
      .m_axi_w_awaddr (awaddr),
      .m_axi_w_awlen  (awlen),
      .m_axi_w_awburst(),
      .m_axi_w_awvalid(awvalid),
      .m_axi_w_awready(1'b1),
      .m_axi_w_wdata  (wdata),
      .m_axi_w_wstrb  (wstrb),
      .m_axi_w_wlast  (wlast),
      .m_axi_w_wvalid (wvalid),
      .m_axi_w_wready (1'b1),
      .m_axi_w_bvalid (bvalid),
      .m_axi_w_bready (),
      .irq_vector     (),
      .irq_valid      (),
      .*
  );
endmodule

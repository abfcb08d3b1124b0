// Puts the check, CRC-32C over all bytes of a frame, behind it, most significant byte first.
//
// Latency es_crc32c_pkg::latency(DATA_W) + 1 clocks; full rate, but for one clock if the check does not fit the frame's last beat.
module es_check_append #(
    parameter int DATA_W = 64  // bits of tdata: 64, 128, 256 or 512
) (
    input wire clk,
    input wire rst,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_check_append: DATA_W is not 64, 128, 256 or 512");
  end

  localparam int BYTES = DATA_W / 8;
  localparam int CW = $clog2(BYTES);
  localparam int LATENCY = es_crc32c_pkg::latency(DATA_W);

  logic first, en, out_ready, spill;
  logic [DATA_W-1:0] data;
  logic [CW:0] zeros;

  always_comb begin
    zeros = '0;
    for (int i = 0; i < BYTES; i++) begin
      data[8*i+:8] = s_axis_tkeep[i] ? s_axis_tdata[8*i+:8] : 8'd0;
      if (!s_axis_tkeep[i]) zeros = zeros + 1'b1;
    end
  end

  logic [31:0] check;
  es_crc32c #(
      .DATA_W(DATA_W)
  ) crc (
      .clk,
      .en,
      .data,
      .valid(s_axis_tvalid && s_axis_tready),
      .first,
      .pad  (zeros[CW-1:0]),
      .check
  );

  // What waits for its check: the beat, its zeros, whether it is the last.
  logic [DATA_W-1:0] beat[LATENCY];
  logic [CW-1:0] empty[LATENCY];
  logic last[LATENCY], valid[LATENCY];

  always_ff @(posedge clk) begin
    if (en) begin
      for (int i = 0; i < LATENCY; i++) begin
        beat[i]  <= i == 0 ? data : beat[i-1];
        empty[i] <= i == 0 ? zeros[CW-1:0] : empty[i-1];
        last[i]  <= i == 0 ? s_axis_tlast : last[i-1];
        valid[i] <= i == 0 ? s_axis_tvalid && s_axis_tready : valid[i-1];
      end
      if (s_axis_tvalid && s_axis_tready) first <= s_axis_tlast;
    end
    if (rst) begin
      first <= 1'b1;
      for (int i = 0; i < LATENCY; i++) valid[i] <= 1'b0;
    end
  end

  // The frame's last beat and the check behind it may be one beat or two.
  logic [CW:0] used, rest;
  logic [DATA_W+31:0] both;
  logic [DATA_W-1:0] out_data, spilled;
  logic [BYTES-1:0] out_keep, spilled_keep;
  logic out_last, out_valid, fits;

  assign used = (CW + 1)'(BYTES) - {1'b0, empty[LATENCY-1]};
  assign fits = {1'b0, empty[LATENCY-1]} >= (CW + 1)'(4);
  assign both = {32'd0, beat[LATENCY-1]} | ((DATA_W + 32)'(es_wire_pkg::swap4(check)) << {used, 3'd0});
  assign rest = (CW + 1)'(4) - {1'b0, empty[LATENCY-1]};

  always_comb begin
    out_valid = valid[LATENCY-1];
    out_data  = beat[LATENCY-1];
    out_keep  = '1;
    out_last  = 1'b0;
    if (spill) begin
      out_valid = 1'b1;
      out_data  = spilled;
      out_keep  = spilled_keep;
      out_last  = 1'b1;
    end else if (last[LATENCY-1]) begin
      out_data = both[DATA_W-1:0];
      out_last = fits;
      if (fits) out_keep = {BYTES{1'b1}} >> (empty[LATENCY-1] - CW'(4));
    end
  end

  always_ff @(posedge clk) begin
    if (out_ready) begin
      spill <= !spill && valid[LATENCY-1] && last[LATENCY-1] && !fits;
      spilled <= DATA_W'(both[DATA_W+31:DATA_W]);
      spilled_keep <= ~({BYTES{1'b1}} << rest);
    end
    if (rst) spill <= 1'b0;
  end

  assign en = out_ready && !spill;
  assign s_axis_tready = en;

  /* verilator lint_off PINCONNECTEMPTY */
  es_axis_skid #(
      .DATA_W(DATA_W)
  ) out (
      .clk,
      .rst,
      .s_axis_tdata (out_data),
      .s_axis_tkeep (out_keep),
      .s_axis_tuser (1'b0),
      .s_axis_tlast (out_last),
      .s_axis_tvalid(out_valid),
      .s_axis_tready(out_ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tuser (),
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );
  /* verilator lint_on PINCONNECTEMPTY */
endmodule

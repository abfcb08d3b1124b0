module prove_axis_skid (
    input wire clk,
    input wire rst,
    input wire [7:0] s_axis_tdata,
    input wire s_axis_tkeep,
    input wire s_axis_tuser,
    input wire s_axis_tlast,
    input wire s_axis_tvalid,
    input wire m_axis_tready,
    input wire [7:0] any
);
  logic s_axis_tready, m_axis_tkeep, m_axis_tuser, m_axis_tlast, m_axis_tvalid;
  logic [7:0] m_axis_tdata, held;
  logic begun = 1'b0;
  logic [7:0] which;  // chosen by the solver in the first clock

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) which <= any;
  end
  always_comb if (!begun) assume (rst);

  es_axis_skid #(.DATA_W(8)) dut (.*);

  logic [10:0] s_word, m_word;
  assign s_word = {s_axis_tdata, s_axis_tkeep, s_axis_tuser, s_axis_tlast};
  assign m_word = {m_axis_tdata, m_axis_tkeep, m_axis_tuser, m_axis_tlast};

  es_axis_rules #(
      .WIDTH (11),
      .ASSUME(1)
  ) at_s (
      .clk,
      .rst,
      .payload(s_word),
      .valid  (s_axis_tvalid),
      .ready  (s_axis_tready)
  );
  es_axis_rules #(
      .WIDTH(11)
  ) at_m (
      .clk,
      .rst,
      .payload(m_word),
      .valid  (m_axis_tvalid),
      .ready  (m_axis_tready)
  );
  es_order #(
      .WIDTH(11)
  ) order (
      .clk,
      .rst,
      .which,
      .s_word,
      .s_taken(s_axis_tvalid && s_axis_tready),
      .m_word,
      .m_taken(m_axis_tvalid && m_axis_tready),
      .held
  );
  es_axis_moves #(
      .CLOCKS(0)
  ) moves (
      .clk,
      .rst,
      .waiting(begun && held != 0),
      .valid  (m_axis_tvalid)
  );
endmodule

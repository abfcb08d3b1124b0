module prove_fifo_block (
    input wire clk,
    input wire rst,
    input wire [3:0] s_data,
    input wire s_valid,
    input wire m_ready,
    input wire [7:0] any
);
  logic s_ready, m_valid;
  logic [3:0] m_data, used;
  logic [7:0] held;
  logic begun = 1'b0;
  logic [7:0] which;  // chosen by the solver in the first clock

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) which <= any;
  end
  always_comb if (!begun) assume (rst);

  es_fifo_block #(
      .WIDTH(4),
      .DEPTH(4)
  ) dut (
      .*
  );

  es_axis_rules #(
      .WIDTH (4),
      .ASSUME(1)
  ) at_s (
      .clk,
      .rst,
      .payload(s_data),
      .valid  (s_valid),
      .ready  (s_ready)
  );
  es_axis_rules #(
      .WIDTH(4)
  ) at_m (
      .clk,
      .rst,
      .payload(m_data),
      .valid  (m_valid),
      .ready  (m_ready)
  );
  es_order #(
      .WIDTH(4)
  ) order (
      .clk,
      .rst,
      .which,
      .s_word (s_data),
      .s_taken(s_valid && s_ready),
      .m_word (m_data),
      .m_taken(m_valid && m_ready),
      .held
  );
  es_axis_moves #(
      .CLOCKS(2)
  ) moves (
      .clk,
      .rst,
      .waiting(begun && held != 0),
      .valid  (m_valid)
  );
  always_comb if (begun && !rst) assert (held == 8'(used));
endmodule

// Only committed words come out, each once, in order.
module prove_fifo_commit (
    input wire clk,
    input wire rst,
    input wire [3:0] s_data,
    input wire s_valid,
    input wire s_commit,
    input wire s_drop,
    input wire m_ready,
    input wire [7:0] any
);
  logic s_full, m_valid;
  logic [3:0] m_data, word;
  logic begun = 1'b0;
  logic [7:0] which, committed = '0, waiting = '0, went = '0;

  always_comb if (!begun) assume (rst);

  es_fifo_commit #(
      .WIDTH(4),
      .DEPTH(4)
  ) dut (
      .*
  );

  // `word` is the which-th of those committed, or will be if what waits is.
  logic put;
  logic [7:0] after;
  assign put   = s_valid && !s_full;
  assign after = waiting + 8'(put);

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) which <= any;
    if (put && committed + waiting == which) word <= s_data;
    if (s_drop) waiting <= '0;
    else if (s_commit) begin
      waiting   <= '0;
      committed <= committed + after;
    end else waiting <= after;
    if (m_valid && m_ready) went <= went + 1'b1;
    if (rst) begin
      waiting <= '0;
      committed <= '0;
      went <= '0;
    end
  end

  es_axis_rules #(
      .WIDTH(4)
  ) at_m (
      .clk,
      .rst,
      .payload(m_data),
      .valid  (m_valid),
      .ready  (m_ready)
  );
  es_axis_moves #(
      .CLOCKS(2)
  ) moves (
      .clk,
      .rst,
      .waiting(begun && went != committed),
      .valid  (m_valid)
  );
  always_comb
    if (begun && !rst) begin
      if (m_valid) assert (went != committed);
      if (m_valid && went == which) assert (m_data == word);
      assert (committed - went <= 8'd9);
    end
endmodule

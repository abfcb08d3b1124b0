// Nothing is lost, doubled, changed or put out of order between an input and an output: the solver picks any one word and follows it.
//
// `which` is an arbitrary constant: the which-th word taken in must be the which-th handed out, and no more are handed out than came in.
module es_order #(
    parameter int WIDTH = 8,  // bits of a word
    parameter int COUNT = 8   // bits of the counters: enough for the depth of the proof
) (
    input  wire              clk,
    input  wire              rst,
    input  wire  [COUNT-1:0] which,
    input  wire  [WIDTH-1:0] s_word,
    input  wire              s_taken,
    input  wire  [WIDTH-1:0] m_word,
    input  wire              m_taken,
    output logic [COUNT-1:0] held      // words inside
);
  logic [COUNT-1:0] came = '0, went = '0;
  logic [WIDTH-1:0] word;

  always_ff @(posedge clk) begin
    if (s_taken) came <= came + 1'b1;
    if (m_taken) went <= went + 1'b1;
    if (s_taken && came == which) word <= s_word;
    if (rst) begin
      came <= '0;
      went <= '0;
    end
  end

  assign held = came - went;
  // A path of no clocks would hand out in the clock in which it takes in: none of ours does.
  always_comb
    if (!rst && m_taken) begin
      assert (held != '0);
      if (went == which) assert (m_word == word);
    end
endmodule

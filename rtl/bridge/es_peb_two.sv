// Two sources for one reader, in turn: who of them is shown.
//
// With STAYS who is shown and valid stays until it is taken, for a reader that counts on what it has seen; otherwise what is not taken gives way to the other.
// A source that becomes valid is shown a clock later, or at once if it already is the one.
module es_peb_two #(
    parameter bit STAYS = 1
) (
    input wire clk,
    input wire rst,

    input  wire  [1:0] s_valid,
    output logic       index,    // the one that is shown
    output logic       m_valid,
    input  wire        m_ready
);
  assign m_valid = s_valid[index];

  always_ff @(posedge clk) begin
    if (s_valid[!index] && (!m_valid || m_ready || !STAYS)) index <= !index;
    if (rst) index <= 1'b0;
  end
endmodule

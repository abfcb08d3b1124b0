// Synchronous FIFO, the first word falls through: m_data is registered and there while m_valid.
//
// Latency 1 clock, also through an empty FIFO. Holds DEPTH words in memory and one at the output. The memory is read asynchronously
// (distributed RAM): for shallow FIFOs. Long ones of a data path are es_fifo_block.
module es_fifo #(
    parameter int WIDTH = 64,  // bits of a word
    parameter int DEPTH = 16   // words, a power of two
) (
    input wire clk,
    input wire rst,

    input  wire  [WIDTH-1:0] s_data,
    input  wire              s_valid,
    output logic             s_ready,

    output logic [WIDTH-1:0] m_data,
    output logic             m_valid,
    input  wire              m_ready
);
  localparam int AW = DEPTH > 1 ? $clog2(DEPTH) : 1;

  if (DEPTH < 2 || (1 << AW) != DEPTH || WIDTH < 1) begin : gen_check
    $error("es_fifo: DEPTH is not a power of two of at least 2, or WIDTH below 1");
  end

  logic [WIDTH-1:0] memory[DEPTH];
  // One bit more than the address, so that full differs from empty.
  logic [AW:0] written, taken;
  logic empty, load, put, bypass;

  assign empty = written == taken;
  assign load = m_ready || !m_valid;
  assign bypass = empty && load;
  assign put = s_valid && s_ready;

  always_ff @(posedge clk) begin
    if (put && !bypass) memory[written[AW-1:0]] <= s_data;
    if (load) m_data <= empty ? s_data : memory[taken[AW-1:0]];
  end

  always_ff @(posedge clk) begin
    if (load) m_valid <= !empty || put;
    if (put && !bypass) written <= written + 1'b1;
    if (load && !empty) taken <= taken + 1'b1;
    // Full by the pointers after this clock: ready is a register and does not hang on m_ready.
    s_ready <= (written + (AW + 1)'(put && !bypass) - taken - (AW + 1)'(load && !empty)) != (AW + 1)'(DEPTH);
    if (rst) begin
      m_valid <= 1'b0;
      written <= '0;
      taken   <= '0;
      s_ready <= 1'b0;
    end
  end
endmodule

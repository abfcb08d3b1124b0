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
  logic [AW-1:0] put_at, take_at;
  // Words in memory. `empty` and s_ready are kept beside, as no comparison is to stand behind m_ready.
  logic [AW:0] count;
  logic empty, load, put, store, take;

  assign load  = m_ready || !m_valid;
  assign put   = s_valid && s_ready;
  assign store = put && !(empty && load);
  assign take  = load && !empty;

  always_ff @(posedge clk) begin
    if (store) memory[put_at] <= s_data;
    if (load) m_data <= empty ? s_data : memory[take_at];
  end

  always_ff @(posedge clk) begin
    if (load) m_valid <= !empty || put;
    if (store) put_at <= put_at + 1'b1;
    if (take) take_at <= take_at + 1'b1;
    s_ready <= 1'b1;
    if (store && !take) begin
      count   <= count + 1'b1;
      empty   <= 1'b0;
      s_ready <= count != (AW + 1)'(DEPTH - 1);
    end else if (take && !store) begin
      count <= count - 1'b1;
      empty <= count == (AW + 1)'(1);
    end else s_ready <= count != (AW + 1)'(DEPTH);
    if (rst) begin
      m_valid <= 1'b0;
      put_at  <= '0;
      take_at <= '0;
      count   <= '0;
      empty   <= 1'b1;
      s_ready <= 1'b0;
    end
  end
endmodule

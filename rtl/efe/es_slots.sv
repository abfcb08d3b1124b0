// Memory of bodies of Data frames, a slot for each sequence that can be on its way: written by one stream, read by another, in any order.
//
// `s_axis_*` goes into slot `s_slot`, which must not change within a packet; its length counts once the packet has ended. A packet that is too long is cut.
// `read` starts reading `read_slot` while `idle`; the body follows at `m_axis_*`, a beat a clock. A slot whose length is 0 gives nothing.
module es_slots #(
    parameter int DATA_W = 64,    // bits of tdata
    parameter int SLOTS = 16,     // frames, a power of two
    parameter int SLOT_BEATS = 256  // beats of the longest body, a power of two
) (
    input wire clk,
    input wire rst,

    input wire                     s_restart,     // the packet that has begun will not end
    input wire [$clog2(SLOTS)-1:0] s_slot,
    input wire [       DATA_W-1:0] s_axis_tdata,
    input wire [     DATA_W/8-1:0] s_axis_tkeep,
    input wire                     s_axis_tlast,
    input wire                     s_axis_tvalid,

    input  wire  [$clog2(SLOTS)-1:0] read_slot,
    input  wire                      read,
    output logic                     idle,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  localparam int SW = $clog2(SLOTS);
  localparam int BW = $clog2(SLOT_BEATS);
  localparam int BYTES = DATA_W / 8;
  localparam int WIDTH = DATA_W + BYTES + 1;

  if (SLOTS < 4 || (1 << SW) != SLOTS || SLOT_BEATS < 4 || (1 << BW) != SLOT_BEATS) begin : gen_check
    $error("es_slots: SLOTS or SLOT_BEATS is not a power of two of at least 4");
  end

  logic [WIDTH-1:0] memory[SLOTS*SLOT_BEATS];
  logic [BW-1:0] put, get;
  logic [SW-1:0] slot;
  logic [WIDTH-1:0] word;
  logic reading, word_valid, word_ready, cut, step, taken;
  logic [2:0] ahead;

  assign cut = &put;

  // The last beat is marked in memory, so a slot needs no length beside it.
  always_ff @(posedge clk) begin
    if (s_axis_tvalid) memory[{s_slot, put}] <= {s_axis_tlast || cut, s_axis_tkeep, s_axis_tdata};
    word <= memory[{slot, get}];
  end

  assign taken = m_axis_tvalid && m_axis_tready;
  // A beat is read while the short FIFO behind the memory has room; the one in `word` may be the last, then what follows is thrown away.
  assign step  = reading && (ahead < 3'd4 || taken) && !(word_valid && word[WIDTH-1]);
  assign idle  = !reading;

  always_ff @(posedge clk) begin
    if (s_axis_tvalid) put <= s_axis_tlast ? '0 : (cut ? put : put + 1'b1);
    word_valid <= step;
    ahead <= ahead + 3'(step) - 3'(taken);
    if (step) get <= get + 1'b1;
    if (word_valid && word[WIDTH-1]) reading <= 1'b0;
    if (read && idle) begin
      reading <= 1'b1;
      slot <= read_slot;
      get <= '0;
    end
    if (rst || s_restart) put <= '0;
    if (rst) begin
      reading <= 1'b0;
      word_valid <= 1'b0;
      ahead <= '0;
    end
  end

  es_fifo #(
      .WIDTH(WIDTH),
      .DEPTH(4)
  ) front (
      .clk,
      .rst,
      .s_data (word),
      .s_valid(word_valid),
      .s_ready(word_ready),
      .m_data ({m_axis_tlast, m_axis_tkeep, m_axis_tdata}),
      .m_valid(m_axis_tvalid),
      .m_ready(m_axis_tready)
  );

  always_ff @(posedge clk) if (!rst && word_valid) assert (word_ready);
endmodule

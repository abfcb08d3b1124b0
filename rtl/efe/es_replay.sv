// Whether a packet number is new: those up to 4096 behind the newest are remembered one by one, older ones are not taken, nor those 2^30 and more ahead.
//
// `check` asks for `number`; `done` comes 6 clocks later with `is_new`, and the number is remembered. One question at a time.
module es_replay (
    input wire clk,
    input wire rst,  // of a session, too

    input wire [63:0] number,
    input wire check,
    output logic is_new,
    output logic done
);
  // A word of 64 numbers, and which numbers these are: what the memory has of others is as good as empty. Twice as many as have to be
  // remembered, so that the newest word never takes the place of one that is needed.
  localparam int WORDS = 128;
  localparam int TAG_W = 64 - 6 - 7;

  typedef struct packed {
    logic [TAG_W-1:0] tag_bits;
    logic [63:0] seen;
  } entry_t;

  // A question goes through these, a clock each: the word is read and the distances are taken; the word is kept, and the distances say whether the number is in
  // range; whether the word is of this number; what it says of its 64; the answer.
  localparam int STEPS = 5;

  entry_t memory[WORDS];
  entry_t entry, kept;
  logic [63:0] asked, newest, seen;
  logic [64:0] ahead, behind;  // the uppermost bit is the borrow
  logic [WORDS-1:0] used;  // words written in this session
  logic was_used, any, known, in_range;
  logic [STEPS-1:0] at;

  always_ff @(posedge clk) begin
    if (check) asked <= number;
    entry <= memory[asked[12:6]];
    was_used <= used[asked[12:6]];
    ahead <= {1'b0, asked} - {1'b0, newest};
    behind <= {1'b0, newest} - {1'b0, asked};
    kept <= entry;
    in_range <= !any || (ahead[64] ? behind <= 65'd4096 : ahead <= 65'h4000_0000);
    known <= was_used && kept.tag_bits == asked[63:13];
    seen <= known ? kept.seen : '0;
    is_new <= in_range && !seen[asked[5:0]];
    if (at[STEPS-1] && in_range) memory[asked[12:6]] <= {asked[63:13], seen | (64'd1 << asked[5:0])};
  end

  always_ff @(posedge clk) begin
    at   <= {at[STEPS-2:0], check};
    done <= at[STEPS-1];
    if (at[STEPS-1] && in_range) begin
      used[asked[12:6]] <= 1'b1;
      any <= 1'b1;
      if (!any || !ahead[64]) newest <= asked;
    end
    if (rst) begin
      used <= '0;
      any  <= 1'b0;
      at   <= '0;
      done <= 1'b0;
    end
  end
endmodule

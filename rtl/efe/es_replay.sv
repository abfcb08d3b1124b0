// Whether a packet number is new: those up to 4096 behind the newest are remembered one by one, older ones are not taken, nor those 2^30 and more ahead.
//
// `check` asks for `number`; `done` comes 3 clocks later with `is_new`, and the number is remembered. One question at a time.
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

  entry_t memory[WORDS];
  entry_t entry;
  logic [63:0] asked, newest, seen;
  logic [WORDS-1:0] used;  // words written in this session
  logic reading, judging, any, known, in_range;

  assign known = used[asked[12:6]] && entry.tag_bits == asked[63:13];
  assign seen = known ? entry.seen : '0;
  assign in_range = !any || (asked > newest ? asked - newest <= 64'h4000_0000 : newest - asked <= 64'd4096);

  always_ff @(posedge clk) begin
    entry <= memory[asked[12:6]];
    if (judging && in_range) memory[asked[12:6]] <= {asked[63:13], seen | (64'd1 << asked[5:0])};
  end

  always_ff @(posedge clk) begin
    if (check) asked <= number;
    reading <= check;
    judging <= reading;
    done <= judging;
    is_new <= in_range && !seen[asked[5:0]];
    if (judging && in_range) begin
      used[asked[12:6]] <= 1'b1;
      any <= 1'b1;
      if (!any || asked > newest) newest <= asked;
    end
    if (rst) begin
      used <= '0;
      any <= 1'b0;
      reading <= 1'b0;
      judging <= 1'b0;
      done <= 1'b0;
    end
  end
endmodule

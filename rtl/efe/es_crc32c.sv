// CRC-32C over the words of a frame, one word a clock: constant masks, no loop through more than one word.
//
// `data` has zeros behind the frame's last byte; `pad` says how many in this word. `check` belongs to the word that came
// es_crc32c_pkg::latency(DATA_W) enabled clocks before; it is the check if that was the last word, to be used in that clock only. The
// zeros are undone by halves: 2^n of them in one stage, two stages a clock.
module es_crc32c #(
    parameter int DATA_W = 64  // bits of a word: 64, 128, 256 or 512
) (
    input wire clk,
    input wire en,

    input wire [DATA_W-1:0] data,
    input wire valid,
    input wire first,
    input wire [$clog2(DATA_W/8)-1:0] pad,

    output logic [31:0] check
);
  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_crc32c: DATA_W is not 64, 128, 256 or 512");
  end

  localparam int STEPS = $clog2(DATA_W / 8);
  localparam int STAGES = (STEPS + 1) / 2;

  logic [DATA_W-1:0] seeded;
  logic [31:0] of_data, of_state, sum, state;
  logic valid_1, first_1;
  logic [STEPS-1:0] pad_1, pad_2;

  // The initial state of ones counts like the first four bytes.
  assign seeded = data ^ DATA_W'({32{first}});

  always_comb begin
    for (int i = 0; i < 32; i++) begin
      of_data[i]  = ^(seeded & es_crc32c_pkg::DATA[i][511-:DATA_W]);
      of_state[i] = ^(state & es_crc32c_pkg::DATA[i][512-DATA_W+:32]);
    end
  end

  always_ff @(posedge clk) begin
    if (en) begin
      sum <= of_data;
      valid_1 <= valid;
      first_1 <= first;
      pad_1 <= pad;
      pad_2 <= pad_1;
      if (valid_1) state <= sum ^ (first_1 ? 32'd0 : of_state);
    end
  end

  logic [31:0] undone[STAGES+1];
  logic [STEPS-1:0] left[STAGES+1];

  assign undone[0] = state;
  assign left[0]   = pad_2;

  for (genvar stage = 0; stage < STAGES; stage++) begin : gen_undo
    logic [31:0] once, twice;

    always_comb begin
      for (int i = 0; i < 32; i++) once[i] = ^(undone[stage] & es_crc32c_pkg::UNDO[64*stage+i]);
      if (!left[stage][2*stage]) once = undone[stage];
    end
    if (2 * stage + 1 < STEPS) begin : gen_two
      always_comb begin
        for (int i = 0; i < 32; i++) twice[i] = ^(once & es_crc32c_pkg::UNDO[64*stage+32+i]);
        if (!left[stage][2*stage+1]) twice = once;
      end
    end else begin : gen_one
      assign twice = once;
    end
    always_ff @(posedge clk) begin
      if (en) begin
        undone[stage+1] <= twice;
        left[stage+1]   <= left[stage];
      end
    end
  end

  assign check = ~undone[STAGES];
endmodule

// The receiving half of a session: which Data frames have come, their bodies in order, and what there is to acknowledge.
//
// A Data frame is shown by `s_sequence` and `s_length` with `s_valid`; in the same clock `s_take` says whether it is new and wanted. Then its body, if it
// has one, comes by `s_axis_*`, which always takes. `s_sequence` and `s_length` are there a clock before s_valid. Bodies go out in the order of sequences by `m_axis_*`, a packet each; empty ones do not.
//
// Classic: only the next frame is taken. Otherwise frames ahead of a gap wait in their slots, and `sack` tells of them.
module es_efe_receive #(
    parameter int DATA_W     = 64,  // bits of tdata
    parameter int SLOTS      = 16,  // frames of the receive window, a power of two, at most 128
    parameter int SLOT_BEATS = 256  // beats of the longest body, a power of two
) (
    input wire clk,
    input wire rst,   // of a session, too
    input wire clear, // the counters

    input wire        classic,
    input wire [31:0] first,    // sequence of the first frame

    input  wire  [31:0] s_sequence,
    input  wire  [15:0] s_length,
    input  wire         s_valid,
    output logic        s_take,
    output logic        s_beyond,    // beyond the credit given
    output logic        s_in_order,  // the next one, and nothing is missing

    input wire [  DATA_W-1:0] s_axis_tdata,
    input wire [DATA_W/8-1:0] s_axis_tkeep,
    input wire                s_axis_tlast,
    input wire                s_axis_tvalid,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output logic               [31:0] next,    // sequence that is missing first
    output logic               [31:0] credit,  // first that is not taken
    output logic                      gap,     // frames are missing before others that have come
    output es_wire_pkg::sack_t        sack,

    output logic [31:0] stat_taken,
    output logic [31:0] stat_old,
    output logic [31:0] stat_dropped  // ahead of a gap in classic mode, or beyond credit
);
  localparam int SW = $clog2(SLOTS);

  if (SLOTS > 128) begin : gen_check
    $error("es_efe_receive: SLOTS above 128");
  end

  // Bodies of frames before `freed` have gone out.
  // Distances within SLOTS are counted in SW + 1 bits.
  logic [31:0] freed, ahead, past_credit;
  logic [SW:0] held;  // frames before `next` whose bodies have not gone out
  logic [SLOTS-1:0] present;
  logic [SW-1:0] slot;
  logic fits, old, waiting;  // the body of a frame that was taken comes

  // What is said is of the clock before: `next` may have moved since, but then the frame it has passed is still present.
  always_ff @(posedge clk) begin
    ahead <= s_sequence - next;
    past_credit <= s_sequence - credit;
    fits <= s_length <= 16'(SLOT_BEATS * (DATA_W / 8));
    credit <= freed + SLOTS;
    if (rst) credit <= first + SLOTS;
  end
  assign old = ahead[31] || (ahead < SLOTS && present[s_sequence[SW-1:0]] && !s_beyond);
  assign s_beyond = !ahead[31] && !past_credit[31];
  assign s_in_order = ahead == '0 && !gap;
  assign s_take = fits && !old && !s_beyond && (!classic || ahead == '0);
  assign held = next[SW:0] - freed[SW:0];

  // Whether a frame before `next` has a body: bit of its slot.
  logic [SLOTS-1:0] has_body;
  logic idle, read, skip, ends, put_last;  // skip: the next one has no body
  logic [31:0] reading;  // the frame whose body is read next
  logic m_ends;

  assign put_last = waiting && s_axis_tvalid && s_axis_tlast;
  assign m_ends   = m_axis_tvalid && m_axis_tready && m_axis_tlast;

  always_ff @(posedge clk) begin
    if (s_valid && s_take) begin
      slot <= s_sequence[SW-1:0];
      waiting <= s_length != 16'd0;
      has_body[s_sequence[SW-1:0]] <= s_length != 16'd0;
      if (s_length == 16'd0) present[s_sequence[SW-1:0]] <= 1'b1;
    end
    if (put_last) begin
      waiting <= 1'b0;
      present[slot] <= 1'b1;
    end
    // `next` walks over what has come, a frame a clock.
    if (present[next[SW-1:0]] && !held[SW]) next <= next + 1'b1;
    // A body is read, and its slot is free once the last beat has gone; one that is empty at once.
    if (ends) begin
      freed <= freed + 1'b1;
      present[freed[SW-1:0]] <= 1'b0;
    end
    if (read || skip) reading <= reading + 1'b1;
    if (rst) begin
      next <= first;
      freed <= first;
      reading <= first;
      present <= '0;
      waiting <= 1'b0;
    end
  end

  assign read = reading[SW:0] != next[SW:0] && has_body[reading[SW-1:0]] && idle;
  assign skip = reading[SW:0] != next[SW:0] && !has_body[reading[SW-1:0]] && reading[SW:0] == freed[SW:0];
  assign ends = m_ends || skip;

  es_slots #(
      .DATA_W(DATA_W),
      .SLOTS(SLOTS),
      .SLOT_BEATS(SLOT_BEATS)
  ) bodies (
      .clk,
      .rst,
      .s_restart(1'b0),
      .s_slot(slot),
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tlast,
      .s_axis_tvalid(waiting && s_axis_tvalid),
      .read_slot(reading[SW-1:0]),
      .read,
      .idle,
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );

  // What has come from `next` on, first the next; what waits to go out does not count though its slots are the same.
  logic [SLOTS-1:0] turned, from_next;

  assign turned = SLOTS'({present, present} >> next[SW-1:0]);
  assign from_next = turned & ~({SLOTS{1'b1}} << ((SW + 1)'(SLOTS) - held));

  always_ff @(posedge clk) begin
    sack.base   <= next;
    sack.bitmap <= '0;
    for (int i = 0; i < SLOTS; i++) sack.bitmap[es_wire_pkg::SACK_BITS-1-i] <= from_next[i];
    gap <= from_next != '0 && !classic;
    if (rst) gap <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (s_valid) begin
      if (s_take) stat_taken <= stat_taken + 1'b1;
      else if (old) stat_old <= stat_old + 1'b1;
      else stat_dropped <= stat_dropped + 1'b1;
    end
    if (clear) begin
      stat_taken <= '0;
      stat_old <= '0;
      stat_dropped <= '0;
    end
  end
endmodule

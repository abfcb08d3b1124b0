// TLPs for a Link whose taker has room for each flow control class apart: what may pass what (PCI Express Base Specification 6.0, 2.4.1).
//
// A queue for each class, first in, first out. What leaves leaves in the order in which it came, unless the taker has no room for its class; then
//
//   | may pass what came before it | Posted | Non-Posted | Completion |
//   | Posted                       | no     | yes        | yes        |
//   | Non-Posted                   | no     | no         | yes        |
//   | Completion                   | no (a) | yes        | no         |
//
// (a) but with Relaxed Ordering. That is: a Posted Request and a Completion never wait for a Non-Posted Request, as 2.4.1 demands (A3, A4, D3, D4), and nothing
// passes a Posted Request (A2, B2, C2, D2a).
//
// Beyond that a Configuration Write can be a *fence* (`s_hdr_fence`): Posted and Non-Posted Requests behind it wait until `done` says that it was answered. A host
// node counts on that, since the stream that brings them is strictly in order: what it writes through a BAR must not come before the BAR is set. After FENCE_CLOCKS
// without an answer they go on.
//
// `m_room` has a bit for each class: a whole TLP of that class can be taken. `completion_room`: so can a Completion of 512 bytes here. Latency 4 clocks.
module es_peb_order #(
    parameter int DATA_W = 64,  // bits of tdata
    parameter int POSTED_DEPTH = 1024,  // beats of the queue, a power of two
    parameter int NON_POSTED_DEPTH = 1024,
    parameter int COMPLETION_DEPTH = 1024,
    parameter int TLPS = 64,  // Posted Requests, and as many Completions, a power of two
    parameter int NON_POSTED_TLPS = 256,  // Non-Posted Requests, a power of two: as many as the other side has Tags
    parameter int FENCE_CLOCKS = 1_250_000  // clocks that a fence lasts without an answer, 0: forever
) (
    input wire clk,
    input wire rst,
    input wire clear,  // the counters
    input wire halt,   // nothing more begins to leave

    input  wire  [ 1:0] s_hdr_class,
    input  wire         s_hdr_relaxed,      // of a Completion: Relaxed Ordering
    input  wire         s_hdr_fence,        // of a Non-Posted Request
    input  wire  [25:0] s_hdr_transaction,  // of a fence
    input  wire         s_hdr_valid,
    output logic        s_hdr_ready,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic completion_room,

    input wire [ 2:0] m_room,
    input wire [25:0] done,       // the transaction that was answered
    input wire        done_valid,

    output logic [         1:0] m_axis_tuser,   // the class
    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output logic        busy,          // a TLP has begun to leave
    output logic [31:0] stat_passed,   // Posted Requests that passed others, Completions that passed Posted Requests
    output logic [31:0] stat_timeouts  // fences without an answer
);
  localparam int W = DATA_W + DATA_W / 8 + 1;
  localparam int LONG_BEATS = (16 + 512) / (DATA_W / 8) + 3;
  // Stamps tell Posted Requests apart as long as they are in a queue, and a bit more.
  localparam int CW = $clog2(TLPS > NON_POSTED_TLPS ? TLPS : NON_POSTED_TLPS) + 2;

  if (TLPS < 2 || NON_POSTED_TLPS < 2 || FENCE_CLOCKS < 0) begin : gen_check
    $error("es_peb_order: TLPS or NON_POSTED_TLPS below 2, or FENCE_CLOCKS below 0");
  end

  // In: a header, then its packet.
  logic filling;
  logic [1:0] fill_class;
  logic take_header;
  logic [2:0] queue_ready, note_ready, put_note, put;

  assign s_hdr_ready   = !filling && note_ready[s_hdr_class];
  assign take_header   = s_hdr_valid && s_hdr_ready;
  assign s_axis_tready = filling && queue_ready[fill_class];

  always_ff @(posedge clk) begin
    if (take_header) begin
      filling <= 1'b1;
      fill_class <= s_hdr_class;
    end
    if (s_axis_tvalid && s_axis_tready && s_axis_tlast) filling <= 1'b0;
    if (rst) filling <= 1'b0;
  end

  // What has come and gone.
  logic [CW-1:0] posted_in, posted_out, fences_in, fences_done;
  logic [2:0] begin_now;
  logic posted_goes, fence_goes;

  always_comb for (int i = 0; i < 3; i++) put_note[i] = take_header && s_hdr_class == 2'(i);

  // A Posted Request: how many fences came before it. Others: how many Posted Requests did.
  logic [CW-1:0] posted_fences;
  logic posted_noted, non_posted_noted, completion_noted;
  logic [CW-1:0] non_posted_stamp, completion_stamp;
  logic non_posted_due, completion_due, completion_relaxed;

  es_fifo #(
      .WIDTH(CW),
      .DEPTH(TLPS)
  ) posted_notes (
      .clk,
      .rst,
      .s_data (fences_in),
      .s_valid(put_note[es_peb_pkg::POSTED]),
      .s_ready(note_ready[es_peb_pkg::POSTED]),
      .m_data (posted_fences),
      .m_valid(posted_noted),
      .m_ready(begin_now[es_peb_pkg::POSTED])
  );

  // Whether all Posted Requests before it have left is asked for one after the other, soon after it came: so stamps need few bits, however long a TLP then waits.
  logic non_posted_ready, completion_ready;
  logic [CW-1:0] non_posted_free, completion_free;  // TLPs that none has to wait for any more

  function automatic logic reached(input logic [CW-1:0] stamp);
    logic [CW-1:0] ahead;
    ahead = posted_out - stamp;
    return !ahead[CW-1];
  endfunction

  es_fifo #(
      .WIDTH(CW),
      .DEPTH(NON_POSTED_TLPS)
  ) non_posted_stamps (
      .clk,
      .rst,
      .s_data (posted_in),
      .s_valid(put_note[es_peb_pkg::NON_POSTED]),
      .s_ready(non_posted_ready),
      .m_data (non_posted_stamp),
      .m_valid(non_posted_noted),
      .m_ready(non_posted_due)
  );
  assign non_posted_due = non_posted_noted && reached(non_posted_stamp);

  es_fifo #(
      .WIDTH(CW),
      .DEPTH(TLPS)
  ) completion_stamps (
      .clk,
      .rst,
      .s_data (posted_in),
      .s_valid(put_note[es_peb_pkg::COMPLETION]),
      .s_ready(completion_ready),
      .m_data (completion_stamp),
      .m_valid(completion_noted),
      .m_ready(completion_due)
  );
  assign completion_due = completion_noted && reached(completion_stamp);

  // What else has to be known of the next one of a class.
  logic next_fence, non_posted_there, completion_there, fence_room, relaxed_room;
  logic [25:0] next_transaction, held_transaction;

  es_fifo #(
      .WIDTH(27),
      .DEPTH(NON_POSTED_TLPS)
  ) fences (
      .clk,
      .rst,
      .s_data ({s_hdr_fence, s_hdr_transaction}),
      .s_valid(put_note[es_peb_pkg::NON_POSTED]),
      .s_ready(fence_room),
      .m_data ({next_fence, next_transaction}),
      .m_valid(non_posted_there),
      .m_ready(begin_now[es_peb_pkg::NON_POSTED])
  );
  es_fifo #(
      .WIDTH(1),
      .DEPTH(TLPS)
  ) relaxed (
      .clk,
      .rst,
      .s_data (s_hdr_relaxed),
      .s_valid(put_note[es_peb_pkg::COMPLETION]),
      .s_ready(relaxed_room),
      .m_data (completion_relaxed),
      .m_valid(completion_there),
      .m_ready(begin_now[es_peb_pkg::COMPLETION])
  );
  assign note_ready[es_peb_pkg::NON_POSTED] = non_posted_ready && fence_room;
  assign note_ready[es_peb_pkg::COMPLETION] = completion_ready && relaxed_room;

  // Fences.
  logic held;
  logic [$clog2(FENCE_CLOCKS+2)-1:0] waited;
  logic answered, expired;
  assign answered = held && done_valid && done == held_transaction;
  assign expired  = held && FENCE_CLOCKS != 0 && waited == ($clog2(FENCE_CLOCKS + 2))'(FENCE_CLOCKS);

  // Which one is next. A Completion with Relaxed Ordering passes only what the taker has no room for: so Posted Requests cannot starve.
  logic [2:0] may, room, begins;
  logic turn;  // of Non-Posted Request and Completion the one that did not leave last
  logic sending;
  logic [1:0] class_now;

  assign may[es_peb_pkg::POSTED] = posted_noted && posted_fences == fences_done;
  assign may[es_peb_pkg::NON_POSTED] = non_posted_there && non_posted_free != '0 && !held;
  assign may[es_peb_pkg::COMPLETION] = completion_there && (completion_free != '0 || (completion_relaxed && !m_room[es_peb_pkg::POSTED]));
  assign room = may & m_room;
  always_comb begin
    begins = 3'b000;
    if (room[1] && (!room[2] || !turn)) begins[1] = 1'b1;
    else if (room[2]) begins[2] = 1'b1;
    else if (room[0]) begins[0] = 1'b1;
  end
  assign begin_now   = sending || halt ? 3'b000 : begins;
  assign posted_goes = begin_now[es_peb_pkg::POSTED];
  assign fence_goes  = begin_now[es_peb_pkg::NON_POSTED] && next_fence;

  always_ff @(posedge clk) begin
    if (|begin_now) begin
      sending   <= 1'b1;
      class_now <= begin_now[0] ? es_peb_pkg::POSTED : begin_now[1] ? es_peb_pkg::NON_POSTED : es_peb_pkg::COMPLETION;
      if (!begin_now[0]) turn <= begin_now[1];
    end
    if (m_axis_tvalid && m_axis_tready && m_axis_tlast) sending <= 1'b0;
    if (rst) begin
      sending <= 1'b0;
      turn <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (fence_goes) held_transaction <= next_transaction;
    waited <= waited + 1'b1;
    if (fence_goes) waited <= '0;
  end

  // A relaxed Completion that leaves before its turn takes the turn that comes later.
  logic completion_owes;
  logic [CW-1:0] owed;
  assign completion_owes = begin_now[es_peb_pkg::COMPLETION] && completion_free == '0;

  always_ff @(posedge clk) begin
    posted_in <= posted_in + CW'(put_note[es_peb_pkg::POSTED]);
    posted_out <= posted_out + CW'(posted_goes);
    fences_in <= fences_in + CW'(put_note[es_peb_pkg::NON_POSTED] && s_hdr_fence);
    non_posted_free <= non_posted_free + CW'(non_posted_due) - CW'(begin_now[es_peb_pkg::NON_POSTED]);
    if (completion_owes && !completion_due) owed <= owed + 1'b1;
    else if (completion_due && owed != '0 && !completion_owes) owed <= owed - 1'b1;
    completion_free <= completion_free + CW'(completion_due && owed == '0 && !completion_owes) -
        CW'(begin_now[es_peb_pkg::COMPLETION] && !completion_owes);
    if (fence_goes) held <= 1'b1;
    if (answered || expired) begin
      held <= 1'b0;
      fences_done <= fences_done + 1'b1;
    end
    if (rst) begin
      posted_in <= '0;
      posted_out <= '0;
      fences_in <= '0;
      fences_done <= '0;
      non_posted_free <= '0;
      completion_free <= '0;
      owed <= '0;
      held <= 1'b0;
    end
  end

  // Beats.
  logic [W-1:0] beat[3];
  logic [2:0] beat_valid, beat_ready;
  logic [31:0] kept[3];
  for (genvar i = 0; i < 3; i++) begin : gen_queue
    localparam int D = i == 0 ? POSTED_DEPTH : i == 1 ? NON_POSTED_DEPTH : COMPLETION_DEPTH;
    assign put[i] = s_axis_tvalid && filling && fill_class == 2'(i);
    assign beat_ready[i] = sending && class_now == 2'(i) && m_axis_tready;
    logic [$clog2(D)+1:0] used;
    assign kept[i] = 32'(used);
    es_fifo_block #(
        .WIDTH(W),
        .DEPTH(D)
    ) beats (
        .clk,
        .rst,
        .s_data ({s_axis_tlast, s_axis_tkeep, s_axis_tdata}),
        .s_valid(put[i]),
        .s_ready(queue_ready[i]),
        .m_data (beat[i]),
        .m_valid(beat_valid[i]),
        .m_ready(beat_ready[i]),
        .used
    );
  end
  // Told a clock late, in which a beat may come.
  always_ff @(posedge clk) completion_room <= kept[es_peb_pkg::COMPLETION] + 32'(LONG_BEATS) <= 32'(COMPLETION_DEPTH);

  assign m_axis_tuser = class_now;
  assign m_axis_tvalid = sending && beat_valid[class_now];
  assign {m_axis_tlast, m_axis_tkeep, m_axis_tdata} = beat[class_now];
  assign busy = sending;

  always_ff @(posedge clk) begin
    if ((posted_goes && ((non_posted_there && non_posted_free != '0) || (completion_there && completion_free != '0))) || completion_owes)
      stat_passed <= stat_passed + 1'b1;
    if (expired && !answered) stat_timeouts <= stat_timeouts + 1'b1;
    if (clear) begin
      stat_passed   <= '0;
      stat_timeouts <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      one_begins : assert ($onehot0(begin_now));
      room_for_what_begins : assert ((begin_now & ~m_room) == '0);
      fence_is_alone : assert (!(fence_goes && held));
    end
  end
`endif
endmodule

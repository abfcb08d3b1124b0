// The sending half of a session: sequences, bodies kept until they are acknowledged, and which of them leaves next.
//
// Bodies come by `s_axis_*`, one packet a Data frame. `due` says that a Data frame may leave: `due_sequence`, whether it has left before, its length. `sent`
// takes it; its body follows at `m_axis_*`. An acknowledgement is taken by `ack_valid` while `busy` is low: a cumulative one in a clock, a
// SACK block at a bit a clock.
//
// `ack`, `ack_credit`, `ack_sack`, `sack`, `ack_echo` and `echo_ts` are there two clocks before ack_valid.
//
// A frame is lost, selective: if one that left later has arrived (its time was echoed) and the reordering window has passed. Classic: if that is so of the
// first, and then all are. Both: if nothing was heard of it for the retransmission timeout; and after silence for two round trips the
// newest is sent again, so that there is something to hear of. One frame is looked at in five clocks.
module es_efe_send #(
    parameter int DATA_W     = 64,    // bits of tdata
    parameter int SLOTS      = 16,    // frames on their way or waiting, a power of two, at most 128
    parameter int SLOT_BEATS = 256,   // beats of the longest body, a power of two
    parameter int PROBE_NS   = 65536  // ns beyond two round trips until a tail-loss probe: the peer's delay of acknowledgements
) (
    input wire clk,
    input wire rst,   // of a session, too: all bodies are forgotten, but for one that is leaving
    input wire clear, // the counters, and what is leaving

    input wire        classic,
    input wire [31:0] now,      // ns

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic        due,
    output logic        due_again,
    output logic [31:0] due_sequence,
    output logic [15:0] due_length,
    input  wire         sent,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    input  wire                [31:0] first,         // sequence of the first frame
    input  wire                       begin_credit,  // takes `ack_credit` as it is
    input  wire                       ack_valid,
    input  wire                [31:0] ack,
    input  wire                [31:0] ack_credit,
    input  wire                       ack_sack,
    input  es_wire_pkg::sack_t        sack,
    input  wire                       ack_echo,
    input  wire                [31:0] echo_ts,
    output logic                      busy,
    output logic                      violation,     // ack of what was never sent

    // What the controller says, and what it is told.
    input  wire  [15:0] window,   // frames
    input  wire  [31:0] rtt,      // the last one, ns
    input  wire  [31:0] base,     // the least one, ns
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire  [31:0] srtt,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire  [31:0] rto,
    output logic        timeout,  // pulse
    output logic        loss,     // pulse
    output logic        acked,    // pulse for each frame that has arrived

    output logic [31:0] next,  // sequence that the next new frame has
    output logic starved,  // frames wait, nothing is on its way, and there is no credit

    output logic [31:0] stat_again,  // retransmissions
    output logic [31:0] stat_timeouts,
    output logic [31:0] stat_probes
);
  localparam int SW = $clog2(SLOTS);
  localparam int BYTES = DATA_W / 8;

  if (SLOTS > 128) begin : gen_check
    $error("es_efe_send: SLOTS above 128");
  end

  // Sequences: oldest not acknowledged, goal of the walk towards the last ack, next new, next to be filled. They are within SLOTS of each other, so that
  // their distances are counted in SW + 1 bits.
  logic [31:0] oldest, goal, filled, credit;
  logic [31:0] at;  // the frame that is looked at: oldest to next
  logic [31:0] left_at[SLOTS];
  logic [15:0] length[SLOTS];
  logic [SLOTS-1:0] arrived, lost;

  function automatic logic [SW:0] apart(input logic [31:0] from, input logic [31:0] upto);
    return upto[SW:0] - from[SW:0];
  endfunction

  // The walk: towards an ack, over a SACK block, or looking for what is lost.
  logic walking, walked, sacking, aligned, any_lost;
  logic [es_wire_pkg::SACK_BITS-1:0] marks;
  logic [31:0] mark_at, mark_offset, probe_at;
  logic mark_in;
  logic [SW-1:0] mark_slot;
  logic [SW:0] lost_count, flight;  // frames that are lost, that are on their way
  logic [SW:0] span;  // that were sent and are not acknowledged, a clock late: nothing is asked of those that left in the clock before
  logic [31:0] limit_later, limit_late, limit_stale;
  logic old_flight, mark_hit, look, look_later, look_late, look_lost, back;
  logic echoed;
  logic [31:0] newest, progress;
  logic [1:0] probes;
  logic probe, stale;
  logic [2:0] backoff;

  // Bodies come in.
  logic [15:0] filling, beat_bytes;
  logic taken;

  always_comb begin
    beat_bytes = '0;
    for (int i = 0; i < BYTES; i++) if (s_axis_tkeep[i]) beat_bytes = beat_bytes + 16'd1;
  end
  assign taken = s_axis_tvalid && s_axis_tready;

  always_ff @(posedge clk) begin
    s_axis_tready <= apart(oldest, filled) != (SW + 1)'(SLOTS) && !(taken && s_axis_tlast);
    if (taken) begin
      filling <= s_axis_tlast ? '0 : filling + beat_bytes;
      if (s_axis_tlast) begin
        length[filled[SW-1:0]] <= filling + beat_bytes;
        filled <= filled + 1'b1;
      end
    end
    if (rst) begin
      s_axis_tready <= 1'b0;
      filling <= '0;
      filled <= first;
    end
  end

  // Bodies go out.
  logic idle, go_again, go_new;

  es_slots #(
      .DATA_W(DATA_W),
      .SLOTS(SLOTS),
      .SLOT_BEATS(SLOT_BEATS)
  ) bodies (
      .clk,
      .rst(clear),
      .s_restart(rst),
      .s_slot(filled[SW-1:0]),
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tlast,
      .s_axis_tvalid(taken),
      .read_slot(due_sequence[SW-1:0]),
      .read(sent),
      .idle,
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );

  // What may leave. The walk over the frames stops at one that is lost until it has left.
  logic [SW-1:0] at_slot;
  logic at_in, at_lost, room;

  assign at_slot = at[SW-1:0];
  assign at_in = apart(oldest, at) < span;
  assign at_lost = at_in && lost[at_slot] && !arrived[at_slot];
  assign room = flight == '0 || 16'(flight) < window;

  assign due = (go_again || go_new) && idle;
  assign due_again = go_again;
  assign due_sequence = go_again ? at : next;
  assign due_length = length[due_sequence[SW-1:0]];

  // Registered, and taken back when a frame leaves.
  always_ff @(posedge clk) begin
    go_again <= at_lost && room && !sent && !busy && !ack_valid;
    go_new   <= next[SW:0] != filled[SW:0] && $signed(next - credit) < 0 && room && !sent && !any_lost && !busy && !ack_valid;
    starved  <= next[SW:0] != filled[SW:0] && $signed(next - credit) >= 0 && flight == '0 && !any_lost;
    if (rst) begin
      go_again <= 1'b0;
      go_new   <= 1'b0;
      starved  <= 1'b0;
    end
  end

  // The walk: first towards an ack, then over a SACK block, else looking for what is lost.
  assign walking = oldest[SW:0] != goal[SW:0];
  // A clock longer than the walk: what is said of the next ack counts from where it ends.
  assign busy = walking || walked || sacking;
  assign mark_in = mark_offset[31:SW+1] == '0 && mark_offset[SW:0] < span;
  assign mark_slot = mark_at[SW-1:0];
  assign any_lost = lost_count != '0;

  assign old_flight = walking && !arrived[oldest[SW-1:0]] && !lost[oldest[SW-1:0]];
  assign mark_hit = aligned && sacking && mark_in && marks[es_wire_pkg::SACK_BITS-1] && !arrived[mark_slot];

  // The look: what is kept of the frame, how long ago it left, what that says, the judgement, and what is done. It begins anew when anything else happens.
  localparam logic [2:0] KEPT = 3'd0, AGE = 3'd1, SAY = 3'd2, JUDGE = 3'd3, ACT = 3'd4;
  logic [2:0] phase;
  logic looks, on_way, waits, left_before, newest_arrived, is_lost, is_late, is_back, is_probe;
  logic [31:0] left_kept, age;

  assign looks = !busy && !sent && !ack_valid;
  always_ff @(posedge clk) begin
    phase <= looks && phase != ACT ? phase + 1'b1 : KEPT;
    if (phase == KEPT) begin
      on_way <= at_in && !arrived[at_slot] && !lost[at_slot];
      waits <= at_lost;
      left_kept <= left_at[at_slot];
    end
    if (phase == AGE) begin
      age <= now - left_kept;
      left_before <= echoed && $signed(newest - left_kept) > 0 && (!classic || oldest[SW:0] == at[SW:0]);
    end
    if (phase == SAY) begin
      look_later <= left_before && (classic || age > limit_later);
      look_late  <= age > limit_late;
    end
    if (phase == JUDGE) begin
      is_lost  <= on_way && (look_later || look_late);
      is_late  <= look_late && !look_later;
      // All at once: classic goes back, a timeout takes all for lost.
      is_back  <= classic || (look_late && !look_later);
      is_probe <= stale && probes != 2'd0 && flight != '0 && !any_lost;
    end
    newest_arrived <= arrived[SW'(next-32'd1)];
    if (rst) phase <= KEPT;
  end

  assign look = looks && phase == ACT;
  assign look_lost = look && is_lost;
  assign back = look_lost && is_back;
  assign probe = look && !is_lost && is_probe;

  // Limits that change slowly, a clock late.
  always_ff @(posedge clk) begin
    limit_later <= rtt + (base >> 2);
    limit_late <= rto << backoff;
    limit_stale <= {srtt[30:0], 1'b0} + PROBE_NS;
    stale <= now - progress > limit_stale;
  end

  // What an acknowledgement says beside what is known, in the two clocks before it is taken.
  logic [31:0] ack_offset;
  logic ack_back, ack_beyond, ack_news, credit_news, echo_news;
  always_ff @(posedge clk) begin
    span        <= apart(oldest, next);
    walked      <= walking && !rst;
    ack_offset  <= ack - oldest;
    ack_back    <= ack_offset[31];
    ack_beyond  <= ack_offset[30:SW+1] != '0 || ack_offset[SW:0] > span;
    ack_news    <= ack_offset[SW:0] != '0;
    credit_news <= $signed(ack_credit - credit) > 0;
    echo_news   <= $signed(echo_ts - newest) > 0;
  end

  // One change of the counts at a time, but for a frame that leaves.
  logic [SW:0] flight_less, lost_less;

  always_comb begin
    flight_less = '0;
    lost_less   = '0;
    if (walking) begin
      flight_less = (SW + 1)'(old_flight);
      lost_less   = (SW + 1)'(!old_flight && !arrived[oldest[SW-1:0]]);
    end else if (mark_hit) begin
      flight_less = (SW + 1)'(!lost[mark_slot]);
      lost_less   = (SW + 1)'(lost[mark_slot]);
    end
  end

  always_ff @(posedge clk) begin
    violation <= 1'b0;
    timeout <= 1'b0;
    loss <= 1'b0;
    acked <= (walking && !arrived[oldest[SW-1:0]]) || mark_hit;

    flight <= flight - flight_less + (SW + 1)'(sent);
    lost_count <= lost_count - lost_less - (SW + 1)'(sent && due_again);

    // Acknowledgements.
    if (ack_valid && !busy) begin
      if (begin_credit) begin
        credit <= ack_credit;
      end else if (!ack_back) begin
        if (ack_beyond) violation <= 1'b1;
        else begin
          goal <= ack;
          if (ack_news) progress <= now;
          if (ack_news) probes <= 2'd2;
          if (ack_news) backoff <= 3'd0;
          if (credit_news) credit <= ack_credit;
          if (ack_sack && !classic) begin
            marks   <= sack.bitmap;
            mark_at <= sack.base;
            sacking <= 1'b1;
            aligned <= 1'b0;
          end
        end
      end
      if (ack_echo && (!echoed || echo_news)) begin
        newest <= echo_ts;
        echoed <= 1'b1;
      end
    end else if (walking) begin
      oldest <= oldest + 1'b1;
      if (oldest[SW:0] == at[SW:0]) at <= at + 1'b1;
    end else if (sacking && !aligned) begin
      mark_offset <= mark_at - oldest;
      aligned <= 1'b1;
    end else if (sacking) begin
      if (mark_hit) begin
        arrived[mark_slot] <= 1'b1;
        progress <= now;
      end
      marks <= marks << 1;
      sacking <= marks[es_wire_pkg::SACK_BITS-2:0] != '0;
      mark_at <= mark_at + 1'b1;
      mark_offset <= mark_offset + 1'b1;
    end

    // A frame leaves.
    if (sent) begin
      left_at[due_sequence[SW-1:0]] <= now;
      lost[due_sequence[SW-1:0]] <= 1'b0;
      if (!due_again) begin
        arrived[due_sequence[SW-1:0]] <= 1'b0;
        next <= next + 1'b1;
        if (flight == '0) progress <= now;
        if (flight == '0) probes <= 2'd2;
      end
    end

    // The judgement about the frame that is looked at.
    if (look) begin
      if (look_lost) begin
        loss <= 1'b1;
        if (is_late) begin
          timeout  <= 1'b1;
          progress <= now;
          if (backoff != 3'd6) backoff <= backoff + 1'b1;
        end
      end
      if (back) begin
        // In classic mode nothing behind the first has arrived.
        lost <= ~arrived;
        at <= oldest;
        lost_count <= lost_count + flight;
        flight <= '0;
      end else if (look_lost) begin
        lost[at_slot] <= 1'b1;
        lost_count <= lost_count + 1'b1;
        flight <= flight - 1'b1;
      end else if (probe) begin
        // The newest that is on its way, or in classic mode the first.
        probes <= probes - 1'b1;
        progress <= now;
        at <= probe_at;
        lost[probe_at[SW-1:0]] <= 1'b1;
        lost_count <= lost_count + 1'b1;
        flight <= flight - 1'b1;
      end else if (!waits) begin
        at <= apart(oldest, at) + 1'b1 < span ? at + 1'b1 : oldest;
      end
    end else if (sent && due_again) begin
      at <= at + 1'b1;
    end

    if (rst) begin
      oldest <= first;
      goal <= first;
      next <= first;
      at <= first;
      credit <= first;
      flight <= '0;
      lost_count <= '0;
      sacking <= 1'b0;
      echoed <= 1'b0;
      probes <= '0;
      backoff <= '0;
      violation <= 1'b0;
      timeout <= 1'b0;
      loss <= 1'b0;
      acked <= 1'b0;
    end
  end

  assign probe_at = classic || newest_arrived ? oldest : next - 32'd1;

  always_ff @(posedge clk) begin
    if (sent && due_again) stat_again <= stat_again + 1'b1;
    if (timeout) stat_timeouts <= stat_timeouts + 1'b1;
    if (probe) stat_probes <= stat_probes + 1'b1;
    if (clear) begin
      stat_again <= '0;
      stat_timeouts <= '0;
      stat_probes <= '0;
    end
  end
endmodule
